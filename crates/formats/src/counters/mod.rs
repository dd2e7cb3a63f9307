//! Performance counters of Windows: CSV of typeperf, relog and logman, and text of `Get-Counter`.
//!
//! A counter's path is `\\HOST\Object(instance)\Counter`. Names are localised, and so is the decimal point; English and
//! German names are known, others keep their series without a meaning. The names of adapters are those of their
//! descriptions with `_2` for `#2` and brackets for parentheses.

use std::io::BufRead;

use jiff::civil::DateTime;
use sexton_core::model::{Completeness, Problem};

mod csv;
mod suspect;
mod text;

pub use suspect::{Core, Pair, Suspicion, Thresholds, suspect};

/// What a counter measures, as far as a loop shows in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Packets that an adapter received, a second.
    Received,
    /// Packets that an adapter sent, a second.
    Sent,
    /// Packets of a virtual switch in both directions, a second.
    Switch,
    /// Time in deferred procedure calls, in percent of one core.
    DpcTime,
    /// Time in interrupts, in percent of one core.
    InterruptTime,
    /// Something else, or a name in another language.
    Other,
}

/// A counter by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The machine, as printed.
    pub host: Option<String>,
    /// The object: `Network Interface`.
    pub object: String,
    /// The instance: an adapter, a core.
    pub instance: Option<String>,
    /// The counter's name.
    pub name: String,
    /// What that is.
    pub kind: Kind,
}

impl Counter {
    /// Reads a path; `None` if it is none.
    pub fn parse(path: &str) -> Option<Self> {
        let (host, rest) = match path.strip_prefix(r"\\") {
            Some(rest) => {
                let (host, rest) = rest.split_once('\\')?;
                (Some(host.to_owned()), rest)
            }
            None => (None, path.strip_prefix('\\')?),
        };
        // An instance may hold backslashes and parentheses, a counter's name may hold neither.
        let (before, name) = rest.rsplit_once('\\')?;
        let (object, instance) = match before.split_once('(') {
            Some((object, instance)) => (object, Some(instance.strip_suffix(')')?.to_owned())),
            None => (before, None),
        };
        if object.is_empty() || name.is_empty() {
            return None;
        }
        Some(Self {
            kind: kind(object, name),
            host,
            object: object.to_owned(),
            instance,
            name: name.to_owned(),
        })
    }

    /// True for the sum over all instances.
    pub fn is_total(&self) -> bool {
        self.instance
            .as_deref()
            .is_some_and(|name| name.to_ascii_lowercase().ends_with("_total"))
    }
}

/// English names (Microsoft's reference of counters), German ones (its German page on network counters).
fn kind(object: &str, name: &str) -> Kind {
    let (object, name) = (object.to_lowercase(), name.to_lowercase());
    match (object.as_str(), name.as_str()) {
        ("network interface" | "network adapter", "packets received/sec")
        | (
            "netzwerkschnittstelle" | "netzwerkadapter",
            "empfangene pakete/s" | "empfangene pakete/sek." | "pakete empfangen/s",
        ) => Kind::Received,
        ("network interface" | "network adapter", "packets sent/sec")
        | (
            "netzwerkschnittstelle" | "netzwerkadapter",
            "gesendete pakete/s" | "gesendete pakete/sek." | "pakete gesendet/s",
        ) => Kind::Sent,
        ("hyper-v virtual switch", "packets/sec")
        | ("hyper-v, virtueller switch" | "virtueller hyper-v-switch", "pakete/s" | "pakete/sek.") => {
            Kind::Switch
        }
        ("processor" | "processor information", "% dpc time")
        | ("prozessor" | "prozessorinformationen", "% dpc-zeit" | "dpc-zeit (%)") => Kind::DpcTime,
        ("processor" | "processor information", "% interrupt time")
        | ("prozessor" | "prozessorinformationen", "% interruptzeit" | "interruptzeit (%)") => {
            Kind::InterruptTime
        }
        _ => Kind::Other,
    }
}

/// A counter with its values, one for each time; `None` where there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Which counter.
    pub counter: Counter,
    /// Its values.
    pub values: Vec<Option<f64>>,
}

impl Series {
    /// The mean of its values; `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        mean(self.values.iter().flatten().copied())
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// What a file of counters came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// The times of the samples in the machine's own time zone; `None` where a time cannot be read.
    pub times: Vec<Option<DateTime>>,
    /// Minutes to add to a local time for UTC, where the file says so.
    pub bias: Option<i32>,
    /// The counters.
    pub series: Vec<Series>,
    /// Whether that is all.
    pub completeness: Completeness,
    /// What was wrong, by line.
    pub problems: Vec<Problem>,
}

/// Values are kept up to this number; a file with more was not made to be looked at.
const MAX_VALUES: usize = 4_000_000;

/// Reads either form. Never fails: what was wrong is in the result, with `path` as its place.
pub fn parse(mut reader: impl BufRead, path: &str) -> Counters {
    let head = reader.fill_buf().unwrap_or_default();
    let start = head.trim_ascii_start();
    let start = start
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(start)
        .trim_ascii_start();
    if start.starts_with(b"\"(PDH-") || start.starts_with(b"(PDH-") {
        csv::parse(reader, path)
    } else {
        text::parse(reader, path)
    }
}

/// True if a file that begins so, decompressed, holds counters: the header of CSV, or the headings or a path of
/// `Get-Counter`.
pub fn recognise(head: &[u8]) -> bool {
    // In UTF-16 every other byte is 0; what is looked for is ASCII.
    let text: Vec<u8> = head.iter().copied().filter(|byte| *byte != 0).collect();
    let text = String::from_utf8_lossy(&text);
    let start = text
        .trim_start_matches('\u{feff}')
        .trim_start_matches('\u{fffd}')
        .trim_start();
    let csv = start.starts_with("\"(PDH-") || start.starts_with("(PDH-");
    let path = |line: &str| line.trim_end().ends_with(" :") && line.contains("\\\\");
    csv || start
        .lines()
        .any(|line| path(line) || line.contains("CounterSamples"))
}

/// A number with whatever decimal point: PDH writes no signs between thousands, so a sign that stands once is the
/// decimal point, and one that stands more often is not.
fn number(text: &str) -> Option<f64> {
    let text: String = text
        .chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '\'' | '\u{2019}'))
        .collect();
    let decimal = text.rfind([',', '.']).filter(|at| {
        let sign = text.get(*at..=*at).unwrap_or_default();
        text.matches(sign).count() == 1
    });
    let plain: String = text
        .char_indices()
        .filter_map(|(at, c)| match c {
            ',' | '.' => (Some(at) == decimal).then_some('.'),
            other => Some(other),
        })
        .collect();
    // "inf" and "nan" would be read as numbers.
    let digits = plain
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    plain
        .parse::<f64>()
        .ok()
        .filter(|value| digits && value.is_finite())
}

/// An adapter's description as counters write it, so that descriptions and instances can be compared.
pub fn adapter_key(description: &str) -> String {
    let mut out: String = description
        .trim()
        .chars()
        .map(|c| match c {
            '#' | '/' | '\\' => '_',
            '(' => '[',
            ')' => ']',
            other => other.to_ascii_lowercase(),
        })
        .collect();
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests;
