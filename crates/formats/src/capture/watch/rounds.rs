//! Counts what circulates from the order in which it passes one point.
//!
//! Packets in one queue keep their order, so the sequence of identities at a point repeats with each turn, and the length
//! of that repetition is the number of packets, or a part of it where several packets are the same. How the gaps repeat
//! tells the rest: what circulates in a bunch comes with one longer gap a turn.

use std::collections::HashMap;

use super::super::Point;

/// So many sightings are kept.
const KEPT: usize = 4096;

/// A repetition is looked for up to this length.
const LONGEST: usize = 512;

/// A sighting of a packet that was seen often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) hash: u64,
    pub(super) time: i64,
    pub(super) point: Point,
}

/// The last few thousand sightings of packets that came again and again.
#[derive(Default)]
pub(super) struct Rounds {
    before: Vec<Seen>,
    now: Vec<Seen>,
}

impl Rounds {
    pub(super) fn see(&mut self, seen: Seen) {
        if self.now.len() == KEPT {
            self.before = std::mem::take(&mut self.now);
            self.now.reserve_exact(KEPT);
        }
        self.now.push(seen);
    }

    /// The sightings, the latest full set of them.
    pub(super) fn finish(self) -> Vec<Seen> {
        if self.before.is_empty() {
            self.now
        } else {
            self.before
        }
    }
}

/// What one turn holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    /// Packets in a turn.
    pub(super) packets: usize,
    /// Nanoseconds that it takes: the median.
    pub(super) takes: i64,
    /// Copies by identity.
    pub(super) copies: HashMap<u64, u32>,
}

/// The turn of these identities; `None` where their order does not repeat, or not all were seen often enough.
pub(super) fn turn(seen: &[Seen], identities: &[u64]) -> Option<Turn> {
    let wanted: HashMap<u64, ()> = identities.iter().map(|hash| (*hash, ())).collect();
    // The point where most of them were seen.
    let mut points: HashMap<Point, usize> = HashMap::new();
    for one in seen.iter().filter(|one| wanted.contains_key(&one.hash)) {
        *points.entry(one.point).or_default() += 1;
    }
    let (point, _) = points.into_iter().max_by_key(|(point, count)| (*count, *point))?;
    let here: Vec<Seen> = seen
        .iter()
        .filter(|one| one.point == point && wanted.contains_key(&one.hash))
        .copied()
        .collect();
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for one in &here {
        *counts.entry(one.hash).or_default() += 1;
    }
    if counts.len() < wanted.len() || here.len() < 16 {
        return None;
    }
    let order = repetition(&here, counts.len())?;
    let gaps: Vec<i64> = here
        .windows(2)
        .map(|pair| {
            pair.last()
                .zip(pair.first())
                .map_or(0, |(b, a)| b.time.saturating_sub(a.time))
        })
        .collect();
    let resolution = resolution(&here);
    let mean =
        gaps.iter().fold(0_i64, |sum, gap| sum.saturating_add(*gap)) / i64::try_from(gaps.len()).ok()?.max(1);
    // One identity repeats always: then only the gaps tell, and a clock that hardly resolves them does not.
    if order == 1 && mean < 3 * resolution {
        return None;
    }
    let packets = match bunch(&gaps, resolution) {
        Some(bunch) if bunch % order == 0 => bunch,
        _ => order,
    };
    let mut takes: Vec<i64> = here
        .iter()
        .zip(here.get(packets..)?)
        .map(|(a, b)| b.time.saturating_sub(a.time))
        .collect();
    takes.sort_unstable();
    let takes = takes.get(takes.len() / 2).copied()?;
    let copies = counts.into_iter().map(|(hash, count)| {
        let copies = (count * packets + here.len() / 2) / here.len();
        (hash, u32::try_from(copies.max(1)).unwrap_or(u32::MAX))
    });
    Some(Turn {
        packets,
        takes,
        copies: copies.collect(),
    })
}

/// The shortest length after which the order repeats, but for a few places.
fn repetition(here: &[Seen], least: usize) -> Option<usize> {
    (least..=LONGEST.min(here.len() / 4)).find(|length| {
        let later = here.get(*length..).unwrap_or_default();
        let wrong = here.iter().zip(later).filter(|(a, b)| a.hash != b.hash).count();
        wrong * 20 <= later.len()
    })
}

/// How many gaps it is from one long gap to the next, if the gaps are of two kinds.
fn bunch(gaps: &[i64], resolution: i64) -> Option<usize> {
    let mut sorted: Vec<i64> = gaps.iter().map(|gap| (*gap).max(0)).collect();
    sorted.sort_unstable();
    // The greatest step between two neighbours in size, where neither kind is a handful of pauses or all of them.
    let (from, to) = (sorted.len() / 2, sorted.len() - sorted.len() / 64 - 1);
    let step = (from.max(1)..to).max_by(|a, b| {
        let step = |at: usize| ratio(sorted.get(at - 1), sorted.get(at), resolution);
        step(*a).total_cmp(&step(*b))
    })?;
    if ratio(sorted.get(step - 1), sorted.get(step), resolution) < 1.3 {
        return None;
    }
    let long = sorted.get(step).copied()?;
    let at: Vec<usize> = gaps
        .iter()
        .enumerate()
        .filter(|(_, gap)| **gap >= long)
        .map(|(at, _)| at)
        .collect();
    let mut distances: HashMap<usize, usize> = HashMap::new();
    for pair in at.windows(2) {
        if let [a, b] = pair {
            *distances.entry(b - a).or_default() += 1;
        }
    }
    let (distance, count) = distances
        .into_iter()
        .max_by_key(|(distance, count)| (*count, *distance))?;
    (count * 10 >= at.len().saturating_sub(1) * 7).then_some(distance)
}

/// How much longer one gap is than another, as far as the clock tells.
fn ratio(short: Option<&i64>, long: Option<&i64>, resolution: i64) -> f64 {
    let blur = resolution * 2;
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = |short: &i64, long: &i64| (long + blur) as f64 / (short + blur) as f64;
    short.zip(long).map_or(0.0, |(short, long)| ratio(short, long))
}

/// The clock's, in nanoseconds: captures have micro- or nanoseconds, Windows' clock a tenth of a microsecond.
fn resolution(here: &[Seen]) -> i64 {
    let whole = |unit: i64| here.iter().all(|one| one.time % unit == 0);
    [1_000, 100].into_iter().find(|unit| whole(*unit)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{Direction, Place},
        *,
    };

    const HERE: Point = Point {
        place: Place::Somewhere,
        edge: 0,
        direction: Direction::Unknown,
    };

    /// Turns of these identities, each with the gap after it.
    fn seen(turn: &[(u64, i64)], turns: usize, unit: i64) -> Vec<Seen> {
        let mut time = 7_000;
        let mut out = Vec::new();
        for (n, (hash, gap)) in turn.iter().cycle().take(turn.len() * turns).enumerate() {
            let time_read = time / unit * unit;
            out.push(Seen {
                hash: *hash,
                time: time_read,
                point: HERE,
            });
            // Gaps vary a little, and once in a while the machine does something else.
            time += gap + (n as i64 * 7 % 11) * gap / 100 + if n % 97 == 96 { 40_000 } else { 0 };
        }
        out
    }

    fn count(turn: &[(u64, i64)], unit: i64) -> Option<usize> {
        let mut identities: Vec<u64> = turn.iter().map(|(hash, _)| *hash).collect();
        identities.sort_unstable();
        identities.dedup();
        super::turn(&seen(turn, 4000 / turn.len(), unit), &identities).map(|turn| turn.packets)
    }

    #[test]
    fn order_and_gaps_count() {
        assert_eq!(count(&[(1, 1_400)], 1), Some(1));
        assert_eq!(count(&[(1, 500), (2, 500), (3, 500)], 1), Some(3));
        // Five copies of one packet: 4 short gaps and a long one.
        assert_eq!(
            count(&[(1, 670), (1, 670), (1, 670), (1, 670), (1, 6_000)], 1),
            Some(5)
        );
        // Two flows with four copies each, as a kernel's loop had them.
        let order = [0, 1, 1, 1, 0, 1, 0, 0].map(|n| (n + 1, 650));
        assert_eq!(count(&order, 1), Some(8));
        // The order repeats twice a turn, and the gaps tell.
        assert_eq!(count(&[(1, 500), (2, 500), (1, 500), (2, 4_000)], 1), Some(4));
        // Microseconds.
        assert_eq!(
            count(
                &[
                    (1, 2_000),
                    (1, 1_900),
                    (2, 2_100),
                    (3, 1_900),
                    (2, 2_000),
                    (3, 5_600)
                ],
                1_000
            ),
            Some(6)
        );
        // A clock that hardly resolves the copies of one packet.
        assert_eq!(count(&[(1, 1_400)], 1_000), None);
        let many: Vec<(u64, i64)> = (1..=70).map(|n| (n, 600)).collect();
        assert_eq!(count(&many, 1), Some(70));
    }

    #[test]
    fn what_does_not_repeat_is_not_counted() {
        let mut time = 0;
        let wild: Vec<Seen> = (0..2_000_u64)
            .map(|n| {
                time += 500;
                Seen {
                    hash: n * n * 7_919 % 1_009 % 5 + 1,
                    time,
                    point: HERE,
                }
            })
            .collect();
        assert_eq!(turn(&wild, &[1, 2, 3, 4, 5]), None);
        // One of them was not seen.
        assert_eq!(turn(&seen(&[(1, 500), (2, 500)], 100, 1), &[1, 2, 3]), None);
        assert_eq!(turn(&[], &[1]), None);
    }
}
