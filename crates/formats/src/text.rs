//! Text as collectors leave it: compressed or not, in UTF-8 or UTF-16, with LF or CR LF, cut off or not.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::read::MultiGzDecoder;

/// How much is read at once.
const BUFFER: usize = 128 * 1024;

/// A line may be this long, in bytes; a longer one is dropped without being kept in memory.
pub const MAX_LINE: usize = 1 << 20;

/// Opens text: takes gzip off (by its magic number) and turns UTF-16 with a byte order mark into UTF-8. The byte order
/// mark of UTF-8 is dropped.
pub fn open<'a>(reader: impl Read + 'a) -> Box<dyn BufRead + 'a> {
    decode(gunzip(reader))
}

/// Takes gzip off, if the first bytes say that it is gzip.
pub fn gunzip<'a>(reader: impl Read + 'a) -> Box<dyn Read + 'a> {
    let reader = Peeked::new(reader);
    if reader.starts_with(&[0x1f, 0x8b]) {
        return Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, reader)));
    }
    Box::new(reader)
}

/// Turns UTF-16 with a byte order mark into UTF-8, and drops the byte order mark of UTF-8.
///
/// The first `fill_buf` gives up to 16 KiB, as far as the text goes, so that a caller can look at its beginning.
pub fn decode<'a>(reader: impl Read + 'a) -> Box<dyn BufRead + 'a> {
    let mut reader = Peeked::new(reader);
    let big_endian = if reader.starts_with(&[0xef, 0xbb, 0xbf]) {
        reader.head.set_position(3);
        None
    } else if reader.starts_with(&[0xff, 0xfe]) {
        Some(false)
    } else if reader.starts_with(&[0xfe, 0xff]) {
        Some(true)
    } else {
        None
    };
    let reader = BufReader::with_capacity(BUFFER, reader);
    match big_endian {
        None => Box::new(reader),
        Some(big_endian) => Box::new(BufReader::with_capacity(BUFFER, Utf16::new(reader, big_endian))),
    }
}

/// How much is looked at before anything is decided.
const HEAD: usize = 16 * 1024;

/// A reader whose beginning was looked at. It gives the beginning in one piece, so that a caller's `fill_buf` sees it too.
struct Peeked<R> {
    head: Cursor<Vec<u8>>,
    /// What came instead of more bytes; it follows the head.
    error: Option<io::Error>,
    reader: R,
}

impl<R: Read> Peeked<R> {
    fn new(mut reader: R) -> Self {
        let mut head = Vec::new();
        let error = reader.by_ref().take(HEAD as u64).read_to_end(&mut head).err();
        Self {
            head: Cursor::new(head),
            error,
            reader,
        }
    }

    fn starts_with(&self, bytes: &[u8]) -> bool {
        self.head.get_ref().starts_with(bytes)
    }
}

impl<R: Read> Read for Peeked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.head.read(buffer)? {
            0 if !buffer.is_empty() => match self.error.take() {
                Some(err) => Err(err),
                None => self.reader.read(buffer),
            },
            count => Ok(count),
        }
    }
}

/// UTF-16 to UTF-8. What is no character becomes U+FFFD.
struct Utf16<R> {
    reader: R,
    big_endian: bool,
    at_start: bool,
    /// A high surrogate that waits for its low one.
    high: Option<u16>,
    /// UTF-8 that was not handed out yet.
    out: Vec<u8>,
    given: usize,
}

impl<R: BufRead> Utf16<R> {
    const fn new(reader: R, big_endian: bool) -> Self {
        Self {
            reader,
            big_endian,
            at_start: true,
            high: None,
            out: Vec::new(),
            given: 0,
        }
    }

    /// Decodes the next piece into `out`; leaves it empty at the end.
    fn decode_some(&mut self) -> io::Result<()> {
        self.out.clear();
        self.given = 0;
        while self.out.len() < BUFFER / 2 {
            let mut unit = [0_u8; 2];
            let first = self.reader.by_ref().take(1).read(&mut unit)?;
            if first == 0 {
                if self.high.take().is_some() {
                    self.push(char::REPLACEMENT_CHARACTER);
                }
                break;
            }
            if let [_, second] = &mut unit
                && self.reader.read(std::slice::from_mut(second))? == 0
            {
                // Half a unit: the text was cut.
                self.push(char::REPLACEMENT_CHARACTER);
                break;
            }
            let unit = if self.big_endian {
                u16::from_be_bytes(unit)
            } else {
                u16::from_le_bytes(unit)
            };
            if std::mem::take(&mut self.at_start) && unit == 0xfeff {
                continue;
            }
            self.push_unit(unit);
        }
        Ok(())
    }

    fn push_unit(&mut self, unit: u16) {
        let high = self.high.take();
        if let (Some(high), 0xdc00..0xe000) = (high, unit) {
            let pair = char::decode_utf16([high, unit]);
            return pair.for_each(|c| self.push(c.unwrap_or(char::REPLACEMENT_CHARACTER)));
        }
        if high.is_some() {
            self.push(char::REPLACEMENT_CHARACTER);
        }
        if (0xd800..0xdc00).contains(&unit) {
            self.high = Some(unit);
        } else {
            self.push(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }

    fn push(&mut self, c: char) {
        let mut buffer = [0_u8; 4];
        self.out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
    }
}

impl<R: BufRead> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.out.len() {
            self.decode_some()?;
        }
        let rest = self.out.get(self.given..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        self.given += count;
        Ok(count)
    }
}

/// A line without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its bytes, without LF or CR LF; nothing if it was too long.
    pub bytes: &'a [u8],
    /// Its number, from 1.
    pub number: u64,
    /// False for a last line that lacks its end: it may have been cut.
    pub ended: bool,
    /// True if it was longer than the limit and dropped.
    pub too_long: bool,
}

/// Reads lines without copying them, where they lie inside of the reader's buffer.
pub struct Lines<R> {
    reader: R,
    limit: usize,
    /// Bytes of the reader's buffer that belong to the line that was handed out.
    pending: usize,
    /// A line that spans buffers.
    long: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// Lines of at most [`MAX_LINE`] bytes.
    pub const fn new(reader: R) -> Self {
        Self::with_limit(reader, MAX_LINE)
    }

    /// Lines of at most `limit` bytes.
    pub const fn with_limit(reader: R, limit: usize) -> Self {
        Self {
            reader,
            limit,
            pending: 0,
            long: Vec::new(),
            number: 0,
        }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    ///
    /// The reader's. What came before the error was handed out, a line that the error cut is dropped.
    #[expect(clippy::should_implement_trait, reason = "a line borrows the reader")]
    pub fn next(&mut self) -> Option<io::Result<Line<'_>>> {
        self.reader.consume(std::mem::take(&mut self.pending));
        self.number += 1;
        let in_buffer = match self.reader.fill_buf() {
            Ok([]) => return None,
            Ok(buffer) => memchr::memchr(b'\n', buffer),
            Err(err) => return Some(Err(err)),
        };
        let Some(end) = in_buffer else {
            return Some(self.long_line());
        };
        self.pending = end + 1;
        let number = self.number;
        let limit = self.limit;
        Some(self.reader.fill_buf().map(|buffer| {
            let bytes = buffer.get(..end).unwrap_or_default();
            let too_long = bytes.len() > limit;
            Line {
                bytes: if too_long { &[] } else { without_cr(bytes) },
                number,
                ended: true,
                too_long,
            }
        }))
    }

    /// A line whose end is not in the buffer.
    fn long_line(&mut self) -> io::Result<Line<'_>> {
        self.long.clear();
        let mut too_long = false;
        let mut ended = false;
        while !ended {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            let (piece, used) = match memchr::memchr(b'\n', buffer) {
                Some(end) => {
                    ended = true;
                    (buffer.get(..end).unwrap_or_default(), end + 1)
                }
                None => (buffer, buffer.len()),
            };
            if self.long.len() + piece.len() > self.limit {
                too_long = true;
                self.long.clear();
            }
            if !too_long {
                self.long.extend_from_slice(piece);
            }
            self.reader.consume(used);
        }
        Ok(Line {
            bytes: without_cr(&self.long),
            number: self.number,
            ended,
            too_long,
        })
    }
}

fn without_cr(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

#[cfg(test)]
mod tests;
