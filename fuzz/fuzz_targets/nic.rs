//! Addresses of adapters (JSON, XML) and HNS endpoints, and who lives at one of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_core::{
    judge::Judge,
    model::{Adapters, Facts, NodeState, Timestamp},
    settings::Settings,
};
use sexton_formats::{hns, nic};

fuzz_target!(|bytes: &[u8]| {
    let nics = nic::parse(bytes, "f");
    assert!(nics.source.is_some() || !nics.completeness.is_complete());
    let endpoints = hns::endpoints(bytes, "f");
    let Some(source) = nics.source else { return };
    let list = Adapters {
        path: "f".to_owned(),
        source,
        nics: nics.nics,
        completeness: nics.completeness,
    };
    let state = NodeState {
        adapters: Facts::complete("f", vec![list]),
        hns_endpoints: Facts::complete("f", endpoints.endpoints),
        ..NodeState::default()
    };
    let settings = Settings::default();
    let judge = Judge::new(&state, None, &settings, Timestamp::UNIX_EPOCH);
    let lists = state.adapters.value.iter().flat_map(|list| &list.nics);
    for owned in lists.flat_map(|nic| &nic.addresses) {
        judge.roster.destination(owned.address);
    }
    judge.all();
});
