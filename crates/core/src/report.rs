//! The report: one document, `sexton.dev/report/v1`. Every other output is drawn from it. Fields may be added, never renamed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    finding::{Action, Evidence, Finding, Owner, Verdict, Witness},
    judge::object_counts,
    model::{Completeness, Facts, NodeState, Problem, SourceReport, Timestamp, Unread},
    plan::{Act, Remedy},
    rules::{Part, Rule},
};

/// The schema's name.
pub const SCHEMA: &str = "sexton.dev/report/v1";

/// What was found on one node, and what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The node's name.
    pub node: String,
    /// When the reading began, or was recorded.
    pub taken_at: Option<Timestamp>,
    /// Every source, read or not.
    pub sources: Vec<SourceReport>,
    /// What was found.
    pub findings: Vec<Entry>,
    /// What was looked at.
    pub summary: Summary,
    /// Files that were not used.
    pub unread: Vec<Unread>,
    /// What was wrong with the input; the rest of it was used.
    pub problems: Vec<Problem>,
}

/// One finding as it is reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The first 16 hex digits of SHA-256 over rule, node, kind and object.
    pub id: String,
    /// The rule.
    pub rule: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether a plan step exists.
    pub action: Action,
    /// Why it is not repaired, or what a repair would still need.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why_not_repair: Option<String>,
    /// `kind`, `text`, and every observed field of that kind.
    pub object: serde_json::Map<String, serde_json::Value>,
    /// Its last or present owner.
    pub owner: Option<Owner>,
    /// What it does to traffic.
    pub consequence: String,
    /// What the verdict rests on.
    pub evidence: Vec<Evidence>,
    /// The kinds of source that said so.
    pub witnesses: Vec<Witness>,
    /// What would be done.
    pub repair: Option<RepairWords>,
}

impl Entry {
    /// The object as its own tool prints it.
    pub fn text(&self) -> &str {
        self.object
            .get("text")
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
    }
}

/// A repair in words; the plan has it in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairWords {
    /// What is done.
    pub action: String,
    /// What must be there for it to be done.
    pub expects: String,
    /// How it is taken back.
    pub undo: String,
}

/// Counts of what was looked at: a report that finds nothing must show that it was not blind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// All objects.
    pub objects: u64,
    /// Those without a finding.
    pub live: u64,
    /// Findings by verdict.
    pub by_verdict: BTreeMap<String, u64>,
    /// Objects by kind, as the kernel's own tools count them.
    pub by_kind: BTreeMap<String, u64>,
}

impl Report {
    /// Draws the report up.
    pub fn new(state: &NodeState, findings: &[Finding]) -> Self {
        let node = state.identity.name.clone();
        let by_kind: BTreeMap<String, u64> = object_counts(state)
            .into_iter()
            .map(|(kind, count)| (kind.to_owned(), count))
            .collect();
        let mut by_verdict: BTreeMap<String, u64> = BTreeMap::new();
        for finding in findings {
            *by_verdict.entry(finding.verdict.to_string()).or_default() += 1;
        }
        // A unit is its rules, and a mapping's rules are counted as rules.
        let objects = by_kind
            .iter()
            .filter(|(kind, _)| *kind != "xt-unit")
            .map(|(_, count)| count)
            .sum::<u64>();
        let mut seen = std::collections::BTreeSet::new();
        let entries: Vec<Entry> = findings
            .iter()
            .map(|finding| entry(finding, &node))
            .filter(|entry| seen.insert((entry.id.clone(), entry.verdict)))
            .collect();
        let summary = Summary {
            objects,
            live: objects.saturating_sub(entries.len() as u64),
            by_verdict,
            by_kind,
        };
        Self {
            schema: SCHEMA.to_owned(),
            node,
            taken_at: state.taken_at,
            sources: state.source_reports(),
            findings: entries,
            summary,
            unread: state.unread.clone(),
            problems: state.problems.clone(),
        }
    }

    /// The exit code of `audit` and `plan`: 1 with a finding other than `unknown` or `advice`; else 3 with an `unknown` or
    /// when a part that the chosen rules need was not read whole; else 0.
    pub fn exit_code(&self, state: &NodeState, rules: &[&Rule]) -> u8 {
        let wrong = |e: &Entry| !matches!(e.verdict, Verdict::Unknown | Verdict::Advice);
        if self.findings.iter().any(wrong) {
            return 1;
        }
        let unknown = self.findings.iter().any(|e| e.verdict == Verdict::Unknown);
        let blind = rules
            .iter()
            .flat_map(|r| r.needs)
            .any(|part| !completeness(state, *part).is_complete());
        if unknown || blind { 3 } else { 0 }
    }
}

/// Whether a part of the state was read whole.
pub fn completeness(state: &NodeState, part: Part) -> Completeness {
    match part {
        Part::Pods => state.pods.completeness.clone(),
        Part::Services => state
            .services
            .completeness
            .clone()
            .max(state.endpoint_slices.completeness.clone()),
        Part::Runtime => state.runtime.completeness.clone(),
        Part::Xtables => state.xtables.completeness.clone(),
        Part::Nft => state.nft.completeness.clone(),
        Part::Conntrack => state.conntrack.completeness.clone(),
        Part::Ipam => state.ipam.completeness.clone(),
        Part::Captures => of_what_is_there(&state.captures),
        Part::Counters => of_what_is_there(&state.counters),
        Part::Adapters => of_what_is_there(&state.adapters).max(of_what_is_there(&state.hns_endpoints)),
    }
}

/// Of a part that most nodes do not have: one that is not there lacks nothing, one that was cut off does.
fn of_what_is_there<T>(facts: &Facts<T>) -> Completeness {
    if facts.reports.is_empty() {
        Completeness::Complete
    } else {
        facts.completeness.clone()
    }
}

fn entry(finding: &Finding, node: &str) -> Entry {
    let mut object = match serde_json::to_value(&finding.object) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    object.insert("text".to_owned(), finding.object.text().into());
    Entry {
        id: finding.id(node),
        rule: finding.rule.to_owned(),
        verdict: finding.verdict,
        action: finding.action(),
        why_not_repair: finding.why_not_repair.clone(),
        object,
        owner: finding.owner.clone(),
        consequence: finding.consequence.clone(),
        evidence: finding.evidence.clone(),
        witnesses: finding.witnesses.clone(),
        repair: finding.remedy.as_ref().map(words),
    }
}

fn words(remedy: &Remedy) -> RepairWords {
    let act = remedy.act();
    let lines = match remedy {
        Remedy::Xt(edit) => {
            let deleted = edit.delete.iter().map(|l| l.replacen("-A ", "-D ", 1));
            deleted
                .chain(edit.add.iter().cloned())
                .collect::<Vec<_>>()
                .join("\n")
        }
        Remedy::Nft(edit) => edit.commands().join("\n"),
        _ => act.describe(),
    };
    RepairWords {
        action: lines,
        expects: act.expects(),
        undo: match act {
            Act::ConntrackDelete { .. } => "none needed".to_owned(),
            act => act.undo_words(),
        },
    }
}
