//! Collects what is wrong with one file.

use std::io::BufRead;

use sexton_core::model::Problem;

use crate::text::Lines;

/// Problems are listed up to this number and counted beyond it, so that a file of something else does not fill a
/// report.
const MAX: usize = 100;

/// The problems of one file.
pub(crate) struct Problems<'p> {
    path: &'p str,
    list: Vec<Problem>,
    more: usize,
}

impl<'p> Problems<'p> {
    pub(crate) fn new(path: &'p str) -> Self {
        Self {
            path,
            list: Vec::new(),
            more: 0,
        }
    }

    /// Adds one, at a line that counts from 1.
    pub(crate) fn push(&mut self, line: usize, what: String) {
        if self.list.len() < MAX {
            let place = format!("{}:{line}", self.path);
            self.list.push(Problem { place, what });
        } else {
            self.more += 1;
        }
    }

    /// All of them; the last one says how many were left out.
    pub(crate) fn finish(mut self) -> Vec<Problem> {
        if self.more > 0 {
            self.list.push(Problem {
                place: self.path.to_owned(),
                what: format!("{} more problems", self.more),
            });
        }
        self.list
    }
}

/// Hands out each line of a listing with its number, a line in memory. What cannot be read is a problem, and so is a line that is too long:
/// the rest is used.
pub(crate) fn each_line(
    reader: impl BufRead,
    problems: &mut Problems<'_>,
    mut each: impl FnMut(usize, &str, &mut Problems<'_>),
) {
    let mut lines = Lines::new(reader);
    let mut last = 0;
    while let Some(line) = lines.next() {
        let line = match line {
            Ok(line) => line,
            Err(error) => return problems.push(last + 1, format!("the file cannot be read on: {error}")),
        };
        last = usize::try_from(line.number).unwrap_or(usize::MAX);
        if line.too_long {
            problems.push(last, "the line is too long".to_owned());
        } else {
            each(last, &String::from_utf8_lossy(line.bytes), problems);
        }
    }
}
