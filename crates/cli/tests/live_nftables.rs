//! Repairs of rules and mappings in nftables on a real kernel, in races: with a newcomer, with busy writers, and backwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

mod live;

use std::process::Stdio;

use live::{Ran, audit, changes, findings, node_with, repair, sexton, snapshot, targets_work};
use serde_json::Value;
use sexton_lab::{Fault, LabNode, PodSpec, Variant};

fn node_of(name: &str) -> LabNode {
    let node = node_with(name, Variant::Nft);
    node.fault(Fault::Nftables)
        .unwrap_or_else(|error| panic!("{}", live::chain(&error)));
    node
}

/// Outcome and object of each finding, by the object.
fn outcomes(ran: &Ran) -> Vec<(String, String)> {
    let report = ran.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut all: Vec<(String, String)> = report["repaired"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let object = text(&item["finding"]["object"]);
            (object, text(&item["result"]["outcome"]))
        })
        .collect();
    all.sort();
    all
}

fn ruleset(node: &LabNode) -> String {
    node.run(["nft", "-s", "list", "ruleset"]).unwrap().stdout
}

/// A mapping that nobody announces is wrong while nobody lives at its target, and nobody's business once a new Pod has that address.
#[test]
fn a_newcomer_between_plan_and_act_keeps_its_mapping() {
    needs_lab!();
    let node = node_of("newcomer");
    let add = |element: &str| {
        node.run(["nft", "add", "element", "inet", "sexton", "npl4", element])
            .unwrap()
    };
    add("{ tcp . 61140 : 10.10.1.200 . 80 }");
    let path = node.path("plan.json");
    let file = path.to_str().unwrap();
    sexton(&node, &["plan", "--out", file]).exits(1);

    let last = node.path("var-lib-cni/networks/podnet/last_reserved_ip.0");
    let reserved = std::fs::read_to_string(&last).unwrap();
    std::fs::write(&last, "10.10.1.199").unwrap();
    let newcomer = node.pod(PodSpec::new("shop", "newcomer-0").tcp(80)).unwrap();
    assert_eq!(newcomer.ip.to_string(), "10.10.1.200");
    std::fs::write(&last, reserved).unwrap();
    add("{ tcp . 61141 : 10.10.1.201 . 80 }");

    let before = snapshot(&node);
    let ran = repair(&node, &["--plan", file, "--yes", "-o", "json"]).exits(1);
    let all = outcomes(&ran);
    let refused: Vec<&(String, String)> = all.iter().filter(|(_, outcome)| outcome != "done").collect();
    let kept = "inet sexton npl4 { tcp . 61140 : 10.10.1.200 . 80 }".to_owned();
    assert_eq!(refused, [&(kept, "judged-differently".to_owned())]);
    assert_eq!(all.len(), 7, "six of the fault, and the newcomer's: {all:#?}");
    // Neither the newcomer's mapping nor what was not in the plan went.
    let elements: Vec<String> = changes(&before, &snapshot(&node))
        .into_iter()
        .filter(|line| line.starts_with("- nft") && line.contains("element"))
        .collect();
    assert_eq!(elements.len(), 2, "{elements:#?}");
    assert!(
        elements.iter().all(|line| line.contains("sexton:")),
        "{elements:#?}"
    );
    let left = findings(&audit(&node, &[]));
    let left: Vec<&str> = left.iter().map(|found| found.text.as_str()).collect();
    assert_eq!(left, ["inet sexton npl4 { tcp . 61141 : 10.10.1.201 . 80 }"]);
    targets_work(&node, |_| true);
    node.down().unwrap();
}

/// Other writers commit all the while: each commit raises the generation under which a repair read. It tries again, and theirs stays theirs.
#[test]
fn beside_busy_writers_a_repair_changes_only_its_own() {
    needs_lab!();
    let node = node_of("busy");
    node.run_stdin(
        ["nft", "-f", "-"],
        "table inet other { set busy { type inet_service; }; }\n",
    )
    .unwrap();
    let busy = node.path("busy");
    // A mapping beside ours in the same map, a rule in the same chain, and a table of their own; fifty commits a second at most.
    std::fs::write(
        &busy,
        "#!/bin/sh
n=0
while [ $n -lt 600 ]; do
  n=$((n + 1))
  nft add element inet other busy \"{ $n }\"
  nft add element inet sexton npl4 \"{ tcp . $((62000 + n)) : 10.10.1.3 . 80 }\"
  nft add rule ip cni_hostport hostports tcp dport $((20000 + n)) accept
  sleep 0.02
done
",
    )
    .unwrap();
    let before = ruleset(&node);
    let mut writer = node
        .spawn(["sh", busy.to_str().unwrap()], Stdio::null(), Stdio::null())
        .unwrap();
    let ran = repair(&node, &["--tier", "1", "--yes", "-o", "json"]);
    let still_busy = writer.try_wait().unwrap().is_none();
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert!(still_busy, "the writers ended before the repair");
    let all = outcomes(&ran);
    assert!(all.iter().all(|(_, outcome)| outcome == "done"), "{all:#?}");
    assert_eq!(all.len(), 6, "{all:#?}");

    let after = ruleset(&node);
    let written = |what: &str| after.matches(what).count();
    let rules = written("\t\ttcp dport 20");
    assert!(rules > 20, "{rules} rules of the writers are there");
    // The three are written one after the other: the last round may be cut short.
    assert!(
        (rules..=rules + 1).contains(&written(" : 10.10.1.3 . 80")),
        "{after}"
    );
    for line in before.lines().filter(|line| line.contains("comment")) {
        let dead = all.iter().any(|(object, _)| object.contains(line.trim()));
        // Elements share lines with their neighbours.
        if !dead && !line.contains("inet_service") && !line.contains(":npl") {
            assert!(after.contains(line.trim()), "{line} is gone");
        }
    }
    targets_work(&node, |_| true);
    node.down().unwrap();
}

/// What was taken is put back, but for what the living need by now: the port's rule stays where it is, the masquerade comes again.
#[test]
fn what_was_taken_is_put_back_where_nobody_needs_the_place() {
    needs_lab!();
    let node = node_of("undo");
    let before = snapshot(&node);
    let ran = repair(
        &node,
        &[
            "--rule",
            "hostport-stale-target",
            "--rule",
            "cni-rule-dead-sandbox",
            "--rule",
            "npl-stale-target",
            "--yes",
            "-o",
            "json",
        ],
    )
    .exits(0);
    targets_work(&node, |_| true);
    let report = ran.json();
    let journal = report["journal"].as_str().unwrap();
    let state = live::state_dir(&node).display().to_string();
    let undone = sexton(
        &node,
        &["undo", journal, "--yes", "--state-dir", &state, "-o", "json"],
    );
    assert_eq!(undone.code, 1, "{undone:?}");
    let acts = undone.json()["acts"].as_array().unwrap().clone();
    let results: Vec<(&str, &str)> = acts
        .iter()
        .map(|act| {
            let text = |key: &str| act["result"][key].as_str().unwrap_or_default();
            (text("outcome"), text("why"))
        })
        .collect();
    // Last first: two masquerades, the host port's DNAT, its own masquerade, and the mappings.
    let needed = "judged-differently";
    assert_eq!(
        results,
        [
            ("done", ""),
            ("done", ""),
            (needed, "Pod edge/ingress-1 has tcp port 8090 of this node now"),
            ("done", ""),
            (needed, "10.10.1.5 is alive and served"),
        ]
    );
    let left: Vec<String> = changes(&before, &snapshot(&node))
        .into_iter()
        .filter(|line| line[1..].starts_with(" nft") && !line.contains(" counter "))
        .filter(|line| line.contains("dnat to") || line.contains("masquerade") || line.contains("element"))
        .collect();
    let gone = left
        .iter()
        .filter(|line| line.starts_with("- ") && !line.contains("element"));
    let gone: Vec<&String> = gone.collect();
    assert_eq!(gone.len(), 1, "{left:#?}");
    assert!(
        gone[0].contains("tcp dport 8090 dnat to 10.10.1.2:80"),
        "{left:#?}"
    );
    assert_eq!(left.len(), 5, "and two mappings, replaced: {left:#?}");
    targets_work(&node, |_| true);
    node.down().unwrap();
}
