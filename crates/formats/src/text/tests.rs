use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;

use super::*;

fn read(bytes: &[u8]) -> String {
    let mut out = String::new();
    open(bytes).read_to_string(&mut out).unwrap();
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn utf16(text: &str, big_endian: bool) -> Vec<u8> {
    let units = [0xfeff].into_iter().chain(text.encode_utf16());
    units
        .flat_map(|unit| {
            if big_endian {
                unit.to_be_bytes()
            } else {
                unit.to_le_bytes()
            }
        })
        .collect()
}

/// Every line as text with its number and whether it ended.
fn lines(reader: impl BufRead, limit: usize) -> Vec<(String, u64, bool, bool)> {
    let mut lines = Lines::with_limit(reader, limit);
    let mut out = Vec::new();
    while let Some(line) = lines.next() {
        let line = line.unwrap();
        out.push((
            String::from_utf8(line.bytes.to_vec()).unwrap(),
            line.number,
            line.ended,
            line.too_long,
        ));
    }
    out
}

#[test]
fn every_encoding_gives_the_same_text() {
    let text = "*nat\r\n:ÄÖ 🦀 [0:0]\r\n";
    let with_mark = [b"\xef\xbb\xbf", text.as_bytes()].concat();
    for bytes in [
        text.as_bytes().to_vec(),
        with_mark,
        utf16(text, false),
        utf16(text, true),
    ] {
        assert_eq!(read(&bytes), text);
        assert_eq!(read(&gzip(&bytes)), text);
    }
    assert_eq!(read(b""), "");
    assert_eq!(read(b"\xff\xfe"), "");
    assert_eq!(read(b"a"), "a");
}

#[test]
fn broken_utf16_becomes_replacement_characters() {
    let units = |units: &[u16]| units.iter().flat_map(|u| u.to_le_bytes()).collect::<Vec<_>>();
    // High, high and low, low alone, high at the end.
    assert_eq!(
        read(&units(&[0xfeff, 0xd83e, 0xd83e, 0xdd80, 0xdd80, 0x41, 0xd83e])),
        "\u{fffd}🦀\u{fffd}A\u{fffd}"
    );
    assert_eq!(read(b"\xff\xfeA\0B"), "A\u{fffd}");
}

#[test]
fn a_gzip_that_is_cut_gives_its_lines_and_then_an_error() {
    let text: String = (0..20_000)
        .map(|n| format!("line {}\n", n * 7919 % 10_007))
        .collect();
    let bytes = gzip(text.as_bytes());
    let mut lines = Lines::new(open(&bytes[..bytes.len() / 2]));
    let mut seen = 0;
    let err = loop {
        match lines.next().unwrap() {
            Ok(_) => seen += 1,
            Err(err) => break err,
        }
    };
    assert!(seen > 1000, "{seen}");
    assert_eq!(err.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn an_error_follows_what_came_before_it() {
    let mut lines = Lines::new(open(Failing(b"one\ntwo\nthr")));
    assert_eq!(lines.next().unwrap().unwrap().bytes, b"one");
    assert_eq!(lines.next().unwrap().unwrap().bytes, b"two");
    assert_eq!(lines.next().unwrap().unwrap_err().to_string(), "no more");
}

/// Bytes and then an error.
struct Failing(&'static [u8]);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("no more")),
            count => Ok(count),
        }
    }
}

#[test]
fn lines_end_in_lf_or_cr_lf_or_not() {
    let text = "one\ntwo\r\n\nlast";
    for capacity in [1, 2, 3, 5, 100] {
        assert_eq!(
            lines(BufReader::with_capacity(capacity, text.as_bytes()), 100),
            [
                ("one".to_owned(), 1, true, false),
                ("two".to_owned(), 2, true, false),
                (String::new(), 3, true, false),
                ("last".to_owned(), 4, false, false),
            ]
        );
    }
}

#[test]
fn a_line_beyond_the_limit_is_dropped_and_counted() {
    let text = "a\n0123456789abcdef\nb\n";
    for capacity in [4, 100] {
        assert_eq!(
            lines(BufReader::with_capacity(capacity, text.as_bytes()), 10),
            [
                ("a".to_owned(), 1, true, false),
                (String::new(), 2, true, true),
                ("b".to_owned(), 3, true, false),
            ]
        );
    }
}

proptest! {
    #[test]
    fn any_text_survives_utf16(text in "\\PC{0,200}", big_endian: bool) {
        prop_assert_eq!(read(&utf16(&text, big_endian)), text);
    }

    #[test]
    fn lines_do_not_depend_on_the_buffer(text in "[ab\r\n]{0,60}", capacity in 1_usize..20) {
        prop_assert_eq!(
            lines(BufReader::with_capacity(capacity, text.as_bytes()), 8),
            lines(text.as_bytes(), 8)
        );
    }
}
