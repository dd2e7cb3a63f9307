//! What kube-proxy's rules say of a connection, each answer beside the one that differs in one fact.

use super::*;
use crate::{
    model::{Dnat, NftElement, NftFamily, NftRule, NftSet},
    testkit::{chain, dnat, ip, nat, node, udp, with_tables},
};

const VIP: &str = "10.96.0.10";
const NODE: &str = "172.20.0.11";

/// What becomes of a connection of UDP to port 53 of `to` that 10.10.1.9 answered.
fn sends(state: &NodeState, to: &str, front: Front) -> Sends {
    let entry = udp("172.20.0.200", 41000, to, 53, "10.10.1.9", 53);
    DataPlane::new(state).sends(&entry, front)
}

fn there(rule: &str) -> Sends {
    Sends::There(("nft".to_owned(), rule.to_owned()))
}

fn elsewhere(rule: &str) -> Sends {
    Sends::Elsewhere(("nft".to_owned(), rule.to_owned()))
}

/// A rule of an endpoint, in a table.
fn endpoint(table: &str, address: &str, proto: Option<Proto>) -> NftRule {
    let text = format!("dnat to {address}:53");
    let mut rule = NftRule::bare(NftFamily::Ip, table, "endpoint-1", text);
    rule.proto = proto;
    rule.dnat = Some(Dnat {
        ip: ip(address),
        port: Some(53),
    });
    rule
}

/// A node with a rule and one element of a set, both in kube-proxy's table unless said otherwise.
fn nft(rule: NftRule, (table, set): (&str, &str), key: &[NftValue]) -> NodeState {
    let mut state = node(Vec::new());
    state.nft.value.rules.push(rule);
    state.nft.value.sets.push(NftSet {
        family: NftFamily::Ip,
        table: table.to_owned(),
        name: set.to_owned(),
        is_map: true,
        key_type: String::new(),
        data_type: None,
        elements: vec![NftElement {
            key: key.to_vec(),
            data: Vec::new(),
            comment: None,
            timeout_ms: None,
            expires_ms: None,
        }],
    });
    state
}

fn front(to: &str, proto: Proto, port: u16) -> Vec<NftValue> {
    vec![
        NftValue::Addr(ip(to)),
        NftValue::Proto(proto),
        NftValue::Port(port),
    ]
}

#[test]
fn a_rule_of_nftables_still_sends_there_only_from_kube_proxys_table_to_that_endpoint() {
    let service = ("kube-proxy", "service-ips");
    let of = |rule| nft(rule, service, &front(VIP, Proto::Udp, 53));
    let still = there("dnat to 10.10.1.9:53");
    let gone = elsewhere("10.96.0.10 . udp . 53");
    for (rule, expected) in [
        (endpoint("kube-proxy", "10.10.1.9", None), &still),
        (endpoint("kube-proxy", "10.10.1.9", Some(Proto::Udp)), &still),
        (endpoint("kube-proxy", "10.10.1.9", Some(Proto::Tcp)), &gone),
        (endpoint("kube-proxy", "10.10.1.8", None), &gone),
        (endpoint("somebody", "10.10.1.9", None), &gone),
    ] {
        assert_eq!(
            sends(&of(rule.clone()), VIP, Front::ClusterIp),
            *expected,
            "{rule:?}"
        );
    }
}

#[test]
fn an_element_serves_its_own_address_protocol_and_port_from_kube_proxys_own_sets() {
    let rule = || endpoint("kube-proxy", "10.10.1.8", None);
    let of = |set, key: &[NftValue]| sends(&nft(rule(), set, key), VIP, Front::ClusterIp);
    let own = front(VIP, Proto::Udp, 53);
    let found = elsewhere("10.96.0.10 . udp . 53");
    assert_eq!(of(("kube-proxy", "service-ips"), &own), found);
    assert_eq!(of(("kube-proxy", "no-endpoint-services"), &own), found);
    for (set, key) in [
        (("kube-proxy", "cluster-ips"), own.clone()),
        (("somebody", "service-ips"), own),
        (("kube-proxy", "service-ips"), front(VIP, Proto::Tcp, 53)),
        (("kube-proxy", "service-ips"), front(VIP, Proto::Udp, 54)),
        (("kube-proxy", "service-ips"), front("10.96.0.11", Proto::Udp, 53)),
    ] {
        assert_eq!(of(set, &key), Sends::NotFound, "{set:?} {key:?}");
    }
}

/// A node port's rule has no address; it says nothing of a cluster address with the same port.
#[test]
fn a_rule_without_an_address_serves_node_ports_only() {
    let key = [NftValue::Proto(Proto::Udp), NftValue::Port(53)];
    let state = nft(
        endpoint("kube-proxy", "10.10.1.8", None),
        ("kube-proxy", "service-nodeports"),
        &key,
    );
    assert_eq!(sends(&state, NODE, Front::NodePort), elsewhere("udp . 53"));
    assert_eq!(sends(&state, VIP, Front::ClusterIp), Sends::NotFound);
    // Nor does a rule for another address serve the node's.
    let state = nft(
        endpoint("kube-proxy", "10.10.1.8", None),
        ("kube-proxy", "service-ips"),
        &front(VIP, Proto::Udp, 53),
    );
    assert_eq!(sends(&state, NODE, Front::NodePort), Sends::NotFound);
}

#[test]
fn a_rule_of_iptables_sends_there_only_from_an_endpoints_chain() {
    let state = |name: &str| {
        let rule = dnat(name, Proto::Udp, 53, "10.10.1.9:53");
        with_tables(node(Vec::new()), vec![nat(vec![chain(name, vec![rule])])])
    };
    for (name, still) in [
        ("KUBE-SEP-AAAAAAAAAAAAAAAA", true),
        ("KUBE-SVC-AAAAAAAAAAAAAAAA", false),
        ("CNI-DN-0123456789abcdef01234", false),
    ] {
        let answer = sends(&state(name), NODE, Front::NodePort);
        assert_eq!(matches!(answer, Sends::There(_)), still, "{name}: {answer:?}");
    }
}
