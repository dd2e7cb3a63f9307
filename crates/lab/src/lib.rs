//! The lab: a test node for Sexton on one machine.
//!
//! A [`LabNode`] is a network, mount, PID and UTS namespace in which a real containerd with real CNI plugins runs, with everything in the
//! place where it lies on a real node, a stand-in for the Kubernetes API, and a second namespace for the clients outside.
//! [`faults`] puts stale state on it, with the tools that leave such state in the world, beside living things that look almost the same;
//! what was put there is written down ([`truth::Truth`], `lab.json`), so that a test or a demo can check a program against it. `sexton-lab load`
//! talks to the living all the while and counts what failed.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use sexton_lab::{LabNode, LabOptions, PodSpec};
//!
//! let node = LabNode::up("/tmp/node1", LabOptions::default())?;
//! let web = node.pod(PodSpec::new("shop", "web-0").tcp(8080).host_port_tcp(18080, 8080))?;
//! println!("{} has {}", web.name, web.ip);
//! println!("{}", node.run(["iptables-save", "-t", "nat"])?.stdout);
//! # Ok(()) }   // dropping the node takes all of it away
//! ```
//!
//! Most of it needs root, and Debian's `containerd runc containernetworking-plugins busybox-static iptables nftables conntrack iproute2`.
#![forbid(unsafe_code)]

pub mod api;
pub mod bench;
mod cmd;
pub mod cri;
mod cri_server;
pub mod demo;
mod echo;
mod error;
pub mod fabric;
pub mod faults;
mod grpc;
pub mod keeper;
pub mod kubeserver;
pub mod load;
mod node;
mod ns;
mod pods;
pub mod skip;
pub mod snapshot;
mod talk;
pub mod truth;

pub use cmd::{CommandError, Output};
pub use error::LabError;
pub use faults::Fault;
pub use node::{LabNode, LabOptions, Place, RuntimeKind, Variant, unprivileged_unsupported, unsupported};
pub use ns::{NsError, in_netns};
pub use pods::{NPL_ANNOTATION, Pod, PodSpec};
pub use talk::{Probe, probe};
