//! Who runs containers on this node, and what they say of them.
//!
//! The kubelet's runtime answers over CRI. Others share the kernel with it (law 5), so they are looked for: by their
//! sockets and by their processes; containerd's other namespaces are read, what else there is is at least said.

mod containerd;
mod cri;
mod seen;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sexton_core::model::{Completeness, Facts, Runtime, RuntimeKind, RuntimeState};

use crate::kubelet::Kubelet;
use crate::options::LinuxOptions;
use crate::procs::Processes;
use crate::source::Watch;

/// Reads all runtimes.
pub(crate) async fn read(
    options: &LinuxOptions,
    kubelet: &Kubelet,
    processes: &Processes,
) -> Facts<RuntimeState> {
    let mut state = RuntimeState {
        looked_for_others: processes.failed.is_none(),
        ..RuntimeState::default()
    };
    let watch = Watch::start("cri");
    let (endpoints, told_by) = endpoints(options, kubelet);
    let mut facts = Facts::default();
    let mut cri_socket = None;
    let mut is_containerd = false;
    match endpoints {
        Err(why) => facts
            .reports
            .push(watch.report(Completeness::Unavailable(why), 0)),
        Ok(sockets) => {
            let (socket, reading) = first_that_answers(&sockets, options.deadline).await;
            is_containerd = reading.runtime_name.as_deref() == Some("containerd");
            let items = reading.sandboxes.len();
            let readable = !matches!(reading.completeness, Completeness::Unavailable(_));
            let name = reading.runtime_name.as_deref().unwrap_or("a runtime");
            let version = reading.runtime_version.as_deref().unwrap_or_default();
            state.runtimes.push(Runtime {
                kind: RuntimeKind::Cri,
                seen_at: socket.display().to_string(),
                read: readable,
                note: format!("{name} {version}, by {told_by}").replace(" ,", ","),
            });
            facts.reports.push(watch.report(reading.completeness, items));
            state.sandboxes = reading.sandboxes;
            state.containers = reading.containers;
            cri_socket = Some(socket);
        }
    }
    let mut seen = seen::Seen::look(processes, cri_socket.as_deref());
    // The CRI's own containerd, and every other one that accepts.
    let mut daemons: Vec<(PathBuf, bool)> = seen
        .take_containerds()
        .into_iter()
        .map(|path| (path, false))
        .collect();
    if let (true, Some(socket)) = (is_containerd, &cri_socket) {
        daemons.insert(0, (socket.clone(), true));
    }
    let mut moby = false;
    for (socket, is_cri) in daemons {
        let watch = Watch::start(format!("containerd {}", socket.display()));
        let containers = state.containers.iter().map(|container| &container.id);
        let sandboxes = state.sandboxes.iter().map(|sandbox| &sandbox.id);
        let known: HashSet<_> = containers.chain(sandboxes).cloned().collect();
        let reading = containerd::read(&socket, is_cri, &known, options.deadline).await;
        moby |= reading
            .runtimes
            .iter()
            .any(|runtime| runtime.note.contains(containerd::MOBY));
        state.runtimes.extend(reading.runtimes);
        let items = reading.containers.len();
        state.containers.extend(reading.containers);
        state.recorded_ids.extend(reading.recorded_ids);
        facts.reports.push(watch.report(reading.completeness, items));
    }
    state.recorded_ids.sort();
    state.recorded_ids.dedup();
    state.runtimes.extend(seen.into_runtimes(moby));
    facts.completeness = facts
        .reports
        .iter()
        .map(|report| report.completeness.clone())
        .max()
        .unwrap_or_default();
    facts.value = state;
    facts
}

/// The first of several sockets that answers to CRI; if none does, the first with why not. Where the kubelet tells its
/// endpoint there is only one.
async fn first_that_answers(sockets: &[PathBuf], deadline: Duration) -> (PathBuf, cri::CriReading) {
    let mut first = None;
    for socket in sockets {
        let reading = cri::read(socket, deadline).await;
        // One that names itself speaks CRI; a containerd whose CRI is switched off does not.
        if reading.runtime_name.is_some() {
            return (socket.clone(), reading);
        }
        first.get_or_insert((socket.clone(), reading));
    }
    first.unwrap_or_else(|| {
        (
            PathBuf::new(),
            cri::CriReading::unavailable("no socket was named".to_owned()),
        )
    })
}

/// The sockets to ask, in order, and who told them; or why there is none.
fn endpoints(options: &LinuxOptions, kubelet: &Kubelet) -> (Result<Vec<PathBuf>, String>, String) {
    let told = match (&options.cri_endpoint, &kubelet.cri_endpoint) {
        (Some(endpoint), _) => Some((endpoint, "the caller".to_owned())),
        (None, Some(endpoint)) => Some((
            endpoint,
            kubelet.source.clone().unwrap_or_else(|| "the kubelet".to_owned()),
        )),
        (None, None) => None,
    };
    if let Some((endpoint, by)) = told {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        let socket = if path.starts_with('/') {
            Ok(vec![PathBuf::from(path)])
        } else {
            Err(format!(
                "the CRI endpoint {endpoint:?} (by {by}) is no unix socket"
            ))
        };
        return (socket, by);
    }
    let found: Vec<PathBuf> = options
        .cri_sockets
        .iter()
        .filter(|socket| is_socket(socket))
        .cloned()
        .collect();
    let sockets = if found.is_empty() {
        let tried: Vec<_> = options
            .cri_sockets
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        Err(format!(
            "no CRI socket: the kubelet tells none, and none of {} is one",
            tried.join(", ")
        ))
    } else {
        Ok(found)
    };
    (sockets, "its usual place".to_owned())
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::metadata(path).is_ok_and(|about| about.file_type().is_socket())
}

/// How long a daemon that is not the kubelet's may take to say whether it is there.
const SIDE_DEADLINE: Duration = Duration::from_secs(2);
