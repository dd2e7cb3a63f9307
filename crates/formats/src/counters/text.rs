//! Text of `Get-Counter`: a time, then paths that end with a colon, each with its value on the next line; also the table
//! of `(Get-Counter ...).CounterSamples`.

use std::{collections::HashMap, io::BufRead};

use jiff::civil::DateTime;
use sexton_core::model::Completeness;

use super::{Counter, Counters, MAX_VALUES, Series, number};
use crate::{problems::Problems, text::Lines};

pub(super) fn parse(reader: impl BufRead, path: &str) -> Counters {
    let mut state = State::default();
    let mut problems = Problems::new(path);
    let mut lines = Lines::new(reader);
    let mut completeness = Completeness::Complete;
    while let Some(line) = lines.next() {
        match line {
            Ok(line) => {
                let number = usize::try_from(line.number).unwrap_or(usize::MAX);
                if let Err(why) = state.line(&String::from_utf8_lossy(line.bytes)) {
                    problems.push(number, why);
                }
            }
            Err(err) => {
                completeness = Completeness::Partial(err.to_string());
                break;
            }
        }
        if state.values > MAX_VALUES {
            completeness = Completeness::Partial(format!(
                "only the first {} samples were read",
                state.out.times.len()
            ));
            break;
        }
    }
    if !state.pending.is_empty() {
        completeness = Completeness::Partial("it ends after a path without a value".to_owned());
    }
    let mut out = state.finish();
    if out.series.is_empty() {
        completeness = Completeness::Unavailable(
            "expected counters (CSV of typeperf, or Get-Counter), found other text".to_owned(),
        );
    }
    out.completeness = completeness;
    out.problems = problems.finish();
    out
}

#[derive(Default)]
struct State {
    out: Counters,
    /// Series by path in lower case.
    by_path: HashMap<String, usize>,
    /// A path whose value has not come, or the beginning of one that was broken over lines.
    pending: String,
    whole: bool,
    values: usize,
}

impl State {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let text = line.trim();
        if text.is_empty() {
            return Ok(());
        }
        // The value of the path before.
        if self.whole {
            let path = std::mem::take(&mut self.pending);
            self.whole = false;
            let value = number(text);
            self.add(&path, value)?;
            return match value {
                Some(_) => Ok(()),
                None => Err(format!("expected a number, found {text:?}")),
            };
        }
        if let Some(at) = line.find(r"\\") {
            let (before, path) = line.split_at(at);
            // A list names the column on the same line; a table has a time there.
            let before = before.trim().trim_end_matches(':').trim();
            if !before.is_empty() {
                self.begin(time(before));
            }
            let path = path.trim();
            if let Some((path, value)) = row(path) {
                if self.out.times.is_empty() {
                    self.begin(None);
                }
                return self.add(path, Some(value));
            }
            path.clone_into(&mut self.pending);
        } else if self.pending.is_empty() {
            // Headings, or a time on a line of its own.
            if let Some(time) = time(text.rsplit_once(" : ").map_or(text, |(_, value)| value.trim())) {
                self.begin(Some(time));
            }
            return Ok(());
        } else {
            // The console broke the path.
            self.pending.push(' ');
            self.pending.push_str(text);
        }
        if let Some(path) = self.pending.strip_suffix(':') {
            self.pending = path.trim_end().to_owned();
            self.whole = true;
            if self.out.times.is_empty() {
                self.begin(None);
            }
        }
        Ok(())
    }

    fn begin(&mut self, time: Option<DateTime>) {
        self.fill();
        self.out.times.push(time);
    }

    /// Gives every series a value for every time.
    fn fill(&mut self) {
        let times = self.out.times.len();
        for series in &mut self.out.series {
            series.values.resize(times, None);
        }
    }

    fn add(&mut self, path: &str, value: Option<f64>) -> Result<(), String> {
        let key = path.to_lowercase();
        let index = match self.by_path.get(&key) {
            Some(index) => *index,
            None => {
                let counter = Counter::parse(path)
                    .ok_or_else(|| format!("expected a counter's path, found {path:?}"))?;
                self.out.series.push(Series {
                    counter,
                    values: Vec::new(),
                });
                self.by_path.insert(key, self.out.series.len() - 1);
                self.out.series.len() - 1
            }
        };
        // The same counter again without a time between is a new sample.
        let times = self.out.times.len();
        if self
            .out
            .series
            .get(index)
            .is_some_and(|series| series.values.len() >= times.max(1))
        {
            self.begin(None);
        }
        let times = self.out.times.len();
        if let Some(series) = self.out.series.get_mut(index) {
            series.values.resize(times.saturating_sub(1), None);
            series.values.push(value);
            self.values += 1;
        }
        Ok(())
    }

    fn finish(mut self) -> Counters {
        self.fill();
        self.out
    }
}

/// A row of the table of samples: path, instance and value, with at least two spaces between.
fn row(text: &str) -> Option<(&str, f64)> {
    let (rest, value) = text.rsplit_once("  ")?;
    let value = number(value)?;
    let path = rest.split("  ").next()?.trim();
    Some((path, value))
}

/// Times as PowerShell prints them for a few cultures.
fn time(text: &str) -> Option<DateTime> {
    // Newer versions put a narrow space before AM.
    let text = text.replace('\u{202f}', " ");
    [
        "%m/%d/%Y %I:%M:%S %p",
        "%d.%m.%Y %H:%M:%S",
        "%m/%d/%Y %H:%M:%S",
        "%Y-%m-%d %H:%M:%S",
        "%d/%m/%Y %H:%M:%S",
    ]
    .iter()
    .find_map(|format| DateTime::strptime(format, text.trim()).ok())
}
