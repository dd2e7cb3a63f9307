//! Performance counters of Windows: CSV of typeperf, relog and logman, and text of `Get-Counter`.
//!
//! A counter's path is `\\HOST\Object(instance)\Counter`. Names are localised, and so is the decimal point; English and
//! German names are known, others keep their series without a meaning. The names of adapters are those of their
//! descriptions with `_2` for `#2` and brackets for parentheses.

use std::io::BufRead;

mod csv;
mod text;

pub use sexton_core::{
    model::{Counter, CounterKind as Kind, Counters, Series, adapter_key},
    traffic::{Core, Pair, Suspicion, Thresholds, suspect},
};

/// Values are kept up to this number; a file with more was not made to be looked at.
const MAX_VALUES: usize = 4_000_000;

/// Reads either form. Never fails: what was wrong is in the result, with `path` as its place.
pub fn parse(mut reader: impl BufRead, path: &str) -> Counters {
    let head = reader.fill_buf().unwrap_or_default();
    let start = head.trim_ascii_start();
    let start = start
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(start)
        .trim_ascii_start();
    if start.starts_with(b"\"(PDH-") || start.starts_with(b"(PDH-") {
        csv::parse(reader, path)
    } else {
        text::parse(reader, path)
    }
}

/// True if a file that begins so, decompressed, holds counters: the header of CSV, or the headings or a path of
/// `Get-Counter`.
pub fn recognise(head: &[u8]) -> bool {
    // In UTF-16 every other byte is 0; what is looked for is ASCII.
    let text: Vec<u8> = head.iter().copied().filter(|byte| *byte != 0).collect();
    let text = String::from_utf8_lossy(&text);
    let start = text
        .trim_start_matches('\u{feff}')
        .trim_start_matches('\u{fffd}')
        .trim_start();
    let csv = start.starts_with("\"(PDH-") || start.starts_with("(PDH-");
    let path = |line: &str| line.trim_end().ends_with(" :") && line.contains("\\\\");
    csv || start
        .lines()
        .any(|line| path(line) || line.contains("CounterSamples"))
}

/// A number with whatever decimal point: PDH writes no signs between thousands, so a sign that stands once is the
/// decimal point, and one that stands more often is not.
fn number(text: &str) -> Option<f64> {
    let text: String = text
        .chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '\'' | '\u{2019}'))
        .collect();
    let decimal = text.rfind([',', '.']).filter(|at| {
        let sign = text.get(*at..=*at).unwrap_or_default();
        text.matches(sign).count() == 1
    });
    let plain: String = text
        .char_indices()
        .filter_map(|(at, c)| match c {
            ',' | '.' => (Some(at) == decimal).then_some('.'),
            other => Some(other),
        })
        .collect();
    // "inf" and "nan" would be read as numbers.
    let digits = plain
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    plain
        .parse::<f64>()
        .ok()
        .filter(|value| digits && value.is_finite())
}

#[cfg(test)]
mod tests;
