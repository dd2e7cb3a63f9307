//! Taking tracked connections away, each by tuple, zone and ID.
//!
//! The kernel's ID is a hash over the entry's place in memory and its original tuple (`nf_ct_get_id`): a new connection
//! with the same tuple can get the same place, and then has the same ID. So the entries are read again first, and one
//! whose replies come from somewhere else by now is another one.

use std::collections::HashSet;

use sexton_core::model::{CtEntry, Proto};
use sexton_core::node::Applied;

use crate::netlink::{self, Deleted, WantedConntrack};
use crate::source::chain;

/// Deletes entries. One that is gone is skipped.
pub(super) fn delete(entries: &[CtEntry]) -> Applied {
    let name = |entry: &CtEntry| (entry.proto, entry.original, entry.reply, entry.zone);
    let wanted: HashSet<_> = entries.iter().map(name).collect();
    let udp = entries.iter().all(|entry| entry.proto == Proto::Udp);
    let ipv6 = || entries.iter().any(|entry| entry.original.dst.is_ipv6());
    let asked = if udp {
        WantedConntrack::UdpOfBoth(&ipv6)
    } else {
        WantedConntrack::Every
    };
    let there: HashSet<_> = match netlink::read_conntrack(&asked, &|entry| wanted.contains(&name(entry))) {
        Ok(reading) => reading.entries.iter().map(name).collect(),
        Err(error) => return Applied::Failed(chain(&error)),
    };
    let (left, gone): (Vec<&CtEntry>, Vec<&CtEntry>) =
        entries.iter().partition(|entry| there.contains(&name(entry)));
    let left: Vec<CtEntry> = left.into_iter().cloned().collect();
    let outcome = match netlink::delete_conntrack(&left) {
        Ok(outcome) => outcome,
        Err(error) => return Applied::Failed(chain(&error)),
    };
    let mut skipped: Vec<String> = gone.into_iter().map(CtEntry::text).collect();
    let mut failed = Vec::new();
    let mut done = 0;
    for (entry, deleted) in left.iter().zip(outcome) {
        match deleted {
            Deleted::Done => done += 1,
            Deleted::Gone => skipped.push(entry.text()),
            Deleted::Failed(why) => failed.push(format!("{}: {why}", entry.text())),
        }
    }
    match (failed.is_empty(), done) {
        // Every item of a list is handled even when one fails (law 18); the report says what remains.
        (false, _) => Applied::Failed(format!("{done} deleted; {}", failed.join("; "))),
        (true, 0) => Applied::AlreadyGone,
        (true, _) => Applied::Done { skipped },
    }
}
