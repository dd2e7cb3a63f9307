//! A hash table of fixed size that keeps what comes often.

/// Places of one bucket; its keys are one cache line.
const WAYS: usize = 8;

/// A table of `buckets * 8` places.
///
/// What happens when a bucket is full is the counting of Misra and Gries, in each bucket on its own: an entry has as
/// much credit as it was found, up to a limit; a newcomer takes the place of the next entry that has no more credit
/// than `weak`, going round; if there is none, the next entry loses one credit and the newcomer is turned away. So an
/// entry that was found n times gives way only after n - `weak` newcomers met it, and whatever makes up more than a
/// ninth of a bucket's traffic stays.
pub(super) struct Table<T> {
    keys: Vec<[u64; WAYS]>,
    credits: Vec<[u32; WAYS]>,
    hands: Vec<u8>,
    values: Vec<Option<T>>,
    weak: u32,
    /// Newcomers that were turned away.
    pub(super) refused: u64,
    /// Entries that gave way.
    pub(super) evicted: u64,
}

impl<T> Table<T> {
    /// A table of at least `places` places.
    pub(super) fn new(places: usize, weak: u32) -> Self {
        let buckets = places.div_ceil(WAYS).next_power_of_two();
        Self {
            keys: vec![[0; WAYS]; buckets],
            credits: vec![[0; WAYS]; buckets],
            hands: vec![0; buckets],
            values: std::iter::repeat_with(|| None).take(buckets * WAYS).collect(),
            weak,
            refused: 0,
            evicted: 0,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the low bits are used")]
    fn bucket(&self, key: u64) -> usize {
        key as usize & (self.keys.len() - 1)
    }

    /// The entry of a key, which gains a credit.
    pub(super) fn find(&mut self, key: u64) -> Option<&mut T> {
        let bucket = self.bucket(key);
        let way = self.keys.get(bucket)?.iter().position(|other| *other == key)?;
        let credit = self.credits.get_mut(bucket)?.get_mut(way)?;
        *credit = credit.saturating_add(1);
        self.values.get_mut(bucket * WAYS + way)?.as_mut()
    }

    /// Puts in what is not there. Returns what gave way, or the value itself if it was turned away.
    pub(super) fn insert(&mut self, key: u64, value: T) -> Option<T> {
        let bucket = self.bucket(key);
        let (Some(keys), Some(credits), Some(hand)) = (
            self.keys.get_mut(bucket),
            self.credits.get_mut(bucket),
            self.hands.get_mut(bucket),
        ) else {
            return Some(value);
        };
        let weak = self.weak;
        let free = (0..WAYS)
            .map(|step| (usize::from(*hand) + step) % WAYS)
            .find(|way| {
                keys.get(*way) == Some(&0) || credits.get(*way).is_some_and(|credit| *credit <= weak)
            });
        let way = free.unwrap_or(usize::from(*hand));
        #[expect(clippy::cast_possible_truncation, reason = "less than WAYS")]
        let next = ((way + 1) % WAYS) as u8;
        *hand = next;
        let (Some(at), Some(credit), Some(place)) = (
            keys.get_mut(way),
            credits.get_mut(way),
            self.values.get_mut(bucket * WAYS + way),
        ) else {
            return Some(value);
        };
        if free.is_none() {
            *credit -= 1;
            self.refused += 1;
            return Some(value);
        }
        *at = key;
        *credit = 1;
        let old = place.replace(value);
        self.evicted += u64::from(old.is_some());
        old
    }

    /// All entries, in an order that only what was put in decides.
    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        self.values.into_iter().flatten()
    }
}

/// The identities that were seen last: eight to a bucket, the oldest of a bucket gives way.
pub(super) struct Recent {
    keys: Vec<[u64; WAYS]>,
    hands: Vec<u8>,
}

impl Recent {
    /// For about so many identities.
    pub(super) fn new(places: usize) -> Self {
        let buckets = places.div_ceil(WAYS).next_power_of_two();
        Self {
            keys: vec![[0; WAYS]; buckets],
            hands: vec![0; buckets],
        }
    }

    /// True if it was seen not long ago; from now on it was.
    pub(super) fn seen(&mut self, key: u64) -> bool {
        // Other bits than those that a `Table` goes by.
        let bucket = (key >> 32) as usize & (self.keys.len() - 1);
        let (Some(keys), Some(hand)) = (self.keys.get_mut(bucket), self.hands.get_mut(bucket)) else {
            return false;
        };
        if keys.contains(&key) {
            return true;
        }
        if let Some(place) = keys.get_mut(usize::from(*hand) % WAYS) {
            *place = key;
        }
        *hand = hand.wrapping_add(1);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_stays_among_any_number_of_strangers() {
        let mut table = Table::new(64, 1);
        let mut kept = 0_u64;
        for n in 0..200_000_u64 {
            let stranger = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 40;
            if table.find(stranger).is_none() {
                table.insert(stranger, 0_u64);
            }
            // One packet in four is of the same eight.
            if n % 3 == 0 {
                let key = 8 + n / 3 % 8;
                match table.find(key) {
                    Some(count) => *count += 1,
                    None => {
                        table.insert(key, 1);
                    }
                }
                kept += 1;
            }
        }
        let counted: u64 = (8..16).filter_map(|key| table.find(key).copied()).sum();
        assert!(counted > kept - 200, "{counted} of {kept}");
        assert!(table.evicted > 100_000);
    }

    #[test]
    fn the_last_ones_are_known_again() {
        let mut recent = Recent::new(1024);
        let keys = || (1..=400_u64).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
        assert!(keys().all(|key| !recent.seen(key)));
        let known = keys().filter(|key| recent.seen(*key)).count();
        assert!(known > 380, "{known}");
        // And so many strangers later they are forgotten.
        (1 << 40..(1 << 40) + 100_000_u64).for_each(|key| {
            recent.seen(key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
        });
        assert!(keys().all(|key| !recent.seen(key)));
    }
}
