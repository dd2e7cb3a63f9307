//! Nodes for tests, in a few words each.

use std::net::IpAddr;

use crate::{
    finding::{Finding, Verdict},
    judge::Judge,
    model::*,
    settings::Settings,
};

pub(crate) const NODE: &str = "worker-a";

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn now() -> Timestamp {
    at("2026-11-30T16:19:15Z")
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// 64 hex digits that begin with `start`.
pub(crate) fn id(start: &str) -> ContainerId {
    ContainerId::new(&format!("{start:0<64}"))
}

pub(crate) fn uid(n: u32) -> PodUid {
    PodUid::new(&format!("00000000-0000-4000-8000-{n:012}"))
}

pub(crate) fn pod(name: &str, n: u32, ip_text: &str) -> Pod {
    Pod {
        namespace: "voice".to_owned(),
        name: name.to_owned(),
        uid: Some(uid(n)),
        node: Some(NODE.to_owned()),
        phase: Phase::Running,
        ips: if ip_text.is_empty() {
            Vec::new()
        } else {
            vec![ip(ip_text)]
        },
        created_at: Some(at("2026-11-30T15:00:00Z")),
        ..Pod::default()
    }
}

pub(crate) fn npl(entries: &[(Proto, u16, u16)]) -> NplAnnotation {
    NplAnnotation::Entries(
        entries
            .iter()
            .map(|(proto, node_port, pod_port)| NplEntry {
                pod_port: *pod_port,
                node_ip: Some(ip("172.20.0.11")),
                node_port: *node_port,
                proto: *proto,
                ipv6: false,
            })
            .collect(),
    )
}

pub(crate) fn sandbox(pod: &Pod, id: ContainerId) -> Sandbox {
    Sandbox {
        id,
        pod: pod.pod_name(),
        uid: pod.uid.clone().unwrap(),
        attempt: 0,
        state: SandboxState::Ready,
        created_at: pod.created_at,
        ips: Some(pod.ips.clone()),
        host_network: pod.host_network,
        netns: None,
        pid: None,
        from_manifest: false,
    }
}

pub(crate) fn dnat(chain: &str, proto: Proto, port: u16, to: &str) -> XtRule {
    let target: std::net::SocketAddr = to.parse().unwrap();
    XtRule {
        line: format!("-A {chain} -p {proto} -m {proto} --dport {port} -j DNAT --to-destination {target}"),
        counters: None,
        spec: XtMatch {
            proto: Some(proto),
            dports: vec![PortRange::one(port)],
            target: Some("DNAT".to_owned()),
            dnat: Some(Dnat {
                ip: target.ip(),
                port: Some(target.port()),
            }),
            ..XtMatch::default()
        },
    }
}

pub(crate) fn jump(chain: &str, to: &str) -> XtRule {
    XtRule {
        line: format!("-A {chain} -m addrtype --dst-type LOCAL -j {to}"),
        counters: None,
        spec: XtMatch {
            dst_type: Some("LOCAL".to_owned()),
            target: Some(to.to_owned()),
            ..XtMatch::default()
        },
    }
}

pub(crate) fn chain(name: &str, rules: Vec<XtRule>) -> XtChain {
    let built_in = ["PREROUTING", "OUTPUT", "POSTROUTING"].contains(&name);
    XtChain {
        name: name.to_owned(),
        policy: built_in.then(|| "ACCEPT".to_owned()),
        rules,
    }
}

pub(crate) fn nat(chains: Vec<XtChain>) -> XtTable {
    XtTable {
        variant: XtVariant::Nft,
        family: Family::Ipv4,
        name: "nat".to_owned(),
        chains,
        source: "iptables-nft-save".to_owned(),
    }
}

/// A NAT table with the NodePortLocal chain and its jumps.
pub(crate) fn npl_table(rules: Vec<XtRule>) -> XtTable {
    let c = crate::marks::ANTREA_NPL_CHAIN;
    nat(vec![
        chain("PREROUTING", vec![jump("PREROUTING", c)]),
        chain("OUTPUT", vec![jump("OUTPUT", c)]),
        chain(c, rules),
    ])
}

/// A Service of UDP port 53 that has no address yet.
pub(crate) fn dns_service(namespace: &str, name: &str) -> Service {
    Service {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ports: vec![ServicePort {
            name: "dns".to_owned(),
            port: 53,
            node_port: None,
            proto: Proto::Udp,
        }],
        ..Service::default()
    }
}

/// The endpoints of such a Service.
pub(crate) fn dns_slice(namespace: &str, service: &str, addresses: &[&str]) -> EndpointSlice {
    let endpoint = |address: &&str| Endpoint {
        addresses: vec![ip(address)],
        ready: true,
        serving: true,
        terminating: false,
        node: None,
        pod: None,
        pod_uid: None,
    };
    EndpointSlice {
        namespace: namespace.to_owned(),
        name: format!("{service}-1"),
        service: Some(service.to_owned()),
        endpoints: addresses.iter().map(endpoint).collect(),
        ports: vec![EndpointPort {
            name: "dns".to_owned(),
            port: Some(53),
            proto: Proto::Udp,
        }],
    }
}

pub(crate) fn udp(client: &str, sport: u16, to: &str, dport: u16, from: &str, reply_port: u16) -> CtEntry {
    CtEntry {
        proto: Proto::Udp,
        state: None,
        timeout: Some(29),
        original: CtTuple {
            src: ip(client),
            dst: ip(to),
            sport,
            dport,
        },
        reply: CtTuple {
            src: ip(from),
            dst: ip(client),
            sport: reply_port,
            dport: sport,
        },
        flags: CtFlags::default(),
        mark: 0,
        zone: 0,
        id: Some(u32::from(sport)),
        original_count: None,
        reply_count: None,
    }
}

/// A live node of this name with these Pods, all of them with a ready sandbox, and every source complete.
pub(crate) fn node(pods: Vec<Pod>) -> NodeState {
    let sandboxes = pods
        .iter()
        .enumerate()
        .filter(|(_, p)| !p.phase.is_terminal())
        .map(|(n, p)| sandbox(p, id(&format!("{:04x}aaaaaaaaaaaa", n + 1))))
        .collect();
    let kube_node = KubeNode {
        name: NODE.to_owned(),
        addresses: vec![ip("172.20.0.11")],
        pod_cidrs: vec!["10.10.1.0/24".parse().unwrap()],
        ..KubeNode::default()
    };
    NodeState {
        identity: NodeIdentity {
            name: NODE.to_owned(),
            machine_id: None,
            booted_at: None,
            run_pod_sandbox: None,
        },
        taken_at: Some(now()),
        live: true,
        pods: Facts::complete("api/pods", pods),
        services: Facts::complete("api/services", Vec::new()),
        endpoint_slices: Facts::complete("api/endpointslices", Vec::new()),
        nodes: Facts::complete("api/nodes", vec![kube_node]),
        service_cidrs: Facts::complete("api/servicecidrs", vec!["10.96.0.0/12".parse().unwrap()]),
        runtime: Facts::complete(
            "cri",
            RuntimeState {
                sandboxes,
                looked_for_others: true,
                ..RuntimeState::default()
            },
        ),
        namespaces: Facts::complete("proc", Vec::new()),
        xtables: Facts::complete("iptables", Vec::new()),
        nft: Facts::complete("nft", NftState::default()),
        conntrack: Facts::complete("conntrack", Conntrack::default()),
        links: Facts::complete("links", Vec::new()),
        addresses: Facts::complete("addresses", Vec::new()),
        routes: Facts::complete("routes", Vec::new()),
        neighbours: Facts::complete("neighbours", Vec::new()),
        ip_rules: Facts::complete("rules", Vec::new()),
        ipsets: Facts::default(),
        ipvs: Facts::default(),
        ipam: Facts::complete("host-local", IpamStore::default()),
        cni_cache: Facts::complete("cni-cache", Vec::new()),
        cni_config: Facts::complete("cni-config", Vec::new()),
        traits: Default::default(),
        history: Facts::default(),
        adapters: Facts::default(),
        hns_endpoints: Facts::default(),
        captures: Facts::default(),
        counters: Facts::default(),
        unread: Vec::new(),
        problems: Vec::new(),
    }
}

pub(crate) fn with_tables(mut state: NodeState, tables: Vec<XtTable>) -> NodeState {
    state.xtables.value = tables;
    state
}

pub(crate) fn with_conntrack(mut state: NodeState, entries: Vec<CtEntry>) -> NodeState {
    state.conntrack.value.udp = entries.iter().filter(|e| e.proto == Proto::Udp).count() as u64;
    state.conntrack.value.entries = entries;
    state
}

pub(crate) fn lease(address: &str, container: ContainerId, modified_at: Timestamp) -> Lease {
    Lease {
        path: format!("/var/lib/cni/networks/lab/{address}"),
        network: "lab".to_owned(),
        ip: ip(address),
        content: format!("{container}\r\neth0"),
        container,
        interface: Some("eth0".to_owned()),
        modified_at: Some(modified_at),
    }
}

/// A rule of nftables with this handle.
pub(crate) fn nft_rule(
    (family, table, chain): (NftFamily, &str, &str),
    handle: u64,
    comment: &str,
    text: &str,
) -> NftRule {
    NftRule {
        handle: Some(handle),
        comment: Some(comment.to_owned()),
        raw: Some(NftRaw {
            expressions: format!("{handle:02x}"),
            userdata: None,
        }),
        ..NftRule::bare(family, table, chain, format!("{text} comment \"{comment}\""))
    }
}

/// A hostPort as portmap writes it into nftables.
pub(crate) fn nft_hostport(handle: u64, id: &ContainerId, proto: Proto, port: u16, to: &str) -> NftRule {
    let place = (NftFamily::Ip, "cni_hostport", "hostports");
    let target: std::net::SocketAddr = to.parse().unwrap();
    let text = format!("{proto} dport {port} dnat to {target}");
    NftRule {
        proto: Some(proto),
        dports: vec![PortRange::one(port)],
        dnat: Some(Dnat {
            ip: target.ip(),
            port: Some(target.port()),
        }),
        ..nft_rule(place, handle, id.as_str(), &text)
    }
}

/// The rule for the way back of a connection of a Pod to its own host port.
pub(crate) fn nft_hairpin(handle: u64, id: &ContainerId, address: &str) -> NftRule {
    let place = (NftFamily::Ip, "cni_hostport", "masquerading");
    let text = format!("ip saddr {address} ip daddr {address} masquerade");
    nft_rule(place, handle, id.as_str(), &text)
}

/// A masquerade as bridge and ptp write it into nftables.
pub(crate) fn nft_masquerade(handle: u64, network: &str, id: &ContainerId, address: &str) -> NftRule {
    let place = (NftFamily::Inet, "cni_plugins_masquerade", "masq_checks");
    let hash = crate::marks::nft::hash;
    let hashes = format!("{}-{}", hash(network), hash(&format!("eth0:{id}")));
    let mut comment = format!("{hashes}, net: {network}, if: eth0, id: {id}");
    comment.truncate(128);
    let text = format!("ip saddr {address} ip daddr != 10.10.1.0/24 masquerade");
    nft_rule(place, handle, &comment, &text)
}

pub(crate) fn with_nft(mut state: NodeState, rules: Vec<NftRule>) -> NodeState {
    state.nft.value.generation = Some(7);
    state.nft.value.rules = rules;
    state
}

/// The incident: an 8-port Pod was made again under its name, 4 of its mappings are right and 4 lead to the old address;
/// and a healthy neighbour.
pub(crate) fn incident() -> NodeState {
    let ports: Vec<(Proto, u16, u16)> = (0..8)
        .map(|n| (if n < 4 { Proto::Tcp } else { Proto::Udp }, 61000 + n, 5060 + n))
        .collect();
    let relay = Pod {
        npl: npl(&ports),
        ..pod("relay-1", 2, "10.10.1.40")
    };
    let neighbour = Pod {
        npl: npl(&[(Proto::Tcp, 61010, 8080)]),
        ..pod("web-0", 3, "10.10.1.41")
    };
    let mut rules: Vec<XtRule> = ports
        .iter()
        .map(|(proto, node_port, pod_port)| {
            let to = if node_port % 2 == 0 {
                "10.10.1.40"
            } else {
                "10.10.1.23"
            };
            dnat(
                crate::marks::ANTREA_NPL_CHAIN,
                *proto,
                *node_port,
                &format!("{to}:{pod_port}"),
            )
        })
        .collect();
    rules.push(dnat(
        crate::marks::ANTREA_NPL_CHAIN,
        Proto::Tcp,
        61010,
        "10.10.1.41:8080",
    ));
    with_tables(node(vec![relay, neighbour]), vec![npl_table(rules)])
}

pub(crate) fn judge(state: &NodeState) -> Vec<Finding> {
    Judge::new(state, None, &Settings::default(), now()).all()
}

/// Rule, verdict, whether it may be repaired, and the object's text: what most tests compare.
pub(crate) fn short(findings: &[Finding]) -> Vec<(&'static str, Verdict, bool, String)> {
    findings
        .iter()
        .map(|f| {
            let repair = f.action() == crate::finding::Action::Repair;
            (f.rule, f.verdict, repair, f.object.text())
        })
        .collect()
}
