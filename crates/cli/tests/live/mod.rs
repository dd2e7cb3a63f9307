//! What the live tests share: the real program inside a lab node, and what it said.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper that fails fails its test"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use sexton_lab::snapshot::Snapshot;
use sexton_lab::truth::{Expected, Truth};
use sexton_lab::{LabNode, LabOptions, Variant, probe};

/// The program.
pub const SEXTON: &str = env!("CARGO_BIN_EXE_sexton");

/// Both kinds of iptables.
pub const VARIANTS: [Variant; 2] = [Variant::Nft, Variant::Legacy];

/// A node for a test, in a directory that no other test has.
pub fn node(name: &str, options: LabOptions) -> LabNode {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = format!("/tmp/sexton-cli-{name}-{}-{number}", std::process::id());
    LabNode::up(dir, options).unwrap_or_else(|error| panic!("no lab node: {}", chain(&error)))
}

/// A node with one kind of iptables.
pub fn node_with(name: &str, variant: Variant) -> LabNode {
    let options = LabOptions {
        variant,
        ..LabOptions::default()
    };
    node(name, options)
}

/// An error with its sources.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(&format!(": {source}"));
        next = source.source();
    }
    text
}

/// Ends the test as skipped where there can be no lab node.
#[macro_export]
macro_rules! needs_lab {
    () => {
        if let Some(why) = sexton_lab::unsupported() {
            return sexton_lab::skip!("{why}");
        }
    };
}

/// What a run of the program left.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; -1 when it was killed.
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Ran {
    /// The run itself, once its exit code is the one that was expected.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        self
    }

    /// Its standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }

    /// True if it said all of these, on either output.
    pub fn says(&self, words: &[&str]) -> bool {
        words
            .iter()
            .all(|word| self.out.contains(word) || self.err.contains(word))
    }
}

/// Runs the program inside a node.
pub fn sexton(node: &LabNode, args: &[&str]) -> Ran {
    let argv = std::iter::once(SEXTON).chain(args.iter().copied());
    let child = node
        .spawn(argv, Stdio::piped(), Stdio::piped())
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Where the program keeps its journals in tests: the lab's own directory, which goes with it.
pub fn state_dir(node: &LabNode) -> PathBuf {
    node.path("sexton")
}

/// Runs `sexton repair` with the node's own state directory.
pub fn repair(node: &LabNode, args: &[&str]) -> Ran {
    let dir = state_dir(node).display().to_string();
    let all: Vec<&str> = ["repair", "--state-dir", &dir]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    sexton(node, &all)
}

/// A finding as a report tells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Its rule.
    pub rule: String,
    /// Its verdict.
    pub verdict: String,
    /// `repair` or `report`.
    pub action: String,
    /// Its object as its own tool prints it.
    pub text: String,
    /// Its identifier.
    pub id: String,
    /// Why it is not repaired.
    pub why_not: String,
}

/// The findings of a report.
pub fn findings(report: &Value) -> Vec<Found> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = report["findings"].as_array().unwrap();
    all.iter()
        .map(|f| Found {
            rule: text(&f["rule"]),
            verdict: text(&f["verdict"]),
            action: text(&f["action"]),
            text: text(&f["object"]["text"]),
            id: text(&f["id"]),
            why_not: text(&f["why_not_repair"]),
        })
        .collect()
}

/// The report of an audit with any exit code but 2.
#[track_caller]
pub fn audit(node: &LabNode, args: &[&str]) -> Value {
    let all: Vec<&str> = ["audit", "-o", "json"]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    let ran = sexton(node, &all);
    assert!(matches!(ran.code, 0 | 1 | 3), "{ran:?}");
    ran.json()
}

/// Whether a source was read whole, and why not.
pub fn source(report: &Value, name: &str) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = report["sources"].as_array().unwrap();
    let one = all
        .iter()
        .find(|s| s["name"].as_str().is_some_and(|n| n.contains(name)))
        .unwrap_or_else(|| panic!("no source {name}: {}", report["sources"]));
    (text(&one["completeness"]), text(&one["why"]))
}

/// True if a finding is the one that was written down.
pub fn is(found: &Found, expected: &Expected) -> bool {
    found.rule == expected.rule
        && found.verdict == expected.verdict
        && found.action == expected.action
        && expected.contains.iter().all(|word| found.text.contains(word))
}

/// The findings are what the lab wrote down: no more, no less, and nothing that is alive.
#[track_caller]
pub fn exactly(found: &[Found], expected: &[Expected], truth: &Truth) {
    for want in expected {
        let number = found.iter().filter(|f| is(f, want)).count();
        assert_eq!(number, 1, "found {number} times: {want:?}\n{found:#?}");
    }
    for one in found {
        let wanted = expected.iter().filter(|want| is(one, want)).count();
        assert_eq!(wanted, 1, "not written down: {one:#?}");
    }
    for alive in &truth.alive {
        let taken = found
            .iter()
            .find(|f| f.verdict == "stale" && alive.contains.iter().all(|word| f.text.contains(word)));
        assert!(taken.is_none(), "{alive:?} is taken for dead: {taken:#?}");
    }
}

/// Takes a snapshot.
pub fn snapshot(node: &LabNode) -> Snapshot {
    Snapshot::take(node).unwrap()
}

/// The lines by which a node changed. The clients' TCP connections are no change; nor are neighbours, which age away and come
/// again with a probe.
pub fn changes(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut lines = before.diff(after);
    lines.retain(|line| {
        !line[1..].starts_with(" ip -j neigh show") && !line[1..].starts_with(" conntrack -L: tcp")
    });
    lines
}

/// Every target answers, or does not, as `works` says.
#[track_caller]
pub fn targets_work(node: &LabNode, works: impl Fn(&sexton_lab::truth::Target) -> bool) {
    let truth = node.truth();
    assert!(!truth.targets.is_empty());
    for seen in probe(node, &truth.targets).unwrap() {
        assert_eq!(seen.answered, works(&seen.target), "{seen:?}");
    }
}

/// How often each rule was found.
pub fn by_rule(found: &[Found]) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for one in found {
        *out.entry(one.rule.clone()).or_default() += 1;
    }
    out
}
