//! A lab's directory, and how to get into the namespaces of the node that runs there. It needs no memory of the process that made
//! the node.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::cmd::{self, CommandError, Output, words};
use crate::error::LabError;

/// The directory of a lab: `ns/` holds links to the namespaces, `bin/` the node's choice of iptables, `net.d/` the CNI
/// configuration, `var-lib-cni/` what is `/var/lib/cni` in the node, `log/` what the parts said, `lab.json` what was made.
#[derive(Clone, Debug)]
pub struct Place {
    dir: PathBuf,
}

/// A process of the lab, named so that a recycled PID is never taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// PID in the PID namespace of whoever made the lab.
    pub(crate) pid: i32,
    /// Start of the process in clock ticks since boot (`proc_pid_stat(5)`, field 22).
    pub(crate) started: u64,
}

impl Process {
    /// A running process by PID; none when there is none.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold spaces; what follows the last one does not.
        let (_, rest) = stat.rsplit_once(')')?;
        let started = rest.split_whitespace().nth(19)?.parse().ok()?;
        Some(Self { pid, started })
    }

    /// Whether exactly this process still runs (a zombie does not).
    pub(crate) fn runs(self) -> bool {
        Self::of(self.pid) == Some(self)
            && std::fs::read_to_string(format!("/proc/{}/stat", self.pid))
                .ok()
                .and_then(|stat| {
                    stat.rsplit_once(')')
                        .map(|(_, rest)| !rest.trim_start().starts_with('Z'))
                })
                .unwrap_or(false)
    }

    /// Kills it, if it still runs.
    pub(crate) fn kill(self) {
        if let (true, Some(pid)) = (self.runs(), rustix::process::Pid::from_raw(self.pid)) {
            // It may have ended in between, which is what is wanted.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// The first child of a process.
pub(crate) fn child_of(pid: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

impl Place {
    /// The lab in `dir`, which must be an absolute path that is not hidden by the node's own mounts.
    ///
    /// # Errors
    ///
    /// [`LabError::Place`] for a directory below `/run`, `/etc`, `/proc`, `/sys` or `/var/lib`, or one whose name cannot stand in the
    /// tools' configuration files.
    pub fn new(dir: impl AsRef<Path>) -> Result<Self, LabError> {
        let given = dir.as_ref();
        let dir = std::path::absolute(given).map_err(LabError::file("find", given))?;
        let refuse = |why| {
            Err(LabError::Place {
                dir: dir.clone(),
                why,
            })
        };
        for hidden in ["/run", "/var/run", "/etc", "/proc", "/sys", "/var/lib"] {
            if dir.starts_with(hidden) {
                return refuse("the node mounts something of its own over this place; take one below /tmp");
            }
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        if !dir.to_str().is_some_and(|text| text.chars().all(plain)) {
            return refuse("the name may hold letters, digits, `.`, `_` and `-` only");
        }
        Ok(Self { dir })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// The kubeconfig for the stand-in of the API.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    /// The node's network namespace.
    pub fn netns(&self) -> PathBuf {
        self.path("ns/net")
    }

    /// The network namespace of the clients outside.
    pub fn client_netns(&self) -> PathBuf {
        self.path("ns/client")
    }

    /// The node's root directory as seen from outside of it.
    pub fn root(&self) -> PathBuf {
        self.path("ns/root")
    }

    /// The network namespace file of a Pod, from its path inside the node (`/run/netns/cni-...`, `/var/run/netns/cni-...`).
    pub fn pod_netns(&self, inside: &Path) -> Option<PathBuf> {
        // `/var/run` is a link to an absolute path, which would lead out of the node's root again.
        Some(self.root().join("run/netns").join(inside.file_name()?))
    }

    /// The runtime's socket as seen from outside.
    pub fn cri_socket(&self) -> PathBuf {
        self.root().join("run/containerd/containerd.sock")
    }

    /// The command line that runs `argv` inside the node.
    pub fn enter<I, S>(&self, argv: I) -> Vec<OsString>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut whole = vec![OsString::from("nsenter")];
        for (option, name) in [("net", "net"), ("mount", "mnt"), ("uts", "uts"), ("pid", "pid")] {
            let mut word = OsString::from(format!("--{option}="));
            word.push(self.path("ns").join(name));
            whole.push(word);
        }
        // Entering the mount namespace puts the process into its root directory.
        if let Some(here) = std::env::current_dir().ok().filter(|here| here.is_dir()) {
            let mut word = OsString::from("--wdns=");
            word.push(if here.starts_with("/run") {
                OsStr::new("/")
            } else {
                here.as_os_str()
            });
            whole.push(word);
        }
        whole.extend(words(argv));
        whole
    }

    /// The environment of whatever runs in the node: its choice of iptables comes first in PATH, `KUBECONFIG` leads to the stand-in.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut path = self.path("bin").into_os_string();
        path.push(":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        if let Some(outside) = std::env::var_os("PATH") {
            path.push(":");
            path.push(outside);
        }
        vec![("PATH", path), ("KUBECONFIG", self.kubeconfig().into_os_string())]
    }

    /// Runs a program inside the node and waits for it.
    ///
    /// # Errors
    ///
    /// [`CommandError`] when it cannot be started, fails, or takes longer than 30 s.
    pub fn run<I, S>(&self, argv: I) -> Result<Output, CommandError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.run_stdin(argv, "")
    }

    /// [`Place::run`] with something on standard input.
    ///
    /// # Errors
    ///
    /// As [`Place::run`].
    pub fn run_stdin<I, S>(&self, argv: I, stdin: impl AsRef<[u8]>) -> Result<Output, CommandError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        cmd::run_with(&self.enter(argv), stdin.as_ref(), &self.environment())
    }

    /// Starts a program inside the node and does not wait for it. Killing the child that is returned kills the program.
    ///
    /// # Errors
    ///
    /// [`CommandError::Start`].
    pub fn spawn<I, S>(&self, argv: I, stdout: Stdio, stderr: Stdio) -> Result<Child, CommandError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        // nsenter forks to get into the PID namespace; the program must not outlive it.
        let argv = words(["setpriv", "--pdeathsig", "KILL", "--"])
            .into_iter()
            .chain(words(argv));
        let whole = self.enter(argv);
        let start = |source| CommandError::Start {
            command: cmd::shown(&whole),
            source,
        };
        let (program, args) = whole
            .split_first()
            .ok_or_else(|| start(std::io::ErrorKind::InvalidInput.into()))?;
        Command::new(program)
            .args(args)
            .envs(self.environment())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .map_err(start)
    }

    /// Runs a program in the network namespace of the clients outside.
    ///
    /// # Errors
    ///
    /// As [`Place::run`].
    pub fn run_client<I, S>(&self, argv: I) -> Result<Output, CommandError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.run_net_stdin(&self.client_netns(), argv, "")
    }

    /// Runs a program in a network namespace and nothing else of the node, with something on standard input.
    ///
    /// # Errors
    ///
    /// As [`Place::run`].
    pub fn run_net_stdin<I, S>(
        &self,
        netns: &Path,
        argv: I,
        stdin: impl AsRef<[u8]>,
    ) -> Result<Output, CommandError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut word = OsString::from("--net=");
        word.push(netns);
        let argv: Vec<OsString> = [OsString::from("nsenter"), word]
            .into_iter()
            .chain(words(argv))
            .collect();
        cmd::run(&argv, stdin.as_ref())
    }

    /// The end of one of the logs, for messages.
    pub(crate) fn log_tail(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path("log").join(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}
