//! `conntrack -L` with its output options, and `/proc/net/nf_conntrack`.
//!
//! Source: libnetfilter_conntrack, `src/conntrack/snprintf_default.c`; the kernel's
//! `net/netfilter/nf_conntrack_standalone.c` (`ct_seq_show`).

use std::{
    io::BufRead,
    net::{IpAddr, Ipv4Addr},
};

use sexton_core::model::{Completeness, CtEntry, CtFlags, CtTuple, Direction, Problem, Proto};

use crate::{
    addr::parse_ip,
    text::{Line, Lines},
};

/// What a listing came to, beside its entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CtOutput {
    /// How many entries there were.
    pub seen: u64,
    /// Whether that is all.
    pub completeness: Completeness,
    /// What was wrong, by line.
    pub problems: Vec<Problem>,
    /// Whether entries have counters a direction; `None` if there was no entry.
    pub accounting: Option<bool>,
}

/// A line that is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CtError {
    /// It is an event of `conntrack -E`.
    #[error("an event, not an entry of a listing")]
    Event,
    /// No protocol by name and number.
    #[error("expected a protocol's name and number")]
    Proto,
    /// A word before the addresses that is neither a timeout nor a state.
    #[error("expected a timeout or a state before src=")]
    State,
    /// A value that cannot be read.
    #[error("cannot read the value of {0}")]
    Value(&'static str),
    /// Not two directions with source and destination.
    #[error("expected src= and dst= in both directions")]
    Tuples,
    /// A protocol with ports, and not two in both directions.
    #[error("expected sport= and dport= in both directions")]
    Ports,
}

/// Problems are listed up to this number.
const MAX_PROBLEMS: usize = 100;

/// Reads a listing as a stream, one line in memory, and hands out each entry.
///
/// Never fails: what was wrong is in the output, with `source` as its place.
pub fn parse(reader: impl BufRead, source: &str, sink: &mut dyn FnMut(CtEntry)) -> CtOutput {
    let mut state = State {
        source,
        sink,
        output: CtOutput::default(),
        left_out: 0,
        counted: None,
        cut: None,
    };
    let mut lines = Lines::new(reader);
    while let Some(line) = lines.next() {
        match line {
            Ok(line) => state.line(line),
            Err(err) => {
                state.cut = Some(err.to_string());
                break;
            }
        }
    }
    state.finish()
}

struct State<'a> {
    source: &'a str,
    sink: &'a mut dyn FnMut(CtEntry),
    output: CtOutput,
    left_out: u64,
    /// What the tool's closing lines counted.
    counted: Option<u64>,
    cut: Option<String>,
}

impl State<'_> {
    fn problem(&mut self, number: u64, what: String) {
        self.left_out += 1;
        if self.output.problems.len() < MAX_PROBLEMS {
            self.output.problems.push(Problem {
                place: format!("{}:{number}", self.source),
                what,
            });
        }
    }

    fn line(&mut self, line: Line<'_>) {
        let Some(text) = std::str::from_utf8(line.bytes).ok().filter(|_| !line.too_long) else {
            return self.problem(
                line.number,
                "left out: the line is too long or not UTF-8".to_owned(),
            );
        };
        if text.trim().is_empty() {
            return;
        }
        // `conntrack v1.4.7 (conntrack-tools): 9 flow entries have been shown.`
        if let Some(rest) = text.strip_prefix("conntrack v") {
            let count = rest
                .split_once("): ")
                .filter(|(_, rest)| rest.contains("flow entries"))
                .and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
            match count {
                Some(count) => self.counted = Some(self.counted.unwrap_or(0) + count),
                None => self.problem(line.number, format!("the tool said: {text}")),
            }
            return;
        }
        if !line.ended {
            // An entry without its end reads like one: `sport=40001` cut is `sport=4000`. A whole one ends in `use=N`.
            self.cut = Some("its last line has no end".to_owned());
            return self.problem(line.number, "left out: the line is cut off".to_owned());
        }
        match parse_entry(text) {
            Ok(entry) => {
                self.output.seen += 1;
                let counted = entry.original_count.is_some();
                self.output.accounting = Some(self.output.accounting.unwrap_or(false) || counted);
                (self.sink)(entry);
            }
            Err(err) => {
                let excerpt: String = text.chars().take(120).collect();
                self.problem(line.number, format!("left out: {err}: {excerpt}"));
            }
        }
    }

    fn finish(mut self) -> CtOutput {
        let seen = self.output.seen;
        let mut lacks = Vec::new();
        lacks.extend(self.cut.map(|cut| format!("the text is cut off: {cut}")));
        if self.left_out > 0 && lacks.is_empty() {
            lacks.push(format!("lines that could not be read: {}", self.left_out));
        }
        if let Some(counted) = self.counted.filter(|counted| *counted != seen) {
            lacks.push(format!("the tool counted {counted} entries and {seen} were read"));
        }
        self.output.completeness = if !lacks.is_empty() {
            Completeness::Partial(lacks.join("; "))
        } else if seen == 0 && self.counted.is_none() {
            Completeness::Unavailable(
                "the text holds no entry: either the table is empty or the command failed".to_owned(),
            )
        } else {
            Completeness::Complete
        };
        self.output
    }
}

/// A tuple that is being read.
#[derive(Clone, Copy, Default)]
struct Tuple {
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    sport: Option<u16>,
    dport: Option<u16>,
    packets: Option<u64>,
    bytes: Option<u64>,
}

impl Tuple {
    fn finish(self, proto: Proto) -> Result<(CtTuple, Option<Direction>), CtError> {
        let has_ports = matches!(proto, Proto::Tcp | Proto::Udp | Proto::Sctp);
        // Others have a type and a code, or a key, in their place.
        let port = |told: Option<u16>| match told {
            None if has_ports => Err(CtError::Ports),
            told => Ok(told.unwrap_or(0)),
        };
        let tuple = CtTuple {
            src: self.src.ok_or(CtError::Tuples)?,
            dst: self.dst.ok_or(CtError::Tuples)?,
            sport: port(self.sport)?,
            dport: port(self.dport)?,
        };
        let count = self
            .packets
            .zip(self.bytes)
            .map(|(packets, bytes)| Direction { packets, bytes });
        Ok((tuple, count))
    }
}

/// Reads one entry.
///
/// # Errors
///
/// [`CtError`] if it is none. Words that are not known are passed over: new versions add some.
pub fn parse_entry(text: &str) -> Result<CtEntry, CtError> {
    let mut words = text.split_ascii_whitespace();
    let mut first = words.next().ok_or(CtError::Proto)?;
    if first.starts_with('[') {
        return Err(CtError::Event);
    }
    // `-o extended` and /proc begin with the network protocol.
    if matches!(first, "ipv4" | "ipv6") {
        words.next();
        first = words.next().ok_or(CtError::Proto)?;
    }
    let number: u8 = words.next().and_then(number).ok_or(CtError::Proto)?;
    if first.contains('=') {
        return Err(CtError::Proto);
    }

    let mut out = CtEntry {
        proto: Proto::from_number(number),
        state: None,
        timeout: None,
        original: UNSET,
        reply: UNSET,
        flags: CtFlags::default(),
        mark: 0,
        zone: 0,
        id: None,
        original_count: None,
        reply_count: None,
    };
    let mut tuples = [Tuple::default(); 2];
    // How many directions have begun.
    let mut begun = 0_usize;
    let mut after_code = false;
    let mut zone = None;
    let mut at_start = true;
    while let Some(word) = words.next() {
        let Some((key, value)) = word.split_once('=') else {
            match word {
                "[UNREPLIED]" => out.flags.unreplied = true,
                "[ASSURED]" => out.flags.assured = true,
                "[OFFLOAD]" | "[HW_OFFLOAD]" => out.flags.offload = true,
                _ if word.starts_with('[') || begun > 0 => {}
                _ if at_start && word.as_bytes()[0].is_ascii_digit() => {
                    out.timeout = Some(number_of(word, "the timeout")?);
                }
                _ if is_state(word) => out.state = Some(word.into()),
                _ => return Err(CtError::State),
            }
            at_start = false;
            continue;
        };
        at_start = false;
        if key == "src" {
            begun += 1;
        }
        let tuple = tuples.get_mut(begun.saturating_sub(1)).ok_or(CtError::Tuples)?;
        let of_tuple = std::mem::replace(&mut after_code, key == "code");
        match key {
            "src" => tuple.src = Some(ip(value).ok_or(CtError::Value("src"))?),
            "dst" => tuple.dst = Some(ip(value).ok_or(CtError::Value("dst"))?),
            "sport" => tuple.sport = Some(number_of(value, "sport")?),
            "dport" => tuple.dport = Some(number_of(value, "dport")?),
            "packets" => tuple.packets = Some(number_of(value, "packets")?),
            "bytes" => tuple.bytes = Some(number_of(value, "bytes")?),
            "mark" => out.mark = number_of(value, "mark")?,
            "zone" => zone = Some(number_of(value, "zone")?),
            "zone-orig" => zone = zone.or(Some(number_of(value, "zone-orig")?)),
            // Behind `code=` it is the echo's identifier.
            "id" if !of_tuple => out.id = Some(number_of(value, "id")?),
            // `[start=Mon Nov 30 16:19:15 2026]`
            _ if word.starts_with('[') => {
                let mut end = word;
                while !end.ends_with(']') {
                    let Some(next) = words.next() else { break };
                    end = next;
                }
            }
            // type, code, use, secctx, labels, helper, delta-time, srckey, dstkey, ...
            _ => {}
        }
    }
    out.zone = zone.unwrap_or(0);
    let [original, reply] = tuples;
    (out.original, out.original_count) = original.finish(out.proto)?;
    (out.reply, out.reply_count) = reply.finish(out.proto)?;
    Ok(out)
}

/// A protocol's state: `ESTABLISHED`, `SYN_SENT2`.
fn is_state(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// Is always replaced before an entry is given out.
const UNSET: CtTuple = CtTuple {
    src: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    dst: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    sport: 0,
    dport: 0,
};

fn number<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes.len() > 20 {
        return None;
    }
    let mut out = 0_u64;
    for byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        out = out.checked_mul(10)?.checked_add(digit.into())?;
    }
    T::try_from(out).ok()
}

fn number_of<T: TryFrom<u64>>(text: &str, what: &'static str) -> Result<T, CtError> {
    number(text).ok_or(CtError::Value(what))
}

fn ip(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv4Addr>()
        .map(IpAddr::V4)
        .ok()
        .or_else(|| parse_ip(text))
}

#[cfg(test)]
mod tests;
