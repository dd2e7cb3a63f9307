//! The pure core of Sexton: what a node's network state *is* ([`model`]), who lives on the node ([`roster`]),
//! what is wrong and why ([`rules`]), what would mend it ([`plan`]) and in which order ([`repair`]).
//!
//! Nothing here reads a file, a socket or a clock. Facts and times are arguments, so every judgement can be
//! repeated from a recording.
#![forbid(unsafe_code)]

pub mod explain;
pub mod finding;
pub mod interest;
pub mod judge;
pub mod marks;
pub mod model;
pub mod node;
pub mod plan;
pub mod repair;
pub mod report;
pub mod roster;
pub mod rules;
pub mod services;
pub mod settings;
pub mod traffic;

#[cfg(any(test, feature = "sim"))]
pub mod sim;

#[cfg(test)]
pub(crate) mod testkit;
