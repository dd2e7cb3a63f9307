//! From repeated packets to a verdict on their destination.

use std::net::IpAddr;

use crate::{
    finding::{Evidence, Verdict},
    model::{Destination, Flow, FlowKey, LookAlike, Point, Repeat, Rhythm, Strength, Way, flags_text, rate},
    roster::{Residence, Standing},
};

/// A packet that comes more seldom than this, and that only its words tell apart, is no loop: senders try again after
/// 200 ms.
const SLOW_NS: i64 = 100_000_000;

impl Destination {
    /// From the packets that came again and again, and all flows of the capture. `followed`: all of those packets are known.
    pub fn new(address: IpAddr, mut repeats: Vec<Repeat>, all: &[Flow], followed: bool) -> Self {
        repeats.sort_by(|a, b| b.turns.cmp(&a.turns).then(a.identity.hash.cmp(&b.identity.hash)));
        let mut keys: Vec<FlowKey> = repeats.iter().map(|repeat| repeat.flow).collect();
        keys.sort_unstable();
        keys.dedup();
        let flows: Vec<Flow> = all
            .iter()
            .filter(|flow| keys.binary_search(&flow.key).is_ok())
            .cloned()
            .collect();
        let packets = flows.iter().map(|flow| flow.packets).sum();
        let first = flows.iter().filter_map(|flow| flow.first).min();
        let last = flows.iter().filter_map(|flow| flow.last).max();
        let sent = all
            .iter()
            .filter(|flow| flow.key.source == address)
            .map(|flow| flow.packets)
            .sum();
        let whole = repeats
            .iter()
            .map(path)
            .find(|(enters, leaves)| enters.is_some() && leaves.is_some());
        let (enters, leaves) = whole.or_else(|| repeats.first().map(path)).unwrap_or_default();
        let mut periods: Vec<i64> = repeats.iter().filter_map(|repeat| repeat.period).collect();
        periods.sort_unstable();
        let known: Vec<bool> = repeats
            .iter()
            .filter(|r| r.ttl.is_some())
            .map(|r| r.ttl_falls)
            .collect();
        let mut out = Self {
            address,
            packets,
            turns: repeats.iter().map(|repeat| repeat.turns).sum(),
            rate: rate(packets, first, last),
            circulating: repeats.iter().map(|repeat| u64::from(repeat.copies)).sum(),
            circulating_exact: followed && repeats.iter().all(|repeat| repeat.copies_exact),
            period: periods.get(periods.len() / 2).copied(),
            ttl_falls: (!known.is_empty())
                .then(|| known.iter().filter(|falls| **falls).count() * 2 > known.len()),
            enters,
            leaves,
            sent,
            look_alike: None,
            lacks: Vec::new(),
            repeats,
            flows,
        };
        out.look_alike = out.look_alike();
        out.lacks = out.lacks();
        out
    }

    /// What the address itself sent is little enough to be old packets of its own.
    const fn silent(&self) -> bool {
        self.sent * 100 <= self.packets
    }

    fn look_alike(&self) -> Option<LookAlike> {
        let group = match self.address {
            IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_multicast(),
        };
        if group {
            return Some(LookAlike::Multicast);
        }
        // A packet with an IP ID, and one whose time to live falls, is sent once: only a loop brings it back.
        if self
            .repeats
            .iter()
            .any(|r| r.ttl_falls || r.identity.strength == Strength::Full)
        {
            return None;
        }
        let slow = |repeat: &Repeat| {
            repeat.rhythm == Rhythm::BackOff || repeat.period.is_some_and(|period| period > SLOW_NS)
        };
        if self.repeats.iter().all(slow) {
            return Some(LookAlike::Retransmission);
        }
        if !self.silent() {
            return Some(LookAlike::Answered);
        }
        let tcp = self.repeats.iter().any(|repeat| repeat.flow.protocol == 6);
        let through = self.enters.is_some() && self.leaves.is_some();
        (!tcp && !through).then_some(LookAlike::SameDatagram)
    }

    fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        let text = self.repeats.iter().all(|r| r.identity.strength == Strength::Text);
        if text && (self.enters.is_none() || self.leaves.is_none() || same_place(self.enters, self.leaves)) {
            lacks.push(
                "the component where the packets come in and the one where they go out, since text tells neither IP ID nor checksum"
                    .to_owned(),
            );
        }
        lacks
    }

    /// True if a loop explains it, and nothing else does.
    pub fn is_loop(&self) -> bool {
        self.look_alike.is_none() && self.lacks.is_empty()
    }
}

fn same_place(a: Option<Point>, b: Option<Point>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a.place == b.place)
}

/// Where a packet comes in and goes out, as far as its points tell.
fn path(repeat: &Repeat) -> (Option<Point>, Option<Point>) {
    // Points of a few sightings are those of the packet's first way, before it circulated.
    let turning = || {
        repeat
            .points
            .iter()
            .filter(|(_, count)| count * 2 >= repeat.turns)
            .map(|(point, _)| *point)
    };
    let enters = turning().find(|point| point.direction == Way::In);
    let leaves = turning().rfind(|point| point.direction == Way::Out);
    (enters, leaves)
}

/// The verdict on a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// [`Verdict::Proved`]: its packets circulate and nobody lives there. [`Verdict::Suspected`]: they seem to, and the
    /// capture lacks what would prove it. [`Verdict::Unknown`]: they circulate, and who lives there cannot be told.
    /// `None`: it is something else.
    pub verdict: Option<Verdict>,
    /// In one sentence.
    pub text: String,
    /// What was lacking for a proof.
    pub lacks: Vec<String>,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
}

/// Judges a destination, once it is known who lives there.
pub fn judge(destination: &Destination, residence: &Residence) -> Judgement {
    judge_at(destination, residence, &|point| point.to_string())
}

/// The same; `name` says where a point of the capture is.
pub fn judge_at(
    destination: &Destination,
    residence: &Residence,
    name: &dyn Fn(Point) -> String,
) -> Judgement {
    let address = destination.address;
    let mut lacks = destination.lacks.clone();
    let mut evidence = destination.evidence(name);
    evidence.extend(residence.evidence.iter().cloned());
    let say = |verdict, text, lacks| Judgement {
        verdict,
        text,
        lacks,
        evidence: evidence.clone(),
    };
    if let Some(other) = destination.look_alike {
        return say(
            None,
            format!(
                "packets for {address} repeat, and that is no proof of a loop: {}",
                other.text()
            ),
            lacks,
        );
    }
    let owner = residence
        .owner
        .as_ref()
        .map(|owner| format!("{}/{}", owner.namespace, owner.name));
    match residence.standing {
        Standing::Live => {
            let who = owner.unwrap_or_else(|| "somebody".to_owned());
            let text = format!(
                "packets for {address} circulate, but {who} lives there: a routing loop to a living address"
            );
            say(None, text, lacks)
        }
        Standing::Unknown => {
            lacks.push(
                residence
                    .lacks()
                    .unwrap_or_else(|| "who lives at the address".to_owned()),
            );
            let text = format!("packets for {address} circulate; whether anybody lives there cannot be told");
            say(Some(Verdict::Unknown), text, lacks)
        }
        Standing::Ended | Standing::Nobody if !destination.silent() => {
            lacks.push(format!(
                "to know who sends as {address}: {} packets of the capture are its own",
                destination.sent
            ));
            let text = format!("packets for {address} circulate; whether anybody lives there cannot be told");
            say(Some(Verdict::Unknown), text, lacks)
        }
        Standing::Ended | Standing::Nobody => {
            let ended = residence.owner.as_ref().and_then(|owner| owner.ended_at);
            let ended = ended.map_or_else(String::new, |at| format!(", until {at:.0} at most"));
            let who = owner.map_or_else(
                || "nobody lives there".to_owned(),
                |who| format!("nobody lives there; {who} had it last{ended}"),
            );
            let verdict = if lacks.is_empty() {
                Verdict::Proved
            } else {
                Verdict::Suspected
            };
            let text = format!("packets for {address} circulate, and {who}");
            say(Some(verdict), text, lacks)
        }
    }
}

impl Destination {
    /// What the capture shows, in sentences.
    fn evidence(&self, name: &dyn Fn(Point) -> String) -> Vec<Evidence> {
        let mut out = Vec::new();
        let mut say = |text: String| out.push(Evidence::new("capture", text));
        let rate = self
            .rate
            .map_or_else(String::new, |rate| format!(", {rate:.0} a second"));
        say(format!(
            "{} packets in {} flows to {}{rate}",
            self.packets,
            self.flows.len(),
            self.address
        ));
        let least = if self.circulating_exact { "" } else { "at least " };
        let period = self.period.map_or_else(String::new, |period| {
            #[expect(clippy::cast_precision_loss, reason = "for reading")]
            let micro = period as f64 / 1000.0;
            format!("; one turn takes {micro:.1} µs")
        });
        say(format!(
            "{least}{} packets go round, {} turns in all{period}",
            self.circulating, self.turns
        ));
        if let Some(repeat) = self.repeats.first() {
            let flags = repeat.tcp.and_then(|tcp| tcp.flags);
            let flags = flags.map_or_else(String::new, |flags| format!(" [{}]", flags_text(flags)));
            let seq = repeat
                .tcp
                .map_or_else(String::new, |tcp| format!(" seq {} ack {}", tcp.seq, tcp.ack));
            say(format!(
                "the very same packet {} times: {}{flags}{seq}",
                repeat.turns, repeat.flow
            ));
        }
        match (self.ttl_falls, self.repeats.iter().find_map(|repeat| repeat.ttl)) {
            (Some(true), Some((first, last))) => {
                say(format!("the time to live falls, from {first} to {last}"))
            }
            (Some(false), Some((first, _))) => say(format!("the time to live stays {first}")),
            _ => say("the capture does not show the time to live".to_owned()),
        }
        match (self.enters.map(name), self.leaves.map(name)) {
            (Some(enters), Some(leaves)) => say(format!("they come in at {enters} and go out at {leaves}")),
            (Some(enters), None) => say(format!(
                "they come in at {enters}; where they go out was not captured"
            )),
            (None, Some(leaves)) => say(format!(
                "they go out at {leaves}; where they come in was not captured"
            )),
            (None, None) => {}
        }
        out
    }
}
