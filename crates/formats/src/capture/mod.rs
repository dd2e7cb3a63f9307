//! Captures: bytes of pcap, pcapng and pktmon become packets, and packets that come again and again become a loop.
//!
//! ```text
//! bytes --Reader--> Packet --Watch--> Trace --judge(who lives there?)--> verdict on each destination
//! ```
//!
//! [`Reader`] takes bytes in pieces of any size and hands out packets; how the input is split changes nothing.
//! [`Watch`] keeps bounded tables, so that a capture of any size is followed in the same memory. Neither fails on bad
//! input: what could be read is used, and the rest is a problem with its place.
//!
//! Sources: the pcap and pcapng drafts of the IETF's opsawg group (`draft-ietf-opsawg-pcap`,
//! `draft-ietf-opsawg-pcapng`), the list of link types at tcpdump.org, and Microsoft's pages on `pktmon` with what
//! people quoted from it. Why the headers are read here and not by a library: ARCHITECTURE.md.

use std::{fmt, io, net::IpAddr};

mod identity;
mod link;
#[doc(hidden)]
pub mod made;
mod pcap;
mod pcapng;
mod pktmon;
mod reader;
mod watch;

pub use pktmon::{Component, components};
pub use reader::{Format, Interface, Outcome, Reader};
pub use watch::{Destination, Flow, Judgement, Limits, LookAlike, Repeat, Totals, Trace, Watch, judge};

/// A packet of IP, as far as one sighting of it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// A hash of 64 bits.
    pub hash: u64,
    /// What it was made of.
    pub strength: Strength,
}

/// What an identity was made of: how well it tells two packets of one sender apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// On which link or in which component.
    pub place: Place,
    /// The edge of a pktmon component; 0 elsewhere.
    pub edge: u8,
    /// Which way it went.
    pub direction: Direction,
}

/// A link or component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The capture does not say where: one link only, or several that are not told apart (Linux cooked version 1).
    Somewhere,
    /// An interface, by its number in the file over all sections, or by the system's index (Linux cooked version 2).
    Interface(u32),
    /// A component of pktmon.
    Component(u32),
}

/// Which way a packet went at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
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
            Direction::Unknown => Ok(()),
            Direction::In => f.write_str(" in"),
            Direction::Out => f.write_str(" out"),
        }
    }
}

/// True if a file that begins so, decompressed, is a capture: by its magic number, or as text of pktmon.
pub fn recognise(head: &[u8]) -> bool {
    let Some(first) = head.first_chunk::<4>() else {
        return false;
    };
    if pcap::is_pcap(*first) || pcapng::is_pcapng(*first) {
        return true;
    }
    // In UTF-16 every other byte is 0; what is looked for is ASCII.
    let text: Vec<u8> = head.iter().copied().filter(|byte| *byte != 0).collect();
    [b"PktGroupId ".as_slice(), b"[Microsoft-Windows-PktMon]"]
        .iter()
        .any(|mark| memchr::memmem::find(&text, mark).is_some())
}

/// How much [`read`] reads at once.
const CHUNK: usize = 256 * 1024;

/// Reads a capture to its end, packet by packet. Compression is the caller's ([`crate::text::gunzip`]).
///
/// Never fails: an error of the reader ends it, and the outcome says so.
pub fn read(mut reader: impl io::Read, path: &str, sink: &mut dyn FnMut(&Packet)) -> Outcome {
    let mut capture = Reader::new(path);
    let mut buffer = vec![0; CHUNK];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return capture.finish(sink),
            Ok(count) => capture.push(buffer.get(..count).unwrap_or_default(), sink),
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => {
                capture.broken(&format!("cannot read on: {err}"));
                return capture.finish(sink);
            }
        }
    }
}

#[cfg(test)]
mod tests;
