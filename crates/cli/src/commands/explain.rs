//! `sexton explain`: a rule's page; or who lives at an address, and every object that names it.

use std::{io::Write, net::IpAddr};

use owo_colors::OwoColorize as _;
use sexton_core::{
    explain::{self, Mention},
    finding::Finding,
    judge::Judge,
    model::{ContainerId, PodName},
    report::Report,
    roster::{Residence, Standing},
    rules,
    settings::Settings,
};

use super::{emit, write_document};
use crate::{
    args::{ExplainArgs, Format, ListFormat},
    output::count,
    source,
};

/// The version of the JSON that `-o json` prints.
const SCHEMA: &str = "sexton.dev/explain/v1";

/// What was asked for.
enum What {
    Rule(&'static rules::Rule),
    Address(IpAddr),
    /// A container's ID, or a finding's.
    Hex(String),
    Pod(PodName),
}

/// Who lives at a place, and what names it.
struct Place {
    /// In one sentence.
    answer: String,
    residence: Residence,
    mentions: Vec<Mention>,
}

/// Explains a rule without reading anything; anything else needs a reading.
pub fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let settings = args.settings.settings();
    match what(&args.what)? {
        What::Rule(rule) => emit(None, |out| match args.output {
            ListFormat::Table => write_page(rule.page, out),
            ListFormat::Json => write_document(
                &serde_json::json!({
                    "schema": SCHEMA,
                    "rule": { "id": rule.id, "tier": rule.tier, "summary": rule.summary, "page": rule.page },
                }),
                out,
            ),
        })?,
        What::Address(ip) => {
            let reading = source::read(&args.source, &[ip])?;
            let judge = Judge::new(&reading.state, None, &settings, reading.at);
            write(args, &[at_address(&judge, ip)], &[], &judge)?;
        }
        What::Hex(digits) => {
            let reading = source::read(&args.source, &[])?;
            let judge = Judge::new(&reading.state, None, &settings, reading.at);
            let node = &reading.state.identity.name;
            match judge.all().into_iter().find(|f| f.id(node) == digits) {
                Some(finding) => write_finding(&judge, finding, args.output)?,
                None => {
                    let id = explain::full_id(&reading.state, &ContainerId::new(&digits));
                    write(args, &[in_container(&judge, &id)], &[], &judge)?;
                }
            }
        }
        What::Pod(name) => of_pod(args, &name, &settings)?,
    }
    Ok(0)
}

fn what(word: &str) -> anyhow::Result<What> {
    if let Some(rule) = rules::find(word) {
        return Ok(What::Rule(rule));
    }
    if let Ok(ip) = word.parse::<IpAddr>() {
        return Ok(What::Address(ip.to_canonical()));
    }
    if word.len() >= 12 && word.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(What::Hex(word.to_owned()));
    }
    if let Some((namespace, name)) = word
        .split_once('/')
        .filter(|(a, b)| !a.is_empty() && !b.is_empty())
    {
        return Ok(What::Pod(PodName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }));
    }
    let known: Vec<&str> = rules::ALL.iter().map(|r| r.id).collect();
    anyhow::bail!(
        "{word:?} is no rule, address, Pod (NAMESPACE/NAME), container ID (12 hex digits or more) or finding (16 hex digits, as an \
        audit shows). The rules are: {}",
        known.join(", ")
    )
}

fn at_address(judge: &Judge<'_>, ip: IpAddr) -> Place {
    // An address that an adapter owns is used by an endpoint or by nobody, whatever else is read.
    let residence = match judge.roster.adapter_of(ip) {
        Some(_) => judge.roster.destination(ip),
        None => judge.roster.address(ip),
    };
    let mut services = judge.state.services.value.iter();
    let answer = match services.find(|s| s.vips().any(|vip| vip == ip)) {
        // No Pod lives at an address that the data plane translates.
        Some(service) if matches!(residence.standing, Standing::Nobody | Standing::Unknown) => format!(
            "{ip} is an address of Service {}/{}.",
            service.namespace, service.name
        ),
        _ => answer(&ip.to_string(), "at", &residence),
    };
    Place {
        answer,
        mentions: explain::mentions_of_address(judge, ip),
        residence,
    }
}

fn in_container(judge: &Judge<'_>, id: &ContainerId) -> Place {
    let born = judge.born(id, None).map(|(at, _)| at);
    let residence = judge.roster.container(id, born);
    Place {
        answer: answer(id.as_str(), "in container", &residence),
        mentions: explain::mentions_of_container(judge, id),
        residence,
    }
}

/// A Pod by its name: each address and sandbox that is or was its own, and the findings on what belonged to it.
fn of_pod(args: &ExplainArgs, name: &PodName, settings: &Settings) -> anyhow::Result<()> {
    // The first reading tells the addresses; the second keeps the connections that have them.
    let first = source::read(&args.source, &[])?;
    let places = explain::pod(&Judge::new(&first.state, None, settings, first.at), name);
    if !places.known {
        anyhow::bail!(
            "no source of node {} knows a Pod {name}: it may be of another node, or its name may be another (kubectl get pod -A -o wide)",
            first.state.identity.name
        );
    }
    let asked: Vec<IpAddr> = places.addresses.iter().copied().collect();
    let reading = source::read(&args.source, &asked)?;
    let judge = Judge::new(&reading.state, None, settings, reading.at);
    let addresses = places.addresses.iter().map(|ip| at_address(&judge, *ip));
    let containers = places.containers.iter().map(|id| in_container(&judge, id));
    let mut answers: Vec<Place> = addresses.chain(containers).collect();
    // An object that names both is shown once.
    let mut shown: Vec<(&'static str, String)> = Vec::new();
    for place in &mut answers {
        place.mentions.retain(|mention| {
            let key = (mention.kind, mention.text.clone());
            let new = !shown.contains(&key);
            if new {
                shown.push(key);
            }
            new
        });
    }
    let node = &reading.state.identity.name;
    let known: Vec<String> = answers
        .iter()
        .flat_map(|place| &place.mentions)
        .filter_map(|mention| Some(mention.finding.as_ref()?.id(node)))
        .collect();
    let mut further = explain::pod(&judge, name).findings;
    further.retain(|finding| !known.contains(&finding.id(node)));
    write(args, &answers, &further, &judge)
}

/// Prints the answers, and findings that none of their objects has.
fn write(args: &ExplainArgs, places: &[Place], further: &[Finding], judge: &Judge<'_>) -> anyhow::Result<()> {
    let node = &judge.state.identity.name;
    emit(None, |out| match args.output {
        ListFormat::Table => {
            for (index, place) in places.iter().enumerate() {
                if index > 0 {
                    writeln!(out)?;
                }
                write_place(place, out)?;
            }
            if !further.is_empty() {
                let head = format!(
                    "{} on what was this Pod's before",
                    count(further.len() as u64, "finding")
                );
                writeln!(out, "\n{}", head.bold())?;
                for finding in further {
                    write_verdict(
                        finding.object.kind(),
                        "",
                        &finding.object.text(),
                        Some(finding),
                        "",
                        out,
                    )?;
                }
            }
            Ok(())
        }
        ListFormat::Json => write_document(
            &serde_json::json!({
                "schema": SCHEMA,
                "node": node,
                "what": args.what,
                "places": places.iter().map(|place| place_json(place, node)).collect::<Vec<_>>(),
                "findings": Report::new(judge.state, further).findings,
            }),
            out,
        ),
    })
}

fn write_finding(judge: &Judge<'_>, finding: Finding, format: ListFormat) -> anyhow::Result<()> {
    let report = Report::new(judge.state, std::slice::from_ref(&finding));
    let format = match format {
        ListFormat::Table => Format::Table,
        ListFormat::Json => Format::Json,
    };
    emit(None, |out| {
        crate::output::write(&report, format, false, true, out)
    })
}

fn place_json(place: &Place, node: &str) -> serde_json::Value {
    let objects: Vec<_> = place
        .mentions
        .iter()
        .map(|mention| {
            let finding = mention.finding.as_ref();
            serde_json::json!({
                "kind": mention.kind,
                "source": mention.source,
                "text": mention.text,
                "finding": finding.map(|f| f.id(node)),
                "rule": finding.map(|f| f.rule),
                "verdict": finding.map(|f| f.verdict),
                "why": finding.map_or(mention.why.as_str(), |f| f.consequence.as_str()),
            })
        })
        .collect();
    serde_json::json!({
        "answer": place.answer,
        "standing": format!("{:?}", place.residence.standing).to_lowercase(),
        "owner": place.residence.owner,
        "evidence": place.residence.evidence,
        "still_needed": place.residence.lacking,
        "objects": objects,
    })
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

fn write_place(place: &Place, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{}", place.answer.bold())?;
    for evidence in &place.residence.evidence {
        writeln!(
            out,
            "  {} {}",
            format!("{}:", evidence.source).dimmed(),
            evidence.text
        )?;
    }
    if let Some(lacks) = place.residence.lacks() {
        writeln!(out, "  {} {lacks}", "still needed:".yellow())?;
    }
    writeln!(out, "\n{}", count(place.mentions.len() as u64, "object").bold())?;
    for mention in &place.mentions {
        let finding = mention.finding.as_ref();
        write_verdict(
            mention.kind,
            &mention.source,
            &mention.text,
            finding,
            &mention.why,
            out,
        )?;
    }
    Ok(())
}

/// An object with its finding, or why there is none.
fn write_verdict(
    kind: &str,
    source: &str,
    text: &str,
    finding: Option<&Finding>,
    why: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    write!(out, "  {}", kind.bold())?;
    if !source.is_empty() {
        write!(out, " {}", source.dimmed())?;
    }
    writeln!(out)?;
    for line in text.lines() {
        writeln!(out, "    {line}")?;
    }
    match finding {
        Some(finding) => {
            let verdict = format!("{} ({})", finding.verdict, finding.rule);
            writeln!(out, "    {}: {}", verdict.red(), finding.consequence)?;
        }
        None => writeln!(out, "    {}: {why}", "no finding".green())?,
    }
    Ok(())
}
