//! The seam between judging and a real node: asked for state, it answers facts; given an act, it answers an outcome.
//!
//! It is coarse and object-safe on purpose. There is no trait a system call and no stand-in that answers "done" to everything:
//! the stand-in is the simulator, a small model of a node that refuses what a node refuses.

use std::time::Duration;

use crate::{
    model::{NodeState, Timestamp},
    plan::{Act, Probe},
};

/// What became of one act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Done as a whole. `skipped` names parts that were gone already.
    Done {
        /// Parts that had nothing left to do.
        skipped: Vec<String>,
    },
    /// Nothing was there to do.
    AlreadyGone,
    /// What was expected is not what is there: nothing was changed.
    Changed(String),
    /// It could not be done; whatever was begun was taken back, or is said here.
    Failed(String),
}

/// What a probe saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probed {
    /// A connection arrived where it should.
    Arrived,
    /// It did not; what happened instead.
    Lost(String),
    /// It could not be tried from here; why.
    NotTried(String),
}

/// A node that can be read, changed and waited on.
pub trait Node {
    /// Reads everything. Never fails: what could not be read is said in the facts.
    fn observe(&mut self) -> NodeState;

    /// Carries one act out, all or nothing, if the node still is as the act expects (law 9). Idempotent: an act that is
    /// done already is [`Applied::AlreadyGone`].
    fn apply(&mut self, act: &Act) -> Applied;

    /// Sends traffic to a mapping and sees whether it arrives (law 10). Leaves nothing behind.
    fn probe(&mut self, probe: &Probe) -> Probed;

    /// Who wrote to the place of this act last, where the kernel tells; else what mark the object bears.
    fn writer(&mut self, act: &Act) -> Option<String>;

    /// The time.
    fn now(&self) -> Timestamp;

    /// Waits.
    fn sleep(&mut self, pause: Duration);
}
