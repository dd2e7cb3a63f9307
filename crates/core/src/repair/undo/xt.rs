//! What of an undo in iptables nobody needs (law 9): rules are parted one by one.

use std::net::IpAddr;

use super::port_taken;
use crate::{
    finding::XtPlace,
    judge::Judge,
    model::XtRule,
    plan::{Act, XtEdit},
};

/// The part whose place nobody needs, and the part that somebody does, with who.
///
/// Rules are parted one by one; a jump and the chain that it needs are one.
pub(super) fn free_part(
    judge: &Judge<'_>,
    edit: &XtEdit,
    parse: &dyn Fn(&str) -> Option<XtRule>,
) -> (Option<Act>, Option<(Act, String)>) {
    let chain_of = |line: &str| line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut reasons = Vec::new();
    let mut lost_chains: Vec<String> = Vec::new();
    let mut taken = |line: &String, asked: &dyn Fn(&XtRule) -> Option<String>| {
        let who = match parse(line) {
            Some(rule) => asked(&rule),
            None => Some(format!("{line:?} cannot be read as a rule")),
        };
        who.map(|who| {
            reasons.push(who);
            line.clone()
        })
    };
    // Rules that the repair put there and that serve somebody alive stay.
    let kept: Vec<String> = edit
        .delete
        .iter()
        .filter_map(|line| taken(line, &|rule| serves_alive(judge, &edit.place, rule)))
        .collect();
    let mut refused: Vec<String> = edit
        .add
        .iter()
        .filter_map(|line| taken(line, &|rule| taken_place(judge, rule)))
        .collect();
    for line in &edit.add {
        let target = parse(line).and_then(|rule| rule.spec.target);
        let unit = target
            .filter(|t| edit.new_chains.contains(t))
            .or_else(|| Some(chain_of(line)));
        if refused.contains(line)
            && let Some(chain) = unit.filter(|chain| edit.new_chains.contains(chain))
        {
            lost_chains.push(chain);
        }
    }
    for line in &edit.add {
        let target = parse(line).and_then(|rule| rule.spec.target).unwrap_or_default();
        if !refused.contains(line) && (lost_chains.contains(&chain_of(line)) || lost_chains.contains(&target))
        {
            refused.push(line.clone());
        }
    }
    let part = |lines: &[String], out: &[String], inside: bool| -> Vec<String> {
        lines
            .iter()
            .filter(|line| out.contains(line) == inside)
            .cloned()
            .collect()
    };
    let half = |inside: bool| XtEdit {
        place: edit.place.clone(),
        delete: part(&edit.delete, &kept, inside),
        drop_chains: if inside {
            Vec::new()
        } else {
            edit.drop_chains.clone()
        },
        new_chains: part(&edit.new_chains, &lost_chains, inside),
        add: part(&edit.add, &refused, inside),
        probes: Vec::new(),
        replaced: 0,
    };
    let (free, needed) = (half(false), half(true));
    let something = |edit: &XtEdit| !edit.delete.is_empty() || !edit.add.is_empty();
    reasons.sort();
    reasons.dedup();
    let needed = something(&needed).then(|| (Act::XtRestore { edit: needed }, reasons.join("; ")));
    (something(&free).then_some(Act::XtRestore { edit: free }), needed)
}

/// Somebody alive whom a rule serves: the target of a DNAT, or of a DNAT in the chain that it jumps to.
fn serves_alive(judge: &Judge<'_>, place: &XtPlace, rule: &XtRule) -> Option<String> {
    let mut tables = judge.state.xtables.value.iter();
    let behind = tables
        .find(|table| Judge::place(table) == *place)
        .zip(rule.spec.target.as_deref())
        .and_then(|(table, target)| table.chain(target))
        .map_or(&[][..], |chain| chain.rules.as_slice());
    let mut targets = std::iter::once(rule).chain(behind).filter_map(|r| r.spec.dnat);
    let alive = targets.find(|dnat| judge.roster.has_live_owner(dnat.ip))?;
    Some(format!("{} is alive and served", alive.ip))
}

/// Somebody alive who has the place of a rule today: its ports, the address that it would lead to, or the one that it would
/// take for a dead Pod's.
fn taken_place(judge: &Judge<'_>, rule: &XtRule) -> Option<String> {
    let source = rule.spec.source.as_deref().and_then(single_address);
    let mut addresses = rule.spec.dnat.map(|dnat| dnat.ip).into_iter().chain(source);
    if let Some(ip) = addresses.find(|ip| judge.roster.has_live_owner(*ip)) {
        return Some(format!("somebody alive has {ip} now"));
    }
    port_taken(judge, rule.spec.proto?, &rule.spec.dports)
}

/// The address of a match on one address (`10.0.0.1/32`); `None` for a wider one.
fn single_address(text: &str) -> Option<IpAddr> {
    let net: ipnet::IpNet = text
        .parse()
        .or_else(|_| text.parse::<IpAddr>().map(ipnet::IpNet::from))
        .ok()?;
    (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())
}
