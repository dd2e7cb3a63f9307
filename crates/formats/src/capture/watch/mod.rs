//! Finds packets that come again and again.
//!
//! Four tables of fixed size, about 20 MB together (36 at the worst), whatever the capture's length:
//!
//! - the identities that were seen last (131,072), first in first out a bucket: whatever comes again not long after goes
//!   into the next table;
//! - tracks (16,384): packets that came again, with where, when and how often;
//! - the last sightings of those (8,192), in their order;
//! - flows (32,768): packets and bytes.
//!
//! [`table::Table`] says who gives way when a bucket is full: never what comes often. What gave way is counted, and
//! [`Totals`] says whether the lists are all.

mod count;
mod flows;
mod points;
mod rounds;
mod table;
mod tracks;

use std::{collections::BTreeMap, net::IpAddr};

use flows::Flows;
use rounds::{Rounds, Seen};
use table::{Recent, Table};
use tracks::Track;

pub use sexton_core::{
    model::{Destination, Flow, LookAlike, Repeat, Totals},
    traffic::{Judgement, judge},
};

use super::{Packet, identity};

/// With more destinations than this, what circulates is only counted by packet, not by the order of all of them.
const MAX_COUNTED: usize = 64;

/// How many turns make a loop, and how much is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Turns of a packet that only text tells apart.
    pub turns: u32,
    /// Turns of a packet whose bytes were captured. More than the components of a Windows node's network stack, which
    /// `pktmon etl2pcap` writes one after another without saying which is which.
    pub turns_of_bytes: u32,
    /// Turns where a capture holds all interfaces of a machine and does not tell them apart (Linux cooked version 1):
    /// there a flooded packet is seen once for each port of a bridge.
    pub turns_of_mixed_points: u32,
    /// Places for the identities that were seen last.
    pub recent: usize,
    /// Places for packets that came again.
    pub tracks: usize,
    /// Places for flows.
    pub flows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: 10,
            turns_of_bytes: 20,
            turns_of_mixed_points: 100,
            recent: 1 << 17,
            tracks: 1 << 14,
            flows: 1 << 15,
        }
    }
}

/// Follows packets.
pub struct Watch {
    limits: Limits,
    recent: Recent,
    tracks: Table<Track>,
    rounds: Rounds,
    flows: Flows,
    totals: Totals,
    before: Option<i64>,
}

/// What a capture came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// What was seen altogether.
    pub totals: Totals,
    /// Flows, the busiest first.
    pub flows: Vec<Flow>,
    /// Destinations of packets that came again and again, the busiest first.
    pub destinations: Vec<Destination>,
}

impl Default for Watch {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Watch {
    /// Follows packets within these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            recent: Recent::new(limits.recent),
            // Two sightings, of which the first was not counted here, are what any capture of two interfaces has.
            tracks: Table::new(limits.tracks, 3),
            rounds: Rounds::default(),
            flows: Flows::new(limits.flows),
            totals: Totals::default(),
            before: None,
        }
    }

    /// Takes a packet.
    pub fn see(&mut self, packet: &Packet) {
        let totals = &mut self.totals;
        totals.sightings += 1;
        totals.bytes += u64::from(packet.length);
        if let Some(time) = packet.time {
            if self.before.is_some_and(|before| time < before) {
                totals.backwards += 1;
            }
            self.before = Some(time);
            totals.first = Some(totals.first.map_or(time, |first| first.min(time)));
            totals.last = totals.last.max(Some(time));
        }
        self.flows.see(identity::flow_hash(&packet.flow), packet);
        let hash = packet.identity.hash;
        if let Some(track) = self.tracks.find(hash) {
            let often = track.see(packet);
            if often && let Some(time) = packet.time {
                let point = packet.point;
                self.rounds.see(Seen { hash, time, point });
            }
        } else if self.recent.seen(hash) {
            self.totals.seen_again += 1;
            self.tracks.insert(hash, Track::new(packet));
        }
    }

    /// What it came to.
    pub fn finish(self) -> Trace {
        let mut totals = self.totals;
        totals.flows = self.flows.seen;
        totals.flows_exact = self.flows.exact();
        totals.other_sightings = self.flows.others.0;
        totals.tracks_exact = self.tracks.refused == 0;
        let flows = self.flows.finish();
        let mut repeats: BTreeMap<IpAddr, Vec<Repeat>> = BTreeMap::new();
        for track in self.tracks.into_values() {
            if track.turns() >= track.needed(&self.limits) {
                let repeat = track.finish(&self.limits);
                repeats.entry(repeat.flow.destination).or_default().push(repeat);
            }
        }
        let mut destinations: Vec<_> = repeats
            .into_iter()
            .map(|(address, repeats)| Destination::new(address, repeats, &flows, totals.tracks_exact))
            .collect();
        let seen = self.rounds.finish();
        if destinations.len() <= MAX_COUNTED {
            destinations
                .iter_mut()
                .for_each(|destination| count::count(destination, &seen, totals.tracks_exact));
        }
        // Where times do not go forward, neither their gaps nor their order tell how many there are.
        if totals.backwards * 10 > totals.sightings {
            for destination in &mut destinations {
                destination.circulating_exact = false;
                destination.period = None;
            }
        }
        destinations.sort_by(|a, b| b.turns.cmp(&a.turns).then(a.address.cmp(&b.address)));
        Trace {
            totals,
            flows,
            destinations,
        }
    }
}
