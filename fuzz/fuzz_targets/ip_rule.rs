//! `ip rule` as JSON and as text: text that was read is read again after printing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_core::model::Family;
use sexton_formats::ip;

fuzz_target!(|bytes: &[u8]| {
    let (rules, _) = ip::read_rules("f", bytes, Family::Ipv4);
    if bytes.trim_ascii_start().first().is_some_and(|byte| b"[{\xef".contains(byte)) {
        // A name in JSON may hold what no text can.
        return;
    }
    for family in [Family::Ipv4, Family::Ipv6] {
        let text = ip::print_rules(&rules, family);
        let (again, problems) = ip::read_rules("f", text.as_bytes(), family);
        let expected = rules.iter().filter(|rule| rule.family == family).count();
        assert_eq!((again.len(), problems.len()), (expected, 0), "{text}");
    }
});
