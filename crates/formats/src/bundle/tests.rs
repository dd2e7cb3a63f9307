use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use sexton_core::model::{
    Completeness, CtTuple, Dnat, Family, NftState, NplAnnotation, PortRange, Proto, XtMatch, XtRule,
    XtVariant,
};

use super::*;

/// A folder as a bundle.
struct Folder(PathBuf);

impl Files for Folder {
    fn visit(&mut self, visitor: &mut Visitor<'_>) -> Result<Vec<Unread>, VisitError> {
        let mut paths = Vec::new();
        walk(&self.0, &mut paths);
        for path in paths {
            let entry = FileEntry {
                path: path.strip_prefix(&self.0).unwrap().to_str().unwrap().to_owned(),
                size: None,
                mtime: None,
            };
            if visitor(&entry, &mut fs::File::open(path).unwrap()).is_break() {
                break;
            }
        }
        Ok(Vec::new())
    }
}

fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            walk(&path, out);
        } else {
            out.push(path);
        }
    }
}

fn case(name: &str) -> NodeState {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scenario = root.join("../../scenarios").join(name);
    let folder = if scenario.is_dir() {
        scenario
    } else {
        root.join("tests/data").join(name)
    };
    read(&mut Folder(folder), &BundleOptions::default()).unwrap()
}

fn of(files: &[(&str, &str)]) -> Result<NodeState, BundleError> {
    read(
        &mut MemoryFiles::new(files.iter().copied()),
        &BundleOptions::default(),
    )
}

/// What a state holds, in a form to compare; parts that the bundle does not have are left out.
fn summary(state: &NodeState) -> String {
    let mut out = format!(
        "node {} at {}\n",
        state.identity.name,
        state.taken_at.map_or_else(String::new, |at| at.to_string())
    );
    let reports = state.source_reports();
    for report in reports
        .iter()
        .filter(|report| report.completeness.why() != Some("not in the bundle"))
    {
        let _ = write!(out, "{}: {} items", report.name, report.items);
        if let Some(why) = report.completeness.why() {
            let _ = write!(out, ", not complete: {why}");
        }
        out.push('\n');
    }
    for unread in &state.unread {
        let _ = writeln!(out, "unread {}: {}", unread.path, unread.why);
    }
    for problem in &state.problems {
        let _ = writeln!(out, "problem {}: {}", problem.place, problem.what);
    }
    out
}

#[test]
fn case_npl_stale_8port() {
    let state = case("npl-stale-8port");
    assert_eq!(
        summary(&state),
        "node worker-a at 2026-11-30T16:19:15Z
pods.json (taken as all Pods of the node): 1 items
services.json: 1 items
nodes.json: 2 items
ip6tables-save.txt: 0 items
iptables-save.txt: 10 items
nft.json: 1 items
nft.txt: 1 items
conntrack.txt: 9 items
"
    );
    // After the one of ip6tables-save.txt.
    let nat = &state.xtables.value[1];
    assert_eq!(
        (nat.variant, nat.family, nat.name.as_str()),
        (XtVariant::Nft, Family::Ipv4, "nat")
    );
    let line =
        "-A ANTREA-NODE-PORT-LOCAL -p udp -m udp --dport 61008 -j DNAT --to-destination 10.10.1.40:5067";
    assert_eq!(
        nat.chain("ANTREA-NODE-PORT-LOCAL").unwrap().rules[7],
        XtRule {
            line: line.to_owned(),
            counters: None,
            spec: XtMatch {
                proto: Some(Proto::Udp),
                dports: vec![PortRange::one(61008)],
                target: Some("DNAT".to_owned()),
                dnat: Some(Dnat {
                    ip: "10.10.1.40".parse().unwrap(),
                    port: Some(5067)
                }),
                ..XtMatch::default()
            },
        }
    );
    let pod = &state.pods.value[0];
    let NplAnnotation::Entries(entries) = &pod.npl else {
        panic!("{:?}", pod.npl)
    };
    assert_eq!(
        (
            pod.pod_name().to_string().as_str(),
            entries.len(),
            pod.ports.len()
        ),
        ("voice/relay-1", 8, 8)
    );
    assert_eq!(state.conntrack.value.udp, 5);
    assert_eq!(
        state.conntrack.value.entries[8].reply,
        CtTuple {
            src: "10.10.1.40".parse().unwrap(),
            dst: "172.20.0.200".parse().unwrap(),
            sport: 5067,
            dport: 41008
        }
    );
}

#[test]
fn case_npl_healthy() {
    assert_eq!(
        summary(&case("npl-healthy")),
        "node worker-a at 2026-11-30T16:12:23Z
pods.json (taken as all Pods of the node): 1 items
services.json: 1 items
nodes.json: 2 items
ip6tables-save.txt: 0 items
iptables-save.txt: 10 items
nft.json: 1 items
nft.txt: 1 items
conntrack.txt: 8 items
"
    );
}

#[test]
fn case_portmap_hostport_stale() {
    let state = case("portmap-hostport-stale");
    assert_eq!(
        summary(&state),
        "node node-3 at 2026-08-21T15:30:00Z
pods.json (taken as all Pods of the node): 2 items
crictl-pods.json: 2 items
iptables-save.txt: 13 items
cni/results: 2 items
"
    );
    let rules: Vec<_> = state.xtables.value[0]
        .rules()
        .map(|(_, rule)| rule.counters)
        .collect();
    assert_eq!(
        rules[..3],
        [Some((5103, 301_882)), Some((71, 4260)), Some((40119, 2_402_413))]
    );
    assert_eq!(
        state.cni_cache.value[1].pod,
        Some(state.runtime.value.sandboxes[0].pod.clone())
    );
}

#[test]
fn case_conntrack_udp_stale() {
    let state = case("conntrack-udp-stale");
    assert_eq!(
        summary(&state),
        "node node-8 at 2026-08-24T05:12:30Z
pods.json (taken as all Pods of the node): 2 items
services.json: 1 items
endpointslices.json: 1 items
nodes.json: 1 items
crictl-pods.json: 2 items
conntrack.txt: 4 items
cni/results: 2 items
"
    );
    assert_eq!(state.endpoint_slices.value[0].endpoints, []);
    assert_eq!(state.endpoint_slices.value[0].service.as_deref(), Some("statsd"));
    assert_eq!(state.services.value[0].ports[0].proto, Proto::Udp);
}

#[test]
fn cases_of_windows_nodes_are_read_as_far_as_rules_go() {
    const WHY: &str = "state of a Windows node: no rule of this version judges it";
    let unread = |names: &[&str]| {
        names
            .iter()
            .map(|name| format!("unread {name}: {WHY}\n"))
            .collect::<String>()
    };
    assert_eq!(
        summary(&case("i1-rst-loop-pktmon")),
        "node akswnp00002f at 2026-08-18T07:12:30Z
pods.json (taken as all Pods of the node): 4 items
services.json: 1 items
crictl-pods.json: 3 items
azure-vnet-ipam.json: 64 items
nic.json: 65 items
hns-endpoints.json: 3 items
pktmon.txt: 2015 items
counters.csv: 5 items
"
        .to_owned()
            + &unread(&["hns-networks.json"])
    );
    assert_eq!(
        summary(&case("i2-leaked-network")),
        "node akswswft000001 at 2026-08-27T10:05:00Z
pods.json (taken as all Pods of the node): 3 items
crictl-pods.json: 2 items
azure-vnet.log: 1 items
interfaceinfo.xml: 5 items
hns-endpoints.json: 3 items
"
        .to_owned()
            + &unread(&["azure-endpoints.json", "azure-vnet.json", "hns-networks.json",])
    );
}

/// A Pod list of (namespace, name, uid, node).
fn pods(pods: &[(&str, &str, &str, &str)]) -> String {
    let items: Vec<_> = pods
        .iter()
        .map(|(namespace, name, uid, node)| {
            format!(
                r#"{{"metadata": {{"namespace": "{namespace}", "name": "{name}", "uid": "{uid}"}}, "spec": {{"nodeName": "{node}"}}}}"#
            )
        })
        .collect();
    format!(r#"{{"kind": "PodList", "items": [{}]}}"#, items.join(","))
}

/// `crictl pods` of (namespace, name, uid, ready).
fn sandboxes(sandboxes: &[(&str, &str, &str, bool)]) -> String {
    let items: Vec<_> = sandboxes
        .iter()
        .enumerate()
        .map(|(index, (namespace, name, uid, ready))| {
            let state = if *ready { "SANDBOX_READY" } else { "SANDBOX_NOTREADY" };
            format!(
                r#"{{"id": "{index:064x}", "metadata": {{"namespace": "{namespace}", "name": "{name}", "uid": "{uid}", "attempt": 0}}, "state": "{state}", "createdAt": "1787423901348680654"}}"#
            )
        })
        .collect();
    format!(r#"{{"items": [{}]}}"#, items.join(","))
}

fn pods_why(files: &[(&str, &str)]) -> Option<String> {
    of(files).unwrap().pods.completeness.why().map(str::to_owned)
}

#[test]
fn a_deleted_pod_whose_sandbox_lives_leaves_the_list_complete() {
    let list = pods(&[
        ("a", "x", "u1", "n1"),
        ("a", "y", "u2", "n1"),
        ("b", "z", "u3", "n1"),
    ]);
    for zombie in [
        ("a", "gone", "u9", true),
        // Made again under its name.
        ("a", "x", "u8", true),
        // Its namespace went too: a list of several namespaces is one of all.
        ("c", "gone", "u9", true),
        // Its end is known.
        ("c", "gone", "u9", false),
    ] {
        let cri = sandboxes(&[
            ("a", "x", "u1", true),
            ("a", "y", "u2", true),
            ("b", "z", "u3", true),
            zombie,
        ]);
        assert_eq!(
            pods_why(&[("pods.json", &list), ("crictl-pods.json", &cri)]),
            None,
            "{zombie:?}"
        );
    }
}

#[test]
fn a_list_of_one_namespace_is_not_all() {
    let list = pods(&[("a", "x", "u1", "n1")]);
    let cri = sandboxes(&[("a", "x", "u1", true), ("kube-system", "dns", "u2", true)]);
    assert_eq!(
        pods_why(&[("pods.json", &list), ("crictl-pods.json", &cri)]).unwrap(),
        "it holds Pods of namespace a only, and lacks the Pod of ready sandbox kube-system/dns"
    );
    let cri = sandboxes(&[("a", "x", "u1", true), ("kube-system", "dns", "u2", false)]);
    assert_eq!(
        pods_why(&[("pods.json", &list), ("crictl-pods.json", &cri)]),
        None
    );
    // Without a runtime a cached result is the witness.
    let cache = r#"{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"n","cniArgs":[["K8S_POD_NAMESPACE","b"],["K8S_POD_NAME","y"],["K8S_POD_UID","u7"]],"result":{"cniVersion":"0.4.0","ips":[{"address":"10.0.0.3/24"}]}}"#;
    assert_eq!(
        pods_why(&[("pods.json", &list), ("cni/results/n-c1-eth0", cache)]).unwrap(),
        "it holds Pods of namespace a only, and lacks the Pod of cached CNI result b/y"
    );
}

#[test]
fn many_lacking_pods_are_no_deletions() {
    let list = pods(&[("a", "x", "u1", "n1"), ("b", "y", "u2", "n1")]);
    let mut named = vec![("a", "x", "u1", true), ("b", "y", "u2", true)];
    named.extend([("a", "l1", "u3", true), ("a", "l2", "u4", true)]);
    assert_eq!(
        pods_why(&[("pods.json", &list), ("crictl-pods.json", &sandboxes(&named))]),
        None
    );
    named.push(("b", "l3", "u5", true));
    assert_eq!(
        pods_why(&[("pods.json", &list), ("crictl-pods.json", &sandboxes(&named))]).unwrap(),
        "it lacks 3 of the 5 Pods that the runtime names, such as that of ready sandbox a/l1: too many for deletions"
    );
}

#[test]
fn a_manifest_without_its_mirror_makes_the_list_partial() {
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: etcd\n  namespace: kube-system\nspec:\n  containers: []\n";
    let path = "etc/kubernetes/manifests/etcd.yaml";
    let meta = ("meta.json", r#"{"node": "n1"}"#);
    let with = pods(&[("kube-system", "etcd-n1", "u1", "n1")]);
    assert_eq!(pods_why(&[meta, ("pods.json", &with), (path, manifest)]), None);
    let without = pods(&[("kube-system", "dns", "u1", "n1")]);
    assert_eq!(
        pods_why(&[meta, ("pods.json", &without), (path, manifest)]).unwrap(),
        "it lacks the static Pods kube-system/etcd of etc/kubernetes/manifests/etcd.yaml"
    );
}

#[test]
fn a_list_of_another_node_is_not_all() {
    let list = pods(&[("a", "x", "u1", "n2")]);
    assert_eq!(
        pods_why(&[("node.txt", "n1\n"), ("pods.json", &list)]).unwrap(),
        "every Pod in it is bound to node n2, none to n1"
    );
}

#[test]
fn the_node_is_told_or_inferred() {
    let name = |files: &[(&str, &str)]| of(files).unwrap().identity.name;
    let two = pods(&[("a", "x", "u1", "n1"), ("b", "y", "u2", "n2")]);
    let nodes = r#"{"kind": "NodeList", "items": [{"metadata": {"name": "n3"}}]}"#;
    let cri = sandboxes(&[("a", "x", "u1", true), ("b", "y", "u2", false)]);
    assert!(matches!(
        of(&[("pods.json", &two)]),
        Err(BundleError::Nameless { nodes }) if nodes == ["n1", "n2"]
    ));
    assert_eq!(name(&[("pods.json", &two), ("crictl-pods.json", &cri)]), "n1");
    assert_eq!(name(&[("pods.json", &two), ("nodes.json", nodes)]), "n3");
    assert_eq!(name(&[("pods.json", &pods(&[("a", "x", "u1", "n2")]))]), "n2");
    assert_eq!(
        name(&[
            ("x/node.txt", "node: n9\ntaken_at: 2026-01-01T00:00:00Z\n"),
            ("pods.json", &two)
        ]),
        "n9"
    );
    assert_eq!(
        name(&[
            ("meta.json", r#"{"node": "n8"}"#),
            ("pods.json", &two),
            ("crictl-pods.json", &cri)
        ]),
        "n8"
    );
}

#[test]
fn a_bundle_of_another_node_is_refused() {
    let two = pods(&[("a", "x", "u1", "n1"), ("b", "y", "u2", "n2")]);
    let cri = sandboxes(&[("a", "x", "u1", true)]);
    let ask = |files: &[(&str, &str)], node: &str| {
        let options = BundleOptions {
            node: Some(node.to_owned()),
            ..BundleOptions::default()
        };
        read(&mut MemoryFiles::new(files.iter().copied()), &options)
    };
    let err = ask(&[("meta.json", r#"{"node": "n8"}"#), ("pods.json", &two)], "n1").unwrap_err();
    assert_eq!(
        err.to_string(),
        r#"the bundle is of node "n8" (meta.json), not of "n1""#
    );
    let err = ask(&[("pods.json", &two), ("crictl-pods.json", &cri)], "n2").unwrap_err();
    assert_eq!(
        err.to_string(),
        r#"the bundle is of node "n1" (the Pods of its sandboxes are bound to it), not of "n2""#
    );
    // Nothing contradicts it.
    assert_eq!(ask(&[("pods.json", &two)], "n2").unwrap().identity.name, "n2");
}

#[test]
fn what_cannot_be_read_is_said_and_the_rest_is_used() {
    let state = of(&[
        (
            "pods.json",
            r#"{"items": [{"kind": "Pod", "metadata": {"name": "a", "namespace": "x"}}, {"kind"#,
        ),
        (
            "services.json",
            "Error from server (Forbidden): services is forbidden",
        ),
        (
            "iptables-save.txt",
            "*nat\n:X - [0:0]\n-A X -m quux --quux 1 -j Y\n-A X -j\nCOMMIT\n",
        ),
        ("ip6tables-save.txt", ""),
        ("conntrack.txt", "udp 17 29 src=10.0.0.1\n"),
        ("notes.md", "hello"),
        ("meta.json", "{"),
        ("expected.json", "{}"),
    ])
    .unwrap();
    assert_eq!(
        summary(&state),
        "node  at 
pods.json (taken as all Pods of the node): 1 items, not complete: the JSON is cut off (EOF while parsing a string), line 1 column 79
services.json: 0 items, not complete: not a Kubernetes list
iptables-save.txt: 1 items, not complete: lines that could not be read: 1
ip6tables-save.txt: 0 items, not complete: the text holds no table: either none exists or the command failed
conntrack.txt: 0 items, not complete: lines that could not be read: 1
unread notes.md: neither its name nor its content says what it is
unread meta.json: not the JSON that was expected: EOF while parsing an object at line 1 column 1
problem pods.json:1:79: the JSON is cut off (EOF while parsing a string); 1 items before it are used
problem services.json:1: not a Kubernetes list; it begins with \"Error from server (Forbidden): services is forbidden\"
problem iptables-save.txt:4: left out: option -j has no value: -A X -j
problem meta.json:1:1: expected node and taken_at: EOF while parsing an object at line 1 column 1
problem conntrack.txt:1: left out: expected src= and dst= in both directions: udp 17 29 src=10.0.0.1
"
    );
    assert_eq!(state.xtables.value[0].rules().count(), 1);
    assert!(matches!(state.xtables.completeness, Completeness::Partial(_)));
    assert_eq!(
        state.nft.completeness,
        Completeness::Unavailable("not in the bundle".to_owned())
    );
}

#[test]
fn a_list_that_was_cut_by_a_limit_is_partial() {
    let list = r#"{"kind": "PodList", "metadata": {"continue": "t", "remainingItemCount": 5}, "items": []}"#;
    assert_eq!(
        pods_why(&[("pods.json", list)]).unwrap(),
        "pods.json: the list was cut by a limit: its continue token is set and 5 more items remain"
    );
}

#[test]
fn entries_are_kept_by_what_the_rest_of_the_state_says() {
    let line = |n: u16| {
        format!(
            "udp 17 29 src=10.0.0.{n} dst=10.9.9.9 sport=1 dport=2 src=10.9.9.9 dst=10.0.0.{n} sport=2 dport=1 use=1\n"
        )
    };
    let text: String = (1..=9).map(line).collect();
    // The table comes before the Pods.
    let files = [
        ("a-conntrack.txt", text.as_str()),
        ("conntrack.txt", text.as_str()),
        ("pods.json", &pods(&[("a", "x", "u1", "n1")])),
    ];
    let options = BundleOptions {
        keep: Some(Box::new(|state| {
            let pods = state.pods.value.len();
            Box::new(move |entry| pods == 1 && entry.original.src.to_string() == "10.0.0.7")
        })),
        ..BundleOptions::default()
    };
    let state = read(&mut MemoryFiles::new(files), &options).unwrap();
    let table = &state.conntrack.value;
    assert_eq!(
        (table.udp, table.entries.len(), table.accounting),
        (18, 2, Some(false))
    );
    assert_eq!(state.conntrack.reports.len(), 2);
}

#[test]
fn utf16_crlf_and_gzip_are_no_difference() {
    use std::io::Write as _;
    let plain = case("portmap-hostport-stale");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/portmap-hostport-stale");
    let mut files = Vec::new();
    Folder(root)
        .visit(&mut |entry, reader| {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            if !entry.path.contains("cni/") {
                text = text.replace('\n', "\r\n");
            }
            let units = [0xfeff].into_iter().chain(text.encode_utf16());
            let bytes: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&bytes).unwrap();
            files.push((entry.path.clone(), gzip.finish().unwrap()));
            ControlFlow::Continue(())
        })
        .unwrap();
    let state = read(&mut MemoryFiles::new(files), &BundleOptions::default()).unwrap();
    assert_eq!(summary(&state), summary(&plain));
    assert_eq!(state.pods.value, plain.pods.value);
    assert_eq!(state.xtables.value, plain.xtables.value);
    assert_eq!(state.runtime.value, plain.runtime.value);
    assert_eq!(state.cni_cache.value, plain.cni_cache.value);
}

#[test]
fn one_table_in_two_files_is_one() {
    let text = "# Generated by iptables-save v1.8.9 (nf_tables) on Mon Nov 30 16:19:15 2026\n*nat\n:X - [0:0]\n-A X -j Y\nCOMMIT\n";
    let state = of(&[
        ("a/iptables-save.txt", text),
        ("b/iptables", text),
        ("c/ip6tables-save.txt", &text.replace("iptables", "ip6tables")),
    ])
    .unwrap();
    assert_eq!(state.xtables.value.len(), 2);
    assert_eq!(
        state.problems,
        [problem(
            "b/iptables",
            "table nat was read from a/iptables-save.txt already; this copy is left out"
        )]
    );
}

#[test]
fn legacy_tables_beside_that_are_not_in_the_bundle_are_lacking() {
    let nft = "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n# Generated by iptables-save v1.8.9 (nf_tables) on Mon Nov 30 16:19:15 2026\n*nat\nCOMMIT\n";
    let legacy = "# Generated by iptables-save v1.8.9 on Mon Nov 30 16:19:15 2026\n*nat\nCOMMIT\n";
    let state = of(&[("iptables-save.txt", nft)]).unwrap();
    assert_eq!(
        state.xtables.completeness.why(),
        Some("iptables-save.txt: tables of iptables-legacy exist beside these and are not in the bundle")
    );
    let state = of(&[("iptables-save.txt", nft), ("iptables-legacy-save.txt", legacy)]).unwrap();
    assert!(state.xtables.is_complete());
    assert_eq!(state.xtables.value.len(), 2);
}

#[test]
fn limits_are_told_and_the_rest_is_partial() {
    let text = format!("*nat\n:X - [0:0]\n{}COMMIT\n", "-A X -j Y\n".repeat(1000));
    let list = pods(&[("a", "x", "u1", "n1")]);
    let read_with = |limits: Limits| {
        let files = [("iptables-save.txt", text.as_str()), ("pods.json", list.as_str())];
        read(
            &mut MemoryFiles::new(files),
            &BundleOptions {
                limits,
                ..BundleOptions::default()
            },
        )
        .unwrap()
    };
    let state = read_with(Limits {
        file: 5000,
        ..Limits::default()
    });
    assert_eq!(
        state.xtables.completeness.why(),
        Some("iptables-save.txt: the text is cut off: more than 5000 bytes when decompressed (one file)")
    );
    assert!(state.pods.is_complete());
    let state = read_with(Limits {
        total: 5000,
        ..Limits::default()
    });
    assert!(state.pods.reports.is_empty());
    assert_eq!(
        state.problems.last().unwrap(),
        &problem(
            "the bundle",
            "was not read to its end: it holds more than 5000 bytes"
        )
    );
    let state = read_with(Limits {
        files: 1,
        ..Limits::default()
    });
    assert!(
        state
            .xtables
            .completeness
            .why()
            .unwrap()
            .contains("it holds more than 1 files")
    );
}

#[test]
fn a_bundle_of_nothing_is_an_error() {
    let err = of(&[("notes.md", "hello")]).unwrap_err();
    assert_eq!(
        err.to_string(),
        "the bundle holds no file that is known here (notes.md: neither its name nor its content says what it is)"
    );
    assert!(of(&[]).is_err());
}

#[test]
fn an_archive_inside_of_an_archive_is_read() {
    use std::io::{Cursor, Write as _};
    let tar = |files: &[(&str, &[u8])]| {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, path, *content).unwrap();
        }
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&builder.into_inner().unwrap()).unwrap();
        gzip.finish().unwrap()
    };
    let deep = tar(&[("services.json", b"{}")]);
    let inner = tar(&[
        ("pods.json", pods(&[("a", "x", "u1", "n1")]).as_bytes()),
        ("deep.tgz", &deep),
    ]);
    let outer = tar(&[
        ("node.txt", b"n1"),
        ("sub/inner.tar.gz", &inner),
        ("other.tar", b"no tar"),
    ]);
    let state = read(
        &mut Archive::new(Cursor::new(outer), Limits::default()),
        &BundleOptions::default(),
    )
    .unwrap();
    assert_eq!(
        summary(&state),
        "node n1 at 
sub/inner.tar.gz/pods.json (taken as all Pods of the node): 1 items
unread sub/inner.tar.gz/deep.tgz: an archive inside of an archive of the bundle
unread other.tar: not an archive that is known here (expected tar, tar.gz or zip)
problem sub/inner.tar.gz/deep.tgz: refused: an archive inside of an archive of the bundle
problem other.tar: refused: not an archive that is known here (expected tar, tar.gz or zip)
"
    );
}

#[test]
fn a_cut_archive_makes_everything_partial() {
    use std::io::Cursor;
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in [
        ("pods.json", pods(&[("a", "x", "u1", "n1")])),
        ("nodes.json", " ".repeat(2000)),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder
            .append_data(&mut header, path, content.as_bytes())
            .unwrap();
    }
    let mut bytes = builder.into_inner().unwrap();
    bytes.truncate(bytes.len() - 2000);
    let state = read(
        &mut Archive::new(Cursor::new(bytes), Limits::default()),
        &BundleOptions::default(),
    )
    .unwrap();
    assert_eq!(state.pods.value.len(), 1);
    let why = state.pods.completeness.why().unwrap();
    assert!(
        why.starts_with("the bundle was not read to its end: cannot read the bundle after \"nodes.json\": "),
        "{why}"
    );
    assert!(
        read(
            &mut Archive::new(Cursor::new(b"hello"), Limits::default()),
            &BundleOptions::default()
        )
        .is_err()
    );
}

#[test]
fn the_text_of_iptables_save_wins_over_nft() {
    let state = case("npl-stale-8port");
    assert_eq!(state.nft.value, NftState::default());
    assert!(state.nft.is_complete());
    // Without it the table stays, with the targets that only the text of nft shows.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/npl-stale-8port");
    let file = |name: &str| (name.to_owned(), fs::read(root.join(name)).unwrap());
    for names in [["nft.json", "nft.txt"], ["nft.txt", "nft.json"]] {
        let mut files = MemoryFiles::new(names.map(file));
        let state = read(&mut files, &BundleOptions::default()).unwrap();
        let nft = &state.nft.value;
        assert_eq!((nft.tables.len(), nft.chains.len(), nft.rules.len()), (1, 3, 10));
        assert_eq!(nft.rules.iter().filter(|rule| rule.dnat.is_some()).count(), 8);
    }
    let state = read(
        &mut MemoryFiles::new([file("nft.json")]),
        &BundleOptions::default(),
    )
    .unwrap();
    assert_eq!(state.nft.value.rules.len(), 10);
    assert!(state.nft.value.rules.iter().all(|rule| rule.dnat.is_none()));
}

#[test]
fn what_ip_tells_in_several_files_is_told_once() {
    let addr = r#"[{"ifindex":2,"ifname":"eth0","flags":["UP"],"address":"02:00:00:00:00:01","addr_info":[{"family":"inet","local":"172.20.0.11","prefixlen":24}]}]"#;
    let link = r#"[{"ifindex":2,"ifname":"eth0","flags":["UP"],"address":"02:00:00:00:00:01","linkinfo":{"info_kind":"veth"}},{"ifindex":3,"ifname":"eth1","flags":[]}]"#;
    let route =
        "default via 172.20.0.1 dev eth0\n10.0.0.0/24 dev cni0 proto kernel scope link src 10.0.0.1\n";
    let state = of(&[
        ("ip-addr.json", addr),
        ("x/ip-addr.json", addr),
        ("ip-link.json", link),
        ("route", route),
        (
            "route-table-all",
            &format!("{route}local 10.0.0.1 dev cni0 table local proto kernel\n"),
        ),
        (
            "ip-neigh.txt",
            "172.20.0.1 dev eth0 lladdr 02:00:00:00:00:02 REACHABLE\n",
        ),
        ("ip-rule.txt", "0: from all lookup local\n"),
        ("nft.txt", ""),
    ])
    .unwrap();
    assert_eq!(
        summary(&state),
        "node  at 
nft.txt: 0 items, not complete: the file is empty: either there is nothing or the command failed
ip-addr.json: 1 items
x/ip-addr.json: 1 items
ip-link.json: 2 items
ip-addr.json: 1 items
x/ip-addr.json: 1 items
route: 2 items
route-table-all: 3 items
ip-neigh.txt: 1 items
ip-rule.txt: 1 items
problem nft.txt: the file is empty: either there is nothing or the command failed
"
    );
    let links: Vec<_> = state
        .links
        .value
        .iter()
        .map(|link| (link.index, link.kind.as_str()))
        .collect();
    assert_eq!(links, [(2, "veth"), (3, "")]);
    assert_eq!(
        (
            state.addresses.value.len(),
            state.routes.value.len(),
            state.neighbours.value.len()
        ),
        (1, 3, 1)
    );
}

#[test]
fn what_no_rule_judges_yet_is_read_too() {
    let state = of(&[
        (
            "ip-rule.txt",
            "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n",
        ),
        ("ip6-rule.txt", "0:\tfrom all lookup local\n"),
        (
            "again/ip-rule.json",
            r#"[{"priority":32766,"src":"all","table":"main"}]"#,
        ),
        (
            "ipset.txt",
            "create a hash:ip family inet\nadd a 10.0.0.1\nadd b 10.0.0.2\n",
        ),
        (
            "ipvsadm.txt",
            "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1\n",
        ),
        ("x/ipvsadm", ""),
    ])
    .unwrap();
    assert_eq!(
        summary(&state),
        "node  at 
ip-rule.txt: 2 items
ip6-rule.txt: 1 items
again/ip-rule.json: 1 items
ipset.txt: 1 items, not complete: a member of the set \"b\", which was not made
ipvsadm.txt: 1 items
x/ipvsadm: 0 items, not complete: the file is empty: either there is nothing or the command failed
problem ipset.txt:3: a member of the set \"b\", which was not made
problem x/ipvsadm: the file is empty: either there is nothing or the command failed
"
    );
    let families: Vec<_> = state.ip_rules.value.iter().map(|rule| rule.family).collect();
    assert_eq!(families, [Family::Ipv4, Family::Ipv4, Family::Ipv6]);
    assert_eq!(state.ipsets.value[0].members.len(), 1);
    assert_eq!(state.ipvs.value[0].servers.len(), 1);
}

#[test]
fn a_support_bundle_of_several_agents_is_read_for_one_node() {
    let save = |ip: &str| {
        format!(
            "# Generated by iptables-save v1.8.9 (nf_tables) on Mon Nov 30 16:19:15 2026\n*nat\n:X - [0:0]\n[0:0] -A X -p tcp -m tcp --dport 61000 -j DNAT --to-destination {ip}:80\nCOMMIT\n# Completed on Mon Nov 30 16:19:15 2026\n# Generated by ip6tables-save v1.8.9 (nf_tables) on Mon Nov 30 16:19:15 2026\n*nat\n:X - [0:0]\nCOMMIT\n"
        )
    };
    let files = [
        ("agent_n1/iptables", save("10.0.0.1")),
        ("agent_n1/logs/agent/iptables", "a log".to_owned()),
        ("agent_n2/iptables", save("10.0.0.2")),
        ("clusterinfo", "x".to_owned()),
    ];
    let ask = |node: Option<&str>, count: usize| {
        let options = BundleOptions {
            node: node.map(str::to_owned),
            ..BundleOptions::default()
        };
        read(&mut MemoryFiles::new(files[..count].to_vec()), &options)
    };
    let err = ask(None, 4).unwrap_err();
    assert_eq!(
        err.to_string(),
        "the bundle is of several nodes: n1, n2; say which one is meant"
    );
    let state = ask(Some("n2"), 4).unwrap();
    assert_eq!(
        state.xtables.value.iter().map(|t| t.family).collect::<Vec<_>>(),
        [Family::Ipv4, Family::Ipv6]
    );
    let (_, rule) = state.xtables.value[0].rules().next().unwrap();
    assert_eq!(rule.spec.dnat.unwrap().ip.to_string(), "10.0.0.2");
    assert_eq!(
        state.unread[0],
        Unread {
            path: "agent_n1/iptables".to_owned(),
            why: "it is of node n1".to_owned()
        }
    );
    assert_eq!(ask(None, 2).unwrap().identity.name, "n1");
}
