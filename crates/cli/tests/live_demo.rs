//! The whole job on a lab node: everything stale is found and mended, nothing alive is named or touched, and whoever talks to the living
//! notices nothing. The lab holds the program against what it knows it made; what it says is checked here once more.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

use std::path::{Path, PathBuf};

use sexton_lab::demo::{self, DemoOptions, Outcome};
use sexton_lab::load::Kind;
use sexton_lab::truth::TargetPath;
use sexton_lab::{RuntimeKind, Variant, skip};

/// What the faults of the lab leave: rule, how many, and how many of them are for a repair.
const MADE: [(&str, usize, usize); 10] = [
    ("cni-rule-dead-sandbox", 3, 3),
    ("conntrack-hostport-stale", 4, 4),
    ("conntrack-udp-dead-endpoint", 4, 4),
    ("conntrack-udp-orphan-vip", 1, 1),
    ("conntrack-undnatted-vip", 1, 1),
    ("hostport-stale-target", 1, 1),
    ("ipam-lease-dead-sandbox", 3, 3),
    ("npl-stale-target", 4, 4),
    ("tombstone-over-live-pod", 1, 1),
    ("zombie-sandbox", 1, 0),
];

fn show(name: &str, variant: Variant) -> Outcome {
    let dir = PathBuf::from(format!("/tmp/sexton-{name}-{}", std::process::id()));
    let options = DemoOptions {
        sexton: env!("CARGO_BIN_EXE_sexton").into(),
        dir: dir.clone(),
        variant,
        runtime: RuntimeKind::Containerd,
        keep: None,
        colour: false,
    };
    let mut shown = Vec::new();
    let outcome = demo::run(&options, &mut shown);
    let shown = String::from_utf8(shown).unwrap();
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}\n{shown}"));
    assert!(outcome.is_good(), "{shown}");
    for command in ["audit", "plan", "repair"] {
        assert!(shown.contains(&format!("$ sexton {command} ")), "{shown}");
    }
    assert!(!Path::new(&dir).exists(), "the lab is still there");
    outcome
}

fn check(outcome: &Outcome) {
    let rules: Vec<_> = outcome
        .rules
        .iter()
        .map(|(rule, line)| (rule.as_str(), *line))
        .collect();
    assert_eq!(rules.len(), MADE.len(), "{rules:?}");
    for ((rule, line), (name, made, repaired)) in rules.into_iter().zip(MADE) {
        assert_eq!(rule, name);
        assert_eq!(
            (line.made, line.found, line.repaired, line.left),
            (made, made, repaired, made - repaired),
            "{rule}"
        );
    }
    assert_eq!(outcome.planned, 22);
    // Four node ports and a hostPort; the drop over a living Pod is no mapping.
    assert_eq!(outcome.traffic, "5 of 5 mappings proved");

    let npl = outcome
        .ports
        .iter()
        .filter(|port| port.target.path == TargetPath::Npl && port.target.pod == "voice/relay-1");
    assert_eq!(npl.clone().count(), 8);
    assert_eq!(npl.filter(|port| !port.before).count(), 4);
    assert_eq!(outcome.ports.iter().filter(|port| !port.before).count(), 6);
    assert!(outcome.ports.iter().all(|port| port.after), "{:?}", outcome.ports);

    let load = &outcome.load;
    assert_eq!(load.failed, 0);
    for kind in [Kind::Connections, Kind::Stream, Kind::Datagrams] {
        let mut clients = load
            .clients
            .iter()
            .filter(|client| client.kind == kind)
            .peekable();
        assert!(clients.peek().is_some(), "no client of kind {kind:?}");
        assert!(clients.all(|client| client.requests > 20), "{load:?}");
    }
}

#[test]
fn a_node_is_audited_repaired_and_audited_again_under_traffic() {
    if let Some(why) = sexton_lab::unsupported() {
        return skip!("{why}");
    }
    check(&show("demo-nft", Variant::Nft));
}

#[test]
fn the_same_where_iptables_is_the_legacy_one() {
    if let Some(why) = sexton_lab::unsupported() {
        return skip!("{why}");
    }
    check(&show("demo-legacy", Variant::Legacy));
}

/// The other incident: resets for a dead Pod that circulate are seen, proved and ended, and nobody alive notices.
#[test]
fn the_loop_is_shown_from_its_beginning_to_its_end() {
    if let Some(why) = sexton_lab::unsupported() {
        return skip!("{why}");
    }
    let dir = PathBuf::from(format!("/tmp/sexton-demo-loop-{}", std::process::id()));
    let options = DemoOptions {
        sexton: env!("CARGO_BIN_EXE_sexton").into(),
        dir: dir.clone(),
        variant: Variant::Nft,
        runtime: RuntimeKind::Containerd,
        keep: None,
        colour: false,
    };
    let mut shown = Vec::new();
    let outcome = demo::run_loop(&options, &mut shown);
    let shown = String::from_utf8(shown).unwrap();
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}\n{shown}"));
    assert_eq!(outcome.wrong, Vec::<String>::new(), "{shown}");
    assert!(outcome.took.as_secs() < 60, "{:?}", outcome.took);
    assert!(!Path::new(&dir).exists(), "the lab is still there");
}
