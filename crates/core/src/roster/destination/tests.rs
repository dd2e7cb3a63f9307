//! Tests.

use super::*;
use crate::{
    model::{Completeness, HnsEndpoint, KubeNode, NodeState},
    settings::Settings,
    testkit::{NODE, ip, now, pod},
};

fn adapters(source: NicSource) -> Adapters {
    let owned = |text: &str, name: &str| NicAddress {
        address: ip(text),
        primary: name == "ipconfig1",
        in_use: None,
        name: Some(name.to_owned()),
    };
    Adapters {
        path: "nic.json".to_owned(),
        source,
        nics: vec![Nic {
            name: Some("nic-0".to_owned()),
            addresses: vec![
                owned("10.240.1.4", "ipconfig1"),
                owned("10.240.1.33", "ipconfig2"),
                owned("10.240.1.77", "ipconfig9"),
            ],
            ..Nic::default()
        }],
        completeness: Completeness::Complete,
    }
}

fn endpoint(text: &str, state: u16) -> HnsEndpoint {
    HnsEndpoint {
        id: "705f2a0d".to_owned(),
        name: "9e9633b1-eth0".to_owned(),
        addresses: vec![ip(text)],
        mac: None,
        remote: false,
        state: Some(state),
        containers: Vec::new(),
    }
}

/// A Windows node with one Pod, of which one address is free.
fn windows() -> NodeState {
    let mut state = NodeState {
        adapters: Facts::complete("nic.json", vec![adapters(NicSource::Arm)]),
        hns_endpoints: Facts::complete("hns-endpoints.json", vec![endpoint("10.240.1.33", 3)]),
        pods: Facts::complete("pods.json", vec![pod("web", 1, "10.240.1.33")]),
        ..NodeState::default()
    };
    state.identity.name = NODE.to_owned();
    state
}

fn standing(state: &NodeState, address: &str) -> (Standing, String) {
    let settings = Settings::default();
    let roster = Roster::new(state, &settings, now(), Default::default());
    let residence = roster.destination(ip(address));
    (residence.standing, residence.lacking.join("; "))
}

#[test]
fn an_address_of_the_adapter_is_its_own_an_endpoints_or_nobodys() {
    let settings = Settings::default();
    let mut state = windows();
    assert_eq!(standing(&state, "10.240.1.4").0, Standing::Live);
    assert_eq!(standing(&state, "10.240.1.33").0, Standing::Live);
    let roster = Roster::new(&state, &settings, now(), Default::default());
    let nobody = roster.destination(ip("10.240.1.77"));
    assert_eq!(nobody.standing, Standing::Nobody);
    let said: Vec<_> = nobody.evidence.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(
        said,
        [
            "nic-0 owns 10.240.1.77 as ipconfig9",
            "none of 1 endpoints has 10.240.1.77",
            "none of 1 Pods has 10.240.1.77",
            "whether 10.240.1.77 answers now was not measured (nf_conntrack_acct)",
        ]
    );
    assert_eq!(nobody.witnesses, [Witness::Api, Witness::Kernel]);
    drop(roster);
    // An endpoint that is there for it is life, whatever the Pods say; a destroyed one is not.
    state.hns_endpoints.value.push(endpoint("10.240.1.77", 2));
    assert_eq!(standing(&state, "10.240.1.77").0, Standing::Live);
    state.hns_endpoints.value[1].state = Some(6);
    assert_eq!(standing(&state, "10.240.1.77").0, Standing::Nobody);
}

#[test]
fn endpoints_and_adapters_alone_are_enough() {
    let mut state = windows();
    state.pods = Facts::default();
    assert_eq!(standing(&state, "10.240.1.77").0, Standing::Nobody);
    // Neither of them: nothing says who lives.
    state.hns_endpoints = Facts::default();
    let (unknown, why) = standing(&state, "10.240.1.77");
    assert_eq!(unknown, Standing::Unknown);
    assert!(why.contains("or all HNS endpoints of the node"), "{why}");
}

#[test]
fn an_address_of_elsewhere_is_unknown_and_not_nobodys() {
    let (unknown, why) = standing(&windows(), "10.240.9.9");
    assert_eq!(unknown, Standing::Unknown);
    assert!(why.contains("no address of this node's adapters"), "{why}");
    // A list that may lack some says even less.
    let mut imds = windows();
    imds.adapters.value = vec![adapters(NicSource::Imds)];
    let (unknown, why) = standing(&imds, "10.240.1.90");
    assert_eq!(unknown, Standing::Unknown);
    assert!(why.contains("does not list all"), "{why}");
    // No list at all, and no Pod range.
    imds.adapters = Facts::default();
    let (unknown, why) = standing(&imds, "10.240.1.90");
    assert_eq!(unknown, Standing::Unknown);
    assert!(why.contains("nic.json"), "{why}");
}

#[test]
fn a_list_of_another_node_proves_nothing() {
    // Its own address is known and is not in the list.
    let mut state = windows();
    state.nodes.value.push(KubeNode {
        name: NODE.to_owned(),
        addresses: vec![ip("10.240.2.4")],
        ..KubeNode::default()
    });
    let (unknown, why) = standing(&state, "10.240.1.77");
    assert_eq!(unknown, Standing::Unknown);
    assert!(why.contains("none of the node's addresses"), "{why}");
    // Nothing that is used on it is in the list.
    let mut state = windows();
    state.hns_endpoints.value = vec![endpoint("10.240.7.33", 3)];
    state.pods.value = vec![pod("web", 1, "10.240.7.33")];
    let (unknown, why) = standing(&state, "10.240.1.77");
    assert_eq!(unknown, Standing::Unknown);
    assert!(why.contains("none of the addresses in use"), "{why}");
    // The endpoints are another node's.
    let mut state = windows();
    state.hns_endpoints.value = vec![endpoint("10.240.7.33", 3)];
    let (unknown, why) = standing(&state, "10.240.1.77");
    assert_eq!(unknown, Standing::Unknown);
    assert!(why.contains("own HNS endpoints"), "{why}");
}

#[test]
fn a_list_that_is_cut_off_shows_life_and_no_death() {
    let mut state = windows();
    state.hns_endpoints.completeness = Completeness::Partial("cut off".to_owned());
    assert_eq!(standing(&state, "10.240.1.33").0, Standing::Live);
    let (unknown, why) = standing(&state, "10.240.1.77");
    assert_eq!(unknown, Standing::Unknown);
    assert!(why.contains("cut off"), "{why}");
}

#[test]
fn on_a_node_with_a_pod_range_the_pods_tell() {
    let mut state = NodeState {
        pods: Facts::complete("pods.json", vec![pod("web", 1, "10.10.1.2")]),
        nodes: Facts::complete(
            "nodes.json",
            vec![KubeNode {
                name: NODE.to_owned(),
                pod_cidrs: vec!["10.10.1.0/24".parse().unwrap()],
                ..KubeNode::default()
            }],
        ),
        ..NodeState::default()
    };
    state.identity.name = NODE.to_owned();
    assert_eq!(standing(&state, "10.10.1.2").0, Standing::Live);
    assert_eq!(standing(&state, "10.10.1.7").0, Standing::Nobody);
    assert_eq!(standing(&state, "10.10.2.7").0, Standing::Unknown);
    state.pods.completeness = Completeness::Partial("cut off".to_owned());
    assert_eq!(standing(&state, "10.10.1.7").0, Standing::Unknown);
}
