//! `nft list ruleset`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::nft;

fuzz_target!(|text: &str| {
    let (mut state, _) = nft::read_text("f", text);
    for element in state.sets.iter().flat_map(|set| &set.elements) {
        let _ = element.text();
    }
    nft::drop_iptables_tables(&mut state, &[]);
});
