//! What nft and ip told, in files that are read as a whole; the same object in two files is one object.

use std::{collections::HashSet, io::BufRead, net::IpAddr};

use sexton_core::model::{Address, Link, NftFamily, NftState, Problem};

use super::{
    collect::Collector,
    files::FileEntry,
    join::{add_report, completeness, join},
    problem,
    recognise::FileKind,
};
use crate::{ip, nft};

/// The table that `ip route` shows unless told otherwise, and leaves out when it shows all: `main`.
const MAIN_TABLE: u32 = 254;

impl Collector {
    pub(super) fn nft(&mut self, entry: &FileEntry, text: Box<dyn BufRead + '_>) {
        let (state, problems) = told(entry, self.whole(entry, text), |bytes| {
            nft::read(&entry.path, bytes)
        });
        let items = state.tables.len();
        let report = Self::report(entry, completeness(items, &problems), items as u64);
        let facts = &mut self.state.nft;
        add_report(&mut facts.completeness, &mut facts.reports, report);
        self.state.problems.extend(problems);
        self.rulesets.push(state);
    }

    /// Joins what several files tell of one ruleset, without what iptables-save told already.
    pub(super) fn join_nft(&mut self) {
        let mut joined = NftState::default();
        for ruleset in std::mem::take(&mut self.rulesets) {
            add_ruleset(&mut joined, ruleset);
        }
        nft::drop_iptables_tables(&mut joined, &self.state.xtables.value);
        self.state.nft.value = joined;
    }

    pub(super) fn ip(&mut self, entry: &FileEntry, kind: &FileKind, text: Box<dyn BufRead + '_>) {
        let bytes = self.whole(entry, text);
        let state = &mut self.state;
        let report = |items: usize, problems: &[Problem]| {
            Self::report(entry, completeness(items, problems), items as u64)
        };
        let problems = match kind {
            FileKind::IpRoute => {
                let (mut routes, problems) = told(entry, bytes, |bytes| {
                    ip::read_routes(&entry.path, bytes, MAIN_TABLE)
                });
                let report = report(routes.len(), &problems);
                keep_new(&state.routes.value, &mut routes);
                join(&mut state.routes, routes, report);
                problems
            }
            FileKind::IpNeigh => {
                let (mut neighbours, problems) =
                    told(entry, bytes, |bytes| ip::read_neighbours(&entry.path, bytes));
                let report = report(neighbours.len(), &problems);
                keep_new(&state.neighbours.value, &mut neighbours);
                join(&mut state.neighbours, neighbours, report);
                problems
            }
            FileKind::IpRule(family) => {
                let (mut rules, problems) =
                    told(entry, bytes, |bytes| ip::read_rules(&entry.path, bytes, *family));
                let report = report(rules.len(), &problems);
                keep_new(&state.ip_rules.value, &mut rules);
                join(&mut state.ip_rules, rules, report);
                problems
            }
            _ => {
                let ((links, mut addresses), problems) =
                    told(entry, bytes, |bytes| ip::read_links(&entry.path, bytes));
                if *kind == FileKind::IpAddr {
                    let report = report(addresses.len(), &problems);
                    let known: HashSet<(u32, IpAddr, u8)> =
                        state.addresses.value.iter().map(address_key).collect();
                    addresses.retain(|address| !known.contains(&address_key(address)));
                    join(&mut state.addresses, addresses, report);
                }
                // `ip -o addr` tells no links.
                if *kind == FileKind::IpLink || !links.is_empty() {
                    let report = report(links.len(), &problems);
                    add_report(&mut state.links.completeness, &mut state.links.reports, report);
                    links
                        .into_iter()
                        .for_each(|link| add_link(&mut state.links.value, link));
                }
                problems
            }
        };
        state.problems.extend(problems);
    }
}

/// Reads a file that holds something. An empty one tells nothing: the command that should have filled it may have failed.
fn told<T: Default>(
    entry: &FileEntry,
    bytes: Result<Vec<u8>, Problem>,
    read: impl FnOnce(&[u8]) -> (T, Vec<Problem>),
) -> (T, Vec<Problem>) {
    match bytes {
        Ok(bytes) if bytes.trim_ascii().is_empty() => {
            (T::default(), empty(entry, true).into_iter().collect())
        }
        Ok(bytes) => read(&bytes),
        Err(problem) => (T::default(), vec![problem]),
    }
}

/// What is wrong with a file that tells nothing.
pub(super) fn empty(entry: &FileEntry, is_empty: bool) -> Option<Problem> {
    let what = "the file is empty: either there is nothing or the command failed";
    is_empty.then(|| problem(&entry.path, what))
}

/// Takes out what another file told already.
fn keep_new<T: std::fmt::Debug>(known: &[T], new: &mut Vec<T>) {
    if known.is_empty() {
        return;
    }
    let known: HashSet<String> = known.iter().map(|value| format!("{value:?}")).collect();
    new.retain(|value| !known.contains(&format!("{value:?}")));
}

fn address_key(address: &Address) -> (u32, IpAddr, u8) {
    (address.link, address.ip, address.prefix)
}

/// `ip addr` and `ip link` tell the same links, and only with `-d` their kind.
fn add_link(links: &mut Vec<Link>, link: Link) {
    let Some(known) = links
        .iter_mut()
        .find(|known| known.index == link.index && known.name == link.name)
    else {
        return links.push(link);
    };
    if known.kind.is_empty() {
        known.kind = link.kind;
    }
    known.mac = known.mac.or(link.mac);
    known.master = known.master.or(link.master);
    known.peer = known.peer.or(link.peer);
    known.peer_netns = known.peer_netns.or(link.peer_netns);
}

type Table = (NftFamily, String);

/// Adds the tables of a ruleset that are not there yet. One that is there is replaced if its DNATs are hidden (nft's JSON
/// never shows the target of a rule that iptables-nft made) and the other's are not.
fn add_ruleset(joined: &mut NftState, mut other: NftState) {
    for table in std::mem::take(&mut other.tables) {
        if joined.tables.contains(&table) {
            if hidden_targets(joined, &table) <= hidden_targets(&other, &table) {
                continue;
            }
            take_table(joined, &table);
        } else {
            joined.tables.push(table.clone());
        }
        let taken = take_table(&mut other, &table);
        joined.sets.extend(taken.sets);
        joined.chains.extend(taken.chains);
        joined.rules.extend(taken.rules);
    }
    joined.generation = joined.generation.or(other.generation);
}

/// How many rules of a table are told as iptables' targets that nft does not know.
fn hidden_targets(state: &NftState, (family, name): &Table) -> usize {
    let rules = state
        .rules
        .iter()
        .filter(|rule| rule.family == *family && rule.table == *name);
    rules
        .filter(|rule| rule.dnat.is_none() && rule.text.contains("xt target"))
        .count()
}

/// Takes a table's parts out.
fn take_table(state: &mut NftState, (family, name): &Table) -> NftState {
    let mut out = NftState::default();
    let (taken, left) = std::mem::take(&mut state.sets)
        .into_iter()
        .partition(|set| set.family == *family && set.table == *name);
    (out.sets, state.sets) = (taken, left);
    let (taken, left) = std::mem::take(&mut state.chains)
        .into_iter()
        .partition(|chain| chain.family == *family && chain.table == *name);
    (out.chains, state.chains) = (taken, left);
    let (taken, left) = std::mem::take(&mut state.rules)
        .into_iter()
        .partition(|rule| rule.family == *family && rule.table == *name);
    (out.rules, state.rules) = (taken, left);
    out
}
