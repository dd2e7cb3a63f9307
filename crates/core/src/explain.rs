//! Every object of a node that names an address or a container, with the verdict on it, the living ones too.

mod pod;

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;

use crate::{
    finding::{Finding, Object},
    judge::Judge,
    marks,
    model::{ContainerId, IpvsService, NftValue, NodeState},
    plan::Remedy,
    roster::{Residence, Standing},
};

pub use pod::{PodPlaces, pod};

/// One object that names what was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Mention {
    /// Its kind.
    pub kind: &'static str,
    /// Where it was read.
    pub source: String,
    /// The object as its own tool prints it.
    pub text: String,
    /// The finding on it, if there is one.
    pub finding: Option<Finding>,
    /// Why there is none.
    pub why: String,
}

/// Collects mentions with the verdicts on them.
struct Collector {
    findings: Vec<Finding>,
    standing: String,
    out: Vec<Mention>,
}

impl Collector {
    fn new(judge: &Judge<'_>, residence: &Residence) -> Self {
        let standing = match residence.standing {
            Standing::Live => "its owner is alive",
            Standing::Ended | Standing::Nobody => {
                "no rule names it: it may be right, of a kind that none judges, or go with something else"
            }
            Standing::Unknown => "its owner cannot be told",
        };
        Self {
            findings: judge.all(),
            standing: standing.to_owned(),
            out: Vec::new(),
        }
    }

    fn push(&mut self, kind: &'static str, source: &str, text: String) {
        let covers = |finding: &&Finding| match &finding.object {
            Object::XtUnit { jump, rules, .. } => {
                let further = match &finding.remedy {
                    Some(Remedy::Xt(edit)) => edit.delete.as_slice(),
                    _ => &[],
                };
                jump.line == text || rules.iter().any(|r| r.line == text) || further.contains(&text)
            }
            Object::NftUnit { rules, .. } => kind == "nft-rule" && rules.iter().any(|r| r.placed() == text),
            other => other.kind() == kind && other.text() == text,
        };
        let finding = self.findings.iter().find(covers).cloned();
        self.out.push(Mention {
            kind,
            source: source.to_owned(),
            text,
            finding,
            why: self.standing.clone(),
        });
    }
}

/// Every object that names an address.
pub fn mentions_of_address(judge: &Judge<'_>, ip: IpAddr) -> Vec<Mention> {
    let state = judge.state;
    let mut all = Collector::new(judge, &judge.roster.address(ip));
    for pod in state
        .pods
        .value
        .iter()
        .filter(|p| p.ips.contains(&ip) || p.extra_ips.contains(&ip))
    {
        let uid = pod.uid.as_ref().map(ToString::to_string).unwrap_or_default();
        let since = pod
            .created_at
            .map(|at| format!(", since {at:.0}"))
            .unwrap_or_default();
        all.push(
            "pod",
            &state.pods.source_names(),
            format!("{} {uid} {:?}{since}", pod.pod_name(), pod.phase),
        );
    }
    let runtime = state.runtime.source_names();
    for sandbox in state
        .runtime
        .value
        .sandboxes
        .iter()
        .filter(|s| s.ips.iter().flatten().any(|own| *own == ip))
    {
        all.push(
            "sandbox",
            &runtime,
            Object::Sandbox {
                sandbox: sandbox.clone(),
            }
            .text(),
        );
    }
    for namespace in state
        .namespaces
        .value
        .iter()
        .filter(|n| n.ips.iter().flatten().any(|own| *own == ip))
    {
        let object = Object::Namespace {
            inode: namespace.inode,
            paths: namespace.paths.clone(),
            pids: namespace.pids.clone(),
        };
        all.push("namespace", &state.namespaces.source_names(), object.text());
    }
    for lease in state.ipam.value.leases.iter().filter(|l| l.ip == ip) {
        all.push(
            "lease",
            &lease.path,
            Object::Lease { lease: lease.clone() }.text(),
        );
    }
    for entry in state.cni_cache.value.iter().filter(|e| e.ips.contains(&ip)) {
        all.push(
            "cni-cache-entry",
            &entry.path,
            format!("{} {}", entry.network, entry.container),
        );
    }
    for table in &state.xtables.value {
        for (_, rule) in table.rules().filter(|(_, rule)| names_address(&rule.line, ip)) {
            all.push("xt-rule", &table.source, rule.line.clone());
        }
    }
    let nft = state.nft.source_names();
    for set in &state.nft.value.sets {
        let named = set.elements.iter().filter(|e| {
            e.key
                .iter()
                .chain(&e.data)
                .any(|value| *value == NftValue::Addr(ip))
        });
        for element in named {
            let object = Object::NftElement {
                family: set.family,
                table: set.table.clone(),
                set: set.name.clone(),
                element: element.clone(),
            };
            all.push("nft-element", &nft, object.text());
        }
    }
    for rule in state
        .nft
        .value
        .rules
        .iter()
        .filter(|r| names_address(&r.text, ip))
    {
        all.push("nft-rule", &nft, rule.placed());
    }
    for entry in &state.conntrack.value.entries {
        let (o, r) = (&entry.original, &entry.reply);
        if [o.src, o.dst, r.src, r.dst].contains(&ip) {
            all.push("conntrack", &state.conntrack.source_names(), entry.text());
        }
    }
    for route in state.routes.value.iter().filter(|r| {
        r.gateway == Some(ip)
            || r.dst
                .is_some_and(|d| d.addr() == ip && d.prefix_len() == d.max_prefix_len())
    }) {
        let dst = route.dst.map_or_else(|| "default".to_owned(), |d| d.to_string());
        let dev = route.dev.as_deref().unwrap_or("-");
        let via = route.gateway.map(|g| format!(" via {g}")).unwrap_or_default();
        all.push(
            "route",
            &state.routes.source_names(),
            format!("{} {dst}{via} dev {dev} table {}", route.kind, route.table),
        );
    }
    for neighbour in state.neighbours.value.iter().filter(|n| n.ip == ip) {
        let mac = neighbour.mac.map(|m| format!(" lladdr {m}")).unwrap_or_default();
        let text = format!("{ip} dev {}{mac} {}", neighbour.dev, neighbour.state);
        all.push("neighbour", &state.neighbours.source_names(), text);
    }
    beside(state, ip, &mut all);
    in_the_network(judge, ip, &mut all);
    all.out
}

/// What the adapters own, endpoints of HNS, and flows that were captured.
fn in_the_network(judge: &Judge<'_>, ip: IpAddr, all: &mut Collector) {
    let state = judge.state;
    for list in &state.adapters.value {
        for (nic, owned) in list.addresses().filter(|(_, owned)| owned.address == ip) {
            let object = Object::NicAddress {
                address: ip,
                nic: nic.name.clone().or_else(|| nic.mac.clone()),
                name: owned.name.clone(),
                list: list.path.clone(),
            };
            all.push("nic-address", &list.path, object.text());
        }
    }
    let endpoints = state.hns_endpoints.value.iter();
    for endpoint in endpoints.filter(|endpoint| endpoint.addresses.contains(&ip)) {
        let of = if endpoint.is_local() {
            ""
        } else {
            " (of another node, or taken away)"
        };
        let text = format!("{} {}{of}", endpoint.name, endpoint.id);
        all.push("hns-endpoint", &state.hns_endpoints.source_names(), text);
    }
    const SHOWN: usize = 50;
    for capture in &state.captures.value {
        let circulating = capture.destinations.iter().find(|to| to.address == ip);
        if let Some(to) = circulating {
            let object = Object::PacketLoop {
                address: ip,
                flows: to.flows.iter().map(|flow| flow.key.to_string()).collect(),
                packets_per_second: to.rate,
                circulating: to.circulating,
                circulating_exact: to.circulating_exact,
                enters: None,
                leaves: None,
                capture: capture.path.clone(),
            };
            all.push("packet-loop", &capture.path, object.text());
        }
        let named = capture.flows.iter();
        // Those of the loop are named with it.
        let named = named
            .filter(|flow| flow.key.source == ip || (flow.key.destination == ip && circulating.is_none()));
        for flow in named.take(SHOWN) {
            let rate = flow
                .rate()
                .map_or_else(String::new, |rate| format!(", {rate:.0} a second"));
            let text = format!("{}: {} packets{rate}", flow.key, flow.packets);
            all.push("flow", &capture.path, text);
        }
    }
}

/// What no rule judges yet: the routing policy, sets of ipset, and IPVS.
fn beside(state: &NodeState, ip: IpAddr, all: &mut Collector) {
    let is = |net: &IpNet| net.addr() == ip && net.prefix_len() == net.max_prefix_len();
    let rules = state.ip_rules.value.iter();
    for rule in rules.filter(|r| r.from.iter().chain(&r.to).any(is)) {
        all.push("ip-rule", &state.ip_rules.source_names(), rule.text());
    }
    for set in &state.ipsets.value {
        for member in set.members.iter().filter(|m| m.addresses().any(|net| is(&net))) {
            all.push("ipset-member", &state.ipsets.source_names(), set.line(member));
        }
    }
    for service in &state.ipvs.value {
        let source = state.ipvs.source_names();
        if matches!(service.service, IpvsService::Address { ip: own, .. } if own == ip) {
            all.push("ipvs-service", &source, service.text());
        }
        for server in service.servers.iter().filter(|server| server.ip == ip) {
            all.push("ipvs-server", &source, service.server_text(server));
        }
    }
}

/// The whole ID that 12 digits or more of one begin, as `crictl` prints them, where exactly one ID of the node begins so;
/// else what was given.
pub fn full_id(state: &NodeState, given: &ContainerId) -> ContainerId {
    let sandboxes = state.runtime.value.sandboxes.iter().map(|s| s.id.clone());
    let leases = state.ipam.value.leases.iter().map(|l| l.container.clone());
    let cached = state.cni_cache.value.iter().map(|e| e.container.clone());
    let rules = state.xtables.value.iter().flat_map(|table| table.rules());
    let rules =
        rules.filter_map(|(_, rule)| Some(marks::cni_comment(rule.spec.comment.as_deref()?)?.container));
    let nft = state
        .nft
        .value
        .rules
        .iter()
        .filter_map(|rule| Some(marks::nft::of(rule)?.container));
    let all = sandboxes.chain(leases).chain(cached).chain(rules).chain(nft);
    let whole: BTreeSet<String> = all
        .filter(|id| id.as_str().len() > given.as_str().len() && id.same_or_prefix(given))
        .map(|id| id.as_str().to_owned())
        .collect();
    match whole.first() {
        Some(only) if whole.len() == 1 => ContainerId::new(only),
        _ => given.clone(),
    }
}

/// Every object that names a container.
pub fn mentions_of_container(judge: &Judge<'_>, id: &ContainerId) -> Vec<Mention> {
    let state = judge.state;
    let born = judge.born(id, None).map(|(at, _)| at);
    let mut all = Collector::new(judge, &judge.roster.container(id, born));
    for sandbox in state
        .runtime
        .value
        .sandboxes
        .iter()
        .filter(|s| s.id.same_or_prefix(id))
    {
        all.push(
            "sandbox",
            &state.runtime.source_names(),
            Object::Sandbox {
                sandbox: sandbox.clone(),
            }
            .text(),
        );
    }
    for lease in state
        .ipam
        .value
        .leases
        .iter()
        .filter(|l| l.container.same_or_prefix(id))
    {
        all.push(
            "lease",
            &lease.path,
            Object::Lease { lease: lease.clone() }.text(),
        );
    }
    for entry in state
        .cni_cache
        .value
        .iter()
        .filter(|e| e.container.same_or_prefix(id))
    {
        all.push(
            "cni-cache-entry",
            &entry.path,
            format!("{} {}", entry.network, entry.container),
        );
    }
    for table in &state.xtables.value {
        for (_, rule) in table.rules() {
            let mark = rule.spec.comment.as_deref().and_then(marks::cni_comment);
            if mark.is_some_and(|m| m.container.same_or_prefix(id)) {
                all.push("xt-rule", &table.source, rule.line.clone());
            }
        }
    }
    for rule in &state.nft.value.rules {
        if marks::nft::of(rule).is_some_and(|m| m.container.same_or_prefix(id)) {
            all.push("nft-rule", &state.nft.source_names(), rule.placed());
        }
    }
    all.out
}

/// True if a line of text holds this address as a word of its own: `10.0.0.1` is not in `10.0.0.10`.
fn names_address(line: &str, ip: IpAddr) -> bool {
    let text = ip.to_string();
    let inside = |c: char| c.is_ascii_hexdigit() || c == '.' || (ip.is_ipv6() && c == ':');
    line.match_indices(&text).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + text.len()..].chars().next();
        !before.is_some_and(inside) && !after.is_some_and(|c| inside(c) && !(c == ':' && ip.is_ipv4()))
    })
}
