//! The answer to "who lives here?", with its reasons.

use crate::finding::{Evidence, Owner, Verdict, Witness};

/// The answer to "who lives here?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody alive.
    Live,
    /// Somebody who ended, and whom we know.
    Ended,
    /// Nobody that any source knows.
    Nobody,
    /// It cannot be told; the residence says why.
    Unknown,
}

/// The answer with its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Residence {
    /// The answer.
    pub standing: Standing,
    /// Who lives here, or lived here last.
    pub owner: Option<Owner>,
    /// Kinds of source that said so, each on its own.
    pub witnesses: Vec<Witness>,
    /// What they said.
    pub evidence: Vec<Evidence>,
    /// Why it is unknown, or what a repair would still need.
    pub lacking: Vec<String>,
}

impl Residence {
    pub(super) fn live(owner: Option<Owner>, witness: Witness, source: &str, text: String) -> Self {
        Self {
            standing: Standing::Live,
            owner,
            witnesses: vec![witness],
            evidence: vec![Evidence::new(source, text)],
            lacking: Vec::new(),
        }
    }

    pub(crate) fn unknown(owner: Option<Owner>, evidence: Vec<Evidence>, why: Vec<String>) -> Self {
        Self {
            standing: Standing::Unknown,
            owner,
            witnesses: Vec::new(),
            evidence,
            lacking: why,
        }
    }

    /// Nobody alive, who was here last where that is known, and what a repair would still need.
    pub(super) fn dead(
        owner: Option<Owner>,
        witnesses: Vec<Witness>,
        evidence: Vec<Evidence>,
        lacking: Vec<String>,
    ) -> Self {
        let standing = if owner.is_some() {
            Standing::Ended
        } else {
            Standing::Nobody
        };
        Self {
            standing,
            owner,
            witnesses,
            evidence,
            lacking,
        }
    }

    /// True if nobody alive is here, as far as judging goes.
    pub fn is_dead(&self) -> bool {
        matches!(self.standing, Standing::Ended | Standing::Nobody)
    }

    /// What becomes of an object that is for whoever lives here and for nobody else: nothing where somebody does, stale where nobody
    /// does.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        match self.standing {
            Standing::Live => None,
            Standing::Ended | Standing::Nobody => Some(Verdict::Stale),
            Standing::Unknown => Some(Verdict::Unknown),
        }
    }

    /// Why it is unknown, or what a repair still needs, as one text; `None` if nothing.
    pub fn lacks(&self) -> Option<String> {
        (!self.lacking.is_empty()).then(|| self.lacking.join("; "))
    }

    /// Why what belongs to it is not repaired; `None` if nothing stands against it.
    pub fn why_not_repair(&self) -> Option<String> {
        let what = if self.standing == Standing::Unknown {
            "judging it"
        } else {
            "a repair"
        };
        self.lacks().map(|lacks| format!("{what} needs {lacks}"))
    }
}
