//! Placeholder.

pub mod cri;
