//! CSV and TSV of typeperf, relog and logman.
//!
//! The first cell is `(PDH-CSV 4.0)`, with a time zone and its bias in minutes where a log was written. typeperf begins
//! with an empty line and ends with what it says on a terminal.

use std::io::BufRead;

use jiff::civil::DateTime;
use sexton_core::model::Completeness;

use super::{Counter, Counters, MAX_VALUES, Series, number};
use crate::problems::Problems;

pub(super) fn parse(mut reader: impl BufRead, path: &str) -> Counters {
    let head = reader.fill_buf().unwrap_or_default();
    let delimiter = delimiter(head);
    let mut out = Counters {
        completeness: Completeness::Complete,
        ..Counters::default()
    };
    let mut problems = Problems::new(path);
    let mut records = ::csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .flexible(true)
        .from_reader(reader);
    let mut record = ::csv::ByteRecord::new();
    let mut values = 0;
    let mut columns = 0;
    loop {
        match records.read_byte_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(err) => {
                out.completeness = Completeness::Partial(err.to_string());
                break;
            }
        }
        let line = record
            .position()
            .map_or(0, |position| usize::try_from(position.line()).unwrap_or(0));
        let mut cells = record.iter().map(|cell| String::from_utf8_lossy(cell));
        let first = cells.next().unwrap_or_default();
        if columns == 0 {
            out.bias = bias(&first);
            for cell in cells {
                // Perfmon puts a note of its own at the end.
                if let Some(counter) = Counter::parse(cell.trim()) {
                    out.series.push(Series {
                        counter,
                        values: Vec::new(),
                    });
                } else {
                    let note = "a column that names no counter was left out".to_owned();
                    problems.push(line, note);
                    break;
                }
            }
            columns = record.len();
            continue;
        }
        let time = time(first.trim());
        // What typeperf says at its end, in whatever language, may hold a comma.
        let said = time.is_none() && !first.bytes().any(|b| b.is_ascii_digit()) && record.len() < columns;
        if said {
            continue;
        }
        if time.is_none() {
            problems.push(
                line,
                format!(
                    "expected a time like 08/18/2026 07:09:30.113, found {:?}",
                    first.trim()
                ),
            );
        }
        if record.len() < columns.min(out.series.len() + 1) {
            problems.push(
                line,
                format!("{} cells; expected {columns}: the row is cut off", record.len()),
            );
            out.completeness = Completeness::Partial("a row is cut off".to_owned());
        }
        values += out.series.len();
        if values > MAX_VALUES {
            out.completeness =
                Completeness::Partial(format!("only the first {} samples were read", out.times.len()));
            break;
        }
        out.times.push(time);
        for series in &mut out.series {
            let cell = cells.next().unwrap_or_default();
            let value = number(&cell);
            if value.is_none() && !cell.trim().is_empty() {
                problems.push(line, format!("expected a number, found {:?}", cell.trim()));
            }
            series.values.push(value);
        }
    }
    if out.series.is_empty() {
        out.completeness = Completeness::Unavailable("it names no counter".to_owned());
    }
    out.problems = problems.finish();
    out
}

/// What stands after the first cell: a comma, where the decimal point is a comma perhaps a semicolon, or a tab.
fn delimiter(head: &[u8]) -> u8 {
    let line = head.trim_ascii_start();
    let after = line
        .iter()
        .zip(line.iter().skip(1))
        .skip(1)
        .find_map(|(quote, after)| {
            (*quote == b'"' && matches!(after, b',' | b';' | b'\t')).then_some(*after)
        });
    after.unwrap_or(
        if line.starts_with(b"\"(PDH-TSV") || line.starts_with(b"(PDH-TSV") {
            b'\t'
        } else {
            b','
        },
    )
}

/// `(PDH-CSV 4.0) (W. Europe Standard Time)(-60)`
fn bias(cell: &str) -> Option<i32> {
    cell.trim().strip_suffix(')')?.rsplit_once('(')?.1.parse().ok()
}

fn time(text: &str) -> Option<DateTime> {
    DateTime::strptime("%m/%d/%Y %H:%M:%S%.f", text).ok()
}
