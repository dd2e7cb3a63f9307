//! The seam to what holds a bundle: a folder, an archive, a test's list.

use std::{
    io::{self, Read},
    ops::ControlFlow,
};

use sexton_core::model::{Timestamp, Unread};

/// A file of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileEntry {
    /// Its path inside the bundle, with `/` between the parts.
    pub path: String,
    /// Its size in bytes where that is told.
    pub size: Option<u64>,
    /// Its modification time; `None` where the bundle lost it.
    pub mtime: Option<Timestamp>,
}

/// Is called for every file with its content; [`ControlFlow::Break`] ends the visit.
pub type Visitor<'a> = dyn FnMut(&FileEntry, &mut dyn Read) -> ControlFlow<()> + 'a;

/// The files of a bundle. It can be visited several times and gives the same files each time.
pub trait Files {
    /// Calls the visitor for every regular file, and gives back what was refused: links, paths that leave the bundle.
    ///
    /// # Errors
    ///
    /// [`VisitError`] when the files cannot be listed to their end. What was visited before it is good.
    fn visit(&mut self, visitor: &mut Visitor<'_>) -> Result<Vec<Unread>, VisitError>;
}

/// A bundle that cannot be walked to its end.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// The archive or folder cannot be read on.
    #[error("cannot read the bundle after {after:?}")]
    Read {
        /// The last file that was reached; empty if none.
        after: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is neither tar, tar.gz nor zip.
    #[error("not an archive that is known here (expected tar, tar.gz or zip)")]
    NotAnArchive,
}

/// How much a bundle may hold, since a small archive can claim to be a huge one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file, decompressed.
    pub file: u64,
    /// Bytes of one file that is read into memory as a whole (nft, `ip`, `crictl`; not Pods, iptables and conntrack).
    pub in_memory: u64,
    /// Bytes of all files, decompressed.
    pub total: u64,
    /// Decompressed bytes for each compressed one. Real dumps stay below 50; deflate reaches 1,000.
    pub ratio: u64,
    /// Bytes before the ratio is looked at.
    pub ratio_after: u64,
    /// Files.
    pub files: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file: 8 << 30,
            in_memory: 512 << 20,
            total: 32 << 30,
            ratio: 200,
            ratio_after: 64 << 20,
            files: 1_000_000,
        }
    }
}

/// A limit that was reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Too many bytes.
    #[error("more than {limit} bytes when decompressed ({what})")]
    Bytes {
        /// The limit.
        limit: u64,
        /// Of what.
        what: &'static str,
    },
    /// Too many bytes for so few.
    #[error("more than {ratio} bytes decompressed for each compressed one: a zip bomb")]
    Ratio {
        /// The limit.
        ratio: u64,
    },
    /// Too many files.
    #[error("more than {0} files")]
    Files(u64),
}

impl From<LimitError> for io::Error {
    fn from(err: LimitError) -> Self {
        Self::other(err)
    }
}

/// A reader that fails, and does not merely end, at a limit.
pub(crate) struct Limited<R> {
    reader: R,
    left: u64,
    error: LimitError,
}

impl<R: Read> Limited<R> {
    pub(crate) const fn new(reader: R, limit: u64, what: &'static str) -> Self {
        Self {
            reader,
            left: limit,
            error: LimitError::Bytes { limit, what },
        }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.left = match self.left.checked_sub(count as u64) {
            Some(left) => left,
            None => return Err(self.error.clone().into()),
        };
        Ok(count)
    }
}

/// A path of an archive in plain form, or why it is refused.
///
/// # Errors
///
/// The reason: it is absolute, has a drive letter or leaves the bundle by `..`.
pub fn clean_path(path: &str) -> Result<String, String> {
    let path = path.replace('\\', "/");
    let mut parts = Vec::new();
    if path.starts_with('/') || path.as_bytes().get(1) == Some(&b':') {
        return Err("the path is absolute".to_owned());
    }
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err("the path leaves the bundle".to_owned()),
            part if part.chars().any(char::is_control) => {
                return Err("the path has control characters".to_owned());
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return Err("the path is empty".to_owned());
    }
    Ok(parts.join("/"))
}

/// Files in memory: what tests and fuzzing use.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles(pub Vec<(FileEntry, Vec<u8>)>);

impl MemoryFiles {
    /// From paths and contents, without times.
    pub fn new<P: Into<String>, C: Into<Vec<u8>>>(files: impl IntoIterator<Item = (P, C)>) -> Self {
        let entry = |(path, content): (P, C)| {
            let content = content.into();
            let entry = FileEntry {
                path: path.into(),
                size: Some(content.len() as u64),
                mtime: None,
            };
            (entry, content)
        };
        Self(files.into_iter().map(entry).collect())
    }
}

impl Files for MemoryFiles {
    fn visit(&mut self, visitor: &mut Visitor<'_>) -> Result<Vec<Unread>, VisitError> {
        for (entry, content) in &self.0 {
            if visitor(entry, &mut content.as_slice()).is_break() {
                break;
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        assert_eq!(clean_path("./a//b/./c.txt").unwrap(), "a/b/c.txt");
        assert_eq!(clean_path("a\\b").unwrap(), "a/b");
        for bad in [
            "/etc/passwd",
            "../x",
            "a/../../x",
            "C:\\x",
            "\\\\host\\x",
            "",
            "./",
            "a\nb",
        ] {
            assert!(clean_path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_limit_is_an_error_not_an_end() {
        let read = |limit| {
            let mut out = Vec::new();
            Limited::new(&b"12345"[..], limit, "a file")
                .read_to_end(&mut out)
                .map_err(|err| err.to_string())
        };
        assert_eq!(read(5), Ok(5));
        assert_eq!(
            read(4),
            Err("more than 4 bytes when decompressed (a file)".to_owned())
        );
    }
}
