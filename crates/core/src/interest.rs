//! Which tracked connections a rule could judge. A table of millions of entries is read as a stream, every entry is counted,
//! and only these are kept.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::model::{CtEntry, NodeState, Proto};

/// A test for entries, made from the other parts of a reading.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    vips: HashSet<IpAddr>,
    asked: HashSet<IpAddr>,
}

impl Interest {
    /// For the rules' sake; and for every address that is asked about.
    pub fn new(state: &NodeState, asked: impl IntoIterator<Item = IpAddr>) -> Self {
        let vips = state.services.value.iter().flat_map(|s| s.vips()).collect();
        Self {
            vips,
            asked: asked.into_iter().collect(),
        }
    }

    /// True if a rule could have a word on this entry: UDP that was translated, or UDP to a Service's address that was not.
    pub fn keeps(&self, entry: &CtEntry) -> bool {
        let judged =
            entry.proto == Proto::Udp && (entry.is_dnat() || self.vips.contains(&entry.original.dst));
        judged || (!self.asked.is_empty() && self.names_asked(entry))
    }

    fn names_asked(&self, entry: &CtEntry) -> bool {
        [
            entry.original.src,
            entry.original.dst,
            entry.reply.src,
            entry.reply.dst,
        ]
        .iter()
        .any(|ip| self.asked.contains(ip))
    }
}
