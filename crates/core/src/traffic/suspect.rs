//! What counters alone say about a loop: a suspicion at most.

use serde::Serialize;

use crate::{
    finding::{Evidence, Verdict},
    model::{CounterKind as Kind, Counters, Series, adapter_key, mean},
};

/// When counters are suspicious.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Packets a second that must be exceeded.
    pub rate: f64,
    /// How far received and sent may be apart, as a share of the greater.
    pub within: f64,
    /// A core is busy from this share of its time in interrupts on, in percent.
    pub busy: f64,
    /// A core is idle up to this share, in percent.
    pub idle: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            rate: 5_000.0,
            within: 0.10,
            busy: 15.0,
            idle: 1.0,
        }
    }
}

/// Two adapters, of which one sends what the other receives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The adapter that receives.
    pub receiver: String,
    /// The adapter that sends.
    pub sender: String,
    /// Packets a second that come in, over the samples where both agree.
    pub received: f64,
    /// Packets a second that go out.
    pub sent: f64,
    /// Samples where both agree.
    pub samples: usize,
    /// Samples where both have a value.
    pub of: usize,
    /// True if it goes the other way at such a rate too, as a gateway's traffic does.
    pub both_ways: bool,
}

/// A core's time in deferred calls and interrupts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Core {
    /// Its name: `0,2`.
    pub name: String,
    /// Percent of its time, the mean over the samples.
    pub percent: f64,
}

/// What counters say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspicion {
    /// [`Verdict::Suspected`], never more; [`Verdict::Unknown`] if counters are missing; `None` if nothing is suspicious.
    pub verdict: Option<Verdict>,
    /// The pairs that are suspicious, the busiest first.
    pub pairs: Vec<Pair>,
    /// Packets a second of the busiest virtual switch.
    pub switch: Option<f64>,
    /// Cores, in their order.
    pub cores: Vec<Core>,
    /// True if some cores are busy with interrupts while others have none; `None` without counters of cores.
    pub one_sided: Option<bool>,
    /// What was lacking.
    pub lacks: Vec<String>,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
}

/// Looks at counters.
pub fn suspect(counters: &Counters, thresholds: &Thresholds) -> Suspicion {
    let of = |kind| {
        let series = counters
            .series
            .iter()
            .filter(move |s| s.counter.kind == kind && !s.counter.is_total());
        series.collect::<Vec<_>>()
    };
    let (received, sent) = (of(Kind::Received), of(Kind::Sent));
    let mut pairs: Vec<Pair> = Vec::new();
    let mut compared = false;
    for receiver in &received {
        for sender in &sent {
            if same_adapter(receiver, sender) {
                continue;
            }
            compared |= receiver
                .values
                .iter()
                .zip(&sender.values)
                .any(|(a, b)| a.is_some() && b.is_some());
            if let Some(mut pair) = pair(receiver, sender, thresholds) {
                pair.both_ways = received
                    .iter()
                    .filter(|back| same_adapter(back, sender))
                    .any(|back| {
                        sent.iter()
                            .filter(|forth| same_adapter(forth, receiver))
                            .any(|forth| self::pair(back, forth, thresholds).is_some())
                    });
                pairs.push(pair);
            }
        }
    }
    pairs.sort_by(|a, b| b.received.total_cmp(&a.received));

    let mut cores = cores(&of(Kind::DpcTime));
    if cores.is_empty() {
        cores = self::cores(&of(Kind::InterruptTime));
    }
    let busy = cores
        .iter()
        .filter(|core| core.percent >= thresholds.busy)
        .count();
    let idle = cores
        .iter()
        .filter(|core| core.percent <= thresholds.idle)
        .count();
    let one_sided = (cores.len() > 1).then_some(busy > 0 && idle * 4 >= cores.len());

    let mut lacks = Vec::new();
    if !compared && let Some(strange) = unknown_language(counters) {
        lacks.push(format!(
            "counters by English or German names; these are in another language: {strange}"
        ));
    }
    if !compared {
        lacks.push("packets received by one adapter and sent by another, in the same samples".to_owned());
    }
    if cores.len() < 2 {
        lacks.push("time in deferred calls or interrupts of single cores".to_owned());
    }
    let verdict = if !pairs.is_empty() {
        Some(Verdict::Suspected)
    } else if compared {
        None
    } else {
        Some(Verdict::Unknown)
    };
    let switch = of(Kind::Switch)
        .iter()
        .filter_map(|series| series.mean())
        .max_by(f64::total_cmp);
    let mut out = Suspicion {
        verdict,
        pairs,
        switch,
        cores,
        one_sided,
        lacks,
        evidence: Vec::new(),
    };
    out.evidence = out.evidence(&received, &sent);
    out
}

/// A counter's path, if none of the file's counters has a name that is known.
fn unknown_language(counters: &Counters) -> Option<String> {
    let known = |series: &Series| {
        series.counter.kind != Kind::Other
            || series.counter.name.is_ascii() && series.counter.object.is_ascii()
    };
    let first = counters.series.first()?;
    let strange = counters
        .series
        .iter()
        .find(|series| !known(series))
        .unwrap_or(first);
    let none_known = !counters
        .series
        .iter()
        .any(|series| series.counter.kind != Kind::Other);
    (none_known && !known(strange)).then(|| format!("{}\\{}", strange.counter.object, strange.counter.name))
}

fn name(series: &Series) -> &str {
    series.counter.instance.as_deref().unwrap_or_default()
}

fn same_adapter(a: &Series, b: &Series) -> bool {
    adapter_key(name(a)) == adapter_key(name(b))
        && a.counter.host.as_deref().map(str::to_lowercase)
            == b.counter.host.as_deref().map(str::to_lowercase)
}

/// A pair is suspicious if it is so in most samples: one sample may be a coincidence, and so may a single one of many.
fn pair(receiver: &Series, sender: &Series, thresholds: &Thresholds) -> Option<Pair> {
    let both = receiver
        .values
        .iter()
        .zip(&sender.values)
        .filter_map(|(a, b)| a.zip(*b));
    let mut of = 0;
    let agreeing: Vec<(f64, f64)> = both
        .inspect(|_| of += 1)
        .filter(|(a, b)| {
            let most = a.max(*b);
            a.min(*b) > thresholds.rate && (a - b).abs() <= thresholds.within * most
        })
        .collect();
    if agreeing.is_empty() || agreeing.len() * 2 <= of {
        return None;
    }
    Some(Pair {
        receiver: name(receiver).to_owned(),
        sender: name(sender).to_owned(),
        received: mean(agreeing.iter().map(|(a, _)| *a))?,
        sent: mean(agreeing.iter().map(|(_, b)| *b))?,
        samples: agreeing.len(),
        of,
        both_ways: false,
    })
}

fn cores(series: &[&Series]) -> Vec<Core> {
    let core = |series: &&Series| {
        Some(Core {
            name: series.counter.instance.clone()?,
            percent: series.mean()?,
        })
    };
    series.iter().filter_map(core).collect()
}

impl Suspicion {
    fn evidence(&self, received: &[&Series], sent: &[&Series]) -> Vec<Evidence> {
        let mut out = Vec::new();
        let mut say = |text: String| out.push(Evidence::new("counters", text));
        for pair in &self.pairs {
            let ways = if pair.both_ways {
                "; as much goes the other way, as through a gateway"
            } else {
                ""
            };
            say(format!(
                "{} receives {:.0} packets a second and {} sends {:.0}, in {} of {} samples{ways}",
                pair.receiver, pair.received, pair.sender, pair.sent, pair.samples, pair.of
            ));
        }
        if self.pairs.is_empty() {
            let most = |series: &[&Series]| series.iter().filter_map(|s| s.mean()).max_by(f64::total_cmp);
            if let Some((received, sent)) = most(received).zip(most(sent)) {
                say(format!(
                    "no adapter receives more than {received:.0} or sends more than {sent:.0} packets a second on average, and no two of them match at a high rate"
                ));
            }
        }
        if let Some(switch) = self.switch {
            say(format!("the virtual switch carries {switch:.0} packets a second"));
        }
        if !self.cores.is_empty() {
            let list: Vec<_> = self
                .cores
                .iter()
                .map(|core| format!("{} {:.1} %", core.name, core.percent))
                .collect();
            let sided = match self.one_sided {
                Some(true) => ": some cores are busy and others have none",
                _ => "",
            };
            say(format!("time in interrupts by core: {}{sided}", list.join(", ")));
        }
        out
    }
}
