//! What a file is: by the name that a known collector gives it, else by its content. Nothing is guessed: a file that
//! neither names nor shows what it is stays unread.

use sexton_core::model::{Family, XtVariant};

use crate::{antctl, counters, kube::Kind};

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Objects of the API, of this kind where they do not say it themselves.
    Kube(Option<Kind>),
    /// `clusterinfo` of `antctl supportbundle`: lists of several kinds.
    ClusterInfo,
    /// A static Pod's manifest.
    Manifest,
    /// `crictl pods -o json`.
    CrictlPods,
    /// `crictl ps -a -o json`.
    CrictlPs,
    /// `crictl inspectp`.
    CrictlInspectp,
    /// `iptables-save` or `iptables -S`.
    Iptables {
        family: Option<Family>,
        variant: Option<XtVariant>,
        table: Option<&'static str>,
    },
    /// `nft list ruleset`, as text or JSON: told apart by content.
    Nft,
    /// `conntrack -L` or `/proc/net/nf_conntrack`.
    Conntrack,
    /// `ip addr` or `ip link`.
    IpLink,
    /// `ip addr`.
    IpAddr,
    /// `ip route`.
    IpRoute,
    /// `ip neigh`.
    IpNeigh,
    /// `ip rule`; of this family where nothing in it tells.
    IpRule(Family),
    /// `ipset save`.
    Ipset,
    /// `ipvsadm -Ln` or `-Sn`.
    Ipvs,
    /// A host-local lease.
    Lease,
    /// A cached CNI result.
    CniCache,
    /// A CNI configuration.
    CniConfig,
    /// A capture: pcap, pcapng, text of pktmon.
    Capture,
    /// `pktmon list`: the names of components.
    PktmonList,
    /// Performance counters.
    Counters,
    /// Which addresses the adapters own.
    Adapters,
    /// Endpoints of HNS.
    HnsEndpoints,
    /// The log of Azure's CNI plugin.
    CniLog,
    /// `meta.json`.
    Meta,
    /// `node.txt`.
    NodeName,
    /// What a run must not see: the expectations of a test case.
    Ignored,
    /// Known by name, and not read; why.
    Known(&'static str),
}

/// The last part of a path, in lower case.
fn base(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase()
}

/// The directories of a path.
fn dirs(path: &str) -> Vec<&str> {
    let mut parts: Vec<_> = path.split('/').collect();
    parts.pop();
    parts
}

const WINDOWS: &str = "state of a Windows node: no rule of this version judges it";

/// By name, at whatever depth. `antctl` has names of its own.
pub(crate) fn by_name(path: &str) -> Option<FileKind> {
    let path = antctl::canonical_name(path).unwrap_or(path);
    let base = base(path);
    let dirs = dirs(path);
    let plain = base.strip_suffix(".gz").unwrap_or(&base);
    if matches!(plain, "expected.json" | "expected.txt") {
        return Some(FileKind::Ignored);
    }
    // Files of CNI have names of their own, so their directories tell.
    if let [.., "networks", _] = dirs.as_slice() {
        return Some(FileKind::Lease);
    }
    if let [.., "cni", "results"] = dirs.as_slice() {
        return Some(FileKind::CniCache);
    }
    if dirs.last() == Some(&"net.d") {
        return Some(FileKind::CniConfig);
    }
    let (stem, extension) = match plain.rsplit_once('.') {
        Some((
            stem,
            extension @ ("json" | "txt" | "yaml" | "yml" | "log" | "out" | "csv" | "tsv" | "xml" | "conf"
            | "conflist"),
        )) => (stem, extension),
        _ => (plain, ""),
    };
    if matches!(extension, "conf" | "conflist") {
        return (dirs.last() == Some(&"cni")).then_some(FileKind::CniConfig);
    }
    if dirs.last() == Some(&"manifests") && matches!(extension, "yaml" | "yml" | "json") {
        return Some(FileKind::Manifest);
    }
    let stem = stem.replace('_', "-");
    Some(match stem.as_str() {
        "clusterinfo" if extension.is_empty() => FileKind::ClusterInfo,
        "meta" if extension == "json" => FileKind::Meta,
        "node" if matches!(extension, "txt" | "") => FileKind::NodeName,
        "pods" | "pod" | "kubelet-pods" | "kubectl-pods" => FileKind::Kube(Some(Kind::Pod)),
        "services" | "service" | "svc" => FileKind::Kube(Some(Kind::Service)),
        "endpointslices" | "endpointslice" => FileKind::Kube(Some(Kind::EndpointSlice)),
        "nodes" => FileKind::Kube(Some(Kind::Node)),
        "node" => FileKind::Kube(Some(Kind::Node)),
        "servicecidrs" | "servicecidr" => FileKind::Kube(Some(Kind::ServiceCidr)),
        "crictl-pods" | "crictl-pods-o-json" => FileKind::CrictlPods,
        "crictl-ps" | "crictl-ps-a" | "crictl-containers" => FileKind::CrictlPs,
        "nft" | "nftables" | "nft-list-ruleset" | "nft-ruleset" => FileKind::Nft,
        "conntrack" | "conntrack-l" | "nf-conntrack" => FileKind::Conntrack,
        "ip-addr" | "ip-address" | "ip-a" => FileKind::IpAddr,
        "ip-link" | "ip-l" => FileKind::IpLink,
        "ip-route" | "ip-route-table-all" | "ip6-route" | "ip-6-route" => FileKind::IpRoute,
        "ip-neigh" | "ip-neighbor" | "ip-neighbour" => FileKind::IpNeigh,
        "ip-rule" | "ip-rules" | "ip-rule-show" => FileKind::IpRule(Family::Ipv4),
        "ip6-rule" | "ip-6-rule" | "ip6-rules" => FileKind::IpRule(Family::Ipv6),
        "ipset" | "ipset-save" => FileKind::Ipset,
        "ipvsadm" | "ipvsadm-ln" | "ipvsadm-sn" => FileKind::Ipvs,
        "network" | "endpoint" | "policy" if extension == "txt" => FileKind::Known(WINDOWS),
        stem if extension == "log" && stem.starts_with("azure-vnet") && !stem.contains("telemetry") => {
            FileKind::CniLog
        }
        "events" | "event" => FileKind::Kube(Some(Kind::Event)),
        "hns-networks" | "hns-loadbalancers" | "hns-namespaces" | "azure-endpoints" | "azure-vnet"
            if matches!(extension, "json" | "txt") =>
        {
            FileKind::Known(WINDOWS)
        }
        "hns-endpoints" => FileKind::HnsEndpoints,
        "nic" | "nics" | "imds-network" | "interfaceinfo" | "interfaces" | "azure-vnet-ipam"
        | "cns-ipaddresses"
            if matches!(extension, "json" | "xml") =>
        {
            FileKind::Adapters
        }
        "counters" if matches!(extension, "csv" | "tsv" | "txt") => FileKind::Counters,
        "pktmon-list" => FileKind::PktmonList,
        "pktmon" if matches!(extension, "txt" | "log") => FileKind::Capture,
        stem if stem.starts_with("crictl-inspectp") || dirs.last() == Some(&"inspectp") => {
            FileKind::CrictlInspectp
        }
        stem if stem.contains("iptables") || stem.contains("ip6tables") || stem.contains("xtables") => {
            iptables(stem)
        }
        _ if plain.ends_with(".pcap") || plain.ends_with(".pcapng") => FileKind::Capture,
        _ => return None,
    })
}

/// What a name such as `ip6tables-legacy-save` or `iptables-nat` tells; the text's own header wins.
fn iptables(stem: &str) -> FileKind {
    let family = if stem.contains("ip6tables") {
        Some(Family::Ipv6)
    } else if stem.contains("iptables-save") {
        Some(Family::Ipv4)
    } else {
        None
    };
    let variant = if stem.contains("legacy") {
        Some(XtVariant::Legacy)
    } else if stem.contains("nft") {
        Some(XtVariant::Nft)
    } else {
        None
    };
    let table = ["nat", "mangle", "raw", "security", "filter"]
        .into_iter()
        .find(|table| stem.split(['-', '.']).any(|word| word == *table));
    FileKind::Iptables {
        family,
        variant,
        table,
    }
}

/// By content, from the beginning of the decoded text.
pub(crate) fn by_content(head: &[u8]) -> Option<FileKind> {
    if counters::recognise(head) {
        return Some(FileKind::Counters);
    }
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start();
    let iptables = FileKind::Iptables {
        family: None,
        variant: None,
        table: None,
    };
    match text.as_bytes().first()? {
        b'{' | b'[' => return json(text),
        b'<' if text.contains("<Interfaces") && text.contains("<IPAddress") => {
            return Some(FileKind::Adapters);
        }
        b'#' if text.starts_with("# Generated by ") && text.lines().next()?.contains("tables") => {
            return Some(iptables);
        }
        b'*' if text.lines().nth(1).is_some_and(|line| line.starts_with(':')) => return Some(iptables),
        _ => {}
    }
    let first = text.lines().find(|line| !line.starts_with('#'))?;
    let words: Vec<_> = first.split_ascii_whitespace().collect();
    if let [
        "table",
        "ip" | "ip6" | "inet" | "arp" | "bridge" | "netdev",
        _,
        "{",
        ..,
    ] = words.as_slice()
    {
        return Some(FileKind::Nft);
    }
    if first.contains(" src=")
        && first.contains(" dst=")
        && words.iter().filter(|w| w.starts_with("src=")).count() == 2
    {
        return Some(FileKind::Conntrack);
    }
    if let ["create", _, kind, ..] = words.as_slice()
        && ["hash:", "bitmap:", "list:"]
            .iter()
            .any(|start| kind.starts_with(start))
    {
        return Some(FileKind::Ipset);
    }
    let service = matches!(
        words.as_slice(),
        ["-A", "-t" | "-u" | "-f" | "--sctp-service", _, "-s", ..]
    );
    if service || first.starts_with("IP Virtual Server version ") {
        return Some(FileKind::Ipvs);
    }
    if let [priority, "from" | "not", ..] = words.as_slice()
        && priority
            .strip_suffix(':')
            .is_some_and(|digits| digits.parse::<u32>().is_ok())
    {
        return Some(FileKind::IpRule(Family::Ipv4));
    }
    if text.contains("\nitems:") && (text.starts_with("apiVersion:") || text.starts_with("kind:")) {
        return Some(FileKind::Kube(None));
    }
    None
}

fn json(text: &str) -> Option<FileKind> {
    // White space aside; names do not hold any.
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let has = |needle: &str| squeezed.contains(needle);
    if squeezed.starts_with("{\"nftables\":") {
        return Some(FileKind::Nft);
    }
    if has("\"kind\":\"cniCacheV1\"") {
        return Some(FileKind::CniCache);
    }
    if has("\"cniVersion\":") && (has("\"plugins\":[") || has("\"type\":\"")) {
        return Some(FileKind::CniConfig);
    }
    if has("\"podSandboxId\":") {
        return Some(FileKind::CrictlPs);
    }
    if has("\"SANDBOX_READY\"") || has("\"SANDBOX_NOTREADY\"") {
        let listed = squeezed.starts_with("{\"items\":");
        return Some(if listed {
            FileKind::CrictlPods
        } else {
            FileKind::CrictlInspectp
        });
    }
    if has("\"apiVersion\":\"") && has("\"kind\":\"") {
        return Some(FileKind::Kube(None));
    }
    // Both versions have a MAC address and their network.
    if has("\"MacAddress\":") && (has("\"HostComputeNetwork\":") || has("\"VirtualNetwork\":")) {
        return Some(FileKind::HnsEndpoints);
    }
    let arm = has("\"ipConfigurations\":") && (has("\"privateIPAddress\":") || has("\"privateIpAddress\":"));
    let metadata = has("\"macAddress\":") && has("\"privateIpAddress\":");
    if arm || metadata || has("\"AddressSpaces\":") {
        return Some(FileKind::Adapters);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_any_depth() {
        let iptables = |family, variant, table| {
            Some(FileKind::Iptables {
                family,
                variant,
                table,
            })
        };
        for (path, kind) in [
            ("pods.json", Some(FileKind::Kube(Some(Kind::Pod)))),
            ("a/b/Pods.yaml", Some(FileKind::Kube(Some(Kind::Pod)))),
            ("pods.json.gz", Some(FileKind::Kube(Some(Kind::Pod)))),
            ("nodes.json", Some(FileKind::Kube(Some(Kind::Node)))),
            ("node.txt", Some(FileKind::NodeName)),
            ("x/meta.json", Some(FileKind::Meta)),
            ("bundle/clusterinfo", Some(FileKind::ClusterInfo)),
            ("x/expected.json", Some(FileKind::Ignored)),
            ("iptables-save.txt", iptables(Some(Family::Ipv4), None, None)),
            (
                "ip6tables-legacy-save",
                iptables(Some(Family::Ipv6), Some(XtVariant::Legacy), None),
            ),
            ("antrea/iptables", iptables(Some(Family::Ipv4), None, None)),
            ("agent_n1.tar.gz/address", Some(FileKind::IpAddr)),
            ("agent_n1.tar.gz/logs/agent/link", None),
            ("iptables-S-nat.txt", iptables(None, None, Some("nat"))),
            ("nftables", Some(FileKind::Nft)),
            ("nft.json", Some(FileKind::Nft)),
            ("conntrack.txt", Some(FileKind::Conntrack)),
            ("proc/net/nf_conntrack", Some(FileKind::Conntrack)),
            ("ip-addr.json", Some(FileKind::IpAddr)),
            ("route-table-all", Some(FileKind::IpRoute)),
            ("var/lib/cni/networks/podnet/10.88.0.2", Some(FileKind::Lease)),
            ("cni/results/podnet-abc-eth0", Some(FileKind::CniCache)),
            ("etc/cni/net.d/10-bridge.conflist", Some(FileKind::CniConfig)),
            (
                "etc/kubernetes/manifests/kube-apiserver.yaml",
                Some(FileKind::Manifest),
            ),
            ("ipset.txt", Some(FileKind::Ipset)),
            ("ipvsadm.txt", Some(FileKind::Ipvs)),
            ("ip-rule.json", Some(FileKind::IpRule(Family::Ipv4))),
            ("ip-6-rule.txt", Some(FileKind::IpRule(Family::Ipv6))),
            ("counters.csv", Some(FileKind::Counters)),
            ("a/capture.pcapng", Some(FileKind::Capture)),
            ("pktmon.txt", Some(FileKind::Capture)),
            ("pktmon-list.txt", Some(FileKind::PktmonList)),
            ("interfaceinfo.xml", Some(FileKind::Adapters)),
            ("hns-endpoints.json", Some(FileKind::HnsEndpoints)),
            ("hns-networks.json", Some(FileKind::Known(WINDOWS))),
            ("notes.md", None),
            ("networks/readme", None),
            ("logs/agent/antrea-agent.log", None),
        ] {
            assert_eq!(by_name(path), kind, "{path}");
        }
    }

    #[test]
    fn contents_without_a_name() {
        let iptables = Some(FileKind::Iptables {
            family: None,
            variant: None,
            table: None,
        });
        for (text, kind) in [
            ("# Generated by iptables-save v1.8.9\n*nat\n", iptables.clone()),
            ("*nat\n:X - [0:0]\n", iptables),
            ("* a list\n* of points\n", None),
            ("table inet x {\n}\n", Some(FileKind::Nft)),
            ("create a hash:ip family inet\n", Some(FileKind::Ipset)),
            ("create a plan\n", None),
            ("-A -t 10.96.0.1:443 -s rr\n", Some(FileKind::Ipvs)),
            (
                "IP Virtual Server version 1.2.1 (size=4096)\n",
                Some(FileKind::Ipvs),
            ),
            (
                "0:\tfrom all lookup local\n",
                Some(FileKind::IpRule(Family::Ipv4)),
            ),
            ("0: from\n", Some(FileKind::IpRule(Family::Ipv4))),
            ("note: from me\n", None),
            (
                "# Warning: table ip nat is managed by iptables-nft, do not touch!\ntable ip nat {\n",
                Some(FileKind::Nft),
            ),
            ("{\"nftables\": []}", Some(FileKind::Nft)),
            (
                "udp 17 2 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=2 src=2.2.2.2 dst=1.1.1.1 sport=2 dport=1\n",
                Some(FileKind::Conntrack),
            ),
            (
                "{\"apiVersion\": \"v1\", \"items\": [{\"kind\": \"Pod\"",
                Some(FileKind::Kube(None)),
            ),
            (
                "{\"kind\":\"PodList\",\"apiVersion\":\"v1\"",
                Some(FileKind::Kube(None)),
            ),
            (
                "apiVersion: v1\nitems:\n- kind: Pod\n",
                Some(FileKind::Kube(None)),
            ),
            (
                "{\"items\": [{\"id\": \"x\", \"state\": \"SANDBOX_READY\"",
                Some(FileKind::CrictlPods),
            ),
            (
                "{\"containers\": [{\"id\": \"x\", \"podSandboxId\": \"y\"",
                Some(FileKind::CrictlPs),
            ),
            (
                "{\"status\": {\"id\": \"x\", \"state\": \"SANDBOX_READY\"",
                Some(FileKind::CrictlInspectp),
            ),
            ("{\"kind\":\"cniCacheV1\"}", Some(FileKind::CniCache)),
            (
                "{\"cniVersion\": \"0.4.0\", \"plugins\": []}",
                Some(FileKind::CniConfig),
            ),
            (
                "\r\n\"(PDH-CSV 4.0)\",\"\\\\H\\a\\b\"\r\n",
                Some(FileKind::Counters),
            ),
            (
                "[{\"MacAddress\": \"00-15\", \"VirtualNetwork\": \"x\"}]",
                Some(FileKind::HnsEndpoints),
            ),
            (
                "{\"ipConfigurations\": [{\"privateIPAddress\": \"10.0.0.4\"}]}",
                Some(FileKind::Adapters),
            ),
            (
                "<Interfaces><Interface><IPSubnet><IPAddress Address=\"10.0.0.4\"/>",
                Some(FileKind::Adapters),
            ),
            ("{\"a\": 1}", None),
            ("hello", None),
            ("", None),
        ] {
            assert_eq!(by_content(text.as_bytes()), kind, "{text}");
        }
    }
}
