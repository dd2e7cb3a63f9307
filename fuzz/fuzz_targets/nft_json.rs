//! `nft -j list ruleset`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::nft;

fuzz_target!(|bytes: &[u8]| {
    let _ = nft::read_json("f", bytes);
});
