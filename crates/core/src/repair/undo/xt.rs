//! What of an undo in iptables nobody needs (law 9): rules are parted one by one.

use super::{Parse, Parted, port_taken};
use crate::{
    finding::XtPlace,
    judge::Judge,
    model::{XtRule, single_address},
    plan::{Act, XtEdit},
};

/// The part whose place nobody needs, and the part that somebody does.
pub(super) fn part(judge: &Judge<'_>, edit: &XtEdit, parse: Parse<'_>) -> Parted {
    let mut reasons = Vec::new();
    let mut is_needed = |line: &str, asked: &dyn Fn(&XtRule) -> Option<String>| {
        let who = match parse(line) {
            Some(rule) => asked(&rule),
            None => Some(format!("{line:?} cannot be read as a rule")),
        };
        let needed = who.is_some();
        reasons.extend(who);
        needed
    };
    // Rules that the repair put there and that serve somebody alive stay.
    let mut kept: Vec<&String> = edit.delete.iter().collect();
    kept.retain(|line| is_needed(line, &|rule| serves_alive(judge, &edit.place, rule)));
    let mut taken: Vec<&String> = edit.add.iter().collect();
    taken.retain(|line| is_needed(line, &|rule| taken_place(judge, rule)));
    // A jump and the chain that it needs are one: without the one the other stays away too.
    let lost_chains: Vec<&String> = taken
        .iter()
        .flat_map(|line| new_chains_of(edit, line, parse))
        .collect();
    let is_lost = |chain: &String| lost_chains.contains(&chain);
    let stays_away = |line: &String| taken.contains(&line) || new_chains_of(edit, line, parse).any(is_lost);
    let half = |needed: bool| XtEdit {
        delete: filtered(&edit.delete, |line| kept.contains(&line) == needed),
        drop_chains: filtered(&edit.drop_chains, |_| !needed),
        new_chains: filtered(&edit.new_chains, |chain| is_lost(chain) == needed),
        add: filtered(&edit.add, |line| stays_away(line) == needed),
        ..XtEdit::of(edit.place.clone())
    };
    let act = |edit: XtEdit| {
        let changes = !edit.delete.is_empty() || !edit.add.is_empty();
        changes.then_some(Act::XtRestore { edit })
    };
    Parted::new(act(half(false)), act(half(true)), reasons)
}

/// The new chains that a rule is one with: it stands in one, or jumps to it.
fn new_chains_of<'e>(edit: &'e XtEdit, line: &str, parse: Parse<'_>) -> impl Iterator<Item = &'e String> {
    let stands_in = line.split(' ').nth(1).map(str::to_owned);
    let jumps_to = parse(line).and_then(|rule| rule.spec.target);
    let chains = edit.new_chains.iter();
    chains.filter(move |chain| stands_in.as_ref() == Some(chain) || jumps_to.as_ref() == Some(chain))
}

fn filtered(lines: &[String], keep: impl Fn(&String) -> bool) -> Vec<String> {
    lines.iter().filter(|line| keep(line)).cloned().collect()
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
