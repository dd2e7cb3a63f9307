//! One round of repair: read twice, plan, and for every step judge again, apply, look again.
//!
//! The round has no memory other than the node itself. Its journal is for people and for `undo`: a round that is killed
//! between any two steps is finished by the next one, since every act is atomic and every round starts by looking.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    finding::{Action, Finding, Object, XtPlace},
    judge::Judge,
    model::{NftRule, NftValue, NodeState, NplAnnotation, PortRange, Proto, Timestamp, XtRule},
    node::{Applied, Node, Probed},
    plan::{self, Act, Choice, Plan, PlannedFinding, Remedy, Step},
    roster::Standing,
    settings::Settings,
};

#[cfg(test)]
mod nft_tests;
mod nft_undo;
#[cfg(test)]
mod tests;

/// Pauses before each look after the last step (law 13).
const LOOKS: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

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
    let first = node.observe();
    let first_ids = ids(&judge(&first, None, settings, node.now()), &first);
    node.sleep(settings.second_reading);
    let second = node.observe();
    let now = node.now();
    let findings = judge(&second, Some(&first), settings, now);
    let plan = match plan {
        Some(plan) => {
            plan.check(&second, now)?;
            plan
        }
        None => {
            // What only one of two readings shows is in motion.
            let twice: Vec<Finding> = findings
                .into_iter()
                .filter(|f| first_ids.contains_key(&f.id(&second.identity.name)))
                .collect();
            plan::make(&second, &twice, choice, settings, now)
        }
    };
    let stop = |step, source| RepairError::Journal { step, source };
    journal
        .append(&Record::Begin {
            plan: Box::new(plan.clone()),
            at: node.now(),
        })
        .map_err(|e| stop(0, e))?;
    let mut repaired = Vec::new();
    let mut failed_steps = Vec::new();
    let mut done_acts = Vec::new();
    for step in &plan.steps {
        if let Some(before) = step.depends_on.iter().find(|n| failed_steps.contains(*n)) {
            // The entry would be made again by the rule that is still there.
            let why = format!("step {before}, which must come first, was not done");
            repaired.extend(all_of(step, &Outcome::Failed(why)));
            failed_steps.push(step.number);
            continue;
        }
        let state = node.observe();
        let fresh = judge(&state, Some(&second), settings, node.now());
        let (act, outcomes) = still_right(step, &fresh, &state);
        repaired.extend(outcomes);
        let Some((act, kept)) = act else { continue };
        let outcome = carry_out(node, journal, step.number, &act)?;
        if outcome.is_good() {
            done_acts.push(act);
        } else {
            failed_steps.push(step.number);
        }
        repaired.extend(kept.into_iter().map(|item| Repaired {
            outcome: outcome.clone(),
            ..item
        }));
    }
    let proofs = if probe {
        prove(node, &done_acts)
    } else {
        Vec::new()
    };
    let (state, remaining) = look_again(node, journal, &mut repaired, &done_acts, settings)?;
    for proof in &proofs {
        if let Probed::Lost(why) = &proof.seen {
            mark_unproved(&mut repaired, &proof.probe, why);
        }
    }
    journal
        .append(&Record::End { at: node.now() })
        .map_err(|e| stop(0, e))?;
    Ok(Round {
        plan,
        repaired,
        proofs,
        state,
        remaining,
    })
}

fn judge(state: &NodeState, before: Option<&NodeState>, settings: &Settings, now: Timestamp) -> Vec<Finding> {
    Judge::new(state, before, settings, now).all()
}

fn ids(findings: &[Finding], state: &NodeState) -> BTreeMap<String, Action> {
    findings
        .iter()
        .map(|f| (f.id(&state.identity.name), f.action()))
        .collect()
}

/// The part of a step that a fresh judgement still asks for, and the outcomes of the rest.
fn still_right(
    step: &Step,
    fresh: &[Finding],
    state: &NodeState,
) -> (Option<(Act, Vec<Repaired>)>, Vec<Repaired>) {
    let node = &state.identity.name;
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
            Some(finding) => {
                let why = finding
                    .why_not_repair
                    .clone()
                    .unwrap_or_else(|| format!("now {}", finding.verdict));
                settle(planned, Outcome::JudgedDifferently(why));
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
fn carry_out(
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
    settings: &Settings,
) -> Result<(NodeState, Vec<Finding>), RepairError> {
    let mut before: Option<NodeState> = None;
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
        before = Some(state);
    }
    let state = before.unwrap_or_else(|| node.observe());
    let remaining = judge(&state, None, settings, node.now());
    Ok((state, remaining))
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

/// One act that a journal did, as an undo sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Undone {
    /// The act that takes it back.
    pub act: Act,
    /// What became of it.
    pub outcome: Outcome,
}

/// Takes back what a journal's round did, last first, where nobody needs the place now (law 9).
///
/// `parse` reads one rule as iptables-save prints it, so that a deleted DNAT is only put back for a port that no living Pod
/// has.
///
/// # Errors
///
/// The journal of the undo itself cannot be written.
pub fn undo(
    node: &mut dyn Node,
    journal: &mut dyn Journal,
    records: &[Record],
    settings: &Settings,
    parse: &dyn Fn(&str) -> Option<XtRule>,
) -> Result<Vec<Undone>, RepairError> {
    let mut done: Vec<(u32, &Act)> = Vec::new();
    for record in records {
        match record {
            Record::Intent { step, act, .. } => done.push((*step, act)),
            Record::Result { step, outcome, .. } if *outcome != Outcome::Done => {
                done.retain(|(number, _)| number != step);
            }
            _ => {}
        }
    }
    let mut out = Vec::new();
    for (step, act) in done.into_iter().rev() {
        let Some(back) = act.undo() else { continue };
        let state = node.observe();
        let now = node.now();
        let (free, needed) = free_part(&Judge::new(&state, None, settings, now), &back, parse);
        let refused = |(act, who)| Undone {
            act,
            outcome: Outcome::JudgedDifferently(who),
        };
        out.extend(needed.map(refused));
        let Some(back) = free else { continue };
        let outcome = carry_out(node, journal, step, &back)?;
        out.push(Undone { act: back, outcome });
    }
    Ok(out)
}

/// The part of an undo whose place nobody needs, and the part that somebody does, with who.
///
/// Rules are parted one by one; a jump and the chain that it needs are one.
fn free_part(
    judge: &Judge<'_>,
    back: &Act,
    parse: &dyn Fn(&str) -> Option<XtRule>,
) -> (Option<Act>, Option<(Act, String)>) {
    if let Act::NftEdit { edit } = back {
        return nft_undo::free_part(judge, edit);
    }
    let Act::XtRestore { edit } = back else {
        return match needed_by(judge, back) {
            Some(who) => (None, Some((back.clone(), who))),
            None => (Some(back.clone()), None),
        };
    };
    if let Some(why) = judge.roster.repair_blockers().first() {
        return (None, Some((back.clone(), format!("it needs {why}"))));
    }
    let chain_of = |line: &str| line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut reasons = Vec::new();
    let mut lost_chains: Vec<String> = Vec::new();
    let mut taken = |line: &String, asked: &dyn Fn(&XtRule) -> Option<String>| {
        let who = match parse(line) {
            Some(rule) => asked(&rule),
            None => Some(format!("{line:?} cannot be read as a rule")),
        };
        who.map(|who| {
            reasons.push(who);
            line.clone()
        })
    };
    // Rules that the repair put there and that serve somebody alive stay.
    let kept: Vec<String> = edit
        .delete
        .iter()
        .filter_map(|line| taken(line, &|rule| serves_alive(judge, &edit.place, rule)))
        .collect();
    let mut refused: Vec<String> = edit
        .add
        .iter()
        .filter_map(|line| taken(line, &|rule| taken_place(judge, rule)))
        .collect();
    for line in &edit.add {
        let target = parse(line).and_then(|rule| rule.spec.target);
        let unit = target
            .filter(|t| edit.new_chains.contains(t))
            .or_else(|| Some(chain_of(line)));
        if refused.contains(line)
            && let Some(chain) = unit.filter(|chain| edit.new_chains.contains(chain))
        {
            lost_chains.push(chain);
        }
    }
    for line in &edit.add {
        let target = parse(line).and_then(|rule| rule.spec.target).unwrap_or_default();
        if !refused.contains(line) && (lost_chains.contains(&chain_of(line)) || lost_chains.contains(&target))
        {
            refused.push(line.clone());
        }
    }
    let part = |lines: &[String], out: &[String], inside: bool| -> Vec<String> {
        lines
            .iter()
            .filter(|line| out.contains(line) == inside)
            .cloned()
            .collect()
    };
    let half = |inside: bool| plan::XtEdit {
        place: edit.place.clone(),
        delete: part(&edit.delete, &kept, inside),
        drop_chains: if inside {
            Vec::new()
        } else {
            edit.drop_chains.clone()
        },
        new_chains: part(&edit.new_chains, &lost_chains, inside),
        add: part(&edit.add, &refused, inside),
        probes: Vec::new(),
        replaced: 0,
    };
    let (free, needed) = (half(false), half(true));
    let something = |edit: &plan::XtEdit| !edit.delete.is_empty() || !edit.add.is_empty();
    reasons.sort();
    reasons.dedup();
    let needed = something(&needed).then(|| (Act::XtRestore { edit: needed }, reasons.join("; ")));
    (something(&free).then_some(Act::XtRestore { edit: free }), needed)
}

/// Who needs the place that an undo would fill.
fn needed_by(judge: &Judge<'_>, back: &Act) -> Option<String> {
    if let Some(why) = judge.roster.repair_blockers().first() {
        return Some(format!("it needs {why}"));
    }
    match back {
        Act::LeaseRestore { lease } => {
            let at = judge.roster.address(lease.ip);
            (at.standing == Standing::Live).then(|| format!("somebody alive has {}", lease.ip))
        }
        Act::NftAddElement { element, .. } => element.key.iter().find_map(|value| match value {
            NftValue::Addr(ip) if judge.roster.has_live_owner(*ip) => {
                Some(format!("somebody alive has {ip}"))
            }
            _ => None,
        }),
        Act::XtRestore { .. }
        | Act::NftEdit { .. }
        | Act::ConntrackDelete { .. }
        | Act::LeaseQuarantine { .. }
        | Act::NftDeleteElement { .. } => None,
    }
}

/// Somebody alive whom a rule serves: the target of a DNAT, or of a DNAT in the chain that it jumps to.
fn serves_alive(judge: &Judge<'_>, place: &XtPlace, rule: &XtRule) -> Option<String> {
    let mut tables = judge.state.xtables.value.iter();
    let behind = tables
        .find(|table| Judge::place(table) == *place)
        .zip(rule.spec.target.as_deref())
        .and_then(|(table, target)| table.chain(target))
        .map_or(&[][..], |chain| chain.rules.as_slice());
    let mut targets = std::iter::once(rule).chain(behind).filter_map(|r| r.spec.dnat);
    let alive = targets.find(|dnat| judge.roster.has_live_owner(dnat.ip))?;
    Some(format!("{} is alive and served", alive.ip))
}

/// Somebody alive who has the place of a rule today: its ports, the address that it would lead to, or the one that it would
/// take for a dead Pod's.
fn taken_place(judge: &Judge<'_>, rule: &XtRule) -> Option<String> {
    let source = rule.spec.source.as_deref().and_then(single_address);
    let mut addresses = rule.spec.dnat.map(|dnat| dnat.ip).into_iter().chain(source);
    if let Some(ip) = addresses.find(|ip| judge.roster.has_live_owner(*ip)) {
        return Some(format!("somebody alive has {ip} now"));
    }
    port_taken(judge, rule.spec.proto?, &rule.spec.dports)
}

/// The living Pod that has one of these ports of the node today, as hostPort or by its annotation.
fn port_taken(judge: &Judge<'_>, proto: Proto, ports: &[PortRange]) -> Option<String> {
    let takes = |port: u16| ports.iter().any(|range| range.contains(port));
    let living = judge.state.local_pods().filter(|p| !p.phase.is_terminal());
    living
        .flat_map(|pod| {
            let host_ports = pod.ports.iter().filter_map(|p| Some((p.proto, p.host_port?)));
            let announced = match &pod.npl {
                NplAnnotation::Entries(entries) => entries.as_slice(),
                NplAnnotation::Absent | NplAnnotation::Unreadable(_) => &[],
            };
            let announced = announced.iter().map(|e| (e.proto, e.node_port));
            host_ports.chain(announced).map(move |taken| (pod, taken))
        })
        .find(|(_, (other, port))| *other == proto && takes(*port))
        .map(|(pod, (_, port))| format!("Pod {} has {proto} port {port} of this node now", pod.pod_name()))
}

/// The address of a match on one address (`10.0.0.1/32`); `None` for a wider one.
fn single_address(text: &str) -> Option<IpAddr> {
    let net: ipnet::IpNet = text
        .parse()
        .or_else(|_| text.parse::<IpAddr>().map(ipnet::IpNet::from))
        .ok()?;
    (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())
}
