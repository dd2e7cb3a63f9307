//! How many packets circulate, by the order in which they passed.

use sexton_core::model::{Destination, Repeat};

use super::rounds::{self, Seen};

/// Counts what circulates by the order in which it passed, where that repeats: that is better than packet by packet.
pub(super) fn count(destination: &mut Destination, seen: &[Seen], followed: bool) {
    if destination.ttl_falls == Some(true) {
        return;
    }
    let identities: Vec<u64> = destination
        .repeats
        .iter()
        .map(|repeat| repeat.identity.hash)
        .collect();
    let Some(turn) = rounds::turn(seen, &identities) else {
        return;
    };
    // A packet that comes evenly by itself, and several times a turn of the others: copies that follow each other
    // evenly, or one packet that is faster than they are. That cannot be told.
    let faster = |repeat: &Repeat| {
        let copies = turn.copies.get(&repeat.identity.hash);
        repeat.copies == 1 && repeat.copies_exact && copies.is_some_and(|copies| *copies > 1)
    };
    if destination.repeats.iter().any(faster) {
        destination.circulating_exact = false;
        return;
    }
    destination.circulating = turn.packets as u64;
    destination.circulating_exact = followed;
    destination.period = Some(turn.takes);
    for repeat in &mut destination.repeats {
        repeat.period = destination.period;
        if let Some(copies) = turn.copies.get(&repeat.identity.hash) {
            repeat.copies = *copies;
            repeat.copies_exact = true;
        }
    }
}
