//! Prints how long judging takes, a rule, on made-up nodes of growing size: no reading, no printing, one processor.
//!
//! `judging [SIZE]...` (1000 10000 unless told). A size is the number of NodePortLocal rules, of CNI's marked rules, of leases and of
//! UDP connections. Once all of them are of the living, and once half of them are of the dead. Build with `--release`.
#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Instant,
};

use sexton_core::{judge::Judge, model::*, report::Report, rules, settings::Settings};

const NODE: &str = "worker-a";

/// Pods of the node.
const PODS: usize = 250;

/// Services, of five endpoints each.
const SERVICES: usize = 1000;

fn main() {
    let asked: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let sizes = if asked.is_empty() {
        vec![1_000, 10_000]
    } else {
        asked
    };
    for dead in [false, true] {
        println!("{}", if dead { "half of them dead" } else { "all alive" });
        for &size in &sizes {
            let state = node(size, dead);
            let settings = Settings::default();
            let begin = Instant::now();
            let judge = Judge::new(&state, None, &settings, now());
            println!("  {size}: {:<30} {:>9.1} ms", "join", ms(begin));
            let mut findings = Vec::new();
            let all = Instant::now();
            for rule in rules::ALL {
                let begin = Instant::now();
                let found = (rule.judge)(&judge);
                println!(
                    "  {size}: {:<30} {:>9.1} ms {:>7} findings",
                    rule.id,
                    ms(begin),
                    found.len()
                );
                findings.extend(found);
            }
            println!("  {size}: {:<30} {:>9.1} ms", "all rules", ms(all));
            let begin = Instant::now();
            let report = Report::new(&state, &findings);
            println!(
                "  {size}: {:<30} {:>9.1} ms {:>7} entries",
                "report",
                ms(begin),
                report.findings.len()
            );
        }
    }
}

fn ms(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}

fn now() -> Timestamp {
    Timestamp::from_second(1_796_055_555).unwrap_or_default()
}

/// 10.10.0.2 and so on: the first [`PODS`] are alive.
fn pod_ip(number: usize) -> IpAddr {
    address(0x0a0a_0002, number)
}

fn address(base: u32, number: usize) -> IpAddr {
    Ipv4Addr::from_bits(base.saturating_add(u32::try_from(number).unwrap_or_default())).into()
}

/// An ID whose first digits differ from all others', as random ones do.
fn id(number: usize) -> ContainerId {
    let first = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ContainerId::new(&format!("{first:016x}{number:048x}"))
}

fn port(number: usize) -> u16 {
    u16::try_from(1024 + number % 60_000).unwrap_or_default()
}

/// A rule's owner: a living Pod, or where `dead` for every second one a Pod that nobody knows.
fn owner(number: usize, dead: bool) -> usize {
    if dead && number % 2 == 1 {
        PODS + number
    } else {
        number % PODS
    }
}

fn node(size: usize, dead: bool) -> NodeState {
    let pods: Vec<Pod> = (0..PODS).map(|number| pod(number, size)).collect();
    let sandboxes = pods
        .iter()
        .enumerate()
        .map(|(number, pod)| sandbox(pod, number))
        .collect();
    let old = now() - std::time::Duration::from_secs(86_400);
    let leases = (0..size)
        .map(|number| {
            let (ip, container) = (pod_ip(number), id(owner(number, dead)));
            Lease {
                path: format!("/var/lib/cni/networks/podnet/{ip}"),
                network: "podnet".to_owned(),
                ip,
                content: format!("{container}\r\neth0"),
                container,
                interface: Some("eth0".to_owned()),
                modified_at: Some(old),
            }
        })
        .collect();
    let kube_node = KubeNode {
        name: NODE.to_owned(),
        addresses: vec![address(0xac14_000b, 0)],
        pod_cidrs: "10.10.0.0/16".parse().into_iter().collect(),
        ..KubeNode::default()
    };
    let entries = (0..size).map(|number| connection(number, dead)).collect();
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
        services: Facts::complete("api/services", (0..SERVICES).map(service).collect()),
        endpoint_slices: Facts::complete("api/endpointslices", (0..SERVICES).map(slice).collect()),
        nodes: Facts::complete("api/nodes", vec![kube_node]),
        service_cidrs: Facts::complete("api/servicecidrs", "10.96.0.0/12".parse().into_iter().collect()),
        runtime: Facts::complete(
            "cri",
            RuntimeState {
                sandboxes,
                looked_for_others: true,
                ..RuntimeState::default()
            },
        ),
        namespaces: Facts::complete("proc", Vec::new()),
        xtables: Facts::complete("iptables", vec![table(size, dead)]),
        nft: Facts::complete("nft", NftState::default()),
        conntrack: Facts::complete(
            "conntrack",
            Conntrack {
                entries,
                udp: size as u64,
                accounting: None,
            },
        ),
        ipam: Facts::complete(
            "host-local",
            IpamStore {
                leases,
                ..IpamStore::default()
            },
        ),
        cni_cache: Facts::complete("cni-cache", Vec::new()),
        cni_config: Facts::complete("cni-config", Vec::new()),
        traits: Default::default(),
        history: Facts::default(),
        adapters: Facts::default(),
        hns_endpoints: Facts::default(),
        captures: Facts::default(),
        counters: Facts::default(),
        ..NodeState::default()
    }
}

fn pod(number: usize, size: usize) -> Pod {
    let entries = (number..size)
        .step_by(PODS)
        .map(|rule| NplEntry {
            pod_port: 80,
            node_ip: None,
            node_port: port(rule),
            proto: Proto::Tcp,
            ipv6: false,
        })
        .collect();
    Pod {
        namespace: "bench".to_owned(),
        name: format!("pod-{number}"),
        uid: Some(PodUid::new(&format!("00000000-0000-4000-8000-{number:012}"))),
        node: Some(NODE.to_owned()),
        phase: Phase::Running,
        ips: vec![pod_ip(number)],
        npl: NplAnnotation::Entries(entries),
        ..Pod::default()
    }
}

fn sandbox(pod: &Pod, number: usize) -> Sandbox {
    Sandbox {
        id: id(number),
        pod: pod.pod_name(),
        uid: pod.uid.clone().unwrap_or_else(|| PodUid::new("")),
        attempt: 0,
        state: SandboxState::Ready,
        created_at: None,
        ips: Some(pod.ips.clone()),
        host_network: false,
        netns: None,
        pid: None,
        from_manifest: false,
    }
}

fn service(number: usize) -> Service {
    Service {
        namespace: "bench".to_owned(),
        name: format!("service-{number}"),
        cluster_ips: vec![address(0x0a60_0001, number)],
        ports: vec![ServicePort {
            name: "dns".to_owned(),
            proto: Proto::Udp,
            port: 53,
            node_port: None,
        }],
        ..Service::default()
    }
}

fn slice(number: usize) -> EndpointSlice {
    let endpoints = (0..5)
        .map(|endpoint| Endpoint {
            addresses: vec![pod_ip((number + endpoint) % PODS)],
            ready: true,
            serving: true,
            terminating: false,
            node: None,
            pod: None,
            pod_uid: None,
        })
        .collect();
    EndpointSlice {
        namespace: "bench".to_owned(),
        name: format!("service-{number}-x7k2p"),
        service: Some(format!("service-{number}")),
        endpoints,
        ports: vec![EndpointPort {
            name: "dns".to_owned(),
            proto: Proto::Udp,
            port: Some(53),
        }],
    }
}

fn connection(number: usize, dead: bool) -> CtEntry {
    let service = number % SERVICES;
    let endpoint = if dead && number % 2 == 1 {
        PODS + number
    } else {
        service % PODS
    };
    let client = address(0x0ac8_0001, number);
    CtEntry {
        proto: Proto::Udp,
        state: None,
        timeout: Some(120),
        original: CtTuple {
            src: client,
            dst: address(0x0a60_0001, service),
            sport: port(number),
            dport: 53,
        },
        reply: CtTuple {
            src: pod_ip(endpoint),
            dst: client,
            sport: 53,
            dport: port(number),
        },
        flags: CtFlags::default(),
        mark: 0,
        zone: 0,
        id: Some(1),
        original_count: None,
        reply_count: None,
    }
}

fn table(size: usize, dead: bool) -> XtTable {
    let chain = |name: &str, policy: Option<&str>, rules| XtChain {
        name: name.to_owned(),
        policy: policy.map(str::to_owned),
        rules,
    };
    let jump = |from: &str| XtRule {
        line: format!("-A {from} -m addrtype --dst-type LOCAL -j ANTREA-NODE-PORT-LOCAL"),
        counters: None,
        spec: XtMatch {
            dst_type: Some("LOCAL".to_owned()),
            target: Some("ANTREA-NODE-PORT-LOCAL".to_owned()),
            ..XtMatch::default()
        },
    };
    let npl = (0..size)
        .map(|number| {
            let (port, ip) = (port(number), pod_ip(owner(number, dead)));
            XtRule {
                line: format!(
                    "-A ANTREA-NODE-PORT-LOCAL -p tcp -m tcp --dport {port} -j DNAT --to-destination {ip}:80"
                ),
                counters: None,
                spec: XtMatch {
                    proto: Some(Proto::Tcp),
                    dports: vec![PortRange::one(port)],
                    target: Some("DNAT".to_owned()),
                    dnat: Some(Dnat { ip, port: Some(80) }),
                    ..XtMatch::default()
                },
            }
        })
        .collect();
    let marked = (0..size)
        .map(|number| {
            let comment = format!("name: \"podnet\" id: \"{}\"", id(owner(number, dead)));
            XtRule {
                line: format!(
                    "-A POSTROUTING -s {}/32 -m comment --comment \"{comment}\" -j ACCEPT",
                    pod_ip(number)
                ),
                counters: None,
                spec: XtMatch {
                    comment: Some(comment),
                    target: Some("ACCEPT".to_owned()),
                    ..XtMatch::default()
                },
            }
        })
        .collect();
    XtTable {
        variant: XtVariant::Nft,
        family: Family::Ipv4,
        name: "nat".to_owned(),
        chains: vec![
            chain("PREROUTING", Some("ACCEPT"), vec![jump("PREROUTING")]),
            chain("OUTPUT", Some("ACCEPT"), vec![jump("OUTPUT")]),
            chain("POSTROUTING", Some("ACCEPT"), marked),
            chain("ANTREA-NODE-PORT-LOCAL", None, npl),
        ],
        source: "nft/ipv4".to_owned(),
    }
}
