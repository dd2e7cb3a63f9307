//! The rules that a CNI plugin wrote into one nftables table for one container: what its DEL takes away as one, and what
//! is judged as one.

use std::{collections::HashMap, net::IpAddr};

use crate::{
    finding::{Evidence, Object},
    judge::Judge,
    marks::nft::NftMark,
    model::{ContainerId, NftFamily, NftRule, Timestamp},
    plan::{NftEdit, NftRuleAt},
    roster::Residence,
};

/// A container's rules in one table.
pub(super) struct NftUnit<'a> {
    pub(super) family: NftFamily,
    pub(super) table: &'a str,
    /// Whose they are, the ID whole where any source knows it.
    pub(super) mark: NftMark,
    /// Their places among all rules, and the rules.
    pub(super) rules: Vec<(usize, &'a NftRule)>,
}

/// The units of the rules to which `mark` gives an owner, in the order of their first rules.
pub(super) fn units<'a>(judge: &Judge<'a>, mark: fn(&NftRule) -> Option<NftMark>) -> Vec<NftUnit<'a>> {
    let mut out: Vec<NftUnit<'a>> = Vec::new();
    let mut known: HashMap<(NftFamily, &str, NftMark), usize> = HashMap::new();
    for (at, rule) in judge.state.nft.value.rules.iter().enumerate() {
        let Some(mark) = mark(rule) else { continue };
        let table = rule.table.as_str();
        let index = *known
            .entry((rule.family, table, mark.clone()))
            .or_insert(out.len());
        if index == out.len() {
            out.push(NftUnit {
                family: rule.family,
                table,
                mark: whole(judge, mark),
                rules: Vec::new(),
            });
        }
        if let Some(unit) = out.get_mut(index) {
            unit.rules.push((at, rule));
        }
    }
    out
}

/// The mark with the whole ID, where the comment was cut and a source knows a container that it was made for.
fn whole(judge: &Judge<'_>, mark: NftMark) -> NftMark {
    let Some(cut) = &mark.cut else { return mark };
    let state = judge.state;
    let runtime = &state.runtime.value;
    let mut known = runtime
        .sandboxes
        .iter()
        .map(|s| &s.id)
        .chain(runtime.containers.iter().map(|c| &c.id))
        .chain(&runtime.recorded_ids)
        .chain(state.ipam.value.leases.iter().map(|l| &l.container))
        .chain(state.cni_cache.value.iter().map(|e| &e.container));
    let begins = |id: &&ContainerId| id.as_str().starts_with(mark.container.as_str());
    match known.find(|id| begins(id) && cut.is_of(id)) {
        Some(id) => NftMark {
            container: id.clone(),
            cut: None,
            ..mark
        },
        None => mark,
    }
}

impl NftUnit<'_> {
    /// The addresses that its rules name: the container's, and a host's.
    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.rules.iter().flat_map(|(_, rule)| rule.addresses())
    }

    /// Who the container is, with what tells the rules' age.
    pub(super) fn residence(&self, judge: &Judge<'_>) -> (Residence, Option<(Timestamp, Evidence)>) {
        let id = &self.mark.container;
        let first = self.rules.first().map(|(at, _)| *at);
        let born = judge.born_in_nft(id, first);
        let network = match &self.mark.network {
            Some(network) => Some(network.as_str()),
            None => judge.network_of(id),
        };
        let residence = judge.container_of(network, id, born.as_ref().map(|b| b.0), self.addresses());
        (residence, born)
    }

    /// The unit as a finding shows it.
    pub(super) fn object(&self) -> Object {
        let bare = |rule: &NftRule| NftRule {
            raw: None,
            ..rule.clone()
        };
        Object::NftUnit {
            family: self.family,
            table: self.table.to_owned(),
            rules: self.rules.iter().map(|(_, rule)| bare(rule)).collect(),
        }
    }

    /// What takes it away.
    pub(super) fn deletion(&self, judge: &Judge<'_>) -> NftEdit {
        let all = &judge.state.nft.value.rules;
        let before = |at: usize, rule: &NftRule| {
            let other = all.get(at.checked_sub(1)?)?;
            let one_chain =
                (other.family, &other.table, &other.chain) == (rule.family, &rule.table, &rule.chain);
            other.handle.filter(|_| one_chain)
        };
        NftEdit {
            delete: self
                .rules
                .iter()
                .map(|(at, rule)| NftRuleAt {
                    after: before(*at, rule),
                    rule: (*rule).clone(),
                })
                .collect(),
            ..NftEdit::of(self.family, self.table)
        }
    }
}
