//! Text of Windows' `pktmon`: a line of metadata, then a line with the packet, once for every component that saw it.
//!
//! Two forms are known. `pktmon start` on a terminal and older converters begin a line with the time of day:
//!
//! ```text
//! 09:15:58.638215441 PktGroupId 1125899906842624, PktNumber 1, Appearance 1, Direction Rx , Type Ethernet , Component 78, Edge 1, Filter 1, OriginalSize 60, LoggedSize 60
//!     60-45-BD-12-45-65 > 00-15-5D-12-34-57, ethertype IPv4 (0x0800), length 60: 10.240.1.9.443 > 10.240.0.77.51198: Flags [R.], seq 0, ack 1, win 0, length 0
//! ```
//!
//! `pktmon etl2txt` begins it with `[00]425C.34D8::2024-04-02 10:27:05.458641700 [Microsoft-Windows-PktMon] `. The labels
//! between the commas are translated on a localised Windows (`PktGroupId` is not), so fields go by their place.
//! The second line has neither IP ID nor checksum nor time to live. (Sources: microsoft/Windows-Containers#439,
//! Microsoft's pages on `pktmon etl2txt`, and text that people put into public issues.)

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

use jiff::civil::{Date, Time};
use sexton_core::model::Problem;

use super::{
    Direction, FlowKey, Identity, Packet, Place, Point, Strength, Tcp,
    identity::Mix,
    reader::{Found, Interface},
};
use crate::{addr::parse_ip, text::MAX_LINE};

/// Problems are listed up to this number.
const MAX_PROBLEMS: usize = 100;

/// Components are named up to this number.
const MAX_COMPONENTS: usize = 4096;

/// How the text is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Encoding {
    /// Too little was seen yet.
    #[default]
    Unknown,
    Utf8,
    /// With the greater byte of a unit first, or last.
    Utf16 {
        big_endian: bool,
    },
}

/// The state of reading one text.
#[derive(Default)]
pub(super) struct Pktmon {
    encoding: Encoding,
    /// The first bytes, until the encoding is known; then the first byte of a unit of UTF-16.
    head: Vec<u8>,
    /// A high surrogate that waits for its low one.
    high: Option<u16>,
    /// A line whose end has not come, in UTF-8.
    line: Vec<u8>,
    too_long: bool,
    parser: Parser,
}

impl Pktmon {
    /// True if text may begin so.
    pub(super) fn may_begin(first: [u8; 4]) -> bool {
        let text = |b: u8| matches!(b, b'\t' | b'\r' | b'\n' | 0x20..=0x7e) || b >= 0x80;
        matches!(first, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) || first.into_iter().all(text)
    }

    /// How many lines of metadata there were.
    pub(super) const fn headers(&self) -> u64 {
        self.parser.headers
    }

    pub(super) fn push(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(Found)) {
        while self.encoding == Encoding::Unknown {
            let Some((first, rest)) = bytes.split_first() else {
                return;
            };
            bytes = rest;
            self.head.push(*first);
            self.encoding = match self.head.as_slice() {
                [_] => continue,
                [0xff, 0xfe] => Encoding::Utf16 { big_endian: false },
                [0xfe, 0xff] => Encoding::Utf16 { big_endian: true },
                _ => Encoding::Utf8,
            };
            let head = std::mem::take(&mut self.head);
            if self.encoding == Encoding::Utf8 {
                self.lines(&head, sink);
            }
        }
        match self.encoding {
            Encoding::Utf16 { big_endian } => {
                let mut text = String::with_capacity(bytes.len() / 2 + 2);
                for byte in bytes {
                    match self.head.pop() {
                        None => self.head.push(*byte),
                        Some(first) => {
                            let unit = [first, *byte];
                            let unit = if big_endian {
                                u16::from_be_bytes(unit)
                            } else {
                                u16::from_le_bytes(unit)
                            };
                            self.unit(unit, &mut text);
                        }
                    }
                }
                self.lines(text.as_bytes(), sink);
            }
            Encoding::Utf8 | Encoding::Unknown => self.lines(bytes, sink),
        }
    }

    /// A unit of UTF-16. What is no character becomes U+FFFD.
    fn unit(&mut self, unit: u16, text: &mut String) {
        match (self.high.take(), unit) {
            (Some(high), 0xdc00..0xe000) => {
                let pair = char::decode_utf16([high, unit]);
                text.extend(pair.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
                return;
            }
            (Some(_), _) => text.push(char::REPLACEMENT_CHARACTER),
            (None, _) => {}
        }
        if (0xd800..0xdc00).contains(&unit) {
            self.high = Some(unit);
        } else {
            text.push(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }

    fn lines(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(Found)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (piece, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if self.line.is_empty() && !self.too_long && piece.len() <= MAX_LINE {
                self.parser.line(piece, sink);
            } else {
                self.keep(piece);
                self.end(sink);
            }
        }
        self.keep(bytes);
    }

    fn keep(&mut self, piece: &[u8]) {
        self.too_long |= self.line.len() + piece.len() > MAX_LINE;
        if self.too_long {
            self.line.clear();
        } else {
            self.line.extend_from_slice(piece);
        }
    }

    fn end(&mut self, sink: &mut dyn FnMut(Found)) {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.too_long) {
            self.parser.number += 1;
            self.parser.problem("left out: the line is too long".to_owned());
        } else {
            self.parser.line(&line, sink);
        }
        self.line = line;
        self.line.clear();
    }

    /// The text ends here.
    pub(super) fn finish(&mut self, sink: &mut dyn FnMut(Found)) {
        if self.encoding == Encoding::Unknown {
            self.encoding = Encoding::Utf8;
            let head = std::mem::take(&mut self.head);
            self.lines(&head, sink);
        }
        if !self.line.is_empty() || self.too_long {
            self.end(sink);
        }
        self.parser.give_up(sink);
    }

    /// The names of components, and what was wrong with the text of this file.
    pub(super) fn into_parts(self, path: &str) -> (Vec<Interface>, Vec<Problem>) {
        let parser = self.parser;
        let mut names: Vec<_> = parser.components.into_iter().collect();
        names.sort_unstable();
        let place = |id| Place::Component(id);
        let interfaces = names.into_iter().map(|(id, name)| Interface {
            place: place(id),
            name,
        });
        let mut problems: Vec<_> = parser
            .problems
            .into_iter()
            .map(|(line, what)| Problem {
                place: format!("{path}:{line}"),
                what,
            })
            .collect();
        if parser.left_out > 0 {
            let what = format!("{} more problems", parser.left_out);
            problems.push(Problem {
                place: path.to_owned(),
                what,
            });
        }
        (interfaces.collect(), problems)
    }
}

/// A line of metadata, which waits for the line of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    time: Option<i64>,
    point: Point,
    length: u32,
}

#[derive(Default)]
struct Parser {
    number: u64,
    headers: u64,
    waiting: Option<Header>,
    components: HashMap<u32, String>,
    problems: Vec<(u64, String)>,
    left_out: u64,
    /// Nanoseconds of the days that passed at midnights, for times without a date.
    days: i64,
    last: i64,
}

impl Parser {
    fn problem(&mut self, what: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push((self.number, what));
        } else {
            self.left_out += 1;
        }
    }

    /// Metadata whose packet did not come: it is a frame of which nothing is known but its length.
    fn give_up(&mut self, sink: &mut dyn FnMut(Found)) {
        if let Some(header) = self.waiting.take() {
            sink(Found::Other(header.length));
        }
    }

    fn line(&mut self, bytes: &[u8], sink: &mut dyn FnMut(Found)) {
        self.number += 1;
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => std::borrow::Cow::Borrowed(text),
            // A console of another code page: the labels are lost, the numbers are not.
            Err(_) => String::from_utf8_lossy(bytes),
        };
        let text = text.trim_end();
        if let Some((before, fields)) = text.split_once("PktGroupId ") {
            self.give_up(sink);
            self.headers += 1;
            match header(fields) {
                Some(mut header) => {
                    header.time = self.time(before);
                    self.waiting = Some(header);
                }
                None => {
                    self.problem("expected the numbers of a packet after PktGroupId".to_owned());
                    sink(Found::Other(0));
                }
            }
        } else if text.starts_with([' ', '\t']) {
            // Further indented lines belong to the same packet.
            let Some(header) = self.waiting else { return };
            if let Some(packet) = packet(text, &header) {
                self.waiting = None;
                sink(Found::Packet(packet));
            }
        } else if let Some((_, described)) = text.split_once("Component ") {
            self.describe(described);
        }
    }

    /// `14, Type Miniport , Name netvsc.sys, Microsoft Hyper-V Network Adapter #2`
    fn describe(&mut self, text: &str) {
        let Some((id, rest)) = text.split_once(',') else {
            return;
        };
        let Ok(id) = id.trim().parse::<u32>() else { return };
        let Some((_, name)) = rest.split_once("Name ") else {
            return;
        };
        if self.components.len() >= MAX_COMPONENTS || name.len() > 256 {
            return;
        }
        // The file of the driver comes before what people call it.
        let name = name.split_once(", ").map_or(name, |(_, description)| description);
        self.components
            .entry(id)
            .or_insert_with(|| name.trim().to_owned());
    }

    /// What stands before `PktGroupId`: a date and time with decorations, or a time of day; `Drop: ` may follow.
    fn time(&mut self, before: &str) -> Option<i64> {
        let mut words = before.split_ascii_whitespace();
        let first = words.next()?;
        let first = first.rsplit_once("::").map_or(first, |(_, date)| date);
        if let Ok(date) = first.parse::<Date>() {
            let time: Time = words.next()?.parse().ok()?;
            let stamp = jiff::tz::Offset::UTC.to_timestamp(date.to_datetime(time)).ok()?;
            return i64::try_from(stamp.as_nanosecond()).ok();
        }
        let time: Time = first.parse().ok()?;
        let of_day =
            (i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60 + i64::from(time.second()))
                * 1_000_000_000
                + i64::from(time.subsec_nanosecond());
        const HALF_DAY: i64 = 12 * 3600 * 1_000_000_000;
        // Only midnight makes the time of day fall by more than half a day.
        if self.last.saturating_sub(of_day) > HALF_DAY {
            self.days = self.days.saturating_add(2 * HALF_DAY);
        }
        self.last = of_day;
        Some(self.days.saturating_add(of_day))
    }
}

/// The fields after `PktGroupId `, by their place: group, number, appearance, direction, type, component, then edge and
/// filter; a drop has a reason in place of the edge; the sizes come last.
fn header(fields: &str) -> Option<Header> {
    let fields: Vec<&str> = fields.split(',').map(str::trim).collect();
    let last_word = |index: usize| fields.get(index)?.split_ascii_whitespace().next_back();
    let direction = match last_word(3)? {
        "Rx" => Direction::In,
        "Tx" => Direction::Out,
        _ => Direction::Unknown,
    };
    let component = last_word(5)?.parse().ok()?;
    let size = |name: &str| {
        let field = fields.iter().find_map(|field| field.strip_prefix(name))?;
        field.trim().parse::<u32>().ok()
    };
    // Without an edge the filter stands there; dropped packets have none.
    let edge = fields
        .get(6)
        .filter(|field| fields.len() >= 10 && !field.starts_with("Filter"))
        .and_then(|_| last_word(6)?.parse().ok())
        .unwrap_or(0);
    Some(Header {
        time: None,
        point: Point {
            place: Place::Component(component),
            edge,
            direction,
        },
        length: size("OriginalSize ")?,
    })
}

/// The line of a packet, as tcpdump prints it, after whatever link layer.
fn packet(text: &str, header: &Header) -> Option<Packet> {
    let mut search = text;
    let mut offset = 0;
    // The first ` > ` may stand between MAC addresses.
    let (source, destination, at) = loop {
        let arrow = search.find(" > ")?;
        let left = search.get(..arrow)?.rsplit([' ', '\t']).next()?;
        let right = search.get(arrow + 3..)?;
        let right = right.split([' ', ',']).next()?;
        let right = right.strip_suffix(':').unwrap_or(right);
        if let (Some(source), Some(destination)) = (end(left), end(right)) {
            break (source, destination, offset + arrow - left.len());
        }
        offset += arrow + 3;
        search = search.get(arrow + 3..)?;
    };
    let said = text.get(at..)?;
    let detail = said.split_once(": ").map_or("", |(_, detail)| detail);
    let tcp = tcp(detail);
    let protocol = if tcp.is_some() {
        6
    } else if detail.starts_with("UDP") {
        17
    } else if detail.starts_with("ICMP6") {
        58
    } else if detail.starts_with("ICMP") {
        1
    } else if source.1.is_some() {
        // tcpdump looks into well-known services and does not name the protocol then: they are UDP's.
        17
    } else {
        255
    };
    let ports = source.1.zip(destination.1);
    let mut mix = Mix::new();
    mix.word(u64::from(header.length));
    mix.bytes(said.as_bytes());
    Some(Packet {
        time: header.time,
        point: header.point,
        flow: FlowKey {
            source: source.0,
            destination: destination.0,
            protocol,
            ports,
        },
        tcp,
        ttl: None,
        fragment: false,
        length: header.length,
        identity: Identity {
            hash: mix.finish(),
            strength: Strength::Text,
        },
    })
}

/// An address with or without a port: `10.0.0.1.443`, `fd00::1.443`, `10.0.0.1`.
fn end(word: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Some((address, port)) = word.rsplit_once('.')
        && let Ok(port) = port.parse()
        && let Some(address) = address_of(address)
    {
        return Some((address, Some(port)));
    }
    address_of(word).map(|address| (address, None))
}

fn address_of(word: &str) -> Option<IpAddr> {
    // A MAC address with colons is no address, and neither is a number.
    if word.contains(':') {
        return word
            .parse::<Ipv6Addr>()
            .ok()
            .map(|v6| IpAddr::V6(v6).to_canonical());
    }
    (word.matches('.').count() == 3).then(|| parse_ip(word)).flatten()
}

/// `Flags [R.], seq 1:91, ack 1, win 0, length 0`
fn tcp(detail: &str) -> Option<Tcp> {
    let (letters, rest) = detail.strip_prefix("Flags [")?.split_once(']')?;
    let flags = letters.chars().fold(0, |flags, letter| {
        flags
            | match letter {
                'F' => 1,
                'S' => 2,
                'R' => 4,
                'P' => 8,
                '.' => 16,
                'U' => 32,
                'E' => 64,
                'W' => 128,
                _ => 0,
            }
    });
    let number = |name: &str| {
        let at = rest.split(", ").find_map(|field| field.strip_prefix(name))?;
        at.split(':').next()?.parse::<u32>().ok()
    };
    Some(Tcp {
        flags: Some(flags),
        seq: number("seq ").unwrap_or(0),
        ack: number("ack ").unwrap_or(0),
    })
}

/// A component of `pktmon list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its number in this boot.
    pub id: u32,
    /// What it is called.
    pub name: String,
    /// Its MAC address as printed, if it has one.
    pub mac: Option<String>,
}

/// Reads `pktmon list` (also `--all`): a table of numbers, MAC addresses and names, or its JSON.
pub fn components(text: &str) -> Vec<Component> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Group {
        #[serde(default)]
        components: Vec<Item>,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Item {
        id: u32,
        #[serde(default)]
        name: String,
    }
    let text = text.trim_start_matches('\u{feff}');
    if let Ok(groups) = serde_json::from_str::<Vec<Group>>(text) {
        let items = groups.into_iter().flat_map(|group| group.components);
        let item = |item: Item| Component {
            id: item.id,
            name: item.name,
            mac: None,
        };
        return items.map(item).collect();
    }
    text.lines()
        .filter_map(|line| {
            let (id, rest) = line.trim().split_once(' ')?;
            let id = id.parse().ok()?;
            let rest = rest.trim_start();
            let (first, name) = rest.split_once(' ').unwrap_or((rest, ""));
            let is_mac = first.len() == 17
                && first
                    .bytes()
                    .all(|b| b.is_ascii_hexdigit() || matches!(b, b'-' | b':'));
            Some(if is_mac {
                Component {
                    id,
                    name: name.trim().to_owned(),
                    mac: Some(first.to_owned()),
                }
            } else {
                Component {
                    id,
                    name: rest.trim().to_owned(),
                    mac: None,
                }
            })
        })
        .collect()
}
