//! Joining remedies into acts: those of one table are one act, and so are all tracked connections.

use std::collections::HashSet;

use super::{Act, Probe, Remedy, XtEdit};
use crate::{
    finding::{Finding, XtPlace},
    model::CtEntry,
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
        if let Act::XtRestore { edit } = &mut draft.act {
            *edit = XtEdit::of(edit.place.clone());
            draft.join(remedy);
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
                let chains = more.drop_chains.iter();
                edit.drop_chains.extend(
                    chains
                        .filter(|c| named.insert(Named::Chain((*c).clone())))
                        .cloned(),
                );
                let rules = more.add.iter();
                edit.add
                    .extend(rules.filter(|r| named.insert(Named::Rule((*r).clone()))).cloned());
                let probes = more.probes.iter();
                edit.probes.extend(
                    probes
                        .filter(|p| named.insert(Named::Probe((*p).clone())))
                        .cloned(),
                );
                true
            }
            (Act::NftEdit { edit }, Remedy::Nft(more)) if edit.same_table(more) => {
                edit.merge(more);
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

/// The parts of a step's act that are still right by a fresh judgement, as one act, and which findings they mend; `None` if no part is.
///
/// A finding whose remedy is no longer the planned one is left out: what it asks for now was never reviewed.
pub(crate) fn narrow(planned: &Act, fresh: &[&Finding]) -> (Option<Act>, Vec<usize>) {
    let mut drafts = Drafts::default();
    let mut kept = Vec::new();
    let scope = Scope::of(planned);
    for (index, finding) in fresh.iter().enumerate() {
        let Some(remedy) = &finding.remedy else { continue };
        if scope.covers(remedy) {
            drafts.add(remedy, finding);
            kept.push(index);
        }
    }
    (drafts.all.into_iter().next().map(|draft| draft.act), kept)
}

/// A planned act, so that its parts are found at once.
enum Scope<'a> {
    Xt {
        place: &'a XtPlace,
        delete: HashSet<&'a str>,
        add: HashSet<&'a str>,
        drop_chains: HashSet<&'a str>,
    },
    Conntrack(HashSet<Tracked<'a>>),
    Other(&'a Act),
}

/// What makes two readings of a connection one (`CtEntry::is_same`).
type Tracked<'a> = (
    &'a crate::model::Proto,
    u16,
    Option<u32>,
    &'a crate::model::CtTuple,
    &'a crate::model::CtTuple,
);

fn tracked(entry: &CtEntry) -> Tracked<'_> {
    (&entry.proto, entry.zone, entry.id, &entry.original, &entry.reply)
}

impl<'a> Scope<'a> {
    fn of(act: &'a Act) -> Self {
        let set = |lines: &'a [String]| lines.iter().map(String::as_str).collect();
        match act {
            Act::XtRestore { edit } => Self::Xt {
                place: &edit.place,
                delete: set(&edit.delete),
                add: set(&edit.add),
                drop_chains: set(&edit.drop_chains),
            },
            Act::ConntrackDelete { entries } => Self::Conntrack(entries.iter().map(tracked).collect()),
            other => Self::Other(other),
        }
    }

    /// True if a remedy is a part of the act, in every value.
    fn covers(&self, remedy: &Remedy) -> bool {
        let within =
            |part: &[String], whole: &HashSet<&str>| part.iter().all(|line| whole.contains(line.as_str()));
        match (self, remedy) {
            (
                Self::Xt {
                    place,
                    delete,
                    add,
                    drop_chains,
                },
                Remedy::Xt(part),
            ) => {
                **place == part.place
                    && within(&part.delete, delete)
                    && within(&part.add, add)
                    && within(&part.drop_chains, drop_chains)
            }
            (Self::Conntrack(entries), Remedy::Conntrack(entry)) => entries.contains(&tracked(entry)),
            (
                Self::Other(Act::NftDeleteElement {
                    family,
                    table,
                    set,
                    element,
                }),
                Remedy::NftElement {
                    family: f,
                    table: t,
                    set: s,
                    element: e,
                },
            ) => family == f && table == t && set == s && element.text() == e.text(),
            (Self::Other(Act::NftEdit { edit }), Remedy::Nft(part)) => edit.covers(part),
            (Self::Other(Act::LeaseQuarantine { lease }), Remedy::Lease(other)) => lease == other,
            _ => false,
        }
    }
}
