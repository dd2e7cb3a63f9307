//! `sexton plan`: what a repair would do.

use std::{io::Write, path::Path};

use owo_colors::OwoColorize as _;
use sexton_core::{
    judge::Judge,
    plan::{self, Act, Choice, Plan},
    report::{Entry, Report},
};

use super::{chosen, emit};
use crate::{
    args::{ListFormat, PlanArgs},
    output::count,
    source,
};

/// Reads, judges, plans, prints.
pub fn run(args: &PlanArgs) -> anyhow::Result<u8> {
    let rules = chosen(&args.choice)?;
    let settings = args.settings.settings();
    let reading = source::read(&args.source, &[])?;
    let findings = Judge::new(&reading.state, None, &settings, reading.at).findings(rules.iter().copied());
    let mut choice = args.choice.choice();
    if !args.choice.is_given() {
        choice = Choice {
            tier: Some(1),
            ..choice
        };
    }
    let plan = plan::make(&reading.state, &findings, &choice, &settings, reading.at);
    let report = Report::new(&reading.state, &findings);
    let unplanned = report
        .findings
        .iter()
        .filter(|f| !plan.steps.iter().any(|s| s.findings.iter().any(|p| p.id == f.id)));
    let unplanned: Vec<_> = unplanned.collect();
    if let Some(path) = &args.out {
        emit(Some(path), |out| Ok(serde_json::to_writer_pretty(out, &plan)?))?;
    }
    match args.output {
        ListFormat::Json if args.out.is_none() => {
            emit(None, |out| Ok(serde_json::to_writer_pretty(out, &plan)?))?
        }
        _ => emit(None, |out| {
            write_plan(&plan, out)?;
            write_unplanned(&unplanned, out)?;
            if let Some(path) = &args.out {
                write_where(&plan, path, out)?;
            }
            Ok(())
        })?,
    }
    Ok(report.exit_code(&reading.state, &rules))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Where the plan was written, and how to carry it out if it can be.
fn write_where(plan: &Plan, path: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = path.display();
    if !plan.live || plan.steps.is_empty() {
        writeln!(out, "\nwritten to {path}")?;
        return Ok(());
    }
    writeln!(
        out,
        "\nwritten to {path}; carry it out before {:.0} with:\n  sexton repair --plan {path} --yes",
        plan.expires_at
    )?;
    Ok(())
}

/// What has no step: the reason once, then every object that it holds for.
fn write_unplanned(findings: &[&Entry], out: &mut dyn Write) -> anyhow::Result<()> {
    let why = |finding: &Entry| {
        finding
            .why_not_repair
            .clone()
            .unwrap_or_else(|| "not chosen".to_owned())
    };
    for alike in findings.chunk_by(|a, b| a.rule == b.rule && why(a) == why(b)) {
        let Some(first) = alike.first() else { continue };
        writeln!(out, "\n{} {}: {}", "no step".yellow(), first.rule, why(first))?;
        for finding in alike {
            writeln!(out, "  {}", first_line(finding.text()))?;
        }
    }
    Ok(())
}

/// The steps for a person's eyes.
pub fn write_plan(plan: &Plan, out: &mut dyn Write) -> anyhow::Result<()> {
    let steps = count(plan.steps.len() as u64, "step");
    writeln!(
        out,
        "{}",
        format!("Plan {} for node {}: {steps}.", plan.short_id(), plan.node).bold()
    )?;
    if !plan.live {
        writeln!(
            out,
            "It was made from a recording: it is for reading, and cannot be carried out."
        )?;
    }
    for step in &plan.steps {
        writeln!(
            out,
            "\n{} {}",
            format!("step {}", step.number).bold(),
            step.act.describe()
        )?;
        match &step.act {
            Act::XtRestore { edit } => {
                for line in &edit.delete {
                    writeln!(out, "  {}", line.replacen("-A ", "-D ", 1).red())?;
                }
                for chain in &edit.drop_chains {
                    writeln!(out, "  {}", format!("-X {chain}").red())?;
                }
                for line in &edit.add {
                    writeln!(out, "  {}", line.green())?;
                }
            }
            Act::NftEdit { edit } => {
                for line in edit.commands() {
                    if line.starts_with("nft delete") {
                        writeln!(out, "  {}", line.red())?;
                    } else {
                        writeln!(out, "  {}", line.green())?;
                    }
                }
            }
            Act::ConntrackDelete { entries } => {
                for entry in entries {
                    writeln!(out, "  {}", entry.text().red())?;
                }
            }
            _ => writeln!(out, "  {}", step.expects)?,
        }
        for line in step.reason.lines() {
            writeln!(out, "  why: {line}")?;
        }
        writeln!(out, "  undo: {}", step.undo)?;
        if !step.depends_on.is_empty() {
            let first: Vec<String> = step.depends_on.iter().map(|n| format!("step {n}")).collect();
            writeln!(out, "  only after: {}", first.join(", "))?;
        }
    }
    for left in &plan.left_out {
        writeln!(
            out,
            "{} {} {}: {}",
            "left out".yellow(),
            left.finding.rule,
            first_line(&left.finding.object),
            left.why
        )?;
    }
    Ok(())
}
