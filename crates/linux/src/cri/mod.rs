//! The Container Runtime Interface, as far as Sexton reads it.
//!
//! [`proto`] holds the messages, written by hand with the field numbers of `pkg/apis/runtime/v1/api.proto`
//! (kubernetes/cri-api), so that no protobuf compiler is needed to build Sexton; fields that are not named there are
//! skipped when an answer is read. [`client`] asks a runtime over its unix socket.

pub mod client;
mod info;
pub mod proto;

pub use client::{CriClient, CriError};
pub use info::{CniInterface, SandboxInfo, SandboxInfoError};
