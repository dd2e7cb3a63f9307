//! Collects what is wrong with one file.

use sexton_core::model::Problem;

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
