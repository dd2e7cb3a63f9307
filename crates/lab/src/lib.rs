//! Test nodes for Sexton: real kernels, real daemons, real API servers, and the faults that real tools leave.
#![forbid(unsafe_code)]

pub mod kubeserver;
pub mod skip;
