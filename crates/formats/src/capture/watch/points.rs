//! How often something was seen at each point.

use super::super::{Direction, Place, Point};

/// Counts at up to `N` points, in the order of the first sighting. Sightings at further points are not counted here.
#[derive(Clone, Debug)]
pub(super) struct Points<const N: usize> {
    points: [Point; N],
    counts: [u32; N],
    used: usize,
}

const NONE: Point = Point {
    place: Place::Somewhere,
    edge: 0,
    direction: Direction::Unknown,
};

impl<const N: usize> Default for Points<N> {
    fn default() -> Self {
        Self {
            points: [NONE; N],
            counts: [0; N],
            used: 0,
        }
    }
}

impl<const N: usize> Points<N> {
    /// One more; its number among the points, and its count.
    pub(super) fn see(&mut self, point: Point) -> Option<(usize, u32)> {
        let used = self.used;
        let at = self
            .points
            .iter()
            .take(used)
            .position(|other| *other == point)
            .or_else(|| {
                *self.points.get_mut(used)? = point;
                self.used += 1;
                Some(used)
            })?;
        let count = self.counts.get_mut(at)?;
        *count = count.saturating_add(1);
        Some((at, *count))
    }

    /// The most that one point saw.
    pub(super) fn most(&self) -> u64 {
        self.counts.iter().copied().max().unwrap_or(0).into()
    }

    pub(super) fn list(&self) -> impl Iterator<Item = (Point, u64)> {
        let both = self.points.iter().zip(self.counts).take(self.used);
        both.map(|(point, count)| (*point, count.into()))
    }
}
