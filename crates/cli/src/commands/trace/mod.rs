//! `sexton trace`: which packets circulate, for which address, and whose it was.

mod files;
mod fleet;
pub mod live;

use sexton_core::{judge::Judge, settings::Settings};

use super::emit;
use crate::{
    args::TraceArgs,
    output::trace::{self, Report},
    source,
};

/// Reads, follows, joins, prints.
pub fn run(args: &TraceArgs) -> anyhow::Result<u8> {
    if let Some(dir) = &args.fleet {
        return fleet::run(dir, args);
    }
    let state = if args.live {
        live::read(args)?
    } else {
        files::read(args)?
    };
    let settings = Settings::default();
    let at = state.taken_at.unwrap_or_else(source::now);
    let judge = Judge::new(&state, None, &settings, at);
    let report = Report::new(&judge);
    if let Some(path) = &args.report {
        let mut text = trace::vendor::write(&report, &state);
        if args.redact {
            text = trace::redact::Redaction::new(&state).apply(&text);
        }
        emit(Some(path), |out| Ok(out.write_all(text.as_bytes())?))?;
    }
    emit(args.out.as_deref(), |out| {
        trace::write(&report, args.output, args.verbose, out)
    })?;
    Ok(report.exit_code())
}
