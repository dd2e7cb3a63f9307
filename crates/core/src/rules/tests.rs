//! Properties of all rules, and pairs that differ in one fact. More pairs are plain folders: `scenarios/`.

use std::time::Duration;

use proptest::prelude::*;

use crate::{
    finding::Verdict,
    judge::{Judge, object_counts},
    marks::{ANTREA_NPL_CHAIN, PORTMAP_CHAIN},
    model::*,
    settings::Settings,
    testkit::*,
};

/// portmap's chain name is not computed here: any name with its prefix serves.
fn unit_name(n: u8) -> String {
    format!("CNI-DN-{n:021x}")
}

fn hostport_jump(n: u8, id: &ContainerId, port: u16) -> XtRule {
    let comment = format!("dnat name: \"lab\" id: \"{id}\"");
    let quoted = comment.replace('"', "\\\"");
    XtRule {
        line: format!(
            "-A {PORTMAP_CHAIN} -p tcp -m comment --comment \"{quoted}\" -m multiport --dports {port} -j {}",
            unit_name(n)
        ),
        counters: None,
        spec: XtMatch {
            proto: Some(Proto::Tcp),
            dports: vec![PortRange::one(port)],
            comment: Some(comment),
            target: Some(unit_name(n)),
            ..XtMatch::default()
        },
    }
}

fn masquerade(id: &ContainerId, ip_text: &str) -> XtRule {
    let comment = format!("name: \"lab\" id: \"{id}\"");
    let quoted = comment.replace('"', "\\\"");
    XtRule {
        line: format!("-A POSTROUTING -s {ip_text}/32 -m comment --comment \"{quoted}\" -j MASQUERADE"),
        counters: None,
        spec: XtMatch {
            source: Some(format!("{ip_text}/32")),
            comment: Some(comment),
            target: Some("MASQUERADE".to_owned()),
            ..XtMatch::default()
        },
    }
}

/// What one Pod of a living node has.
#[derive(Clone, Copy, Debug)]
struct Home {
    npl: u8,
    host_port: bool,
    terminating: bool,
    dns: bool,
}

fn homes() -> impl Strategy<Value = Vec<Home>> {
    let home = (0u8..4, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(npl, host_port, terminating, dns)| Home {
            npl,
            host_port,
            terminating,
            dns,
        },
    );
    prop::collection::vec(home, 1..12)
}

/// A node of living things only, with every kind of object that the rules look at.
fn living(homes: &[Home]) -> NodeState {
    let mut pods = Vec::new();
    let (mut npl_rules, mut jumps, mut masquerades, mut units) = (vec![], vec![], vec![], vec![]);
    let (mut leases, mut entries, mut endpoints) = (vec![], vec![], vec![]);
    for (n, home) in (0u8..).zip(homes) {
        let address = format!("10.10.1.{}", 10 + n);
        let container = id(&format!("{:04x}aaaaaaaaaaaa", u16::from(n) + 1));
        let mut this = pod(&format!("pod-{n}"), u32::from(n), &address);
        this.deleting_since = home.terminating.then(now);
        let ports: Vec<_> = (0..home.npl)
            .map(|k| {
                let number = 61000 + u16::from(n) * 4 + u16::from(k);
                (
                    if k % 2 == 0 { Proto::Tcp } else { Proto::Udp },
                    number,
                    8000 + u16::from(k),
                )
            })
            .collect();
        for (proto, node_port, pod_port) in &ports {
            npl_rules.push(dnat(
                ANTREA_NPL_CHAIN,
                *proto,
                *node_port,
                &format!("{address}:{pod_port}"),
            ));
            if *proto == Proto::Udp {
                entries.push(udp(
                    "172.20.0.200",
                    *node_port,
                    "172.20.0.11",
                    *node_port,
                    &address,
                    *pod_port,
                ));
            }
        }
        this.npl = npl(&ports);
        if home.host_port {
            let port = 30000 + u16::from(n);
            this.ports.push(ContainerPort {
                name: None,
                container_port: 80,
                host_port: Some(port),
                host_ip: None,
                proto: Proto::Tcp,
            });
            jumps.push(hostport_jump(n, &container, port));
            units.push(chain(
                &unit_name(n),
                vec![dnat(&unit_name(n), Proto::Tcp, port, &format!("{address}:80"))],
            ));
        }
        masquerades.push(masquerade(&container, &address));
        leases.push(lease(&address, container, at("2026-11-30T12:00:00Z")));
        if home.dns {
            entries.push(udp(
                "10.10.1.200",
                40000 + u16::from(n),
                "10.96.0.10",
                53,
                &address,
                53,
            ));
            endpoints.push(Endpoint {
                addresses: vec![ip(&address)],
                ready: !home.terminating,
                serving: true,
                terminating: home.terminating,
                node: None,
                pod: None,
                pod_uid: None,
            });
        }
        pods.push(this);
    }
    let npl_chain = npl_table(npl_rules).chains;
    let mut chains = npl_chain;
    chains.push(chain("POSTROUTING", masquerades));
    chains.push(chain(PORTMAP_CHAIN, jumps));
    chains.extend(units);
    let proxy = XtRule {
        line: "-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m udp --dport 53 -j KUBE-SVC-DNS".to_owned(),
        counters: None,
        spec: XtMatch {
            proto: Some(Proto::Udp),
            destination: Some("10.96.0.10/32".to_owned()),
            dports: vec![PortRange::one(53)],
            target: Some("KUBE-SVC-DNS".to_owned()),
            ..XtMatch::default()
        },
    };
    chains.push(chain("KUBE-SERVICES", vec![proxy]));
    let mut state = with_conntrack(with_tables(node(pods), vec![nat(chains)]), entries);
    state.ipam.value.leases = leases;
    state.services.value = vec![Service {
        cluster_ips: vec![ip("10.96.0.10")],
        ..dns_service("kube-system", "kube-dns")
    }];
    state.endpoint_slices.value = vec![EndpointSlice {
        endpoints,
        ..dns_slice("kube-system", "kube-dns", &[])
    }];
    state
}

/// Lets one Pod end: gone from the API, from the runtime and from the Service. What CNI and the controller wrote stays.
fn end(state: &mut NodeState, n: usize) {
    let gone = state.pods.value.remove(n);
    state
        .runtime
        .value
        .sandboxes
        .retain(|s| Some(&s.uid) != gone.uid.as_ref());
    for slice in &mut state.endpoint_slices.value {
        slice
            .endpoints
            .retain(|e| !e.addresses.iter().any(|a| gone.ips.contains(a)));
    }
}

proptest! {
    #[test]
    fn nothing_is_found_among_the_living_and_everything_is_counted(homes in homes()) {
        let state = living(&homes);
        prop_assert_eq!(short(&judge(&state)), vec![]);
        let counts = object_counts(&state);
        prop_assert_eq!(counts.get("pod").copied(), Some(homes.len() as u64));
        prop_assert_eq!(counts.get("lease").copied(), Some(homes.len() as u64));
        let mappings: u64 = homes.iter().map(|h| u64::from(h.npl)).sum();
        prop_assert_eq!(counts.get("npl-mapping").copied().unwrap_or(0), mappings);
        let ports = homes.iter().filter(|h| h.host_port).count() as u64;
        let rules = 2 + mappings + 2 * ports + homes.len() as u64 + 1;
        prop_assert_eq!(counts.get("xt-rule").copied(), Some(rules));
    }

    #[test]
    fn a_recording_is_judged_as_the_node_was(homes in homes(), pick in any::<prop::sample::Index>()) {
        let mut state = living(&homes);
        end(&mut state, pick.index(homes.len()));
        let text = serde_json::to_string(&state).unwrap();
        let read: NodeState = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&read, &state);
        prop_assert_eq!(judge(&read), judge(&state));
    }

    #[test]
    fn the_end_of_one_pod_makes_exactly_its_objects_stale(homes in homes(), pick in any::<prop::sample::Index>()) {
        let n = pick.index(homes.len());
        let mut state = living(&homes);
        end(&mut state, n);
        let home = homes[n];
        let found = short(&judge(&state));
        let mut expected = vec!["npl-stale-target"; usize::from(home.npl)];
        expected.extend(vec!["hostport-stale-target"; usize::from(home.host_port)]);
        expected.push("cni-rule-dead-sandbox");
        expected.extend(vec!["conntrack-udp-dead-endpoint"; usize::from(home.dns)]);
        expected.extend(vec!["conntrack-hostport-stale"; usize::from(home.npl / 2)]);
        expected.push("ipam-lease-dead-sandbox");
        let rules: Vec<_> = found.iter().map(|(rule, ..)| *rule).collect();
        prop_assert_eq!(rules, expected);
        for (rule, verdict, repair, text) in &found {
            prop_assert_eq!(*verdict, Verdict::Stale, "{} {}", rule, text);
            prop_assert!(*repair, "{} {}", rule, text);
        }
    }

    #[test]
    fn a_missing_source_never_makes_anything_stale_that_a_whole_one_does_not(
        homes in homes(), pick in any::<prop::sample::Index>(), lost in 0usize..6,
    ) {
        let mut state = living(&homes);
        let whole_living = lost;
        match whole_living {
            0 => state.pods = Facts::default(),
            1 => state.runtime = Facts::default(),
            2 => state.endpoint_slices = Facts::default(),
            3 => state.services = Facts::default(),
            4 => { state.pods.value.remove(pick.index(homes.len())); state.pods.completeness = Completeness::Partial("continue".into()); }
            _ => { state.runtime.value.sandboxes.clear(); state.runtime.completeness = Completeness::Partial("cut off".into()); }
        }
        let found = short(&judge(&state));
        let wrong: Vec<_> = found.iter().filter(|(_, verdict, repair, _)| *verdict != Verdict::Unknown || *repair).collect();
        prop_assert_eq!(wrong, Vec::<&_>::new());
    }
}

/// A lost source beside a real end: nothing is repaired on one witness.
#[test]
fn one_witness_judges_and_two_repair() {
    let mut state = incident();
    state.runtime = Facts::default();
    let found = short(&judge(&state));
    let verdicts: Vec<_> = found
        .iter()
        .map(|(rule, verdict, repair, _)| (*rule, *verdict, *repair))
        .collect();
    assert_eq!(verdicts, vec![("npl-stale-target", Verdict::Stale, false); 4]);
}

#[test]
fn a_process_that_holds_the_address_stops_everything_keyed_on_it() {
    let mut state = incident();
    state.namespaces.value.push(NetNs {
        inode: 4026532000,
        paths: Vec::new(),
        pids: vec![77],
        commands: vec!["relay".to_owned()],
        ips: Some(vec![ip("10.10.1.23")]),
        macs: Vec::new(),
    });
    let found = short(&judge(&state));
    let verdicts: Vec<_> = found
        .iter()
        .map(|(rule, verdict, repair, _)| (*rule, *verdict, *repair))
        .collect();
    let mut expected = vec![("zombie-sandbox", Verdict::Conflict, false)];
    expected.extend(vec![("npl-stale-target", Verdict::Unknown, false); 4]);
    assert_eq!(verdicts, expected);
}

#[test]
fn an_empty_mounted_namespace_is_a_leftover_and_no_life() {
    let mut state = incident();
    state.namespaces.value.push(NetNs {
        inode: 4026532000,
        paths: vec!["/run/netns/cni-1".to_owned()],
        pids: Vec::new(),
        commands: Vec::new(),
        ips: Some(vec![ip("10.10.1.23")]),
        macs: Vec::new(),
    });
    assert_eq!(
        judge(&state)
            .iter()
            .filter(|f| f.verdict == Verdict::Stale)
            .count(),
        4
    );
}

#[test]
fn replies_between_two_readings_are_life() {
    let entry = CtEntry {
        reply_count: Some(Direction {
            packets: 4,
            bytes: 400,
        }),
        ..udp("172.20.0.200", 41005, "172.20.0.11", 61005, "10.10.1.23", 5065)
    };
    let before = with_conntrack(incident(), vec![entry.clone()]);
    let grown = CtEntry {
        reply_count: Some(Direction {
            packets: 5,
            bytes: 500,
        }),
        ..entry.clone()
    };
    let verdicts = |after: NodeState| -> Vec<Verdict> {
        let settings = Settings::default();
        Judge::new(&after, Some(&before), &settings, now())
            .all()
            .iter()
            .map(|f| f.verdict)
            .collect()
    };
    assert_eq!(
        verdicts(with_conntrack(incident(), vec![entry])),
        vec![Verdict::Stale; 5]
    );
    assert_eq!(
        verdicts(with_conntrack(incident(), vec![grown])),
        vec![Verdict::Unknown; 4]
    );
}

#[test]
fn another_runtime_that_is_seen_and_not_read_makes_container_ids_unknown_and_leaves_addresses_alone() {
    let homes = [Home {
        npl: 1,
        host_port: true,
        terminating: false,
        dns: false,
    }];
    let mut state = living(&homes);
    end(&mut state, 0);
    state.runtime.value.runtimes.push(Runtime {
        kind: RuntimeKind::Docker,
        seen_at: "/run/docker.sock".to_owned(),
        read: false,
        note: "not read".to_owned(),
    });
    let found = short(&judge(&state));
    let verdicts: Vec<_> = found
        .iter()
        .map(|(rule, verdict, ..)| (*rule, *verdict))
        .collect();
    let expected = vec![
        ("npl-stale-target", Verdict::Stale),
        ("hostport-stale-target", Verdict::Unknown),
        ("cni-rule-dead-sandbox", Verdict::Unknown),
        ("ipam-lease-dead-sandbox", Verdict::Unknown),
    ];
    assert_eq!(verdicts, expected);
}

#[test]
fn during_an_add_young_objects_are_unknown_and_old_ones_are_not() {
    let mut state = node(vec![pod("web-0", 1, "10.10.1.2"), pod("starting-0", 2, "")]);
    state.runtime.value.sandboxes.truncate(1);
    state.ipam.value.leases = vec![
        lease("10.10.1.3", id("add1"), at("2026-11-30T16:18:00Z")),
        lease("10.10.1.4", id("dead"), at("2026-11-30T16:10:00Z")),
    ];
    let found = short(&judge(&state));
    let verdicts: Vec<_> = found
        .iter()
        .map(|(_, verdict, repair, text)| (*verdict, *repair, text.as_str()))
        .collect();
    let young = format!("/var/lib/cni/networks/lab/10.10.1.3 ({})", id("add1"));
    let old = format!("/var/lib/cni/networks/lab/10.10.1.4 ({})", id("dead"));
    assert_eq!(
        verdicts,
        vec![
            (Verdict::Unknown, false, young.as_str()),
            (Verdict::Stale, true, old.as_str())
        ]
    );
    // A kubelet that waits longer makes the second one young, unless the caller says another time.
    state.identity.run_pod_sandbox = Some(Duration::from_secs(1800));
    let verdicts = |settings: &Settings| -> Vec<_> {
        Judge::new(&state, None, settings, now())
            .all()
            .iter()
            .map(|found| found.verdict)
            .collect()
    };
    assert_eq!(
        verdicts(&Settings::default()),
        vec![Verdict::Unknown, Verdict::Unknown]
    );
    let told = Settings {
        run_pod_sandbox: Some(Duration::from_secs(60)),
        ..Settings::default()
    };
    assert_eq!(verdicts(&told), vec![Verdict::Stale, Verdict::Stale]);
}

#[test]
fn a_young_lease_of_a_dead_sandbox_waits_for_the_grace() {
    let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
    state.ipam.value.leases = vec![lease("10.10.1.3", id("dead"), at("2026-11-30T16:18:00Z"))];
    let found = judge(&state);
    assert_eq!(
        short(&found).iter().map(|f| (f.1, f.2)).collect::<Vec<_>>(),
        vec![(Verdict::Stale, false)]
    );
    assert_eq!(
        found[0].why_not_repair.as_deref(),
        Some("a repair needs time: the object is younger than the grace of 240 s")
    );
}

#[test]
fn an_empty_list_of_another_runtime_is_no_witness() {
    let mut state = incident();
    let stranger = pod("elsewhere-0", 99, "10.22.0.9");
    state.runtime.value.sandboxes = vec![sandbox(&stranger, id("5eed"))];
    let found = judge(&state);
    let stale: Vec<_> = found.iter().filter(|f| f.rule == "npl-stale-target").collect();
    assert_eq!(stale.len(), 4);
    assert!(
        stale
            .iter()
            .all(|f| f.verdict == Verdict::Stale && f.why_not_repair.is_some())
    );
    state.runtime.value.sandboxes.clear();
    let stale = judge(&state);
    assert!(
        stale.iter().all(|f| f.why_not_repair.is_some()),
        "an empty CRI beside living Pods"
    );
}

#[test]
fn a_sandbox_that_the_kubelet_made_from_a_manifest_is_no_zombie() {
    let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
    let mirrorless = Sandbox {
        from_manifest: true,
        ..sandbox(&pod("etcd", 7, "10.10.1.7"), id("57a7"))
    };
    state.runtime.value.sandboxes.push(mirrorless.clone());
    assert_eq!(short(&judge(&state)), vec![]);
    state.runtime.value.sandboxes[1].from_manifest = false;
    let found = short(&judge(&state));
    assert_eq!(
        found.iter().map(|f| (f.0, f.1, f.2)).collect::<Vec<_>>(),
        vec![("zombie-sandbox", Verdict::Conflict, false)]
    );
}

#[test]
fn a_tombstone_is_wrong_only_over_somebody_alive() {
    let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
    let tomb = |address: &str| NftElement {
        key: vec![NftValue::Addr(ip(address))],
        data: Vec::new(),
        comment: Some("sexton:0000:loop".to_owned()),
        timeout_ms: Some(60_000),
        expires_ms: Some(10_000),
    };
    state.nft.value.sets.push(NftSet {
        family: NftFamily::Netdev,
        table: "sexton".to_owned(),
        name: "tombstones".to_owned(),
        is_map: false,
        key_type: "ipv4_addr".to_owned(),
        data_type: None,
        elements: vec![tomb("10.10.1.2"), tomb("10.10.1.99")],
    });
    let found = short(&judge(&state));
    let expected = "netdev sexton tombstones { 10.10.1.2 comment \"sexton:0000:loop\" }";
    assert_eq!(
        found,
        vec![(
            "tombstone-over-live-pod",
            Verdict::Conflict,
            true,
            expected.to_owned()
        )]
    );
    // The same set in a table of another family or of another name is none of drops: the NodePortLocal controller's own
    // `inet sexton` has sets of living addresses.
    for (family, table) in [(NftFamily::Inet, "sexton"), (NftFamily::Netdev, "somebody")] {
        let set = &mut state.nft.value.sets[0];
        (set.family, set.table) = (family, table.to_owned());
        assert_eq!(short(&judge(&state)), vec![]);
    }
}

#[test]
fn a_finished_pods_address_is_its_own_until_its_sandbox_is_gone() {
    let mut finished = pod("job-1", 5, "10.10.1.50");
    finished.phase = Phase::Succeeded;
    let mut state = with_tables(
        node(vec![pod("web-0", 1, "10.10.1.2"), finished.clone()]),
        vec![npl_table(vec![dnat(
            ANTREA_NPL_CHAIN,
            Proto::Tcp,
            61000,
            "10.10.1.50:80",
        )])],
    );
    assert_eq!(
        judge(&state).iter().map(|f| f.verdict).collect::<Vec<_>>(),
        vec![Verdict::Stale]
    );
    state.runtime.value.sandboxes.push(sandbox(&finished, id("f1")));
    assert_eq!(short(&judge(&state)), vec![]);
    state.runtime = Facts::default();
    assert_eq!(
        judge(&state).iter().map(|f| f.verdict).collect::<Vec<_>>(),
        vec![Verdict::Unknown]
    );
}

#[test]
fn every_rule_is_found_by_its_name_and_has_a_page() {
    for rule in crate::rules::ALL {
        assert_eq!(crate::rules::find(rule.id).map(|found| found.id), Some(rule.id));
        assert!(rule.page.starts_with(&format!("# {}\n", rule.id)), "{}", rule.id);
    }
    assert!(crate::rules::find("no-such-rule").is_none());
}
