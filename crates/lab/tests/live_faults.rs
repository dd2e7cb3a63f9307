//! The faults: each is on the node as `lab.json` says, beside what is alive; and the ways in which a runtime fails.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test's helpers fail the test"
)]

mod common;

use std::time::Instant;

use sexton_lab::snapshot::Snapshot;
use sexton_lab::truth::{PodState, Protocol};
use sexton_lab::{Fault, LabNode, LabOptions, PodSpec, RuntimeKind, Variant, probe};
use sexton_linux::cri::proto::PodSandboxState;

/// Everything that the lab wrote down is there, and every target answers or not as it says.
fn is_as_written(node: &LabNode) {
    let (truth, seen) = (node.truth(), Snapshot::take(node).unwrap());
    for expected in &truth.expected {
        // A unit of a jump and its chain is one finding of two lines; a sandbox is a line of `ctr`.
        let whole = seen.holds(&expected.contains);
        let parts = expected.contains.iter().all(|word| seen.holds(&[word]));
        let is_unit = expected.rule == "hostport-stale-target";
        assert!(whole || (is_unit && parts), "not there: {expected:?}\n{seen}");
    }
    for alive in &truth.alive {
        assert!(seen.holds(&alive.contains), "not there: {alive:?}\n{seen}");
    }
    let before = Snapshot::take(node).unwrap();
    for probe in probe(node, &truth.targets).unwrap() {
        assert_eq!(probe.answered, probe.target.works, "{probe:?}\n{seen}");
    }
    let entries = |snapshot: &Snapshot| {
        let all = snapshot.sections["conntrack -L"].iter();
        all.filter(|line| line.starts_with("udp"))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        entries(&before),
        entries(&Snapshot::take(node).unwrap()),
        "asking leaves no UDP entry"
    );
}

fn all_faults(variant: Variant, runtime: RuntimeKind) {
    let options = LabOptions {
        variant,
        runtime,
        ..LabOptions::default()
    };
    let node = common::node("faults", options);
    for fault in Fault::ALL {
        let start = Instant::now();
        node.fault(fault)
            .unwrap_or_else(|error| panic!("{fault:?}: {}", common::chain(&error)));
        println!("{variant:?} {fault:?}: {:?}", start.elapsed());
    }
    is_as_written(&node);
    let truth = node.truth();
    let count = |rule: &str| {
        truth
            .expected
            .iter()
            .filter(|expected| expected.rule == rule)
            .count()
    };
    assert_eq!(count("npl-stale-target"), 6);
    assert_eq!(count("conntrack-hostport-stale"), 4);
    assert_eq!(count("conntrack-udp-dead-endpoint"), 4);
    assert_eq!(count("ipam-lease-dead-sandbox"), 4);
    // Each of the protocols has something that lives and something that is broken.
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for works in [true, false] {
            assert!(
                truth
                    .targets
                    .iter()
                    .any(|target| (target.protocol, target.works) == (protocol, works))
            );
        }
    }
    assert!(node.fault(Fault::Npl).is_err(), "a second time is refused");
    // Two looks at a node that nobody touches are equal, and looking makes no legacy table.
    let (first, second) = (Snapshot::take(&node).unwrap(), Snapshot::take(&node).unwrap());
    assert_eq!(first.diff(&second), Vec::<String>::new());
    node.down().unwrap();
}

#[test]
fn the_faults_are_as_written_with_nft() {
    if let Some(why) = sexton_lab::unsupported() {
        return sexton_lab::skip!("{why}");
    }
    all_faults(Variant::Nft, RuntimeKind::Containerd);
}

#[test]
fn the_faults_are_as_written_with_legacy() {
    if let Some(why) = sexton_lab::unsupported() {
        return sexton_lab::skip!("{why}");
    }
    all_faults(Variant::Legacy, RuntimeKind::Containerd);
}

#[test]
fn the_faults_are_as_written_with_the_labs_own_runtime() {
    if let Some(why) = sexton_lab::unsupported() {
        return sexton_lab::skip!("{why}");
    }
    all_faults(Variant::Nft, RuntimeKind::Lab);
}

/// State of a sandbox in the runtime's list; none when it is not in it.
fn listed(node: &LabNode, id: &str) -> Option<PodSandboxState> {
    let cri = node.cri().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let all = runtime.block_on(async {
        // The lab's own connection belongs to the lab's event loop.
        let cri = sexton_linux::cri::CriClient::connect(cri.socket()).await.unwrap();
        cri.list_pod_sandboxes(None).await.unwrap()
    });
    all.iter()
        .find(|sandbox| sandbox.id == id)
        .map(|sandbox| sandbox.state())
}

#[test]
fn a_runtime_fails_in_its_ways() {
    if let Some(why) = sexton_lab::unsupported() {
        return sexton_lab::skip!("{why}");
    }
    let node = common::node("ways", LabOptions::default());
    let ready = Some(PodSandboxState::Ready);

    // An ADD in flight: a lease and rules, and no list has the sandbox.
    let add = node
        .begin_slow_add(PodSpec::new("shop", "slow-0").tcp(80).host_port_tcp(7070, 80), 1)
        .unwrap();
    assert_eq!(listed(&node, &add.sandbox), None);
    assert!(add.lease.exists());
    assert!(node.run(["iptables-save"]).unwrap().stdout.contains(&add.sandbox));
    let slow = node.finish_slow_add(add).unwrap();
    assert_eq!(listed(&node, &slow.sandbox), ready);

    // Way 2: its process is killed.
    let victim = node.pod(PodSpec::new("shop", "victim-0").tcp(80)).unwrap();
    node.kill_sandbox(&victim).unwrap();
    assert_eq!(listed(&node, &victim.sandbox), Some(PodSandboxState::NotReady));
    assert!(
        node.path(format!("var-lib-cni/networks/podnet/{}", victim.ip))
            .exists()
    );

    // Way 1: the runtime is killed in an ADD.
    let add = node
        .kill_runtime_in_add(PodSpec::new("shop", "slow-1").tcp(80).host_port_tcp(7071, 80))
        .unwrap();
    assert_eq!(listed(&node, &add.sandbox), Some(PodSandboxState::NotReady));
    assert!(add.lease.exists());
    assert_eq!(listed(&node, &slow.sandbox), ready, "a restart keeps the others");

    // The gap of a restart: unavailable, not empty, and the Pods answer.
    node.crash_runtime();
    assert!(node.cri().is_err());
    let answers = |uid: &str| {
        let targets: Vec<_> = node
            .truth()
            .targets
            .into_iter()
            .filter(|target| target.uid == uid)
            .collect();
        assert!(!targets.is_empty());
        probe(&node, &targets).unwrap().iter().all(|probe| probe.answered)
    };
    assert!(answers(&slow.uid));
    node.start_runtime().unwrap();
    assert_eq!(listed(&node, &slow.sandbox), ready);

    // Way 3: its store is lost.
    node.lose_store().unwrap();
    assert_eq!(listed(&node, &slow.sandbox), None);
    assert_eq!(node.truth().pod(&slow.uid).unwrap().state, PodState::Unlisted);
    let process = node
        .run(["cat", &format!("/proc/{}/comm", slow.pid)])
        .unwrap()
        .stdout;
    assert_eq!(process.trim(), "sleep", "its process runs on");
    node.down().unwrap();
}
