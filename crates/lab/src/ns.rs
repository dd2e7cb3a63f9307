//! Doing something inside a network namespace.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Why nothing could be done in a namespace.
#[derive(Debug, thiserror::Error)]
pub enum NsError {
    /// The namespace's file cannot be opened: it is gone.
    #[error("network namespace {}: cannot open", path.display())]
    Open {
        /// The namespace's file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The namespace cannot be entered (no permission, or the file is no network namespace).
    #[error("network namespace {}: cannot enter", path.display())]
    Enter {
        /// The namespace's file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The thread that was to do it ended by a panic.
    #[error("network namespace {}: the thread in it panicked", path.display())]
    Panicked {
        /// The namespace's file.
        path: PathBuf,
    },
}

/// Runs `work` on a thread of its own inside the network namespace of the file `path`, and waits for it. Sockets made there stay in that
/// namespace, whichever thread uses them later.
///
/// # Errors
///
/// [`NsError`] when the namespace cannot be entered; what `work` returns is its own business.
pub fn in_netns<T, F>(path: &Path, work: F) -> Result<T, NsError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let file = File::open(path).map_err(|source| NsError::Open {
        path: path.to_path_buf(),
        source,
    })?;
    // setns(2) moves the calling thread only, and this thread ends with the work.
    let thread = std::thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        drop(file);
        Ok::<T, rustix::io::Errno>(work())
    });
    match thread.join() {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(errno)) => Err(NsError::Enter {
            path: path.to_path_buf(),
            source: errno.into(),
        }),
        Err(_) => Err(NsError::Panicked {
            path: path.to_path_buf(),
        }),
    }
}
