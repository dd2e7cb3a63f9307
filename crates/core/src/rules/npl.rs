//! NodePortLocal: mappings that Pods announce against the DNAT rules that the kernel has.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

mod home;
mod missing;

use super::{Part, Rule};
use crate::{
    finding::{Evidence, Finding, Object, Verdict, Witness},
    judge::Judge,
    marks::ANTREA_NPL_CHAIN,
    model::{Family, NodeState, NplAnnotation, NplEntry, Pod, Proto, XtChain, XtRule, XtTable},
    plan::Probe,
    roster::{Residence, Standing, owner_of},
};
use home::Home;

/// See the page.
pub(super) static STALE_TARGET: Rule = Rule {
    id: "npl-stale-target",
    tier: 1,
    summary: "a NodePortLocal rule that leads to an address where its Pod no longer lives",
    page: include_str!("pages/npl-stale-target.md"),
    needs: &[Part::Pods, Part::Xtables],
    judge: stale_target,
};

/// See the page.
pub(super) static MISSING_MAPPING: Rule = Rule {
    id: "npl-missing-mapping",
    tier: 1,
    summary: "a NodePortLocal mapping that a Pod announces and the kernel does not have",
    page: include_str!("pages/npl-missing-mapping.md"),
    needs: &[Part::Pods, Part::Xtables],
    judge: missing::judge,
};

/// A mapping that a living Pod of this node announces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) pod: &'a Pod,
    pub(super) entry: &'a NplEntry,
    /// The Pod's address of the entry's family.
    pub(super) ip: IpAddr,
}

impl Wanted<'_> {
    fn target(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.entry.pod_port)
    }

    fn line(&self) -> String {
        let NplEntry { proto, node_port, .. } = self.entry;
        let target = self.target();
        format!(
            "-A {ANTREA_NPL_CHAIN} -p {proto} -m {proto} --dport {node_port} -j DNAT --to-destination {target}"
        )
    }

    /// What the annotation says, in words.
    fn announced(&self, judge: &Judge<'_>) -> Evidence {
        let NplEntry {
            proto,
            node_port,
            pod_port,
            ..
        } = self.entry;
        let pod = self.pod.pod_name();
        let text = format!(
            "Pod {pod} announces {proto} port {node_port} for its port {pod_port}, and has {}",
            self.ip
        );
        Evidence::new(judge.state.pods.source_names(), text)
    }

    fn probe(&self) -> Probe {
        Probe {
            proto: self.entry.proto,
            node_ip: self.entry.node_ip,
            node_port: self.entry.node_port,
            target: self.ip,
            target_port: self.entry.pod_port,
        }
    }
}

/// What a node port leads to by the annotations.
type Port = (Family, Proto, u16);

/// All mappings of this node's living Pods by node port. Two Pods that announce one port are both kept: then the
/// annotations contradict each other.
pub(super) fn wanted(state: &NodeState) -> HashMap<Port, Vec<Wanted<'_>>> {
    let mut out: HashMap<Port, Vec<Wanted<'_>>> = HashMap::new();
    for pod in state.local_pods().filter(|p| !p.phase.is_terminal()) {
        let NplAnnotation::Entries(entries) = &pod.npl else {
            continue;
        };
        for entry in entries.iter().filter(|e| !is_host_port(pod, e)) {
            let family = if entry.ipv6 { Family::Ipv6 } else { Family::Ipv4 };
            if let Some(ip) = pod.ips.iter().copied().find(|ip| Family::of(*ip) == family) {
                let claims = out.entry((family, entry.proto, entry.node_port)).or_default();
                let more = Wanted { pod, entry, ip };
                // An annotation may name one mapping twice.
                if !claims
                    .iter()
                    .any(|w| w.pod.uid == pod.uid && w.target() == more.target())
                {
                    claims.push(more);
                }
            }
        }
    }
    out
}

/// An entry for a port that the Pod has as hostPort: the controller announces it and writes no rule (antrea#2024).
fn is_host_port(pod: &Pod, entry: &NplEntry) -> bool {
    pod.ports.iter().any(|p| {
        p.host_port == Some(entry.node_port) && p.container_port == entry.pod_port && p.proto == entry.proto
    })
}

/// A DNAT rule of the chain in the form that the controller writes.
struct Mapping<'a> {
    home: Home<'a>,
    port: Port,
    target: SocketAddr,
}

fn mapping<'a>(table: &'a XtTable, rule: &'a XtRule) -> Option<Mapping<'a>> {
    let spec = &rule.spec;
    let plain = !spec.negated
        && spec.others.is_empty()
        && spec.source.is_none()
        && spec.destination.is_none()
        && spec.in_interface.is_none()
        && spec.out_interface.is_none()
        && spec.dst_type.is_none();
    let [ports] = spec.dports.as_slice() else {
        return None;
    };
    let dnat = spec.dnat?;
    (plain && ports.first == ports.last).then_some(Mapping {
        home: Home::Rule { table, rule },
        port: (table.family, spec.proto?, ports.first),
        target: SocketAddr::new(dnat.ip, dnat.port.unwrap_or(ports.first)),
    })
}

fn chains<'a>(judge: &Judge<'a>) -> impl Iterator<Item = (&'a XtTable, &'a XtChain)> {
    judge
        .tables("nat")
        .filter_map(|table| Some((table, table.chain(ANTREA_NPL_CHAIN)?)))
}

fn stale_target(judge: &Judge<'_>) -> Vec<Finding> {
    let wanted = wanted(judge.state);
    let mut findings = Vec::new();
    for (table, chain) in chains(judge) {
        let mappings: Vec<_> = chain
            .rules
            .iter()
            .map(|rule| (rule, mapping(table, rule)))
            .collect();
        let mut first: Places = HashMap::new();
        for (at, (_, mapping)) in mappings.iter().enumerate() {
            if let Some(mapping) = mapping {
                first.entry((mapping.port, mapping.target)).or_insert(at);
            }
        }
        for (at, (rule, mapping)) in mappings.iter().enumerate() {
            let found = match mapping {
                Some(mapping) => judge_mapping(judge, (at, mapping), &first, &wanted),
                None => unreadable(table, rule),
            };
            findings.extend(found);
        }
    }
    // A map has one element a port: no order, and nothing beside.
    let none = HashMap::new();
    for mapping in home::mappings(judge.state) {
        findings.extend(judge_mapping(judge, (0, &mapping), &none, &wanted));
    }
    findings
}

/// Where in a chain the first rule stands that leads from a port to a target.
type Places = HashMap<(Port, SocketAddr), usize>;

/// A DNAT whose target was not printed or that matches more than a port: it is in the controller's chain, and not in the
/// controller's form.
fn unreadable(table: &XtTable, rule: &XtRule) -> Option<Finding> {
    (rule.spec.target.as_deref() == Some("DNAT")).then(|| Finding {
        rule: STALE_TARGET.id,
        verdict: Verdict::Unknown,
        why_not_repair: Some(
            "the rule is not in the form that the controller writes; look at it by hand".to_owned(),
        ),
        object: object(table, rule),
        owner: None,
        consequence: "Where this rule sends packets could not be told.".to_owned(),
        evidence: vec![Evidence::new(
            &table.source,
            "one port and one target were expected",
        )],
        witnesses: Vec::new(),
        remedy: None,
    })
}

fn object(table: &XtTable, rule: &XtRule) -> Object {
    Object::XtRule {
        place: Judge::place(table),
        chain: ANTREA_NPL_CHAIN.to_owned(),
        rule: rule.clone(),
    }
}

fn judge_mapping(
    judge: &Judge<'_>,
    (own_at, mapping): (usize, &Mapping<'_>),
    first: &Places,
    wanted: &HashMap<Port, Vec<Wanted<'_>>>,
) -> Option<Finding> {
    let claims = wanted.get(&mapping.port).map_or(&[][..], Vec::as_slice);
    if claims.iter().any(|w| w.target() == mapping.target) {
        return None;
    }
    let residence = judge.roster.address(mapping.target.ip());
    let (_, proto, node_port) = mapping.port;
    let claim = match claims {
        [one] => Some(one),
        _ => None,
    };
    let source = mapping.home.source(judge);
    let mut evidence = vec![Evidence::new(
        &source,
        format!("{proto} port {node_port} leads to {}", mapping.target),
    )];
    let verdict = match ruling(judge, mapping, claims, &residence) {
        Ruling::Right => return None,
        Ruling::InUse => return Some(veto(judge, mapping, residence, evidence)),
        Ruling::Wrong(verdict) => verdict,
    };
    // The first rule for a port is the one that works.
    let right_at = claim.and_then(|claim| first.get(&(mapping.port, claim.target())));
    let shadowed = right_at.is_some_and(|right| *right < own_at);
    let add = claim.filter(|_| right_at.is_none());
    evidence.extend(claim.map(|claim| claim.announced(judge)));
    if let Some(claim) = claim.filter(|_| right_at.is_some()) {
        let text = format!("the right rule stands in the chain too: {}", claim.line());
        evidence.push(Evidence::new(&source, text));
    }
    evidence.extend(residence.evidence.iter().cloned());
    if claims.len() > 1 {
        let names: Vec<_> = claims.iter().map(|w| w.pod.pod_name().to_string()).collect();
        let text = format!("{} all announce {proto} port {node_port}", names.join(" and "));
        evidence.push(Evidence::new(judge.state.pods.source_names(), text));
    }
    let mut lacking = lacking(judge, verdict, claims, &residence);
    lacking.extend(mapping.home.foreign().filter(|_| verdict == Verdict::Stale));
    let owner = match residence.standing {
        Standing::Live => claim.map(|c| owner_of(c.pod, None)),
        _ => residence
            .owner
            .clone()
            .or_else(|| claim.and_then(|c| former_self(c.pod))),
    };
    let consequence = consequence(mapping, verdict, claim, &residence, shadowed);
    Some(Finding {
        rule: STALE_TARGET.id,
        verdict,
        why_not_repair: super::why_not(verdict, &lacking),
        object: mapping.home.object(),
        owner,
        consequence,
        evidence,
        witnesses: residence.witnesses,
        remedy: (verdict == Verdict::Stale).then(|| {
            let probes = claim.map(Wanted::probe).into_iter().collect();
            let replaced = usize::from(claim.is_some());
            mapping.home.replacement(add, probes, replaced)
        }),
    })
}

/// What the annotations, and whoever lives at its target, make of a mapping.
enum Ruling {
    /// Right, or about to be announced or taken down.
    Right,
    /// Alive by a source other than the API: the living first.
    InUse,
    /// To be reported.
    Wrong(Verdict),
}

/// Rules on a mapping that none of the `claims` on its port asks for.
fn ruling(judge: &Judge<'_>, mapping: &Mapping<'_>, claims: &[Wanted<'_>], residence: &Residence) -> Ruling {
    let api_whole = judge.state.pods.is_complete();
    let by_api = residence.witnesses.contains(&Witness::Api);
    match residence.standing {
        Standing::Ended | Standing::Nobody => Ruling::Wrong(Verdict::Stale),
        Standing::Unknown => Ruling::Wrong(Verdict::Unknown),
        // A living Pod of this node behind a port that nobody announces: announced in a moment, or being taken down.
        Standing::Live if claims.is_empty() && (is_of_this_node(judge, residence) || !api_whole) => {
            if by_api || judge.roster.is_node_ip(mapping.target.ip()) {
                Ruling::Right
            } else {
                Ruling::InUse
            }
        }
        // A Pod of another node, behind a port that nobody announces.
        Standing::Live if claims.is_empty() => Ruling::Wrong(Verdict::Stale),
        Standing::Live if !by_api => Ruling::InUse,
        Standing::Live if claims.len() == 1 && api_whole => Ruling::Wrong(Verdict::Stale),
        Standing::Live => Ruling::Wrong(Verdict::Unknown),
    }
}

/// What a wrong rule does to traffic.
fn consequence(
    mapping: &Mapping<'_>,
    verdict: Verdict,
    claim: Option<&Wanted<'_>>,
    residence: &Residence,
    shadowed: bool,
) -> String {
    let (family, proto, node_port) = mapping.port;
    let ip = mapping.target.ip();
    if shadowed {
        return format!(
            "The right rule for {proto} port {node_port} ({family}) stands before this one, which would lead to {ip} \
             as soon as that is gone."
        );
    }
    let behind = match (verdict, residence.standing, &residence.owner) {
        (Verdict::Unknown, ..) => format!("is sent to {ip}, and who lives there cannot be told"),
        (_, Standing::Live, Some(other)) if claim.is_none() => {
            format!("reaches Pod {}, which is not of this node", other.pod_name())
        }
        (_, Standing::Live, Some(other)) => format!("reaches Pod {} instead", other.pod_name()),
        _ => format!("is sent to {ip}, where nobody lives"),
    };
    // Of two claims neither is said to go without; an unknown target may be the Pod's own.
    let stands = claim
        .filter(|_| verdict == Verdict::Stale)
        .map(|claim| {
            format!(
                "; Pod {} announces the port and gets none of it",
                claim.pod.pod_name()
            )
        })
        .unwrap_or_default();
    format!("Traffic to {proto} port {node_port} ({family}) of this node {behind}{stands}.")
}

/// The Pod of the same name before: that is whose address it was, as far as the annotation tells.
fn former_self(pod: &Pod) -> Option<crate::finding::Owner> {
    Some(crate::finding::Owner {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: None,
        ended_at: pod.created_at,
    })
}

/// What judging or repairing a wrong rule still needs.
fn lacking(judge: &Judge<'_>, verdict: Verdict, claims: &[Wanted<'_>], residence: &Residence) -> Vec<String> {
    let mut out = Vec::new();
    if residence.standing != Standing::Live {
        out.extend(residence.lacking.iter().cloned());
    } else if let Some(why) = judge.state.pods.completeness.why() {
        out.push(format!("a complete Pod list from the API server ({why})"));
    }
    if claims.len() > 1 {
        out.push("one owner of the port: its annotations contradict each other".to_owned());
    }
    if verdict == Verdict::Unknown {
        return out;
    }
    if residence.standing == Standing::Live {
        out.extend(judge.roster.repair_blockers());
        out.extend(untold(judge));
        let uid = residence.owner.as_ref().and_then(|owner| owner.uid.as_ref());
        if let Some(pod) = uid.and_then(|uid| judge.roster.pod(uid))
            && let NplAnnotation::Unreadable(why) = &pod.npl
        {
            out.push(format!("the annotation of Pod {} ({why})", pod.pod_name()));
        }
    }
    if let [claim] = claims {
        out.extend(contradicted(judge, claim));
    }
    out
}

/// The second witness, where the runtime did not speak.
fn untold(judge: &Judge<'_>) -> Option<String> {
    let what = "PodSandboxStatus of every sandbox from the runtime";
    (!judge.state.runtime.is_complete()).then(|| what.to_owned())
}

/// What keeps a mapping from being made: the runtime gives the Pod another address.
fn contradicted(judge: &Judge<'_>, claim: &Wanted<'_>) -> Option<String> {
    (judge.roster.runtime_confirms(claim.pod, claim.ip) == Some(false)).then(|| {
        format!(
            "agreement of API and runtime on the address of Pod {}: its sandbox has not {}",
            claim.pod.pod_name(),
            claim.ip
        )
    })
}

fn is_of_this_node(judge: &Judge<'_>, residence: &Residence) -> bool {
    residence.owner.as_ref().is_none_or(|owner| {
        judge
            .state
            .local_pods()
            .any(|p| p.namespace == owner.namespace && p.name == owner.name)
            || !residence.witnesses.contains(&Witness::Api)
    })
}

/// Alive by a source other than the API: reported, never stale.
fn veto(
    judge: &Judge<'_>,
    mapping: &Mapping<'_>,
    residence: Residence,
    mut evidence: Vec<Evidence>,
) -> Finding {
    evidence.extend(residence.evidence);
    let api = if judge.state.pods.is_complete() {
        "no Pod of the API has it"
    } else {
        "the API's list is not whole"
    };
    Finding {
        rule: STALE_TARGET.id,
        verdict: Verdict::Unknown,
        why_not_repair: Some(format!(
            "somebody lives at {} although {api}",
            mapping.target.ip()
        )),
        object: mapping.home.object(),
        owner: residence.owner,
        consequence: format!(
            "Port {} leads to an address that is still in use.",
            mapping.port.2
        ),
        evidence,
        witnesses: residence.witnesses,
        remedy: None,
    }
}
