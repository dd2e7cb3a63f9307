use super::*;

#[test]
fn antreas_names_are_known_at_any_depth() {
    for (path, name) in [
        ("iptables", "iptables-save.txt"),
        (
            "support-bundles_20261130T1800/agent_n1.tar.gz/iptables",
            "iptables-save.txt",
        ),
        ("agent_n1/nftables", "nft.txt"),
        ("agent_n1\\HNSEndpoint", "endpoint.txt"),
        ("./agent_n1/route-table-all", "ip-route.txt"),
        ("address", "ip-addr.txt"),
    ] {
        assert_eq!(canonical_name(path), Some(name), "{path}");
    }
}

#[test]
fn other_files_are_not() {
    for path in [
        "",
        "flows",
        "iptables.txt",
        "iptables/x",
        "logs/agent/link",
        "agent_n1/agentinfo",
        "clusterinfo",
    ] {
        assert_eq!(canonical_name(path), None, "{path}");
    }
}

#[test]
fn the_node_is_in_the_archives_name() {
    assert_eq!(
        node_name("x/agent_n1.example.tar.gz/iptables"),
        Some("n1.example")
    );
    assert_eq!(node_name("agent_n1/iptables"), Some("n1"));
    for path in ["controller_n1.tar.gz", "agent_", "x/iptables"] {
        assert_eq!(node_name(path), None, "{path}");
    }
}
