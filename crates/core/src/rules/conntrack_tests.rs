//! Pairs of tracked connections that differ in one fact.

use crate::{finding::Verdict, judge::Judge, model::*, settings::Settings, testkit::*};

const RULE: &str = "conntrack-udp-orphan-vip";

/// What an entry to an address of no Service comes out as: verdict, and whether it may be repaired.
fn orphan(entry: CtEntry, change: impl FnOnce(&mut NodeState, &mut Settings)) -> Vec<(Verdict, bool)> {
    let mut state = with_conntrack(node(vec![pod("web-0", 1, "10.10.1.2")]), vec![entry]);
    let mut settings = Settings {
        service_cidrs: vec!["10.96.0.0/12".parse().unwrap()],
        ..Settings::default()
    };
    change(&mut state, &mut settings);
    let found = Judge::new(&state, None, &settings, now()).all();
    let found = found.iter().filter(|finding| finding.rule == RULE);
    found
        .map(|f| (f.verdict, f.action() == crate::finding::Action::Repair))
        .collect()
}

fn to(vip: &str, answered_by: &str) -> CtEntry {
    udp("172.20.0.200", 42001, vip, 53, answered_by, 53)
}

#[test]
fn an_address_of_no_service_is_an_orphan_if_a_dead_pod_answered_there() {
    let (vip, dead) = ("10.96.44.7", "10.10.1.9");
    let nothing = |_: &mut NodeState, _: &mut Settings| {};
    assert_eq!(orphan(to(vip, dead), nothing), [(Verdict::Stale, true)]);

    // One fact is another, and nothing is found: it was not translated, ...
    assert_eq!(orphan(to(vip, vip), nothing), []);
    // ... the address is outside of every Service range, ...
    assert_eq!(orphan(to("192.0.2.53", dead), nothing), []);
    // ... the node's own, ...
    let own = |state: &mut NodeState, settings: &mut Settings| {
        let address = state.nodes.value[0].addresses[0];
        settings.service_cidrs.push(ipnet::IpNet::from(address));
        state.conntrack.value.entries[0].original.dst = address;
    };
    assert_eq!(orphan(to(vip, dead), own), []);
    // ... or one of many; ...
    let many = |_: &mut NodeState, settings: &mut Settings| {
        settings.service_cidrs.push("224.0.0.0/4".parse().unwrap());
    };
    assert_eq!(orphan(to("224.0.0.251", dead), many), []);
    // ... a Service has it, ...
    let service = |state: &mut NodeState, _: &mut Settings| {
        state.services.value.push(Service {
            namespace: "kube-system".to_owned(),
            name: "kube-dns".to_owned(),
            cluster_ips: vec![vip.parse().unwrap()],
            ..Service::default()
        });
    };
    assert_eq!(orphan(to(vip, dead), service), []);
    // ... who answered lives, ...
    assert_eq!(orphan(to(vip, "10.10.1.2"), nothing), []);
    // ... or was never a Pod of this node.
    assert_eq!(orphan(to(vip, "10.10.9.9"), nothing), []);
}

#[test]
fn an_orphan_is_unknown_without_the_services_or_their_ranges() {
    let entry = to("10.96.44.7", "10.10.1.9");
    let unknown = [(Verdict::Unknown, false)];
    let no_ranges = |state: &mut NodeState, settings: &mut Settings| {
        state.service_cidrs.value.clear();
        settings.service_cidrs.clear();
    };
    assert_eq!(orphan(entry.clone(), no_ranges), unknown);
    let cut = |state: &mut NodeState, _: &mut Settings| {
        state.services.completeness = Completeness::Partial("cut by a limit".to_owned());
    };
    assert_eq!(orphan(entry.clone(), cut), unknown);
    let no_pods = |state: &mut NodeState, _: &mut Settings| {
        state.pods.completeness = Completeness::Unavailable("403".to_owned());
        state.runtime.completeness = Completeness::Unavailable("no socket".to_owned());
    };
    assert_eq!(orphan(entry, no_pods), unknown);
}

/// The same of an entry to a port of the node: `web-0` has UDP port 8080 of it, `api-0` lives beside it.
fn hostport(entry: CtEntry, change: impl FnOnce(&mut NodeState)) -> Vec<(Verdict, bool)> {
    let mut web = pod("web-0", 1, "10.10.1.2");
    web.ports = vec![host_port(8080)];
    let pods = vec![web, pod("api-0", 2, "10.10.1.3")];
    let mut state = with_conntrack(node(pods), vec![entry]);
    change(&mut state);
    let found = Judge::new(&state, None, &Settings::default(), now()).all();
    let found = found.iter().filter(|f| f.rule == "conntrack-hostport-stale");
    found
        .map(|f| (f.verdict, f.action() == crate::finding::Action::Repair))
        .collect()
}

fn host_port(port: u16) -> ContainerPort {
    ContainerPort {
        name: None,
        container_port: 53,
        host_port: Some(port),
        host_ip: None,
        proto: Proto::Udp,
    }
}

fn at_node(port: u16, answered_by: &str) -> CtEntry {
    udp("172.20.0.200", 42001, "172.20.0.11", port, answered_by, 53)
}

#[test]
fn a_connection_to_a_port_of_the_node_is_stale_if_no_pod_of_that_port_answers() {
    let (dead, beside) = ("10.10.1.9", "10.10.1.3");
    let nothing = |_: &mut NodeState| {};
    let stale = [(Verdict::Stale, true)];
    assert_eq!(hostport(at_node(8080, dead), nothing), stale);
    // A port of NodePortLocal that nobody announces is its own; another port that nobody has is not.
    assert_eq!(hostport(at_node(61500, dead), nothing), stale);
    assert_eq!(hostport(at_node(9090, dead), nothing), []);
    let on_the_host = |state: &mut NodeState| {
        let mut agent = pod("agent-0", 3, "172.20.0.11");
        agent.host_network = true;
        agent.ports = vec![host_port(9090)];
        state.pods.value.push(agent);
    };
    assert_eq!(hostport(at_node(9090, dead), on_the_host), []);
    // Today's Pod answers; another machine's address; no Pod of this node.
    assert_eq!(hostport(at_node(8080, "10.10.1.2"), nothing), []);
    let elsewhere = udp("172.20.0.200", 42001, "172.20.0.12", 8080, dead, 53);
    assert_eq!(hostport(elsewhere, nothing), []);
    assert_eq!(hostport(at_node(8080, "10.10.9.9"), nothing), []);

    // Somebody alive answers who has not the port: stale as well, as long as no rule leads there and the runtime says the same.
    assert_eq!(hostport(at_node(8080, beside), nothing), stale);
    assert_eq!(hostport(at_node(61500, beside), nothing), []);
    let silent = |state: &mut NodeState| {
        state.runtime.completeness = Completeness::Unavailable("no socket".to_owned());
    };
    assert_eq!(hostport(at_node(8080, beside), silent), [(Verdict::Stale, false)]);
    let ruled = |state: &mut NodeState| {
        let rule = XtRule {
            line: "-A CNI-DN-x -p udp -m udp --dport 8080 -j DNAT --to-destination 10.10.1.3:53".to_owned(),
            counters: None,
            spec: XtMatch {
                proto: Some(Proto::Udp),
                dports: vec![PortRange::one(8080)],
                dnat: Some(Dnat {
                    ip: "10.10.1.3".parse().unwrap(),
                    port: Some(53),
                }),
                ..XtMatch::default()
            },
        };
        state.xtables.value = vec![nat(vec![chain("CNI-DN-x", vec![rule])])];
    };
    assert_eq!(hostport(at_node(8080, beside), ruled), []);
}

/// What an entry to a Service comes out as, of which 10.10.1.2 is the only endpoint. It has a cluster address, and the node's own as that of
/// its load balancer; `lb-0` at 10.10.1.3 has the port of the node.
fn dead_endpoint(to: &str, answered_by: &str, change: impl FnOnce(&mut NodeState)) -> Vec<Verdict> {
    of_a_service("conntrack-udp-dead-endpoint", to, answered_by, change)
}

fn of_a_service(
    rule: &str,
    to: &str,
    answered_by: &str,
    change: impl FnOnce(&mut NodeState),
) -> Vec<Verdict> {
    let mut balancer = pod("lb-0", 2, "10.10.1.3");
    balancer.ports = vec![host_port(53)];
    let entry = udp("172.20.0.200", 42001, to, 53, answered_by, 53);
    let mut state = with_conntrack(node(vec![pod("dns-0", 1, "10.10.1.2"), balancer]), vec![entry]);
    state.services.value = vec![Service {
        cluster_ips: vec![ip("10.96.0.10")],
        load_balancer_ips: vec![ip("172.20.0.11")],
        ..dns_service("kube-system", "kube-dns")
    }];
    state.endpoint_slices.value = vec![dns_slice("kube-system", "kube-dns", &["10.10.1.2"])];
    change(&mut state);
    let found = Judge::new(&state, None, &Settings::default(), now()).all();
    let found = found.iter().filter(|f| f.rule == rule);
    found.map(|f| f.verdict).collect()
}

#[test]
fn a_connection_to_a_service_is_stale_if_no_endpoint_answers() {
    let nothing = |_: &mut NodeState| {};
    let (vip, host) = ("10.96.0.10", "172.20.0.11");
    assert_eq!(dead_endpoint(vip, "10.10.1.9", nothing), [Verdict::Stale]);
    assert_eq!(dead_endpoint(vip, "10.10.1.2", nothing), []);
    // The node's own address as the load balancer's: the Pod with that port of the node may answer there, and only there.
    assert_eq!(dead_endpoint(host, "10.10.1.3", nothing), []);
    assert_eq!(dead_endpoint(host, "10.10.1.9", nothing), [Verdict::Stale]);
    assert_eq!(dead_endpoint(vip, "10.10.1.3", nothing), [Verdict::Stale]);
    // A Pod that is gone from the API and whose sandbox is ready answers still.
    let zombie = |state: &mut NodeState| {
        let gone = pod("dns-9", 9, "10.10.1.9");
        state.runtime.value.sandboxes.push(sandbox(&gone, id("20b1e")));
    };
    assert_eq!(dead_endpoint(vip, "10.10.1.9", zombie), [Verdict::Unknown]);
}

#[test]
fn an_untranslated_connection_is_unknown_without_all_endpoints() {
    let vip = "10.96.0.10";
    let of = |part: &dyn Fn(&mut NodeState)| {
        of_a_service("conntrack-undnatted-vip", vip, vip, |state| {
            state.conntrack.value.entries[0].flags.unreplied = true;
            part(state);
        })
    };
    assert_eq!(of(&|_| {}), [Verdict::Stale]);
    let cut = || Completeness::Partial("cut by a limit".to_owned());
    assert_eq!(
        of(&|state| state.endpoint_slices.completeness = cut()),
        [Verdict::Unknown]
    );
    assert_eq!(
        of(&|state| state.services.completeness = cut()),
        [Verdict::Unknown]
    );
}
