//! `sexton audit`: what is wrong, and what that rests on.

use std::io::IsTerminal as _;

use sexton_core::{judge::Judge, report::Report};

use super::{chosen, emit};
use crate::{
    args::{AuditArgs, Format},
    output, source,
};

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
    let code = report.exit_code(&reading.state, &rules);
    let blind = code == 3;
    emit(args.out.as_deref(), |out| {
        output::write(&report, args.output, blind, args.verbose, out)?;
        if args.output == Format::Table && args.out.is_none() && std::io::stdout().is_terminal() {
            let next = output::next_step(&report, blind, args.source.bundle.is_some());
            next.map_or(Ok(()), |next| writeln!(out, "\n{next}"))?;
        }
        Ok(())
    })?;
    Ok(code)
}
