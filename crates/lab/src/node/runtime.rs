//! The node's runtime: started, killed, made to forget, and started again.

use std::fs::OpenOptions;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sexton_linux::cri::CriClient;

use super::image::{self, BUSYBOX, IMAGE};
use super::place::{Place, Process, child_of};
use super::{LabNode, RuntimeKind};
use crate::cmd::{self, CommandError};
use crate::cri_server::{CriServer, Sandboxes};
use crate::error::LabError;

/// How long containerd may take to answer.
const START_DEADLINE: Duration = Duration::from_secs(15);

/// How a node's runtime is started, and what of it survives its end.
#[derive(Debug)]
pub(crate) enum Engine {
    /// containerd keeps its store in files.
    Containerd,
    /// The lab's own server keeps it here.
    Lab(Arc<Sandboxes>),
}

impl Engine {
    pub(crate) fn new(place: &Place, kind: RuntimeKind) -> Self {
        match kind {
            RuntimeKind::Containerd => Self::Containerd,
            RuntimeKind::Lab => Self::Lab(Arc::new(Sandboxes::new(place))),
        }
    }

    /// Starts the runtime and waits until it answers.
    pub(crate) async fn start(&self, place: &Place) -> Result<(Runtime, CriClient), LabError> {
        match self {
            Self::Containerd => Runtime::start(place).await,
            Self::Lab(sandboxes) => {
                let server = CriServer::start(place, sandboxes.clone())?;
                let cri = CriClient::connect(place.cri_socket()).await?;
                cri.version().await?;
                Ok((Runtime::Lab(server), cri))
            }
        }
    }

    /// Puts the pause image into the runtime's store, where it has one.
    pub(crate) fn import_image(&self, place: &Place) -> Result<(), LabError> {
        match self {
            Self::Containerd => import_image(place),
            Self::Lab(_) => Ok(()),
        }
    }

    /// Ends the processes of sandboxes and takes these out of the store behind the CRI's back.
    pub(crate) fn forget(&self, node: &LabNode, ids: &[&str]) -> Result<(), LabError> {
        match self {
            Self::Containerd => forget(node, ids),
            Self::Lab(sandboxes) => {
                ids.iter().for_each(|id| sandboxes.forget(id));
                Ok(())
            }
        }
    }

    /// Deletes the store of the stopped runtime.
    pub(crate) fn delete_store(&self, place: &Place) -> Result<(), LabError> {
        match self {
            Self::Containerd => {
                let store = place.path("containerd/io.containerd.metadata.v1.bolt/meta.db");
                std::fs::remove_file(&store).map_err(LabError::file("remove", &store))
            }
            Self::Lab(sandboxes) => {
                sandboxes.forget_all();
                Ok(())
            }
        }
    }
}

/// A running runtime.
#[derive(Debug)]
pub(crate) enum Runtime {
    /// containerd.
    Containerd {
        /// `nsenter`, whose child is containerd.
        outer: Child,
        inner: Process,
    },
    /// The lab's own.
    Lab(CriServer),
}

impl Runtime {
    /// Starts containerd in the node and waits until it answers.
    pub(crate) async fn start(place: &Place) -> Result<(Self, CriClient), LabError> {
        let path = place.path("log/containerd.log");
        let log = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .map_err(LabError::file("open", &path))
        };
        let argv = place.enter(["containerd", "-c", "/etc/containerd/config.toml"]);
        let (program, args) = argv
            .split_first()
            .ok_or_else(|| LabError::State("no command".into()))?;
        let start = |source| CommandError::Start {
            command: cmd::shown(&argv),
            source,
        };
        let mut outer = Command::new(program)
            .args(args)
            .envs(place.environment())
            .stdin(Stdio::null())
            .stdout(log()?)
            .stderr(log()?)
            .spawn()
            .map_err(start)?;
        let end = Instant::now() + START_DEADLINE;
        let socket = place.cri_socket();
        let answer = loop {
            if outer.try_wait().map_err(start)?.is_some() || Instant::now() >= end {
                break None;
            }
            // The socket accepts before the CRI plugin is registered, so one call has to come back.
            if let Ok(cri) = CriClient::connect(&socket).await
                && cri.version().await.is_ok()
            {
                break Some(cri);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let pid = i32::try_from(outer.id())
            .ok()
            .and_then(child_of)
            .and_then(Process::of);
        match (answer, pid) {
            (Some(cri), Some(inner)) => Ok((Self::Containerd { outer, inner }, cri)),
            _ => {
                let _ = outer.kill();
                let _ = outer.wait();
                Err(LabError::NotReady {
                    what: "containerd",
                    log: place.log_tail("containerd.log"),
                })
            }
        }
    }

    /// Kills it as a crash does (SIGKILL). Sandboxes and their shims go on.
    pub(crate) fn crash(self) {
        match self {
            Self::Containerd { mut outer, inner } => {
                inner.kill();
                // nsenter ends with its child.
                let _ = outer.wait();
            }
            Self::Lab(server) => server.crash(),
        }
    }
}

/// Tasks end, then containers are deleted from containerd's store (`platform.md`, way 4).
fn forget(node: &LabNode, ids: &[&str]) -> Result<(), LabError> {
    for id in ids {
        node.run(["ctr", "-n", "k8s.io", "tasks", "kill", "-s", "9", id])?;
    }
    node.wait_for("the tasks' end", || {
        let tasks = node.run(["ctr", "-n", "k8s.io", "tasks", "ls"])?.stdout;
        let runs = |id: &&&str| {
            tasks
                .lines()
                .any(|line| line.contains(**id) && line.contains("RUNNING"))
        };
        Ok(!ids.iter().any(|id| runs(&id)))
    })?;
    for id in ids {
        // The CRI plugin deletes the task when it hears of its end, and the container cannot be deleted before.
        node.wait_for("the container's deletion", || {
            match node.run(["ctr", "-n", "k8s.io", "containers", "delete", id]) {
                Ok(_) => Ok(true),
                // Or it deletes the task between ctr's two questions about it.
                Err(CommandError::Failed { stderr, .. })
                    if stderr.contains("non stopped container")
                        || stderr.contains("running")
                        || stderr.contains(&format!("task {id} not found")) =>
                {
                    Ok(false)
                }
                Err(other) => Err(other.into()),
            }
        })?;
    }
    Ok(())
}

/// Puts the pause image into containerd's store.
fn import_image(place: &Place) -> Result<(), LabError> {
    let busybox = std::fs::read(BUSYBOX).map_err(LabError::file("read", BUSYBOX.as_ref()))?;
    let path = place.path("pause.tar");
    let archive = image::archive(&busybox).map_err(LabError::file("make", &path))?;
    std::fs::write(&path, archive).map_err(LabError::file("write", &path))?;
    let file = path.to_string_lossy().into_owned();
    place.run(["ctr", "-n", "k8s.io", "images", "import", &file])?;
    let listed = place.run(["ctr", "-n", "k8s.io", "images", "ls", "-q"])?.stdout;
    if listed.lines().any(|line| line == IMAGE) {
        Ok(())
    } else {
        Err(LabError::State(format!(
            "containerd took the image {IMAGE} and does not list it"
        )))
    }
}
