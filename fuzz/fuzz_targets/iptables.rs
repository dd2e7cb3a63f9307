//! iptables-save and `iptables -S`: what was read is read again after printing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::{
    iptables::{XtInput, parse, print},
    text,
};

fuzz_target!(|bytes: &[u8]| {
    let input = XtInput { source: "f", ..XtInput::default() };
    let first = parse(text::open(bytes), &input);
    // A chain that is declared twice is two chains, and a line of a listing can hold what a save cannot.
    let printed = print(&first.tables);
    let second = parse(printed.as_bytes(), &input);
    let rules = |output: &sexton_formats::iptables::XtOutput| {
        output.tables.iter().flat_map(|table| table.rules().map(|(_, rule)| rule.clone())).count()
    };
    assert_eq!(rules(&first), rules(&second), "{printed}");
});
