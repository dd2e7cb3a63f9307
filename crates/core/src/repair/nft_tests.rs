//! Rounds that change nftables.

use super::*;
use crate::{
    finding::Verdict,
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
        plan.left_out[0].why.contains("30 of the 31 nft-unit"),
        "{}",
        plan.left_out[0].why
    );
}

/// A map of node ports: one right, one to a dead Pod, one of nobody, and a Pod whose second port is not there.
fn mapped() -> NodeState {
    let web = Pod {
        npl: npl(&[
            (Proto::Tcp, 61000, 80),
            (Proto::Udp, 61001, 53),
            (Proto::Tcp, 61002, 81),
        ]),
        ..pod("web-0", 1, "10.10.1.2")
    };
    let element = |proto, node_port, address: &str, port| NftElement {
        key: vec![NftValue::Proto(proto), NftValue::Port(node_port)],
        data: vec![NftValue::Addr(ip(address)), NftValue::Port(port)],
        comment: None,
        timeout_ms: None,
        expires_ms: None,
    };
    let mut state = node(vec![web]);
    state.nft.value.generation = Some(1);
    state.nft.value.sets = vec![NftSet {
        family: NftFamily::Inet,
        table: "sexton".to_owned(),
        name: "npl4".to_owned(),
        is_map: true,
        key_type: "inet_proto . inet_service".to_owned(),
        data_type: Some("ipv4_addr . inet_service".to_owned()),
        elements: vec![
            element(Proto::Tcp, 61000, "10.10.1.2", 80),
            element(Proto::Udp, 61001, "10.10.1.99", 53),
            element(Proto::Tcp, 61009, "10.10.1.98", 80),
        ],
    }];
    state
}

fn elements(state: &NodeState) -> Vec<String> {
    let mut all: Vec<_> = state.nft.value.sets[0]
        .elements
        .iter()
        .map(NftElement::text)
        .collect();
    all.sort();
    all
}

#[test]
fn mappings_in_our_own_map_are_replaced_taken_away_and_added_in_one_transaction() {
    let before = elements(&mapped());
    let mut node = SimNode::new(mapped(), now());
    let mut journal = Memory::default();
    let done = run(&mut node, &mut journal).unwrap();
    assert!(done.is_good(), "{:?}", done.repaired);
    assert_eq!(done.remaining, Vec::new());
    assert_eq!(node.applied.len(), 1, "{:?}", node.applied);
    let mark = format!("comment \"sexton:{}:npl\"", uid(1));
    assert_eq!(
        elements(&node.state),
        [
            "tcp . 61000 : 10.10.1.2 . 80".to_owned(),
            format!("tcp . 61002 {mark} : 10.10.1.2 . 81"),
            format!("udp . 61001 {mark} : 10.10.1.2 . 53"),
        ]
    );
    let arrived = done.proofs.iter().filter(|p| p.seen == Probed::Arrived);
    assert_eq!(arrived.count(), 2);

    // What serves the living stays, and the port of nobody comes back.
    let parse = |_: &str| None;
    let records = std::mem::take(&mut journal.records);
    let undone = undo(&mut node, &mut journal, &records, &Settings::default(), &parse).unwrap();
    let refused = undone
        .iter()
        .filter(|u| matches!(u.outcome, Outcome::JudgedDifferently(_)));
    assert_eq!(refused.count(), 1, "{undone:?}");
    let left = elements(&node.state);
    assert_eq!(left.len(), 4);
    assert!(
        before
            .iter()
            .any(|text| text.contains("61009") && left.contains(text))
    );
}

#[test]
fn where_the_maps_were_not_read_nothing_is_missing() {
    let verdicts = |state: &NodeState| -> Vec<(&'static str, Verdict)> {
        let found = crate::testkit::judge(state);
        found.iter().map(|f| (f.rule, f.verdict)).collect()
    };
    let rule = "npl-missing-mapping";
    let mut state = mapped();
    state.nft.value.sets.clear();
    assert_eq!(verdicts(&state), vec![(rule, Verdict::Missing); 3]);
    state.nft.completeness = Completeness::Unavailable("it timed out".to_owned());
    assert_eq!(verdicts(&state), vec![(rule, Verdict::Unknown); 3]);
    // A recording without any listing of nftables has none; one whose listing was cut may have some.
    state.live = false;
    assert_eq!(verdicts(&state), vec![(rule, Verdict::Missing); 3]);
    state.nft.completeness = Completeness::Partial("it is cut off".to_owned());
    assert_eq!(verdicts(&state), vec![(rule, Verdict::Unknown); 3]);
}

#[test]
fn a_map_of_another_table_or_form_is_nobodys() {
    for change in [
        |set: &mut NftSet| set.table = "kube-proxy".to_owned(),
        |set: &mut NftSet| set.family = NftFamily::Ip,
        |set: &mut NftSet| set.data_type = Some("ipv4_addr".to_owned()),
    ] {
        let mut state = mapped();
        change(&mut state.nft.value.sets[0]);
        let found = crate::testkit::judge(&state);
        assert!(found.iter().all(|f| f.rule == "npl-missing-mapping"), "{found:?}");
    }
}
