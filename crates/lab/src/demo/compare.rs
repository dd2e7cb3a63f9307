//! The node before and after a repair: everything outside the plan must be equal.
//!
//! The plan is carried out on the text of the first snapshot; what the second one has else is unexplained. Left out are what the clients
//! and Sexton's own questions put into the connection table, and neighbours, which age by themselves, unless they are of living Pods.

use std::collections::BTreeSet;

use sexton_core::finding::XtPlace;
use sexton_core::model::{CtEntry, Family, NftElement, Proto, XtVariant};
use sexton_core::plan::{Act, NftEdit, Plan, XtEdit};

use crate::node::{API_PORT, CLIENT_IP, NODE_IP};
use crate::snapshot::Snapshot;
use crate::truth::{PodState, Protocol, Target, Truth};

const CONNTRACK: &str = "conntrack -L";
const FILES: &str = "files";
const NEIGHBOURS: &str = "ip -j neigh show";
const NFT: &str = "nft -s list ruleset";

/// Where Sexton puts leases away.
const QUARANTINE: &str = "/var/lib/cni/.sexton-quarantine/";

/// What is different and not by the plan.
pub(super) fn unexplained(
    before: &Snapshot,
    after: &Snapshot,
    plan: &Plan,
    truth: &Truth,
    talk: &[Target],
) -> Vec<String> {
    let (mut wanted, mut seen) = (before.clone(), after.clone());
    settle(&mut wanted, plan, truth);
    settle(&mut seen, plan, truth);
    new_neighbours(&wanted, &mut seen);
    clients(&wanted, &mut seen, talk);
    let mut wrong = Vec::new();
    let mut leases = Vec::new();
    for act in plan.steps.iter().map(|step| &step.act) {
        let done = match act {
            Act::XtRestore { edit } => restore(&mut wanted, edit),
            Act::NftEdit { edit } => nft_edit(&mut wanted, edit),
            Act::NftDeleteElement { element, .. } => {
                let text = element_words(element);
                remove(&mut wanted, NFT, |line| {
                    text.iter().all(|word| line.contains(word.as_str()))
                })
                .map(drop)
            }
            Act::ConntrackDelete { entries } => entries.iter().try_for_each(|entry| {
                let text = tuples(entry);
                remove(&mut wanted, CONNTRACK, |line| line.contains(&text)).map(drop)
            }),
            Act::LeaseQuarantine { lease } => {
                let start = format!("{} ", lease.path);
                remove(&mut wanted, FILES, |line| line.starts_with(&start))
                    .map(|line| leases.extend(line.strip_prefix(&start).map(str::to_owned)))
            }
            Act::NftAddElement { .. } | Act::LeaseRestore { .. } => {
                Err("an act that only an undo has".to_owned())
            }
        };
        if let Err(why) = done {
            wrong.push(format!("the plan does not fit the node: {why}"));
        }
    }
    wrong.extend(quarantined(&mut seen, leases));
    let different = wanted.diff(&seen);
    wrong.extend(
        different
            .into_iter()
            .map(|line| format!("changed outside the plan: {line}")),
    );
    wrong
}

fn lines<'a>(snapshot: &'a mut Snapshot, section: &str) -> &'a mut Vec<String> {
    snapshot.sections.entry(section.to_owned()).or_default()
}

/// Takes the rules and elements of an edit out of the ruleset, and puts its elements in.
fn nft_edit(snapshot: &mut Snapshot, edit: &NftEdit) -> Result<(), String> {
    for at in &edit.delete {
        let text = at.rule.text.as_str();
        remove(snapshot, NFT, |line| line.contains(text))?;
    }
    for at in &edit.delete_elements {
        let words = element_words(&at.element);
        remove(snapshot, NFT, |line| {
            words.iter().all(|word| line.contains(word.as_str()))
        })?;
    }
    if edit.add.is_empty() && edit.add_elements.is_empty() {
        return Ok(());
    }
    Err("what the demo's node has no place for: rules or elements added to nftables".to_owned())
}

/// Takes the first such line out of a section.
fn remove(snapshot: &mut Snapshot, section: &str, is: impl Fn(&str) -> bool) -> Result<String, String> {
    let lines = lines(snapshot, section);
    let index = lines.iter().position(|line| is(line));
    index
        .map(|index| lines.remove(index))
        .ok_or_else(|| format!("{section} has no line for one of its acts"))
}

/// Takes away what moves by itself or is said twice.
fn settle(snapshot: &mut Snapshot, plan: &Plan, truth: &Truth) {
    let rules = lines(snapshot, NFT);
    *rules = nft(rules);
    let api = format!("dport={API_PORT} ");
    let probes: BTreeSet<String> = plan
        .steps
        .iter()
        .filter_map(|step| match &step.act {
            Act::XtRestore { edit } => Some(&edit.probes),
            Act::NftEdit { edit } => Some(&edit.probes),
            _ => None,
        })
        .flatten()
        .filter(|probe| probe.proto == Proto::Tcp)
        .map(|probe| format!(" dport={} ", probe.node_port))
        .collect();
    lines(snapshot, CONNTRACK).retain(|line| {
        let tcp = line.starts_with("tcp ");
        let from = |ip: &str| line.contains(&format!(" src={ip} dst="));
        let asked_the_api = from("127.0.0.1") && line.contains(&api);
        let proved = from(NODE_IP) && probes.iter().any(|port| line.contains(port.as_str()));
        // Whether a client's TCP connection broke, the clients themselves know best.
        !(tcp && (from(CLIENT_IP) || asked_the_api || proved))
    });
    let living: Vec<String> = truth
        .pods
        .iter()
        .filter(|pod| pod.state == PodState::Living)
        .map(|pod| format!("\"dst\":\"{}\"", pod.ip))
        .collect();
    lines(snapshot, NEIGHBOURS).retain(|line| living.iter().any(|ip| line.contains(ip.as_str())));
}

/// A ruleset without the tables that `iptables-save` shows.
fn nft(text: &[String]) -> Vec<String> {
    const XTABLES: [&str; 5] = ["nat", "filter", "mangle", "raw", "security"];
    let mut skip = false;
    let mut lines = text.to_vec();
    lines.retain(|line| {
        if let Some(name) = line.strip_prefix("table ") {
            let mut words = name.split(' ');
            let family = words.next().unwrap_or_default();
            let table = words.next().unwrap_or_default();
            skip = matches!(family, "ip" | "ip6") && XTABLES.contains(&table);
        }
        !skip
    });
    lines
}

fn element_words(element: &NftElement) -> Vec<String> {
    let key: Vec<String> = element.key.iter().map(ToString::to_string).collect();
    let comment = element.comment.iter().map(|comment| format!("\"{comment}\""));
    std::iter::once(format!("element {} ", key.join(" . ")))
        .chain(comment)
        .collect()
}

fn tuples(entry: &CtEntry) -> String {
    let tuple = &entry.original;
    format!(
        "src={} dst={} sport={} dport={} ",
        tuple.src, tuple.dst, tuple.sport, tuple.dport
    )
}

/// Carries a restore out on the lines of `iptables-save`: rules go, chains go, rules come at the end of their chain.
fn restore(snapshot: &mut Snapshot, edit: &XtEdit) -> Result<(), String> {
    let section = section(&edit.place);
    let lines = lines(snapshot, &section);
    let head = format!("*{}", edit.place.table);
    let start = lines
        .iter()
        .position(|line| *line == head)
        .ok_or_else(|| format!("{section} has no table {}", edit.place.table))?;
    let length = lines[start..]
        .iter()
        .position(|line| line == "COMMIT")
        .unwrap_or(0);
    let mut table: Vec<String> = lines.drain(start..start + length).collect();
    for rule in &edit.delete {
        let index = table.iter().position(|line| line == rule);
        let index = index.ok_or_else(|| format!("{section} has no rule {rule}"))?;
        table.remove(index);
    }
    for chain in &edit.drop_chains {
        let line = format!(":{chain} -");
        let index = table.iter().position(|known| *known == line);
        let index = index.ok_or_else(|| format!("{section} has no chain {chain}"))?;
        table.remove(index);
    }
    for rule in &edit.add {
        let chain: String = rule.split(' ').take(2).map(|word| format!("{word} ")).collect();
        let last = table.iter().rposition(|line| line.starts_with(&chain));
        table.insert(last.map_or(table.len(), |last| last + 1), rule.clone());
    }
    lines.splice(start..start, table);
    Ok(())
}

fn section(place: &XtPlace) -> String {
    let program = match place.family {
        Family::Ipv4 => "iptables",
        Family::Ipv6 => "ip6tables",
    };
    match place.variant {
        XtVariant::Legacy => format!("{program}-legacy-save -t {}", place.table),
        XtVariant::Nft | XtVariant::Unknown => format!("{program}-nft-save"),
    }
}

/// A neighbour that was not known before was learned by traffic.
fn new_neighbours(before: &Snapshot, after: &mut Snapshot) {
    let address = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        object["dst"].as_str().map(str::to_owned)
    };
    let known: BTreeSet<String> = before
        .sections
        .get(NEIGHBOURS)
        .into_iter()
        .flatten()
        .filter_map(|line| address(line))
        .collect();
    lines(after, NEIGHBOURS).retain(|line| address(line).is_some_and(|ip| known.contains(&ip)));
}

/// Takes the clients' UDP connections away that came since.
fn clients(before: &Snapshot, after: &mut Snapshot, talk: &[Target]) {
    let old: BTreeSet<&String> = before.sections.get(CONNTRACK).into_iter().flatten().collect();
    let tails: Vec<(String, String)> = talk
        .iter()
        .filter(|target| target.protocol == Protocol::Udp)
        .map(|target| {
            (
                format!(" src={CLIENT_IP} dst={} ", target.ip),
                format!(" dport={} ", target.port),
            )
        })
        .collect();
    lines(after, CONNTRACK).retain(|line| {
        let by_a_client = line.starts_with("udp ")
            && tails
                .iter()
                .any(|(head, tail)| line.contains(head) && line.contains(tail));
        !by_a_client || old.contains(line)
    });
}

/// Every lease that was put away lies in quarantine as it was; what lies there else stays in the comparison.
fn quarantined(after: &mut Snapshot, mut leases: Vec<String>) -> Vec<String> {
    let directory = |line: &str| line.split(' ').next().is_some_and(|name| name.ends_with('/'));
    lines(after, FILES).retain(|line| {
        let Some(rest) = line.strip_prefix(QUARANTINE) else {
            return true;
        };
        if directory(line) {
            return false;
        }
        let tail = rest.split_once(' ').map(|(_, tail)| tail);
        match leases.iter().position(|lease| Some(lease.as_str()) == tail) {
            Some(index) => {
                leases.swap_remove(index);
                false
            }
            None => true,
        }
    });
    leases
        .into_iter()
        .map(|lease| format!("a lease is in no quarantine: {lease}"))
        .collect()
}

#[cfg(test)]
mod tests;
