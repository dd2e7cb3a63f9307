//! Takes a capture in pieces: finds its format, keeps what a record lacks until it comes, hands out packets.

use sexton_core::model::{Completeness, Problem};

use super::{
    Packet, Place,
    link::{self, Frame, LinkType, NoPacket},
    pcap::{self, Pcap},
    pcapng::{self, Pcapng},
    pktmon::Pktmon,
};

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap.
    Pcap,
    /// pcapng.
    Pcapng,
    /// Text of `pktmon etl2txt` or of a live `pktmon start`.
    PktmonText,
}

pub use sexton_core::model::Interface;

/// What a capture came to, beside its packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What it is; `None` if it is no capture.
    pub format: Option<Format>,
    /// Frames, of whatever kind.
    pub frames: u64,
    /// Frames that gave a packet of IP.
    pub packets: u64,
    /// Frames of something else: ARP, an unknown link type.
    pub not_ip: u64,
    /// Frames whose headers are cut off or contradict themselves.
    pub cut: u64,
    /// Bytes of all frames on the wire.
    pub bytes: u64,
    /// Interfaces and components that have a name, up to 4,096.
    pub interfaces: Vec<Interface>,
    /// Whether that is all of it.
    pub completeness: Completeness,
    /// What was wrong, with the offset of the byte.
    pub problems: Vec<Problem>,
}

impl Outcome {
    /// The name of a place, where the capture has one.
    pub fn name(&self, place: Place) -> Option<&str> {
        let found = self.interfaces.iter().find(|interface| interface.place == place);
        found.map(|interface| interface.name.as_str())
    }
}

/// What came of looking at the bytes that are there.
pub(super) enum Step<T> {
    /// So many bytes were used.
    Used(usize, T),
    /// So many bytes were used, and they are bad.
    Bad(usize, String),
    /// So many bytes must be there before it can go on.
    Need(usize),
    /// So many bytes are of no interest.
    Skip(u64),
    /// The same, and that is worth saying.
    TooLong(u64, String),
    /// It cannot go on.
    Stop(String),
}

pub(super) fn broken<T>(why: String) -> Step<T> {
    Step::Stop(why)
}

/// The order of bytes in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Bytes {
    /// The least comes first.
    #[default]
    Little,
    /// The greatest comes first.
    Big,
}

impl Bytes {
    pub(super) const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(super) const fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        }
    }

    pub(super) fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        let chunk = bytes.get(at..)?.first_chunk::<4>()?;
        Some(self.u32(*chunk))
    }

    pub(super) fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        let chunk = bytes.get(at..)?.first_chunk::<2>()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(*chunk),
            Self::Big => u16::from_be_bytes(*chunk),
        })
    }
}

/// Problems are listed up to this number.
const MAX_PROBLEMS: usize = 100;

/// Reads a capture in pieces of any size.
pub struct Reader {
    path: String,
    state: State,
    /// The beginning of a record whose rest has not come yet.
    carry: Vec<u8>,
    /// How many bytes are still to be passed over.
    skip: u64,
    /// The offset in the input of what is looked at next.
    offset: u64,
    left_out: u64,
    backwards: Backwards,
    outcome: Outcome,
}

/// Times that go backwards. A little is normal where several queues are captured.
#[derive(Default)]
struct Backwards {
    before: Option<i64>,
    /// How often, and where first.
    times: u64,
    first: u64,
}

impl Backwards {
    fn see(&mut self, time: Option<i64>, offset: u64) {
        if let Some(time) = time {
            if self.before.is_some_and(|before| time < before) {
                self.times += 1;
                if self.times == 1 {
                    self.first = offset;
                }
            }
            self.before = Some(time);
        }
    }
}

enum State {
    Start,
    Pcap(Pcap),
    Pcapng(Box<Pcapng>),
    Text(Box<Pktmon>),
    /// What follows is not read.
    Stopped,
}

impl Reader {
    /// A reader of a file of this name, which problems are reported with.
    pub fn new(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            state: State::Start,
            carry: Vec::new(),
            skip: 0,
            offset: 0,
            left_out: 0,
            backwards: Backwards::default(),
            outcome: Outcome {
                format: None,
                frames: 0,
                packets: 0,
                not_ip: 0,
                cut: 0,
                bytes: 0,
                interfaces: Vec::new(),
                completeness: Completeness::Complete,
                problems: Vec::new(),
            },
        }
    }

    /// What it is, as soon as that is known.
    pub const fn format(&self) -> Option<Format> {
        self.outcome.format
    }

    /// Reads on.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(&Packet)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let count = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
                self.pass(count);
                self.skip -= count as u64;
                bytes = bytes.get(count..).unwrap_or_default();
                continue;
            }
            match &mut self.state {
                State::Stopped => return,
                State::Text(text) => {
                    let mut counts = Counts(&mut self.outcome);
                    text.push(bytes, &mut |found| counts.take(found, sink));
                    return self.pass(bytes.len());
                }
                State::Start | State::Pcap(_) | State::Pcapng(_) => {}
            }
            let used = if self.carry.is_empty() {
                self.run(bytes, sink)
            } else {
                self.fill(bytes, sink)
            };
            bytes = bytes.get(used..).unwrap_or_default();
        }
    }

    /// Reads records in place; what is left at the end is kept. Returns how much was taken of `bytes`.
    fn run(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&Packet)) -> usize {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            if rest.is_empty() || self.skip > 0 || matches!(self.state, State::Stopped | State::Text(_)) {
                return at;
            }
            match self.step(rest, sink) {
                Ok(used) => at += used,
                Err(_) => {
                    self.carry.extend_from_slice(rest);
                    return bytes.len();
                }
            }
        }
    }

    /// Adds to what was kept only as much as the record lacks. Returns how much was taken of `bytes`.
    fn fill(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&Packet)) -> usize {
        let mut carry = std::mem::take(&mut self.carry);
        let mut taken = 0;
        while !carry.is_empty() {
            match self.step(&carry, sink) {
                Ok(used) => {
                    carry.drain(..used.min(carry.len()));
                }
                Err(need) => {
                    let more = need.saturating_sub(carry.len()).max(1);
                    let rest = bytes.get(taken..).unwrap_or_default();
                    let piece = rest.get(..more).unwrap_or(rest);
                    if piece.is_empty() {
                        break;
                    }
                    carry.extend_from_slice(piece);
                    taken += piece.len();
                }
            }
            if self.skip > 0 || matches!(self.state, State::Stopped | State::Text(_)) {
                // What was kept and is not used goes the same way as what comes.
                let left = std::mem::take(&mut carry);
                self.push(&left, sink);
                return taken;
            }
        }
        self.carry = carry;
        taken
    }

    fn pass(&mut self, count: usize) {
        self.offset += count as u64;
    }

    /// One record: how many bytes it took, or how many it needs.
    fn step(&mut self, data: &[u8], sink: &mut dyn FnMut(&Packet)) -> Result<usize, usize> {
        let step = match &mut self.state {
            State::Start => return self.start(data),
            State::Pcap(pcap) => pcap.step(data),
            State::Pcapng(pcapng) => pcapng.step(data),
            State::Text(_) | State::Stopped => return Ok(data.len()),
        };
        match step {
            Step::Used(count, frame) => {
                if let Some(frame) = frame {
                    self.backwards.see(frame.time, self.offset);
                    Counts(&mut self.outcome).frame(&frame, sink);
                }
                self.pass(count);
                Ok(count)
            }
            Step::Bad(count, why) => {
                self.problem(why);
                self.pass(count);
                Ok(count)
            }
            Step::Need(count) => Err(count),
            Step::Skip(count) => {
                self.skip = count;
                Ok(0)
            }
            Step::TooLong(count, why) => {
                self.problem(why);
                self.skip = count;
                Ok(0)
            }
            Step::Stop(why) => {
                self.broken(&why);
                Ok(0)
            }
        }
    }

    /// Finds the format.
    fn start(&mut self, data: &[u8]) -> Result<usize, usize> {
        let Some(first) = data.first_chunk::<4>() else {
            return Err(4);
        };
        if pcapng::is_pcapng(*first) {
            self.outcome.format = Some(Format::Pcapng);
            self.state = State::Pcapng(Box::default());
        } else if pcap::is_pcap(*first) {
            let header = data.first_chunk::<{ Pcap::HEADER }>().ok_or(Pcap::HEADER)?;
            let Some(pcap) = Pcap::new(header) else {
                self.broken("not the header of a capture");
                return Ok(0);
            };
            self.outcome.format = Some(Format::Pcap);
            if let LinkType::Other(link) = pcap.link() {
                self.problem(unread_link(link));
            }
            self.state = State::Pcap(pcap);
            self.pass(Pcap::HEADER);
            return Ok(Pcap::HEADER);
        } else if Pktmon::may_begin(*first) {
            self.state = State::Text(Box::default());
        } else {
            self.broken("expected a capture (pcap, pcapng, or text of pktmon), found something else");
        }
        Ok(0)
    }

    fn problem(&mut self, what: String) {
        if self.outcome.problems.len() < MAX_PROBLEMS {
            let place = format!("{}: byte {}", self.path, self.offset);
            self.outcome.problems.push(Problem { place, what });
        } else {
            self.left_out += 1;
        }
    }

    /// Nothing more can be read from here.
    pub(super) fn broken(&mut self, why: &str) {
        self.problem(why.to_owned());
        self.incomplete(format!("read up to byte {}: {why}", self.offset));
        self.state = State::Stopped;
        self.carry.clear();
        self.skip = 0;
    }

    fn incomplete(&mut self, why: String) {
        if self.outcome.completeness.is_complete() {
            self.outcome.completeness = if self.outcome.frames == 0 && self.outcome.format.is_none() {
                Completeness::Unavailable(why)
            } else {
                Completeness::Partial(why)
            };
        }
    }

    /// The input ends here.
    pub fn finish(mut self, sink: &mut dyn FnMut(&Packet)) -> Outcome {
        if let State::Text(text) = &mut self.state {
            let mut counts = Counts(&mut self.outcome);
            text.finish(&mut |found| counts.take(found, sink));
            let text = std::mem::take(text);
            let seen = text.headers();
            let (interfaces, problems) = text.into_parts(&self.path);
            self.outcome.interfaces = interfaces;
            self.outcome.problems.extend(problems);
            if seen == 0 {
                self.broken("expected a capture (pcap, pcapng, or text of pktmon), found other text");
            } else {
                self.outcome.format = Some(Format::PktmonText);
            }
        }
        if let State::Pcapng(pcapng) = &mut self.state {
            self.outcome.interfaces = std::mem::take(&mut pcapng.names);
            if let Some(link) = pcapng.unread_link {
                self.problem(unread_link(link));
            }
        }
        match self.state {
            State::Start if self.carry.is_empty() => self.broken("expected a capture, found an empty file"),
            State::Start => self.broken("expected a capture, found a few bytes"),
            State::Pcap(_) | State::Pcapng(_) if self.skip > 0 || !self.carry.is_empty() => {
                self.broken("the capture is cut off inside of a record");
            }
            _ => {}
        }
        let Backwards { times, first, .. } = self.backwards;
        if times >= 10 && times * 10 > self.outcome.frames {
            self.outcome.problems.push(Problem {
                place: format!("{}: byte {first}", self.path),
                what: format!(
                    "the time goes backwards here, and {times} times in all: how many packets circulate and how long a turn takes is \
                     not told"
                ),
            });
        }
        if self.left_out > 0 {
            self.outcome.problems.push(Problem {
                place: self.path,
                what: format!("{} more problems", self.left_out),
            });
        }
        self.outcome
    }
}

fn unread_link(link: u16) -> String {
    format!("link type {link} is not read: its frames are counted and not looked into")
}

/// What a line or record of text came to.
pub(super) enum Found {
    /// A packet.
    Packet(Packet),
    /// A frame that is not IP, with its length.
    Other(u32),
}

struct Counts<'a>(&'a mut Outcome);

impl Counts<'_> {
    fn frame(&mut self, frame: &Frame<'_>, sink: &mut dyn FnMut(&Packet)) {
        let outcome = &mut *self.0;
        outcome.frames += 1;
        outcome.bytes += u64::from(frame.length);
        match link::packet(frame) {
            Ok(packet) => {
                outcome.packets += 1;
                sink(&packet);
            }
            Err(NoPacket::NotIp) => outcome.not_ip += 1,
            Err(NoPacket::Cut) => outcome.cut += 1,
        }
    }

    fn take(&mut self, found: Found, sink: &mut dyn FnMut(&Packet)) {
        let outcome = &mut *self.0;
        outcome.frames += 1;
        match found {
            Found::Packet(packet) => {
                outcome.packets += 1;
                outcome.bytes += u64::from(packet.length);
                sink(&packet);
            }
            Found::Other(length) => {
                outcome.not_ip += 1;
                outcome.bytes += u64::from(length);
            }
        }
    }
}
