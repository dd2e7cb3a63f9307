//! `sexton trace`: which packets circulate, for which address, and whose it was.

mod files;
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
    let state = if args.live {
        live::read(args)?
    } else {
        files::read(args)?
    };
    let settings = Settings::default();
    let at = state.taken_at.unwrap_or_else(source::now);
    let judge = Judge::new(&state, None, &settings, at);
    let report = Report::new(&judge);
    emit(args.out.as_deref(), |out| {
        trace::write(&report, args.output, args.verbose, out)
    })?;
    Ok(report.exit_code())
}
