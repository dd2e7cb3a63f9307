//! A file's text within the limits.

use std::{
    cell::Cell,
    io::{self, BufRead, Read},
    rc::Rc,
};

use super::files::Limited;
use crate::text;

/// Text of a file, decompressed and within the limits.
pub(super) fn open<'a>(reader: &'a mut dyn Read, limit: u64, total: &Rc<Cell<u64>>) -> Box<dyn BufRead + 'a> {
    let reader = Limited::new(text::gunzip(reader), limit, "one file");
    text::decode(Counted {
        reader,
        total: Rc::clone(total),
    })
}

/// Takes what is read from what all files together may hold.
struct Counted<R> {
    reader: R,
    total: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        match self.total.get().checked_sub(count as u64) {
            Some(left) => self.total.set(left),
            None => {
                self.total.set(0);
                return Err(io::Error::other("the bundle holds more bytes than its limit"));
            }
        }
        Ok(count)
    }
}

/// The beginning of the first line that holds something, as far as the buffer goes.
pub(super) fn beginning(text: &mut dyn BufRead) -> String {
    let buffer = text.fill_buf().unwrap_or_default();
    let head = String::from_utf8_lossy(buffer.get(..4096).unwrap_or(buffer));
    let line = head.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or_default().chars().take(80).collect()
}
