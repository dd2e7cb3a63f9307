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
            .with_context(|| format!("cannot make the journal's directory {}", dir.display()))?;
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
