//! `sexton undo`: put back what a repair took, where nobody needs the place now.

use std::io::Write;

use owo_colors::OwoColorize as _;
use sexton_core::{
    model::XtRule,
    plan::Act,
    repair::{self, Outcome, Record, Undone},
};

use super::{emit, write_document};
use crate::{
    args::{ListFormat, UndoArgs},
    journal::{self, JournalFile},
    source,
};

/// The version of the JSON that `-o json` prints.
const SCHEMA: &str = "sexton.dev/undo/v1";

/// Reads the journal and takes its round back, last step first.
pub fn run(args: &UndoArgs) -> anyhow::Result<u8> {
    let records = journal::read(&journal::find(&args.journal, &args.state_dir))?;
    if !args.yes {
        emit(None, |out| write_intended(&records, args.output, out))?;
        return Ok(0);
    }
    let settings = args.settings.settings();
    let mut node = source::open_live(&args.source, &[], false)?;
    let mut own = JournalFile::create(&args.state_dir, source::now(), "undo")?;
    let parse = |line: &str| -> Option<XtRule> {
        sexton_formats::iptables::parse_rule(line)
            .ok()
            .map(|(_, rule)| rule)
    };
    let undone = repair::undo(&mut node, &mut own, &records, &settings, &parse)?;
    let journal = own.path.display().to_string();
    emit(None, |out| match args.output {
        ListFormat::Json => write_json(&undone, &journal, out),
        ListFormat::Table => write_table(&undone, &journal, out),
    })?;
    Ok(u8::from(undone.iter().any(|u| !u.outcome.is_good())))
}

/// Without `--yes`: what would be put back, last first.
fn write_intended(records: &[Record], format: ListFormat, out: &mut dyn Write) -> anyhow::Result<()> {
    let acts: Vec<&Act> = records
        .iter()
        .rev()
        .filter_map(|record| match record {
            Record::Intent { act, .. } => Some(act.as_ref()),
            _ => None,
        })
        .collect();
    if format == ListFormat::Json {
        let undos: Vec<_> = acts
            .iter()
            .map(|act| serde_json::json!({ "of": act, "undo": act.undo() }))
            .collect();
        return write_document(
            &serde_json::json!({ "schema": SCHEMA, "carried_out": false, "acts": undos }),
            out,
        );
    }
    writeln!(
        out,
        "{}",
        "Would be put back, last first, where nobody needs the place:".bold()
    )?;
    for act in acts {
        match act.undo() {
            Some(back) => writeln!(out, "  {}", back.describe())?,
            None => writeln!(out, "  nothing for: {}", act.describe())?,
        }
    }
    writeln!(out, "Nothing was changed. Add --yes to carry this out.")?;
    Ok(())
}

fn write_json(undone: &[Undone], journal: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let acts: Vec<_> = undone
        .iter()
        .map(|item| serde_json::json!({ "undo": item.act, "result": item.outcome }))
        .collect();
    write_document(
        &serde_json::json!({ "schema": SCHEMA, "carried_out": true, "acts": acts, "journal": journal }),
        out,
    )
}

fn write_table(undone: &[Undone], journal: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    for item in undone {
        let (word, why) = match &item.outcome {
            Outcome::Done => ("put back", ""),
            Outcome::AlreadyGone => ("nothing to do", ""),
            Outcome::Changed(why)
            | Outcome::JudgedDifferently(why)
            | Outcome::Failed(why)
            | Outcome::CameBack(why)
            | Outcome::NotProved(why) => ("left as it is", why.as_str()),
        };
        writeln!(out, "{}: {}", word.bold(), item.act.describe())?;
        if !why.is_empty() {
            writeln!(out, "  {why}")?;
        }
    }
    writeln!(out, "journal: {journal}")?;
    Ok(())
}
