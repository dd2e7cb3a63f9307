//! Packets and bytes a flow.

use sexton_core::model::Flow;

use super::{
    super::{FlowKey, Packet},
    points::Points,
    table::Table,
};

struct Entry {
    key: FlowKey,
    sightings: u64,
    bytes: u64,
    first: Option<i64>,
    last: Option<i64>,
    flags: Option<u8>,
    points: Points<4>,
}

/// The flows of a capture, in a table of fixed size.
pub(super) struct Flows {
    table: Table<Entry>,
    /// Sightings and bytes of flows that gave way.
    pub(super) others: (u64, u64),
    /// Packets that no flow's entry counts, with their number.
    pub(super) seen: u64,
}

impl Flows {
    pub(super) fn new(places: usize) -> Self {
        Self {
            table: Table::new(places, 1),
            others: (0, 0),
            seen: 0,
        }
    }

    pub(super) fn see(&mut self, hash: u64, packet: &Packet) {
        if let Some(entry) = self.table.find(hash) {
            entry.sightings += 1;
            entry.bytes += u64::from(packet.length);
            entry.first = entry.first.min(packet.time).or(packet.time);
            entry.last = entry.last.max(packet.time);
            if let Some(tcp) = packet.tcp {
                entry.flags = tcp.flags;
            }
            entry.points.see(packet.point);
            return;
        }
        self.seen += 1;
        let mut points = Points::default();
        points.see(packet.point);
        let entry = Entry {
            key: packet.flow,
            sightings: 1,
            bytes: packet.length.into(),
            first: packet.time,
            last: packet.time,
            flags: packet.tcp.and_then(|tcp| tcp.flags),
            points,
        };
        if let Some(out) = self.table.insert(hash, entry) {
            self.others.0 += out.sightings;
            self.others.1 += out.bytes;
        }
    }

    /// True if every flow has its entry.
    pub(super) const fn exact(&self) -> bool {
        self.table.evicted == 0 && self.table.refused == 0
    }

    /// All of them, the busiest first.
    pub(super) fn finish(self) -> Vec<Flow> {
        let mut flows: Vec<_> = self
            .table
            .into_values()
            .map(|entry| Flow {
                key: entry.key,
                packets: entry.points.most().min(entry.sightings),
                sightings: entry.sightings,
                bytes: entry.bytes,
                first: entry.first,
                last: entry.last,
                flags: entry.flags,
                points: entry.points.list().collect(),
            })
            .collect();
        flows.sort_by(|a, b| b.sightings.cmp(&a.sightings).then(a.key.cmp(&b.key)));
        flows
    }
}
