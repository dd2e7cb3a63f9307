//! The clients: they find nothing wrong with what lives, at the rate that they promise, and notice what breaks.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test's helpers fail the test"
)]

mod common;

use std::time::Duration;

use sexton_lab::load::{Kind, Load, LoadOptions};
use sexton_lab::truth::Protocol;
use sexton_lab::{LabOptions, PodSpec};

#[test]
fn the_living_are_talked_to_and_a_break_is_noticed() {
    if let Some(why) = sexton_lab::unsupported() {
        return sexton_lab::skip!("{why}");
    }
    let node = common::node("load", LabOptions::default());
    let specs = [
        PodSpec::new("shop", "web-0").tcp(80).host_port_tcp(8080, 80),
        PodSpec::new("shop", "web-1").tcp(80).udp(90),
    ];
    let pods = node.pods(specs).unwrap();
    let targets = node.truth().targets;
    assert_eq!(targets.len(), 3);

    let load = Load::start(&node, targets.clone(), LoadOptions::default()).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let summary = load.stop().unwrap();
    assert_eq!(summary.failed, 0, "{summary:?}");
    assert_eq!(summary.clients.len(), 5);
    for client in &summary.clients {
        let least = match client.kind {
            Kind::Connections => 200.0,
            Kind::Stream => 20.0,
            Kind::Datagrams => 45.0,
        };
        assert!(client.rate >= least, "{client:?}");
    }

    // A second Pod goes away in the middle, and nobody else's clients notice.
    let load = Load::start(&node, targets, LoadOptions::default()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    node.delete_pod(&pods[1]).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let summary = load.stop().unwrap();
    for client in &summary.clients {
        let gone = client.target.uid == pods[1].uid;
        assert_eq!(client.failed > 0, gone, "{client:?}");
        assert_eq!(client.first_failure.is_some(), gone);
        if gone && client.target.protocol == Protocol::Tcp {
            assert!(client.longest_gap_ms > 500.0, "{client:?}");
        }
    }
    node.down().unwrap();
}
