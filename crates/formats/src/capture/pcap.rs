//! The classic pcap format: a header of 24 bytes, then records.
//!
//! Source: `draft-ietf-opsawg-pcap`; for the modified form (magic `a1b2cd34`) `wiretap/libpcap.c` of Wireshark: its records
//! have the interface's index and the packet type too.

use super::{
    Direction, Place,
    link::{Frame, LinkType},
    reader::{Bytes, Step, broken},
};

/// A record that holds more is none. (libpcap's own limit is 262,144 bytes.)
pub(super) const MAX_RECORD: u32 = 1 << 20;

/// What the header of a file said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pcap {
    bytes: Bytes,
    /// Nanoseconds in a unit of the fraction.
    unit: i64,
    modified: bool,
    link: LinkType,
}

/// The four forms of the magic number, as the first bytes of a file in this byte order.
fn magic(bytes: [u8; 4]) -> Option<(Bytes, i64, bool)> {
    [Bytes::Little, Bytes::Big]
        .into_iter()
        .find_map(|order| match order.u32(bytes) {
            0xa1b2_c3d4 => Some((order, 1000, false)),
            0xa1b2_3c4d => Some((order, 1, false)),
            0xa1b2_cd34 => Some((order, 1000, true)),
            _ => None,
        })
}

/// True if a file that begins so is pcap.
pub(super) fn is_pcap(first: [u8; 4]) -> bool {
    magic(first).is_some()
}

impl Pcap {
    /// The header's length.
    pub(super) const HEADER: usize = 24;

    /// Reads the header, which `is_pcap` recognised.
    pub(super) fn new(header: &[u8; Self::HEADER]) -> Option<Self> {
        let (bytes, unit, modified) = magic(*header.first_chunk()?)?;
        // The upper half says whether frames end with a check sequence.
        let network = bytes.u32_at(header, 20)?;
        #[expect(clippy::cast_possible_truncation, reason = "the link type is the lower half")]
        let link = LinkType::of(network as u16);
        Some(Self {
            bytes,
            unit,
            modified,
            link,
        })
    }

    pub(super) const fn link(&self) -> LinkType {
        self.link
    }

    /// Reads a record.
    pub(super) fn step<'a>(&self, data: &'a [u8]) -> Step<Option<Frame<'a>>> {
        let header = if self.modified { 24 } else { 16 };
        let Some(fields) = data.first_chunk::<16>() else {
            return Step::Need(header);
        };
        let [seconds, fraction, captured, length] =
            [0, 4, 8, 12].map(|at| self.bytes.u32_at(fields, at).unwrap_or(0));
        if captured > MAX_RECORD {
            return broken(format!(
                "a record says that it holds {captured} bytes; expected at most {MAX_RECORD}"
            ));
        }
        let all = header + captured as usize;
        let (Some(extra), Some(bytes)) = (data.get(16..header), data.get(header..all)) else {
            return Step::Need(all);
        };
        let (place, direction) = match (self.bytes.u32_at(extra, 0), extra.get(6)) {
            (Some(index), Some(packet_type)) => (
                Place::Interface(index),
                if *packet_type == 4 {
                    Direction::Out
                } else {
                    Direction::In
                },
            ),
            _ => (Place::Somewhere, Direction::Unknown),
        };
        let time = i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * self.unit;
        let frame = Frame {
            link: self.link,
            time: Some(time),
            place,
            direction,
            length,
            bytes,
        };
        Step::Used(all, Some(frame))
    }
}
