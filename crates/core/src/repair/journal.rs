//! What a round keeps of itself, for people and for `undo`.

use serde::{Deserialize, Serialize};

use crate::{
    model::Timestamp,
    plan::{Act, Plan},
};

/// What became of a step or of one finding of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "why", rename_all = "kebab-case")]
pub enum Outcome {
    /// Done, and seen to be done.
    Done,
    /// There was nothing left to do.
    AlreadyGone,
    /// The object is no longer the one that was planned for: refused.
    Changed(String),
    /// The verdict is another one now: refused.
    JudgedDifferently(String),
    /// It failed.
    Failed(String),
    /// Done, and made again by a writer: no fight was begun.
    CameBack(String),
    /// Done, and traffic does not arrive.
    NotProved(String),
}

impl Outcome {
    /// True if nothing is left to do or to say.
    pub const fn is_good(&self) -> bool {
        matches!(self, Self::Done | Self::AlreadyGone)
    }
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// A round begins.
    Begin {
        /// The plan.
        plan: Box<Plan>,
        /// When.
        at: Timestamp,
    },
    /// A step is about to be applied.
    Intent {
        /// Its number in the plan.
        step: u32,
        /// The act as it is applied: the part of the step that is still right.
        act: Box<Act>,
        /// When.
        at: Timestamp,
    },
    /// A step was applied, or not.
    Result {
        /// Its number in the plan.
        step: u32,
        /// What became of it.
        outcome: Outcome,
        /// When.
        at: Timestamp,
    },
    /// The round is over.
    End {
        /// When.
        at: Timestamp,
    },
}

/// Why a record could not be kept. No step is applied whose intent is not on disk.
#[derive(Debug, thiserror::Error)]
#[error("the journal could not be written: {0}")]
pub struct JournalError(pub String);

/// Where records go. `append` returns only when the record is on disk.
pub trait Journal {
    /// Keeps one record.
    fn append(&mut self, record: &Record) -> Result<(), JournalError>;
}
