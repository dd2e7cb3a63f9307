//! Packets and bytes a flow.

use sexton_core::model::{Flow, Timeline};

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
    /// Boxed, since most flows are too short to have one.
    timeline: Option<Box<Timeline>>,
}

/// A flow gets a timeline with its so many-th packet.
const TIMED: u32 = 32;

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
            if let Some((0, count)) = entry.points.see(packet.point)
                && let Some(time) = packet.time
            {
                match &mut entry.timeline {
                    Some(timeline) => timeline.see(time, 1),
                    None if count >= TIMED => {
                        let first = entry.first.unwrap_or(time);
                        let mut timeline = Timeline::new(first);
                        // When exactly those before came was not kept: evenly, as far as is known.
                        let step = time.saturating_sub(first) / i64::from(TIMED);
                        for n in 0..TIMED {
                            timeline.see(first.saturating_add(step * i64::from(n)), 1);
                        }
                        entry.timeline = Some(Box::new(timeline));
                    }
                    None => {}
                }
            }
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
            timeline: None,
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
                timeline: entry.timeline.map(|timeline| *timeline),
            })
            .collect();
        flows.sort_by(|a, b| b.sightings.cmp(&a.sightings).then(a.key.cmp(&b.key)));
        flows
    }
}
