//! `conntrack -L` and `/proc/net/nf_conntrack`: an entry that was read is read again from its own text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::{conntrack, text};

fuzz_target!(|bytes: &[u8]| {
    conntrack::parse(text::open(bytes), "f", &mut |entry| {
        let text = entry.text();
        let again = conntrack::parse_entry(&text).expect("an entry's own text is an entry");
        assert_eq!((again.original, again.reply), (entry.original, entry.reply), "{text}");
    });
});
