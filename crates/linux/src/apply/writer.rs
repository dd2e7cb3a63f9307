//! Who changes nftables: the kernel closes every change with the name and number of the process that made it
//! (`NFTA_GEN_PROC_NAME`, `NFTA_GEN_PROC_PID`). Legacy iptables, connection tracking and files do not tell.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sexton_core::model::{Family, NftFamily, XtVariant};
use sexton_core::plan::Act;

use crate::modules;
use crate::netlink::{self, Change, ChangeListener, NftPlace};

/// Places whose writers are remembered; beyond it the memory begins anew.
const REMEMBERED: usize = 4096;

/// Who made a change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Writer {
    pid: u32,
    name: String,
}

/// Listens as long as it lives.
pub(super) struct Watcher {
    seen: Arc<Mutex<HashMap<NftPlace, Vec<Writer>>>>,
    /// Ends the listener when dropped.
    _listener: ChangeListener,
}

impl Watcher {
    /// Begins to listen; none where nf_tables is not there or does not let us.
    pub(super) fn start(proc: &Path) -> Option<Self> {
        if modules::would_load(proc, "nf_tables", "nf_tables_getgen") {
            return None;
        }
        let seen: Arc<Mutex<HashMap<NftPlace, Vec<Writer>>>> = Arc::default();
        let memory = seen.clone();
        let listener = netlink::listen_nft(move |change: Change| {
            let mut memory = memory.lock().unwrap_or_else(|broken| broken.into_inner());
            if memory.len() > REMEMBERED {
                memory.clear();
            }
            for place in change.places {
                let writers = memory.entry(place).or_default();
                let writer = Writer {
                    pid: change.pid,
                    name: change.name.clone(),
                };
                writers.retain(|known| *known != writer);
                writers.push(writer);
            }
        });
        Some(Self {
            seen,
            _listener: listener.ok()?,
        })
    }

    /// The last writer to one of these places who is none of `own`.
    pub(super) fn last(&self, places: &[NftPlace], own: &HashSet<u32>) -> Option<String> {
        let memory = self.seen.lock().unwrap_or_else(|broken| broken.into_inner());
        let writers = places.iter().filter_map(|place| memory.get(place));
        let mut others = writers
            .flatten()
            .filter(|writer| !own.contains(&writer.pid))
            .collect::<Vec<_>>();
        let last = others.pop()?;
        Some(format!("process {} (pid {})", last.name, last.pid))
    }
}

/// The chains or the set that an act changes.
pub(super) fn places(act: &Act) -> Vec<NftPlace> {
    match act {
        Act::XtRestore { edit } if edit.place.variant == XtVariant::Nft => {
            let family = match edit.place.family {
                Family::Ipv4 => NftFamily::Ip,
                Family::Ipv6 => NftFamily::Ip6,
            };
            let lines = edit.delete.iter().chain(&edit.add);
            lines
                .filter_map(|line| line.split(' ').nth(1))
                .map(|chain| NftPlace {
                    table: (family, edit.place.table.clone()),
                    name: chain.to_owned(),
                })
                .collect()
        }
        Act::NftEdit { edit } => {
            let chains = edit.delete.iter().chain(&edit.add).map(|at| &at.rule.chain);
            let sets = edit.delete_elements.iter().chain(&edit.add_elements);
            let names = chains.chain(sets.map(|at| &at.set));
            names
                .map(|name| NftPlace {
                    table: (edit.family, edit.table.clone()),
                    name: name.clone(),
                })
                .collect()
        }
        Act::NftDeleteElement {
            family, table, set, ..
        }
        | Act::NftAddElement {
            family, table, set, ..
        } => {
            vec![NftPlace {
                table: (*family, table.clone()),
                name: set.clone(),
            }]
        }
        _ => Vec::new(),
    }
}
