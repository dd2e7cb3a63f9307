//! A real kube-apiserver for tests, started from `testserver/`'s program.
//!
//! There is no kubelet, scheduler or controller: what a test writes is all there is. In particular a deleted
//! namespace stays Terminating for ever, and a bound Pod deleted with its default grace stays too, terminating.
//!
//! Starting takes about 5 seconds of CPU and 300 MB, so such tests belong into files named `live*.rs`, which run one
//! at a time, and one server should serve many assertions.

mod objects;
mod users;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// What can go wrong with a test's API server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server is to be had on this machine; a test skips with these words.
    #[error("{0}")]
    NotFound(String),
    /// The server ended, or was not ready in time.
    #[error("kube-apiserver {what}; its last words:\n{log}")]
    NotReady {
        /// What happened instead.
        what: String,
        /// The end of its log.
        log: String,
    },
    /// A helper was given an object that lacks what it needs.
    #[error("not an object that can be sent: {0}")]
    BadObject(String),
    /// A file or process could not be handled.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// The server refused, or could not be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// A kubeconfig could not be used.
    #[error(transparent)]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// A certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// A running kube-apiserver with its etcd, ended when dropped.
#[derive(Debug)]
pub struct KubeServer {
    program: PathBuf,
    dir: TempDir,
    child: Option<Child>,
}

/// How long a start may take. Measured: 5 s on an idle machine, 8 s beside other builds.
const START: Duration = Duration::from_secs(90);
/// How long an orderly end may take before it is forced. Measured: 2.6 s.
const STOP: Duration = Duration::from_secs(20);

impl KubeServer {
    /// Starts a fresh cluster and waits until it serves.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] where there is no program to start (see `script/kube-apiserver`), else why it did not start.
    pub fn start() -> Result<Self, Error> {
        let program = find()?;
        // Not under $TMPDIR, which may be long: a unix socket's path in it has at most 107 bytes.
        let dir = tempfile::Builder::new()
            .prefix("sexton-kube-")
            .tempdir_in("/tmp")
            .map_err(io_error("making a folder in /tmp"))?;
        let mut server = KubeServer {
            program,
            dir,
            child: None,
        };
        server.launch()?;
        Ok(server)
    }

    /// The folder that holds all of the cluster: certificates, tokens, data, `server.log`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The administrator's kubeconfig, by client certificate.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("admin.kubeconfig")
    }

    /// The administrator's kubeconfig, by bearer token.
    pub fn token_kubeconfig(&self) -> PathBuf {
        self.dir.path().join("admin-token.kubeconfig")
    }

    /// The server's URL; a restart keeps it.
    ///
    /// # Errors
    ///
    /// If the server does not run.
    pub fn url(&self) -> Result<String, Error> {
        let text = fs::read_to_string(self.ready_file()).map_err(io_error("reading the server's URL"))?;
        Ok(text.trim().to_owned())
    }

    /// Ends the server at once, as a crash does: open connections break, new ones are refused.
    ///
    /// # Errors
    ///
    /// If the process cannot be ended.
    pub fn kill(&mut self) -> Result<(), Error> {
        if let Some(mut child) = self.child.take() {
            child
                .kill()
                .and_then(|()| child.wait())
                .map_err(io_error("ending kube-apiserver"))?;
        }
        self.forget_ready()
    }

    /// Asks the server to end and waits; one that does not end in time is killed.
    ///
    /// # Errors
    ///
    /// If the process cannot be ended.
    pub fn stop(&mut self) -> Result<(), Error> {
        if let Some(child) = &mut self.child {
            let pid = rustix::process::Pid::from_child(child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                .map_err(|e| io_error("asking kube-apiserver to end")(e.into()))?;
            let deadline = Instant::now() + STOP;
            while ended(child)?.is_none() {
                if Instant::now() > deadline {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        self.kill()
    }

    /// Starts the server again after [`kill`](Self::kill) or [`stop`](Self::stop), with its data, port and
    /// certificates kept, and waits until it serves. Does nothing where it runs.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn restart(&mut self) -> Result<(), Error> {
        if let Some(child) = &mut self.child
            && ended(child)?.is_none()
        {
            return Ok(());
        }
        self.launch()
    }

    fn launch(&mut self) -> Result<(), Error> {
        // A killed server leaves this file, which would pass for the new one's.
        self.forget_ready()?;
        let path = self.log_file();
        let log = File::create(&path).map_err(io_error(path.display().to_string()))?;
        let log2 = log.try_clone().map_err(io_error(path.display().to_string()))?;
        let child = Command::new(&self.program)
            .arg("--dir")
            .arg(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log2)
            .spawn()
            .map_err(io_error(format!("starting {}", self.program.display())))?;
        let ready = self.ready_file();
        let child = self.child.insert(child);

        let deadline = Instant::now() + START;
        let what = loop {
            if ready.exists() {
                return Ok(());
            }
            if let Some(status) = ended(child)? {
                break format!("ended with {status}");
            }
            if Instant::now() > deadline {
                break format!("was not ready after {} s", START.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        self.kill()?;
        Err(Error::NotReady {
            what,
            log: self.last_words(),
        })
    }

    fn ready_file(&self) -> PathBuf {
        self.dir.path().join("ready")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    fn forget_ready(&self) -> Result<(), Error> {
        match fs::remove_file(self.ready_file()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("removing the ready file")(e)),
            _ => Ok(()),
        }
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log_file()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for KubeServer {
    fn drop(&mut self) {
        // At once: nobody needs the data any more, and an orderly end takes seconds.
        let _ = self.kill();
    }
}

fn ended(child: &mut Child) -> Result<Option<ExitStatus>, Error> {
    child
        .try_wait()
        .map_err(io_error("asking for kube-apiserver's state"))
}

/// The server program that `script/kube-apiserver --find` names, which is the one that `script/test` uses.
fn find() -> Result<PathBuf, Error> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../script/kube-apiserver");
    let found = Command::new(&script)
        .arg("--find")
        .output()
        .map_err(io_error(format!("running {}", script.display())))?;
    if found.status.success() {
        return Ok(String::from_utf8_lossy(&found.stdout).trim().into());
    }
    Err(Error::NotFound(
        String::from_utf8_lossy(&found.stderr).trim().to_owned(),
    ))
}
