//! `ipset save`: what was read is read again after printing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::{ipset, text};

fuzz_target!(|bytes: &[u8]| {
    let (sets, _) = ipset::parse(text::open(bytes), "f");
    let printed = ipset::print(&sets);
    let (again, problems) = ipset::parse(printed.as_bytes(), "f");
    assert_eq!((&again, problems.len()), (&sets, 0), "{printed}");
});
