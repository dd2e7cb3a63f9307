//! Sexton's documents against what the lab knows it made.

use std::collections::{BTreeMap, BTreeSet};

use sexton_core::finding::{Action, Verdict};
use sexton_core::plan::Plan;
use sexton_core::report::{Entry, Report};

use super::RuleLine;
use crate::snapshot::Snapshot;
use crate::truth::{Expected, Truth};

/// Whether a finding is the one that was expected.
fn is(entry: &Entry, expected: &Expected) -> bool {
    let object = serde_json::Value::Object(entry.object.clone()).to_string();
    entry.rule == expected.rule
        && entry.verdict.to_string() == expected.verdict
        && action(entry) == expected.action
        && expected
            .contains
            .iter()
            .all(|word| entry.text().contains(word) || object.contains(word))
}

fn action(entry: &Entry) -> &'static str {
    match entry.action {
        Action::Repair => "repair",
        Action::Report => "report",
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Which finding is which expectation; no finding stands for two.
fn matched(report: &Report, expected: &[&Expected]) -> Vec<Option<usize>> {
    let mut taken = BTreeSet::new();
    expected
        .iter()
        .map(|expected| {
            let mut entries = report.findings.iter().enumerate();
            let (index, _) = entries.find(|(index, entry)| !taken.contains(index) && is(entry, expected))?;
            taken.insert(index);
            Some(index)
        })
        .collect()
}

/// What a report says that is not so, and what it does not say.
pub(super) fn report(which: &str, report: &Report, expected: &[&Expected], truth: &Truth) -> Vec<String> {
    let matches = matched(report, expected);
    let mut wrong = Vec::new();
    for (expected, _) in expected.iter().zip(&matches).filter(|(_, found)| found.is_none()) {
        wrong.push(format!(
            "{which} did not find {} ({} {}): {}",
            expected.rule,
            expected.verdict,
            expected.action,
            expected.contains.join(" ")
        ));
    }
    let taken: BTreeSet<usize> = matches.into_iter().flatten().collect();
    for (index, entry) in report.findings.iter().enumerate() {
        if !taken.contains(&index) {
            let text = first_line(entry.text());
            wrong.push(format!(
                "{which} found what was not expected: {} {} {} {text}",
                entry.rule,
                entry.verdict,
                action(entry)
            ));
        }
        if entry.action == Action::Repair || entry.verdict == Verdict::Stale {
            wrong.extend(names_the_living(which, entry.text(), truth));
        }
    }
    wrong
}

/// What a plan takes on that no expectation covers, and what it leaves out.
pub(super) fn plan(plan: &Plan, report: &Report, expected: &[&Expected], truth: &Truth) -> Vec<String> {
    let right: BTreeSet<&str> = matched(report, expected)
        .into_iter()
        .flatten()
        .filter_map(|index| report.findings.get(index))
        .filter(|entry| entry.action == Action::Repair)
        .map(|entry| entry.id.as_str())
        .collect();
    let mut wrong = Vec::new();
    let mut planned = BTreeSet::new();
    for finding in plan.steps.iter().flat_map(|step| &step.findings) {
        planned.insert(finding.id.as_str());
        if !right.contains(finding.id.as_str()) {
            wrong.push(format!(
                "the plan takes on {} {}, which was not expected",
                finding.rule,
                first_line(&finding.object)
            ));
        }
        wrong.extend(names_the_living("the plan", &finding.object, truth));
    }
    for id in right.difference(&planned) {
        wrong.push(format!("the plan leaves finding {id} out"));
    }
    wrong
}

fn names_the_living(which: &str, text: &str, truth: &Truth) -> Vec<String> {
    truth
        .alive
        .iter()
        .filter(|alive| alive.contains.iter().all(|word| text.contains(word)))
        .map(|alive| {
            format!(
                "{which} names what is alive ({}): {}",
                alive.why,
                first_line(text)
            )
        })
        .collect()
}

/// What was alive before and is gone after.
pub(super) fn gone(truth: &Truth, before: &Snapshot, after: &Snapshot) -> Vec<String> {
    truth
        .alive
        .iter()
        .filter(|alive| before.holds(&alive.contains) && !after.holds(&alive.contains))
        .map(|alive| {
            format!(
                "what is alive is gone ({}): {}",
                alive.why,
                alive.contains.join(" ")
            )
        })
        .collect()
}

/// One line for each rule that was to speak, and for each that spoke.
pub(super) fn rules(truth: &Truth, before: &Report, after: &Report) -> BTreeMap<String, RuleLine> {
    let mut rules: BTreeMap<String, RuleLine> = BTreeMap::new();
    let all: Vec<&Expected> = truth.expected.iter().collect();
    let left: BTreeSet<&str> = after.findings.iter().map(|entry| entry.id.as_str()).collect();
    for (expected, found) in all.iter().zip(matched(before, &all)) {
        let line = rules.entry(expected.rule.clone()).or_default();
        line.made += 1;
        if let Some(entry) = found.and_then(|index| before.findings.get(index)) {
            line.found += 1;
            if entry.action == Action::Repair && !left.contains(entry.id.as_str()) {
                line.repaired += 1;
            }
        }
    }
    for entry in &after.findings {
        rules.entry(entry.rule.clone()).or_default().left += 1;
    }
    rules
}
