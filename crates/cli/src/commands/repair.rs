//! `sexton repair`: judge again, apply, verify, report.

use std::{fs, io::Write, path::Path};

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use sexton_core::{
    finding::{Finding, Verdict},
    judge::Judge,
    model::Timestamp,
    node::Probed,
    plan::{self, Plan},
    repair::{self, Order, Outcome, RepairError, Round},
    report::Report,
};

use super::{chosen, emit, write_document};
use crate::{
    args::{ListFormat, RepairArgs},
    journal::JournalFile,
    source,
};

/// Carries out one round.
pub fn run(args: &RepairArgs) -> anyhow::Result<u8> {
    if args.source.bundle.is_some() {
        anyhow::bail!(
            "a recording cannot be repaired; run this on the node, or `sexton plan --bundle` to read what it would do"
        );
    }
    if args.plan.is_none() && !args.choice.is_given() {
        anyhow::bail!("say what to repair: --tier 1, --rule RULE, or --plan FILE");
    }
    chosen(&args.choice)?;
    let settings = args.settings.settings();
    let choice = args.choice.choice();
    let reviewed = args.plan.as_ref().map(|path| -> anyhow::Result<Plan> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read the plan {shown}"))?;
        Plan::parse(&text).with_context(|| format!("cannot use the plan {shown}"))
    });
    let reviewed = reviewed.transpose()?;
    let mut node = source::open_live(&args.source, &[], true)?;
    if !args.yes {
        return show(&mut node, args, reviewed);
    }
    let started = source::now();
    let word = reviewed
        .as_ref()
        .map_or("repair", |plan| plan.short_id())
        .to_owned();
    let mut journal = JournalFile::create(&args.state_dir, started, &word)?;
    let order = Order {
        settings: &settings,
        choice: &choice,
        plan: reviewed,
        probe: !args.no_probe,
    };
    let round = match repair::round(&mut node, &mut journal, order) {
        Ok(round) => round,
        Err(RepairError::Plan(refused)) => {
            journal.discard();
            return Err(refused).with_context(|| refusal(args));
        }
        Err(stopped) => {
            return Err(stopped).with_context(|| {
                format!(
                    "the repair did not finish; what it did is in {}",
                    journal.path.display()
                )
            });
        }
    };
    let path = journal.path.display().to_string();
    emit(None, |out| write_round(&round, args.output, &path, started, out))?;
    let unjudged = round.remaining.iter().any(|f| f.verdict == Verdict::Unknown);
    Ok(match (round.is_good(), unjudged) {
        (false, _) => 1,
        (true, true) => 3,
        (true, false) => 0,
    })
}

/// That a plan file is not carried out.
fn refusal(args: &RepairArgs) -> String {
    let path = args.plan.as_deref().unwrap_or(Path::new("of this run"));
    format!("the plan {} is refused, and nothing was changed", path.display())
}

/// Without `--yes`: the plan, and that nothing was changed.
fn show(node: &mut sexton_linux::LinuxNode, args: &RepairArgs, reviewed: Option<Plan>) -> anyhow::Result<u8> {
    let settings = args.settings.settings();
    let state = node.observe();
    let now = source::now();
    let plan = match reviewed {
        Some(plan) => {
            plan.check(&state, now).with_context(|| refusal(args))?;
            plan
        }
        None => {
            let findings = Judge::new(&state, None, &settings, now).all();
            plan::make(&state, &findings, &args.choice.choice(), &settings, now)
        }
    };
    emit(None, |out| {
        if args.output == ListFormat::Json {
            return write_document(&plan, out);
        }
        super::plan::write_plan(&plan, out)?;
        let next = if plan.steps.is_empty() {
            "There is nothing to repair."
        } else {
            "Nothing was changed. Add --yes to carry this out."
        };
        writeln!(out, "\n{next}")?;
        Ok(())
    })?;
    Ok(if plan.steps.is_empty() { 0 } else { 1 })
}

fn word(outcome: &Outcome) -> (String, Option<&str>) {
    match outcome {
        Outcome::Done => ("done".green().to_string(), None),
        Outcome::AlreadyGone => ("already gone".green().to_string(), None),
        Outcome::Changed(why) => ("changed meanwhile".yellow().to_string(), Some(why)),
        Outcome::JudgedDifferently(why) => ("judged differently now".yellow().to_string(), Some(why)),
        Outcome::Failed(why) => ("failed".red().to_string(), Some(why)),
        Outcome::CameBack(why) => ("came back".red().to_string(), Some(why)),
        Outcome::NotProved(why) => ("not proved".red().to_string(), Some(why)),
    }
}

fn write_round(
    round: &Round,
    format: ListFormat,
    journal: &str,
    started: Timestamp,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if format == ListFormat::Json {
        return write_json(round, journal, out);
    }
    let good = round.repaired.iter().filter(|r| r.outcome.is_good()).count();
    let took = source::now().duration_since(started).unsigned_abs().as_secs_f64();
    let line = format!(
        "Repaired {good} of {} findings on node {} in {took:.1} s.",
        round.repaired.len() + round.plan.left_out.len(),
        round.plan.node
    );
    writeln!(out, "{}", line.bold())?;
    for item in &round.repaired {
        let (word, why) = word(&item.outcome);
        writeln!(out, "  {word}  {}", item.finding.rule)?;
        for line in item.finding.object.lines() {
            writeln!(out, "    {line}")?;
        }
        if let Some(why) = why {
            writeln!(out, "    {why}")?;
        }
    }
    for left in &round.plan.left_out {
        writeln!(
            out,
            "  {}  {} {}: {}",
            "left out".yellow(),
            left.finding.rule,
            left.finding.object,
            left.why
        )?;
    }
    let arrived = round.proofs.iter().filter(|p| p.seen == Probed::Arrived).count();
    if !round.proofs.is_empty() {
        writeln!(
            out,
            "traffic: {arrived} of {} mappings proved",
            round.proofs.len()
        )?;
    }
    for proof in &round.proofs {
        match &proof.seen {
            Probed::Arrived => {}
            Probed::Lost(why) => writeln!(out, "  {} {}: {why}", "lost".red(), proof.probe)?,
            Probed::NotTried(why) => writeln!(out, "  {} {}: {why}", "not tried".yellow(), proof.probe)?,
        }
    }
    writeln!(
        out,
        "left on the node: {}",
        crate::output::count(round.remaining.len() as u64, "finding")
    )?;
    // The reason once, then every object that it holds for.
    let why = |finding: &Finding| {
        let why = finding.why_not_repair.as_deref();
        why.unwrap_or("not chosen").to_owned()
    };
    let alike = |a: &Finding, b: &Finding| a.rule == b.rule && a.verdict == b.verdict && why(a) == why(b);
    for group in round.remaining.chunk_by(alike) {
        let Some(first) = group.first() else { continue };
        let (verdict, rule, why) = (first.verdict, first.rule, why(first));
        if group.len() == 1 {
            let text = first.object.text();
            let line = text.lines().next().unwrap_or_default();
            writeln!(out, "  {verdict} {rule} {line}: {why}")?;
            continue;
        }
        writeln!(out, "  {verdict} {rule}: {why}")?;
        for finding in group {
            let text = finding.object.text();
            writeln!(out, "    {}", text.lines().next().unwrap_or_default())?;
        }
    }
    writeln!(
        out,
        "journal: {journal} (take it back with: sexton undo {journal} --yes)"
    )?;
    Ok(())
}

fn write_json(round: &Round, journal: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let repaired: Vec<_> = round
        .repaired
        .iter()
        .map(|r| serde_json::json!({ "finding": r.finding, "step": r.step, "result": r.outcome }))
        .collect();
    let proofs: Vec<_> = round
        .proofs
        .iter()
        .map(|p| {
            let (seen, why) = match &p.seen {
                Probed::Arrived => ("arrived", None),
                Probed::Lost(why) => ("lost", Some(why)),
                Probed::NotTried(why) => ("not-tried", Some(why)),
            };
            serde_json::json!({ "probe": p.probe, "seen": seen, "why": why })
        })
        .collect();
    let document = serde_json::json!({
        "schema": "sexton.dev/repair/v1",
        "node": round.plan.node,
        "good": round.is_good(),
        "repaired": repaired,
        "left_out": round.plan.left_out,
        "proofs": proofs,
        "journal": journal,
        "after": Report::new(&round.state, &round.remaining),
    });
    write_document(&document, out)
}
