//! Joining remedies into acts: those of one table are one act, and so are all tracked connections.

use std::collections::HashSet;

use super::{Act, NftEdit, NftElementAt, NftRuleAt, Probe, Remedy, XtEdit};
use crate::{
    finding::{Finding, XtPlace},
    model::{CtTuple, Lease, NftFamily, Proto},
};

/// An act that is being put together, with the findings that it mends.
pub(super) struct Draft<'a> {
    /// Its place in the order: tombstones over the living, then rules, then tracked connections, then leases.
    pub(super) rank: u8,
    pub(super) act: Act,
    pub(super) findings: Vec<&'a Finding>,
    named: HashSet<Named>,
}

/// What an edit of a table names once, however many findings ask for it.
#[derive(PartialEq, Eq, Hash)]
enum Named {
    Chain(String),
    Rule(String),
    Element(NftElementAt),
    Probe(Probe),
}

/// All acts of a plan.
#[derive(Default)]
pub(super) struct Drafts<'a> {
    pub(super) all: Vec<Draft<'a>>,
    /// Those of `all` that others can join: few, however many findings there are.
    open: Vec<usize>,
}

impl<'a> Drafts<'a> {
    /// Joins a remedy with others of its kind where one act can carry them.
    pub(super) fn add(&mut self, remedy: &Remedy, finding: &'a Finding) {
        for index in &self.open {
            if let Some(draft) = self.all.get_mut(*index)
                && draft.join(remedy)
            {
                draft.findings.push(finding);
                return;
            }
        }
        let mut draft = Draft {
            rank: rank(remedy),
            act: remedy.act(),
            findings: vec![finding],
            named: HashSet::new(),
        };
        // What the first one names is known to the next: it is joined to nothing.
        match &mut draft.act {
            Act::XtRestore { edit } => {
                *edit = XtEdit::of(edit.place.clone());
                draft.join(remedy);
            }
            Act::NftEdit { edit } => {
                *edit = NftEdit::of(edit.family, edit.table.clone());
                draft.join(remedy);
            }
            _ => {}
        }
        if matches!(remedy, Remedy::Xt(_) | Remedy::Nft(_) | Remedy::Conntrack(_)) {
            self.open.push(self.all.len());
        }
        self.all.push(draft);
    }
}

fn rank(remedy: &Remedy) -> u8 {
    match remedy {
        Remedy::NftElement { .. } => 0,
        Remedy::Xt(_) | Remedy::Nft(_) => 1,
        Remedy::Conntrack(_) => 2,
        Remedy::Lease(_) => 3,
    }
}

impl Draft<'_> {
    /// True if this act carries the remedy now.
    fn join(&mut self, remedy: &Remedy) -> bool {
        let named = &mut self.named;
        match (&mut self.act, remedy) {
            (Act::XtRestore { edit }, Remedy::Xt(more)) if edit.place == more.place => {
                // A rule that is there twice is taken away twice; all else is named once.
                edit.delete.extend(more.delete.iter().cloned());
                edit.replaced += more.replaced;
                once(named, &mut edit.drop_chains, &more.drop_chains, Named::Chain);
                once(named, &mut edit.add, &more.add, Named::Rule);
                once(named, &mut edit.probes, &more.probes, Named::Probe);
                true
            }
            (Act::NftEdit { edit }, Remedy::Nft(more)) if edit.same_table(more) => {
                // No two findings take away one rule, and no two one element. Only an undo puts rules back.
                edit.delete.extend(more.delete.iter().cloned());
                edit.delete_elements.extend(more.delete_elements.iter().cloned());
                edit.replaced += more.replaced;
                once(named, &mut edit.add_elements, &more.add_elements, Named::Element);
                once(named, &mut edit.probes, &more.probes, Named::Probe);
                true
            }
            (Act::ConntrackDelete { entries }, Remedy::Conntrack(entry)) => {
                entries.push(entry.clone());
                true
            }
            _ => false,
        }
    }
}

/// Adds what was not named before.
fn once<T: Clone>(named: &mut HashSet<Named>, all: &mut Vec<T>, more: &[T], name: fn(T) -> Named) {
    let new = more.iter().filter(|item| named.insert(name((*item).clone())));
    all.extend(new.cloned());
}

/// The parts of a step's act that are still right by a fresh judgement, as one act, and which findings they mend; `None` if no part is.
///
/// A finding whose remedy is no longer the planned one is left out: what it asks for now was never reviewed.
pub(crate) fn narrow(planned: &Act, fresh: &[&Finding]) -> (Option<Act>, Vec<usize>) {
    let mut drafts = Drafts::default();
    let mut kept = Vec::new();
    let reviewed: HashSet<Part<'_>> = parts(planned).into_iter().collect();
    for (index, finding) in fresh.iter().enumerate() {
        let Some(remedy) = &finding.remedy else { continue };
        let act = remedy.act();
        let asked = parts(&act);
        if !asked.is_empty() && asked.iter().all(|part| reviewed.contains(part)) {
            drafts.add(remedy, finding);
            kept.push(index);
        }
    }
    (drafts.all.into_iter().next().map(|draft| draft.act), kept)
}

/// One thing that an act does, in every value that makes it what it is: what a reviewed plan must name before it is done.
#[derive(PartialEq, Eq, Hash)]
enum Part<'a> {
    Xt(Verb, &'a XtPlace, &'a str),
    /// Of a rule of nftables its chain, handle and text; what stands before it may have changed.
    NftRule(Verb, Table<'a>, &'a str, Option<u64>, &'a str),
    /// Of an element its set and text.
    NftElement(Verb, Table<'a>, &'a str, String),
    /// What makes two readings of a connection one (`CtEntry::is_same`).
    Tracked(&'a Proto, u16, Option<u32>, &'a CtTuple, &'a CtTuple),
    Lease(Verb, &'a Lease),
}

type Table<'a> = (NftFamily, &'a str);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Verb {
    Add,
    Delete,
    Drop,
    Make,
}

fn parts(act: &Act) -> Vec<Part<'_>> {
    match act {
        Act::XtRestore { edit } => [
            (Verb::Delete, &edit.delete),
            (Verb::Add, &edit.add),
            (Verb::Drop, &edit.drop_chains),
            (Verb::Make, &edit.new_chains),
        ]
        .into_iter()
        .flat_map(|(verb, lines)| lines.iter().map(move |line| Part::Xt(verb, &edit.place, line)))
        .collect(),
        Act::NftEdit { edit } => {
            let table = (edit.family, edit.table.as_str());
            let rules = [(Verb::Delete, &edit.delete), (Verb::Add, &edit.add)];
            let rules = rules.into_iter().flat_map(|(verb, all)| {
                all.iter().map(move |NftRuleAt { rule, .. }| {
                    Part::NftRule(verb, table, &rule.chain, rule.handle, &rule.text)
                })
            });
            let elements = [
                (Verb::Delete, &edit.delete_elements),
                (Verb::Add, &edit.add_elements),
            ];
            let elements = elements.into_iter().flat_map(|(verb, all)| {
                all.iter()
                    .map(move |at| Part::NftElement(verb, table, &at.set, at.element.text()))
            });
            rules.chain(elements).collect()
        }
        Act::NftDeleteElement {
            family,
            table,
            set,
            element,
        } => vec![Part::NftElement(
            Verb::Delete,
            (*family, table),
            set,
            element.text(),
        )],
        Act::NftAddElement {
            family,
            table,
            set,
            element,
        } => vec![Part::NftElement(Verb::Add, (*family, table), set, element.text())],
        Act::ConntrackDelete { entries } => entries
            .iter()
            .map(|e| Part::Tracked(&e.proto, e.zone, e.id, &e.original, &e.reply))
            .collect(),
        Act::LeaseQuarantine { lease } => vec![Part::Lease(Verb::Delete, lease)],
        Act::LeaseRestore { lease } => vec![Part::Lease(Verb::Add, lease)],
    }
}
