//! The second visit: the connection tracking table, which is filtered by what the rest of the state says.

use std::{cell::Cell, io::Read, rc::Rc};

use sexton_core::model::{Completeness, Conntrack, Facts, NodeState, Problem, Proto};

use super::{
    EntryTest,
    collect::Collector,
    files::{FileEntry, Limits},
    input::open,
    join::{add_report, worsen},
};
use crate::conntrack;

/// The second visit: the connection tracking table, filtered.
pub(super) struct ConntrackReader {
    limits: Limits,
    total: Rc<Cell<u64>>,
    keep: Option<EntryTest>,
    facts: Facts<Conntrack>,
    problems: Vec<Problem>,
}

impl ConntrackReader {
    pub(super) fn new(limits: Limits, keep: Option<EntryTest>) -> Self {
        Self {
            limits,
            total: Rc::new(Cell::new(limits.total)),
            keep,
            facts: Facts::default(),
            problems: Vec::new(),
        }
    }

    pub(super) fn file(&mut self, entry: &FileEntry, reader: &mut dyn Read) {
        let table = &mut self.facts.value;
        let text = open(reader, self.limits.file, &self.total);
        let output = conntrack::parse(text, &entry.path, &mut |entry| {
            table.udp += u64::from(entry.proto == Proto::Udp);
            if self.keep.as_ref().is_none_or(|keep| keep(&entry)) {
                table.entries.push(entry);
            }
        });
        table.accounting = match (table.accounting, output.accounting) {
            (Some(a), Some(b)) => Some(a || b),
            (a, b) => a.or(b),
        };
        self.problems.extend(output.problems);
        let report = Collector::report(entry, output.completeness, output.seen);
        add_report(&mut self.facts.completeness, &mut self.facts.reports, report);
    }

    pub(super) fn finish(mut self, state: &mut NodeState, cut: Option<String>) {
        if let Some(cut) = cut {
            worsen(&mut self.facts.completeness, Completeness::Partial(cut));
        }
        for report in &mut self.facts.reports {
            report.read_at = state.taken_at.or(report.read_at);
        }
        state.conntrack = self.facts;
        state.problems.extend(self.problems);
    }
}
