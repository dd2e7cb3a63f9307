//! The node's containerd: started, killed and started again.

use std::fs::OpenOptions;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sexton_linux::cri::CriClient;

use super::image::{self, BUSYBOX, IMAGE};
use super::place::{Place, Process, child_of};
use crate::cmd::{self, CommandError};
use crate::error::LabError;

/// How long containerd may take to answer.
const START_DEADLINE: Duration = Duration::from_secs(15);

/// A running containerd.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// `nsenter`, whose child is containerd.
    outer: Child,
    inner: Process,
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
            (Some(cri), Some(inner)) => Ok((Self { outer, inner }, cri)),
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
    pub(crate) fn crash(mut self) {
        self.inner.kill();
        // nsenter ends with its child.
        let _ = self.outer.wait();
    }
}

/// Puts the pause image into containerd's store.
pub(crate) fn import_image(place: &Place) -> Result<(), LabError> {
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
