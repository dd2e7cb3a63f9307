//! Captures of every format: how the input is split changes nothing, and the verdict takes whatever comes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::capture::{Limits, Packet, Reader, Watch, read};

fuzz_target!(|bytes: &[u8]| {
    // Small tables: making large ones would take longer than the rest.
    let mut watch = Watch::new(Limits {
        recent: 256,
        tracks: 64,
        flows: 64,
        ..Limits::default()
    });
    let mut whole: Vec<Packet> = Vec::new();
    let outcome = read(bytes, "f", &mut |packet| {
        watch.see(packet);
        whole.push(*packet);
    });
    watch.finish();
    let mut pieces: Vec<Packet> = Vec::new();
    let mut reader = Reader::new("f");
    for piece in bytes.chunks(bytes.first().map_or(1, |first| usize::from(*first) % 61 + 1)) {
        reader.push(piece, &mut |packet| pieces.push(*packet));
    }
    assert_eq!(reader.finish(&mut |packet| pieces.push(*packet)), outcome);
    assert_eq!(pieces, whole);
});
