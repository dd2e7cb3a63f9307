//! Packets that were captured, and what repeats in them.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::Completeness;

/// A packet of IP, as far as one sighting of it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// When it was seen, in nanoseconds since 1970 (UTC where the format says so); `None` where the format has no
    /// times. The short text form of pktmon has no date: there it is nanoseconds since midnight.
    pub time: Option<i64>,
    /// Where it was seen.
    pub point: Point,
    /// Between whom.
    pub flow: FlowKey,
    /// What a TCP header says, if it was captured.
    pub tcp: Option<Tcp>,
    /// Time to live, or hop limit; `None` where the format does not tell.
    pub ttl: Option<u8>,
    /// True for a part of a fragmented packet.
    pub fragment: bool,
    /// Bytes on the wire, with the link header.
    pub length: u32,
    /// Which packet it is.
    pub identity: Identity,
}

/// The addresses and ports of one direction of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowKey {
    /// Who sent it.
    pub source: IpAddr,
    /// Who it is for.
    pub destination: IpAddr,
    /// The protocol's number: 6 TCP, 17 UDP, 1 and 58 ICMP.
    pub protocol: u8,
    /// Source and destination port of TCP, UDP, SCTP and DCCP; `None` for others and for all but the first fragment.
    pub ports: Option<(u16, u16)>,
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            1 => f.write_str("icmp "),
            6 => f.write_str("tcp "),
            17 => f.write_str("udp "),
            58 => f.write_str("icmpv6 "),
            other => write!(f, "proto {other} "),
        }?;
        match self.ports {
            Some((source, destination)) => write!(
                f,
                "{} > {}",
                std::net::SocketAddr::new(self.source, source),
                std::net::SocketAddr::new(self.destination, destination)
            ),
            None => write!(f, "{} > {}", self.source, self.destination),
        }
    }
}

/// What a TCP header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tcp {
    /// FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128; `None` where the capture ends before them.
    pub flags: Option<u8>,
    /// Sequence number; in text relative to the first of the flow.
    pub seq: u32,
    /// Acknowledgement number; 0 where the capture ends before it.
    pub ack: u32,
}

/// The flags as tcpdump prints them: `R.`.
pub fn flags_text(flags: u8) -> String {
    let mut out: String = [
        (1, 'F'),
        (2, 'S'),
        (4, 'R'),
        (8, 'P'),
        (16, '.'),
        (32, 'U'),
        (64, 'E'),
        (128, 'W'),
    ]
    .iter()
    .filter(|(bit, _)| flags & bit != 0)
    .map(|(_, letter)| letter)
    .collect();
    if out.is_empty() {
        out.push_str("none");
    }
    out
}

/// Which packet it is: equal for two sightings of one packet, different for two packets.
///
/// The hash is over what a router leaves as it is. Time to live, header checksum, traffic class, flow label and
/// everything of the link layer are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// A hash of 64 bits.
    pub hash: u64,
    /// What it was made of.
    pub strength: Strength,
}

/// What an identity was made of: how well it tells two packets of one sender apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Strength {
    /// Text that has neither IP ID nor checksum: addresses, flags, numbers and lengths.
    Text,
    /// All of the captured bytes, but no IP ID: IPv6, a sender that writes 0, or a checksum that was not captured.
    /// A sender that says the same thing twice makes the same packet.
    Bytes,
    /// All of the captured bytes with an IP ID: a sender that says the same thing again makes another packet.
    Full,
}

/// Where in a machine a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// On which link or in which component.
    pub place: Place,
    /// The edge of a pktmon component; 0 elsewhere.
    pub edge: u8,
    /// Which way it went.
    pub direction: Way,
}

/// A link or component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// The capture does not say where: one link only, or several that are not told apart (Linux cooked version 1).
    Somewhere,
    /// An interface, by its number in the file over all sections, or by the system's index (Linux cooked version 2).
    Interface(u32),
    /// A component of pktmon.
    Component(u32),
}

/// Which way a packet went at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Way {
    /// The capture does not say.
    Unknown,
    /// Into the machine.
    In,
    /// Out of it.
    Out,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Somewhere => f.write_str("capture")?,
            Place::Interface(number) => write!(f, "interface {number}")?,
            Place::Component(number) => write!(f, "component {number}")?,
        }
        match self.direction {
            Way::Unknown => Ok(()),
            Way::In => f.write_str(" in"),
            Way::Out => f.write_str(" out"),
        }
    }
}

/// A flow, as far as it was followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Between whom.
    pub key: FlowKey,
    /// Packets: what the point that saw most of it saw, so that a packet seen at several points is one.
    pub packets: u64,
    /// Sightings at all points together.
    pub sightings: u64,
    /// Bytes of the sightings on the wire.
    pub bytes: u64,
    /// When it was seen first and last, in nanoseconds.
    pub first: Option<i64>,
    /// See `first`.
    pub last: Option<i64>,
    /// TCP flags of the packet that was seen last.
    pub flags: Option<u8>,
    /// Where it was seen, and how often.
    pub points: Vec<(Point, u64)>,
    /// How many passed the first point when; of flows of a few packets there is none.
    pub timeline: Option<Timeline>,
}

/// How many packets passed one point, over time: a fixed number of spans, which become longer as time goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The time of the first packet, in nanoseconds.
    pub first: i64,
    /// When the first span begins: a multiple of the width.
    pub start: i64,
    /// How long a span is, in nanoseconds.
    pub width: i64,
    /// Packets of each span, up to the last one that has any.
    pub packets: Vec<u32>,
}

impl Timeline {
    /// So many spans at most.
    const SPANS: usize = 64;
    /// A span at the beginning: 100 µs.
    const NARROW: i64 = 100_000;

    /// A timeline that begins at this time.
    pub fn new(time: i64) -> Self {
        Self {
            first: time,
            start: time.div_euclid(Self::NARROW).saturating_mul(Self::NARROW),
            width: Self::NARROW,
            packets: Vec::new(),
        }
    }

    /// Counts so many packets at a time. One that is before the beginning counts at the beginning.
    pub fn see(&mut self, time: i64, count: u32) {
        let span = loop {
            let span = time.saturating_sub(self.start).max(0) / self.width;
            match usize::try_from(span) {
                Ok(span) if span < Self::SPANS => break span,
                _ => self.widen(),
            }
        };
        if self.packets.len() <= span {
            self.packets.resize(span + 1, 0);
        }
        if let Some(packets) = self.packets.get_mut(span) {
            *packets = packets.saturating_add(count);
        }
    }

    /// Two spans become one.
    fn widen(&mut self) {
        let width = self.width.saturating_mul(2);
        let start = self.start.div_euclid(width).saturating_mul(width);
        let odd = usize::from(start != self.start);
        let mut wide = vec![0_u32; (self.packets.len() + odd).div_ceil(2)];
        for (at, packets) in self.packets.iter().enumerate() {
            if let Some(to) = wide.get_mut((at + odd) / 2) {
                *to = to.saturating_add(*packets);
            }
        }
        *self = Self {
            first: self.first,
            start,
            width,
            packets: wide,
        };
    }

    /// Packets a second over time: the middle of each span in nanoseconds, and the rate in it. Spans of a few packets each are put
    /// together, since their rate would only show how they fall into them; the last one, which is not over, is left out if there
    /// are others.
    pub fn rates(&self) -> Vec<(i64, f64)> {
        const ENOUGH: u64 = 20;
        let all: u64 = self.packets.iter().map(|packets| u64::from(*packets)).sum();
        let spans = self.packets.len() as u64;
        let together = usize::try_from((ENOUGH * spans).div_ceil(all.max(1)))
            .unwrap_or(1)
            .max(1);
        let whole = match self.packets.len() / together {
            0 => 1,
            one @ 1 => one,
            more if self.packets.len().is_multiple_of(together) => more - 1,
            more => more,
        };
        let width = self.width.saturating_mul(i64::try_from(together).unwrap_or(1));
        let groups = self.packets.chunks(together).take(whole).zip(0_i64..);
        #[expect(clippy::cast_precision_loss, reason = "for a picture")]
        groups
            .map(|(packets, at)| {
                let middle = self
                    .start
                    .saturating_add(width.saturating_mul(at))
                    .saturating_add(width / 2);
                let count: u64 = packets.iter().map(|packets| u64::from(*packets)).sum();
                // The first span began before the first packet.
                let before = if at == 0 {
                    self.first.saturating_sub(self.start)
                } else {
                    0
                };
                (
                    middle,
                    count as f64 * 1e9 / (width.saturating_sub(before).max(1)) as f64,
                )
            })
            .collect()
    }
}

impl Flow {
    /// Packets a second, from the first to the last; `None` without times.
    pub fn rate(&self) -> Option<f64> {
        rate(self.packets, self.first, self.last)
    }
}

/// Packets a second between two times, the first not counted.
pub(crate) fn rate(packets: u64, first: Option<i64>, last: Option<i64>) -> Option<f64> {
    let span = last?.checked_sub(first?)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate is an approximation")]
    let rate = packets.saturating_sub(1) as f64 * 1e9 / span as f64;
    (span > 0).then_some(rate)
}

/// How the sightings of one packet follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rhythm {
    /// One after another without growing gaps.
    Steady,
    /// Each gap is longer than the one before, as a sender's that tries again.
    BackOff,
    /// There are no times, or they do not go forward.
    Untimed,
}

/// A packet that was seen again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Its flow.
    pub flow: FlowKey,
    /// Its TCP header.
    pub tcp: Option<Tcp>,
    /// Its length on the wire.
    pub length: u32,
    /// Which packet.
    pub identity: Identity,
    /// Sightings at all points together.
    pub sightings: u64,
    /// Turns: sightings at the point that saw it most often.
    pub turns: u64,
    /// When it was seen first and last. The very first sighting is not in it: nobody knew yet that it would come again.
    pub first: Option<i64>,
    /// See `first`.
    pub last: Option<i64>,
    /// How long one turn of one copy takes, in nanoseconds.
    pub period: Option<i64>,
    /// How many copies of it circulate.
    pub copies: u32,
    /// False if there may be more of them.
    pub copies_exact: bool,
    /// Time to live at the first and at the last sighting, where it is known.
    pub ttl: Option<(u8, u8)>,
    /// True if the time to live falls from turn to turn: then it is one packet, whatever it was told apart by.
    pub ttl_falls: bool,
    /// Where it was seen, and how often, in the order of a turn as far as that can be told.
    pub points: Vec<(Point, u64)>,
    /// How its sightings follow each other.
    pub rhythm: Rhythm,
}

/// What was seen altogether.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Sightings of packets of IP.
    pub sightings: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// The earliest and the latest time.
    pub first: Option<i64>,
    /// See `first`.
    pub last: Option<i64>,
    /// How often a packet was earlier than the one before it.
    pub backwards: u64,
    /// Packets that were seen more than once.
    pub seen_again: u64,
    /// How many flows there were; at most, if `flows_exact` is false.
    pub flows: u64,
    /// False if some flows gave way, and their packets are in no flow of the list.
    pub flows_exact: bool,
    /// Sightings in flows that are not in the list.
    pub other_sightings: u64,
    /// False if more packets circulated than can be followed at once.
    pub tracks_exact: bool,
}

impl Totals {
    /// Sightings a second at all points together, from the first to the last; `None` without times.
    pub fn rate(&self) -> Option<f64> {
        rate(self.sightings, self.first, self.last)
    }
}

/// What else repeated packets can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LookAlike {
    /// They go to a group or to everybody: each port of a link gets one.
    Multicast,
    /// A sender tries again, longer apart each time, or too slowly for anything that circulates.
    Retransmission,
    /// The destination speaks: the packets may be answers of their sender, or are sent again.
    Answered,
    /// A datagram that a sender may send again and again, and nothing shows that it came back.
    SameDatagram,
}

impl LookAlike {
    /// In a sentence.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Multicast => "it goes to a group or to everybody",
            Self::Retransmission => "its sender tries again, at growing or long intervals",
            Self::Answered => "the destination itself sends packets, so its peer may be answering them",
            Self::SameDatagram => "a sender may send the same datagram again and again",
        }
    }
}

/// An address that packets came for again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Destination {
    /// The address.
    pub address: IpAddr,
    /// The packets that came again and again, the most frequent first.
    pub repeats: Vec<Repeat>,
    /// Their flows.
    pub flows: Vec<Flow>,
    /// Packets of these flows.
    pub packets: u64,
    /// Turns of all repeated packets.
    pub turns: u64,
    /// Packets a second, of all these flows.
    pub rate: Option<f64>,
    /// How many packets circulate.
    pub circulating: u64,
    /// False if there may be more.
    pub circulating_exact: bool,
    /// How long one turn takes, in nanoseconds: the median.
    pub period: Option<i64>,
    /// True if the time to live falls, false if it stays; `None` if the capture does not tell.
    pub ttl_falls: Option<bool>,
    /// Where they come in.
    pub enters: Option<Point>,
    /// Where they go out.
    pub leaves: Option<Point>,
    /// Packets that the address itself sent, and that did not circulate.
    pub sent: u64,
    /// What else it looks like; `None` if only a loop explains it.
    pub look_alike: Option<LookAlike>,
    /// What the capture lacks to prove a loop.
    pub lacks: Vec<String>,
}

/// A place with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Which one.
    pub place: Place,
    /// Its name, with its description.
    pub name: String,
}

/// A capture that was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    /// The file.
    pub path: String,
    /// Frames, of whatever kind.
    pub frames: u64,
    /// Frames whose headers are cut off or contradict themselves.
    pub cut: u64,
    /// Bytes of all frames on the wire.
    pub bytes: u64,
    /// Packets of IP altogether.
    pub totals: Totals,
    /// Flows, the busiest first; of very many only those of several packets.
    pub flows: Vec<Flow>,
    /// Destinations of packets that came again and again, the busiest first.
    pub destinations: Vec<Destination>,
    /// Interfaces and components that have a name.
    pub interfaces: Vec<Interface>,
    /// Whether that is all of it.
    #[serde(flatten)]
    pub completeness: Completeness,
}

impl Capture {
    /// The name of a place, where the capture has one.
    pub fn name(&self, place: Place) -> Option<&str> {
        let found = self.interfaces.iter().find(|interface| interface.place == place);
        found.map(|interface| interface.name.as_str())
    }

    /// A point with its name: `component 14 in (Ethernet 2)`.
    pub fn point(&self, point: Point) -> String {
        match self.name(point.place) {
            Some(name) => format!("{point} ({name})"),
            None => point.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_grow_and_lose_nothing() {
        let mut timeline = Timeline::new(1_700_000_000_123_456_789);
        for n in 0..100_000_i64 {
            timeline.see(1_700_000_000_123_456_789 + n * 1_000_000, 1);
        }
        assert_eq!(timeline.packets.iter().sum::<u32>(), 100_000);
        assert!(timeline.packets.len() > Timeline::SPANS / 2 && timeline.packets.len() <= Timeline::SPANS);
        let rates = timeline.rates();
        // The first span may have begun before the first packet.
        assert!(
            rates.iter().skip(1).all(|(_, rate)| (rate - 1_000.0).abs() < 2.0),
            "{rates:?}"
        );
        // Earlier than the beginning, and as late as can be.
        timeline.see(i64::MIN, 1);
        timeline.see(i64::MAX, 1);
        assert_eq!(timeline.packets.iter().sum::<u32>(), 100_002);
    }

    #[test]
    fn spans_of_a_few_packets_are_put_together() {
        let mut timeline = Timeline::new(0);
        (0..125).for_each(|n| timeline.see(n * 88_000, 1));
        let rates: Vec<f64> = timeline.rates().iter().map(|(_, rate)| *rate).collect();
        assert!(
            rates.len() > 2 && rates.iter().all(|rate| (rate - 11_364.0).abs() < 700.0),
            "{rates:?}"
        );
        assert_eq!(Timeline::new(5).rates().len(), 0);
    }
}
