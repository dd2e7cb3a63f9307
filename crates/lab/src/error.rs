//! What can go wrong in the lab.

use std::path::{Path, PathBuf};

use sexton_linux::cri::CriError;

use crate::cmd::CommandError;
use crate::ns::NsError;

/// Why the lab could not do something.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A tool failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The runtime gave no answer.
    #[error(transparent)]
    Cri(#[from] CriError),
    /// A namespace could not be entered.
    #[error(transparent)]
    Ns(#[from] NsError),
    /// A file could not be read, written or made.
    #[error("cannot {act} {}", path.display())]
    File {
        /// What was tried, such as `write`.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A program that the lab needs is not installed.
    #[error("{what} is not installed: apt-get install {package}")]
    Missing {
        /// The program or file.
        what: String,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// Something was started and did not become ready in time.
    #[error("{what} did not become ready: {log}")]
    NotReady {
        /// What was waited for.
        what: &'static str,
        /// The end of its log.
        log: String,
    },
    /// The directory cannot hold a lab.
    #[error("{}: {why}", dir.display())]
    Place {
        /// The directory.
        dir: PathBuf,
        /// Why not.
        why: &'static str,
    },
    /// The lab's own process for this directory could not be talked to.
    #[error("no lab runs in {}", dir.display())]
    NoLab {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Something is not as it has to be for the next step.
    #[error("{0}")]
    State(String),
    /// A socket could not be made in a namespace.
    #[error("cannot open {what}")]
    Socket {
        /// Which one.
        what: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The lab's own JSON could not be written or read.
    #[error("{what} is not the JSON that was expected")]
    Json {
        /// The file or message.
        what: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl LabError {
    /// For `map_err` on file operations.
    pub(crate) fn file(act: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { act, path, source }
    }
}
