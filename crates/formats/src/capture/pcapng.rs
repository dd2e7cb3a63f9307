//! The pcapng format: blocks, in sections with a byte order and interfaces of their own.
//!
//! Source: `draft-ietf-opsawg-pcapng`. What writers put where: Microsoft's etl2pcapng makes each component of pktmon an
//! interface; `pktmon etl2pcap` writes one interface and does not say which component saw a packet.

use super::{
    Direction, Place,
    link::{Frame, LinkType},
    pcap::MAX_RECORD,
    reader::{Bytes, Interface, Step, broken},
};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// A block of a kind that is read is at most this long: the longest packet, and room for options.
const MAX_BLOCK: u32 = MAX_RECORD + (1 << 17);

/// A section has at most so many interfaces; packets of others are not read.
const MAX_INTERFACES: usize = 1 << 18;

/// Names are kept for so many interfaces of a file, and each up to so many bytes.
const MAX_NAMES: usize = 4096;
const MAX_NAME: usize = 256;

/// True if a file that begins so is pcapng.
pub(super) fn is_pcapng(first: [u8; 4]) -> bool {
    u32::from_be_bytes(first) == SECTION
}

/// The state of reading one file.
#[derive(Debug, Default)]
pub(super) struct Pcapng {
    bytes: Bytes,
    interfaces: Vec<Described>,
    /// How many interfaces earlier sections had, so that a number means one interface of the file.
    before: u32,
    /// Interfaces with a name.
    pub(super) names: Vec<Interface>,
    /// The first link type that is not read.
    pub(super) unread_link: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
struct Described {
    link: LinkType,
    snap: u32,
    scale: Scale,
    /// Nanoseconds to add.
    offset: i64,
}

/// How a time in the file's units becomes nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Times(u64),
    Divided(u64),
    /// Units of 2^-n seconds.
    Halves(u32),
    /// Units so small that no time of 64 bits reaches a nanosecond.
    Nothing,
}

impl Scale {
    /// From `if_tsresol`.
    fn of(resolution: u8) -> Self {
        let power = u32::from(resolution & 0x7f);
        if resolution & 0x80 != 0 {
            return Self::Halves(power);
        }
        match power {
            0..=9 => Self::Times(10_u64.pow(9 - power)),
            10..=28 => Self::Divided(10_u64.pow(power - 9)),
            _ => Self::Nothing,
        }
    }

    fn nanoseconds(self, units: u64) -> i64 {
        let out = match self {
            Self::Times(by) => u128::from(units) * u128::from(by),
            Self::Divided(by) => u128::from(units / by),
            Self::Halves(power) => (u128::from(units) * 1_000_000_000) >> power,
            Self::Nothing => 0,
        };
        i64::try_from(out).unwrap_or(i64::MAX)
    }
}

impl Pcapng {
    /// Reads a block, or says how much of it is needed.
    pub(super) fn step<'a>(&mut self, data: &'a [u8]) -> Step<Option<Frame<'a>>> {
        let Some(head) = data.first_chunk::<8>() else {
            return Step::Need(8);
        };
        let [kind, _] = head.as_chunks::<4>().0 else {
            return Step::Need(8);
        };
        // The section header's number reads the same in both orders, and its third field tells the order.
        if u32::from_be_bytes(*kind) == SECTION {
            let Some(order) = data.get(8..).and_then(<[u8]>::first_chunk::<4>) else {
                return Step::Need(12);
            };
            self.bytes = match u32::from_le_bytes(*order) {
                0x1a2b_3c4d => Bytes::Little,
                0x4d3c_2b1a => Bytes::Big,
                other => {
                    return broken(format!(
                        "a section header with the byte-order magic {other:08x}; expected 1a2b3c4d"
                    ));
                }
            };
        }
        let kind = self.bytes.u32(*kind);
        let length = self.bytes.u32_at(head, 4).unwrap_or(0);
        let least = match kind {
            SECTION => 28,
            INTERFACE => 20,
            OLD_PACKET | ENHANCED_PACKET => 32,
            SIMPLE_PACKET => 16,
            _ => 12,
        };
        if length < least {
            return broken(format!(
                "a block of type {kind:#x} says that it is {length} bytes long; expected at least {least}"
            ));
        }
        // Blocks end on a multiple of four; a writer that forgot it is forgiven, as the padding is there.
        let all = (u64::from(length) + 3) & !3;
        let known = matches!(
            kind,
            SECTION | INTERFACE | OLD_PACKET | SIMPLE_PACKET | ENHANCED_PACKET
        );
        if !known {
            return Step::Skip(all);
        }
        if length > MAX_BLOCK {
            return Step::TooLong(
                all,
                format!("a block of {length} bytes was left out; expected at most {MAX_BLOCK}"),
            );
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_BLOCK")]
        let all = all as usize;
        let Some(body) = data.get(8..all - 4) else {
            return Step::Need(all);
        };
        if data.len() < all {
            return Step::Need(all);
        }
        match kind {
            SECTION => {
                self.before = self
                    .before
                    .saturating_add(u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX));
                self.interfaces.clear();
                Step::Used(all, None)
            }
            INTERFACE => match self.describe(body) {
                Ok(()) => Step::Used(all, None),
                Err(why) => Step::Bad(all, why),
            },
            _ => match self.packet(kind, body) {
                Ok(frame) => Step::Used(all, Some(frame)),
                Err(why) => Step::Bad(all, why),
            },
        }
    }

    fn describe(&mut self, body: &[u8]) -> Result<(), String> {
        let number = self.interfaces.len();
        if number >= MAX_INTERFACES {
            return Err(format!("more than {MAX_INTERFACES} interfaces in one section"));
        }
        let link = self.bytes.u16_at(body, 0).unwrap_or(u16::MAX);
        let mut described = Described {
            link: LinkType::of(link),
            snap: self.bytes.u32_at(body, 4).unwrap_or(0),
            scale: Scale::of(6),
            offset: 0,
        };
        if let LinkType::Other(other) = described.link {
            self.unread_link.get_or_insert(other);
        }
        let mut name = None;
        let mut description = None;
        for (code, value) in options(self.bytes, body.get(8..).unwrap_or_default()) {
            match (code, value) {
                (2, value) => name = Some(text(value)),
                (3, value) => description = Some(text(value)),
                (9, [resolution, ..]) => described.scale = Scale::of(*resolution),
                (14, value) => {
                    if let Some(chunk) = value.first_chunk::<8>() {
                        described.offset = self.bytes.i64(*chunk).saturating_mul(1_000_000_000);
                    }
                }
                _ => {}
            }
        }
        self.interfaces.push(described);
        let place = self.place(u32::try_from(number).unwrap_or(u32::MAX));
        let name = match (name, description) {
            (Some(name), Some(description)) if name != description => format!("{name} ({description})"),
            (Some(text), _) | (None, Some(text)) => text,
            (None, None) => return Ok(()),
        };
        if self.names.len() < MAX_NAMES {
            self.names.push(Interface { place, name });
        }
        Ok(())
    }

    fn place(&self, number: u32) -> Place {
        Place::Interface(self.before.saturating_add(number))
    }

    fn packet<'a>(&self, kind: u32, body: &'a [u8]) -> Result<Frame<'a>, String> {
        let field = |at| self.bytes.u32_at(body, at).unwrap_or(0);
        let (number, head, captured, length) = match kind {
            ENHANCED_PACKET => (field(0), 20, field(12), field(16)),
            // Interface and drop counter share the first word.
            OLD_PACKET => (
                self.bytes.u16_at(body, 0).unwrap_or(0).into(),
                20,
                field(12),
                field(16),
            ),
            _ => (0, 4, u32::MAX, field(0)),
        };
        let interface = usize::try_from(number).ok().and_then(|n| self.interfaces.get(n));
        let Some(interface) = interface else {
            return Err(format!(
                "a packet of interface {number}, which the section does not describe"
            ));
        };
        let rest = body.get(head..).unwrap_or_default();
        let captured = if kind == SIMPLE_PACKET {
            // It has no captured length: the shortest of what is there, the packet, and the snap length.
            let snap = if interface.snap == 0 {
                u32::MAX
            } else {
                interface.snap
            };
            rest.len().min(length.min(snap) as usize)
        } else {
            captured as usize
        };
        let Some(bytes) = rest.get(..captured) else {
            return Err(format!(
                "a packet of {captured} bytes in a block that holds {}",
                rest.len()
            ));
        };
        let mut place = self.place(number);
        let mut direction = Direction::Unknown;
        let padded = captured.saturating_add(3) & !3;
        if kind != SIMPLE_PACKET {
            for (code, value) in options(self.bytes, rest.get(padded..).unwrap_or_default()) {
                match code {
                    // epb_flags and pack_flags: the lowest two bits are the direction.
                    2 => {
                        direction = match self.bytes.u32_at(value, 0).unwrap_or(0) & 3 {
                            1 => Direction::In,
                            2 => Direction::Out,
                            _ => direction,
                        }
                    }
                    1 => place = component(value).map_or(place, Place::Component),
                    _ => {}
                }
            }
        }
        let time = (kind != SIMPLE_PACKET).then(|| {
            let units = u64::from(field(4)) << 32 | u64::from(field(8));
            interface
                .scale
                .nanoseconds(units)
                .saturating_add(interface.offset)
        });
        Ok(Frame {
            link: interface.link,
            time,
            place,
            direction,
            length,
            bytes,
        })
    }
}

/// The options of a block, up to their end or to what is not one.
fn options(order: Bytes, mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let code = order.u16_at(rest, 0)?;
        let length = usize::from(order.u16_at(rest, 2)?);
        let value = rest.get(4..4 + length)?;
        rest = rest.get(4 + ((length + 3) & !3)..).unwrap_or_default();
        (code != 0).then_some((code, value))
    })
}

fn text(bytes: &[u8]) -> String {
    let bytes = bytes.get(..MAX_NAME).unwrap_or(bytes);
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .trim()
        .to_owned()
}

/// A comment that names the component of pktmon which saw the packet: `Component 14`, `ComponentId: 14`.
fn component(comment: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(comment.get(..MAX_NAME).unwrap_or(comment)).ok()?;
    let lower = text.to_ascii_lowercase();
    let rest = lower.split_once("component")?.1;
    let rest = rest.trim_start();
    let rest = rest.strip_prefix("id").unwrap_or(rest);
    let rest = rest.trim_start_matches([' ', ':', '=']);
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests;
