//! Rounds that change nftables.

use super::*;
use crate::{
    model::*,
    repair::tests::{self, Memory, run},
    sim::SimNode,
    testkit::*,
};

/// A dead hostPort before a living one, both masquerades, and a neighbour.
fn left_over() -> NodeState {
    let living = id("0001aaaaaaaaaaaa");
    let mut state = with_nft(
        node(vec![pod("web-0", 1, "10.10.1.2"), pod("dns-0", 2, "10.10.1.3")]),
        vec![
            nft_hostport(9, &id("0002aaaaaaaaaaaa"), Proto::Udp, 53, "10.10.1.3:53"),
            nft_hostport(10, &id("dead"), Proto::Tcp, 8080, "10.10.1.99:80"),
            nft_hostport(11, &id("dead"), Proto::Tcp, 8081, "10.10.1.99:81"),
            nft_hostport(12, &living, Proto::Tcp, 8080, "10.10.1.2:80"),
            nft_hairpin(13, &id("dead"), "10.10.1.99"),
            nft_hairpin(14, &living, "10.10.1.2"),
            nft_masquerade(3, "lab", &id("dead"), "10.10.1.99"),
            nft_masquerade(4, "lab", &living, "10.10.1.2"),
        ],
    );
    state.ipam.value.leases = vec![lease("10.10.1.99", id("dead"), at("2026-11-30T12:00:00Z"))];
    state
}

fn host_port(container_port: u16, port: u16, proto: Proto) -> ContainerPort {
    ContainerPort {
        name: None,
        container_port,
        host_port: Some(port),
        host_ip: None,
        proto,
    }
}

fn texts(state: &NodeState) -> Vec<String> {
    state.nft.value.rules.iter().map(NftRule::placed).collect()
}

#[test]
fn dead_rules_go_by_handle_in_one_transaction_a_table_and_come_back_in_place() {
    let before = texts(&left_over());
    let mut node = SimNode::new(left_over(), now());
    let mut journal = Memory::default();
    let done = run(&mut node, &mut journal).unwrap();
    assert!(done.is_good(), "{:?}", done.repaired);
    assert_eq!(done.remaining, Vec::new());
    let edits = node.applied.iter().filter(|a| matches!(a, Act::NftEdit { .. }));
    assert_eq!(edits.count(), 2);
    assert!(done.proofs.iter().all(|p| p.seen == Probed::Arrived) && done.proofs.len() == 1);
    let left: Vec<_> = node
        .state
        .nft
        .value
        .rules
        .iter()
        .filter_map(|r| r.handle)
        .collect();
    assert_eq!(left, [9, 12, 14, 4]);

    // Host port 8080 would be taken from nobody: the rule is not the living Pod's by its spec.
    let settings = Settings::default();
    let parse = |_: &str| None;
    let records = std::mem::take(&mut journal.records);
    let undone = undo(&mut node, &mut journal, &records, &settings, &parse).unwrap();
    assert!(undone.iter().all(|u| u.outcome == Outcome::Done), "{undone:?}");
    assert_eq!(texts(&node.state), before);
}

#[test]
fn undo_leaves_out_what_somebody_alive_needs_by_now() {
    let mut node = SimNode::new(left_over(), now());
    let mut journal = Memory::default();
    run(&mut node, &mut journal).unwrap();
    // The address was given away, and port 8081 is a hostPort of a living Pod.
    node.state.pods.value[0].ports = vec![host_port(80, 8081, Proto::Tcp)];
    let parse = |_: &str| None;
    let records = std::mem::take(&mut journal.records);
    let settings = Settings::default();
    let undone = undo(&mut node, &mut journal, &records, &settings, &parse).unwrap();
    let refused: Vec<_> = undone
        .iter()
        .filter(|u| matches!(u.outcome, Outcome::JudgedDifferently(_)))
        .collect();
    assert_eq!(refused.len(), 1, "{undone:?}");
    let back = texts(&node.state);
    assert!(!back.iter().any(|t| t.contains("dport 8081")), "{back:?}");
    assert!(back.iter().any(|t| t.contains("10.10.1.99:80")), "{back:?}");

    let mut node = SimNode::new(left_over(), now());
    let mut journal = Memory::default();
    run(&mut node, &mut journal).unwrap();
    node.state.pods.value[1].ips = vec![ip("10.10.1.99")];
    let records = std::mem::take(&mut journal.records);
    undo(&mut node, &mut journal, &records, &settings, &parse).unwrap();
    assert!(!texts(&node.state).iter().any(|t| t.contains("10.10.1.99")));
}

#[test]
fn a_handle_with_another_content_is_refused_and_nothing_is_changed() {
    // The table was made anew behind the plan: the handle is another rule's.
    let mut node = SimNode::new(left_over(), now());
    let state = node.state.clone();
    let findings = crate::testkit::judge(&state);
    let remedy = findings
        .iter()
        .find(|f| f.rule == "hostport-stale-target")
        .and_then(|f| f.remedy.clone())
        .unwrap();
    node.state.nft.value.rules[1] =
        nft_hostport(10, &id("0001aaaaaaaaaaaa"), Proto::Tcp, 9090, "10.10.1.2:90");
    let before = texts(&node.state);
    assert!(matches!(node.apply(&remedy.act()), Applied::Changed(_)));
    assert_eq!(texts(&node.state), before);
}

#[test]
fn a_rule_that_the_plugin_took_away_meanwhile_is_already_gone() {
    let mut node = SimNode::new(left_over(), now()).at_reading(3, |state| {
        let dead = id("dead");
        state
            .nft
            .value
            .rules
            .retain(|r| marks_of(r).as_ref() != Some(&dead));
    });
    let done = run(&mut node, &mut Memory::default()).unwrap();
    assert_eq!(node.unmet(), 0);
    let outcomes: Vec<_> = done
        .repaired
        .iter()
        .filter(|r| r.finding.rule != "ipam-lease-dead-sandbox")
        .map(|r| r.outcome.clone())
        .collect();
    assert_eq!(outcomes, [Outcome::AlreadyGone, Outcome::AlreadyGone]);
}

fn marks_of(rule: &NftRule) -> Option<ContainerId> {
    crate::marks::nft::of(rule).map(|mark| mark.container)
}

#[test]
fn connections_wait_for_the_rules_of_nftables_too() {
    let mut state = left_over();
    let mut entry = udp("172.20.0.200", 41005, "172.20.0.11", 5353, "10.10.1.99", 53);
    entry.id = Some(1);
    state.pods.value[0].ports = vec![host_port(53, 5353, Proto::Udp)];
    let state = with_conntrack(state, vec![entry]);
    let node = SimNode::new(state, now());
    let findings = crate::testkit::judge(&node.state);
    let choice = tests::tier1();
    let plan = plan::make(&node.state, &findings, &choice, &Settings::default(), now());
    let waits = plan
        .steps
        .iter()
        .find(|s| matches!(s.act, Act::ConntrackDelete { .. }))
        .map(|s| s.depends_on.clone());
    assert_eq!(waits, Some(vec![1, 2]), "{:#?}", plan.steps);
}

#[test]
fn without_what_the_kernel_keeps_there_is_no_undo_and_the_plan_says_so() {
    let mut state = left_over();
    for rule in &mut state.nft.value.rules {
        rule.raw = None;
    }
    let findings = crate::testkit::judge(&state);
    let choice = tests::tier1();
    let plan = plan::make(&state, &findings, &choice, &Settings::default(), now());
    let nft = |s: &&Step| matches!(s.act, Act::NftEdit { .. });
    assert_eq!(plan.steps.iter().filter(nft).count(), 2);
    for step in plan.steps.iter().filter(nft) {
        assert!(step.undo.starts_with("none: "), "{}", step.undo);
        assert!(step.expects.contains("handle "), "{}", step.expects);
    }
}

#[test]
fn the_share_limit_counts_units() {
    let rules = (0..40_u32)
        .map(|n| {
            let container = if n < 30 {
                id(&format!("dead{n:02}"))
            } else {
                id("0001aaaaaaaaaaaa")
            };
            let port = 8000 + u16::try_from(n).unwrap();
            nft_hostport(u64::from(n) + 1, &container, Proto::Tcp, port, "10.10.1.99:80")
        })
        .collect();
    let mut state = with_nft(node(vec![pod("web-0", 1, "10.10.1.2")]), rules);
    state.ipam.value.leases = (0..30)
        .map(|n| {
            lease(
                "10.10.1.99",
                id(&format!("dead{n:02}")),
                at("2026-11-30T12:00:00Z"),
            )
        })
        .collect();
    let findings = crate::testkit::judge(&state);
    let choice = Choice {
        rules: vec!["hostport-stale-target".to_owned()],
        ..Choice::default()
    };
    let plan = plan::make(&state, &findings, &choice, &Settings::default(), now());
    assert_eq!(plan.steps.len(), 0);
    assert_eq!(plan.left_out.len(), 30);
    assert!(
        plan.left_out[0].why.contains("30 of 31 nft-unit"),
        "{}",
        plan.left_out[0].why
    );
}
