//! The journal: one JSON record a line, each on disk before the step that it announces.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use sexton_core::{
    model::Timestamp,
    repair::{Journal, JournalError, Record},
};

/// A journal file.
pub struct JournalFile {
    file: File,
    /// Where it is.
    pub path: PathBuf,
}

impl JournalFile {
    /// Makes `<state dir>/journal/<time>-<word>.jsonl`, readable by its owner only.
    pub fn create(state_dir: &Path, now: Timestamp, word: &str) -> anyhow::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let dir = state_dir.join("journal");
        fs::create_dir_all(&dir)
            .with_context(|| format!("cannot make the journal's directory {}", dir.display()))
            .map_err(as_root)?;
        let time = now.strftime("%Y%m%dT%H%M%SZ");
        for n in 0..100 {
            let suffix = if n == 0 { String::new() } else { format!("-{n}") };
            let path = dir.join(format!("{time}-{word}{suffix}.jsonl"));
            match OpenOptions::new()
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(file) => {
                    // The name itself must survive a power cut.
                    File::open(&dir)
                        .and_then(|d| d.sync_all())
                        .with_context(|| format!("cannot sync {}", dir.display()))?;
                    return Ok(Self { file, path });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make the journal {}", path.display()));
                }
            }
        }
        anyhow::bail!("a hundred journals of this second exist in {}", dir.display())
    }

    /// Takes the journal of a round that never began away again; one that holds a record stays.
    pub fn discard(&self) {
        if self.file.metadata().is_ok_and(|meta| meta.len() == 0) {
            // An empty journal that stays says as little as none.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Journal for JournalFile {
    fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        let failed =
            |error: &dyn std::fmt::Display| JournalError(format!("{}: {error}", self.path.display()));
        let mut line = serde_json::to_string(record).map_err(|e| failed(&e))?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(|e| failed(&e))?;
        self.file.sync_data().map_err(|e| failed(&e))
    }
}

/// Says what to do where the rights were too few.
fn as_root(error: anyhow::Error) -> anyhow::Error {
    let denied = error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied);
    if denied {
        error.context("nothing was changed: run this as root")
    } else {
        error
    }
}

/// The journal that was meant: a path, or the bare name of a file in `<state dir>/journal`.
pub fn find(given: &Path, state_dir: &Path) -> PathBuf {
    let kept = state_dir.join("journal").join(given);
    let bare = given.components().count() == 1;
    if bare && !given.exists() && kept.exists() {
        kept
    } else {
        given.to_owned()
    }
}

/// Reads a journal. A last line that was cut off by a crash is left out: what it announced had not begun.
pub fn read(path: &Path) -> anyhow::Result<Vec<Record>> {
    let file = File::open(path).with_context(|| format!("cannot open the journal {}", path.display()))?;
    let lines: Vec<String> = BufReader::new(file)
        .lines()
        .collect::<Result<_, _>>()
        .with_context(|| format!("cannot read the journal {}", path.display()))?;
    let mut records = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            Err(_) if index + 1 == lines.len() => {}
            Err(error) => {
                let place = format!("{}:{}", path.display(), index + 1);
                return Err(error).with_context(|| format!("{place}: expected a journal record"));
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_bare_name_is_looked_up_where_journals_are_kept() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path().join("journal");
        fs::create_dir(&dir).unwrap();
        let file = dir.join("20261130T225640Z-repair.jsonl");
        fs::write(&file, "").unwrap();
        let name = Path::new("20261130T225640Z-repair.jsonl");
        assert_eq!(find(name, state.path()), file);
        assert_eq!(find(&file, state.path()), file);
        for other in ["none.jsonl", "./20261130T225640Z-repair.jsonl"] {
            assert_eq!(find(Path::new(other), state.path()), Path::new(other));
        }
    }

    #[test]
    fn too_few_rights_are_told_as_what_to_do() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let told = as_root(anyhow::Error::new(denied).context("cannot make the directory"));
        assert_eq!(told.to_string(), "nothing was changed: run this as root");
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let told = as_root(anyhow::Error::new(full).context("cannot make the directory"));
        assert_eq!(told.to_string(), "cannot make the directory");
    }
}
