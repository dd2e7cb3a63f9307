//! Whose it is cannot be told, or a source that may hold the living was not read: none of that is dead.

use crate::{
    finding::{Action, Finding, Verdict},
    marks::{ANTREA_NPL_CHAIN, PORTMAP_CHAIN},
    model::*,
    testkit::*,
};

fn verdicts(state: &NodeState) -> Vec<(&'static str, Verdict, bool)> {
    let found: Vec<Finding> = judge(state);
    let all = found.iter();
    all.map(|f| (f.rule, f.verdict, f.action() == Action::Repair))
        .collect()
}

fn marked(chain: &str, text: &str, comment: &str, target: &str) -> XtRule {
    let quoted = comment.replace('"', "\\\"");
    XtRule {
        line: format!("-A {chain} {text} -m comment --comment \"{quoted}\" -j {target}"),
        counters: None,
        spec: XtMatch {
            comment: Some(comment.to_owned()),
            target: Some(target.to_owned()),
            ..XtMatch::default()
        },
    }
}

/// portmap's jump and chain of one container.
fn hostport(network: &str, container: &ContainerId, unit: &str, to: &str) -> Vec<XtChain> {
    let comment = format!("dnat name: \"{network}\" id: \"{container}\"");
    let jump = marked(PORTMAP_CHAIN, "-p tcp -m tcp --dport 8080", &comment, unit);
    vec![
        chain(PORTMAP_CHAIN, vec![jump]),
        chain(unit, vec![dnat(unit, Proto::Tcp, 8080, to)]),
    ]
}

/// bridge's masquerade of one container.
fn masquerade(network: &str, container: &ContainerId, address: &str) -> Vec<XtChain> {
    let unit = "CNI-0123456789abcdef01234567";
    let comment = format!("name: \"{network}\" id: \"{container}\"");
    let mut jump = marked("POSTROUTING", &format!("-s {address}/32"), &comment, unit);
    jump.spec.source = Some(format!("{address}/32"));
    vec![chain("POSTROUTING", vec![jump]), chain(unit, Vec::new())]
}

fn recorded(mut state: NodeState) -> NodeState {
    state.live = false;
    state.runtime.value.looked_for_others = false;
    state
}

fn config(file: &str, name: &str) -> CniConfig {
    CniConfig {
        path: format!("cni/net.d/{file}"),
        name: name.to_owned(),
        plugins: Vec::new(),
    }
}

/// A Pod at 10.10.1.2, and what a container of no runtime that was read left at 10.10.1.99.
fn with_rules_of(network: &str) -> NodeState {
    let chains = hostport(
        network,
        &id("dead"),
        "CNI-DN-0123456789abcdef01234",
        "10.10.1.99:80",
    );
    let mut state = with_tables(node(vec![pod("web-0", 1, "10.10.1.2")]), vec![nat(chains)]);
    state.ipam.value.leases = vec![Lease {
        network: network.to_owned(),
        ..lease("10.10.1.99", id("dead"), at("2026-11-30T12:00:00Z"))
    }];
    state
}

const BOTH: [&str; 2] = ["hostport-stale-target", "ipam-lease-dead-sandbox"];

fn both(verdict: Verdict, repair: bool) -> Vec<(&'static str, Verdict, bool)> {
    BOTH.map(|rule| (rule, verdict, repair)).to_vec()
}

#[test]
fn in_a_recording_that_tells_no_network_of_the_runtime_any_may_be_another_runtimes() {
    assert_eq!(verdicts(&with_rules_of("podman")), both(Verdict::Stale, true));
    let state = recorded(with_rules_of("podman"));
    assert_eq!(verdicts(&state), both(Verdict::Unknown, false));
    // The kubelet's runtime passes on the UID of the Pod that was there.
    let mut state = recorded(with_rules_of("podnet"));
    state.cni_cache.value = vec![CacheEntry {
        path: "cni/results/podnet".to_owned(),
        network: "podnet".to_owned(),
        container: id("dead"),
        interface: "eth0".to_owned(),
        netns: None,
        pod: None,
        uid: Some(uid(9)),
        ips: Vec::new(),
        modified_at: None,
    }];
    assert_eq!(verdicts(&state), both(Verdict::Stale, false));
}

#[test]
fn of_several_configured_networks_the_first_by_name_is_the_pods() {
    let mut state = recorded(with_rules_of("podman"));
    let (podman, pods) = (
        config("87-podman-bridge.conflist", "podman"),
        config("10-podnet.conflist", "podnet"),
    );
    state.cni_config.value = vec![podman.clone(), pods];
    assert_eq!(verdicts(&state), both(Verdict::Unknown, false));
    state.cni_config.value = vec![podman];
    assert_eq!(verdicts(&state), both(Verdict::Stale, false));
}

fn inhabited(address: &str) -> NetNs {
    NetNs {
        inode: 4_026_532_900,
        paths: vec!["/run/netns/cni-9".to_owned()],
        pids: vec![7],
        commands: vec!["sleep".to_owned()],
        ips: Some(vec![ip(address)]),
        macs: Vec::new(),
    }
}

/// The process lives where the rule leads, and neither lease nor cache entry gives its namespace to the container.
#[test]
fn a_process_at_the_address_of_a_rule_stops_it_although_no_file_names_its_container() {
    let dead = id("dead");
    let unit = "CNI-DN-0123456789abcdef01234";
    let base = || node(vec![pod("web-0", 1, "10.10.1.2")]);
    let nodes = [
        with_tables(base(), vec![nat(hostport("lab", &dead, unit, "10.10.1.99:80"))]),
        with_tables(base(), vec![nat(masquerade("lab", &dead, "10.10.1.99"))]),
        with_nft(
            base(),
            vec![nft_hostport(10, &dead, Proto::Tcp, 8080, "10.10.1.99:80")],
        ),
        with_nft(base(), vec![nft_masquerade(10, "lab", &dead, "10.10.1.99")]),
    ];
    for mut state in nodes {
        let own = |state: &NodeState| {
            let all = verdicts(state);
            all.into_iter().find(|f| f.0 != "zombie-sandbox").unwrap().1
        };
        assert_eq!(own(&state), Verdict::Stale);
        state.namespaces.value = vec![inhabited("10.10.1.98")];
        assert_eq!(own(&state), Verdict::Stale, "a process at another address");
        state.namespaces.value = vec![inhabited("10.10.1.99")];
        assert_eq!(own(&state), Verdict::Unknown, "{:?}", verdicts(&state));
        // A Pod that got the address meanwhile is no sign of life of the container.
        let heir = pod("heir-0", 2, "10.10.1.99");
        state.runtime.value.sandboxes.push(sandbox(&heir, id("feed")));
        state.pods.value.push(heir);
        assert_eq!(own(&state), Verdict::Stale);
    }
}

#[test]
fn an_empty_runtime_and_no_pod_list_tell_nothing_of_a_container() {
    let mut state = with_rules_of("lab");
    state.runtime.value.sandboxes.clear();
    state.pods = Facts::default();
    assert_eq!(verdicts(&state), both(Verdict::Unknown, false));
    // A node without a Pod has such a runtime.
    state.pods = Facts::complete("api/pods", Vec::new());
    assert_eq!(verdicts(&state), both(Verdict::Stale, true));
}

fn map(comment: Option<&str>) -> NftSet {
    NftSet {
        family: NftFamily::Inet,
        table: "sexton".to_owned(),
        name: "npl4".to_owned(),
        is_map: true,
        key_type: "inet_proto . inet_service".to_owned(),
        data_type: Some("ipv4_addr . inet_service".to_owned()),
        elements: vec![NftElement {
            key: vec![NftValue::Proto(Proto::Tcp), NftValue::Port(61000)],
            data: vec![NftValue::Addr(ip("10.10.1.99")), NftValue::Port(80)],
            comment: comment.map(str::to_owned),
            timeout_ms: None,
            expires_ms: None,
        }],
    }
}

#[test]
fn an_element_of_our_map_with_anothers_mark_is_reported_only() {
    for (comment, repair) in [(Some("sexton:u:npl"), true), (None, true), (Some("mine"), false)] {
        let mut state = node(vec![pod("web-0", 1, "10.10.1.2")]);
        state.nft.value.sets = vec![map(comment)];
        assert_eq!(verdicts(&state), [("npl-stale-target", Verdict::Stale, repair)]);
    }
}

fn announcing() -> Pod {
    Pod {
        npl: npl(&[(Proto::Tcp, 61000, 80)]),
        ..pod("web-0", 1, "10.10.1.2")
    }
}

#[test]
fn what_may_be_in_a_map_that_was_not_read_is_not_missing() {
    let rule = "npl-missing-mapping";
    let mut state = node(vec![announcing()]);
    assert_eq!(verdicts(&state), [(rule, Verdict::Missing, false)]);
    state.nft.completeness = Completeness::Unavailable("no permission".to_owned());
    assert_eq!(verdicts(&state), [(rule, Verdict::Unknown, false)]);
}

#[test]
fn a_translation_whose_port_was_not_understood_may_be_the_one_that_seems_to_be_missing() {
    let mut odd = dnat(ANTREA_NPL_CHAIN, Proto::Tcp, 61000, "10.10.1.2:80");
    odd.spec.dports.clear();
    odd.spec.others = vec!["--dp".to_owned()];
    let state = with_tables(node(vec![announcing()]), vec![npl_table(vec![odd])]);
    assert_eq!(verdicts(&state), [("npl-stale-target", Verdict::Unknown, false)]);
}

#[test]
fn of_two_services_with_one_external_address_each_may_serve_its_connections() {
    let service = |name: &str| Service {
        external_ips: vec![ip("203.0.113.7")],
        ..dns_service("edge", name)
    };
    let slice = |name: &str, address: &str| dns_slice("edge", name, &[address]);
    let entry = |from: &str| udp("172.20.0.200", 40000, "203.0.113.7", 53, from, 53);
    let pods = vec![pod("a-0", 1, "10.10.1.2"), pod("b-0", 2, "10.10.1.3")];
    let mut state = with_conntrack(node(pods), vec![entry("10.10.1.2"), entry("10.10.1.3")]);
    state.services.value = vec![service("a"), service("b")];
    state.endpoint_slices.value = vec![slice("a", "10.10.1.2"), slice("b", "10.10.1.3")];
    assert_eq!(verdicts(&state), []);
    state.endpoint_slices.value.pop();
    assert_eq!(
        verdicts(&state),
        [("conntrack-udp-dead-endpoint", Verdict::Stale, false)]
    );
}
