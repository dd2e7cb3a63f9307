//! The runtime source, and what belongs to it, against a real containerd with real CNI plugins in a lab node.
//!
//! What is read is read inside the node: this program runs itself there (`inside`) and prints what it saw.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not in `#[test]` functions.

use std::path::PathBuf;

use serde_json::{Value, json};
use sexton_core::model::{Container, Facts, IpamStore, NetNs, Runtime, RuntimeKind, Sandbox, SandboxState};
use sexton_lab::{Fault, LabNode, LabOptions, PodSpec};
use sexton_linux::{Kinds, LinuxNode, LinuxOptions};

const MARK: &str = "what was seen: ";

/// Not a test of its own: run inside a lab node by the others.
#[test]
#[ignore = "runs inside a lab node"]
fn inside() {
    let state = LinuxNode::open(LinuxOptions::default())
        .unwrap()
        .observe_only(Kinds::ALL);
    fn part<T>(facts: &Facts<T>) -> Value {
        json!({"why": facts.completeness.why(), "reports": facts.reports})
    }
    let seen = json!({
        "name": state.identity.name,
        "runtime": part(&state.runtime),
        "runtimes": state.runtime.value.runtimes,
        "sandboxes": state.runtime.value.sandboxes,
        "containers": state.runtime.value.containers,
        "recorded": state.runtime.value.recorded_ids,
        "looked": state.runtime.value.looked_for_others,
        "namespaces": part(&state.namespaces),
        "netns": state.namespaces.value,
        "ipam": part(&state.ipam),
        "leases": state.ipam.value.leases,
        "cache": state.cni_cache.value,
        "config": state.cni_config.value,
        "pods": part(&state.pods),
        "pod_names": state.local_pods().map(|p| p.pod_name().to_string()).collect::<Vec<_>>(),
        "xtables": part(&state.xtables),
        "dnats": state.xtables.value.iter().flat_map(|t| t.rules()).filter(|(_, r)| r.spec.dnat.is_some()).count(),
        "problems": state.problems,
    });
    println!("{MARK}{seen}");
}

/// What was seen inside a node.
struct Seen(Value);

impl Seen {
    fn of(node: &LabNode) -> Self {
        let program = std::env::current_exe().unwrap();
        let words = ["--ignored", "--exact", "inside", "--nocapture"].map(PathBuf::from);
        let output = node.run(std::iter::once(program).chain(words)).unwrap();
        let line = output
            .stdout
            .lines()
            .find_map(|line| line.split_once(MARK))
            .unwrap();
        Self(serde_json::from_str(line.1).unwrap())
    }

    fn get<T: serde::de::DeserializeOwned>(&self, key: &str) -> T {
        serde_json::from_value(self.0[key].clone()).unwrap()
    }

    fn sandboxes(&self) -> Vec<Sandbox> {
        self.get("sandboxes")
    }

    fn why(&self, part: &str) -> Option<String> {
        self.0[part]["why"].as_str().map(str::to_owned)
    }

    fn netns_of(&self, path: &str) -> Option<NetNs> {
        let all: Vec<NetNs> = self.get("netns");
        // containerd writes `/var/run`, which is `/run`.
        let path = path.replace("/var/run/", "/run/");
        all.into_iter().find(|ns| ns.paths.contains(&path))
    }
}

fn node() -> LabNode {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = format!("/tmp/sexton-linux-{}-{number}", std::process::id());
    LabNode::up(dir, LabOptions::default()).unwrap()
}

macro_rules! lab {
    () => {
        match sexton_lab::unsupported() {
            Some(why) => return sexton_lab::skip!("{why}"),
            None => node(),
        }
    };
}

#[test]
fn a_healthy_node_is_told_whole() {
    let node = lab!();
    let pods = node
        .pods([
            PodSpec::new("shop", "web-0").tcp(8080).host_port_tcp(18080, 8080),
            PodSpec::new("shop", "web-1").tcp(8080),
        ])
        .unwrap();
    let seen = Seen::of(&node);
    assert_eq!(seen.0["name"], "worker-a");
    assert_eq!(seen.why("runtime"), None, "{}", seen.0["runtime"]);
    assert_eq!(seen.0["problems"], json!([]));
    let sandboxes = seen.sandboxes();
    assert_eq!(sandboxes.len(), 2);
    for pod in &pods {
        let sandbox = sandboxes.iter().find(|s| s.id.as_str() == pod.sandbox).unwrap();
        assert_eq!(sandbox.pod.to_string(), format!("{}/{}", pod.namespace, pod.name));
        assert_eq!(sandbox.uid.as_str(), pod.uid);
        assert_eq!(sandbox.state, SandboxState::Ready);
        assert_eq!(sandbox.ips.clone().unwrap(), [std::net::IpAddr::from(pod.ip)]);
        assert_eq!(sandbox.pid, Some(pod.pid));
        assert!(!sandbox.host_network && sandbox.created_at.is_some() && !sandbox.from_manifest);
        // The same namespace by its mount, its process and its address.
        let netns = seen.netns_of(sandbox.netns.as_ref().unwrap()).unwrap();
        assert!(netns.pids.contains(&pod.pid), "{netns:?}");
        assert_eq!(netns.ips.clone().unwrap(), [std::net::IpAddr::from(pod.ip)]);
        let leases: Vec<sexton_core::model::Lease> = seen.get("leases");
        let lease = leases.iter().find(|l| l.container == sandbox.id).unwrap();
        assert_eq!((lease.ip, lease.network.as_str()), (pod.ip.into(), "podnet"));
        let cache: Vec<sexton_core::model::CacheEntry> = seen.get("cache");
        assert!(
            cache
                .iter()
                .any(|c| c.container == sandbox.id && c.ips == [std::net::IpAddr::from(pod.ip)])
        );
    }
    assert_eq!(seen.why("namespaces"), None, "{}", seen.0["namespaces"]);
    assert_eq!(seen.why("xtables"), None);
    assert!(seen.0["dnats"].as_u64().unwrap() >= 1);
    assert_eq!(seen.why("pods"), None, "{}", seen.0["pods"]);
    let mut names: Vec<String> = seen.get("pod_names");
    names.sort();
    assert_eq!(names, ["shop/web-0", "shop/web-1"]);
    let runtimes: Vec<Runtime> = seen.get("runtimes");
    assert_eq!(runtimes.len(), 1, "{runtimes:?}");
    assert_eq!(runtimes[0].kind, RuntimeKind::Cri);
    assert!(
        runtimes[0].read && runtimes[0].note.contains("containerd"),
        "{runtimes:?}"
    );
    assert_eq!(seen.0["looked"], true);
    // Nothing is being made.
    assert_eq!(seen.0["recorded"], json!([]), "{}", seen.0["recorded"]);
}

#[test]
fn the_gap_of_a_restart_is_unavailable_and_not_empty() {
    let node = lab!();
    let pod = node.pod(PodSpec::new("shop", "web-0").tcp(8080)).unwrap();
    node.crash_runtime();
    let seen = Seen::of(&node);
    let reports = seen.0["runtime"]["reports"].to_string();
    assert!(reports.contains("unavailable"), "{reports}");
    assert!(seen.sandboxes().is_empty());
    // What does not need the runtime is there all the same.
    assert_eq!(seen.0["leases"].as_array().unwrap().len(), 1);
    let all: Vec<NetNs> = seen.get("netns");
    assert!(all.iter().any(|ns| ns.pids.contains(&pod.pid)));

    node.start_runtime().unwrap();
    let seen = Seen::of(&node);
    assert_eq!(seen.why("runtime"), None, "{}", seen.0["runtime"]);
    let sandboxes = seen.sandboxes();
    assert_eq!(
        (sandboxes[0].id.as_str(), sandboxes[0].state),
        (pod.sandbox.as_str(), SandboxState::Ready)
    );
}

#[test]
fn an_add_in_flight_is_recorded_and_not_listed() {
    let node = lab!();
    let add = node
        .begin_slow_add(PodSpec::new("shop", "slow-0").tcp(8080), 3)
        .unwrap();
    let seen = Seen::of(&node);
    assert_eq!(seen.why("runtime"), None, "{}", seen.0["runtime"]);
    assert!(seen.sandboxes().iter().all(|s| s.id.as_str() != add.sandbox));
    let leases: Vec<sexton_core::model::Lease> = seen.get("leases");
    assert!(leases.iter().any(|l| l.container.as_str() == add.sandbox));
    let recorded: Vec<String> = seen.get("recorded");
    assert!(recorded.contains(&add.sandbox), "{recorded:?}");
    let pod = node.finish_slow_add(add).unwrap();
    let seen = Seen::of(&node);
    assert!(seen.sandboxes().iter().any(|s| s.id.as_str() == pod.sandbox));
    assert_eq!(seen.0["recorded"], json!([]));
}

#[test]
fn a_runtime_killed_in_an_add_lists_the_sandbox_as_not_ready() {
    let node = lab!();
    let add = node
        .kill_runtime_in_add(PodSpec::new("shop", "slow-0").tcp(8080))
        .unwrap();
    let seen = Seen::of(&node);
    assert_eq!(seen.why("runtime"), None, "{}", seen.0["runtime"]);
    let sandboxes = seen.sandboxes();
    let sandbox = sandboxes.iter().find(|s| s.id.as_str() == add.sandbox).unwrap();
    assert_eq!(sandbox.state, SandboxState::NotReady);
}

#[test]
fn a_killed_sandbox_is_not_ready_and_a_lost_store_is_a_list_of_nobody() {
    let node = lab!();
    let pods = node
        .pods([
            PodSpec::new("shop", "web-0").tcp(8080),
            PodSpec::new("shop", "web-1").tcp(8080),
        ])
        .unwrap();
    node.kill_sandbox(&pods[0]).unwrap();
    let seen = Seen::of(&node);
    let state = |seen: &Seen, id: &str| {
        let sandboxes = seen.sandboxes();
        sandboxes.iter().find(|s| s.id.as_str() == id).map(|s| s.state)
    };
    assert_eq!(state(&seen, &pods[0].sandbox), Some(SandboxState::NotReady));
    assert_eq!(state(&seen, &pods[1].sandbox), Some(SandboxState::Ready));
    let dead = seen.netns_of(&pods[0].netns.display().to_string()).unwrap();
    assert!(!dead.has_process(), "{dead:?}");
    assert_eq!(dead.ips.unwrap().len(), 1, "its kernel still holds the address");

    node.lose_store().unwrap();
    let seen = Seen::of(&node);
    assert_eq!(seen.why("runtime"), None, "{}", seen.0["runtime"]);
    assert!(seen.sandboxes().is_empty());
    let alive = seen.netns_of(&pods[1].netns.display().to_string()).unwrap();
    assert!(
        alive.pids.contains(&pods[1].pid),
        "a zombie that no source owns, and alive: {alive:?}"
    );
}

#[test]
fn an_id_that_no_runtime_knows_is_in_no_list() {
    let node = lab!();
    node.fault(Fault::Leases).unwrap();
    let truth = node.truth();
    let seen = Seen::of(&node);
    assert_eq!(seen.why("runtime"), None, "{}", seen.0["runtime"]);
    let listed: Vec<String> = seen
        .sandboxes()
        .iter()
        .map(|s| s.id.as_str().to_owned())
        .collect();
    let containers: Vec<Container> = seen.get("containers");
    let recorded: Vec<String> = seen.get("recorded");
    let store = IpamStore {
        leases: seen.get("leases"),
        corrupt: Vec::new(),
    };
    let unknown = store.leases.iter().filter(|lease| {
        let id = lease.container.as_str().to_owned();
        !listed.contains(&id)
            && !recorded.contains(&id)
            && !containers.iter().any(|c| c.id == lease.container)
    });
    let expected = truth
        .expected
        .iter()
        .filter(|e| e.rule == "ipam-lease-dead-sandbox")
        .count();
    assert!(expected > 0);
    assert_eq!(unknown.count(), expected);
}

#[test]
fn other_runtimes_and_namespaces_are_seen() {
    let node = lab!();
    let pod = node.pod(PodSpec::new("shop", "web-0").tcp(8080)).unwrap();
    // A namespace of its own, a container that CRI does not know, and a daemon that only has a process.
    let ctr = |words: &str| node.run(["sh", "-c", &format!("ctr {words}")]).unwrap();
    ctr("namespaces create build");
    ctr("-n k8s.io run -d lab.test/pause:1 stray /bin/sleep 600");
    node.run([
        "sh",
        "-c",
        "cp /bin/sleep /run/dockerd && (/run/dockerd 600 >/dev/null 2>&1 & ) && sleep 0.1",
    ])
    .unwrap();
    let seen = Seen::of(&node);
    let runtimes: Vec<Runtime> = seen.get("runtimes");
    let get = |kind: RuntimeKind| {
        runtimes
            .iter()
            .find(|r| r.kind == kind)
            .unwrap_or_else(|| panic!("{runtimes:?}"))
    };
    let build = get(RuntimeKind::Containerd);
    assert!(
        build.read && build.note.contains("namespace build"),
        "{runtimes:?}"
    );
    let docker = get(RuntimeKind::Docker);
    assert!(!docker.read && docker.seen_at.contains("dockerd"), "{runtimes:?}");
    let containers: Vec<Container> = seen.get("containers");
    let stray = containers.iter().find(|c| c.id.as_str() == "stray").unwrap();
    assert!(stray.running && stray.sandbox.is_none());
    assert!(seen.sandboxes().iter().any(|s| s.id.as_str() == pod.sandbox));
    ctr("-n k8s.io tasks kill -s 9 stray");
}
