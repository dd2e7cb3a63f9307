//! `sexton undo`: put back what a repair took, where nobody needs the place now.

use owo_colors::OwoColorize as _;
use sexton_core::{
    model::XtRule,
    repair::{self, Outcome, Record},
};

use super::emit;
use crate::{
    args::UndoArgs,
    journal::{self, JournalFile},
    source,
};

/// Reads the journal and takes its round back, last step first.
pub fn run(args: &UndoArgs) -> anyhow::Result<u8> {
    let records = journal::read(&journal::find(&args.journal, &args.state_dir))?;
    if !args.yes {
        emit(None, |out| {
            writeln!(
                out,
                "{}",
                "Would be put back, last first, where nobody needs the place:".bold()
            )?;
            let acts = records.iter().rev().filter_map(|record| match record {
                Record::Intent { act, .. } => Some(act),
                _ => None,
            });
            for act in acts {
                match act.undo() {
                    Some(back) => writeln!(out, "  {}", back.describe())?,
                    None => writeln!(out, "  nothing for: {}", act.describe())?,
                }
            }
            writeln!(out, "Nothing was changed. Add --yes to carry this out.")?;
            Ok(())
        })?;
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
    emit(None, |out| {
        for item in &undone {
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
        writeln!(out, "journal: {}", own.path.display())?;
        Ok(())
    })?;
    Ok(u8::from(undone.iter().any(|u| !u.outcome.is_good())))
}
