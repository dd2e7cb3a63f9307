//! Repairs on a real kernel: each changes what its plan says and nothing else, and what lives answers all the while.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

mod live;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use live::{Ran, audit, changes, findings, node_with, repair, sexton, snapshot, targets_work};
use serde_json::{Value, json};
use sexton_core::judge::Judge;
use sexton_core::model::{NodeState, Timestamp};
use sexton_core::plan::{self, Choice, NftElementAt};
use sexton_core::settings::Settings;
use sexton_lab::snapshot::Snapshot;
use sexton_lab::truth::TargetPath;
use sexton_lab::{Fault, LabNode, NPL_ANNOTATION, PodSpec, Variant};

fn save(variant: Variant) -> &'static str {
    match variant {
        Variant::Nft => "iptables-nft-save",
        Variant::Legacy => "iptables-legacy-save -t nat",
    }
}

/// Makes some kinds of stale state.
fn with_faults(name: &str, variant: Variant, faults: &[Fault]) -> LabNode {
    let node = node_with(name, variant);
    for fault in faults {
        node.fault(*fault)
            .unwrap_or_else(|error| panic!("{fault:?}: {}", live::chain(&error)));
    }
    node
}

/// The lines of a snapshot's difference that a plan asks for, and how many lines nft's own listing changes by.
fn asked_for(plan: &Value, variant: Variant) -> Vec<String> {
    let mut lines = Vec::new();
    let section = save(variant);
    for step in plan["steps"].as_array().unwrap() {
        let act = &step["act"];
        match act["do"].as_str().unwrap() {
            "xt-restore" => {
                let texts = |key: &str| -> Vec<String> {
                    let all = act[key].as_array().unwrap();
                    all.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
                };
                lines.extend(texts("delete").iter().map(|line| format!("- {section}: {line}")));
                lines.extend(texts("add").iter().map(|line| format!("+ {section}: {line}")));
                let chain = |chain: &String| format!("- {section}: :{chain} -");
                lines.extend(texts("drop_chains").iter().map(chain));
            }
            "conntrack-delete" => {
                for entry in act["entries"].as_array().unwrap() {
                    let tuple = &entry["original"];
                    let text = |key: &str| tuple[key].to_string().replace('"', "");
                    lines.push(format!(
                        "- conntrack -L: udp 17 src={} dst={} sport={} dport={}",
                        text("src"),
                        text("dst"),
                        text("sport"),
                        text("dport")
                    ));
                }
            }
            "lease-quarantine" => {
                let path = act["lease"]["path"].as_str().unwrap();
                lines.push(format!("- files: {path} "));
                lines.push(format!(
                    "+ files: /var/lib/cni/.sexton-quarantine/|{}",
                    act["lease"]["container"].as_str().unwrap()
                ));
            }
            "nft-delete-element" => {
                let comment = act["element"]["comment"].as_str().unwrap();
                lines.push(format!("- nft -s list ruleset: |comment \"{comment}\""));
            }
            "nft-edit" => {
                let all = |key: &str| act[key].as_array().cloned().unwrap_or_default();
                let line = |sign: char, at: &Value| {
                    let text = at["text"].as_str().unwrap();
                    format!("{sign} nft -s list ruleset: |{text}")
                };
                lines.extend(all("delete").iter().map(|at| line('-', at)));
                for (sign, key) in [('-', "delete_elements"), ('+', "add_elements")] {
                    lines.extend(all(key).iter().map(|at| {
                        let element: NftElementAt = serde_json::from_value(at.clone()).unwrap();
                        format!(
                            "{sign} nft -s list ruleset: \t\telement {}",
                            element.element.text()
                        )
                    }));
                }
            }
            other => panic!("an act without a check: {other}"),
        }
    }
    lines
}

/// A node changed by what a plan asks for and by nothing else.
#[track_caller]
fn only_the_plan(before: &Snapshot, after: &Snapshot, plan: &Value, variant: Variant) {
    let mut seen = changes(before, after);
    let nft = |line: &String| line[1..].starts_with(" nft -s list ruleset");
    for wanted in asked_for(plan, variant) {
        let parts: Vec<&str> = wanted.split('|').collect();
        let is = |line: &String| line.starts_with(parts[0]) && parts.iter().all(|part| line.contains(part));
        let index = seen.iter().position(is);
        let index = index.unwrap_or_else(|| panic!("not changed: {wanted}\n{seen:#?}"));
        seen.remove(index);
    }
    if variant == Variant::Nft {
        // iptables-nft's rules are nft's rules too: their lines there are counted, the texts are compared above.
        let edits = |key: &str| -> usize {
            let steps = plan["steps"].as_array().unwrap().iter();
            steps
                .filter(|step| step["act"]["do"] == "xt-restore")
                .filter_map(|step| step["act"][key].as_array())
                .map(Vec::len)
                .sum()
        };
        let rules = |sign: char| {
            let is_rule = |line: &&String| line.starts_with(sign) && nft(line) && line.contains(" counter ");
            seen.iter().filter(is_rule).count()
        };
        assert_eq!(
            (rules('-'), rules('+')),
            (edits("delete"), edits("add")),
            "{seen:#?}"
        );
        seen.retain(|line| !(nft(line) && line.contains(" counter ")));
        let heads = seen
            .iter()
            .filter(|line| nft(line) && line.contains("\tchain "))
            .count();
        assert_eq!(heads, edits("drop_chains"), "{seen:#?}");
        // A chain's head, its end and the line between two chains.
        seen.retain(|line| {
            !nft(line) || !(line.contains("\tchain ") || line.trim_end().ends_with(['}', ':']))
        });
    }
    // The quarantine's own directories, and host-local's lock file being touched by nobody.
    seen.retain(|line| {
        !(line.starts_with("+ files: /var/lib/cni/.sexton-quarantine") && line.contains("/ "))
    });
    assert_eq!(seen, Vec::<String>::new(), "outside the plan");
}

fn plan_of(node: &LabNode, args: &[&str]) -> Value {
    let all: Vec<&str> = ["plan", "-o", "json"]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    sexton(node, &all).json()
}

fn outcomes(ran: &Ran) -> Vec<(String, String)> {
    let report = ran.json();
    let all = report["repaired"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.iter()
        .map(|item| (text(&item["result"]["outcome"]), text(&item["result"]["why"])))
        .collect()
}

/// The repairable rules, those first whose repair another one would do as well.
const RULES: [&str; 10] = [
    "npl-stale-target",
    "npl-missing-mapping",
    "hostport-stale-target",
    "cni-rule-dead-sandbox",
    "conntrack-hostport-stale",
    "conntrack-udp-dead-endpoint",
    "conntrack-udp-orphan-vip",
    "conntrack-undnatted-vip",
    "ipam-lease-dead-sandbox",
    "tombstone-over-live-pod",
];

fn each_rule_alone(variant: Variant) {
    let node = with_faults("alone", variant, &Fault::ALL);
    // A mapping that is announced and that nobody wrote.
    let pod = node.pod(PodSpec::new("voice", "mixer-0").tcp(7000)).unwrap();
    let entries = json!([{"podPort": 7000, "nodeIP": "172.20.0.11", "nodePort": 61020, "protocol": "tcp"}]);
    node.run([
        "iptables",
        "-w",
        "10",
        "-t",
        "nat",
        "-nL",
        "ANTREA-NODE-PORT-LOCAL",
    ])
    .unwrap();
    node.edit_pod(&pod, |object| {
        object["metadata"]["annotations"][NPL_ANNOTATION] = json!(entries.to_string());
    })
    .unwrap();
    targets_work(&node, |target| target.works);

    // Nothing without a choice, and nothing without --yes.
    let start = snapshot(&node);
    let refused = repair(&node, &["--yes"]).exits(2);
    assert!(refused.says(&["--tier 1", "--rule", "--plan"]), "{refused:?}");
    let shown = repair(&node, &["--tier", "1"]).exits(1);
    assert!(shown.says(&["Nothing was changed", "--yes"]), "{shown:?}");
    let unknown = repair(&node, &["--rule", "npl-stale", "--yes"]).exits(2);
    assert!(unknown.says(&["npl-stale-target"]), "{unknown:?}");
    let elsewhere = repair(
        &node,
        &["--tier", "1", "--namespace", "nobody", "--yes", "-o", "json"],
    )
    .exits(0);
    assert_eq!(outcomes(&elsewhere), []);
    assert_eq!(changes(&start, &snapshot(&node)), Vec::<String>::new());

    // Only the rules of iptables have another hand to write with where the variant is another.
    let alone = match variant {
        Variant::Nft => RULES.len(),
        Variant::Legacy => 4,
    };
    let (alone, together) = RULES.split_at(alone);
    let turns = alone.iter().map(std::slice::from_ref);
    for rules in turns.chain(Some(together).filter(|rest| !rest.is_empty())) {
        let rule = rules.join(", ");
        let chosen: Vec<&str> = rules.iter().flat_map(|rule| ["--rule", rule]).collect();
        let found = findings(&audit(&node, &chosen));
        for rule in rules {
            assert!(
                found.iter().any(|f| f.rule == *rule),
                "{rule} has nothing to repair"
            );
        }
        let plan = plan_of(&node, &chosen);
        let before = snapshot(&node);
        let ran = repair(&node, &[&chosen[..], &["--yes", "-o", "json"]].concat());
        let after = snapshot(&node);
        let all = outcomes(&ran);
        assert!(
            all.iter().all(|(outcome, _)| outcome == "done"),
            "{rule}: {all:#?}"
        );
        assert_eq!(all.len(), found.len(), "{rule}: {all:#?}");
        only_the_plan(&before, &after, &plan, variant);
        ran.exits(0);
        assert_eq!(findings(&audit(&node, &chosen)), [], "{rule}");
        targets_work(&node, |target| {
            target.works
                || match rules.last().copied() {
                    // What a repair of before has mended stays mended.
                    Some("npl-stale-target" | "npl-missing-mapping") => target.path == TargetPath::Npl,
                    Some("tombstone-over-live-pod") => true,
                    _ => target.path != TargetPath::Pod,
                }
        });
    }
    // Only the zombie is left, and a second repair has nothing to do.
    let left = findings(&audit(&node, &[]));
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0].rule, "zombie-sandbox");
    let before = snapshot(&node);
    let again = repair(&node, &["--tier", "1", "--yes", "-o", "json"]).exits(0);
    assert_eq!(outcomes(&again), []);
    assert_eq!(changes(&before, &snapshot(&node)), Vec::<String>::new());
    node.down().unwrap();
}

#[test]
fn each_rule_alone_changes_only_its_own_with_nft() {
    needs_lab!();
    each_rule_alone(Variant::Nft);
}

#[test]
fn each_rule_alone_changes_only_its_own_with_legacy() {
    needs_lab!();
    each_rule_alone(Variant::Legacy);
}

/// `--limit` and `--namespace` take a part; traffic is left out with `--no-probe`; `undo` puts back what nobody needs.
#[test]
fn a_part_is_repaired_and_taken_back() {
    needs_lab!();
    let node = with_faults(
        "part",
        Variant::Nft,
        &[Fault::Npl, Fault::HostPort, Fault::Leases],
    );
    let before = snapshot(&node);
    let args = ["--rule", "npl-stale-target", "--limit", "1"];
    let plan = plan_of(&node, &args);
    assert_eq!(plan["left_out"].as_array().unwrap().len(), 3);
    let ran = repair(&node, &[&args[..], &["--yes", "-o", "json"]].concat()).exits(1);
    assert_eq!(outcomes(&ran), [("done".to_owned(), String::new())]);
    let after = snapshot(&node);
    only_the_plan(&before, &after, &plan, Variant::Nft);

    // Only what belonged to one namespace, proved by reading back.
    let args = ["--tier", "1", "--namespace", "edge"];
    let plan = plan_of(&node, &args);
    let ran = repair(
        &node,
        &[&args[..], &["--no-probe", "--yes", "-o", "json"]].concat(),
    )
    .exits(0);
    assert_eq!(ran.json()["proofs"], json!([]));
    let all = outcomes(&ran);
    assert_eq!(
        all.len(),
        3,
        "its hostPort, its masquerade rule, its lease: {all:?}"
    );
    let mended = snapshot(&node);
    only_the_plan(&after, &mended, &plan, Variant::Nft);
    targets_work(&node, |target| {
        target.works || target.path == TargetPath::HostPort || target.port == 61002
    });

    // Back: the lease and the masquerade rule; the hostPort is a living Pod's.
    let report = ran.json();
    let journal = report["journal"].as_str().unwrap();
    let shown = sexton(&node, &["undo", journal]).exits(0);
    assert!(shown.says(&["Nothing was changed"]), "{shown:?}");
    assert_eq!(changes(&mended, &snapshot(&node)), Vec::<String>::new());
    let state = live::state_dir(&node).display().to_string();
    let undone = sexton(&node, &["undo", journal, "--yes", "--state-dir", &state]).exits(1);
    assert!(undone.says(&["edge/proxy-1 has tcp port 8080"]), "{undone:?}");
    let back = changes(&after, &snapshot(&node));
    let hostport: Vec<&String> = back
        .iter()
        .filter(|line| line.starts_with("- iptables-nft-save"))
        .collect();
    assert_eq!(
        hostport.len(),
        5,
        "the jump, its chain of three rules, the chain: {back:#?}"
    );
    assert!(
        hostport
            .iter()
            .all(|line| line.contains("8080") || line.contains("CNI-DN-")),
        "{hostport:#?}"
    );
    assert!(!back.iter().any(|line| line.starts_with("- files")), "{back:#?}");
    targets_work(&node, |target| {
        target.works || target.path == TargetPath::HostPort || target.port == 61002
    });
    node.down().unwrap();
}

/// The state of a node as `sexton collect` recorded it, for plans that a person could not make in time.
fn recorded(node: &LabNode) -> NodeState {
    let dir = node.path("recorded");
    std::fs::create_dir(&dir).unwrap();
    let file = dir.join("bundle.tar.gz");
    sexton(node, &["collect", "--out", file.to_str().unwrap()]).exits(0);
    node.run(["tar", "-xzf", file.to_str().unwrap(), "-C", dir.to_str().unwrap()])
        .unwrap();
    let text = std::fs::read_to_string(dir.join("sexton-state.json")).unwrap();
    let recording: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(recording["state"].clone()).unwrap()
}

fn tier_1() -> Choice {
    Choice {
        tier: Some(1),
        ..Choice::default()
    }
}

fn write_plan(path: &Path, state: &NodeState, now: Timestamp) {
    let settings = Settings::default();
    let found = Judge::new(state, None, &settings, now).all();
    let plan = plan::make(state, &found, &tier_1(), &settings, now);
    assert!(!plan.steps.is_empty());
    std::fs::write(path, serde_json::to_string(&plan).unwrap()).unwrap();
}

/// A plan that was edited, is too old, or is of another node, machine or recording is refused before anything is changed.
#[test]
fn a_plan_that_does_not_fit_is_refused() {
    needs_lab!();
    let node = with_faults("plans", Variant::Nft, &[Fault::Npl]);
    let path = node.path("plan.json");
    let file = path.to_str().unwrap();
    sexton(&node, &["plan", "--out", file]).exits(1);
    let text = std::fs::read_to_string(&path).unwrap();
    let state = recorded(&node);
    let start = snapshot(&node);
    let is_refused = |words: &[&str]| {
        for args in [&["--plan", file, "--yes"][..], &["--plan", file]] {
            let ran = repair(&node, args).exits(2);
            assert!(ran.says(words), "{words:?}: {ran:?}");
        }
        assert_eq!(
            changes(&start, &snapshot(&node)),
            Vec::<String>::new(),
            "{words:?}"
        );
    };

    let edited = text.replacen("--dport 61002", "--dport 61000", 1);
    assert_ne!(edited, text);
    std::fs::write(&path, edited).unwrap();
    is_refused(&["plan.json", "changed after it was made"]);

    let mut later: Value = serde_json::from_str(&text).unwrap();
    later["expires_at"] = json!("2999-01-01T00:00:00Z");
    std::fs::write(&path, later.to_string()).unwrap();
    is_refused(&["changed after it was made"]);

    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    is_refused(&["plan.json", "not a plan"]);
    std::fs::write(&path, "{\"steps\": []}").unwrap();
    is_refused(&["plan.json", "not a plan"]);

    let now = Timestamp::now();
    write_plan(&path, &state, now - Duration::from_secs(16 * 60));
    is_refused(&["expired at", "make a new one"]);

    let mut other = state.clone();
    other.identity.name = "worker-b".to_owned();
    other
        .pods
        .value
        .iter_mut()
        .for_each(|pod| pod.node = Some("worker-b".to_owned()));
    other
        .nodes
        .value
        .iter_mut()
        .for_each(|node| node.name = "worker-b".to_owned());
    write_plan(&path, &other, now);
    is_refused(&["worker-b", "worker-a"]);

    let mut machine = state.clone();
    let id = "0123456789abcdef0123456789abcdef".to_owned();
    machine.identity.machine_id = Some(id.clone());
    machine
        .nodes
        .value
        .iter_mut()
        .for_each(|node| node.machine_id = Some(id.clone()));
    write_plan(&path, &machine, now);
    is_refused(&[&id]);

    std::fs::remove_file(&path).unwrap();
    is_refused(&["plan.json", "cannot read the plan"]);
    assert!(
        !live::state_dir(&node).exists() || journals(&node).is_empty(),
        "a refused plan leaves no journal"
    );
    node.down().unwrap();
}

fn journals(node: &LabNode) -> Vec<std::path::PathBuf> {
    let dir = live::state_dir(node).join("journal");
    let entries = std::fs::read_dir(dir).map(|entries| entries.flatten().map(|entry| entry.path()).collect());
    entries.unwrap_or_default()
}

/// What was reviewed is carried out, and nothing that is found since; what has an owner by now is left.
#[test]
fn a_reviewed_plan_is_judged_again() {
    needs_lab!();
    let node = with_faults(
        "review",
        Variant::Nft,
        &[Fault::Npl, Fault::Leases, Fault::Conntrack],
    );
    // A mapping that nobody announces, to an address at which nobody lives.
    let free = "10.10.1.200";
    let orphan =
        format!("-A ANTREA-NODE-PORT-LOCAL -p tcp -m tcp --dport 61040 -j DNAT --to-destination {free}:80");
    let add = |line: &str| {
        node.run(
            ["iptables", "-w", "10", "-t", "nat"]
                .into_iter()
                .chain(line.split(' ')),
        )
        .unwrap();
    };
    add(&orphan);
    let path = node.path("plan.json");
    let file = path.to_str().unwrap();
    let printed = sexton(&node, &["plan", "--out", file]).exits(1);
    assert!(printed.says(&["repair --plan", "--dport 61040"]), "{printed:?}");
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();

    // Between plan and act: a new Pod gets that very address from host-local, and another stale rule appears.
    let last = node.path("var-lib-cni/networks/podnet/last_reserved_ip.0");
    let reserved = std::fs::read_to_string(&last).unwrap();
    std::fs::write(&last, "10.10.1.199").unwrap();
    let newcomer = node.pod(PodSpec::new("shop", "newcomer-0").tcp(80)).unwrap();
    assert_eq!(newcomer.ip.to_string(), free);
    std::fs::write(&last, reserved).unwrap();
    let late =
        "-A ANTREA-NODE-PORT-LOCAL -p tcp -m tcp --dport 61041 -j DNAT --to-destination 10.10.1.201:80";
    add(late);
    // One of the dead addresses is in use again by the API's word alone; no sandbox has it yet.
    let leased: Vec<&str> = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|step| step["act"]["lease"]["ip"].as_str())
        .collect();
    assert_eq!(leased.len(), 2);
    let taken = leased[0].to_owned();
    let squatter = node.pod(PodSpec::new("shop", "squatter-0").tcp(80)).unwrap();
    node.edit_pod(&squatter, |object| {
        object["status"]["podIPs"] = json!([{"ip": squatter.ip}, {"ip": taken}]);
    })
    .unwrap();

    let before = snapshot(&node);
    let ran = repair(&node, &["--plan", file, "--yes", "-o", "json"]).exits(1);
    let after = snapshot(&node);
    let report = ran.json();
    let refused: Vec<&Value> = report["repaired"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["result"]["outcome"] == "judged-differently")
        .collect();
    let objects: Vec<&str> = refused
        .iter()
        .map(|item| item["finding"]["object"].as_str().unwrap())
        .collect();
    assert_eq!(objects.len(), 2, "{refused:#?}");
    assert!(objects.contains(&orphan.as_str()), "{objects:#?}");
    assert!(
        objects
            .iter()
            .any(|object| object.contains(&format!("/{taken} "))),
        "{objects:#?}"
    );
    let done = report["repaired"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["result"]["outcome"] == "done");
    let planned: usize = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["findings"].as_array().unwrap().len())
        .sum();
    assert_eq!(done.count(), planned - 2);
    // Both rules are there, and the living one's lease too.
    for line in [orphan.as_str(), late] {
        assert!(
            after.sections["iptables-nft-save"].iter().any(|l| l == line),
            "{line}"
        );
    }
    assert!(
        !changes(&before, &after)
            .iter()
            .any(|line| line.starts_with("- files") && line.contains(&taken))
    );
    targets_work(&node, |target| target.works || target.path == TargetPath::Npl);
    // What appeared since is left for the next plan.
    assert!(
        findings(&audit(&node, &[]))
            .iter()
            .any(|found| found.text == late)
    );
    node.down().unwrap();
}

/// A writer that makes the stale rule again at once is named, and no fight begins.
#[test]
fn a_writer_that_makes_it_again_is_named() {
    needs_lab!();
    for variant in live::VARIANTS {
        let node = with_faults("writer", variant, &[Fault::Npl]);
        let stale = node
            .truth()
            .expected
            .iter()
            .find(|e| e.rule == "npl-stale-target")
            .unwrap()
            .contains[0]
            .clone();
        let rule = stale.trim_start_matches("-A ").to_owned();
        // A controller with a cache of its own, which looks ten times a second.
        let program = node.path("stubborn");
        std::fs::write(
            &program,
            format!(
                "#!/bin/sh\nwhile sleep 0.1; do iptables -w 10 -t nat -C {rule} 2>/dev/null || iptables -w 10 -t nat -A {rule}; done\n"
            ),
        )
        .unwrap();
        let mut writer = node
            .spawn(["sh", program.to_str().unwrap()], Stdio::null(), Stdio::null())
            .unwrap();
        let ran = repair(&node, &["--rule", "npl-stale-target", "--yes", "-o", "json"]);
        writer.kill().unwrap();
        writer.wait().unwrap();
        let all = outcomes(&ran);
        let back: Vec<_> = all.iter().filter(|(outcome, _)| outcome == "came-back").collect();
        assert_eq!(back.len(), 1, "{all:#?}");
        if variant == Variant::Nft {
            assert!(back[0].1.contains("iptables"), "{back:?}");
        }
        assert_eq!(
            all.iter().filter(|(outcome, _)| outcome == "done").count(),
            3,
            "{all:#?}"
        );
        ran.exits(1);
        node.down().unwrap();
    }
}
