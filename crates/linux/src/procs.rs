//! The node's processes, with the network namespace of each.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its ID.
    pub(crate) pid: u32,
    /// Its name (`/proc/PID/comm`).
    pub(crate) command: String,
    /// The inode of its network namespace; `None` where that may not be looked at.
    pub(crate) netns: Option<u64>,
}

/// One look at all processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes {
    /// Those that were there, by ID.
    pub(crate) all: Vec<Process>,
    /// The inode of the namespace that this program runs in.
    pub(crate) own_netns: Option<u64>,
    /// How many did not let their namespace be seen.
    pub(crate) hidden: usize,
    /// Why there is no list at all.
    pub(crate) failed: Option<String>,
}

impl Processes {
    /// Looks at all processes that procfs shows. One that ends meanwhile is left out. Threads that have entered another
    /// namespace than their process are not looked at: runtimes do so for moments.
    pub(crate) fn read(proc: &Path) -> Self {
        let mut out = Self {
            own_netns: inode(&proc.join("thread-self/ns/net")).ok(),
            ..Self::default()
        };
        let entries = match fs::read_dir(proc) {
            Ok(entries) => entries,
            Err(error) => {
                out.failed = Some(format!("{}: {error}", proc.display()));
                return out;
            }
        };
        for entry in entries.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let path = entry.path();
            let netns = match inode(&path.join("ns/net")) {
                Ok(inode) => Some(inode),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    out.hidden += 1;
                    None
                }
                // It has ended; a zombie has no namespaces any more.
                Err(_) => continue,
            };
            let Ok(command) = fs::read_to_string(path.join("comm")) else {
                continue;
            };
            out.all.push(Process {
                pid,
                command: command.trim_end().to_owned(),
                netns,
            });
        }
        out.all.sort_by_key(|process| process.pid);
        out
    }

    /// Those whose network namespace is ours.
    pub(crate) fn in_own_netns(&self) -> impl Iterator<Item = &Process> {
        self.all
            .iter()
            .filter(|process| process.netns.is_some() && process.netns == self.own_netns)
    }
}

/// The inode behind a namespace file, which is the namespace's identity.
pub(crate) fn inode(path: &Path) -> std::io::Result<u64> {
    Ok(fs::metadata(path)?.ino())
}

/// A process's command line, argument by argument.
pub(crate) fn command_line(proc: &Path, pid: u32) -> Vec<String> {
    let path: PathBuf = proc.join(pid.to_string()).join("cmdline");
    let bytes = fs::read(path).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect()
}
