//! host-local's leases: into quarantine and back, under host-local's own lock.
//!
//! The quarantine is `.sexton-quarantine/` beside the data directory, on the same file system and never inside: there
//! host-local would take it for a network. A lease lies in it as `<data dir>/<network>/<address>.<container ID>`.
//! Source of the lock: containernetworking/plugins, `plugins/ipam/host-local/backend/disk/lock.go` (flock of `lock` in
//! the network's directory).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use sexton_core::model::Lease;
use sexton_core::node::Applied;
use sexton_formats::cni::{LeaseFile, read_lease};

/// The quarantine's name.
const QUARANTINE: &str = ".sexton-quarantine";

/// How long to wait for a plugin that holds the lock. One ADD or DEL holds it for milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many leases of one address and container can lie in quarantine side by side.
const PLACES: usize = 10;

/// Moves a lease that still is as it was observed into the quarantine.
pub(super) fn quarantine(lease: &Lease) -> Applied {
    work(lease, |place| {
        match place.read(&place.file) {
            Ok(None) => return Ok(Applied::AlreadyGone),
            Ok(Some((content, modified_at))) => {
                if content != lease.content.as_bytes() {
                    return Ok(Applied::Changed(format!("{} has other content now", lease.path)));
                }
                if lease.modified_at.is_some() && modified_at != lease.modified_at {
                    return Ok(Applied::Changed(format!(
                        "{} was written again since",
                        lease.path
                    )));
                }
            }
            Err(error) => return Err(error),
        }
        let dir = place.quarantine_dir();
        fs::create_dir_all(&dir).map_err(|error| at(&dir, &error))?;
        for candidate in place.quarantined() {
            match rename(&place.file, &candidate) {
                Ok(()) => return Ok(Applied::Done { skipped: Vec::new() }),
                Err(Errno::EXIST) => {}
                Err(Errno::XDEV) => {
                    return Err(format!(
                        "{} is a mount of its own, so nothing beside it is on its file system",
                        place.data_dir.display()
                    ));
                }
                Err(errno) => return Err(at(&candidate, &io::Error::from(errno))),
            }
        }
        Err(format!("{} holds {PLACES} of them already", dir.display()))
    })
}

/// Moves a lease back out of the quarantine, if its address is free.
pub(super) fn restore(lease: &Lease) -> Applied {
    work(lease, |place| {
        let mut candidates: Vec<PathBuf> = place.quarantined().collect();
        // The last one that was put there first.
        candidates.reverse();
        for candidate in candidates {
            let Some((content, _)) = place.read(&candidate)? else {
                continue;
            };
            if content != lease.content.as_bytes() {
                continue;
            }
            return match rename(&candidate, &place.file) {
                Ok(()) => Ok(Applied::Done { skipped: Vec::new() }),
                Err(Errno::EXIST) => Ok(Applied::Changed(format!("{} is there again", lease.path))),
                Err(errno) => Err(at(&place.file, &io::Error::from(errno))),
            };
        }
        if place
            .read(&place.file)?
            .is_some_and(|(content, _)| content == lease.content.as_bytes())
        {
            return Ok(Applied::AlreadyGone);
        }
        Err(format!(
            "{} does not hold this lease",
            place.quarantine_dir().display()
        ))
    })
}

fn work(lease: &Lease, act: impl FnOnce(&Place) -> Result<Applied, String>) -> Applied {
    let result = Place::of(lease).and_then(|place| {
        let Some(lock) = place.lock()? else {
            // The network's directory is gone, and every lease with it.
            return Ok(Applied::AlreadyGone);
        };
        let result = act(&place);
        drop(lock);
        result
    });
    result.unwrap_or_else(Applied::Failed)
}

/// What a file holds, and since when.
type Content = (Vec<u8>, Option<Timestamp>);

/// Where a lease lies.
struct Place {
    file: PathBuf,
    network_dir: PathBuf,
    data_dir: PathBuf,
    name: String,
}

impl Place {
    /// Takes a path apart, and refuses one that is no lease's: what is renamed is named by a plan.
    fn of(lease: &Lease) -> Result<Self, String> {
        let refused = || format!("{:?} is no place of a lease", lease.path);
        let told = match read_lease(&lease.path, lease.content.as_bytes(), lease.modified_at) {
            LeaseFile::Lease(told) => told,
            _ => return Err(refused()),
        };
        if told.ip != lease.ip || told.container != lease.container || lease.path.contains("/../") {
            return Err(refused());
        }
        let file = PathBuf::from(&lease.path);
        let network_dir = file.parent().ok_or_else(refused)?;
        let data_dir = network_dir
            .parent()
            .filter(|dir| dir.parent().is_some())
            .ok_or_else(refused)?;
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(refused)?;
        Ok(Self {
            name: format!("{name}.{}", lease.container),
            network_dir: network_dir.to_path_buf(),
            data_dir: data_dir.to_path_buf(),
            file,
        })
    }

    fn quarantine_dir(&self) -> PathBuf {
        let beside = self.data_dir.parent().unwrap_or(&self.data_dir);
        let mut dir = beside.join(QUARANTINE);
        dir.extend(self.data_dir.file_name());
        dir.extend(self.network_dir.file_name());
        dir
    }

    /// Where the lease may lie in quarantine, in the order in which places are taken.
    fn quarantined(&self) -> impl Iterator<Item = PathBuf> {
        let dir = self.quarantine_dir();
        let name = self.name.clone();
        (0..PLACES).map(move |number| match number {
            0 => dir.join(&name),
            _ => dir.join(format!("{name}.{number}")),
        })
    }

    /// host-local's lock, waited for; none where the network's directory is gone.
    fn lock(&self) -> Result<Option<File>, String> {
        if !self.network_dir.is_dir() {
            return Ok(None);
        }
        let path = self.network_dir.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| at(&path, &error))?;
        let end = Instant::now() + PATIENCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                Err(Errno::WOULDBLOCK) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(format!(
                        "{} was held by a plugin for {} ms",
                        path.display(),
                        PATIENCE.as_millis()
                    ));
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(at(&path, &io::Error::from(errno))),
            }
        }
    }

    /// A plain file's content and time.
    fn read(&self, path: &Path) -> Result<Option<Content>, String> {
        let about = match fs::symlink_metadata(path) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(path, &error)),
        };
        if !about.is_file() {
            return Err(format!("{} is no plain file", path.display()));
        }
        let modified_at = about
            .modified()
            .ok()
            .and_then(|time| Timestamp::try_from(time).ok());
        let content = fs::read(path).map_err(|error| at(path, &error))?;
        Ok(Some((content, modified_at)))
    }
}

/// Renames, unless something is at the new place.
fn rename(from: &Path, to: &Path) -> Result<(), Errno> {
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
}

fn at(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests;
