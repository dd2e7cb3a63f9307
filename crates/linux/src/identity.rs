//! Which node this is.

use std::path::Path;

use jiff::Timestamp;
use sexton_core::model::NodeIdentity;

use crate::kubelet::Kubelet;

/// Reads who this node is, by what is told first: the caller's name, `NODE_NAME` (which a DaemonSet sets), the
/// kubelet's `hostnameOverride`, the host name, which the kubelet takes in lower case.
pub(crate) fn read(given: Option<&str>, proc: &Path, kubelet: &Kubelet) -> NodeIdentity {
    let name = given
        .map(str::to_owned)
        .or_else(|| std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty()))
        .or_else(|| kubelet.hostname_override.clone())
        .unwrap_or_else(|| {
            let host = std::fs::read_to_string(proc.join("sys/kernel/hostname")).unwrap_or_default();
            host.trim().to_ascii_lowercase()
        });
    NodeIdentity {
        name,
        machine_id: machine_id(),
        booted_at: booted_at(proc),
        run_pod_sandbox: kubelet.run_pod_sandbox,
    }
}

/// `machine-id(5)`, as the kubelet reports it in `status.nodeInfo.machineID`.
fn machine_id() -> Option<String> {
    let text = std::fs::read_to_string("/etc/machine-id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// `btime` of `proc_stat(5)`: seconds since the epoch.
fn booted_at(proc: &Path) -> Option<Timestamp> {
    let text = std::fs::read_to_string(proc.join("stat")).ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    Timestamp::from_second(seconds.trim().parse().ok()?).ok()
}
