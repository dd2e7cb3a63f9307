//! A bundle in a zip.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use sexton_formats::bundle::{Archive, BundleOptions, Limits, read};

fuzz_target!(|bytes: &[u8]| {
    // Small, so that a bomb costs no time.
    let limits = Limits {
        file: 1 << 20,
        in_memory: 1 << 20,
        total: 4 << 20,
        ratio_after: 1 << 20,
        files: 1000,
        ..Limits::default()
    };
    let options = BundleOptions { limits, ..BundleOptions::default() };
    let _ = read(&mut Archive::new(Cursor::new(bytes), limits), &options);
});
