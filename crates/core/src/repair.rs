//! One round of repair: read twice, plan, and for every step judge again, apply, look again.
//!
//! The round has no memory other than the node itself. Its journal is for people and for `undo`: a round that is killed
//! between any two steps is finished by the next one, since every act is atomic and every round starts by looking.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

mod journal;
#[cfg(test)]
mod nft_tests;
#[cfg(test)]
mod tests;
mod undo;

use crate::{
    finding::{Action, Finding, Object},
    judge::Judge,
    model::{NftRule, NodeState, Timestamp},
    node::{Applied, Node, Probed},
    plan::{self, Act, Choice, LeftOut, Plan, PlannedFinding, Remedy, Step},
    settings::Settings,
};
pub use journal::{Journal, JournalError, Outcome, Record};
pub use undo::{Undone, undo};

/// Pauses before each look after the last step (law 13).
const LOOKS: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// What became of one finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Repaired {
    /// The finding.
    pub finding: PlannedFinding,
    /// What was done for it, if anything was tried.
    pub remedy: Option<Remedy>,
    /// The step that was for it.
    pub step: u32,
    /// What became of it.
    pub outcome: Outcome,
}

/// What a probe showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The probe.
    pub probe: plan::Probe,
    /// What it saw.
    pub seen: Probed,
}

/// What a round did.
#[derive(Clone, Debug)]
pub struct Round {
    /// The plan that was carried out.
    pub plan: Plan,
    /// Every finding that was to be repaired, with its outcome.
    pub repaired: Vec<Repaired>,
    /// What traffic showed.
    pub proofs: Vec<Proof>,
    /// The last reading.
    pub state: NodeState,
    /// What is left after it.
    pub remaining: Vec<Finding>,
}

impl Round {
    /// True if everything that was to be done is done and verified.
    pub fn is_good(&self) -> bool {
        self.repaired.iter().all(|r| r.outcome.is_good())
            && self.plan.left_out.is_empty()
            && !self.proofs.iter().any(|p| matches!(p.seen, Probed::Lost(_)))
    }
}

/// Why a round did not begin, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The plan is refused.
    #[error("the plan is refused")]
    Plan(#[from] plan::PlanRefused),
    /// The journal cannot be kept. Steps before are done and in it; the next round goes on.
    #[error("the repair stopped before step {step}: its record could not be kept")]
    Journal {
        /// The step that was not begun.
        step: u32,
        /// Why.
        source: JournalError,
    },
}

/// What to repair, and how.
pub struct Order<'a> {
    /// The numbers.
    pub settings: &'a Settings,
    /// What of the findings.
    pub choice: &'a Choice,
    /// A reviewed plan: only what it holds is done.
    pub plan: Option<Plan>,
    /// Prove by traffic; else by reading back only.
    pub probe: bool,
}

/// Carries one round out.
///
/// # Errors
///
/// A refused plan, before anything was changed; a journal that cannot be written, with the steps before it done.
pub fn round(node: &mut dyn Node, journal: &mut dyn Journal, order: Order<'_>) -> Result<Round, RepairError> {
    let Order {
        settings,
        choice,
        plan,
        probe,
    } = order;
    let (plan, first) = plan_of_two_readings(node, settings, choice, plan)?;
    let stop = |source| RepairError::Journal { step: 0, source };
    let begin = Record::Begin {
        plan: Box::new(plan.clone()),
        at: node.now(),
    };
    journal.append(&begin).map_err(stop)?;
    let (mut repaired, acts) = take_steps(node, journal, &plan, &first, settings)?;
    let proofs = if probe { prove(node, &acts) } else { Vec::new() };
    let (state, remaining) = look_again(node, journal, &mut repaired, &acts, &first, settings)?;
    for proof in &proofs {
        if let Probed::Lost(why) = &proof.seen {
            mark_unproved(&mut repaired, &proof.probe, why);
        }
    }
    journal.append(&Record::End { at: node.now() }).map_err(stop)?;
    Ok(Round {
        plan,
        repaired,
        proofs,
        state,
        remaining,
    })
}

/// Reads twice; takes the reviewed plan if it still holds, or makes one of what both readings show. The first reading comes
/// along: what answered since then lives.
fn plan_of_two_readings(
    node: &mut dyn Node,
    settings: &Settings,
    choice: &Choice,
    reviewed: Option<Plan>,
) -> Result<(Plan, NodeState), RepairError> {
    let first = node.observe();
    let found = judge(&first, None, settings, node.now());
    let seen: BTreeSet<String> = found.iter().map(|f| f.id(&first.identity.name)).collect();
    node.sleep(settings.second_reading);
    let second = node.observe();
    let now = node.now();
    if let Some(plan) = reviewed {
        plan.check(&second, now)?;
        return Ok((plan, first));
    }
    // What only one of two readings shows is in motion.
    let mut twice = judge(&second, Some(&first), settings, now);
    twice.retain(|finding| seen.contains(&finding.id(&second.identity.name)));
    let mut plan = plan::make(&second, &twice, choice, settings, now);
    let vetoed = vetoed(&second, &twice, settings, now);
    let vetoed = vetoed
        .iter()
        .filter(|(finding, _)| choice.takes(finding) && seen.contains(&finding.id(&second.identity.name)));
    plan.leave_out(vetoed.map(|(finding, why)| LeftOut {
        finding: PlannedFinding::of(finding, &second.identity.name),
        why: why.clone(),
    }));
    Ok((plan, first))
}

/// What a reading alone would let us repair, and what happened since the one before forbids, with why (law 7): `judged` is the judgement that
/// knows of both.
fn vetoed(
    state: &NodeState,
    judged: &[Finding],
    settings: &Settings,
    now: Timestamp,
) -> Vec<(Finding, String)> {
    let node = &state.identity.name;
    let by_id: BTreeMap<String, &Finding> = judged.iter().map(|f| (f.id(node), f)).collect();
    let alone = judge(state, None, settings, now).into_iter();
    alone
        .filter(|finding| finding.action() == Action::Repair)
        .filter_map(|finding| {
            let why = match by_id.get(&finding.id(node)) {
                None => ANSWERED.to_owned(),
                Some(known) if known.action() == Action::Repair => return None,
                Some(known) => why_not(known),
            };
            Some((finding, why))
        })
        .collect()
}

/// Why an object is no longer found to be wrong by a judgement that knows of the reading before.
const ANSWERED: &str = "somebody answered there between the two readings (a reply counter grew)";

fn why_not(finding: &Finding) -> String {
    let why = finding.why_not_repair.clone();
    why.unwrap_or_else(|| format!("now {}", finding.verdict))
}

/// Judges again and applies, step by step: the outcome of each finding, and the acts that are done.
fn take_steps(
    node: &mut dyn Node,
    journal: &mut dyn Journal,
    plan: &Plan,
    first: &NodeState,
    settings: &Settings,
) -> Result<(Vec<Repaired>, Vec<Act>), RepairError> {
    let mut repaired = Vec::new();
    let mut failed_steps = Vec::new();
    let mut done = Vec::new();
    for step in &plan.steps {
        if let Some(before) = step.depends_on.iter().find(|n| failed_steps.contains(*n)) {
            // The entry would be made again by the rule that is still there.
            let why = format!("step {before}, which must come first, was not done");
            repaired.extend(all_of(step, &Outcome::Failed(why)));
            failed_steps.push(step.number);
            continue;
        }
        let state = node.observe();
        let fresh = judge(&state, Some(first), settings, node.now());
        let (act, outcomes) = still_right(step, &fresh, &state, settings, node.now());
        repaired.extend(outcomes);
        let Some((act, kept)) = act else { continue };
        let outcome = carry_out(node, journal, step.number, &act)?;
        if outcome.is_good() {
            done.push(act);
        } else {
            failed_steps.push(step.number);
        }
        repaired.extend(kept.into_iter().map(|item| Repaired {
            outcome: outcome.clone(),
            ..item
        }));
    }
    Ok((repaired, done))
}

fn judge(state: &NodeState, before: Option<&NodeState>, settings: &Settings, now: Timestamp) -> Vec<Finding> {
    Judge::new(state, before, settings, now).all()
}

/// The part of a step that a fresh judgement still asks for, and the outcomes of the rest.
fn still_right(
    step: &Step,
    fresh: &[Finding],
    state: &NodeState,
    settings: &Settings,
    now: Timestamp,
) -> (Option<(Act, Vec<Repaired>)>, Vec<Repaired>) {
    let node = &state.identity.name;
    let gone = |planned: &PlannedFinding| !fresh.iter().any(|f| f.id(node) == planned.id);
    let vetoed = if step.findings.iter().any(gone) {
        vetoed(state, fresh, settings, now)
    } else {
        Vec::new()
    };
    let mut right = Vec::new();
    let mut outcomes = Vec::new();
    let mut settle = |finding: &PlannedFinding, outcome| {
        outcomes.push(Repaired {
            finding: finding.clone(),
            remedy: None,
            step: step.number,
            outcome,
        });
    };
    for planned in &step.findings {
        match fresh.iter().find(|f| f.id(node) == planned.id) {
            Some(finding) if finding.action() == Action::Repair => right.push((planned, finding)),
            Some(finding) => settle(planned, Outcome::JudgedDifferently(why_not(finding))),
            None if vetoed.iter().any(|(finding, _)| finding.id(node) == planned.id) => {
                settle(planned, Outcome::JudgedDifferently(ANSWERED.to_owned()));
            }
            None if still_there(&step.act, &planned.object, state) => {
                settle(
                    planned,
                    Outcome::JudgedDifferently("it is no longer found to be wrong".to_owned()),
                );
            }
            None => settle(planned, Outcome::AlreadyGone),
        }
    }
    let findings: Vec<&Finding> = right.iter().map(|(_, finding)| *finding).collect();
    let (act, kept) = plan::narrow(&step.act, &findings);
    let mut going = Vec::new();
    for (index, (planned, finding)) in right.into_iter().enumerate() {
        if kept.contains(&index) {
            let (finding, remedy) = (planned.clone(), finding.remedy.clone());
            going.push(Repaired {
                finding,
                remedy,
                step: step.number,
                outcome: Outcome::Done,
            });
        } else {
            let why = "what would mend it now is not what was planned".to_owned();
            settle(planned, Outcome::JudgedDifferently(why));
        }
    }
    (act.map(|act| (act, going)), outcomes)
}

/// Whether an object that is no longer a finding is still there: then it was not taken away, it is right now.
fn still_there(act: &Act, object: &str, state: &NodeState) -> bool {
    match act {
        Act::XtRestore { edit } => {
            let first = object.lines().next().unwrap_or_default();
            let tables = state.xtables.value.iter();
            tables
                .filter(|t| Judge::place(t) == edit.place)
                .flat_map(|t| t.rules())
                .any(|(_, rule)| rule.line == first)
        }
        Act::NftEdit { edit } => edit_still_there(edit, object, state),
        Act::ConntrackDelete { entries } => {
            let planned = entries.iter().find(|e| e.text() == object);
            let held = &state.conntrack.value.entries;
            planned.is_some_and(|entry| held.iter().any(|e| e.is_same(entry)))
        }
        Act::LeaseQuarantine { lease } => state.ipam.value.leases.contains(lease),
        Act::NftDeleteElement {
            family,
            table,
            set,
            element,
        } => {
            let mut sets = state.nft.value.sets.iter();
            sets.any(|s| {
                (s.family, &s.table, &s.name) == (*family, table, set)
                    && s.elements.iter().any(|e| e.text() == element.text())
            })
        }
        Act::NftAddElement { .. } | Act::LeaseRestore { .. } => false,
    }
}

/// The same of an object of an nftables edit: the first line of a unit is its first rule.
fn edit_still_there(edit: &plan::NftEdit, object: &str, state: &NodeState) -> bool {
    let first = object.lines().next().unwrap_or_default();
    let rule = edit.delete.iter().find(|at| at.rule.placed() == first);
    let held = &state.nft.value;
    let by_rule = rule.is_some_and(|at| {
        let same = |r: &NftRule| r.handle == at.rule.handle && r.is_same(&at.rule);
        held.rules.iter().any(same)
    });
    by_rule
        || held
            .sets
            .iter()
            .filter(|set| (set.family, &set.table) == (edit.family, &edit.table))
            .any(|set| {
                let mut elements = set.elements.iter();
                elements.any(|element| {
                    let object = Object::NftElement {
                        family: set.family,
                        table: set.table.clone(),
                        set: set.name.clone(),
                        element: element.clone(),
                    };
                    object.text() == first
                })
            })
}

fn all_of(step: &Step, outcome: &Outcome) -> Vec<Repaired> {
    step.findings
        .iter()
        .map(|finding| Repaired {
            finding: finding.clone(),
            remedy: None,
            step: step.number,
            outcome: outcome.clone(),
        })
        .collect()
}

fn prove(node: &mut dyn Node, acts: &[Act]) -> Vec<Proof> {
    let mut proofs = Vec::new();
    for act in acts {
        for probe in act.probes() {
            let seen = node.probe(probe);
            proofs.push(Proof {
                probe: probe.clone(),
                seen,
            });
        }
    }
    proofs
}

fn mark_unproved(repaired: &mut [Repaired], probe: &plan::Probe, why: &str) {
    let asked = |item: &Repaired| match &item.remedy {
        Some(remedy) => remedy.act().probes().contains(probe),
        None => false,
    };
    for item in repaired
        .iter_mut()
        .filter(|item| item.outcome == Outcome::Done && asked(item))
    {
        item.outcome = Outcome::NotProved(format!("{probe}: {why}"));
    }
}

/// Writes the intent, applies, and writes the result.
///
/// # Errors
///
/// [`RepairError::Journal`]: without its intent on disk nothing is applied.
pub fn carry_out(
    node: &mut dyn Node,
    journal: &mut dyn Journal,
    step: u32,
    act: &Act,
) -> Result<Outcome, RepairError> {
    let stop = |source| RepairError::Journal { step, source };
    let intent = Record::Intent {
        step,
        act: Box::new(act.clone()),
        at: node.now(),
    };
    journal.append(&intent).map_err(stop)?;
    let outcome = match node.apply(act) {
        Applied::Done { .. } => Outcome::Done,
        Applied::AlreadyGone => Outcome::AlreadyGone,
        Applied::Changed(why) => Outcome::Changed(why),
        Applied::Failed(why) => Outcome::Failed(why),
    };
    let result = Record::Result {
        step,
        outcome: outcome.clone(),
        at: node.now(),
    };
    journal.append(&result).map_err(stop)?;
    Ok(outcome)
}

/// Law 13: looks at growing intervals whether what was done stays done.
fn look_again(
    node: &mut dyn Node,
    journal: &mut dyn Journal,
    repaired: &mut [Repaired],
    acts: &[Act],
    first: &NodeState,
    settings: &Settings,
) -> Result<(NodeState, Vec<Finding>), RepairError> {
    let mut before: Option<NodeState> = None;
    let mut remaining = Vec::new();
    let looks = if acts.is_empty() { &LOOKS[..0] } else { &LOOKS[..] };
    for (number, pause) in looks.iter().enumerate() {
        let last = number + 1 == looks.len();
        node.sleep(*pause);
        let state = node.observe();
        let findings = judge(&state, before.as_ref(), settings, node.now());
        let name = &state.identity.name;
        let there: BTreeMap<String, &Finding> = findings.iter().map(|f| (f.id(name), f)).collect();
        for item in repaired.iter_mut().filter(|r| r.outcome == Outcome::Done) {
            let Some(again) = there.get(&item.finding.id) else {
                continue;
            };
            // A packet that was in flight escapes the first deletion: its entry is confirmed only afterwards. It is taken
            // away once more, if that is still right by this reading.
            if let (false, Action::Repair, Some(Remedy::Conntrack(entry))) =
                (last, again.action(), &again.remedy)
            {
                let act = Act::ConntrackDelete {
                    entries: vec![entry.clone()],
                };
                if carry_out(node, journal, item.step, &act)?.is_good() {
                    continue;
                }
            }
            let act = acts
                .iter()
                .find(|a| item.remedy.as_ref().is_some_and(|r| touches(a, r)));
            let writer = act.and_then(|a| node.writer(a));
            let writer = writer.unwrap_or_else(|| "a writer that left no name".to_owned());
            item.outcome = Outcome::CameBack(format!("made again by {writer}"));
        }
        remaining = findings;
        before = Some(state);
    }
    Ok(match before {
        Some(state) => (state, remaining),
        None => {
            let state = node.observe();
            let remaining = judge(&state, Some(first), settings, node.now());
            (state, remaining)
        }
    })
}

fn touches(act: &Act, remedy: &Remedy) -> bool {
    matches!(
        (act, remedy),
        (Act::XtRestore { .. }, Remedy::Xt(_))
            | (Act::NftEdit { .. }, Remedy::Nft(_))
            | (Act::ConntrackDelete { .. }, Remedy::Conntrack(_))
            | (Act::LeaseQuarantine { .. }, Remedy::Lease(_))
            | (Act::NftDeleteElement { .. }, Remedy::NftElement { .. })
    )
}
