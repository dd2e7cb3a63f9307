//! What the runtime and the CNI plugins left, in files that are read as a whole.

use std::io::{BufRead, Read};

use sexton_core::model::{Completeness, Problem, Runtime, RuntimeKind, Sandbox};

use super::{
    collect::Collector,
    files::{FileEntry, Limited},
    join::{add_report, completeness, count_in, join},
    problem,
    recognise::FileKind,
};
use crate::{
    cni::{self, LeaseFile},
    crictl,
};

impl Collector {
    /// A file that is read as a whole.
    pub(super) fn whole(&self, entry: &FileEntry, text: Box<dyn BufRead + '_>) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        let limit = self.limits.in_memory;
        match Limited::new(text, limit, "one file that is read as a whole").read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(err) => Err(problem(&entry.path, format!("cannot be read: {err}"))),
        }
    }

    pub(super) fn crictl(&mut self, entry: &FileEntry, kind: &FileKind, text: Box<dyn BufRead + '_>) {
        let bytes = self.whole(entry, text);
        let state = &mut self.state;
        let runtime = &mut state.runtime.value;
        let (items, problems) = match (kind, bytes) {
            (_, Err(problem)) => (0, vec![problem]),
            (FileKind::CrictlPs, Ok(bytes)) => {
                let (containers, problems) = crictl::read_containers(&entry.path, &bytes);
                let items = containers.len();
                runtime.containers.extend(containers);
                (items, problems)
            }
            (kind, Ok(bytes)) => {
                let (sandboxes, problems) = if *kind == FileKind::CrictlPods {
                    crictl::read_pods(&entry.path, &bytes)
                } else {
                    crictl::read_inspectp(&entry.path, &bytes)
                };
                let items = sandboxes.len();
                if *kind == FileKind::CrictlPods {
                    runtime.runtimes.push(Runtime {
                        kind: RuntimeKind::Cri,
                        seen_at: entry.path.clone(),
                        read: items > 0 || problems.is_empty(),
                        note: "recorded".to_owned(),
                    });
                    self.listed.extend(sandboxes);
                } else {
                    self.inspected.extend(sandboxes);
                }
                (items, problems)
            }
        };
        let report = Self::report(entry, completeness(items, &problems), items as u64);
        add_report(
            &mut state.runtime.completeness,
            &mut state.runtime.reports,
            report,
        );
        state.problems.extend(problems);
    }

    /// Joins what was listed and what was inspected, whichever file came first. A list does not tell whether a sandbox shares
    /// the node's network: its Pod does.
    pub(super) fn join_sandboxes(&mut self) {
        let mut sandboxes: Vec<Sandbox> = Vec::new();
        for sandbox in std::mem::take(&mut self.listed) {
            if !sandboxes.iter().any(|known| known.id == sandbox.id) {
                sandboxes.push(sandbox);
            }
        }
        for sandbox in &mut sandboxes {
            let pod = self
                .state
                .pods
                .value
                .iter()
                .find(|pod| pod.is_known_as(&sandbox.uid));
            sandbox.host_network |= pod.is_some_and(|pod| pod.host_network);
        }
        crictl::merge(&mut sandboxes, std::mem::take(&mut self.inspected));
        self.state.runtime.value.sandboxes = sandboxes;
    }

    pub(super) fn cni(&mut self, entry: &FileEntry, kind: &FileKind, text: Box<dyn BufRead + '_>) {
        let bytes = match self.whole(entry, text) {
            Ok(bytes) => bytes,
            Err(problem) => return self.cni_unreadable(entry, kind, problem),
        };
        let state = &mut self.state;
        match kind {
            FileKind::Lease => {
                // One report a store, not a file: a node has hundreds of leases.
                let store = entry.path.rsplit_once('/').map_or("", |(store, _)| store);
                let facts = &mut state.ipam;
                let is_lease = match cni::read_lease(&entry.path, &bytes, entry.mtime) {
                    LeaseFile::Lease(lease) => {
                        facts.value.leases.push(lease);
                        true
                    }
                    LeaseFile::Corrupt(corrupt) => {
                        state.problems.push(problem(&corrupt.path, &corrupt.why));
                        facts.value.corrupt.push(corrupt);
                        true
                    }
                    LeaseFile::Other => false,
                };
                count_in(&mut facts.completeness, &mut facts.reports, store, is_lease);
            }
            FileKind::CniCache => {
                let (cached, problems) = cni::read_cache(&entry.path, &bytes, entry.mtime);
                let store = entry.path.rsplit_once('/').map_or("", |(store, _)| store);
                let facts = &mut state.cni_cache;
                count_in(
                    &mut facts.completeness,
                    &mut facts.reports,
                    store,
                    cached.is_some(),
                );
                facts.value.extend(cached);
                state.problems.extend(problems);
            }
            _ => {
                let (config, problems) = cni::read_config(&entry.path, &bytes);
                let items = usize::from(config.is_some());
                let report = Self::report(entry, completeness(items, &problems), items as u64);
                join(&mut state.cni_config, config.into_iter().collect(), report);
                state.problems.extend(problems);
            }
        }
    }

    fn cni_unreadable(&mut self, entry: &FileEntry, kind: &FileKind, problem: Problem) {
        let state = &mut self.state;
        let (completeness, reports) = match kind {
            FileKind::Lease => (&mut state.ipam.completeness, &mut state.ipam.reports),
            FileKind::CniCache => (&mut state.cni_cache.completeness, &mut state.cni_cache.reports),
            _ => (&mut state.cni_config.completeness, &mut state.cni_config.reports),
        };
        let why = Completeness::Unavailable(problem.what.clone());
        add_report(completeness, reports, Self::report(entry, why, 0));
        state.problems.push(problem);
    }
}
