//! Tracked UDP connections that keep a client on an endpoint that is gone. UDP has no handshake: as long as the client sends,
//! its entry lives, and no rule is looked at again.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{Part, Rule, npl};
use crate::{
    finding::{Evidence, Finding, Object, Verdict, Witness},
    judge::Judge,
    marks::KUBE_PREFIX,
    model::{CtEntry, NftValue, NodeState, PortRange, Proto},
    plan::Remedy,
    roster::{Residence, Standing},
    services::{Front, ServedPort},
};

/// See the page.
pub(super) static UDP_DEAD_ENDPOINT: Rule = Rule {
    id: "conntrack-udp-dead-endpoint",
    tier: 1,
    summary: "a UDP connection to a Service that is kept on an endpoint which serves it no more",
    page: include_str!("pages/conntrack-udp-dead-endpoint.md"),
    needs: &[Part::Services, Part::Conntrack],
    judge: |judge| each(judge, dead_endpoint),
};

/// See the page.
pub(super) static UDP_ORPHAN_VIP: Rule = Rule {
    id: "conntrack-udp-orphan-vip",
    tier: 1,
    summary: "a UDP connection to an address of no Service any more, kept on a dead Pod",
    page: include_str!("pages/conntrack-udp-orphan-vip.md"),
    needs: &[Part::Pods, Part::Services, Part::Conntrack],
    judge: |judge| each(judge, orphan_vip),
};

/// See the page.
pub(super) static HOSTPORT_STALE: Rule = Rule {
    id: "conntrack-hostport-stale",
    tier: 1,
    summary: "a UDP connection to a host port or NodePortLocal port, kept on a Pod that has it no more",
    page: include_str!("pages/conntrack-hostport-stale.md"),
    needs: &[Part::Pods, Part::Conntrack],
    judge: hostport_stale,
};

/// See the page.
pub(super) static UNDNATTED_VIP: Rule = Rule {
    id: "conntrack-undnatted-vip",
    tier: 1,
    summary: "a UDP connection to a Service address that was never translated, although the Service has endpoints",
    page: include_str!("pages/conntrack-undnatted-vip.md"),
    needs: &[Part::Services, Part::Conntrack],
    judge: |judge| each(judge, undnatted),
};

fn each(judge: &Judge<'_>, rule: fn(&Judge<'_>, &CtEntry) -> Option<Finding>) -> Vec<Finding> {
    let entries = judge.state.conntrack.value.entries.iter();
    entries
        .filter(|e| e.proto == Proto::Udp)
        .filter_map(|entry| rule(judge, entry))
        .collect()
}

/// The Service port that an entry's first packet went to.
fn served<'a>(judge: &Judge<'a>, entry: &CtEntry) -> Option<ServedPort<'a>> {
    let to = &entry.original;
    judge.services.at(to.dst, to.dport, entry.proto).or_else(|| {
        let node_port = judge.services.at_node_port(to.dport, entry.proto)?;
        judge.roster.is_node_ip(to.dst).then_some(node_port)
    })
}

struct Verdictum {
    verdict: Verdict,
    lacking: Vec<String>,
    witnesses: Vec<Witness>,
    evidence: Vec<Evidence>,
}

fn finding(
    judge: &Judge<'_>,
    rule: &Rule,
    entry: &CtEntry,
    v: Verdictum,
    at: &Residence,
    text: String,
) -> Finding {
    let mut evidence = vec![Evidence::new(judge.state.conntrack.source_names(), entry.text())];
    evidence.extend(v.evidence);
    Finding {
        rule: rule.id,
        verdict: v.verdict,
        why_not_repair: (!v.lacking.is_empty()).then(|| format!("a repair needs {}", v.lacking.join("; "))),
        object: Object::Conntrack { entry: entry.clone() },
        owner: at.owner.clone(),
        consequence: text,
        evidence,
        witnesses: v.witnesses,
        remedy: (v.verdict == Verdict::Stale).then(|| Remedy::Conntrack(entry.clone())),
    }
}

/// What Services and EndpointSlices lack to be judged by.
fn services_lack(state: &NodeState) -> Vec<String> {
    let mut lacking = Vec::new();
    for (part, name) in [
        (&state.services.completeness, "Services"),
        (&state.endpoint_slices.completeness, "EndpointSlices"),
    ] {
        if let Some(why) = part.why() {
            lacking.push(format!("all {name} of the cluster ({why})"));
        }
    }
    lacking
}

fn dead_endpoint(judge: &Judge<'_>, entry: &CtEntry) -> Option<Finding> {
    if !entry.is_dnat() {
        return None;
    }
    let served = served(judge, entry)?;
    let backends = judge.services.backends(served);
    let (ip, port) = (entry.reply.src, entry.reply.sport);
    if backends.serves(ip, port) {
        return None;
    }
    let at = judge.roster.address(ip);
    let mut v = Verdictum {
        verdict: Verdict::Stale,
        lacking: services_lack(judge.state),
        witnesses: vec![Witness::Api],
        evidence: Vec::new(),
    };
    if !v.lacking.is_empty() {
        v.verdict = Verdict::Unknown;
    }
    let name = format!("{}/{}", served.service.namespace, served.service.name);
    let count = backends.len();
    v.evidence.push(Evidence::new(
        judge.state.endpoint_slices.source_names(),
        format!(
            "Service {name} port {} is served by {count} endpoints, and {ip}:{port} is none of them",
            served.port.port
        ),
    ));
    v.evidence.extend(at.evidence.iter().cloned());
    // A zombie's connection is left alone: its Pod answers still (law 7).
    if at.standing == Standing::Live && !at.witnesses.contains(&Witness::Api) {
        v.verdict = Verdict::Unknown;
        v.lacking.push(format!("the end of whoever lives at {ip}"));
    }
    match data_plane(judge.state, entry, served.front) {
        DataPlane::Serves { source, rule } => {
            v.witnesses.push(Witness::Kernel);
            v.evidence.push(Evidence::new(
                source,
                format!("kube-proxy serves this port: {rule}"),
            ));
        }
        DataPlane::StillSends { source, rule } => {
            v.evidence.push(Evidence::new(source, rule));
            v.lacking
                .push("kube-proxy to stop sending there: it would make the entry again".to_owned());
        }
        DataPlane::NotFound => v.lacking.push(
            "kube-proxy's rules for this port (another proxy owns the address, or the rules were not read)"
                .to_owned(),
        ),
    }
    v.lacking.extend(judge.roster.repair_blockers());
    let left = if count == 0 {
        "nobody serves it now"
    } else {
        "others serve it"
    };
    let text = format!(
        "Client {} keeps sending its packets for Service {name} to {ip}:{port}, which serves it no more; {left}.",
        entry.original.src
    );
    Some(finding(judge, &UDP_DEAD_ENDPOINT, entry, v, &at, text))
}

/// What the node's own data plane does with an entry's first packet.
enum DataPlane {
    /// kube-proxy has rules for it, and none leads to the entry's endpoint.
    Serves { source: String, rule: String },
    /// kube-proxy still sends there.
    StillSends { source: String, rule: String },
    /// No rule of kube-proxy was found.
    NotFound,
}

fn data_plane(state: &NodeState, entry: &CtEntry, front: Front) -> DataPlane {
    let (to, reply) = (&entry.original, &entry.reply);
    for table in &state.xtables.value {
        let still = table.rules().find(|(chain, rule)| {
            chain.name.starts_with("KUBE-SEP-")
                && rule.spec.proto == Some(entry.proto)
                && rule
                    .spec
                    .dnat
                    .is_some_and(|d| d.ip == reply.src && d.port == Some(reply.sport))
        });
        if let Some((_, rule)) = still {
            return DataPlane::StillSends {
                source: table.source.clone(),
                rule: rule.line.clone(),
            };
        }
    }
    for table in &state.xtables.value {
        let own = table.rules().find(|(chain, rule)| {
            let destination = rule
                .spec
                .destination
                .as_deref()
                .and_then(|d| d.split('/').next()?.parse::<IpAddr>().ok());
            chain.name.starts_with(KUBE_PREFIX)
                && rule.spec.proto == Some(entry.proto)
                && rule.spec.dports.contains(&PortRange::one(to.dport))
                && (destination == Some(to.dst) || (front == Front::NodePort && destination.is_none()))
        });
        if let Some((_, rule)) = own {
            return DataPlane::Serves {
                source: table.source.clone(),
                rule: rule.line.clone(),
            };
        }
    }
    let nft = &state.nft.value;
    let source = state.nft.source_names();
    let proxy = nft.sets.iter().filter(|s| s.table == "kube-proxy");
    let sends = nft.rules.iter().find(|r| {
        r.table == "kube-proxy"
            && r.dnat
                .is_some_and(|d| d.ip == reply.src && d.port == Some(reply.sport))
    });
    if let Some(rule) = sends {
        return DataPlane::StillSends {
            source,
            rule: rule.text.clone(),
        };
    }
    let fronts = [
        "service-ips",
        "service-nodeports",
        "no-endpoint-services",
        "no-endpoint-nodeports",
    ];
    for set in proxy.filter(|s| fronts.contains(&s.name.as_str())) {
        let element = set.elements.iter().find(|e| {
            e.key.contains(&NftValue::Port(to.dport))
                && e.key.contains(&NftValue::Proto(entry.proto))
                && (front == Front::NodePort || e.key.contains(&NftValue::Addr(to.dst)))
        });
        if let Some(element) = element {
            return DataPlane::Serves {
                source,
                rule: element.text(),
            };
        }
    }
    DataPlane::NotFound
}

fn orphan_vip(judge: &Judge<'_>, entry: &CtEntry) -> Option<Finding> {
    let (vip, ip) = (entry.original.dst, entry.reply.src);
    let state = judge.state;
    if !entry.is_dnat() || judge.services.is_vip(vip) || judge.roster.is_node_ip(vip) || vip.is_multicast() {
        return None;
    }
    // Only what a Pod of this node once answered is looked at; anything else is some other translation.
    if !judge.roster.is_local_pod_address(ip) {
        return None;
    }
    let in_range = judge
        .services
        .in_service_range(vip, &judge.settings.service_cidrs);
    let at = judge.roster.address(ip);
    if in_range == Some(false) || at.standing == Standing::Live {
        return None;
    }
    let mut v = Verdictum {
        verdict: Verdict::Stale,
        lacking: Vec::new(),
        witnesses: at.witnesses.clone(),
        evidence: at.evidence.clone(),
    };
    if in_range.is_none() {
        v.verdict = Verdict::Unknown;
        v.lacking
            .push("the cluster's Service ranges (--service-cidr)".to_owned());
    }
    if let Some(why) = state.services.completeness.why() {
        v.verdict = Verdict::Unknown;
        v.lacking.push(format!("all Services of the cluster ({why})"));
    }
    if !at.is_dead() {
        v.verdict = Verdict::Unknown;
    }
    v.lacking.extend(at.lacking.iter().cloned());
    v.evidence.push(Evidence::new(
        state.services.source_names(),
        format!(
            "none of {} Services has the address {vip}",
            state.services.value.len()
        ),
    ));
    let text = format!(
        "Client {} keeps sending to {vip}, an address of no Service any more, and its packets go to the dead {ip}.",
        entry.original.src
    );
    Some(finding(judge, &UDP_ORPHAN_VIP, entry, v, &at, text))
}

/// Who a port of the node leads to today.
#[derive(Default)]
struct Today {
    /// Addresses that Pods announce or declare for it, and living targets of the kernel's own rules.
    targets: Vec<IpAddr>,
}

fn hostport_stale(judge: &Judge<'_>) -> Vec<Finding> {
    let mut today: HashMap<(Proto, u16), Today> = HashMap::new();
    for ((_, proto, port), claims) in npl::wanted(judge.state) {
        today
            .entry((proto, port))
            .or_default()
            .targets
            .extend(claims.iter().map(|w| w.ip));
    }
    for pod in judge
        .state
        .local_pods()
        .filter(|p| !p.phase.is_terminal() && !p.host_network)
    {
        for port in &pod.ports {
            if let Some(host_port) = port.host_port {
                today
                    .entry((port.proto, host_port))
                    .or_default()
                    .targets
                    .extend(pod.own_ips());
            }
        }
    }
    let mut ruled: HashMap<(Proto, u16), Vec<IpAddr>> = HashMap::new();
    for (_, rule) in judge.tables("nat").flat_map(|t| t.rules()) {
        if let (Some(dnat), [port], Some(proto)) =
            (rule.spec.dnat, rule.spec.dports.as_slice(), rule.spec.proto)
        {
            ruled.entry((proto, port.first)).or_default().push(dnat.ip);
        }
    }
    let entries = judge.state.conntrack.value.entries.iter();
    entries
        .filter(|e| e.proto == Proto::Udp && e.is_dnat() && judge.roster.is_node_ip(e.original.dst))
        .filter_map(|entry| judge_hostport(judge, entry, &today, &ruled))
        .collect()
}

fn judge_hostport(
    judge: &Judge<'_>,
    entry: &CtEntry,
    today: &HashMap<(Proto, u16), Today>,
    ruled: &HashMap<(Proto, u16), Vec<IpAddr>>,
) -> Option<Finding> {
    let (port, ip) = (entry.original.dport, entry.reply.src);
    let key = (entry.proto, port);
    let claim = today.get(&key);
    let in_range = judge.settings.npl_range.contains(port);
    if (claim.is_none() && !in_range) || !judge.roster.is_local_pod_address(ip) {
        return None;
    }
    // A Service's node port is another rule's.
    if judge.services.at_node_port(port, entry.proto).is_some() {
        return None;
    }
    if claim.is_some_and(|today| today.targets.contains(&ip)) {
        return None;
    }
    let at = judge.roster.address(ip);
    if at.standing == Standing::Live {
        // Alive: stale only when somebody else has the port today and no rule of the kernel leads here.
        let by_api = at.witnesses.contains(&Witness::Api);
        let ruled_here = ruled.get(&key).is_some_and(|targets| targets.contains(&ip));
        if !by_api || ruled_here || claim.is_none_or(|t| t.targets.is_empty()) {
            return None;
        }
    }
    let mut v = Verdictum {
        verdict: if at.standing == Standing::Unknown {
            Verdict::Unknown
        } else {
            Verdict::Stale
        },
        lacking: at.lacking.clone(),
        witnesses: at.witnesses.clone(),
        evidence: at.evidence.clone(),
    };
    if at.standing == Standing::Live {
        v.lacking = judge.roster.repair_blockers();
        if !judge.state.pods.is_complete() {
            v.verdict = Verdict::Unknown;
        }
        if !judge.state.runtime.is_complete() {
            v.lacking
                .push("PodSandboxStatus of every sandbox from the runtime".to_owned());
        }
    }
    let now = match claim.and_then(|t| t.targets.first()) {
        Some(target) => format!("today it leads to {target}"),
        None if judge.state.pods.is_complete() => "no Pod has it today".to_owned(),
        None => "who has it today cannot be told".to_owned(),
    };
    v.evidence.push(Evidence::new(
        judge.state.pods.source_names(),
        format!("{} port {port} of the node: {now}", entry.proto),
    ));
    let text = format!(
        "Client {} keeps sending to {} port {port} of this node, and its packets go to {ip}; {now}.",
        entry.original.src, entry.proto
    );
    Some(finding(judge, &HOSTPORT_STALE, entry, v, &at, text))
}

fn undnatted(judge: &Judge<'_>, entry: &CtEntry) -> Option<Finding> {
    if entry.is_dnat() {
        return None;
    }
    // A load balancer's address may rightly be reached untranslated: it is somebody else's machine.
    let served = served(judge, entry).filter(|s| s.front == Front::ClusterIp)?;
    // A node-local cache (NodeLocal DNSCache) answers at the Service's address itself.
    if judge.roster.is_node_ip(entry.original.dst) {
        return None;
    }
    let backends = judge.services.backends(served);
    if backends.is_empty() {
        return None;
    }
    let mut v = Verdictum {
        verdict: Verdict::Stale,
        lacking: services_lack(judge.state),
        witnesses: vec![Witness::Api],
        evidence: Vec::new(),
    };
    if !v.lacking.is_empty() {
        v.verdict = Verdict::Unknown;
    }
    let name = format!("{}/{}", served.service.namespace, served.service.name);
    v.evidence.push(Evidence::new(
        judge.state.endpoint_slices.source_names(),
        format!("Service {name} has {} endpoints", backends.len()),
    ));
    match data_plane(judge.state, entry, served.front) {
        DataPlane::Serves { source, rule } | DataPlane::StillSends { source, rule } => {
            v.witnesses.push(Witness::Kernel);
            v.evidence.push(Evidence::new(
                source,
                format!("kube-proxy translates it now: {rule}"),
            ));
        }
        DataPlane::NotFound => {
            v.lacking
                .push("kube-proxy's rules for this port: without them the next entry is the same".to_owned());
        }
    }
    v.lacking.extend(judge.roster.repair_blockers());
    let vip = entry.original.dst;
    let at = judge.roster.address(entry.original.src);
    let text = format!(
        "Client {} keeps sending to Service {name} at {vip} without translation: its packets leave the node and are lost.",
        entry.original.src
    );
    Some(finding(judge, &UNDNATTED_VIP, entry, v, &at, text))
}
