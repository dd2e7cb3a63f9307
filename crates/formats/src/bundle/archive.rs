//! Bundles in archives: tar, tar.gz and zip; and a tar inside of a bundle, one level deep.
//!
//! Nothing is unpacked to disk. Links and paths that leave the bundle are refused, and so is an archive that becomes much
//! larger than it is.

use std::{
    cell::Cell,
    io::{self, BufReader, Read, Seek, SeekFrom},
    ops::ControlFlow,
    rc::Rc,
};

use flate2::read::MultiGzDecoder;
use sexton_core::model::{Timestamp, Unread};
use tar::EntryType;
use zip::{ExtraField, ZipArchive};

use super::files::{FileEntry, Files, LimitError, Limited, Limits, VisitError, Visitor, clean_path};

/// An archive that can be read again from its beginning.
pub struct Archive<R> {
    reader: R,
    limits: Limits,
}

impl<R: Read + Seek> Archive<R> {
    /// An archive in a file or in memory. What kind it is, is told by its content.
    pub const fn new(reader: R, limits: Limits) -> Self {
        Self { reader, limits }
    }
}

impl<R: Read + Seek> Files for Archive<R> {
    fn visit(&mut self, visitor: &mut Visitor<'_>) -> Result<Vec<Unread>, VisitError> {
        let mut head = Vec::new();
        self.reader
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.reader.by_ref().take(4).read_to_end(&mut head))
            .and_then(|_| self.reader.seek(SeekFrom::Start(0)))
            .map_err(|source| VisitError::Read {
                after: String::new(),
                source,
            })?;
        if head.starts_with(b"PK") {
            return zip(&mut self.reader, &self.limits, visitor);
        }
        let mut walk = TarWalk {
            prefix: String::new(),
            limits: &self.limits,
            refused: Vec::new(),
            reached: String::new(),
        };
        walk.open(BufReader::new(&mut self.reader), visitor)?;
        Ok(walk.refused)
    }
}

/// True for the name of a tar inside of a bundle, such as an agent's archive of `antctl supportbundle`.
pub(super) fn is_nested(path: &str) -> bool {
    [".tar.gz", ".tgz", ".tar"].iter().any(|end| path.ends_with(end))
}

/// Visits the files of a tar inside of a bundle; their paths begin with the tar's own.
pub(super) fn visit_nested(
    path: &str,
    reader: &mut dyn Read,
    limits: &Limits,
    visitor: &mut Visitor<'_>,
) -> Result<Vec<Unread>, VisitError> {
    let mut walk = TarWalk {
        prefix: format!("{path}/"),
        limits,
        refused: Vec::new(),
        reached: path.to_owned(),
    };
    walk.open(reader, visitor)?;
    Ok(walk.refused)
}

struct TarWalk<'l> {
    prefix: String,
    limits: &'l Limits,
    refused: Vec<Unread>,
    /// The last file.
    reached: String,
}

impl TarWalk<'_> {
    fn failed(&self, source: io::Error) -> VisitError {
        VisitError::Read {
            after: self.reached.clone(),
            source,
        }
    }

    /// Takes gzip off, within the limits.
    fn open(&mut self, mut reader: impl Read, visitor: &mut Visitor<'_>) -> Result<(), VisitError> {
        let mut head = [0_u8; 2];
        let count = read_full(&mut reader, &mut head).map_err(|err| self.failed(err))?;
        let head = head.get(..count).unwrap_or_default().to_vec();
        let is_gzip = head == [0x1f, 0x8b];
        let reader = io::Cursor::new(head).chain(reader);
        if !is_gzip {
            return self.walk(Limited::new(reader, self.limits.total, "the bundle"), visitor);
        }
        let compressed = Rc::new(Cell::new(0));
        let counted = Counting {
            reader,
            count: Rc::clone(&compressed),
        };
        let checked = Ratio {
            reader: MultiGzDecoder::new(BufReader::new(counted)),
            compressed,
            decompressed: 0,
            limits: *self.limits,
        };
        self.walk(Limited::new(checked, self.limits.total, "the bundle"), visitor)
    }

    fn walk(&mut self, reader: impl Read, visitor: &mut Visitor<'_>) -> Result<(), VisitError> {
        let at_end = Rc::new(Cell::new(false));
        let reader = Ending {
            reader,
            at_end: Rc::clone(&at_end),
        };
        let mut archive = tar::Archive::new(reader);
        let entries = archive.entries().map_err(|err| self.failed(err))?;
        let mut any = false;
        for entry in entries {
            let mut entry = match entry {
                Ok(entry) => entry,
                // Not even a first header: the content is something else.
                Err(err) if !any && err.get_ref().is_none_or(|inner| !inner.is::<LimitError>()) => {
                    return if err.kind() == io::ErrorKind::Other || err.kind() == io::ErrorKind::InvalidInput
                    {
                        Err(VisitError::NotAnArchive)
                    } else {
                        Err(self.failed(err))
                    };
                }
                Err(err) => return Err(self.failed(err)),
            };
            any = true;
            let kind = entry.header().entry_type();
            if matches!(kind, EntryType::Directory | EntryType::XGlobalHeader) {
                continue;
            }
            let told = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let path = match clean_path(&told) {
                Ok(path) => format!("{}{path}", self.prefix),
                Err(why) => {
                    self.refuse(format!("{}{told}", self.prefix), &why);
                    continue;
                }
            };
            self.reached.clone_from(&path);
            if !matches!(
                kind,
                EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse
            ) {
                self.refuse(
                    path,
                    if kind.is_symlink() || kind.is_hard_link() {
                        "a link"
                    } else {
                        "a special file"
                    },
                );
                continue;
            }
            let size = entry.size();
            let file = FileEntry {
                path,
                size: Some(size),
                mtime: entry.header().mtime().ok().and_then(timestamp),
            };
            let mut whole = Whole {
                reader: &mut entry,
                left: size,
            };
            if visitor(&file, &mut whole).is_break() {
                return Ok(());
            }
        }
        if at_end.get() {
            // A tar ends with blocks of zeros; here the bytes ended first.
            let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "the tar has no end: it is cut off");
            return Err(if any {
                self.failed(cut)
            } else {
                VisitError::NotAnArchive
            });
        }
        Ok(())
    }

    fn refuse(&mut self, path: String, why: &str) {
        self.refused.push(Unread {
            path,
            why: why.to_owned(),
        });
    }
}

/// Seconds since 1970; 0 is what tools write that drop times.
fn timestamp(seconds: u64) -> Option<Timestamp> {
    let seconds = i64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
    Timestamp::from_second(seconds).ok()
}

fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while let Some(rest) = buffer.get_mut(count..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest)? {
            0 => break,
            more => count += more,
        }
    }
    Ok(count)
}

fn zip<R: Read + Seek>(
    reader: &mut R,
    limits: &Limits,
    visitor: &mut Visitor<'_>,
) -> Result<Vec<Unread>, VisitError> {
    let failed = |after: &str, source: io::Error| VisitError::Read {
        after: after.to_owned(),
        source,
    };
    let mut archive = ZipArchive::new(reader).map_err(|err| failed("", err.into()))?;
    let mut refused = Vec::new();
    for index in 0..archive.len() {
        let told = match archive.name_for_index(index) {
            Some(Ok(name)) => name.into_owned(),
            _ => format!("entry {index}"),
        };
        let mut refuse = |why: String| {
            refused.push(Unread {
                path: told.clone(),
                why,
            })
        };
        let path = match clean_path(&told) {
            Ok(path) => path,
            Err(why) => {
                refuse(why);
                continue;
            }
        };
        let mut entry = match archive.by_index(index) {
            Ok(entry) => entry,
            Err(err) => {
                refuse(format!("cannot be read: {err}"));
                continue;
            }
        };
        if entry.is_dir() {
            continue;
        }
        if entry.is_symlink() {
            refuse("a link".to_owned());
            continue;
        }
        // The time in the header itself has no zone; Info-ZIP's field is in UTC.
        let modified = entry.extra_data_fields().find_map(|field| match field {
            ExtraField::ExtendedTimestamp(times) => times.mod_time(),
            _ => None,
        });
        let file = FileEntry {
            path,
            size: Some(entry.size()),
            mtime: modified.and_then(|seconds| timestamp(seconds.into())),
        };
        let compressed = Rc::new(Cell::new(entry.compressed_size()));
        let mut checked = Ratio {
            reader: &mut entry,
            compressed,
            decompressed: 0,
            limits: *limits,
        };
        if visitor(&file, &mut checked) == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(refused)
}

/// Counts what passes.
struct Counting<R> {
    reader: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.count.set(self.count.get().saturating_add(count as u64));
        Ok(count)
    }
}

/// Fails when too much comes out for what went in.
struct Ratio<R> {
    reader: R,
    compressed: Rc<Cell<u64>>,
    decompressed: u64,
    limits: Limits,
}

impl<R: Read> Read for Ratio<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.decompressed = self.decompressed.saturating_add(count as u64);
        let allowed = self.compressed.get().saturating_mul(self.limits.ratio);
        if self.decompressed > self.limits.ratio_after && self.decompressed > allowed {
            return Err(LimitError::Ratio {
                ratio: self.limits.ratio,
            }
            .into());
        }
        Ok(count)
    }
}

/// Remembers that the bytes ended.
struct Ending<R> {
    reader: R,
    at_end: Rc<Cell<bool>>,
}

impl<R: Read> Read for Ending<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.at_end.set(count == 0 && !buffer.is_empty());
        Ok(count)
    }
}

/// A file of an archive that must give as many bytes as its header says.
struct Whole<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.left = self.left.saturating_sub(count as u64);
        if count == 0 && !buffer.is_empty() && self.left > 0 {
            let what = "the archive is cut off inside of this file";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
