//! What a source said, and whether that is all there is.

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// Whether a source told everything that it has.
///
/// Ordered from best to worst, so that the completeness of a join is the maximum of its parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "completeness", content = "why", rename_all = "lowercase")]
pub enum Completeness {
    /// All of it was read.
    Complete,
    /// Some of it was read; the reason says what is missing.
    Partial(String),
    /// Nothing could be read.
    Unavailable(String),
}

/// Nobody asked for it: nothing is known.
impl Default for Completeness {
    fn default() -> Self {
        Self::Unavailable("not read".to_owned())
    }
}

impl Completeness {
    /// True only for [`Completeness::Complete`].
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Complete)
    }

    /// Why it is not complete; `None` when it is.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Complete => None,
            Self::Partial(why) | Self::Unavailable(why) => Some(why),
        }
    }
}

/// One source's line in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceReport {
    /// What was read: `api/pods`, `cri`, `iptables-nft/ipv4`, a path inside a bundle.
    pub name: String,
    /// Whether that is all of it.
    #[serde(flatten)]
    pub completeness: Completeness,
    /// How many objects it gave.
    pub items: u64,
    /// When reading ended; for a recording when it was recorded.
    pub read_at: Option<Timestamp>,
    /// How long reading took, in milliseconds, to the microsecond.
    pub took_ms: f64,
}

/// A part of the node's state with its sources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts<T> {
    /// What was read. Empty (the default) when nothing was.
    pub value: T,
    /// The worst completeness of the sources that were needed for this part.
    pub completeness: Completeness,
    /// The sources, one report each.
    pub reports: Vec<SourceReport>,
}

impl<T> Facts<T> {
    /// Facts that a single source gave.
    pub fn from_source(value: T, report: SourceReport) -> Self {
        Self {
            value,
            completeness: report.completeness.clone(),
            reports: vec![report],
        }
    }

    /// Facts for tests and literals: complete, with a source of this name and no times.
    pub fn complete(name: &str, value: T) -> Self {
        let report = SourceReport {
            name: name.to_owned(),
            completeness: Completeness::Complete,
            items: 0,
            read_at: None,
            took_ms: 0.0,
        };
        Self::from_source(value, report)
    }

    /// True if all of it was read.
    pub fn is_complete(&self) -> bool {
        self.completeness.is_complete()
    }

    /// Adds the reports of its sources to `out`; one by this name if it had none.
    pub(super) fn report_to(&self, name: &str, out: &mut Vec<SourceReport>) {
        if self.reports.is_empty() {
            out.push(SourceReport {
                name: name.to_owned(),
                completeness: self.completeness.clone(),
                items: 0,
                read_at: None,
                took_ms: 0.0,
            });
        }
        out.extend(self.reports.iter().cloned());
    }

    /// The names of the sources that gave something, joined by `, `; `nothing` when none did.
    pub fn source_names(&self) -> String {
        let names: Vec<_> = self
            .reports
            .iter()
            .filter(|r| !matches!(r.completeness, Completeness::Unavailable(_)))
            .map(|r| r.name.as_str())
            .collect();
        if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(", ")
        }
    }
}

impl<T: Extend<I> + IntoIterator<Item = I>, I> Facts<T> {
    /// Joins a second source of the same part: values are put together, completeness is the worse one.
    pub fn join(&mut self, other: Self) {
        let first = self.reports.is_empty();
        self.value.extend(other.value);
        self.completeness = if first {
            other.completeness
        } else {
            self.completeness.clone().max(other.completeness)
        };
        self.reports.extend(other.reports);
    }
}
