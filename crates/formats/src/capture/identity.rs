//! Hashes that tell packets and flows apart.

use std::{
    hash::{BuildHasher as _, Hasher as _},
    net::IpAddr,
};

use foldhash::quality::FixedState;

use super::FlowKey;

/// The same in every run, so that one capture has one result. Two packets with one hash by chance: in a capture of a
/// hundred million packets less than one chance in three thousand for a single pair, and a loop takes ten or more.
const SEED: u64 = 0x5e87_0a11;

/// Mixes words and bytes into 64 bits.
pub(super) struct Mix(<FixedState as std::hash::BuildHasher>::Hasher);

impl Mix {
    pub(super) fn new() -> Self {
        Self(FixedState::with_seed(SEED).build_hasher())
    }

    pub(super) fn word(&mut self, word: u64) {
        self.0.write_u64(word);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        // So that the border between two pieces counts.
        self.0.write_usize(bytes.len());
    }

    pub(super) fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.word(u64::from(v4.to_bits())),
            IpAddr::V6(v6) => self.0.write_u128(v6.to_bits()),
        }
    }

    /// Never 0, which marks a free place in a table.
    pub(super) fn finish(self) -> u64 {
        self.0.finish().max(1)
    }
}

/// The hash of a flow.
pub(super) fn flow_hash(key: &FlowKey) -> u64 {
    let mut mix = Mix::new();
    let (source, destination) = key.ports.unwrap_or_default();
    let ports = u64::from(key.ports.is_some()) << 40
        | u64::from(key.protocol) << 32
        | u64::from(source) << 16
        | u64::from(destination);
    match (key.source, key.destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            mix.word(u64::from(from.to_bits()) << 32 | u64::from(to.to_bits()));
        }
        (from, to) => {
            mix.address(from);
            mix.address(to);
        }
    }
    mix.word(ports);
    mix.finish()
}
