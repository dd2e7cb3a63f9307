//! What of an undo in nftables nobody needs (law 9): rules and elements are parted one by one.

use std::net::IpAddr;

use super::{Parted, port_taken};
use crate::{
    judge::Judge,
    model::{NftElement, NftRule, NftValue, PortRange, Proto},
    plan::{Act, NftEdit},
};

/// The part whose place nobody needs, and the part that somebody does.
pub(super) fn part(judge: &Judge<'_>, edit: &NftEdit) -> Parted {
    let mut free = NftEdit::of(edit.family, edit.table.clone());
    let mut needed = free.clone();
    let mut reasons = Vec::new();
    let mut is_needed = |who: Option<String>| {
        let needed = who.is_some();
        reasons.extend(who);
        needed
    };
    for at in &edit.add {
        let half = if is_needed(rule_needed(judge, &at.rule)) {
            &mut needed
        } else {
            &mut free
        };
        half.add.push(at.clone());
    }
    // What leads to somebody alive was put there for him, and stays.
    let mut kept_keys = Vec::new();
    for at in &edit.delete_elements {
        let alive = living_address(judge, &at.element.data);
        if is_needed(alive.map(|ip| format!("{ip} is alive and served"))) {
            kept_keys.push((&at.set, &at.element.key));
            needed.delete_elements.push(at.clone());
        } else {
            free.delete_elements.push(at.clone());
        }
    }
    for at in &edit.add_elements {
        let kept = kept_keys.contains(&(&at.set, &at.element.key));
        let half = if kept || is_needed(element_needed(judge, &at.element)) {
            &mut needed
        } else {
            &mut free
        };
        half.add_elements.push(at.clone());
    }
    let act = |edit: NftEdit| (!edit.is_empty()).then_some(Act::NftEdit { edit });
    Parted::new(act(free), act(needed), reasons)
}

fn living_address(judge: &Judge<'_>, values: &[NftValue]) -> Option<IpAddr> {
    values.iter().find_map(|value| match value {
        NftValue::Addr(ip) if judge.roster.has_live_owner(*ip) => Some(*ip),
        _ => None,
    })
}

/// Somebody alive at one of the addresses that the rule names, or at the port that it would take.
fn rule_needed(judge: &Judge<'_>, rule: &NftRule) -> Option<String> {
    let mut named = rule.addresses();
    if let Some(ip) = named.find(|ip| !judge.roster.is_node_ip(*ip) && judge.roster.has_live_owner(*ip)) {
        return Some(format!("somebody alive has {ip} now"));
    }
    port_taken(judge, rule.proto?, &rule.dports)
}

fn element_needed(judge: &Judge<'_>, element: &NftElement) -> Option<String> {
    if let Some(ip) = living_address(judge, &element.data).or_else(|| living_address(judge, &element.key)) {
        return Some(format!("somebody alive has {ip} now"));
    }
    let mut proto: Option<Proto> = None;
    let mut port: Option<u16> = None;
    for value in &element.key {
        match value {
            NftValue::Proto(value) => proto = Some(*value),
            NftValue::Port(value) => port = Some(*value),
            _ => {}
        }
    }
    port_taken(judge, proto?, &[PortRange::one(port?)])
}
