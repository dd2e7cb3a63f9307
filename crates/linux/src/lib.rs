//! The live Linux node: its kernel, its container runtimes, its files, and the API server's view of it, read into the
//! types of `sexton_core::model`.
//!
//! [`LinuxNode`] is the way in. Every source is a file of its own and independent of the others: each has a deadline
//! and a report, and one that is missing never stops another. Reading changes nothing on the node: no module is
//! loaded, no table is created (law 12 of the design).

mod api;
mod apply;
mod capture;
mod cni_files;
mod command;
pub mod cri;
pub mod drops;
mod identity;
mod kinds;
mod kubelet;
mod meter;
mod modules;
mod namespaces;
mod netlink;
mod node;
mod options;
mod procs;
mod runtime;
mod source;
mod xtables;

pub use capture::{Bounds, CaptureError, Recorded, capture};
pub use command::CommandError;
pub use kinds::Kinds;
pub use meter::{Meter, MeterError};
pub use netlink::NetlinkError;
pub use node::{LinuxNode, OpenError};
pub use options::{ApiAccess, KeepConntrack, LinuxOptions, Tracked};
