//! What is remembered of a packet that came again, and what its sightings say at the end.

use super::{
    super::{FlowKey, Identity, Packet, Place, Point, Strength, Tcp},
    Limits,
    points::Points,
};

/// So many times of sightings at one point are kept: enough to see up to 21 copies of one packet go round three times.
const TIMES: usize = 64;

/// A packet that came again.
pub(super) struct Track {
    identity: Identity,
    flow: FlowKey,
    tcp: Option<Tcp>,
    length: u32,
    sightings: u64,
    first: Option<i64>,
    last: Option<i64>,
    points: Points<12>,
    /// Of the first point: the times, and what the time to live did.
    times: Vec<i64>,
    ttl: Ttl,
}

/// What the time to live of one packet did at one point.
#[derive(Clone, Copy, Debug, Default)]
struct Ttl {
    first: u8,
    last: u8,
    sightings: u32,
    /// Which values were seen.
    values: [u64; 4],
}

impl Ttl {
    fn see(&mut self, ttl: u8) {
        if self.sightings == 0 {
            self.first = ttl;
        }
        self.last = ttl;
        self.sightings = self.sightings.saturating_add(1);
        if let Some(word) = self.values.get_mut(usize::from(ttl >> 6)) {
            *word |= 1 << (ttl & 63);
        }
    }

    fn different(&self) -> u32 {
        self.values.iter().map(|word| word.count_ones()).sum()
    }
}

/// How the sightings of one packet follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rhythm {
    /// One after another without growing gaps.
    Steady,
    /// Each gap is longer than the one before, as a sender's that tries again.
    BackOff,
    /// There are no times, or they do not go forward.
    Untimed,
}

/// A packet that was seen again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    /// Its flow.
    pub flow: FlowKey,
    /// Its TCP header.
    pub tcp: Option<Tcp>,
    /// Its length on the wire.
    pub length: u32,
    /// Which packet.
    pub identity: Identity,
    /// Sightings at all points together.
    pub sightings: u64,
    /// Turns: sightings at the point that saw it most often.
    pub turns: u64,
    /// When it was seen first and last. The very first sighting is not in it: nobody knew yet that it would come again.
    pub first: Option<i64>,
    /// See `first`.
    pub last: Option<i64>,
    /// How long one turn of one copy takes, in nanoseconds.
    pub period: Option<i64>,
    /// How many copies of it circulate.
    pub copies: u32,
    /// False if there may be more of them.
    pub copies_exact: bool,
    /// Time to live at the first and at the last sighting, where it is known.
    pub ttl: Option<(u8, u8)>,
    /// True if the time to live falls from turn to turn: then it is one packet, whatever it was told apart by.
    pub ttl_falls: bool,
    /// Where it was seen, and how often, in the order of a turn as far as that can be told.
    pub points: Vec<(Point, u64)>,
    pub(super) rhythm: Rhythm,
}

impl Track {
    /// A packet at its second sighting.
    pub(super) fn new(packet: &Packet) -> Self {
        let mut track = Self {
            identity: packet.identity,
            flow: packet.flow,
            tcp: packet.tcp,
            length: packet.length,
            sightings: 1,
            first: packet.time,
            last: packet.time,
            points: Points::default(),
            times: Vec::new(),
            ttl: Ttl::default(),
        };
        track.see(packet);
        track
    }

    pub(super) fn see(&mut self, packet: &Packet) {
        self.sightings += 1;
        self.last = self.last.max(packet.time);
        if let Some((0, count)) = self.points.see(packet.point) {
            if let Some(ttl) = packet.ttl {
                self.ttl.see(ttl);
            }
            // Most packets that come again are seen twice and never more: they get no list.
            if count > 2
                && self.times.len() < TIMES
                && let Some(time) = packet.time
            {
                self.times.push(time);
            }
        }
    }

    pub(super) fn finish(&self, limits: &Limits) -> Repeat {
        let turns = self.points.most();
        let (copies, period, exact) = copies(&self.times);
        let falls = self.ttl.different() >= limits.turns && self.ttl.last < self.ttl.first;
        // While the time to live falls, each copy passes each value once.
        let (copies, exact) = if falls {
            (self.ttl.sightings.div_ceil(self.ttl.different()), true)
        } else {
            (copies, exact)
        };
        Repeat {
            flow: self.flow,
            tcp: self.tcp,
            length: self.length,
            identity: self.identity,
            sightings: self.sightings,
            turns,
            first: self.first,
            last: self.last,
            period,
            copies,
            copies_exact: exact,
            ttl: (self.ttl.sightings > 0).then_some((self.ttl.first, self.ttl.last)),
            ttl_falls: falls,
            points: in_order(self.points.list().collect()),
            rhythm: rhythm(&self.times),
        }
    }

    pub(super) fn turns(&self) -> u64 {
        self.points.most()
    }

    /// How many turns it takes until a packet is taken for one that circulates.
    pub(super) fn needed(&self, limits: &Limits) -> u64 {
        let needed = if self.identity.strength == Strength::Text {
            limits.turns
        } else if self
            .points
            .list()
            .any(|(point, _)| point.place == Place::Somewhere && point.direction != Direction::Unknown)
        {
            // Linux cooked: all interfaces of the machine, not told apart.
            limits.turns_of_mixed_points
        } else {
            limits.turns_of_bytes
        };
        needed.into()
    }
}

use super::super::Direction;

/// Turns the list so that it begins where the packet came in: at a point inwards that follows one outwards.
fn in_order(mut points: Vec<(Point, u64)>) -> Vec<(Point, u64)> {
    let direction = |index: usize| points.get(index).map(|(point, _)| point.direction);
    let begin = (0..points.len()).find(|index| {
        let before = index.checked_sub(1).unwrap_or(points.len() - 1);
        direction(*index) == Some(Direction::In) && direction(before) == Some(Direction::Out)
    });
    points.rotate_left(begin.unwrap_or(0));
    points
}

/// How many copies pass one point in turn, how long a turn takes, and whether that is sure.
///
/// Copies keep their order, so that with k of them the time between a sighting and the k-th after it is one turn, and
/// hardly changes, while the times between neighbours do. The k that changes least is the answer. Copies that follow
/// each other evenly look like one copy that is faster: that cannot be told.
fn copies(times: &[i64]) -> (u32, Option<i64>, bool) {
    /// Gaps that change by less show no pattern that could be looked for.
    const EVEN: f64 = 0.05;
    /// A turn changes by less.
    const SMALL: f64 = 0.15;
    /// Gaps that change by more, and show no pattern, are no single packet's.
    const UNEVEN: f64 = 0.35;
    // Fewer than a dozen sightings show no pattern.
    if times.len() < 12 {
        return (1, mean_gap(times), false);
    }
    let at_most = times.len() / 3;
    let changes: Vec<(u32, i64, f64)> = (1..)
        .zip(1..=at_most)
        .filter_map(|(copies, lag)| {
            let later = times.get(lag..)?;
            let gaps = times.iter().zip(later).map(|(a, b)| b.saturating_sub(*a));
            let (middle, change) = change(gaps.collect())?;
            Some((copies, middle, change))
        })
        .collect();
    let Some(&(1, turn, of_one)) = changes.first() else {
        return (1, mean_gap(times), false);
    };
    if of_one <= EVEN {
        return (1, Some(turn), true);
    }
    // Sums of k gaps by chance change less by the root of k: a turn must change far less than that.
    let turns = || {
        changes.iter().skip(1).filter(|(copies, _, change)| {
            *change <= SMALL && *change <= of_one / f64::from(*copies).sqrt() / 3.0
        })
    };
    let least = turns()
        .map(|(_, _, change)| *change)
        .fold(f64::INFINITY, f64::min);
    match turns().find(|(_, _, change)| *change <= least * 2.0 + 0.005) {
        Some(&(copies, turn, _)) => (copies, Some(turn), true),
        None => (1, mean_gap(times), of_one <= UNEVEN),
    }
}

fn mean_gap(times: &[i64]) -> Option<i64> {
    let gaps = i64::try_from(times.len()).ok()? - 1;
    let span = times.last()?.checked_sub(*times.first()?)?;
    (gaps > 0 && span > 0).then(|| span / gaps)
}

/// The median, and how far the gaps lie from it on average, as a share of the mean gap.
fn change(mut gaps: Vec<i64>) -> Option<(i64, f64)> {
    gaps.sort_unstable();
    let middle = gaps.get(gaps.len() / 2).copied()?;
    let sum: i64 = gaps.iter().fold(0, |sum, gap| sum.saturating_add(*gap));
    let away = gaps.iter().fold(0_i64, |sum, gap| {
        sum.saturating_add((*gap).saturating_sub(middle).saturating_abs())
    });
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = away as f64 / sum as f64;
    (middle > 0 && sum > 0).then_some((middle, ratio))
}

fn rhythm(times: &[i64]) -> Rhythm {
    let gaps: Vec<i64> = times
        .windows(2)
        .filter_map(|pair| pair.last()?.checked_sub(*pair.first()?))
        .collect();
    if gaps.is_empty() || gaps.iter().sum::<i64>() <= 0 {
        return Rhythm::Untimed;
    }
    let growing = gaps.windows(2).filter(|pair| match pair {
        [before, after] => *after >= before.saturating_add(before / 2),
        _ => false,
    });
    let pairs = gaps.len().saturating_sub(1);
    if pairs >= 2 && growing.count() * 4 >= pairs * 3 {
        Rhythm::BackOff
    } else {
        Rhythm::Steady
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(gaps: &[i64], times: usize) -> Vec<i64> {
        let mut now = 1_000;
        let mut out = Vec::new();
        for gap in gaps.iter().cycle().take(times) {
            now += gap;
            out.push(now);
        }
        out
    }

    #[test]
    fn copies_are_counted_by_the_turn_that_does_not_change() {
        assert_eq!(copies(&at(&[320_000], 64)), (1, Some(320_000), true));
        assert_eq!(copies(&at(&[320_000, 330_000, 310_000], 64)).0, 1);
        assert_eq!(
            copies(&at(&[1_000, 1_000, 998_000], 64)),
            (3, Some(1_000_000), true)
        );
        assert_eq!(
            copies(&at(&[100, 900, 200, 700, 300, 800, 5_000], 64)),
            (7, Some(8_000), true)
        );
        // A few sightings were dropped.
        let mut dropped = at(&[320_000], 70);
        dropped.remove(9);
        dropped.remove(30);
        assert_eq!(copies(&dropped), (1, Some(320_000), true));
        // Gaps without a pattern are no count.
        let wild: Vec<i64> = (1..64_i64).map(|n| n * n * 7_919 % 100_003).collect();
        let mut sum = 0;
        let times: Vec<i64> = wild
            .iter()
            .map(|gap| {
                sum += gap;
                sum
            })
            .collect();
        assert!(!copies(&times).2);
        assert_eq!(copies(&[]), (1, None, false));
    }

    #[test]
    fn a_sender_that_tries_again_waits_longer_each_time() {
        assert_eq!(rhythm(&at(&[320_000], 20)), Rhythm::Steady);
        assert_eq!(rhythm(&[0, 200, 600, 1_400, 3_000, 6_200]), Rhythm::BackOff);
        assert_eq!(rhythm(&[5, 5, 5]), Rhythm::Untimed);
        assert_eq!(rhythm(&[50, 40, 30]), Rhythm::Untimed);
    }
}
