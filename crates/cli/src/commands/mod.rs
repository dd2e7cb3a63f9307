//! The subcommands, a file each.

pub mod audit;
pub mod collect;
pub mod explain;
pub mod loops;
pub mod plan;
pub mod repair;
pub mod trace;
pub mod undo;

use std::{fs, io::Write, path::Path};

use anyhow::Context as _;
use clap::CommandFactory as _;
use serde::Serialize;
use sexton_core::rules::{self, Rule};

use crate::args::{ChoiceArgs, Cli};

/// The rules that a choice takes; all without one.
fn chosen(choice: &ChoiceArgs) -> anyhow::Result<Vec<&'static Rule>> {
    for name in &choice.rule {
        if rules::find(name).is_none() {
            let known: Vec<&str> = rules::ALL.iter().map(|r| r.id).collect();
            anyhow::bail!("there is no rule {name:?}; there are: {}", known.join(", "));
        }
    }
    let taken = choice.choice();
    let all = rules::ALL.iter().copied();
    Ok(all
        .filter(|r| !choice.is_given() || taken.takes_rule(r.id, r.tier))
        .collect())
}

/// Writes to a file, whole or not at all, or to standard output.
fn emit(out: Option<&Path>, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let Some(path) = out else {
        let mut stdout = anstream::stdout().lock();
        write(&mut stdout)?;
        return Ok(stdout.flush()?);
    };
    let mut bytes = Vec::new();
    write(&mut bytes)?;
    // Colours belong to terminals.
    let plain = anstream::adapter::strip_bytes(&bytes).into_vec();
    let temporary = path.with_extension("part");
    fs::write(&temporary, plain)
        .and_then(|()| fs::rename(&temporary, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// One JSON document, as `-o json` prints it.
fn write_document(value: &impl Serialize, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    Ok(writeln!(out)?)
}

/// `sexton completions`.
pub fn completions(shell: clap_complete::Shell) -> anyhow::Result<u8> {
    let mut command = Cli::command();
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut command, "sexton", &mut bytes);
    emit(None, |out| Ok(out.write_all(&bytes)?))?;
    Ok(0)
}

/// `sexton man`.
pub fn man(dir: &Path) -> anyhow::Result<u8> {
    fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
        .with_context(|| format!("cannot write manual pages into {}", dir.display()))?;
    Ok(0)
}
