//! Tracked UDP connections that keep a client on an endpoint that is gone. UDP has no handshake: as long as the client sends,
//! its entry lives, and no rule is looked at again.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::{
    Part, Rule,
    data_plane::{DataPlane, Sends},
    npl,
};
use crate::{
    finding::{Evidence, Finding, Object, Verdict, Witness},
    judge::Judge,
    model::{CtEntry, NodeState, Proto},
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
    judge: dead_endpoints,
};

/// See the page.
pub(super) static UDP_ORPHAN_VIP: Rule = Rule {
    id: "conntrack-udp-orphan-vip",
    tier: 1,
    summary: "a UDP connection to an address of no Service any more, kept on a dead Pod",
    page: include_str!("pages/conntrack-udp-orphan-vip.md"),
    needs: &[Part::Pods, Part::Services, Part::Conntrack],
    judge: orphan_vips,
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
    judge: undnatted_all,
};

/// The UDP entries.
fn entries<'a>(judge: &Judge<'a>) -> impl Iterator<Item = &'a CtEntry> {
    let all = judge.state.conntrack.value.entries.iter();
    all.filter(|e| e.proto == Proto::Udp)
}

/// Whose packets an entry leads: those of one socket, whether it sends now or not.
fn client(entry: &CtEntry) -> SocketAddr {
    SocketAddr::new(entry.original.src, entry.original.sport)
}

/// The Service port that an entry's first packet went to.
fn served<'a>(judge: &Judge<'a>, entry: &CtEntry) -> Option<ServedPort<'a>> {
    let to = &entry.original;
    let first = judge.services.at(to.dst, to.dport, entry.proto).first();
    first.copied().or_else(|| {
        let node_port = judge.services.at_node_port(to.dport, entry.proto)?;
        judge.roster.is_node_ip(to.dst).then_some(node_port)
    })
}

/// A verdict in the making.
#[derive(Default)]
struct Draft {
    /// What judging lacks: anything makes the verdict unknown.
    to_judge: Vec<String>,
    /// What a repair lacks.
    to_repair: Vec<String>,
    witnesses: Vec<Witness>,
    evidence: Vec<Evidence>,
}

impl Draft {
    /// The finding. `stale` says what the entry does if it is stale.
    fn finding(
        mut self,
        judge: &Judge<'_>,
        rule: &Rule,
        entry: &CtEntry,
        at: &Residence,
        stale: String,
    ) -> Finding {
        let mut evidence = vec![Evidence::new(judge.state.conntrack.source_names(), entry.text())];
        evidence.append(&mut self.evidence);
        if judge.is_answering(entry) {
            self.to_judge.push(format!(
                "silence: {} answered this connection between two readings",
                entry.reply.src
            ));
        }
        let (verdict, lacking, consequence) = if self.to_judge.is_empty() {
            // What the address lacks may name them already.
            for blocker in judge.roster.repair_blockers() {
                if !self.to_repair.contains(&blocker) {
                    self.to_repair.push(blocker);
                }
            }
            (Verdict::Stale, self.to_repair, stale)
        } else {
            let (client, to, from) = (client(entry), &entry.original, &entry.reply);
            let text = format!(
                "Packets of client {client} to {} go to {}; whether that is right cannot be told.",
                SocketAddr::new(to.dst, to.dport),
                SocketAddr::new(from.src, from.sport)
            );
            (Verdict::Unknown, self.to_judge, text)
        };
        Finding {
            rule: rule.id,
            verdict,
            why_not_repair: super::why_not(verdict, &lacking),
            object: Object::Conntrack { entry: entry.clone() },
            owner: at.owner.clone(),
            consequence,
            evidence,
            witnesses: self.witnesses,
            remedy: (verdict == Verdict::Stale).then(|| Remedy::Conntrack(entry.clone())),
        }
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

/// Adds what kube-proxy's rules say of an entry that is to be deleted.
fn ask_data_plane(draft: &mut Draft, plane: &DataPlane<'_>, entry: &CtEntry, served: ServedPort<'_>) {
    match plane.sends(entry, served.front) {
        Sends::Elsewhere((source, rule)) => {
            draft.witnesses.push(Witness::Kernel);
            draft.evidence.push(Evidence::new(
                source,
                format!("kube-proxy serves this port: {rule}"),
            ));
            if let Some(why) = &plane.untold {
                draft.to_repair.push(format!("all of kube-proxy's rules ({why})"));
            }
        }
        Sends::There((source, rule)) => {
            draft.evidence.push(Evidence::new(source, rule));
            draft
                .to_repair
                .push("kube-proxy to stop sending there: it would make the entry again".to_owned());
        }
        Sends::NotFound => draft.to_repair.push(
            "kube-proxy's rules for this port (another proxy owns the address, or the rules were not read)"
                .to_owned(),
        ),
    }
    if entry.zone != 0 {
        draft.to_repair.push(format!(
            "the rules of whoever uses zone {}: kube-proxy uses zone 0",
            entry.zone
        ));
    }
}

fn dead_endpoints(judge: &Judge<'_>) -> Vec<Finding> {
    let plane = DataPlane::new(judge.state);
    let today = today(judge.state);
    entries(judge)
        .filter_map(|entry| dead_endpoint(judge, &plane, &today, entry))
        .collect()
}

fn dead_endpoint(
    judge: &Judge<'_>,
    plane: &DataPlane<'_>,
    today: &Today,
    entry: &CtEntry,
) -> Option<Finding> {
    if !entry.is_dnat() {
        return None;
    }
    let served = served(judge, entry)?;
    let backends = judge.services.backends(served);
    let (ip, port) = (entry.reply.src, entry.reply.sport);
    // Another Service may have the same external address and port.
    let to = &entry.original;
    let mut others = judge.services.at(to.dst, to.dport, entry.proto).iter();
    if backends.serves(ip, port) || others.any(|other| judge.services.backends(*other).serves(ip, port)) {
        return None;
    }
    let target = SocketAddr::new(ip, port);
    // A load balancer's address may be the node's own, and a Pod's hostPort behind it (k3s' servicelb).
    let claim = today.get(&(entry.proto, entry.original.dport));
    if judge.roster.is_node_ip(entry.original.dst) && claim.is_some_and(|targets| targets.contains(&ip)) {
        return None;
    }
    let at = judge.roster.address(ip);
    let mut draft = Draft {
        to_judge: services_lack(judge.state),
        witnesses: vec![Witness::Api],
        ..Draft::default()
    };
    let name = format!("{}/{}", served.service.namespace, served.service.name);
    let count = backends.len();
    draft.evidence.push(Evidence::new(
        judge.state.endpoint_slices.source_names(),
        format!(
            "Service {name} port {} is served by {count} endpoints, and {target} is none of them",
            served.port.port
        ),
    ));
    draft.evidence.extend(at.evidence.iter().cloned());
    // A zombie's connection is left alone: its Pod answers still (law 7).
    if at.standing == Standing::Live && !at.witnesses.contains(&Witness::Api) {
        draft.to_judge.push(format!("the end of whoever lives at {ip}"));
    }
    ask_data_plane(&mut draft, plane, entry, served);
    let left = if count == 0 {
        "nobody serves it now"
    } else {
        "others serve it"
    };
    let text = format!(
        "Packets of client {} to Service {name} go to {target}, which serves it no more; {left}.",
        client(entry)
    );
    Some(draft.finding(judge, &UDP_DEAD_ENDPOINT, entry, &at, text))
}

fn orphan_vips(judge: &Judge<'_>) -> Vec<Finding> {
    entries(judge)
        .filter_map(|entry| orphan_vip(judge, entry))
        .collect()
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
    let mut draft = Draft {
        witnesses: at.witnesses.clone(),
        evidence: at.evidence.clone(),
        ..Draft::default()
    };
    if in_range.is_none() {
        let what = "the cluster's Service ranges (--service-cidr)";
        draft.to_judge.push(what.to_owned());
    }
    if let Some(why) = state.services.completeness.why() {
        draft
            .to_judge
            .push(format!("all Services of the cluster ({why})"));
    }
    if at.is_dead() {
        draft.to_repair.extend(at.lacking.iter().cloned());
    } else {
        draft.to_judge.extend(at.lacking.iter().cloned());
    }
    draft.evidence.push(Evidence::new(
        state.services.source_names(),
        format!(
            "none of {} Services has the address {vip}",
            state.services.value.len()
        ),
    ));
    let text = format!(
        "Packets of client {} to {vip}, an address of no Service any more, go to the dead {ip}.",
        client(entry)
    );
    Some(draft.finding(judge, &UDP_ORPHAN_VIP, entry, &at, text))
}

/// Where ports of the node lead today: addresses that Pods of this node announce or declare for each.
type Today = HashMap<(Proto, u16), Vec<IpAddr>>;

fn today(state: &NodeState) -> Today {
    let mut today = Today::new();
    for ((_, proto, port), claims) in npl::wanted(state) {
        let targets = today.entry((proto, port)).or_default();
        targets.extend(claims.iter().map(|w| w.ip));
    }
    let living = state
        .local_pods()
        .filter(|p| !p.phase.is_terminal() && !p.host_network);
    for pod in living {
        for port in &pod.ports {
            if let Some(host_port) = port.host_port {
                let targets = today.entry((port.proto, host_port)).or_default();
                targets.extend(pod.own_ips());
            }
        }
    }
    today
}

fn hostport_stale(judge: &Judge<'_>) -> Vec<Finding> {
    let today = today(judge.state);
    let mut ruled = Today::new();
    for (_, rule) in judge.tables("nat").flat_map(|t| t.rules()) {
        if let (Some(dnat), [port], Some(proto)) =
            (rule.spec.dnat, rule.spec.dports.as_slice(), rule.spec.proto)
        {
            ruled.entry((proto, port.first)).or_default().push(dnat.ip);
        }
    }
    entries(judge)
        .filter(|e| e.is_dnat() && judge.roster.is_node_ip(e.original.dst))
        .filter_map(|entry| judge_hostport(judge, entry, &today, &ruled))
        .collect()
}

fn judge_hostport(judge: &Judge<'_>, entry: &CtEntry, today: &Today, ruled: &Today) -> Option<Finding> {
    let (port, ip) = (entry.original.dport, entry.reply.src);
    let key = (entry.proto, port);
    let claim = today.get(&key);
    let in_range = judge.settings.npl_range.contains(port);
    if (claim.is_none() && !in_range) || !judge.roster.is_local_pod_address(ip) {
        return None;
    }
    // A Service's port at the node's address is another rule's: its node port, or a load balancer's address that is the
    // node's own.
    if served(judge, entry).is_some() || claim.is_some_and(|targets| targets.contains(&ip)) {
        return None;
    }
    let at = judge.roster.address(ip);
    let mut draft = Draft {
        witnesses: at.witnesses.clone(),
        evidence: at.evidence.clone(),
        ..Draft::default()
    };
    match at.standing {
        Standing::Live => {
            // Alive: stale only when somebody else has the port today and no rule of the kernel leads here.
            let by_api = at.witnesses.contains(&Witness::Api);
            let ruled_here = ruled.get(&key).is_some_and(|targets| targets.contains(&ip));
            if !by_api || ruled_here || claim.is_none_or(Vec::is_empty) {
                return None;
            }
            for (part, name) in [
                (&judge.state.pods.completeness, "Pods of the node"),
                (&judge.state.services.completeness, "Services of the cluster"),
                (&judge.state.xtables.completeness, "iptables tables"),
            ] {
                if let Some(why) = part.why() {
                    draft.to_judge.push(format!("all {name} ({why})"));
                }
            }
            if !judge.state.runtime.is_complete() {
                let what = "PodSandboxStatus of every sandbox from the runtime";
                draft.to_repair.push(what.to_owned());
            }
        }
        Standing::Unknown => draft.to_judge.extend(at.lacking.iter().cloned()),
        Standing::Ended | Standing::Nobody => draft.to_repair.extend(at.lacking.iter().cloned()),
    }
    let now = match claim.and_then(|targets| targets.first()) {
        Some(target) => format!("today it leads to {target}"),
        None if judge.state.pods.is_complete() => "no Pod has it today".to_owned(),
        None => "who has it today cannot be told".to_owned(),
    };
    draft.evidence.push(Evidence::new(
        judge.state.pods.source_names(),
        format!("{} port {port} of the node: {now}", entry.proto),
    ));
    let text = format!(
        "Packets of client {} to {} port {port} of this node go to {ip}; {now}.",
        client(entry),
        entry.proto
    );
    Some(draft.finding(judge, &HOSTPORT_STALE, entry, &at, text))
}

fn undnatted_all(judge: &Judge<'_>) -> Vec<Finding> {
    let plane = DataPlane::new(judge.state);
    entries(judge)
        .filter_map(|entry| undnatted(judge, &plane, entry))
        .collect()
}

fn undnatted(judge: &Judge<'_>, plane: &DataPlane<'_>, entry: &CtEntry) -> Option<Finding> {
    // In another zone the same connection is seen before its translation in a further one (OVN, Antrea's OVS).
    if entry.is_dnat() || entry.zone != 0 {
        return None;
    }
    // An answer came from that very address: a node-local cache whose interface was not read.
    if !entry.flags.unreplied {
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
    let mut draft = Draft {
        to_judge: services_lack(judge.state),
        witnesses: vec![Witness::Api],
        ..Draft::default()
    };
    let name = format!("{}/{}", served.service.namespace, served.service.name);
    draft.evidence.push(Evidence::new(
        judge.state.endpoint_slices.source_names(),
        format!("Service {name} has {} endpoints", backends.len()),
    ));
    ask_data_plane(&mut draft, plane, entry, served);
    let vip = entry.original.dst;
    let at = judge.roster.address(entry.original.src);
    let text = format!(
        "Packets of client {} to Service {name} at {vip} are not translated, and reach none of the endpoints.",
        client(entry)
    );
    Some(draft.finding(judge, &UNDNATTED_VIP, entry, &at, text))
}
