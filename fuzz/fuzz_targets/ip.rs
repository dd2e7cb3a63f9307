//! `ip` as JSON and as text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::ip;

fuzz_target!(|bytes: &[u8]| {
    let _ = ip::read_links("f", bytes);
    let _ = ip::read_routes("f", bytes, 254);
    let _ = ip::read_neighbours("f", bytes);
});
