//! What the clients saw.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::truth::Target;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A new TCP connection for each request.
    Connections,
    /// One TCP connection for all of them.
    Stream,
    /// Datagrams from one port, numbered.
    Datagrams,
}

/// What one client saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Whom it talked to.
    #[serde(flatten)]
    pub target: Target,
    /// How.
    pub kind: Kind,
    /// Requests that were sent and answered, or failed.
    pub requests: u64,
    /// Those of them that failed: no connection within a second, no answer within five, a reset, another Pod's answer, an answer out of order.
    pub failed: u64,
    /// The first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// The longest time without an answer, in milliseconds; from the start of the client to its end.
    pub longest_gap_ms: f64,
    /// Requests a second.
    pub rate: f64,
}

/// What all clients saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How long they ran, in milliseconds.
    pub took_ms: u64,
    /// All requests.
    pub requests: u64,
    /// All that failed.
    pub failed: u64,
    /// The longest gap of any client, in milliseconds.
    pub longest_gap_ms: f64,
    /// One line a client.
    pub clients: Vec<Line>,
}

impl Summary {
    pub(super) fn new(clients: Vec<Line>, took: Duration) -> Self {
        Self {
            took_ms: took.as_millis().try_into().unwrap_or(u64::MAX),
            requests: clients.iter().map(|line| line.requests).sum(),
            failed: clients.iter().map(|line| line.failed).sum(),
            longest_gap_ms: clients.iter().map(|line| line.longest_gap_ms).fold(0.0, f64::max),
            clients,
        }
    }
}

/// Counts while a client runs.
#[derive(Debug)]
pub(super) struct Count {
    start: Instant,
    last: Instant,
    gap: Duration,
    requests: u64,
    failed: u64,
    first_failure: Option<String>,
}

impl Count {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            start: now,
            last: now,
            gap: Duration::ZERO,
            requests: 0,
            failed: 0,
            first_failure: None,
        }
    }

    /// A request ended.
    pub(super) fn took(&mut self, outcome: Result<(), String>) {
        self.requests += 1;
        match outcome {
            Ok(()) => self.close_gap(),
            Err(why) => {
                self.failed += 1;
                self.first_failure.get_or_insert(why);
            }
        }
    }

    fn close_gap(&mut self) {
        let now = Instant::now();
        self.gap = self.gap.max(now - self.last);
        self.last = now;
    }

    pub(super) fn line(mut self, target: &Target, kind: Kind) -> Line {
        let ran = self.start.elapsed();
        self.close_gap();
        Line {
            target: target.clone(),
            kind,
            requests: self.requests,
            failed: self.failed,
            first_failure: self.first_failure,
            longest_gap_ms: self.gap.as_secs_f64() * 1000.0,
            rate: self.requests as f64 / ran.as_secs_f64().max(0.001),
        }
    }
}
