//! What CNI plugins leave in nftables, beside what they keep there for the living.

use crate::{
    finding::{Object, Verdict},
    marks,
    model::*,
    plan::Remedy,
    testkit::*,
};

/// The sandbox of the first Pod of a node.
fn living() -> ContainerId {
    id("0001aaaaaaaaaaaa")
}

fn old_lease(container: ContainerId) -> Lease {
    lease("10.10.1.99", container, at("2026-11-30T12:00:00Z"))
}

/// A Pod at 10.10.1.2, the lease of a dead sandbox, and these rules.
fn node_with(rules: Vec<NftRule>) -> NodeState {
    let mut state = with_nft(node(vec![pod("web-0", 1, "10.10.1.2")]), rules);
    state.ipam.value.leases = vec![old_lease(id("dead"))];
    state
}

/// Rule, verdict and whether it may be repaired, of everything but the lease.
fn found(state: &NodeState) -> Vec<(&'static str, Verdict, bool)> {
    let all = short(&judge(state));
    let rules = all.into_iter().filter(|f| f.0 != "ipam-lease-dead-sandbox");
    rules
        .map(|(rule, verdict, repair, _)| (rule, verdict, repair))
        .collect()
}

fn deleted(state: &NodeState, rule: &str) -> Vec<u64> {
    let all = judge(state);
    let found = all.iter().filter(|f| f.rule == rule);
    let edits = found.filter_map(|f| match &f.remedy {
        Some(Remedy::Nft(edit)) => Some(edit.delete.iter().filter_map(|at| at.rule.handle)),
        _ => None,
    });
    edits.flatten().collect()
}

#[test]
fn a_dead_hostport_that_shadows_a_living_one_is_found_with_all_its_rules() {
    let state = node_with(vec![
        nft_hostport(10, &id("dead"), Proto::Tcp, 8080, "10.10.1.99:80"),
        nft_hostport(11, &living(), Proto::Tcp, 8080, "10.10.1.2:80"),
        nft_hairpin(12, &id("dead"), "10.10.1.99"),
        nft_hairpin(13, &living(), "10.10.1.2"),
    ]);
    assert_eq!(found(&state), [("hostport-stale-target", Verdict::Stale, true)]);
    assert_eq!(deleted(&state, "hostport-stale-target"), [10, 12]);
    let all = judge(&state);
    let finding = all.iter().find(|f| f.rule == "hostport-stale-target").unwrap();
    assert!(
        finding
            .consequence
            .contains("tcp 8080 never reaches Pod voice/web-0"),
        "{}",
        finding.consequence
    );
    let Some(Remedy::Nft(edit)) = &finding.remedy else {
        panic!("no remedy")
    };
    // Both rules have a living heir, and the heir's port is tried.
    assert_eq!((edit.replaced, edit.probes.len()), (2, 1));
    assert_eq!(edit.probes[0].target, ip("10.10.1.2"));
    // Behind nothing, and behind nothing in the other chain.
    assert_eq!(
        edit.delete.iter().map(|at| at.after).collect::<Vec<_>>(),
        [None, None]
    );
    assert_eq!(
        crate::judge::object_counts(&state).get("nft-unit"),
        Some(&2),
        "a unit a container and table"
    );
}

#[test]
fn explain_shows_what_names_an_address_or_a_container() {
    use crate::{explain, judge::Judge, settings::Settings};
    let mut state = node_with(vec![
        nft_hostport(10, &id("dead"), Proto::Tcp, 8080, "10.10.1.99:80"),
        nft_masquerade(11, "lab", &id("dead"), "10.10.1.99"),
        nft_hostport(12, &living(), Proto::Tcp, 8080, "10.10.1.9:80"),
    ]);
    let rule = |from: &str, priority| IpRule {
        family: Family::Ipv4,
        priority,
        inverted: false,
        from: Some(from.parse().unwrap()),
        to: None,
        mark: None,
        iif: None,
        oif: None,
        detached: false,
        others: Vec::new(),
        action: IpRuleAction::Lookup(254),
        protocol: None,
    };
    state.ip_rules.value = vec![rule("10.10.1.99/32", 100), rule("10.10.1.0/24", 101)];
    let member = |entry: &str| IpSetMember {
        entry: entry.to_owned(),
        options: String::new(),
    };
    state.ipsets.value = vec![IpSet {
        name: "pods".to_owned(),
        kind: "hash:ip,port".to_owned(),
        options: String::new(),
        members: vec![member("10.10.1.99,tcp:80"), member("10.10.1.9,tcp:80")],
    }];
    state.ipvs.value = vec![IpvsVirtual {
        service: IpvsService::Address {
            proto: Proto::Tcp,
            ip: ip("10.96.0.1"),
            port: 80,
        },
        scheduler: "rr".to_owned(),
        persistent: None,
        flags: Vec::new(),
        servers: vec![IpvsServer {
            ip: ip("10.10.1.99"),
            port: 8080,
            forward: IpvsForward::Masquerade,
            weight: 1,
            connections: None,
        }],
    }];
    let settings = Settings::default();
    let judge = Judge::new(&state, None, &settings, now());
    let shown = |mentions: Vec<explain::Mention>| {
        let shown = mentions.into_iter().filter(|m| m.kind != "lease");
        shown
            .map(|m| (m.kind, m.finding.map(|f| f.rule)))
            .collect::<Vec<_>>()
    };
    let nft = [
        ("nft-rule", Some("hostport-stale-target")),
        ("nft-rule", Some("cni-rule-dead-sandbox")),
    ];
    let beside = [("ip-rule", None), ("ipset-member", None), ("ipvs-server", None)];
    let all = shown(explain::mentions_of_address(&judge, ip("10.10.1.99")));
    assert_eq!(all, [&nft[..], &beside[..]].concat());
    assert_eq!(
        shown(explain::mentions_of_address(&judge, ip("10.96.0.1"))),
        [("ipvs-service", None)]
    );
    assert_eq!(shown(explain::mentions_of_container(&judge, &id("dead"))), nft);
    let counts = crate::judge::object_counts(&state);
    for (kind, number) in [
        ("ip-rule", 2),
        ("ipset-member", 2),
        ("ipvs-service", 1),
        ("ipvs-server", 1),
    ] {
        assert_eq!(counts.get(kind), Some(&number), "{kind}");
    }
}

#[test]
fn one_fact_apart_nothing_is_found() {
    let dead = id("dead");
    let rule = nft_hostport(10, &dead, Proto::Tcp, 8080, "10.10.1.99:80");
    let masq = nft_masquerade(10, "lab", &dead, "10.10.1.99");
    for (what, state) in [
        ("a living sandbox", {
            let mut state = node_with(vec![rule.clone(), masq.clone()]);
            let one = state.runtime.value.sandboxes[0].clone();
            state.runtime.value.sandboxes.push(Sandbox {
                id: dead.clone(),
                state: SandboxState::NotReady,
                ..one
            });
            state.ipam.value.leases.clear();
            state
        }),
        (
            "another table",
            node_with(vec![NftRule {
                table: "hostport".to_owned(),
                ..rule.clone()
            }]),
        ),
        (
            "another chain",
            node_with(vec![NftRule {
                chain: "prerouting".to_owned(),
                ..rule.clone()
            }]),
        ),
        (
            "a comment that is no ID",
            node_with(vec![NftRule {
                comment: Some("to the web".to_owned()),
                ..rule.clone()
            }]),
        ),
        (
            "a comment whose hashes do not fit",
            node_with(vec![NftRule {
                comment: masq.comment.clone().map(|c| c.replace("net: lab", "net: labs")),
                ..masq.clone()
            }]),
        ),
    ] {
        assert_eq!(found(&state), [], "{what}");
    }
}

#[test]
fn the_living_one_before_the_dead_one_is_said_so() {
    let state = node_with(vec![
        nft_hostport(11, &living(), Proto::Tcp, 8080, "10.10.1.2:80"),
        nft_hostport(12, &id("dead"), Proto::Tcp, 8080, "10.10.1.99:80"),
        // Another protocol is no rival.
        nft_hostport(13, &living(), Proto::Udp, 8080, "10.10.1.2:80"),
    ]);
    let all = judge(&state);
    let finding = all.iter().find(|f| f.rule == "hostport-stale-target").unwrap();
    assert!(finding.consequence.contains("as soon as that is gone"));
    let Some(Remedy::Nft(edit)) = &finding.remedy else {
        panic!("no remedy")
    };
    assert_eq!((edit.replaced, edit.probes.len()), (0, 0));
    assert_eq!(edit.delete[0].after, Some(11));
}

/// What is said of the dead one's host ports, and of which living rule.
fn said(rules: Vec<NftRule>) -> (String, Vec<String>) {
    let pods = vec![pod("web-0", 1, "10.10.1.2"), pod("web-1", 2, "10.10.1.3")];
    let mut state = with_nft(node(pods), rules);
    state.ipam.value.leases = vec![old_lease(id("dead"))];
    let all = judge(&state);
    let finding = all.iter().find(|f| f.rule == "hostport-stale-target").unwrap();
    let rivals = finding
        .evidence
        .iter()
        .filter(|e| e.text.starts_with("it comes "));
    (
        finding.consequence.clone(),
        rivals.map(|e| e.text.clone()).collect(),
    )
}

/// Of several living rivals the one is named that the dead one keeps its traffic from, with each port that it keeps.
#[test]
fn the_rival_is_named_that_is_kept_from_its_traffic() {
    let other = || id("0002aaaaaaaaaaaa");
    let dead = |handle, port| nft_hostport(handle, &id("dead"), Proto::Tcp, port, "10.10.1.99:80");
    let first = |handle, port| nft_hostport(handle, &living(), Proto::Tcp, port, "10.10.1.2:80");
    let second = |handle, port| nft_hostport(handle, &other(), Proto::Tcp, port, "10.10.1.3:80");
    let never = |ports: &str, who: &str| {
        format!(
            "Traffic to host port {ports} never reaches Pod voice/{who}: this older rule of a dead sandbox takes it first."
        )
    };
    let behind = |ports: &str, who: &str| {
        format!(
            "The rule of Pod voice/{who} takes host port {ports} before this one of a dead sandbox, which would take it as soon as that is gone."
        )
    };
    let named = |where_: &str, who: &str, rule: &NftRule| {
        vec![format!(
            "it comes {where_} the rule of Pod voice/{who}: {}",
            rule.placed()
        )]
    };

    // Both of its ports are the same living Pod's; each is said once, also where it has two rules for one.
    let seen = said(vec![
        dead(10, 8080),
        dead(11, 8081),
        first(12, 8080),
        first(13, 8081),
        first(14, 8081),
    ]);
    assert_eq!(
        seen,
        (
            never("tcp 8080 and tcp 8081", "web-0"),
            named("before", "web-0", &first(12, 8080))
        )
    );
    // One stands before it, which it takes nothing from, and one behind it: the second is the one that matters.
    let seen = said(vec![
        first(10, 8080),
        dead(11, 8080),
        dead(12, 8081),
        second(13, 8081),
    ]);
    assert_eq!(
        seen,
        (
            never("tcp 8081", "web-1"),
            named("before", "web-1", &second(13, 8081))
        )
    );
    // In whichever order they are met.
    let seen = said(vec![
        first(10, 8081),
        dead(11, 8080),
        dead(12, 8081),
        second(13, 8080),
    ]);
    assert_eq!(
        seen,
        (
            never("tcp 8080", "web-1"),
            named("before", "web-1", &second(13, 8080))
        )
    );
    // Of two behind it the first is named, of two before it too.
    let seen = said(vec![
        dead(10, 8080),
        dead(11, 8081),
        first(12, 8080),
        second(13, 8081),
    ]);
    assert_eq!(
        seen,
        (
            never("tcp 8080", "web-0"),
            named("before", "web-0", &first(12, 8080))
        )
    );
    let seen = said(vec![
        second(10, 8081),
        first(11, 8080),
        dead(12, 8080),
        dead(13, 8081),
    ]);
    assert_eq!(
        seen,
        (
            behind("tcp 8080", "web-0"),
            named("behind", "web-0", &first(11, 8080))
        )
    );
    // One Pod's rules on both sides: its traffic is kept from one of them.
    let seen = said(vec![
        first(10, 8080),
        dead(11, 8080),
        dead(12, 8081),
        first(13, 8081),
    ]);
    assert_eq!(
        seen,
        (
            never("tcp 8080 and tcp 8081", "web-0"),
            named("before", "web-0", &first(10, 8080))
        )
    );
    // Nobody living wants the port.
    let seen = said(vec![dead(10, 8080), dead(11, 8081), first(12, 9090)]);
    let alone =
        "Traffic to host port tcp 8080 and tcp 8081 is sent to an address that its Pod no longer has.";
    assert_eq!(seen, (alone.to_owned(), Vec::new()));
    // Only its masquerade is left.
    let seen = said(vec![nft_hairpin(10, &id("dead"), "10.10.1.99"), first(11, 8080)]);
    let left = "Only the masquerade of a dead sandbox's host port is left: it leads nowhere.";
    assert_eq!(seen, (left.to_owned(), Vec::new()));
}

#[test]
fn a_rule_of_one_host_address_is_no_rival_of_another_ones() {
    let at_host = |handle, id: &ContainerId, host: &str, to: &str| NftRule {
        destination: Some(host.to_owned()),
        ..nft_hostport(handle, id, Proto::Tcp, 8080, to)
    };
    for (host, shadows) in [("172.20.0.11", true), ("172.20.0.12", false)] {
        let state = node_with(vec![
            at_host(10, &id("dead"), "172.20.0.11", "10.10.1.99:80"),
            at_host(11, &living(), host, "10.10.1.2:80"),
        ]);
        let all = judge(&state);
        let finding = all.iter().find(|f| f.rule == "hostport-stale-target").unwrap();
        assert_eq!(finding.consequence.contains("never reaches"), shadows, "{host}");
    }
}

#[test]
fn of_two_pods_that_had_one_address_only_the_dead_ones_masquerade_is_found() {
    let state = node_with(vec![
        nft_masquerade(20, "lab", &id("dead"), "10.10.1.2"),
        nft_masquerade(21, "lab", &living(), "10.10.1.2"),
    ]);
    assert_eq!(found(&state), [("cni-rule-dead-sandbox", Verdict::Stale, true)]);
    assert_eq!(deleted(&state, "cni-rule-dead-sandbox"), [20]);
    assert!(
        judge(&state)
            .iter()
            .any(|f| matches!(&f.object, Object::NftUnit { rules, .. }
        if rules.len() == 1 && rules[0].raw.is_none()))
    );
}

#[test]
fn a_comment_that_was_cut_names_its_container_by_the_hash() {
    let long = "a-network-with-a-long-name";
    let rules = |id: &ContainerId| {
        let rule = nft_masquerade(20, long, id, "10.10.1.99");
        let mark = marks::nft::masquerade(&rule).unwrap();
        assert!(mark.cut.is_some() && mark.container.as_str().len() < 64);
        vec![rule]
    };
    // The living sandbox is found by what is left of its ID.
    assert_eq!(found(&node_with(rules(&living()))), []);
    // The dead one is whole by its lease, and may be repaired.
    assert_eq!(
        found(&node_with(rules(&id("dead")))),
        [("cni-rule-dead-sandbox", Verdict::Stale, true)]
    );
    // Without one, the ID is not whole, and nothing is repaired.
    let mut state = node_with(rules(&id("dead")));
    state.ipam.value.leases.clear();
    assert_eq!(found(&state), [("cni-rule-dead-sandbox", Verdict::Stale, false)]);
}

/// The living first: a container whose ID begins with the digits that a cut comment shows may be the one.
#[test]
fn who_has_the_first_digits_of_a_cut_comment_keeps_its_rule() {
    let long = "a-network-with-a-long-name";
    let rule = nft_masquerade(20, long, &id("dead"), "10.10.1.99");
    let shown = marks::nft::masquerade(&rule).unwrap().container;
    let mut state = node_with(vec![rule]);
    state.ipam.value.leases.clear();
    // The same digits, and other ones where the comment was cut.
    let namesake = ContainerId::new(&format!("{:f<64}", shown.as_str()));
    assert_ne!(namesake, id("dead"));
    state.runtime.value.sandboxes[0].id = namesake;
    assert_eq!(found(&state), []);
    state.runtime.value.sandboxes[0].id = ContainerId::new(&"e".repeat(64));
    assert_eq!(found(&state), [("cni-rule-dead-sandbox", Verdict::Stale, false)]);
}

#[test]
fn the_order_of_the_chain_shows_an_age() {
    let mut state = node_with(vec![
        nft_hostport(10, &id("dead"), Proto::Tcp, 8080, "10.10.1.99:80"),
        nft_hostport(11, &living(), Proto::Tcp, 8081, "10.10.1.2:80"),
        nft_hostport(12, &id("beef"), Proto::Tcp, 8082, "10.10.1.98:80"),
    ]);
    state.ipam.value.leases.clear();
    let repair: Vec<_> = short(&judge(&state)).into_iter().map(|f| f.2).collect();
    // The last one may have been made a moment ago.
    assert_eq!(repair, [true, false]);
    // While a Pod starts, what has no known age may be its rule.
    state.pods.value.push(pod("starting", 9, ""));
    let verdicts: Vec<_> = short(&judge(&state)).into_iter().map(|f| f.1).collect();
    assert_eq!(verdicts, [Verdict::Stale, Verdict::Unknown]);
}

#[test]
fn in_a_recording_the_network_tells_whose_container_it_is() {
    let mut state = node_with(vec![
        nft_hostport(10, &id("dead"), Proto::Tcp, 8080, "10.10.1.99:80"),
        nft_hostport(11, &living(), Proto::Tcp, 8080, "10.10.1.2:80"),
    ]);
    state.runtime.value.looked_for_others = false;
    state.ipam.value.leases.push(Lease {
        ip: ip("10.10.1.2"),
        ..old_lease(living())
    });
    let verdict = |state: &NodeState| found(state)[0].1;
    assert_eq!(verdict(&state), Verdict::Stale);
    // Of a network in which none of the runtime's sandboxes is.
    state.ipam.value.leases[0].network = "podman".to_owned();
    assert_eq!(verdict(&state), Verdict::Unknown);
    state.ipam.value.leases.remove(0);
    assert_eq!(verdict(&state), Verdict::Unknown);
    // The masquerade of the same container names it too.
    state
        .nft
        .value
        .rules
        .push(nft_masquerade(20, "lab", &id("dead"), "10.10.1.99"));
    assert_eq!(verdict(&state), Verdict::Stale);
}
