//! `sexton audit`: what is wrong, and what that rests on.

use sexton_core::{judge::Judge, report::Report};

use super::{chosen, emit};
use crate::{args::AuditArgs, output, source};

/// Reads, judges, prints.
pub fn run(args: &AuditArgs) -> anyhow::Result<u8> {
    let rules = chosen(&args.choice)?;
    let settings = args.settings.settings();
    let reading = source::read(&args.source, &[])?;
    let judge = Judge::new(&reading.state, None, &settings, reading.at);
    let mut findings = judge.findings(rules.iter().copied());
    let choice = args.choice.choice();
    if !choice.namespaces.is_empty() {
        findings.retain(|f| {
            f.owner
                .as_ref()
                .is_some_and(|o| choice.namespaces.contains(&o.namespace))
        });
    }
    if let Some(limit) = choice.limit {
        findings.truncate(limit);
    }
    let report = Report::new(&reading.state, &findings);
    emit(args.out.as_deref(), |out| {
        output::write(&report, args.output, args.verbose, out)
    })?;
    Ok(report.exit_code(&reading.state, &rules))
}
