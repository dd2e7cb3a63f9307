//! `sexton explain`: a rule's page; or who lives at an address, and every object that names it.

use std::{io::Write, net::IpAddr};

use owo_colors::OwoColorize as _;
use sexton_core::{
    explain::{self, Mention},
    judge::Judge,
    model::ContainerId,
    roster::{Residence, Standing},
    rules,
};

use super::emit;
use crate::{args::ExplainArgs, source};

/// Explains a rule without reading anything; anything else needs a reading.
pub fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    if let Some(rule) = rules::find(&args.what) {
        emit(None, |out| write_page(rule.page, out))?;
        return Ok(0);
    }
    let settings = args.settings.settings();
    if let Ok(ip) = args.what.parse::<IpAddr>() {
        let ip = ip.to_canonical();
        let reading = source::read(&args.source, &[ip])?;
        let judge = Judge::new(&reading.state, None, &settings, reading.at);
        let residence = judge.roster.address(ip);
        let mentions = explain::mentions_of_address(&judge, ip);
        let service = reading.state.services.value.iter();
        let service = service.into_iter().find(|s| s.vips().any(|vip| vip == ip));
        let answer = match service {
            // No Pod lives at an address that the data plane translates.
            Some(service) if matches!(residence.standing, Standing::Nobody | Standing::Unknown) => {
                format!(
                    "{ip} is an address of Service {}/{}.",
                    service.namespace, service.name
                )
            }
            _ => answer(&ip.to_string(), "at", &residence),
        };
        emit(None, |out| write_resident(&answer, &residence, &mentions, out))?;
        return Ok(0);
    }
    let hex = args.what.len() >= 12 && args.what.bytes().all(|b| b.is_ascii_hexdigit());
    if hex {
        let reading = source::read(&args.source, &[])?;
        let judge = Judge::new(&reading.state, None, &settings, reading.at);
        let node = &reading.state.identity.name;
        if let Some(finding) = judge.all().into_iter().find(|f| f.id(node) == args.what) {
            let report = sexton_core::report::Report::new(&reading.state, std::slice::from_ref(&finding));
            emit(None, |out| {
                crate::output::write(&report, crate::args::Format::Table, false, true, out)
            })?;
            return Ok(0);
        }
        let id = explain::full_id(&reading.state, &ContainerId::new(&args.what));
        let born = judge.born(&id, None).map(|(at, _)| at);
        let residence = judge.roster.container(&id, born);
        let mentions = explain::mentions_of_container(&judge, &id);
        let answer = answer(id.as_str(), "in container", &residence);
        emit(None, |out| write_resident(&answer, &residence, &mentions, out))?;
        return Ok(0);
    }
    let known: Vec<&str> = rules::ALL.iter().map(|r| r.id).collect();
    anyhow::bail!(
        "{:?} is no rule, address, container ID (12 hex digits or more) or finding (16 hex digits, as an audit shows). \
        A Pod is asked for by its address: kubectl get pod -o wide. The rules are: {}",
        args.what,
        known.join(", ")
    )
}

fn write_page(page: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("# ").or_else(|| line.strip_prefix("## ")) {
            writeln!(out, "{}", title.bold())?;
        } else {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Who lives there, in one sentence. `place`: the words between `lives` and what was asked for.
fn answer(what: &str, place: &str, residence: &Residence) -> String {
    let owner = residence.owner.as_ref().map(|o| {
        let uid = o.uid.as_ref().map(|u| format!(" ({u})")).unwrap_or_default();
        format!("Pod {}{uid}", o.pod_name())
    });
    match (residence.standing, owner) {
        (Standing::Live, Some(owner)) => format!("{what} is alive: {owner}."),
        (Standing::Live, None) => format!("{what} is in use."),
        (Standing::Ended, Some(owner)) => {
            let when = residence.owner.as_ref().and_then(|o| o.ended_at);
            let when = when.map(|at| format!(" by {at:.0}")).unwrap_or_default();
            format!("{what} belonged to {owner}, which ended{when}.")
        }
        (Standing::Ended | Standing::Nobody, _) => format!("Nobody of this node lives {place} {what}."),
        (Standing::Unknown, _) => format!("Who lives {place} {what} cannot be told."),
    }
}

fn write_resident(
    answer: &str,
    residence: &Residence,
    mentions: &[Mention],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    writeln!(out, "{}", answer.bold())?;
    for evidence in &residence.evidence {
        writeln!(
            out,
            "  {} {}",
            format!("{}:", evidence.source).dimmed(),
            evidence.text
        )?;
    }
    if let Some(lacks) = residence.lacks() {
        writeln!(out, "  {} {lacks}", "still needed:".yellow())?;
    }
    writeln!(
        out,
        "\n{}",
        crate::output::count(mentions.len() as u64, "object").bold()
    )?;
    for mention in mentions {
        writeln!(out, "  {} {}", mention.kind.bold(), mention.source.dimmed())?;
        for line in mention.text.lines() {
            writeln!(out, "    {line}")?;
        }
        match &mention.finding {
            Some(finding) => {
                let verdict = format!("{} ({})", finding.verdict, finding.rule);
                writeln!(out, "    {}: {}", verdict.red(), finding.consequence)?;
            }
            None => writeln!(out, "    {}: {}", "no finding".green(), mention.why)?,
        }
    }
    Ok(())
}
