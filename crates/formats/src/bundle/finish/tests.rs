use sexton_core::model::{Completeness, NodeState};

use crate::bundle::{BundleError, BundleOptions, FileEntry, Files, MemoryFiles, VisitError, Visitor, read};

fn of(files: &[(&str, String)]) -> Result<NodeState, BundleError> {
    read(
        &mut MemoryFiles::new(files.iter().cloned()),
        &BundleOptions::default(),
    )
}

fn pod(name: &str, node: &str, ip: &str) -> String {
    format!(
        r#"{{"kind":"Pod","metadata":{{"name":"{name}","namespace":"a","uid":"{name}"}},"spec":{{"nodeName":"{node}"}},"status":{{"phase":"Running","podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}]}}}}"#
    )
}

fn pods() -> String {
    let pods = [
        pod("x", "n1", "10.1.0.1"),
        pod("y", "n1", "10.1.0.2"),
        pod("z", "n2", "10.2.0.1"),
    ];
    format!(
        r#"{{"kind":"List","items":[{}],"metadata":{{}}}}"#,
        pods.join(",")
    )
}

fn rules(targets: &[&str]) -> String {
    let rules: String = targets
        .iter()
        .enumerate()
        .map(|(i, ip)| {
            format!(
                "-A ANTREA-NODE-PORT-LOCAL -p tcp -m tcp --dport {} -j DNAT --to-destination {ip}:80\n",
                61000 + i
            )
        })
        .collect();
    format!("*nat\n:ANTREA-NODE-PORT-LOCAL - [0:0]\n{rules}COMMIT\n")
}

#[test]
fn the_rules_tell_the_node_among_those_of_the_pods() {
    let files = |targets: &[&str]| [("pods.json", pods()), ("iptables-save.txt", rules(targets))];
    for (targets, name) in [
        (&["10.1.0.1", "10.9.9.9"][..], "n1"),
        (&["10.2.0.1"], "n2"),
        // A stale target may be another node's Pod today: the most count.
        (&["10.1.0.1", "10.1.0.2", "10.2.0.1"], "n1"),
    ] {
        assert_eq!(of(&files(targets)).unwrap().identity.name, name, "{targets:?}");
    }
    for targets in [&["10.9.9.9"][..], &["10.1.0.1", "10.2.0.1"]] {
        let err = of(&files(targets)).unwrap_err().to_string();
        let expected = "nothing in the bundle tells which node it is of; its Pods are bound to n1, n2; say which one is meant";
        assert_eq!(err, expected, "{targets:?}");
    }
}

#[test]
fn what_was_asked_for_wins_over_what_the_rules_tell() {
    let files = [("pods.json", pods()), ("iptables-save.txt", rules(&["10.1.0.1"]))];
    let options = BundleOptions {
        node: Some("n2".to_owned()),
        ..BundleOptions::default()
    };
    let state = read(&mut MemoryFiles::new(files), &options).unwrap();
    assert_eq!(state.identity.name, "n2");
}

#[test]
fn recordings_of_two_nodes_are_not_mixed() {
    let meta = |node: &str| format!(r#"{{"node":"{node}"}}"#);
    let files = [
        ("a/meta.json", meta("n1")),
        ("b/node.txt", "n2\n".to_owned()),
        ("pods.json", pods()),
    ];
    let err = of(&files).unwrap_err().to_string();
    let expected = "recordings of several nodes lie in the bundle: n1 (a/meta.json), n2 (b/node.txt); put each into a bundle of its own";
    assert_eq!(err, expected);
    let same = [
        ("a/meta.json", meta("n1")),
        ("b/node.txt", "n1\n".to_owned()),
        ("pods.json", pods()),
    ];
    assert_eq!(of(&same).unwrap().identity.name, "n1");
}

/// A lease whose file has a time.
struct Leases(Vec<(&'static str, &'static str)>);

impl Files for Leases {
    fn visit(&mut self, visitor: &mut Visitor<'_>) -> Result<Vec<sexton_core::model::Unread>, VisitError> {
        for (path, time) in &self.0 {
            let entry = FileEntry {
                path: (*path).to_owned(),
                size: None,
                mtime: Some(time.parse().unwrap()),
            };
            let content: &[u8] = if path.ends_with("meta.json") {
                br#"{"node":"n1","taken_at":"2024-03-05T10:00:00Z"}"#
            } else {
                b"abc\r\neth0"
            };
            let _ = visitor(&entry, &mut &content[..]);
        }
        Ok(Vec::new())
    }
}

#[test]
fn a_file_younger_than_the_recording_has_lost_its_time() {
    let mut files = Leases(vec![
        ("cni/networks/podnet/10.0.0.1", "2024-03-05T09:59:59Z"),
        ("cni/networks/podnet/10.0.0.2", "2024-03-05T10:00:00Z"),
        ("cni/networks/podnet/10.0.0.3", "2026-11-30T00:00:00Z"),
        ("meta.json", "2026-11-30T00:00:00Z"),
    ]);
    let state = read(&mut files, &BundleOptions::default()).unwrap();
    let known: Vec<bool> = state
        .ipam
        .value
        .leases
        .iter()
        .map(|lease| lease.modified_at.is_some())
        .collect();
    assert_eq!(known, [true, true, false]);
}

#[test]
fn a_lease_that_is_none_is_named() {
    let state = of(&[
        ("cni/networks/podnet/10.0.0.1", String::new()),
        ("pods.json", pods().replace("n2", "n1")),
    ])
    .unwrap();
    let problem = &state.problems[0];
    assert_eq!(
        (problem.place.as_str(), problem.what.as_str()),
        (
            "cni/networks/podnet/10.0.0.1",
            "expected a container ID and an interface's name, found an empty file"
        )
    );
}

const CLUSTER_INFO: &str = "#nodes
items:
- metadata:
    name: n1
- metadata:
    name: n2
metadata:
  resourceVersion: \"7\"
---
#configs
items:
- data:
    a.conf: |
      ---
      #pods
metadata: {}
---
#pods
items:
- metadata:
    name: x
    namespace: a
    uid: x
  spec:
    nodeName: n1
  status:
    phase: Running
    podIPs:
    - ip: 10.1.0.1
metadata:
  resourceVersion: \"7\"
---
";

#[test]
fn clusterinfo_of_antctl_holds_lists_of_several_kinds() {
    let state = of(&[("clusterinfo", CLUSTER_INFO.to_owned())]).unwrap();
    assert_eq!(state.problems, []);
    assert_eq!(state.unread, []);
    assert_eq!(state.nodes.value.len(), 2);
    assert_eq!(state.pods.value[0].ips[0].to_string(), "10.1.0.1");
    assert!(state.pods.is_complete());
    assert_eq!(state.identity.name, "n1");
}

#[test]
fn clusterinfo_that_is_cut_off_is_partial() {
    let without_end = CLUSTER_INFO.strip_suffix("---\n").unwrap();
    let (within_items, _) = without_end.rsplit_once("metadata:").unwrap();
    for text in [without_end, within_items] {
        let files = [("node.txt", "n1\n".to_owned()), ("clusterinfo", text.to_owned())];
        let state = of(&files).unwrap();
        assert!(matches!(state.pods.completeness, Completeness::Partial(_)));
        let place = format!("clusterinfo:{}", text.lines().count());
        let what = "the text is cut off: no `---` ends its last list";
        let named = state.problems.iter().any(|p| p.place == place && p.what == what);
        assert!(named, "{:?}", state.problems);
        assert_eq!(state.pods.value.len(), 1);
    }
}

#[test]
fn yaml_that_ends_between_two_items_is_cut_off() {
    let item = |name: &str| {
        format!(
            "- metadata:\n    name: {name}\n    namespace: a\n    uid: {name}\n  spec:\n    nodeName: n1\n"
        )
    };
    let whole = format!(
        "apiVersion: v1\nitems:\n{}{}kind: List\nmetadata:\n  resourceVersion: \"\"\n",
        item("one"),
        item("two")
    );
    let all = of(&[("pods.yaml", whole.clone())]).unwrap();
    assert_eq!(all.pods.completeness.why(), None);
    let cut = &whole[..whole.find("- metadata:\n    name: two").unwrap()];
    let state = of(&[("pods.yaml", cut.to_owned())]).unwrap();
    assert_eq!(
        state.pods.completeness.why(),
        Some("pods.yaml: the YAML is cut off: no `metadata` of the list follows its items, line 9")
    );
}

#[test]
fn a_static_pod_whose_mirror_was_refused_lacks_nowhere() {
    let sandbox = r#"{"items":[{"id":"c1","metadata":{"name":"lb-n1","uid":"h1","namespace":"kube-system","attempt":0},"state":"SANDBOX_READY","createdAt":"1709632800000000000","annotations":{"kubernetes.io/config.source":"SOURCE"}}]}"#;
    for (source, complete) in [("file", true), ("api", false)] {
        let state = of(&[
            ("node.txt", "n1\n".to_owned()),
            ("pods.json", pods().replace("n2", "n1")),
            ("crictl-pods.json", sandbox.replace("SOURCE", source)),
        ])
        .unwrap();
        assert_eq!(state.pods.is_complete(), complete, "{source}");
    }
}
