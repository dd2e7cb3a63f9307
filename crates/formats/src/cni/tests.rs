use super::*;

const ID: &str = "408809c4415b239b41d095d91b367066e8981bdeab9ff4028bfc489d7cafc054";

fn lease(path: &str, content: &str) -> Lease {
    match read_lease(path, content.as_bytes(), None) {
        LeaseFile::Lease(lease) => lease,
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn a_lease_is_an_id_and_an_interface() {
    for (content, interface) in [
        (format!("{ID}\r\neth0"), Some("eth0")),
        (format!("{ID}\neth0\n"), Some("eth0")),
        (ID.to_owned(), None),
        (format!("{ID}\r\n"), None),
    ] {
        let lease = lease("var/lib/cni/networks/lab/10.77.0.2", &content);
        assert_eq!(lease.network, "lab");
        assert_eq!(lease.ip.to_string(), "10.77.0.2");
        assert_eq!(lease.container.as_str(), ID);
        assert_eq!(lease.interface.as_deref(), interface, "{content:?}");
        assert_eq!(lease.content, content);
    }
    assert_eq!(lease("lab/fd00::2", ID).ip.to_string(), "fd00::2");
    assert_eq!(lease("C:\\cni\\lab\\fd00__2", ID).network, "lab");
    // what is not Kubernetes uses names for IDs
    assert_eq!(
        lease("podman/10.88.0.5", "web_1.x\r\neth0").container.as_str(),
        "web_1.x"
    );
}

#[test]
fn bookkeeping_is_no_lease() {
    for name in [
        "lock",
        "last_reserved_ip.0",
        "last_reserved_ip.1",
        "10.77.0",
        "README",
    ] {
        let file = read_lease(&format!("networks/lab/{name}"), b"10.77.0.9", None);
        assert_eq!(file, LeaseFile::Other, "{name}");
    }
}

#[test]
fn a_lease_that_tells_no_id_is_corrupt() {
    let contents: [&[u8]; 8] = [
        b"",
        b" \r\n",
        b"\0\0\0\0",
        b"\xff\xfe",
        b"two words\r\neth0",
        b"-abc\r\neth0",
        b"abc\r\na/b",
        b"abc\r\neth0\r\nmore",
    ];
    for content in contents {
        match read_lease("networks/lab/10.77.0.2", content, None) {
            LeaseFile::Corrupt(file) => assert!(file.why.starts_with("expected"), "{file:?}"),
            other => panic!("{content:?}: {other:?}"),
        }
    }
}

fn cached(result: &str) -> String {
    format!(
        r#"{{"kind":"cniCacheV1","containerId":"{ID}","config":"e30=","ifName":"eth0","networkName":"pod-net",
        "netns":"/var/run/netns/cni-1","cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","web"],
        ["K8S_POD_NAME","app-0"],["K8S_POD_INFRA_CONTAINER_ID","{ID}"],["K8S_POD_UID","B70768E2-c1f7"]],
        "capabilityArgs":{{}},"result":{result}}}"#
    )
}

#[test]
fn a_cached_result_names_pod_sandbox_and_addresses() {
    let path = format!("cni/results/pod-net-{ID}-eth0");
    let result = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.88.0.31/24","interface":1},{"address":"fd00::1f/64"}]}"#;
    let (entry, problems) = read_cache(&path, cached(result).as_bytes(), None);
    assert_eq!(problems, []);
    let entry = entry.unwrap();
    assert_eq!(
        (entry.network.as_str(), entry.interface.as_str()),
        ("pod-net", "eth0")
    );
    assert_eq!(entry.container.as_str(), ID);
    assert_eq!(entry.netns.as_deref(), Some("/var/run/netns/cni-1"));
    assert_eq!(entry.pod.unwrap().to_string(), "web/app-0");
    assert_eq!(entry.uid.unwrap().as_str(), "b70768e2-c1f7");
    let ips: Vec<_> = entry.ips.iter().map(ToString::to_string).collect();
    assert_eq!(ips, ["10.88.0.31", "fd00::1f"]);
}

#[test]
fn an_old_or_broken_cache_entry_is_known_by_its_name() {
    let path = format!("results/pod-net-{ID}-eth0");
    let old = r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.88.0.31/24"}}"#;
    let (entry, problems) = read_cache(&path, old.as_bytes(), None);
    assert_eq!(problems, []);
    let entry = entry.unwrap();
    assert_eq!(entry.ips.len(), 1);
    assert_eq!(
        (entry.network.as_str(), entry.container.as_str()),
        ("pod-net", ID)
    );
    assert_eq!((entry.interface.as_str(), &entry.pod), ("eth0", &None));
    let full = cached("{}");
    for broken in ["", "{", "[1]", "7", &full[..full.len() - 3], r#"{"kind":7}"#] {
        let (entry, problems) = read_cache(&path, broken.as_bytes(), None);
        assert_eq!(problems.len(), 1, "{broken:?}");
        assert_eq!(entry.unwrap().container.as_str(), ID, "{broken:?}");
    }
    let (entry, problems) = read_cache("results/README", b"", None);
    assert_eq!((entry, problems.len()), (None, 2));
}

#[test]
fn names_split_at_the_id() {
    let name = format!("a-b-{ID}-net-1");
    assert_eq!(split_name(&name), Some(("a-b", ID, "net-1")));
    assert_eq!(split_name("a-b-c1-eth0"), Some(("a-b", "c1", "eth0")));
    assert_eq!(split_name("a-b"), None);
}

#[test]
fn configuration_lists_plugins_with_their_address_ranges() {
    let list = r#"{"cniVersion":"1.0.0","name":"lab","plugins":[
      {"type":"bridge","ipam":{"type":"host-local","dataDir":"/d","subnet":"10.1.0.0/16",
        "ranges":[[{"subnet":"10.77.0.0/24"}],[{"subnet":"fd00::/64","rangeStart":"fd00::5"}]]}},
      {"type":"portmap","capabilities":{"portMappings":true}}]}"#;
    let (config, problems) = read_config("net.d/10-lab.conflist", list.as_bytes());
    assert_eq!(problems, []);
    let config = config.unwrap();
    assert_eq!(config.name, "lab");
    let [bridge, portmap] = &config.plugins[..] else {
        panic!("{config:?}");
    };
    assert_eq!(
        (bridge.kind.as_str(), bridge.ipam.as_deref()),
        ("bridge", Some("host-local"))
    );
    assert_eq!(bridge.data_dir.as_deref(), Some("/d"));
    let nets: Vec<_> = bridge.subnets.iter().map(ToString::to_string).collect();
    assert_eq!(nets, ["10.1.0.0/16", "10.77.0.0/24", "fd00::/64"]);
    assert_eq!((portmap.kind.as_str(), &portmap.ipam), ("portmap", &None));

    let single = r#"{"name":"x","type":"multus","delegates":[{"name":"y","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"usePodCidr"}}]}]}"#;
    let (config, problems) = read_config("net.d/00-multus.conf", single.as_bytes());
    assert_eq!(problems, []);
    let kinds: Vec<_> = config.unwrap().plugins.into_iter().map(|p| p.kind).collect();
    assert_eq!(kinds, ["multus", "ptp"]);
}

#[test]
fn what_is_no_configuration_is_a_problem() {
    for text in ["", "{}", "[]", r#"{"name":"x"}"#, r#"{"name":"x","plugins":[]}"#] {
        let (config, problems) = read_config("p", text.as_bytes());
        assert_eq!((config, problems.len()), (None, 1), "{text:?}");
    }
    let bad = r#"{"name":"x","type":"ptp","ipam":{"type":"host-local","subnet":"10.0.0.0/77"}}"#;
    let (config, problems) = read_config("p", bad.as_bytes());
    assert_eq!((config.unwrap().plugins.len(), problems.len()), (1, 1));
}
