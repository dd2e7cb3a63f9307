//! What every source does: take the time, say what it read and how much of it.

use std::time::Instant;

use jiff::Timestamp;
use sexton_core::model::{Completeness, Facts, SourceReport};

/// Times one source and makes its report.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    name: String,
    started: Instant,
}

impl Watch {
    /// Starts the clock of the source `name`.
    pub(crate) fn start(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            started: Instant::now(),
        }
    }

    /// How long it has been.
    pub(crate) fn elapsed(&self) -> std::time::Duration {
        self.started.elapsed()
    }

    /// The report of what was read until now.
    pub(crate) fn report(&self, completeness: Completeness, items: usize) -> SourceReport {
        SourceReport {
            name: self.name.clone(),
            completeness,
            items: u64::try_from(items).unwrap_or(u64::MAX),
            read_at: Some(Timestamp::now()),
            took_ms: millis(self.started),
        }
    }

    /// Facts of a single source.
    pub(crate) fn facts<T>(&self, value: T, completeness: Completeness, items: usize) -> Facts<T> {
        Facts::from_source(value, self.report(completeness, items))
    }

    /// Facts of a source that gave nothing.
    pub(crate) fn unavailable<T: Default>(&self, why: impl Into<String>) -> Facts<T> {
        self.facts(T::default(), Completeness::Unavailable(why.into()), 0)
    }
}

/// Milliseconds since `started`, to the microsecond.
fn millis(started: Instant) -> f64 {
    let micros = started.elapsed().as_micros();
    u32::try_from(micros).map_or(f64::from(u32::MAX), f64::from) / 1000.0
}

/// An error with all its causes in one line, which is how a report says why.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    // A parser that draws what it complains about does so below its first line.
    let first_line = |error: &dyn std::error::Error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().to_owned()
    };
    let mut text = first_line(error);
    let mut cause = error.source();
    while let Some(next) = cause {
        let line = first_line(next);
        // Wrappers often repeat what they wrap.
        if !text.ends_with(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        cause = next.source();
    }
    text
}
