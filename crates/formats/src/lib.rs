//! Bytes of other tools become the types of `sexton_core::model`.
//!
//! Nothing here opens a file or reads a clock: every reader takes bytes (or a reader of them) and says what it found,
//! what was wrong with it and where, and whether it is all. A line or an object that cannot be read is a problem with
//! its place; the rest is used. Large inputs are streamed.
#![forbid(unsafe_code)]

pub mod addr;
pub mod antctl;
pub mod bundle;
pub mod capture;
pub mod cni;
pub mod cnilog;
pub mod conntrack;
pub mod counters;
pub mod crictl;
pub mod hns;
pub mod ip;
pub mod ipset;
pub mod iptables;
pub mod ipvs;
mod items;
pub mod kube;
pub mod nft;
pub mod nic;
mod problems;
pub mod text;
