//! Performance counters, as far as a loop shows in them.

use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};

use super::{Completeness, Problem};

/// What a counter measures, as far as a loop shows in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CounterKind {
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub kind: CounterKind,
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
fn kind(object: &str, name: &str) -> CounterKind {
    let (object, name) = (object.to_lowercase(), name.to_lowercase());
    match (object.as_str(), name.as_str()) {
        ("network interface" | "network adapter", "packets received/sec")
        | (
            "netzwerkschnittstelle" | "netzwerkadapter",
            "empfangene pakete/s" | "empfangene pakete/sek." | "pakete empfangen/s",
        ) => CounterKind::Received,
        ("network interface" | "network adapter", "packets sent/sec")
        | (
            "netzwerkschnittstelle" | "netzwerkadapter",
            "gesendete pakete/s" | "gesendete pakete/sek." | "pakete gesendet/s",
        ) => CounterKind::Sent,
        ("hyper-v virtual switch", "packets/sec")
        | ("hyper-v, virtueller switch" | "virtueller hyper-v-switch", "pakete/s" | "pakete/sek.") => {
            CounterKind::Switch
        }
        ("processor" | "processor information", "% dpc time")
        | ("prozessor" | "prozessorinformationen", "% dpc-zeit" | "dpc-zeit (%)") => CounterKind::DpcTime,
        ("processor" | "processor information", "% interrupt time")
        | ("prozessor" | "prozessorinformationen", "% interruptzeit" | "interruptzeit (%)") => {
            CounterKind::InterruptTime
        }
        _ => CounterKind::Other,
    }
}

/// A counter with its values, one for each time; `None` where there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// What a file of counters came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// Counters of one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterFile {
    /// The file.
    pub path: String,
    /// What it holds.
    pub counters: Counters,
}
