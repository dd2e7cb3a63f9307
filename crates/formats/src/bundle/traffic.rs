//! Captures and counters, and what the adapters and HNS say of the addresses in them.

use std::io::{BufRead, Read};

use sexton_core::model::{Adapters, Completeness, CounterFile, Interface, Place};

use super::{
    collect::Collector,
    files::FileEntry,
    join::{completeness, join},
    recognise::FileKind,
};
use crate::{capture, counters, hns, nic};

impl Collector {
    /// Follows a capture as a stream, whatever its length.
    pub(super) fn capture(&mut self, entry: &FileEntry, reader: impl Read) {
        let (capture, problems, packets) = capture::follow(reader, &entry.path);
        self.newest = self.newest.max(entry.mtime);
        let report = Self::report(entry, capture.completeness.clone(), packets);
        self.state.problems.extend(problems);
        join(&mut self.state.captures, vec![capture], report);
    }

    /// Counters, adapters, endpoints, names of components.
    pub(super) fn traffic(&mut self, entry: &FileEntry, kind: &FileKind, text: Box<dyn BufRead + '_>) {
        match kind {
            FileKind::Counters => {
                let mut counters = counters::parse(text, &entry.path);
                let items = counters.series.len() as u64;
                let report = Self::report(entry, counters.completeness.clone(), items);
                self.state.problems.append(&mut counters.problems);
                let file = CounterFile {
                    path: entry.path.clone(),
                    counters,
                };
                join(&mut self.state.counters, vec![file], report);
                return;
            }
            FileKind::Adapters | FileKind::HnsEndpoints | FileKind::PktmonList => {}
            _ => return,
        }
        let bytes = match self.whole(entry, text) {
            Ok(bytes) => bytes,
            Err(problem) => {
                let why = completeness(0, std::slice::from_ref(&problem));
                let report = Self::report(entry, why, 0);
                match kind {
                    FileKind::Adapters => join(&mut self.state.adapters, Vec::new(), report),
                    FileKind::HnsEndpoints => join(&mut self.state.hns_endpoints, Vec::new(), report),
                    _ => {}
                }
                return self.state.problems.push(problem);
            }
        };
        match kind {
            FileKind::Adapters => {
                let read = nic::parse(&bytes, &entry.path);
                let items: usize = read.nics.iter().map(|nic| nic.addresses.len()).sum();
                let Some(source) = read.source else {
                    let why = "it is no list of an adapter's addresses that is known here";
                    let whole = match read.completeness {
                        Completeness::Complete => Completeness::Unavailable(why.to_owned()),
                        other => other,
                    };
                    let report = Self::report(entry, whole, 0);
                    join(&mut self.state.adapters, Vec::new(), report);
                    return self.state.problems.extend(read.problems);
                };
                let report = Self::report(entry, read.completeness.clone(), items as u64);
                let list = Adapters {
                    path: entry.path.clone(),
                    source,
                    nics: read.nics,
                    completeness: read.completeness,
                };
                join(&mut self.state.adapters, vec![list], report);
                self.state.problems.extend(read.problems);
            }
            FileKind::HnsEndpoints => {
                let read = hns::endpoints(&bytes, &entry.path);
                let report = Self::report(entry, read.completeness, read.endpoints.len() as u64);
                join(&mut self.state.hns_endpoints, read.endpoints, report);
                self.state.problems.extend(read.problems);
            }
            _ => {
                let listed = capture::components(&String::from_utf8_lossy(&bytes));
                self.components
                    .extend(listed.into_iter().map(|component| Interface {
                        place: Place::Component(component.id),
                        name: component.name,
                    }));
            }
        }
    }

    /// Names the components of captures that do not name them themselves, whichever file came first.
    pub(super) fn name_components(&mut self) {
        for capture in &mut self.state.captures.value {
            for listed in &self.components {
                if capture.name(listed.place).is_none() {
                    capture.interfaces.push(listed.clone());
                }
            }
        }
    }
}
