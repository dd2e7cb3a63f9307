//! Sources that are missing, half or lying: nothing is stale because of them, and the report says what is missing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

mod live;

use std::time::{Duration, Instant};

use live::{Found, audit, findings, node, node_with, sexton, snapshot, source};
use serde_json::Value;
use sexton_lab::api::{ApiFault, Resource};
use sexton_lab::{Fault, LabNode, LabOptions, PodSpec, Variant};

/// Rules whose objects are keyed on a container ID.
const BY_CONTAINER: [&str; 3] = [
    "hostport-stale-target",
    "cni-rule-dead-sandbox",
    "ipam-lease-dead-sandbox",
];

fn with_faults(name: &str, faults: &[Fault]) -> LabNode {
    let node = node_with(name, Variant::Nft);
    for fault in faults {
        node.fault(*fault)
            .unwrap_or_else(|error| panic!("{fault:?}: {}", live::chain(&error)));
    }
    node
}

fn of<'a>(found: &'a [Found], rules: &[&str]) -> Vec<&'a Found> {
    found
        .iter()
        .filter(|f| rules.contains(&f.rule.as_str()))
        .collect()
}

#[track_caller]
fn none_stale(found: &[Found], rules: &[&str]) {
    let stale: Vec<_> = of(found, rules)
        .into_iter()
        .filter(|f| f.verdict == "stale")
        .collect();
    assert!(stale.is_empty(), "{stale:#?}");
}

/// Nothing at all would be changed on this node now.
#[track_caller]
fn repairs_nothing(found: &[Found]) {
    let acts: Vec<_> = found.iter().filter(|f| f.action == "repair").collect();
    assert!(acts.is_empty(), "{acts:#?}");
}

#[test]
fn a_runtime_that_does_not_answer_is_unavailable_and_not_empty() {
    needs_lab!();
    let node = with_faults("gap", &[Fault::Npl, Fault::HostPort, Fault::Leases]);
    let whole = findings(&audit(&node, &[]));
    assert_eq!(of(&whole, &BY_CONTAINER).len(), 7);

    node.crash_runtime();
    let before = snapshot(&node);
    let report = audit(&node, &[]);
    let (completeness, why) = source(&report, "cri");
    assert_eq!(completeness, "unavailable", "{why}");
    assert!(why.contains("containerd.sock"), "{why}");
    let found = findings(&report);
    none_stale(&found, &BY_CONTAINER);
    // The living are as unknown as the dead: every rule and lease of a container is.
    let unknown = of(&found, &BY_CONTAINER);
    assert!(
        unknown.iter().all(|f| f.verdict == "unknown"
            && (f.why_not.contains("runtime's list of sandboxes") || f.why_not.contains("somebody alive"))),
        "{unknown:#?}"
    );
    assert!(unknown.len() > 7);
    // What is keyed on an address is judged by the API, and a repair needs the runtime.
    let npl = of(&found, &["npl-stale-target"]);
    assert_eq!(npl.len(), 4);
    assert!(
        npl.iter()
            .all(|f| f.verdict == "stale" && f.action == "report" && f.why_not.contains("runtime")),
        "{npl:#?}"
    );
    repairs_nothing(&found);
    sexton(&node, &["audit", "--rule", "ipam-lease-dead-sandbox"]).exits(3);
    let ran = live::repair(&node, &["--tier", "1", "--yes", "-o", "json"]).exits(3);
    assert_eq!(ran.json()["repaired"], serde_json::json!([]));
    assert_eq!(live::changes(&before, &snapshot(&node)), Vec::<String>::new());

    // The socket file is gone as well.
    node.run(["rm", "-f", "/run/containerd/containerd.sock"]).unwrap();
    let report = audit(&node, &[]);
    assert_eq!(
        source(&report, "cri").0,
        "unavailable",
        "{:?}",
        source(&report, "cri")
    );
    none_stale(&findings(&report), &BY_CONTAINER);
    repairs_nothing(&findings(&report));

    // In the gap of a restart every look is one of the two, and never a false one.
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| node.start_runtime().unwrap());
        let mut looks = 0;
        while !starting.is_finished() || looks < 3 {
            let report = audit(&node, &[]);
            let found = findings(&report);
            if source(&report, "cri").0 == "complete" {
                let mut seen = of(&found, &BY_CONTAINER);
                seen.retain(|f| f.verdict == "stale");
                assert_eq!(seen.len(), 7, "{seen:#?}");
            } else {
                none_stale(&found, &BY_CONTAINER);
            }
            looks += 1;
        }
    });
    let mut again = findings(&audit(&node, &[]));
    let mut first = whole;
    first.sort();
    again.sort();
    assert_eq!(first, again);
    node.down().unwrap();
}

/// The ways of `platform.md` in which a runtime leaves sandboxes: killed in an ADD, a killed process, a lost store.
#[test]
fn what_a_runtime_leaves_is_judged_by_what_lives() {
    needs_lab!();
    let node = node("ways", LabOptions::default());
    let neighbour = node
        .pod(PodSpec::new("shop", "web-0").tcp(80).host_port_tcp(8088, 80))
        .unwrap();

    // Way 2: NotReady, and still listed: its DEL is to come.
    let victim = node
        .pod(PodSpec::new("shop", "victim-0").tcp(80).host_port_tcp(8089, 80))
        .unwrap();
    node.kill_sandbox(&victim).unwrap();
    node.age_files(&victim).unwrap();
    let found = findings(&audit(&node, &[]));
    assert!(found.iter().all(|f| f.verdict != "stale"), "{found:#?}");
    repairs_nothing(&found);
    // Its Pod is deleted from the API: still not ours to take.
    node.forget_pod(&victim).unwrap();
    let found = findings(&audit(&node, &[]));
    none_stale(&found, &BY_CONTAINER);

    // Way 1: the runtime killed in an ADD, the sandbox NotReady afterwards.
    let add = node
        .kill_runtime_in_add(PodSpec::new("shop", "slow-0").tcp(80).host_port_tcp(8090, 80))
        .unwrap();
    let found = findings(&audit(&node, &[]));
    assert!(found.iter().all(|f| f.verdict != "stale"), "{found:#?}");
    assert!(
        !found
            .iter()
            .any(|f| f.text.contains(&add.sandbox) && f.verdict == "stale")
    );
    repairs_nothing(&found);

    // Way 3: the store is lost. Nobody lists them, and they live: never stale.
    node.lose_store().unwrap();
    node.age_files(&neighbour).unwrap();
    let report = audit(&node, &[]);
    assert_eq!(source(&report, "cri").0, "complete");
    let found = findings(&report);
    let about =
        |f: &&Found| f.text.contains(&neighbour.sandbox) || f.text.contains(&neighbour.ip.to_string());
    assert!(
        found.iter().filter(about).all(|f| f.verdict != "stale"),
        "{found:#?}"
    );
    repairs_nothing(&found);
    // Its Pod is gone from the API too: a zombie that no source owns.
    node.forget_pod(&neighbour).unwrap();
    let found = findings(&audit(&node, &[]));
    let zombies: Vec<_> = of(&found, &["zombie-sandbox"]);
    assert_eq!(zombies.len(), 1, "{found:#?}");
    assert_eq!(
        (zombies[0].verdict.as_str(), zombies[0].action.as_str()),
        ("conflict", "report")
    );
    assert!(zombies[0].text.starts_with("net:["), "{zombies:#?}");
    assert!(
        found.iter().filter(about).all(|f| f.verdict != "stale"),
        "{found:#?}"
    );
    repairs_nothing(&found);
    let before = snapshot(&node);
    live::repair(&node, &["--tier", "1", "--yes"]);
    assert_eq!(live::changes(&before, &snapshot(&node)), Vec::<String>::new());
    node.down().unwrap();
}

/// During an ADD the container is in no list, and its lease and rules look like leftovers (law 6).
#[test]
fn an_add_that_runs_is_not_a_leftover() {
    needs_lab!();
    let node = with_faults("add", &[Fault::Leases]);
    let mut before = findings(&audit(&node, &[]));
    let add = node
        .begin_slow_add(PodSpec::new("shop", "slow-0").tcp(80).host_port_tcp(8090, 80), 8)
        .unwrap();
    let during = findings(&audit(&node, &[]));
    let its: Vec<_> = during.iter().filter(|f| f.text.contains(&add.sandbox)).collect();
    assert!(!its.is_empty(), "{during:#?}");
    assert!(
        its.iter().all(|f| f.verdict == "unknown" && f.action == "report"),
        "{its:#?}"
    );
    // What is shown to be older than any ADD stays what it is.
    let old: Vec<_> = during.iter().filter(|f| !f.text.contains(&add.sandbox)).collect();
    assert!(old.iter().all(|f| f.verdict == "stale"), "{old:#?}");
    assert_eq!(old.len(), before.len());
    // A repair in the middle of it takes those, and the ADD ends well.
    let ran = live::repair(&node, &["--tier", "1", "--yes", "-o", "json"]);
    let slow = node.finish_slow_add(add).unwrap();
    assert_eq!(
        ran.json()["repaired"].as_array().unwrap().len(),
        before.len(),
        "{ran:?}"
    );
    live::targets_work(&node, |_| true);
    assert!(snapshot(&node).holds(&["/var/lib/cni/networks/podnet", &slow.sandbox]));
    before.clear();
    assert_eq!(findings(&audit(&node, &[])), before);
    node.down().unwrap();
}

/// An API that does not tell everything: what it would have to say is unknown, and the message names it.
#[test]
fn an_api_that_fails_makes_nothing_stale() {
    needs_lab!();
    let node = with_faults("api", &Fault::ALL);
    let whole = findings(&audit(&node, &[]));
    let start = snapshot(&node);
    let by_pods = [
        "npl-stale-target",
        "npl-missing-mapping",
        "conntrack-hostport-stale",
    ];
    let by_service = [
        "conntrack-udp-dead-endpoint",
        "conntrack-udp-orphan-vip",
        "conntrack-undnatted-vip",
    ];

    let look = |name: &str, words: &[&str]| -> (Value, Vec<Found>) {
        let report = audit(&node, &[]);
        let (completeness, why) = source(&report, name);
        assert_ne!(completeness, "complete", "{name}");
        assert!(
            words.iter().all(|word| why.contains(word)),
            "{name}: {why:?} lacks {words:?}"
        );
        let found = findings(&report);
        (report, found)
    };

    // Whether a connection leads to an endpoint of its Service is told without any Pod, and a drop is over an address that
    // the runtime says is in use. All else needs the Pods, also that the runtime is the node's own (law 4).
    let without_pods = [
        "conntrack-udp-dead-endpoint",
        "conntrack-undnatted-vip",
        "tombstone-over-live-pod",
    ];
    let repairs_by_pods = |found: &[Found]| {
        let others: Vec<Found> = found
            .iter()
            .filter(|f| !without_pods.contains(&f.rule.as_str()))
            .cloned()
            .collect();
        repairs_nothing(&others);
        assert!(
            of(&others, &BY_CONTAINER)
                .iter()
                .all(|f| f.why_not.contains("Pod list"))
        );
    };

    node.api_faults().set(Resource::Pods, ApiFault::Forbidden);
    let (_, found) = look("api/pods", &["pods", "403"]);
    repairs_by_pods(&found);
    // The runtime is an identity source of its own for what is keyed on its IDs and on addresses.
    assert!(of(&found, &["zombie-sandbox"]).is_empty());
    for one in of(&found, &["npl-stale-target"]) {
        assert!(
            one.why_not.contains("Pod list") || one.why_not.contains("API's list"),
            "{one:#?}"
        );
    }
    sexton(&node, &["audit", "--rule", "npl-missing-mapping"]).exits(3);
    node.api_faults().clear();

    for resource in [Resource::Services, Resource::EndpointSlices] {
        node.api_faults().set(resource, ApiFault::Forbidden);
        let (_, found) = look(&format!("api/{}", resource.plural()), &["403"]);
        // That no Service has an address is told without their endpoints.
        let told = match resource {
            Resource::EndpointSlices => vec![by_service[0], by_service[2]],
            _ => by_service.to_vec(),
        };
        none_stale(&found, &told);
        let others = |all: &[Found]| {
            let mut some: Vec<Found> = of(all, &by_pods)
                .into_iter()
                .chain(of(all, &BY_CONTAINER))
                .cloned()
                .collect();
            some.sort();
            some
        };
        assert_eq!(others(&found), others(&whole), "the others are judged as before");
        sexton(&node, &["audit", "--rule", "conntrack-udp-dead-endpoint"]).exits(3);
        node.api_faults().clear();
    }

    node.api_faults().set(Resource::Pods, ApiFault::Cut);
    let (_, found) = look("api/pods", &[]);
    repairs_by_pods(&found);
    node.api_faults().set(Resource::Pods, ApiFault::ServerError);
    let (_, found) = look("api/pods", &["500"]);
    repairs_by_pods(&found);
    node.api_faults().clear();

    // A server that is down: said once a resource, in time.
    node.api().stop();
    let asked = Instant::now();
    let (_, found) = look("api/pods", &["Connection refused"]);
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    repairs_by_pods(&found);
    none_stale(&found, &by_service);
    let mut args = vec!["--yes", "-o", "json"];
    let chosen = by_pods.iter().chain(&by_service).chain(&BY_CONTAINER);
    chosen.for_each(|rule| args.extend(["--rule", rule]));
    let ran = live::repair(&node, &args).exits(3);
    assert_eq!(ran.json()["repaired"], serde_json::json!([]));
    node.api().resume().unwrap();

    // Nothing was changed by any of it, and all of it is seen again.
    assert_eq!(live::changes(&start, &snapshot(&node)), Vec::<String>::new());
    let mut again = findings(&audit(&node, &[]));
    let mut first = whole;
    first.sort();
    again.sort();
    assert_eq!(first, again);
    node.down().unwrap();
}

/// A list that ends early: its rest is not there to be read, so nobody is dead because of it.
#[test]
fn a_list_that_ends_early_is_not_the_whole() {
    needs_lab!();
    let node = with_faults("pages", &[Fault::Npl]);
    // More Pods than a page, elsewhere in the cluster; then the token of the second page expires.
    for n in 0..600 {
        let object = serde_json::json!({
            "metadata": {"namespace": "crowd", "name": format!("pod-{n}")},
            "spec": {"nodeName": "worker-a", "hostNetwork": true, "containers": []},
            "status": {"phase": "Running", "podIP": "172.20.0.11", "podIPs": [{"ip": "172.20.0.11"}]},
        });
        node.api().put(Resource::Pods, object);
    }
    let report = audit(&node, &[]);
    assert_eq!(source(&report, "api/pods").0, "complete");
    assert_eq!(report["summary"]["by_kind"]["pod"], 602);
    let whole = findings(&report);
    assert_eq!(of(&whole, &["npl-stale-target"]).len(), 4);

    node.api_faults().set(Resource::Pods, ApiFault::Expired);
    let report = audit(&node, &[]);
    let (completeness, why) = source(&report, "api/pods");
    if completeness != "complete" {
        assert!(!why.is_empty());
        repairs_nothing(&findings(&report));
    } else {
        // Read again without pages: the whole list, and not a part of it.
        assert_eq!(report["summary"]["by_kind"]["pod"], 602);
    }
    node.down().unwrap();
}

/// What `sexton collect` records is judged elsewhere as it was on the node.
#[test]
fn a_recording_is_judged_as_the_node_was() {
    needs_lab!();
    for variant in live::VARIANTS {
        let node = node_with("collect", variant);
        for fault in Fault::ALL {
            node.fault(fault)
                .unwrap_or_else(|error| panic!("{fault:?}: {}", live::chain(&error)));
        }
        let before = snapshot(&node);
        let on_node = audit(&node, &[]);
        let bundle = node.path("bundle.tar.gz");
        let file = bundle.to_str().unwrap();
        let said = sexton(&node, &["collect", "--out", file]).exits(0);
        assert!(said.says(&["worker-a", "audit --bundle"]), "{said:?}");
        assert_eq!(live::changes(&before, &snapshot(&node)), Vec::<String>::new());
        // Elsewhere: on this machine, outside of the node.
        let audit_outside = |args: &[&str]| {
            let output = std::process::Command::new(live::SEXTON)
                .args(["audit", "-o", "json", "--bundle", file])
                .args(args)
                .env_remove("NODE_NAME")
                .output()
                .unwrap();
            (output.status.code(), output)
        };
        let (code, output) = audit_outside(&[]);
        assert_eq!(code, Some(1), "{output:?}");
        let recorded: Value = serde_json::from_slice(&output.stdout).unwrap();
        let key = |all: &[Found]| {
            let mut keys: Vec<(String, String, String, String)> = all
                .iter()
                .map(|f| (f.id.clone(), f.rule.clone(), f.verdict.clone(), f.text.clone()))
                .collect();
            keys.sort();
            keys
        };
        let (live, there) = (findings(&on_node), findings(&recorded));
        assert_eq!(key(&live), key(&there));
        assert_eq!(
            on_node["summary"]["by_verdict"],
            recorded["summary"]["by_verdict"]
        );
        // A recording is for reading.
        repairs_nothing(&there);
        // Of another node than asked for.
        let (code, output) = audit_outside(&["--node", "worker-z"]);
        assert_eq!(code, Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("worker-z") && said.contains("worker-a"), "{said}");

        // The forms of other tools beside it say the same, as far as they reach.
        let folder = node.path("unpacked");
        std::fs::create_dir(&folder).unwrap();
        let unpacked = std::process::Command::new("tar")
            .arg("-xzf")
            .arg(&bundle)
            .arg("-C")
            .arg(&folder)
            .status();
        assert!(unpacked.unwrap().success());
        std::fs::remove_file(folder.join("sexton-state.json")).unwrap();
        let output = std::process::Command::new(live::SEXTON)
            .args(["audit", "-o", "json", "--rule", "npl-stale-target", "--bundle"])
            .arg(&folder)
            .env_remove("NODE_NAME")
            .output()
            .unwrap();
        let plain: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let mut texts: Vec<String> = findings(&plain)
            .into_iter()
            .map(|f| format!("{} {}", f.verdict, f.text))
            .collect();
        // There is no file of nftables among them.
        let mut wanted: Vec<String> = of(&live, &["npl-stale-target"])
            .into_iter()
            .filter(|f| f.text.starts_with("-A "))
            .map(|f| format!("{} {}", f.verdict, f.text))
            .collect();
        texts.sort();
        wanted.sort();
        assert_eq!(texts, wanted);
        node.down().unwrap();
    }
}
