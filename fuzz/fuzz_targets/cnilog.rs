//! The log of Azure's CNI plugin: whatever a line holds, a Pod that got addresses got at least one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_core::model::PastKind;
use sexton_formats::{cnilog, text};

fuzz_target!(|bytes: &[u8]| {
    let (events, _) = cnilog::parse(text::open(bytes), "f");
    for event in &events {
        assert!(!matches!(&event.what, PastKind::Got(addresses) if addresses.is_empty()));
    }
});
