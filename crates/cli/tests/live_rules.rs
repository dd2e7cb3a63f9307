//! Every rule on a real kernel: the positive as the real tool leaves it, beside something alive that differs in one fact.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

mod live;

use live::{VARIANTS, audit, by_rule, exactly, findings, node_with, snapshot, source};
use serde_json::{Value, json};
use sexton_lab::truth::{Alive, Expected};
use sexton_lab::{Fault, LabNode, LabOptions, NPL_ANNOTATION, Pod, PodSpec, RuntimeKind, Variant};

/// The rules of this release.
const RULES: [&str; 11] = [
    "cni-rule-dead-sandbox",
    "conntrack-hostport-stale",
    "conntrack-udp-dead-endpoint",
    "conntrack-udp-orphan-vip",
    "conntrack-undnatted-vip",
    "hostport-stale-target",
    "ipam-lease-dead-sandbox",
    "npl-missing-mapping",
    "npl-stale-target",
    "tombstone-over-live-pod",
    "zombie-sandbox",
];

fn expected(rule: &str, verdict: &str, action: &str, contains: &[&str]) -> Expected {
    Expected {
        fault: "test".into(),
        rule: rule.into(),
        verdict: verdict.into(),
        action: action.into(),
        contains: contains.iter().map(|&word| word.to_owned()).collect(),
    }
}

fn alive(why: &str, contains: &[&str]) -> Alive {
    Alive {
        fault: "test".into(),
        why: why.into(),
        contains: contains.iter().map(|&word| word.to_owned()).collect(),
    }
}

fn annotate(node: &LabNode, pod: &Pod, entries: Value) {
    let text = entries.to_string();
    node.edit_pod(pod, |object| {
        object["metadata"]["annotations"][NPL_ANNOTATION] = json!(text);
    })
    .unwrap();
}

fn npl_rule(node: &LabNode, node_port: u16, to: &str) -> String {
    let line =
        format!("-A ANTREA-NODE-PORT-LOCAL -p tcp -m tcp --dport {node_port} -j DNAT --to-destination {to}");
    let words = ["iptables", "-w", "10", "-t", "nat"];
    node.run(words.into_iter().chain(line.split(' '))).unwrap();
    line
}

/// What the lab's faults do not make: a mapping that is announced and that no rule has, and look-alikes of what is stale.
fn more(node: &LabNode) -> (Vec<Expected>, Vec<Alive>) {
    let mut expect = Vec::new();
    let mut keep = Vec::new();
    let pods = node
        .pods([
            PodSpec::new("voice", "mixer-0").tcp(7000).tcp(7001),
            PodSpec::new("voice", "plain-0").tcp(7000),
            PodSpec::new("voice", "host-0")
                .tcp(7000)
                .host_port_tcp(61050, 7000),
            PodSpec::new("kube-system", "resolver-0").udp(53).udp(54),
        ])
        .unwrap();
    let [mixer, plain, host, resolver] = &pods[..] else {
        panic!("four Pods were asked for")
    };

    // Two ports are announced, and the rule of one was lost.
    annotate(
        node,
        mixer,
        json!([
            {"podPort": 7000, "nodeIP": "172.20.0.11", "nodePort": 61020, "protocol": "tcp"},
            {"podPort": 7001, "nodeIP": "172.20.0.11", "nodePort": 61021, "protocol": "tcp"},
        ]),
    );
    let there = npl_rule(node, 61020, &format!("{}:7000", mixer.ip));
    keep.push(alive("announced, and the rule is there", &[&there]));
    expect.push(expected(
        "npl-missing-mapping",
        "missing",
        "repair",
        &["voice/mixer-0", "61021"],
    ));

    // The controller announces a hostPort and writes no rule for it: nothing is missing.
    annotate(
        node,
        host,
        json!([{"podPort": 7000, "nodeIP": "172.20.0.11", "nodePort": 61050, "protocol": "tcp"}]),
    );

    // A rule for a Pod that lives and announces nothing yet.
    let early = npl_rule(node, 61030, &format!("{}:7000", plain.ip));
    keep.push(alive(
        "leads to a Pod that lives; its annotation is to come",
        &[&early],
    ));

    // Connections as the kernel has them, made with its own tool: to an address of no Service, but answered by the living;
    // and to one that is no Service's at all.
    let insert = |dst: &str, sport: &str, reply: &str| {
        node.run([
            "conntrack",
            "-I",
            "-p",
            "udp",
            "-s",
            "172.20.0.200",
            "-d",
            dst,
            "--sport",
            sport,
            "--dport",
            "53",
            "-r",
            reply,
            "-q",
            "172.20.0.200",
            "--reply-port-src",
            "53",
            "--reply-port-dst",
            sport,
            "-t",
            "600",
        ])
        .unwrap();
    };
    let living = resolver.ip.to_string();
    insert("10.96.44.7", "43001", &living);
    keep.push(alive(
        "an address of no Service, but who answers lives",
        &["dst=10.96.44.7", "sport=43001"],
    ));
    insert(&living, "43002", &living);
    keep.push(alive("to the Pod itself, past every Service", &["sport=43002"]));
    // Outside of every Service range, whoever answered there once.
    insert("192.0.2.53", "43003", "192.0.2.53");
    keep.push(alive("to somebody else's machine", &["sport=43003"]));
    (expect, keep)
}

/// Numbers of the report equal what the kernel's own tools count: an audit that finds nothing was not blind.
fn counts_are_right(node: &LabNode, report: &Value) {
    let lines = |argv: &[&str], wanted: &dyn Fn(&str) -> bool| -> u64 {
        let out = node.run(argv).unwrap().stdout;
        out.lines().filter(|line| wanted(line)).count() as u64
    };
    let count = |kind: &str| report["summary"]["by_kind"][kind].as_u64().unwrap_or(0);
    let rule = |line: &str| line.starts_with("-A ");
    let mut rules = lines(&["iptables-nft-save"], &rule) + lines(&["ip6tables-nft-save"], &rule);
    if node.options().variant == Variant::Legacy {
        rules += lines(&["iptables-legacy-save"], &rule) + lines(&["ip6tables-legacy-save"], &rule);
    }
    assert_eq!(count("xt-rule"), rules);
    let every = |_: &str| true;
    assert_eq!(
        count("conntrack-udp"),
        lines(&["conntrack", "-L", "-p", "udp"], &every)
    );
    assert_eq!(count("link"), lines(&["ip", "-o", "link"], &every));
    assert_eq!(count("address"), lines(&["ip", "-o", "addr"], &every));
    let pods = node.api().list(sexton_lab::api::Resource::Pods).len() as u64;
    assert_eq!(count("pod"), pods);
    let leases = node.run(["ls", "/var/lib/cni/networks/podnet"]).unwrap().stdout;
    let leases = leases.lines().filter(|name| name.starts_with("10.")).count() as u64;
    assert_eq!(count("lease"), leases);
}

fn all_rules(variant: Variant, runtime: RuntimeKind) {
    let options = LabOptions {
        variant,
        runtime,
        ..LabOptions::default()
    };
    let node = live::node("rules", options);
    for fault in Fault::ALL {
        node.fault(fault)
            .unwrap_or_else(|error| panic!("{fault:?}: {}", live::chain(&error)));
    }
    let (expect, keep) = more(&node);
    let mut truth = node.truth();
    truth.expected.extend(expect);
    truth.alive.extend(keep);

    let before = snapshot(&node);
    let report = audit(&node, &[]);
    let after = snapshot(&node);
    assert_eq!(
        before.diff(&after),
        Vec::<String>::new(),
        "an audit changes nothing"
    );
    let names = &before.sections["/proc/net/ip_tables_names"];
    assert_eq!(names.is_empty(), variant == Variant::Nft, "{names:?}");

    for one in report["sources"].as_array().unwrap() {
        assert_eq!(one["completeness"], "complete", "{one}");
    }
    let found = findings(&report);
    exactly(&found, &truth.expected, &truth);
    let rules: Vec<String> = by_rule(&found).into_keys().collect();
    assert_eq!(rules, RULES, "every rule has its positive");
    // Ids are part of the interface: a second look gives the same.
    let mut again = findings(&audit(&node, &[]));
    let mut first = found.clone();
    first.sort();
    again.sort();
    assert_eq!(first, again);

    if runtime == RuntimeKind::Containerd {
        counts_are_right(&node, &audit(&node, &[]));
        let (_, why) = source(&report, "pods");
        assert_eq!(why, "");
    }
    node.down().unwrap();
}

#[test]
fn every_rule_finds_its_own_and_nothing_alive_with_nft() {
    needs_lab!();
    all_rules(Variant::Nft, RuntimeKind::Containerd);
}

#[test]
fn every_rule_finds_its_own_and_nothing_alive_with_legacy() {
    needs_lab!();
    all_rules(Variant::Legacy, RuntimeKind::Containerd);
}

#[test]
fn every_rule_finds_its_own_and_nothing_alive_with_the_labs_own_runtime() {
    needs_lab!();
    all_rules(Variant::Nft, RuntimeKind::Lab);
}

/// On a node of the living only, nothing is found, and everything was looked at.
#[test]
fn a_healthy_node_has_no_finding() {
    needs_lab!();
    for variant in VARIANTS {
        let node = node_with("healthy", variant);
        let pods = node
            .pods([
                PodSpec::new("shop", "web-0").tcp(8080).host_port_tcp(18080, 8080),
                PodSpec::new("shop", "web-1").tcp(8080).udp(9000),
                PodSpec::new("shop", "web-2").tcp(8080),
            ])
            .unwrap();
        // A restart of the runtime, a deleted Pod and a recycled name leave nothing behind.
        node.delete_pod(&pods[2]).unwrap();
        node.pod(PodSpec::new("shop", "web-2").tcp(8080)).unwrap();
        node.crash_runtime();
        node.start_runtime().unwrap();
        let ran = live::sexton(&node, &["audit", "-o", "json"]).exits(0);
        let report = ran.json();
        assert_eq!(findings(&report), []);
        assert!(report["summary"]["objects"].as_u64().unwrap() > 40);
        counts_are_right(&node, &report);
        node.down().unwrap();
    }
}
