//! Rounds on the simulator.

use super::*;
use crate::{
    finding::Verdict,
    model::{CtEntry, PortRange, Proto, XtMatch, XtRule},
    sim::SimNode,
    testkit::*,
};

/// A journal in memory that dies at its n-th record.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) records: Vec<Record>,
    dies_at: Option<usize>,
}

impl Journal for Memory {
    fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        if self.dies_at == Some(self.records.len()) {
            return Err(JournalError("killed".to_owned()));
        }
        self.records.push(record.clone());
        Ok(())
    }
}

pub(super) fn tier1() -> Choice {
    Choice {
        tier: Some(1),
        ..Choice::default()
    }
}

pub(super) fn run(node: &mut SimNode, journal: &mut Memory) -> Result<Round, RepairError> {
    let settings = Settings::default();
    round(
        node,
        journal,
        Order {
            settings: &settings,
            choice: &tier1(),
            plan: None,
            probe: true,
        },
    )
}

fn rules_of(state: &NodeState) -> Vec<String> {
    state
        .xtables
        .value
        .iter()
        .flat_map(|t| t.rules())
        .map(|(_, r)| r.line.clone())
        .collect()
}

/// The incident with everything around it that a repair of all kinds touches.
fn crowded() -> NodeState {
    let mut state = with_conntrack(
        incident(),
        vec![
            udp("172.20.0.200", 41005, "172.20.0.11", 61005, "10.10.1.23", 5065),
            udp("172.20.0.200", 41006, "172.20.0.11", 61006, "10.10.1.40", 5066),
        ],
    );
    state.ipam.value.leases = vec![
        lease("10.10.1.23", id("dead"), at("2026-11-30T12:00:00Z")),
        lease("10.10.1.40", id("0001aaaaaaaaaaaa"), at("2026-11-30T12:00:00Z")),
    ];
    state
}

#[test]
fn the_incident_is_repaired_in_one_restore_and_proved_by_traffic() {
    let mut node = SimNode::new(incident(), now());
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert!(done.is_good(), "{:?}", done.repaired);
    assert_eq!(done.remaining, Vec::new());
    assert_eq!(node.applied.len(), 1);
    let arrived: Vec<_> = done
        .proofs
        .iter()
        .map(|p| (p.probe.node_port, p.seen.clone()))
        .collect();
    let expected: Vec<_> = [61001, 61003, 61005, 61007]
        .into_iter()
        .map(|p| (p, Probed::Arrived))
        .collect();
    assert_eq!(arrived, expected);
    let dead = rules_of(&node.state)
        .into_iter()
        .filter(|l| l.contains("10.10.1.23"))
        .count();
    assert_eq!((rules_of(&node.state).len(), dead), (11, 0));
}

#[test]
fn every_kind_is_repaired_and_the_living_twins_stay() {
    let mut node = SimNode::new(crowded(), now());
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert!(done.is_good(), "{:?}", done.repaired);
    assert_eq!(done.remaining, Vec::new());
    let left: Vec<_> = node
        .state
        .conntrack
        .value
        .entries
        .iter()
        .map(|e| e.original.sport)
        .collect();
    assert_eq!(left, vec![41006]);
    let left: Vec<_> = node.state.ipam.value.leases.iter().map(|l| l.ip).collect();
    assert_eq!(left, vec![ip("10.10.1.40")]);
}

#[test]
fn killed_at_every_record_the_next_round_converges_to_the_same_state() {
    let mut whole = SimNode::new(crowded(), now());
    let mut journal = Memory::default();
    run(&mut whole, &mut journal).unwrap();
    let records = journal.records.len();
    assert_eq!(records, 8, "begin, three steps of two records, end");
    for death in 0..records {
        let mut node = SimNode::new(crowded(), now());
        let killed = run(
            &mut node,
            &mut Memory {
                dies_at: Some(death),
                ..Memory::default()
            },
        );
        assert!(
            matches!(killed, Err(RepairError::Journal { .. })),
            "record {death}"
        );
        let next = run(&mut node, &mut Memory::default()).unwrap();
        assert!(next.is_good(), "record {death}: {:?}", next.repaired);
        let mut rules = (rules_of(&node.state), rules_of(&whole.state));
        rules.0.sort();
        rules.1.sort();
        assert_eq!(rules.0, rules.1, "record {death}");
        assert_eq!(
            node.state.conntrack.value, whole.state.conntrack.value,
            "record {death}"
        );
        assert_eq!(node.state.ipam.value, whole.state.ipam.value, "record {death}");
        assert_eq!(next.remaining, Vec::new(), "record {death}");
    }
}

#[test]
fn a_second_round_has_nothing_to_do() {
    let mut node = SimNode::new(crowded(), now());
    run(&mut node, &mut Memory::default()).unwrap();
    let acts = node.applied.len();
    let again = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!((again.plan.steps, node.applied.len()), (Vec::new(), acts));
}

#[test]
fn a_neighbour_that_gets_the_address_between_plan_and_act_is_a_refusal() {
    // Readings: first, second, then one before the first step.
    let mut node = SimNode::new(incident(), now()).at_reading(3, |state| {
        let newcomer = pod("newcomer-0", 9, "10.10.1.23");
        state.runtime.value.sandboxes.push(sandbox(&newcomer, id("feed")));
        state.pods.value.push(newcomer);
    });
    let before = rules_of(&node.state);
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!(node.unmet(), 0);
    // The ports are still announced by relay-1, so the rules stay wrong; but what mends them was planned for a dead
    // address and is judged anew: the address lives, the annotation still says otherwise.
    let outcomes: Vec<_> = done.repaired.iter().map(|r| r.outcome.clone()).collect();
    assert_eq!(
        outcomes,
        vec![Outcome::Done; 4],
        "a wrong rule of an announced port is wrong whoever lives behind it"
    );
    assert_ne!(rules_of(&node.state), before);
    assert!(!rules_of(&node.state).iter().any(|l| l.contains("10.10.1.23")));
}

#[test]
fn a_neighbour_that_gets_the_address_of_an_unannounced_port_is_left_alone() {
    let mut state = incident();
    state.pods.value.remove(0);
    state.runtime.value.sandboxes.remove(0);
    // Nobody announces 61001 now: the rule is stale until somebody lives at its target.
    let mut node = SimNode::new(state, now()).at_reading(3, |state| {
        let newcomer = pod("newcomer-0", 9, "10.10.1.23");
        state.runtime.value.sandboxes.push(sandbox(&newcomer, id("feed")));
        state.pods.value.push(newcomer);
    });
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!(node.unmet(), 0);
    let kept = rules_of(&node.state)
        .into_iter()
        .filter(|l| l.contains("10.10.1.23"))
        .count();
    assert_eq!(kept, 4);
    let refused: Vec<_> = done
        .repaired
        .iter()
        .filter(|r| matches!(r.outcome, Outcome::JudgedDifferently(_)))
        .collect();
    assert_eq!(refused.len(), 4, "{:?}", done.repaired);
}

#[test]
fn a_rule_that_changed_meanwhile_is_left_alone_and_the_rest_is_done() {
    let mut node = SimNode::new(incident(), now()).at_reading(3, |state| {
        // The controller itself mends one port.
        let chain = &mut state.xtables.value[0].chains[2];
        chain.rules[1] = dnat(
            crate::marks::ANTREA_NPL_CHAIN,
            Proto::Tcp,
            61001,
            "10.10.1.40:5061",
        );
    });
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!(node.unmet(), 0);
    assert!(done.is_good(), "{:?}", done.repaired);
    assert_eq!(
        done.repaired
            .iter()
            .filter(|r| r.outcome == Outcome::AlreadyGone)
            .count(),
        1
    );
    let right = rules_of(&node.state)
        .into_iter()
        .filter(|l| l.contains("--dport 61001 "))
        .collect::<Vec<_>>();
    assert_eq!(right.len(), 1);
}

#[test]
fn a_writer_that_makes_the_rule_again_is_named_and_not_fought() {
    let stale = dnat(
        crate::marks::ANTREA_NPL_CHAIN,
        Proto::Tcp,
        61001,
        "10.10.1.23:5061",
    );
    let line = stale.line.clone();
    let mut node = SimNode::new(incident(), now()).at_reading(5, move |state| {
        state.xtables.value[0].chains[2].rules.push(stale.clone());
    });
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!(node.unmet(), 0);
    let came: Vec<_> = done
        .repaired
        .iter()
        .filter(|r| matches!(r.outcome, Outcome::CameBack(_)))
        .map(|r| r.finding.object.clone())
        .collect();
    assert_eq!(came, vec![line]);
    assert_eq!(node.applied.len(), 1, "no fight");
    assert!(!done.is_good());
}

#[test]
fn a_connection_in_flight_is_taken_away_twice() {
    let again = udp("172.20.0.200", 41005, "172.20.0.11", 61005, "10.10.1.23", 5065);
    let mut node = SimNode::new(crowded(), now()).at_reading(6, move |state| {
        state
            .conntrack
            .value
            .entries
            .push(CtEntryWithId(again.clone(), 77).into());
    });
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!(node.unmet(), 0);
    assert!(done.is_good(), "{:?}", done.repaired);
    assert!(
        node.state
            .conntrack
            .value
            .entries
            .iter()
            .all(|e| e.original.sport != 41005)
    );
}

struct CtEntryWithId(CtEntry, u32);

impl From<CtEntryWithId> for CtEntry {
    fn from(CtEntryWithId(entry, id): CtEntryWithId) -> Self {
        Self {
            id: Some(id),
            ..entry
        }
    }
}

#[test]
fn connections_wait_for_the_rule_that_would_make_them_again() {
    let mut node = SimNode::new(crowded(), now());
    node.failures.insert(0, "the table is locked".to_owned());
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!(node.unmet(), 0);
    assert_eq!(node.state.conntrack.value.entries.len(), 2, "nothing was deleted");
    let leases = node.state.ipam.value.leases.len();
    assert_eq!(leases, 1, "what does not depend on the rules goes on");
    assert!(!done.is_good());
}

#[test]
fn what_only_one_of_two_readings_shows_is_in_motion() {
    let mut node = SimNode::new(incident(), now()).at_reading(2, |state| {
        let lines: Vec<_> = [1, 3, 5, 7].into_iter().collect();
        for index in lines {
            let rule = &mut state.xtables.value[0].chains[2].rules[index];
            let port = 61000 + index as u16;
            let proto = if index < 4 { Proto::Tcp } else { Proto::Udp };
            *rule = dnat(
                crate::marks::ANTREA_NPL_CHAIN,
                proto,
                port,
                &format!("10.10.1.40:{}", 5060 + index),
            );
        }
    });
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!((done.plan.steps.len(), node.applied.len()), (0, 0));
}

#[test]
fn a_reviewed_plan_is_carried_out_and_nothing_else() {
    let settings = Settings::default();
    let state = crowded();
    let findings = Judge::new(&state, None, &settings, now()).all();
    let choice = Choice {
        rules: vec!["npl-stale-target".to_owned()],
        ..Choice::default()
    };
    let plan = plan::make(&state, &findings, &choice, &settings, now());
    let text = serde_json::to_string_pretty(&plan).unwrap();
    let read = Plan::parse(&text).unwrap();
    assert_eq!(read, plan);
    let mut node = SimNode::new(state, now());
    let order = Order {
        settings: &settings,
        choice: &Choice::default(),
        plan: Some(read),
        probe: true,
    };
    let done = round(&mut node, &mut Memory::default(), order).unwrap();
    assert!(done.is_good(), "{:?}", done.repaired);
    assert_eq!(
        node.state.ipam.value.leases.len(),
        2,
        "leases were not in the plan"
    );
}

#[test]
fn an_old_an_edited_and_a_foreign_plan_are_refused_before_anything_is_changed() {
    let settings = Settings::default();
    let state = incident();
    let findings = Judge::new(&state, None, &settings, now()).all();
    let plan = plan::make(&state, &findings, &tier1(), &settings, now());
    let refused = |plan: Plan, later: Duration| {
        let mut node = SimNode::new(incident(), now().checked_add(later).unwrap());
        let order = Order {
            settings: &settings,
            choice: &tier1(),
            plan: Some(plan),
            probe: true,
        };
        let error = round(&mut node, &mut Memory::default(), order).unwrap_err();
        assert_eq!(node.applied, Vec::new());
        match error {
            RepairError::Plan(why) => why.to_string(),
            other => panic!("{other}"),
        }
    };
    let none = Duration::ZERO;
    let mut edited = plan.clone();
    edited.steps[0].reason.push('!');
    assert_eq!(
        refused(edited, none),
        "the plan was changed after it was made (its seal does not fit); make a new one"
    );
    let old = refused(plan.clone(), Duration::from_secs(15 * 60));
    assert_eq!(old, "the plan expired at 2026-11-30T16:34:15Z; make a new one");
    let mut foreign_state = incident();
    foreign_state.identity.name = "worker-b".to_owned();
    let foreign = plan::make(&foreign_state, &findings, &tier1(), &settings, now());
    assert_eq!(
        refused(foreign, none),
        "the plan is for node \"worker-b\", and this is \"worker-a\""
    );
    let mut recorded_state = incident();
    recorded_state.live = false;
    let recorded = plan::make(&recorded_state, &findings, &tier1(), &settings, now());
    assert_eq!(
        refused(recorded, none),
        "the plan was made from a recording, which cannot be repaired; make one on the node"
    );
    assert_eq!(
        Plan::parse("[]").map_err(|e| e.to_string().split(':').next().map(str::to_owned)),
        Err(Some("this is not a plan".to_owned()))
    );
}

fn parse_dnat(line: &str) -> Option<XtRule> {
    let after = |flag: &str| line.split(' ').skip_while(|w| *w != flag).nth(1);
    let target: std::net::SocketAddr = after("--to-destination")?.parse().ok()?;
    let spec = XtMatch {
        proto: after("-p").and_then(Proto::parse),
        dports: vec![PortRange::one(after("--dport")?.parse().ok()?)],
        dnat: Some(crate::model::Dnat {
            ip: target.ip(),
            port: Some(target.port()),
        }),
        ..XtMatch::default()
    };
    Some(XtRule {
        line: line.to_owned(),
        counters: None,
        spec,
    })
}

#[test]
fn undo_puts_back_what_nobody_needs_the_place_of() {
    let mut node = SimNode::new(crowded(), now());
    let mut journal = Memory::default();
    run(&mut node, &mut journal).unwrap();
    let repaired = rules_of(&node.state);
    let settings = Settings::default();
    let undone = undo(
        &mut node,
        &mut Memory::default(),
        &journal.records,
        &settings,
        &parse_dnat,
    )
    .unwrap();
    let words: Vec<_> = undone
        .iter()
        .map(|u| (u.act.describe(), u.outcome.clone()))
        .collect();
    assert_eq!(words.len(), 2, "{words:?}");
    assert_eq!(words[0].1, Outcome::Done, "the lease's place is free");
    assert!(
        matches!(&words[1].1, Outcome::JudgedDifferently(why) if why.contains("10.10.1.40 is alive and served")),
        "{words:?}"
    );
    assert_eq!(rules_of(&node.state), repaired, "the living keep their ports");
    assert_eq!(node.state.ipam.value.leases.len(), 2);
}

#[test]
fn the_share_limit_holds_a_round_back_but_not_the_incident() {
    // 30 of 40 leases dead: more than a quarter, and more than 20.
    let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
    state.ipam.value.leases = (0..40)
        .map(|n| {
            let owner = if n < 30 {
                id(&format!("dead{n:04}"))
            } else {
                id("0001aaaaaaaaaaaa")
            };
            lease(&format!("10.10.1.{}", 100 + n), owner, at("2026-11-30T10:00:00Z"))
        })
        .collect();
    let mut held = SimNode::new(state.clone(), now());
    let done = run(&mut held, &mut Memory::default()).unwrap();
    assert_eq!((held.applied.len(), done.plan.left_out.len()), (0, 30));
    assert_eq!(
        done.plan.left_out[0].why,
        "would delete 30 of the 40 lease objects that are known writers' in one round; the limit is 25 %"
    );
    // The same leases from before the boot are a class of their own.
    state.identity.booted_at = Some(at("2026-11-30T11:00:00Z"));
    let mut booted = SimNode::new(state, now());
    let done = run(&mut booted, &mut Memory::default()).unwrap();
    assert_eq!((booted.applied.len(), done.plan.left_out.len()), (30, 0));
}

/// Runs `undo` over what `journal` holds; each act with its outcome.
fn undone(node: &mut SimNode, journal: &Memory) -> Vec<(String, Outcome)> {
    let settings = Settings::default();
    let parse = |line: &str| crate::sim::parse_rule(line);
    let done = undo(node, &mut Memory::default(), &journal.records, &settings, &parse).unwrap();
    done.into_iter().map(|u| (u.act.expects(), u.outcome)).collect()
}

#[test]
fn undo_leaves_the_jump_to_a_chain_that_serves_the_living() {
    let mut state = incident();
    let rules = state.xtables.value[0].chains[2].rules.clone();
    state.xtables.value[0].chains[2].rules = rules
        .into_iter()
        .filter(|r| !r.line.contains("10.10.1.23"))
        .collect();
    state.pods.value[0].npl = npl(&[(Proto::Tcp, 61000, 5060), (Proto::Tcp, 61002, 5062)]);
    let whole = state.clone();
    state.xtables.value[0].chains[0].rules.clear();
    let mut node = SimNode::new(state, now());
    let mut journal = Memory::default();
    assert!(run(&mut node, &mut journal).unwrap().is_good());
    assert_eq!(node.state.xtables, whole.xtables);
    let words = undone(&mut node, &journal);
    assert!(
        matches!(&words[..], [(_, Outcome::JudgedDifferently(why))] if why.contains("is alive and served")),
        "{words:?}"
    );
    assert_eq!(node.state.xtables, whole.xtables);
}

#[test]
fn undo_leads_no_rule_to_an_address_that_was_given_away() {
    let mut state = incident();
    state.pods.value.remove(0);
    state.runtime.value.sandboxes.remove(0);
    let mut node = SimNode::new(state, now());
    let mut journal = Memory::default();
    assert!(run(&mut node, &mut journal).unwrap().is_good());
    let newcomer = pod("newcomer-0", 9, "10.10.1.23");
    node.state
        .runtime
        .value
        .sandboxes
        .push(sandbox(&newcomer, id("feed")));
    node.state.pods.value.push(newcomer);
    let words = undone(&mut node, &journal);
    let refused = words.iter().filter(
        |(_, o)| matches!(o, Outcome::JudgedDifferently(why) if why == "somebody alive has 10.10.1.23 now"),
    );
    assert_eq!(refused.count(), 1, "{words:?}");
    assert!(!rules_of(&node.state).iter().any(|l| l.contains("10.10.1.23")));
    assert_eq!(
        rules_of(&node.state)
            .iter()
            .filter(|l| l.contains("10.10.1.40"))
            .count(),
        4,
        "what leads to nobody is put back"
    );
}

#[test]
fn a_connection_that_comes_back_to_somebody_alive_is_left_alone() {
    let again = udp("172.20.0.200", 41005, "172.20.0.11", 61005, "10.10.1.23", 5065);
    let mut node = SimNode::new(crowded(), now()).at_reading(6, move |state| {
        // The runtime is gone in the moment that the entry comes back: one witness is not enough to delete it again.
        state.runtime = crate::model::Facts::default();
        state
            .conntrack
            .value
            .entries
            .push(CtEntryWithId(again.clone(), 77).into());
    });
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!(node.unmet(), 0);
    let came = done
        .repaired
        .iter()
        .filter(|r| matches!(r.outcome, Outcome::CameBack(_)))
        .count();
    assert_eq!(came, 1, "{:?}", done.repaired);
    let ports: Vec<_> = node.state.conntrack.value.entries.iter().map(|e| e.id).collect();
    assert_eq!(ports, vec![Some(41006), Some(77)]);
}

#[test]
fn every_change_is_in_the_journal_before_it_is_made() {
    let again = udp("172.20.0.200", 41005, "172.20.0.11", 61005, "10.10.1.23", 5065);
    let mut node = SimNode::new(crowded(), now()).at_reading(6, move |state| {
        state
            .conntrack
            .value
            .entries
            .push(CtEntryWithId(again.clone(), 77).into());
    });
    let mut journal = Memory::default();
    run(&mut node, &mut journal).unwrap();
    let intents: Vec<Act> = journal
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Intent { act, .. } => Some((**act).clone()),
            _ => None,
        })
        .collect();
    assert_eq!(intents, node.applied);
    assert_eq!(
        intents.len(),
        4,
        "rules, connections, a lease, and the connection again"
    );
}

#[test]
fn what_became_right_meanwhile_is_not_called_gone() {
    let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
    state.ipam.value.leases = vec![lease("10.10.1.3", id("dead"), at("2026-11-30T10:00:00Z"))];
    let mut node = SimNode::new(state, now()).at_reading(3, |state| {
        let late = pod("late-0", 7, "10.10.1.3");
        state.runtime.value.sandboxes.push(sandbox(&late, id("dead")));
        state.pods.value.push(late);
    });
    let done = run(&mut node, &mut Memory::default()).unwrap();
    let outcomes: Vec<_> = done.repaired.iter().map(|r| r.outcome.clone()).collect();
    assert_eq!(
        outcomes,
        vec![Outcome::JudgedDifferently(
            "it is no longer found to be wrong".to_owned()
        )]
    );
    assert_eq!(node.state.ipam.value.leases.len(), 1);
}

#[test]
fn a_rule_that_stands_twice_is_taken_away_twice() {
    let mut state = incident();
    let chain = &mut state.xtables.value[0].chains[2];
    chain.rules.push(chain.rules[1].clone());
    let mut node = SimNode::new(state, now());
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert!(done.is_good(), "{:?}", done.repaired);
    assert_eq!(done.remaining, Vec::new());
    assert!(!rules_of(&node.state).iter().any(|l| l.contains("10.10.1.23")));
}

/// A connection to the incident's dead Pod, with so many answers.
fn answered(packets: u64) -> CtEntry {
    let mut entry = udp("172.20.0.200", 40000, "172.20.0.11", 61001, "10.10.1.23", 5061);
    entry.proto = Proto::Tcp;
    entry.reply_count = Some(crate::model::Direction { packets, bytes: 0 });
    entry
}

/// The incident's node, whose dead Pod's address has so many answers at the second reading, four at the first.
fn answering(later: u64) -> SimNode {
    let state = with_conntrack(incident(), vec![answered(4)]);
    SimNode::new(state, now()).at_reading(2, move |state| {
        state.conntrack.value.entries = vec![answered(later)];
    })
}

#[test]
fn a_reviewed_plan_is_refused_too_where_somebody_answered_between_the_readings() {
    let settings = Settings::default();
    for (later, outcome) in [(4, true), (5, false)] {
        let mut node = answering(later);
        let state = node.state.clone();
        let plan = plan::make(
            &state,
            &Judge::new(&state, None, &settings, now()).all(),
            &tier1(),
            &settings,
            now(),
        );
        let order = Order {
            settings: &settings,
            choice: &tier1(),
            plan: Some(plan),
            probe: false,
        };
        let done = round(&mut node, &mut Memory::default(), order).unwrap();
        assert_eq!(done.is_good(), outcome, "{:?}", done.repaired);
        assert_eq!(node.applied.is_empty(), !outcome);
    }
}

/// Law 18: what a reading alone would have repaired is named with the reason, and is no success.
#[test]
fn what_answered_between_the_readings_is_named_and_left() {
    let mut node = answering(5);
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!((done.plan.steps.len(), node.applied.len()), (0, 0));
    assert!(!done.is_good());
    let left: BTreeSet<(&str, &str)> = done
        .plan
        .left_out
        .iter()
        .map(|left| (left.finding.rule.as_str(), left.why.as_str()))
        .collect();
    let why = "somebody lives at 10.10.1.23 although no Pod of the API has it";
    assert_eq!(left, BTreeSet::from([("npl-stale-target", why)]));
    assert_eq!(done.plan.left_out.len(), 4);
    // Nor is it called a thing that was not chosen afterwards.
    let verdicts: BTreeSet<Verdict> = done.remaining.iter().map(|f| f.verdict).collect();
    assert_eq!(verdicts, BTreeSet::from([Verdict::Unknown]));
    // The same connection in silence stops nothing.
    let mut node = answering(4);
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert!(done.is_good(), "{:?}", done.repaired);
    assert_eq!(done.plan.left_out, []);
}

/// A connection that answers is no finding at all at the second reading; the round still says why it was left.
#[test]
fn a_connection_that_answers_is_named_too() {
    let counted = |entry: &mut CtEntry, packets| {
        entry.reply_count = Some(crate::model::Direction { packets, bytes: 0 });
    };
    let only_connections = Choice {
        rules: vec!["conntrack-hostport-stale".to_owned()],
        ..Choice::default()
    };
    let settings = Settings::default();
    let mut state = crowded();
    let dead: Vec<String> = Judge::new(&state, None, &settings, now())
        .all()
        .iter()
        .filter(|f| f.rule == "conntrack-hostport-stale")
        .map(|f| f.object.text())
        .collect();
    assert!(!dead.is_empty());
    state
        .conntrack
        .value
        .entries
        .iter_mut()
        .for_each(|entry| counted(entry, 4));
    for (later, left) in [(4, 0), (5, dead.len())] {
        let mut node = SimNode::new(state.clone(), now()).at_reading(2, move |state| {
            let entries = state.conntrack.value.entries.iter_mut();
            entries.for_each(|entry| counted(entry, later));
        });
        let order = Order {
            settings: &settings,
            choice: &only_connections,
            plan: None,
            probe: false,
        };
        let done = round(&mut node, &mut Memory::default(), order).unwrap();
        let whys: Vec<&str> = done.plan.left_out.iter().map(|left| left.why.as_str()).collect();
        assert_eq!(whys, vec![ANSWERED; left]);
        assert_eq!(done.is_good(), left == 0);
        assert_eq!(node.applied.is_empty(), left > 0);
    }
}

#[test]
fn nothing_is_put_back_while_who_lives_here_is_not_told() {
    let mut node = SimNode::new(crowded(), now());
    let mut journal = Memory::default();
    run(&mut node, &mut journal).unwrap();
    let acts = node.applied.len();
    let whole = node.state.clone();
    for part in ["pods", "runtime"] {
        node.state = whole.clone();
        match part {
            "pods" => node.state.pods = crate::model::Facts::default(),
            _ => node.state.runtime = crate::model::Facts::default(),
        }
        let outcomes = undone(&mut node, &journal);
        assert!(!outcomes.is_empty());
        assert!(
            outcomes
                .iter()
                .all(|(_, outcome)| matches!(outcome, Outcome::JudgedDifferently(_))),
            "{outcomes:?}"
        );
        assert_eq!(node.applied.len(), acts, "{part}");
    }
    node.state = whole;
    assert!(
        undone(&mut node, &journal)
            .iter()
            .any(|(_, outcome)| outcome.is_good())
    );
}
