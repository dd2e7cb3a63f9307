//! Taking a node down with nothing left: by its directory alone, so that it also works for a lab whose own process is gone.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::place::{Place, Process};
use crate::error::LabError;

/// How long killed processes and their cgroups may take to go.
const DEADLINE: Duration = Duration::from_secs(5);

const PROCESSES: &str = "processes.json";

/// Writes down which processes hold the namespaces.
pub(crate) fn remember(place: &Place, processes: &[Process]) -> Result<(), LabError> {
    let json = |source| LabError::Json {
        what: PROCESSES.into(),
        source,
    };
    let text = serde_json::to_string(processes).map_err(json)?;
    super::write(&place.path(PROCESSES), text)
}

/// Name of the cgroup that holds this lab's sandboxes.
pub(crate) fn cgroup(place: &Place) -> String {
    let name = place.dir().to_string_lossy().replace('/', "-");
    format!("/sexton-lab{name}")
}

/// Kills what holds the namespaces, which ends every process and mount of the node with it, and removes cgroups and directory.
pub(crate) fn down(place: &Place) -> Result<(), LabError> {
    let dir = place.dir();
    let known = std::fs::read_to_string(place.path(PROCESSES)).unwrap_or_default();
    let processes: Vec<Process> = serde_json::from_str(&known).unwrap_or_default();
    if processes.is_empty() && !place.path("ns").exists() {
        let source = std::io::ErrorKind::NotFound.into();
        return Err(LabError::NoLab {
            dir: dir.to_path_buf(),
            source,
        });
    }
    for process in &processes {
        process.kill();
    }
    let end = Instant::now() + DEADLINE;
    let pause = Duration::from_millis(5);
    while processes.iter().any(|process| process.runs()) {
        if Instant::now() >= end {
            return Err(LabError::State(format!(
                "processes of the lab in {} do not end",
                dir.display()
            )));
        }
        std::thread::sleep(pause);
    }
    for group in cgroups(place) {
        while let Err(source) = remove_cgroup(&group) {
            if Instant::now() >= end {
                return Err(LabError::File {
                    act: "remove",
                    path: group,
                    source,
                });
            }
            std::thread::sleep(pause);
        }
    }
    // The last references to the node's mounts go a moment after its processes.
    while let Err(source) = std::fs::remove_dir_all(dir) {
        if source.kind() == std::io::ErrorKind::NotFound {
            break;
        }
        if Instant::now() >= end {
            return Err(LabError::File {
                act: "remove",
                path: dir.to_path_buf(),
                source,
            });
        }
        std::thread::sleep(pause);
    }
    Ok(())
}

/// This lab's cgroup in each hierarchy (one in the unified one).
fn cgroups(place: &Place) -> Vec<PathBuf> {
    let name = cgroup(place);
    let name = name.trim_start_matches('/');
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    std::iter::once(root.to_path_buf())
        .chain(hierarchies)
        .map(|hierarchy| hierarchy.join(name))
        .filter(|group| group.is_dir())
        .collect()
}

fn remove_cgroup(group: &Path) -> std::io::Result<()> {
    for child in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if child.path().is_dir() {
            remove_cgroup(&child.path())?;
        }
    }
    match std::fs::remove_dir(group) {
        Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
