//! What is remembered of a packet that came again, and what its sightings say at the end.

use sexton_core::model::{Repeat, Rhythm};

use super::{
    super::{FlowKey, Identity, Packet, Place, Point, Strength, Tcp},
    Limits,
    points::Points,
};

/// So many times of sightings at one point are kept, and so many copies of one packet can be told: each goes round four
/// times in that.
const TIMES: usize = 128;
const MAX_COPIES: usize = 31;

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

    /// One more sighting. True if there were enough that it is worth to follow it in the order of all.
    pub(super) fn see(&mut self, packet: &Packet) -> bool {
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
        // More than what a capture of a few interfaces has of each packet.
        self.sightings > 8
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
/// hardly changes, while the times between neighbours do. Sums of more gaps change less by chance, by the root of their
/// number; the answer is the smallest k that no larger one beats by more than that. Copies that follow each other evenly
/// look like one copy that is faster: that cannot be told, and neither can gaps that the clock hardly resolves.
fn copies(times: &[i64]) -> (u32, Option<i64>, bool) {
    /// Gaps that change by less show no pattern that could be looked for.
    const EVEN: f64 = 0.05;
    /// A turn changes by less.
    const SMALL: f64 = 0.15;
    /// Gaps that change by more, and show no pattern, are no single packet's.
    const UNEVEN: f64 = 0.35;
    /// A turn that changes by less needs no comparison.
    const EXACT: f64 = 0.005;
    /// Better than by chance.
    const BETTER: f64 = 2.5;
    // Fewer than a dozen sightings show no pattern.
    let whole = |unit: i64| times.iter().all(|time| time % unit == 0);
    let resolution = [1_000, 100].into_iter().find(|unit| whole(*unit)).unwrap_or(1);
    let times = without_pauses(times);
    if times.len() < 12 {
        return (1, mean_gap(&times), false);
    }
    let at_most = MAX_COPIES.min(times.len() / 3);
    let changes: Vec<(u32, i64, f64)> = (1..)
        .zip(1..=at_most)
        .filter_map(|(copies, lag)| {
            let later = times.get(lag..)?;
            let gaps = times.iter().zip(later).map(|(a, b)| b.saturating_sub(*a));
            let (middle, change) = change(gaps.collect())?;
            #[expect(clippy::cast_precision_loss, reason = "a ratio")]
            let blur = resolution as f64 / middle as f64 / 2.0;
            Some((copies, middle, change.max(blur)))
        })
        .collect();
    let Some(&(1, turn, of_one)) = changes.first() else {
        return (1, mean_gap(&times), false);
    };
    let resolved = mean_gap(&times).is_some_and(|gap| gap >= 3 * resolution);
    if of_one <= EVEN {
        return (1, Some(turn), resolved);
    }
    // What a sum of gaps changes by chance, if a sum of fewer changes so much.
    let by_chance = |fewer: u32, change: f64, more: u32| change * (f64::from(fewer) / f64::from(more)).sqrt();
    let found = changes.iter().enumerate().find(|(at, (copies, _, change))| {
        let small = if *copies == 1 {
            *change <= UNEVEN
        } else {
            *change <= SMALL && *change <= by_chance(1, of_one, *copies) / BETTER
        };
        let larger = changes.get(at + 1..).unwrap_or_default();
        small
            && (*change <= EXACT
                || larger
                    .iter()
                    .all(|(more, _, other)| *other >= by_chance(*copies, *change, *more) / BETTER))
    });
    match found {
        Some((_, &(copies, turn, _))) => (copies, Some(turn), resolved),
        None => (1, mean_gap(&times), false),
    }
}

/// The times without a few long pauses, in which the machine did something else: three gaps that are far longer than the
/// fourth longest are made as long as that. A turn's own longest gap comes at least four times.
fn without_pauses(times: &[i64]) -> Vec<i64> {
    let gap = |pair: &[i64]| {
        pair.last()
            .zip(pair.first())
            .map_or(0, |(b, a)| b.saturating_sub(*a))
    };
    let mut gaps: Vec<i64> = times.windows(2).map(gap).collect();
    let mut sorted = gaps.clone();
    sorted.sort_unstable();
    let Some(fourth) = sorted.len().checked_sub(4).and_then(|at| sorted.get(at).copied()) else {
        return times.to_vec();
    };
    let longest = fourth.saturating_mul(4);
    for gap in &mut gaps {
        if *gap > longest {
            *gap = fourth;
        }
    }
    let first = times.first().copied().unwrap_or_default();
    let mut now = first;
    let rest = gaps.into_iter().map(|gap| {
        now = now.saturating_add(gap);
        now
    });
    std::iter::once(first).chain(rest).collect()
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
            copies(&at(&[1_001, 1_000, 998_000], 128)),
            (3, Some(1_000_001), true)
        );
        assert_eq!(
            copies(&at(&[101, 900, 200, 700, 300, 800, 5_000], 128)),
            (7, Some(8_001), true)
        );
        let mut bunch = vec![501; 30];
        bunch.push(90_000);
        assert_eq!(copies(&at(&bunch, 128)).0, 31);
        // A kernel's own: two copies, microseconds, and pauses of the machine.
        let mut gaps = Vec::new();
        for n in 0..64 {
            gaps.extend([
                if n % 3 == 0 { 2_000 } else { 1_000 },
                if n % 5 == 0 { 10_000 } else { 11_000 },
            ]);
        }
        gaps[11] = 214_000;
        gaps[97] = 830_000;
        gaps[20] = 20_000;
        assert_eq!(copies(&at(&gaps, 128)).0, 2);
        // A few sightings were dropped.
        let mut dropped = at(&[320_000], 128);
        dropped.remove(9);
        dropped.remove(30);
        assert_eq!(copies(&dropped), (1, Some(320_000), true));
        // A clock that hardly resolves them.
        let coarse: Vec<i64> = (0..128_i64).map(|n| n * 8 / 5 * 1_000).collect();
        assert!(!copies(&coarse).2);
        // Gaps without a pattern are no count.
        let wild: Vec<i64> = (1..128_i64).map(|n| n * n * 7_919 % 100_003).collect();
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
