//! Packets of the node's links and interrupt time of its cores, sample by sample: cheap enough to look all the time.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sexton_core::model::{Completeness, Counter, CounterKind, Counters, Series};

/// What the kernel had counted at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    at: Instant,
    /// Received and sent packets of each link.
    links: BTreeMap<String, (u64, u64)>,
    /// Ticks of each core: in soft interrupts, in hard ones, in all.
    cores: BTreeMap<String, [u64; 3]>,
}

/// Why a sample could not be taken.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct MeterError {
    path: PathBuf,
    source: io::Error,
}

/// The last few samples of a node.
#[derive(Debug)]
pub struct Meter {
    proc: PathBuf,
    /// One more than the intervals that are told.
    keep: usize,
    samples: VecDeque<Sample>,
}

impl Meter {
    /// Reads in the procfs at `proc`, and keeps so many intervals.
    pub fn new(proc: impl Into<PathBuf>, intervals: usize) -> Self {
        Self {
            proc: proc.into(),
            keep: intervals.max(1) + 1,
            samples: VecDeque::new(),
        }
    }

    /// Looks once more.
    ///
    /// # Errors
    ///
    /// [`MeterError`] where `net/dev` or `stat` cannot be read.
    pub fn look(&mut self) -> Result<(), MeterError> {
        let read = |name: &str| {
            let path = self.proc.join(name);
            std::fs::read_to_string(&path).map_err(|source| MeterError { path, source })
        };
        let sample = Sample {
            at: Instant::now(),
            links: links(&read("net/dev")?),
            cores: cores(&read("stat")?),
        };
        if self.samples.len() == self.keep {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        Ok(())
    }

    /// Intervals that were measured and are kept.
    pub fn intervals(&self) -> usize {
        self.samples.len().saturating_sub(1)
    }

    /// What happened between the samples, a value an interval. The loopback is left out: what it sends it receives.
    pub fn counters(&self) -> Counters {
        let pairs: Vec<(&Sample, &Sample)> = self.samples.iter().zip(self.samples.iter().skip(1)).collect();
        let mut series = Vec::new();
        let Some(last) = self.samples.back() else {
            return Counters::default();
        };
        for link in last.links.keys().filter(|name| *name != "lo") {
            for (kind, name) in [
                (CounterKind::Received, "rx_packets"),
                (CounterKind::Sent, "tx_packets"),
            ] {
                let of = |sample: &Sample| {
                    let (received, sent) = *sample.links.get(link)?;
                    Some(if kind == CounterKind::Received {
                        received
                    } else {
                        sent
                    })
                };
                let values = pairs.iter().map(|(a, b)| rate(of(a)?, of(b)?, b.at - a.at));
                series.push(Series {
                    counter: counter("link", link, name, kind),
                    values: values.collect(),
                });
            }
        }
        for core in last.cores.keys() {
            for (kind, name, place) in [
                (CounterKind::DpcTime, "softirq", 0),
                (CounterKind::InterruptTime, "irq", 1),
            ] {
                let values = pairs.iter().map(|(a, b)| {
                    let (a, b) = (a.cores.get(core)?, b.cores.get(core)?);
                    share(b[place].checked_sub(a[place])?, b[2].checked_sub(a[2])?)
                });
                series.push(Series {
                    counter: counter("cpu", core, name, kind),
                    values: values.collect(),
                });
            }
        }
        Counters {
            times: vec![None; pairs.len()],
            bias: None,
            series,
            completeness: Completeness::Complete,
            problems: Vec::new(),
        }
    }
}

fn counter(object: &str, instance: &str, name: &str, kind: CounterKind) -> Counter {
    Counter {
        host: None,
        object: object.to_owned(),
        instance: Some(instance.to_owned()),
        name: name.to_owned(),
        kind,
    }
}

/// Packets a second. A link that came anew counts from 0: then there is none.
#[allow(clippy::cast_precision_loss, reason = "counts of packets stay far below 2^52")]
fn rate(before: u64, after: u64, span: Duration) -> Option<f64> {
    let packets = after.checked_sub(before)?;
    (!span.is_zero()).then(|| packets as f64 / span.as_secs_f64())
}

/// Percent; none where no tick passed.
#[allow(clippy::cast_precision_loss, reason = "counts of ticks stay far below 2^52")]
fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 * 100.0 / all as f64)
}

/// `/proc/net/dev` (proc(5)): after the name, eight numbers of receiving and eight of sending, each with bytes before packets.
fn links(text: &str) -> BTreeMap<String, (u64, u64)> {
    let line = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let mut numbers = numbers.split_whitespace().map(str::parse::<u64>);
        let received = numbers.nth(1)?.ok()?;
        let sent = numbers.nth(7)?.ok()?;
        Some((name.trim().to_owned(), (received, sent)))
    };
    text.lines().filter_map(line).collect()
}

/// The lines `cpu0` and on of `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal and two that are parts of the first.
fn cores(text: &str) -> BTreeMap<String, [u64; 3]> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let core = words.next()?.strip_prefix("cpu").filter(|n| !n.is_empty())?;
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let (irq, soft) = (*ticks.get(5)?, *ticks.get(6)?);
        // As wide as the widest, so that they stand in their order.
        Some((format!("{core:0>3}"), [soft, irq, ticks.iter().sum()]))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       2    0    0    0     0          0         0      100       2    0    0    0     0       0          0
  eth0: 9000000  150000    0    0    0     0          0         0     7000     70    0    0    0     0       0          0
   vf0:9      1    0    0    0     0          0         0 9000000  149000    0    0    0     0       0          0
";
    const STAT: &str = "cpu  10 0 10 170 0 2 8 0 0 0
cpu0 5 0 5 82 0 1 7 0 0 0
cpu11 5 0 5 88 0 1 1 0 0 0
intr 1234
";

    #[test]
    fn links_and_cores_are_read_as_the_kernel_prints_them() {
        let all = BTreeMap::from([
            ("lo".to_owned(), (2, 2)),
            ("eth0".to_owned(), (150_000, 70)),
            ("vf0".to_owned(), (1, 149_000)),
        ]);
        assert_eq!(links(DEV), all);
        let all = BTreeMap::from([("000".to_owned(), [7, 1, 100]), ("011".to_owned(), [1, 1, 100])]);
        assert_eq!(cores(STAT), all);
        assert_eq!(links("nothing: 1 2"), BTreeMap::new());
        assert_eq!(cores("cpu0 1 2 x"), BTreeMap::new());
    }

    fn sample(at: Instant, received: u64, soft: u64) -> Sample {
        Sample {
            at,
            links: BTreeMap::from([("eth0".to_owned(), (received, 0)), ("lo".to_owned(), (1, 1))]),
            cores: BTreeMap::from([("000".to_owned(), [soft, 0, soft + 10])]),
        }
    }

    #[test]
    fn values_are_those_between_two_looks() {
        let start = Instant::now();
        let mut meter = Meter::new("/proc", 2);
        assert_eq!(meter.counters(), Counters::default());
        let second = Duration::from_secs(1);
        meter.samples.extend([
            sample(start, 1_000, 0),
            sample(start + second, 3_000, 30),
            // It was made anew.
            sample(start + second * 2, 5, 30),
        ]);
        let seen: Vec<(String, Vec<Option<f64>>)> = meter
            .counters()
            .series
            .into_iter()
            .map(|s| (s.counter.name, s.values))
            .collect();
        let expected = [
            ("rx_packets", vec![Some(2_000.0), None]),
            ("tx_packets", vec![Some(0.0), Some(0.0)]),
            ("softirq", vec![Some(100.0), None]),
            ("irq", vec![Some(0.0), None]),
        ];
        assert_eq!(seen, expected.map(|(name, values)| (name.to_owned(), values)));
        assert_eq!(meter.intervals(), 2);
    }

    #[test]
    fn only_the_last_intervals_are_kept() {
        let mut meter = Meter::new("/proc", 3);
        for _ in 0..6 {
            meter.look().unwrap();
        }
        assert_eq!(meter.intervals(), 3);
        assert!(meter.counters().series.iter().all(|s| s.values.len() == 3));
        let absent = Meter::new("/nowhere", 1).look().unwrap_err();
        assert_eq!(absent.to_string(), "cannot read /nowhere/net/dev");
    }
}
