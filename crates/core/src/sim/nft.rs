//! One transaction of nftables on the simulated node, as the kernel makes it: wholly or not at all.

use crate::{
    model::{NftElement, NftRule, NftState, NftValue, Proto},
    node::Applied,
    plan::{NftEdit, NftElementAt, NftRuleAt},
};
use std::net::IpAddr;

/// Applies an edit; a rule or element with another content refuses all of it.
pub(super) fn apply(state: &mut NftState, edit: &NftEdit) -> Applied {
    let mut next = state.clone();
    let mut skipped = Vec::new();
    let result = rules(&mut next, edit, &mut skipped).and_then(|()| elements(&mut next, edit, &mut skipped));
    if let Err(refused) = result {
        return refused;
    }
    let asked = edit.deletions() + edit.add.len() + edit.add_elements.len();
    if skipped.len() == asked {
        return Applied::AlreadyGone;
    }
    next.generation = next.generation.map(|generation| generation + 1);
    *state = next;
    Applied::Done { skipped }
}

fn in_chain(rule: &NftRule, other: &NftRule) -> bool {
    (rule.family, &rule.table, &rule.chain) == (other.family, &other.table, &other.chain)
}

fn rules(state: &mut NftState, edit: &NftEdit, skipped: &mut Vec<String>) -> Result<(), Applied> {
    for at in &edit.delete {
        let here = |rule: &NftRule| in_chain(rule, &at.rule) && rule.handle == at.rule.handle;
        match state.rules.iter().position(here) {
            Some(index) if state.rules[index].text == at.rule.text => drop(state.rules.remove(index)),
            Some(index) => {
                let text = &state.rules[index].text;
                return Err(Applied::Changed(format!("the rule is now {text}")));
            }
            None => skipped.push(at.rule.placed()),
        }
    }
    // The last first, so that rules of one place come to stand in their order.
    for at in edit.add.iter().rev() {
        if state.rules.iter().any(|rule| rule.is_same(&at.rule)) {
            skipped.push(at.rule.placed());
            continue;
        }
        let place = match anchor(at, &edit.add) {
            Some(handle) => {
                let here = |rule: &NftRule| in_chain(rule, &at.rule) && rule.handle == Some(handle);
                let index = state.rules.iter().position(here);
                index.map(|index| index + 1).ok_or_else(|| {
                    Applied::Changed(format!("the rule before it (handle {handle}) is gone"))
                })?
            }
            None => {
                let first = state.rules.iter().position(|rule| in_chain(rule, &at.rule));
                first.unwrap_or(state.rules.len())
            }
        };
        let last = state.rules.iter().filter_map(|rule| rule.handle).max();
        let rule = NftRule {
            handle: Some(last.unwrap_or_default() + 1),
            ..at.rule.clone()
        };
        state.rules.insert(place, rule);
    }
    Ok(())
}

/// The handle of the nearest rule before this one that is not put back too.
fn anchor(at: &NftRuleAt, all: &[NftRuleAt]) -> Option<u64> {
    let mut after = at.after;
    while let Some(other) = all
        .iter()
        .find(|other| in_chain(&other.rule, &at.rule) && after.is_some() && other.rule.handle == after)
    {
        after = other.after;
    }
    after
}

fn elements(state: &mut NftState, edit: &NftEdit, skipped: &mut Vec<String>) -> Result<(), Applied> {
    for at in &edit.delete_elements {
        let held = elements_of(state, edit, at)?;
        match held.iter().position(|e| e.key == at.element.key) {
            Some(index) if held[index].text() == at.element.text() => drop(held.remove(index)),
            Some(index) => {
                let text = held[index].text();
                return Err(Applied::Changed(format!("the element is now {text}")));
            }
            None => skipped.push(at.element.text()),
        }
    }
    for at in &edit.add_elements {
        let held = elements_of(state, edit, at)?;
        match held.iter().find(|e| e.key == at.element.key) {
            Some(there) if there.text() == at.element.text() => skipped.push(there.text()),
            Some(there) => return Err(Applied::Changed(format!("the key is taken: {}", there.text()))),
            None => held.push(at.element.clone()),
        }
    }
    Ok(())
}

fn elements_of<'a>(
    state: &'a mut NftState,
    edit: &NftEdit,
    at: &NftElementAt,
) -> Result<&'a mut Vec<NftElement>, Applied> {
    let mut sets = state.sets.iter_mut();
    let set = sets
        .find(|set| (set.family, &set.table, &set.name) == (edit.family, &edit.table, &at.set))
        .ok_or_else(|| Applied::Changed(format!("the set {} is gone", at.set)))?;
    Ok(&mut set.elements)
}

/// Where nftables sends a packet to this port: the first rule that takes it, else a map of ports.
pub(super) fn dnat_of(state: &NftState, proto: Proto, port: u16) -> Option<(IpAddr, u16)> {
    let mut rules: Vec<&NftRule> = state.rules.iter().collect();
    rules.sort_by_key(|rule| crate::marks::nft::hostport_order(rule));
    let taking =
        |rule: &&NftRule| rule.proto == Some(proto) && rule.dports.iter().any(|range| range.contains(port));
    let by_rule = rules.into_iter().filter(taking).find_map(|rule| rule.dnat);
    if let Some(dnat) = by_rule {
        return Some((dnat.ip, dnat.port.unwrap_or(port)));
    }
    let key = [NftValue::Proto(proto), NftValue::Port(port)];
    let mut elements = state.sets.iter().flat_map(|set| &set.elements);
    elements.find(|e| e.key == key).and_then(|e| match e.data[..] {
        [NftValue::Addr(ip), NftValue::Port(port)] => Some((ip, port)),
        _ => None,
    })
}
