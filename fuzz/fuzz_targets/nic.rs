//! Addresses of adapters (JSON, XML) and HNS endpoints, and who lives at one of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::{hns, nic};

fuzz_target!(|bytes: &[u8]| {
    let nics = nic::parse(bytes, "f");
    assert!(nics.source.is_some() || !nics.completeness.is_complete());
    let endpoints = hns::endpoints(bytes, "f");
    for owned in nics.nics.iter().flat_map(|nic| &nic.addresses) {
        hns::residence(owned.address, &nics, &endpoints);
    }
});
