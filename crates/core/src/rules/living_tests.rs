//! The living that look almost dead: what must never be called stale with a repair. One fact makes the difference in each.

use crate::{
    finding::{Action, Finding, Object, Verdict},
    judge::{Judge, object_counts},
    marks::{ANTREA_NPL_CHAIN, PORTMAP_CHAIN},
    model::*,
    settings::Settings,
    testkit::*,
};

/// Rule, verdict and whether it may be repaired.
fn verdicts(findings: &[Finding]) -> Vec<(&'static str, Verdict, bool)> {
    let all = findings.iter();
    all.map(|f| (f.rule, f.verdict, f.action() == Action::Repair))
        .collect()
}

fn since(before: &NodeState, after: &NodeState) -> Vec<Finding> {
    Judge::new(after, Some(before), &Settings::default(), now()).all()
}

fn dns(vip: &str) -> Service {
    Service {
        cluster_ips: vec![ip("10.96.0.10")],
        load_balancer_ips: vec![ip(vip)],
        ..dns_service("kube-system", "kube-dns")
    }
}

fn proxy_rule(to: &str) -> XtRule {
    XtRule {
        line: format!("-A KUBE-SERVICES -d {to}/32 -p udp -m udp --dport 53 -j KUBE-SVC-DNS"),
        counters: None,
        spec: XtMatch {
            proto: Some(Proto::Udp),
            destination: Some(format!("{to}/32")),
            dports: vec![PortRange::one(53)],
            target: Some("KUBE-SVC-DNS".to_owned()),
            ..XtMatch::default()
        },
    }
}

/// A node that serves DNS: one living endpoint, kube-proxy's rules, and an entry to a Pod that lives and serves no more.
fn dns_node() -> NodeState {
    let pods = vec![pod("dns-0", 1, "10.10.1.2"), pod("not-ready-0", 2, "10.10.1.3")];
    let proxy = chain("KUBE-SERVICES", vec![proxy_rule("10.96.0.10")]);
    let entry = udp("10.10.1.200", 40000, "10.96.0.10", 53, "10.10.1.3", 53);
    let mut state = with_conntrack(with_tables(node(pods), vec![nat(vec![proxy])]), vec![entry]);
    state.services.value = vec![dns("203.0.113.7")];
    state.endpoint_slices.value = vec![dns_slice("kube-system", "kube-dns", &["10.10.1.2"])];
    state
}

#[test]
fn a_service_at_the_nodes_own_address_and_the_host_port_behind_it_are_both_alive() {
    // k3s: the load balancer's address is the node's, and a Pod with a hostPort stands for it.
    let balancer = Pod {
        ports: vec![ContainerPort {
            name: None,
            container_port: 53,
            host_port: Some(53),
            host_ip: None,
            proto: Proto::Udp,
        }],
        ..pod("svclb-dns", 2, "10.10.1.3")
    };
    let pods = vec![pod("dns-0", 1, "10.10.1.2"), balancer];
    let proxy = chain("KUBE-SERVICES", vec![proxy_rule("172.20.0.11")]);
    let entries = vec![
        udp("172.20.0.200", 40000, "172.20.0.11", 53, "10.10.1.2", 53),
        udp("172.20.0.200", 40001, "172.20.0.11", 53, "10.10.1.3", 53),
    ];
    let mut state = with_conntrack(with_tables(node(pods), vec![nat(vec![proxy])]), entries);
    state.services.value = vec![dns("172.20.0.11")];
    state.endpoint_slices.value = vec![dns_slice("kube-system", "kube-dns", &["10.10.1.2"])];
    assert_eq!(verdicts(&judge(&state)), vec![]);
    // The same without the Services: who serves the port cannot be told.
    state.services = Facts::default();
    assert_eq!(
        verdicts(&judge(&state)),
        vec![("conntrack-hostport-stale", Verdict::Unknown, false)]
    );
}

#[test]
fn a_connection_that_answers_now_is_left_even_if_its_pod_serves_no_more() {
    let counted = |packets| {
        let mut state = dns_node();
        state.conntrack.value.entries[0].reply_count = Some(Direction { packets, bytes: 0 });
        state
    };
    let rule = "conntrack-udp-dead-endpoint";
    let silent = since(&counted(4), &counted(4));
    assert_eq!(verdicts(&silent), vec![(rule, Verdict::Stale, true)]);
    let answering = since(&counted(4), &counted(5));
    assert_eq!(verdicts(&answering), vec![(rule, Verdict::Unknown, false)]);
}

#[test]
fn kube_proxys_rules_must_be_whole_and_of_the_entrys_zone() {
    let rule = "conntrack-udp-dead-endpoint";
    assert_eq!(verdicts(&judge(&dns_node())), vec![(rule, Verdict::Stale, true)]);
    let mut cut = dns_node();
    cut.xtables.completeness = Completeness::Partial("cut off".to_owned());
    assert_eq!(verdicts(&judge(&cut)), vec![(rule, Verdict::Stale, false)]);
    let mut zone = dns_node();
    zone.conntrack.value.entries[0].zone = 65520;
    assert_eq!(verdicts(&judge(&zone)), vec![(rule, Verdict::Stale, false)]);
    let mut sends = dns_node();
    let endpoint = dnat("KUBE-SEP-X", Proto::Udp, 53, "10.10.1.3:53");
    sends.xtables.value[0]
        .chains
        .push(chain("KUBE-SEP-X", vec![endpoint]));
    assert_eq!(verdicts(&judge(&sends)), vec![(rule, Verdict::Stale, false)]);
}

#[test]
fn an_untranslated_entry_of_another_zone_is_translated_further_on() {
    let mut state = dns_node();
    state.conntrack.value.entries = vec![udp("10.10.1.200", 40000, "10.96.0.10", 53, "10.96.0.10", 53)];
    let rule = "conntrack-undnatted-vip";
    // An answer comes from somebody at that very address.
    assert_eq!(verdicts(&judge(&state)), vec![]);
    state.conntrack.value.entries[0].flags.unreplied = true;
    assert_eq!(verdicts(&judge(&state)), vec![(rule, Verdict::Stale, true)]);
    state.conntrack.value.entries[0].zone = 9;
    assert_eq!(verdicts(&judge(&state)), vec![]);
}

#[test]
fn without_the_pod_list_a_young_container_id_may_be_starting() {
    let rule = "ipam-lease-dead-sandbox";
    let leased_at = |when| {
        let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
        state.ipam.value.leases = vec![lease("10.10.1.3", id("dead"), at(when))];
        state
    };
    let mut young = leased_at("2026-11-30T16:18:00Z");
    young.pods = Facts::default();
    assert_eq!(verdicts(&judge(&young)), vec![(rule, Verdict::Unknown, false)]);
    // One that is old enough is judged by the runtime, which only the API shows to be the right one.
    let mut old = leased_at("2026-11-30T12:00:00Z");
    assert_eq!(verdicts(&judge(&old)), vec![(rule, Verdict::Stale, true)]);
    old.pods = Facts::default();
    assert_eq!(verdicts(&judge(&old)), vec![(rule, Verdict::Stale, false)]);
}

#[test]
fn a_source_that_just_lost_most_of_its_content_repairs_nothing() {
    let names: Vec<Pod> = (0u8..8)
        .map(|n| pod(&format!("web-{n}"), n.into(), &format!("10.10.1.{}", 10 + n)))
        .collect();
    let mut before = node(names);
    before.ipam.value.leases = vec![lease("10.10.1.99", id("dead"), at("2026-11-30T12:00:00Z"))];
    let mut after = before.clone();
    assert_eq!(since(&before, &after)[0].why_not_repair, None);
    after.pods.value.truncate(3);
    after.runtime.value.sandboxes.truncate(3);
    let why = since(&before, &after)[0]
        .why_not_repair
        .clone()
        .unwrap_or_default();
    let expected = "a repair needs a steady source: of 8 Pods 3 are left since the reading before; a steady source: of 8 \
                    sandboxes 3 are left since the reading before";
    assert_eq!(why, expected);
}

#[test]
fn a_node_that_the_api_does_not_know_repairs_nothing() {
    let mut state = incident();
    state.nodes.value.clear();
    assert_eq!(
        verdicts(&judge(&state)),
        vec![("npl-stale-target", Verdict::Stale, false); 4]
    );
}

#[test]
fn another_machine_and_a_disagreement_of_api_and_runtime_repair_nothing() {
    let mut state = incident();
    state.identity.machine_id = Some("aa".to_owned());
    state.nodes.value[0].machine_id = Some("bb".to_owned());
    assert_eq!(
        verdicts(&judge(&state)),
        vec![("npl-stale-target", Verdict::Stale, false); 4]
    );
    let mut state = incident();
    for n in 0u8..3 {
        let stranger = pod(
            &format!("stranger-{n}"),
            90 + u32::from(n),
            &format!("10.10.1.{}", 90 + n),
        );
        let sandbox = sandbox(&stranger, id(&format!("5eed{n}")));
        state.runtime.value.sandboxes.push(sandbox);
    }
    let found = judge(&state);
    let stale: Vec<_> = found.iter().filter(|f| f.rule == "npl-stale-target").collect();
    assert!(stale.iter().all(|f| f.action() == Action::Report), "{stale:?}");
    assert_eq!(stale.len(), 4);
}

#[test]
fn a_finished_pod_of_another_node_cannot_be_told_and_a_living_one_at_its_address_comes_first() {
    let finished = Pod {
        node: Some("worker-b".to_owned()),
        phase: Phase::Succeeded,
        ..pod("job-1", 5, "10.10.1.50")
    };
    let rule = dnat(ANTREA_NPL_CHAIN, Proto::Tcp, 61000, "10.10.1.50:80");
    let pods = vec![finished, pod("web-0", 1, "10.10.1.2")];
    let mut state = with_tables(node(pods), vec![npl_table(vec![rule])]);
    assert_eq!(
        verdicts(&judge(&state)),
        vec![("npl-stale-target", Verdict::Unknown, false)]
    );
    let living = pod("web-1", 6, "10.10.1.50");
    state.runtime.value.sandboxes.push(sandbox(&living, id("11fe")));
    state.pods.value.push(living);
    assert_eq!(verdicts(&judge(&state)), vec![]);
}

#[test]
fn a_zombies_further_address_is_alive_by_its_lease() {
    // Gone from the API, ready in the runtime, which tells only the first of its two addresses.
    let zombie = pod("zombie-0", 9, "10.10.1.60");
    let rule = dnat(ANTREA_NPL_CHAIN, Proto::Tcp, 61000, "10.10.1.61:80");
    let mut state = with_tables(
        node(vec![pod("web-0", 1, "10.10.1.2")]),
        vec![npl_table(vec![rule])],
    );
    state.runtime.value.sandboxes.push(sandbox(&zombie, id("20b1e")));
    assert_eq!(judge(&state)[1].verdict, Verdict::Stale);
    state.ipam.value.leases = vec![lease("10.10.1.61", id("20b1e"), at("2026-11-30T12:00:00Z"))];
    let expected = vec![
        ("zombie-sandbox", Verdict::Conflict, false),
        ("npl-stale-target", Verdict::Unknown, false),
    ];
    assert_eq!(verdicts(&judge(&state)), expected);
}

#[test]
fn a_process_in_the_containers_own_namespace_is_seen_behind_its_addresss_new_owner() {
    let namespace = |inode, path: &str, ips| NetNs {
        inode,
        paths: vec![path.to_owned()],
        pids: vec![77],
        commands: Vec::new(),
        ips,
        macs: Vec::new(),
    };
    let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
    state.ipam.value.leases = vec![lease("10.10.1.3", id("dead"), at("2026-11-30T12:00:00Z"))];
    state.cni_cache.value.push(CacheEntry {
        path: "/var/lib/cni/results/podnet-dead-eth0".to_owned(),
        network: "podnet".to_owned(),
        container: id("dead"),
        interface: "eth0".to_owned(),
        netns: Some("/var/run/netns/cni-dead".to_owned()),
        ips: vec![ip("10.10.1.2")],
        pod: None,
        uid: None,
        modified_at: None,
    });
    let new_owner = namespace(4026532000, "/run/netns/cni-web", Some(vec![ip("10.10.1.2")]));
    state.namespaces.value = vec![new_owner];
    let rule = "ipam-lease-dead-sandbox";
    assert_eq!(verdicts(&judge(&state)), vec![(rule, Verdict::Stale, true)]);
    let own = namespace(4026532001, "/run/netns/cni-dead", None);
    state.namespaces.value.push(own);
    assert_eq!(verdicts(&judge(&state)), vec![(rule, Verdict::Unknown, false)]);
}

#[test]
fn a_ready_sandbox_that_tells_no_address_may_have_any() {
    let mut state = incident();
    let silent = Sandbox {
        ips: Some(Vec::new()),
        ..sandbox(&pod("zombie-0", 9, ""), id("20b1e"))
    };
    state.runtime.value.sandboxes.push(silent);
    let found = judge(&state);
    let npl = found.iter().filter(|f| f.rule == "npl-stale-target");
    assert_eq!(
        npl.map(|f| f.verdict).collect::<Vec<_>>(),
        vec![Verdict::Unknown; 4]
    );
}

#[test]
fn no_mapping_is_made_to_an_address_that_the_runtime_contradicts() {
    let mut state = incident();
    state.runtime.value.sandboxes[0].ips = Some(vec![ip("10.10.1.44")]);
    let found = verdicts(&judge(&state));
    assert_eq!(found, vec![("npl-stale-target", Verdict::Stale, false); 4]);
    state.xtables.value[0].chains[2].rules.clear();
    state.pods.value.truncate(1);
    let found = judge(&state);
    let missing: Vec<_> = found.iter().filter(|f| f.rule == "npl-missing-mapping").collect();
    assert_eq!(missing.len(), 8);
    assert!(
        missing.iter().all(|f| f.action() == Action::Report),
        "{missing:?}"
    );
}

#[test]
fn a_mapping_that_an_annotation_names_twice_is_one() {
    let twice = Pod {
        npl: npl(&[(Proto::Tcp, 61000, 80), (Proto::Tcp, 61000, 80)]),
        ..pod("web-0", 1, "10.10.1.2")
    };
    let rule = dnat(ANTREA_NPL_CHAIN, Proto::Tcp, 61000, "10.10.1.99:80");
    let state = with_tables(node(vec![twice]), vec![npl_table(vec![rule])]);
    assert_eq!(
        verdicts(&judge(&state)),
        vec![("npl-stale-target", Verdict::Stale, true)]
    );
}

#[test]
fn a_port_whose_present_pod_has_an_unreadable_annotation_waits() {
    let mut state = incident();
    let other = pod("other-0", 9, "10.10.1.23");
    state.runtime.value.sandboxes.push(sandbox(&other, id("07e4")));
    state.pods.value.push(other);
    assert_eq!(
        verdicts(&judge(&state)),
        vec![("npl-stale-target", Verdict::Stale, true); 4]
    );
    state.pods.value[2].npl = NplAnnotation::Unreadable("no JSON".to_owned());
    assert_eq!(
        verdicts(&judge(&state)),
        vec![("npl-stale-target", Verdict::Stale, false); 4]
    );
}

#[test]
fn an_id_that_no_runtime_makes_is_somebody_elses() {
    let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
    let stranger = ContainerId::new("cnitool-77383ca0a0715733ca6f");
    state.ipam.value.leases = vec![lease("10.10.1.3", stranger, at("2026-11-30T12:00:00Z"))];
    assert_eq!(
        verdicts(&judge(&state)),
        vec![("ipam-lease-dead-sandbox", Verdict::Stale, false)]
    );
}

/// A jump of portmap to a container's chain, for one protocol.
fn host_jump(container: &ContainerId, proto: Proto, port: u16, unit: &str) -> XtRule {
    let comment = format!("dnat name: \"lab\" id: \"{container}\"");
    XtRule {
        line: format!("-A {PORTMAP_CHAIN} -p {proto} --comment {container} --dports {port} -j {unit}"),
        counters: None,
        spec: XtMatch {
            proto: Some(proto),
            dports: vec![PortRange::one(port)],
            comment: Some(comment),
            target: Some(unit.to_owned()),
            ..XtMatch::default()
        },
    }
}

/// A DNAT for one host address.
fn dnat_at(unit: &str, host: &str, port: u16, to: &str) -> XtRule {
    let mut rule = dnat(unit, Proto::Tcp, port, to);
    rule.line = format!("{} -d {host}/32", rule.line);
    rule.spec.destination = Some(format!("{host}/32"));
    rule
}

/// A dead hostPort mapping of this unit in front of a living one of another.
fn host_ports(dead: Vec<XtRule>, dead_unit: Vec<XtRule>, living_unit: Vec<XtRule>) -> NodeState {
    let mut jumps = dead;
    jumps.push(host_jump(&id("0001aaaaaaaaaaaa"), Proto::Tcp, 53, "CNI-DN-b"));
    let chains = vec![
        chain(PORTMAP_CHAIN, jumps),
        chain("CNI-DN-a", dead_unit),
        chain("CNI-DN-b", living_unit),
    ];
    with_tables(node(vec![pod("web-0", 1, "10.10.1.2")]), vec![nat(chains)])
}

#[test]
fn a_host_port_of_two_protocols_is_one_unit() {
    let dead = id("dead");
    let jumps = vec![
        host_jump(&dead, Proto::Tcp, 53, "CNI-DN-a"),
        host_jump(&dead, Proto::Udp, 53, "CNI-DN-a"),
    ];
    let own = vec![
        dnat("CNI-DN-a", Proto::Tcp, 53, "10.10.1.99:53"),
        dnat("CNI-DN-a", Proto::Udp, 53, "10.10.1.99:53"),
    ];
    let living = vec![dnat("CNI-DN-b", Proto::Tcp, 53, "10.10.1.2:53")];
    let state = host_ports(jumps, own, living);
    let found = judge(&state);
    assert_eq!(
        verdicts(&found),
        vec![("hostport-stale-target", Verdict::Stale, true)]
    );
    assert_eq!(object_counts(&state).get("xt-unit"), Some(&2));
    assert_eq!(
        found[0].consequence,
        "Traffic to host port tcp 53 never reaches Pod voice/web-0: this older rule of a dead sandbox takes it first."
    );
    let Some(crate::plan::Remedy::Xt(edit)) = &found[0].remedy else {
        panic!("no edit")
    };
    assert_eq!(
        (edit.delete.len(), edit.drop_chains.as_slice()),
        (4, &["CNI-DN-a".to_owned()][..])
    );
    // All of them make place for somebody alive, and traffic to the shared port proves it.
    assert_eq!(edit.replaced, 4);
    let probe = crate::plan::Probe {
        proto: Proto::Tcp,
        node_ip: None,
        node_port: 53,
        target: ip("10.10.1.2"),
        target_port: 53,
    };
    assert_eq!(edit.probes, vec![probe]);
}

#[test]
fn a_living_rule_of_another_port_is_not_shadowed() {
    for port in [52, 54] {
        let dead = vec![host_jump(&id("dead"), Proto::Tcp, 53, "CNI-DN-a")];
        let own = vec![dnat("CNI-DN-a", Proto::Tcp, 53, "10.10.1.99:53")];
        let living = vec![dnat("CNI-DN-b", Proto::Tcp, port, "10.10.1.2:53")];
        let found = judge(&host_ports(dead, own, living));
        assert_eq!(
            found[0].consequence,
            "Traffic to host port tcp 53 is sent to an address that its Pod no longer has."
        );
        let Some(crate::plan::Remedy::Xt(edit)) = &found[0].remedy else {
            panic!("no edit")
        };
        assert_eq!((edit.replaced, edit.probes.as_slice()), (0, &[][..]));
    }
}

#[test]
fn host_ports_of_two_host_addresses_do_not_shadow_each_other() {
    let jumps = vec![host_jump(&id("dead"), Proto::Tcp, 53, "CNI-DN-a")];
    let own = vec![dnat_at("CNI-DN-a", "172.20.0.11", 53, "10.10.1.99:53")];
    let words = |host| {
        let living = vec![dnat_at("CNI-DN-b", host, 53, "10.10.1.2:53")];
        judge(&host_ports(jumps.clone(), own.clone(), living))[0]
            .consequence
            .clone()
    };
    assert_eq!(
        words("172.20.0.12"),
        "Traffic to host port tcp 53 is sent to an address that its Pod no longer has."
    );
    assert!(words("172.20.0.11").contains("never reaches Pod voice/web-0"));
}

#[test]
fn a_chain_that_somebody_else_jumps_to_stays() {
    let jumps = vec![
        host_jump(&id("dead"), Proto::Tcp, 53, "CNI-DN-a"),
        host_jump(&id("0001aaaaaaaaaaaa"), Proto::Tcp, 54, "CNI-DN-a"),
    ];
    let own = vec![dnat("CNI-DN-a", Proto::Tcp, 53, "10.10.1.99:53")];
    let found = judge(&host_ports(jumps, own, Vec::new()));
    assert_eq!(
        verdicts(&found),
        vec![("hostport-stale-target", Verdict::Stale, false)]
    );
}

#[test]
fn a_jump_that_stands_twice_is_one_unit_with_two_lines() {
    let container = id("dead");
    let unit = format!("CNI-{:024x}", 7);
    let comment = format!("name: \"lab\" id: \"{container}\"");
    let rule = |chain: &str, target: &str| XtRule {
        line: format!("-A {chain} -s 10.10.1.99/32 --comment {container} -j {target}"),
        counters: None,
        spec: XtMatch {
            comment: Some(comment.clone()),
            target: Some(target.to_owned()),
            ..XtMatch::default()
        },
    };
    let jump = rule("POSTROUTING", &unit);
    let mut later = rule("POSTROUTING", "MASQUERADE");
    later.spec.comment = Some(format!("name: \"lab\" id: \"{}\"", id("0001aaaaaaaaaaaa")));
    let chains = vec![
        chain("POSTROUTING", vec![jump.clone(), jump, later]),
        chain(&unit, vec![rule(&unit, "ACCEPT"), rule(&unit, "MASQUERADE")]),
    ];
    let state = with_tables(node(vec![pod("web-0", 1, "10.10.1.2")]), vec![nat(chains)]);
    let found = judge(&state);
    assert_eq!(
        verdicts(&found),
        vec![("cni-rule-dead-sandbox", Verdict::Stale, true)]
    );
    let Some(crate::plan::Remedy::Xt(edit)) = &found[0].remedy else {
        panic!("no edit")
    };
    assert_eq!((edit.delete.len(), edit.drop_chains.len()), (4, 1));
    assert!(matches!(&found[0].object, Object::XtUnit { rules, .. } if rules.len() == 2));
}

#[test]
fn nothing_is_claimed_of_what_cannot_be_told() {
    let dead = host_jump(&id("dead"), Proto::Tcp, 53, "CNI-DN-a");
    let own = vec![dnat("CNI-DN-a", Proto::Tcp, 53, "10.10.1.99:53")];
    let mut state = host_ports(vec![dead], own, Vec::new());
    state.ipam.value.leases = vec![lease("10.10.1.99", id("dead"), at("2026-11-30T16:18:00Z"))];
    state.runtime = Facts::default();
    let found = judge(&state);
    for finding in &found {
        assert_eq!(finding.verdict, Verdict::Unknown, "{finding:?}");
        assert!(
            finding.consequence.ends_with("cannot be told."),
            "{}",
            finding.consequence
        );
        let why = finding.why_not_repair.as_deref().unwrap_or_default();
        assert!(why.starts_with("judging it needs "), "{why}");
    }
    assert_eq!(found.len(), 3);
}

#[test]
fn a_cut_id_is_the_same_container() {
    let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
    state.ipam.value.leases = vec![lease(
        "10.10.1.2",
        id("0001aaaaaaaaaaaa"),
        at("2026-11-30T12:00:00Z"),
    )];
    for (cut, found) in [
        ("0001aaaaaaaaa", 0),
        ("0001aaaaaaaa", 0),
        ("0001aaaaaaa", 1),
        ("0001aaaaaaab", 1),
    ] {
        let sandbox = &mut state.runtime.value.sandboxes[0];
        sandbox.id = ContainerId::new(cut);
        assert_eq!(judge(&state).len(), found, "{cut}");
    }
}

#[test]
fn order_shows_age_only_in_a_chain_that_is_appended_to() {
    let marked = |container: &ContainerId, chain: &str| XtRule {
        line: format!("-A {chain} --comment {container} -j MASQUERADE"),
        counters: None,
        spec: XtMatch {
            comment: Some(format!("name: \"lab\" id: \"{container}\"")),
            target: Some("MASQUERADE".to_owned()),
            ..XtMatch::default()
        },
    };
    let verdict = |name: &str| {
        let rules = vec![marked(&id("dead"), name), marked(&id("0001aaaaaaaaaaaa"), name)];
        let state = with_tables(
            node(vec![pod("web-0", 1, "10.10.1.2")]),
            vec![nat(vec![chain(name, rules)])],
        );
        verdicts(&judge(&state))
    };
    let rule = "cni-rule-dead-sandbox";
    assert_eq!(verdict("POSTROUTING"), vec![(rule, Verdict::Stale, true)]);
    assert_eq!(verdict("SOMEBODYS-OWN"), vec![(rule, Verdict::Stale, false)]);
}

/// A rule that bridge marked: of a container's address, to its own chain or to what that does.
fn bridges(container: &ContainerId, chain: &str, address: &str, target: &str) -> XtRule {
    let comment = format!("name: \"lab\" id: \"{container}\"");
    XtRule {
        line: format!("-A {chain} -s {address}/32 --comment {container} -j {target}"),
        counters: None,
        spec: XtMatch {
            comment: Some(comment),
            target: Some(target.to_owned()),
            ..XtMatch::default()
        },
    }
}

/// What a repair of the only finding takes away: rules and chains.
fn taken(found: &[Finding]) -> (usize, usize) {
    match found.first().and_then(|finding| finding.remedy.as_ref()) {
        Some(crate::plan::Remedy::Xt(edit)) => (edit.delete.len(), edit.drop_chains.len()),
        other => panic!("no edit: {other:?}"),
    }
}

#[test]
fn the_masquerade_of_two_addresses_is_one_unit() {
    let (container, unit) = (id("dead"), format!("CNI-{:024x}", 7));
    let jumps = vec![
        bridges(&container, "POSTROUTING", "10.10.1.98", &unit),
        bridges(&container, "POSTROUTING", "10.10.1.99", &unit),
        // Somebody alive came later: the dead one is no ADD in flight.
        bridges(&id("0001aaaaaaaaaaaa"), "POSTROUTING", "10.10.1.2", "MASQUERADE"),
    ];
    let own = vec![bridges(&container, &unit, "10.10.1.98", "MASQUERADE")];
    let home = || node(vec![pod("web-0", 1, "10.10.1.2")]);
    let of = |jumps: &[XtRule], chains: Vec<XtChain>| {
        let mut all = vec![chain("POSTROUTING", jumps.to_vec())];
        all.extend(chains);
        judge(&with_tables(home(), vec![nat(all)]))
    };

    let found = of(&jumps, vec![chain(&unit, own.clone())]);
    assert_eq!(
        verdicts(&found),
        vec![("cni-rule-dead-sandbox", Verdict::Stale, true)]
    );
    assert_eq!(taken(&found), (3, 1));

    // Somebody else jumps there as well: the chain cannot be dropped.
    let mut shared = jumps.clone();
    shared.push(bridges(
        &id("0001aaaaaaaaaaaa"),
        "POSTROUTING",
        "10.10.1.3",
        &unit,
    ));
    let found = of(&shared, vec![chain(&unit, own)]);
    assert_eq!(
        verdicts(&found),
        vec![("cni-rule-dead-sandbox", Verdict::Stale, false)]
    );
    let why = found[0].why_not_repair.as_deref().unwrap_or_default();
    assert!(why.starts_with("1 rules that are not this container's"), "{why}");

    // The chain is not in the listing: each jump is a rule by itself.
    let found = of(&jumps, Vec::new());
    assert_eq!(
        verdicts(&found),
        vec![("cni-rule-dead-sandbox", Verdict::Stale, true); 2]
    );
    assert_eq!(taken(&found), (1, 0));
}

#[test]
fn a_hostport_rule_is_not_judged_as_a_masquerade() {
    let jump = host_jump(&id("dead"), Proto::Tcp, 53, "CNI-DN-a");
    // Each of the two marks of portmap is enough: its comment, and its chain.
    let mut by_chain = jump.clone();
    by_chain.spec.comment = Some(format!("name: \"lab\" id: \"{}\"", id("dead")));
    let mut by_comment = jump.clone();
    by_comment.spec.target = Some("ACCEPT".to_owned());
    for rule in [jump, by_chain, by_comment] {
        let chains = vec![chain("OUTPUT", vec![rule.clone()])];
        let state = with_tables(node(vec![pod("web-0", 1, "10.10.1.2")]), vec![nat(chains)]);
        assert_eq!(verdicts(&judge(&state)), vec![], "{rule:?}");
    }
}

/// A namespace with one process, at these addresses.
fn namespace(inode: u64, pid: u32, path: &str, ips: &[&str]) -> NetNs {
    NetNs {
        inode,
        paths: vec![path.to_owned()],
        pids: vec![pid],
        commands: vec!["app".to_owned()],
        ips: Some(ips.iter().map(|text| ip(text)).collect()),
        macs: Vec::new(),
    }
}

#[test]
fn an_ended_sandbox_is_a_zombie_by_a_process_in_its_own_namespace_only() {
    let of = |pid: Option<u32>, path: Option<&str>, inside: &[NetNs]| {
        let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
        state.runtime.value.sandboxes.push(Sandbox {
            state: SandboxState::NotReady,
            pid,
            netns: path.map(str::to_owned),
            ..sandbox(&pod("gone-0", 9, ""), id("20b1e"))
        });
        state.namespaces.value = inside.to_vec();
        let found = judge(&state);
        found.iter().filter(|f| f.rule == "zombie-sandbox").count()
    };
    let inside = [namespace(7, 700, "/run/netns/cni-7", &[])];
    // By its process, or by its namespace's place.
    assert_eq!(of(Some(700), None, &inside), 1);
    assert_eq!(of(None, Some("/run/netns/cni-7"), &inside), 1);
    assert_eq!(of(Some(701), Some("/run/netns/cni-8"), &inside), 0);
    let mut empty = inside;
    empty[0].pids.clear();
    assert_eq!(of(None, Some("/run/netns/cni-7"), &empty), 0);
}

#[test]
fn a_namespace_is_a_zombie_if_neither_api_nor_runtime_knows_it() {
    let found = |change: &dyn Fn(&mut NodeState)| {
        let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
        state.namespaces.value = vec![namespace(7, 700, "/run/netns/cni-7", &["10.10.1.77"])];
        change(&mut state);
        let all = judge(&state);
        all.iter().filter(|f| f.rule == "zombie-sandbox").count()
    };
    assert_eq!(found(&|_| {}), 1);
    // Nobody is in it; the runtime was not read; its address is outside of the Pods' range.
    assert_eq!(found(&|state| state.namespaces.value[0].pids.clear()), 0);
    assert_eq!(
        found(&|state| state.runtime.completeness = Completeness::Unavailable("no socket".to_owned())),
        0
    );
    assert_eq!(
        found(&|state| state.namespaces.value[0].ips = Some(vec![ip("192.0.2.7")])),
        0
    );
    // A sandbox claims it by its process, by its place or by its address; or a Pod has the address.
    assert_eq!(
        found(&|state| state.runtime.value.sandboxes[0].pid = Some(700)),
        0
    );
    let place = "/run/netns/cni-7".to_owned();
    assert_eq!(
        found(&|state| state.runtime.value.sandboxes[0].netns = Some(place.clone())),
        0
    );
    assert_eq!(
        found(&|state| state.runtime.value.sandboxes[0].ips = Some(vec![ip("10.10.1.77")])),
        0
    );
    assert_eq!(found(&|state| state.pods.value[0].ips.push(ip("10.10.1.77"))), 0);
}
