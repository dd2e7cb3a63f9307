//! Load for measuring: a node with as much state on it as was asked for, and what the programs on it cost.
//!
//! It works in the namespaces of the calling process, which must be its own: `script/bench/` makes them. Pods are namespaces with a
//! sleeping process and a veth; the runtime and the API are stand-ins that answer for them.

mod cri;
mod kernel;
mod measure;
mod objects;
mod recorded;
mod repair;

pub use measure::{AuditOptions, Cost, Rounds, audit};
pub use recorded::write_conntrack;
pub use repair::{RepairOptions, repair};

/// How many Pods the node has.
const PODS: usize = 250;

/// Address of a Pod.
fn pod_ip(pod: usize) -> String {
    format!("10.10.1.{}", pod % PODS + 2)
}

/// Container ID of a Pod's sandbox.
fn sandbox_id(pod: usize) -> String {
    format!("{:064x}", 0x5e00_0000_0000_u64 + pod as u64)
}

/// UID of a Pod.
fn pod_uid(pod: usize) -> String {
    format!("00000000-0000-4000-8000-{pod:012x}")
}
