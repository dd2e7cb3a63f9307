//! Runtimes other than the kubelet's, by their sockets and processes.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use sexton_core::model::{Runtime, RuntimeKind};

use crate::procs::Processes;

/// Sockets of runtimes, and what answers there.
const SOCKETS: [(&str, Kind); 9] = [
    ("/run/containerd/containerd.sock", Kind::Containerd),
    ("/run/k3s/containerd/containerd.sock", Kind::Containerd),
    ("/run/docker/containerd/containerd.sock", Kind::Containerd),
    ("/var/snap/microk8s/common/run/containerd.sock", Kind::Containerd),
    ("/run/k0s/containerd.sock", Kind::Containerd),
    ("/run/docker.sock", Kind::Docker),
    ("/run/podman/podman.sock", Kind::Podman),
    ("/run/crio/crio.sock", Kind::Crio),
    ("/run/cri-dockerd.sock", Kind::CriDockerd),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Containerd,
    Docker,
    Podman,
    Crio,
    CriDockerd,
    Lxc,
}

impl Kind {
    /// What a process of this name is, where it is a runtime or watches over a container of one.
    fn of_process(command: &str) -> Option<Self> {
        match command {
            "containerd" => Some(Self::Containerd),
            "dockerd" => Some(Self::Docker),
            "cri-dockerd" => Some(Self::CriDockerd),
            "podman" | "conmon" => Some(Self::Podman),
            "crio" => Some(Self::Crio),
            "lxd" | "incusd" | "lxc-start" | "lxc-monitord" | "systemd-nspawn" => Some(Self::Lxc),
            other => other.starts_with("[lxc monitor]").then_some(Self::Lxc),
        }
    }

    fn model(self) -> RuntimeKind {
        match self {
            Self::Containerd => RuntimeKind::Containerd,
            Self::Docker => RuntimeKind::Docker,
            Self::Podman => RuntimeKind::Podman,
            Self::Crio => RuntimeKind::Other("cri-o".to_owned()),
            Self::CriDockerd => RuntimeKind::Other("cri-dockerd".to_owned()),
            Self::Lxc => RuntimeKind::Other("lxc".to_owned()),
        }
    }
}

/// Who was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Containerds that accept a connection and are not the kubelet's.
    containerds: Vec<PathBuf>,
    /// Others that accept, and processes whose socket was not found.
    others: Vec<(Kind, String)>,
}

impl Seen {
    /// Looks for all of them but the one that answers at `endpoint`.
    pub(super) fn look(processes: &Processes, endpoint: Option<&Path>) -> Self {
        let mut out = Self::default();
        // One daemon may be found by several names; its socket's inode, then its process says that it is the same.
        let mut sockets = HashSet::new();
        let mut pids = HashSet::new();
        let mut crio_is_cri = false;
        if let Some(endpoint) = endpoint {
            sockets.extend(identity(endpoint));
            pids.extend(listener(endpoint).flatten());
            crio_is_cri = pids.iter().any(|pid| command(processes, *pid) == Some("crio"));
        }
        for (path, kind) in SOCKETS {
            let path = Path::new(path);
            let Some(identity) = identity(path) else { continue };
            let Some(pid) = listener(path) else { continue };
            if !sockets.insert(identity) || pid.is_some_and(|pid| !pids.insert(pid)) {
                continue;
            }
            match kind {
                Kind::Containerd => out.containerds.push(path.to_path_buf()),
                other => out.others.push((other, path.display().to_string())),
            }
        }
        let mut told = HashSet::new();
        for process in processes.in_own_netns() {
            let Some(kind) = Kind::of_process(&process.command) else {
                continue;
            };
            // CRI-O's containers have a conmon each, as Podman's have.
            if pids.contains(&process.pid) || (crio_is_cri && process.command == "conmon") {
                continue;
            }
            // One line is enough for the many watchers of one runtime.
            if told.insert(process.command.clone()) {
                out.others
                    .push((kind, format!("process {} ({})", process.pid, process.command)));
            }
        }
        out
    }

    /// Containerds to be read.
    pub(super) fn take_containerds(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.containerds)
    }

    /// The rest: seen, and not read. Docker's containers are read where its containerd was: they are in its namespace
    /// `moby`.
    pub(super) fn into_runtimes(self, moby_was_read: bool) -> impl Iterator<Item = Runtime> {
        self.others.into_iter().map(move |(kind, seen_at)| {
            let read = kind == Kind::Docker && moby_was_read;
            Runtime {
                kind: kind.model(),
                seen_at,
                read,
                note: if read {
                    "its containers were read from containerd's namespace moby".to_owned()
                } else {
                    "its containers cannot be read".to_owned()
                },
            }
        })
    }
}

fn command(processes: &Processes, pid: u32) -> Option<&str> {
    let process = processes.all.iter().find(|process| process.pid == pid)?;
    Some(&process.command)
}

/// A socket file's identity; several paths may lead to it.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.dev(), about.ino()))
}

/// Whether somebody accepts at a socket, and who: the process that called `listen(2)`, where the kernel tells it.
fn listener(path: &Path) -> Option<Option<u32>> {
    let stream = UnixStream::connect(path).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok();
    Some(peer.and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::procs::Process;

    fn processes(list: &[(u32, &str, u64)]) -> Processes {
        Processes {
            all: list
                .iter()
                .map(|(pid, command, netns)| Process {
                    pid: *pid,
                    command: (*command).to_owned(),
                    netns: Some(*netns),
                })
                .collect(),
            own_netns: Some(1),
            ..Processes::default()
        }
    }

    #[test]
    fn runtimes_on_the_nodes_network_are_seen_and_others_are_not() {
        let list = processes(&[
            (10, "dockerd", 1),
            (11, "conmon", 1),
            (12, "conmon", 1),
            (13, "dockerd", 2),
            (14, "bash", 1),
        ]);
        let seen = Seen::look(&list, None);
        let lines: Vec<_> = seen.others.iter().map(|(_, at)| at.as_str()).collect();
        assert!(
            lines.contains(&"process 10 (dockerd)") && lines.contains(&"process 11 (conmon)"),
            "{lines:?}"
        );
        assert!(
            !lines
                .iter()
                .any(|line| line.contains("12") || line.contains("13") || line.contains("bash"))
        );
    }

    #[test]
    fn the_one_that_answers_at_the_endpoint_is_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let own = std::process::id();
        let list = processes(&[(own, "containerd", 1), (own + 1, "containerd", 1)]);
        let seen = Seen::look(&list, Some(&path));
        let lines: Vec<_> = seen.others.iter().map(|(_, at)| at.clone()).collect();
        assert!(
            lines.contains(&format!("process {} (containerd)", own + 1)),
            "{lines:?}"
        );
        assert!(!lines.contains(&format!("process {own} (containerd)")));
        drop(_listener);
        assert_eq!(listener(&path), None);
    }
}
