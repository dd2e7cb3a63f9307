//! `sexton loop end`: the ladder that ends packets that circulate for a dead Pod. One step at a time, the narrowest first; each is verified, and
//! taken back if it did not help.

use std::{
    io::Write,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use serde::Serialize;
use sexton_core::{
    finding::Verdict,
    judge::Judge,
    marks::{TOMBSTONE_MARK, TOMBSTONE_TABLE},
    model::{Destination, Family, Flow, NftElement, NftFamily, NftValue, NodeState},
    plan::Act,
    repair::{self, Outcome},
    roster::{Residence, Standing},
    settings::Settings,
    traffic,
};
use sexton_linux::{LinuxNode, Meter, drops};

use super::{emit, trace::live, write_document};
use crate::{
    args::{ListFormat, LoopAct, LoopEndArgs},
    journal::JournalFile,
    source,
};

/// More flows than these are not dropped one by one.
const MAX_FLOWS: usize = 256;

/// A step helped if no more than this share of what circulated comes in afterwards.
const LEFT: f64 = 0.1;

/// After a step: until the counters are read, and the time that they are read over.
const SETTLE: Duration = Duration::from_millis(100);
const MEASURE: Duration = Duration::from_millis(300);

/// How long it must stay away to be called ended.
const WATCH: Duration = Duration::from_secs(2);

/// The flag of a reset.
const RST: u8 = 4;

/// Runs a subcommand.
pub fn run(act: &LoopAct) -> anyhow::Result<u8> {
    match act {
        LoopAct::End(args) => end(args),
    }
}

/// A rung of the ladder.
struct Step {
    what: String,
    acts: Vec<Act>,
}

/// What became of a step.
#[derive(Serialize)]
struct Tried {
    step: String,
    helped: bool,
    /// Packets that it dropped.
    dropped: u64,
    /// Packets a second that still came in by the link.
    packets_per_second: f64,
    /// From the decision until the counters were read again, in milliseconds.
    took_ms: u128,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The loop as it was proved, and where it is fought.
struct Fought {
    address: IpAddr,
    link: String,
    /// Packets a second that circulated.
    rate: f64,
    /// Packets a second that came in by the link beside them: the traffic of the living.
    others: f64,
    circulating: u64,
    steps: Vec<Step>,
}

impl Fought {
    /// Whether what comes in by the link is little enough for the loop to be over. The traffic of the living varies.
    fn is_over(&self, rate: f64) -> bool {
        rate <= self.rate * LEFT + self.others * 2.0
    }
}

fn end(args: &LoopEndArgs) -> anyhow::Result<u8> {
    if args.source.bundle.is_some() {
        anyhow::bail!("a recording cannot be changed; run this on the node");
    }
    let address = args.address.to_canonical();
    let mut node = source::open_live(&args.source, &[], false)?;
    let state = live::look(
        &mut node,
        &live::Look {
            watch: Duration::from_secs(2),
            above: args.above,
            save: None,
        },
    )?;
    let fought = match proved(&state, address, args)? {
        Ok(fought) => fought,
        Err(why) => {
            emit(None, |out| {
                writeln!(out, "{}", format!("{address}: {why}").bold())?;
                Ok(writeln!(out, "Nothing was changed.")?)
            })?;
            return Ok(1);
        }
    };
    if !args.yes {
        emit(None, |out| write_steps(&fought, args, out))?;
        return Ok(1);
    }
    drops::prepare(&fought.link).context("nothing is dropped yet")?;
    let mut journal = JournalFile::create(&args.state_dir, source::now(), "loop-end")?;
    let (tried, ended) = climb(&mut node, &mut journal, &fought)?;
    let came_back = if ended { comes_back(&fought)? } else { None };
    let path = journal.path.display().to_string();
    emit(None, |out| match args.output {
        ListFormat::Json => write_json(&fought, &tried, ended, came_back, &path, out),
        ListFormat::Table => write_table(&fought, &tried, ended, came_back, &path, args, out),
    })?;
    Ok(u8::from(!ended || came_back.is_some()))
}

/// The loop, if the capture proves it and nobody lives there; else why nothing is done.
fn proved(state: &NodeState, address: IpAddr, args: &LoopEndArgs) -> anyhow::Result<Result<Fought, String>> {
    let settings = Settings::default();
    let judge = Judge::new(state, None, &settings, state.taken_at.unwrap_or_else(source::now));
    let sightings = traffic::sightings(&judge);
    let Some(one) = sightings.iter().find(|one| one.destination.address == address) else {
        let looked = if state.captures.value.is_empty() {
            "the counters are not suspicious, so no packet was looked at"
        } else {
            "no packet for it comes again and again in a capture of this moment"
        };
        return Ok(Err(looked.to_owned()));
    };
    if one.judgement.verdict != Some(Verdict::Proved) {
        let lacks = one.judgement.lacks.join("; ");
        let lacks = if lacks.is_empty() {
            lacks
        } else {
            format!("; still needed: {lacks}")
        };
        return Ok(Err(format!("{}{lacks}", one.judgement.text)));
    }
    // Judging takes one witness, acting takes all of them (law 3).
    if let Some(why) = doubt(&judge.roster.address(address)) {
        return Ok(Err(why));
    }
    let link = one
        .destination
        .enters
        .and_then(|point| one.capture.name(point.place));
    let Some(link) = link else {
        return Ok(Err("by which link its packets enter is not known".to_owned()));
    };
    let uid = one.residence.owner.as_ref().and_then(|owner| owner.uid.as_ref());
    let comment = format!(
        "{TOMBSTONE_MARK}{}:loop",
        uid.map_or_else(|| "-".to_owned(), ToString::to_string)
    );
    let steps = steps(one.destination, &comment, Duration::from_secs(args.keep));
    let rate = one.destination.rate.unwrap_or_default();
    let counters = state.counters.value.first().cloned().unwrap_or_default();
    Ok(Ok(Fought {
        address,
        link: link.to_owned(),
        others: live::received(&counters.counters, link).map_or(0.0, |all| (all - rate).max(0.0)),
        rate,
        circulating: one.destination.circulating,
        steps,
    }))
}

/// Why it is not sure enough for an act that nobody lives at an address.
fn doubt(residence: &Residence) -> Option<String> {
    let told = || {
        let last = residence.evidence.last();
        last.map(|e| format!(": {}", e.text)).unwrap_or_default()
    };
    match residence.standing {
        Standing::Live => Some(format!("somebody lives there{}", told())),
        Standing::Unknown => Some(format!("whether anybody lives there cannot be told{}", told())),
        Standing::Nobody | Standing::Ended => residence.lacks().map(|lacks| format!("a drop needs {lacks}")),
    }
}

/// The ladder: the resets of its flows, where they are nothing but resets, then everything for the address.
fn steps(destination: &Destination, comment: &str, keep: Duration) -> Vec<Step> {
    let family = Family::of(destination.address);
    let act = |set: &str, key: Vec<NftValue>| Act::NftAddElement {
        family: NftFamily::Netdev,
        table: TOMBSTONE_TABLE.to_owned(),
        set: set.to_owned(),
        element: NftElement {
            key,
            data: Vec::new(),
            comment: Some(comment.to_owned()),
            timeout_ms: u64::try_from(keep.as_millis()).ok(),
            expires_ms: None,
        },
    };
    let flow = |flow: &Flow| {
        let (source_port, port) = flow.key.ports?;
        (flow.key.protocol == 6 && flow.flags? & RST != 0).then(|| {
            act(
                drops::flow_set(family),
                vec![
                    NftValue::Addr(flow.key.destination),
                    NftValue::Port(port),
                    NftValue::Addr(flow.key.source),
                    NftValue::Port(source_port),
                ],
            )
        })
    };
    let mut out = Vec::new();
    let flows: Option<Vec<Act>> = destination.flows.iter().map(flow).collect();
    if let Some(acts) = flows.filter(|acts| !acts.is_empty() && acts.len() <= MAX_FLOWS) {
        let count = crate::output::count(acts.len() as u64, "flow");
        out.push(Step {
            what: format!("drop the resets of {count} to {}", destination.address),
            acts,
        });
    }
    out.push(Step {
        what: format!("drop everything for {}", destination.address),
        acts: vec![act(
            drops::address_set(family),
            vec![NftValue::Addr(destination.address)],
        )],
    });
    out
}

/// Takes one step after the other until one helps.
fn climb(
    node: &mut LinuxNode,
    journal: &mut JournalFile,
    fought: &Fought,
) -> anyhow::Result<(Vec<Tried>, bool)> {
    let mut tried = Vec::new();
    for (step, number) in fought.steps.iter().zip(1..) {
        // Just before the act: whoever got the address meanwhile keeps his packets.
        let state = node.observe();
        let settings = Settings::default();
        let judge = Judge::new(&state, None, &settings, source::now());
        let residence = judge.roster.address(fought.address);
        let dead = matches!(residence.standing, Standing::Nobody | Standing::Ended);
        if !dead {
            let told = residence
                .evidence
                .last()
                .map(|e| e.text.clone())
                .unwrap_or_default();
            tried.push(Tried {
                step: step.what.clone(),
                helped: false,
                dropped: 0,
                packets_per_second: fought.rate,
                took_ms: 0,
                why: Some(format!(
                    "not taken: it is not sure any more that nobody lives there ({told})"
                )),
            });
            return Ok((tried, false));
        }
        let decided = Instant::now();
        let before = drops::dropped(&fought.link)?;
        let mut done = Vec::new();
        let mut failed = None;
        for act in &step.acts {
            match repair::carry_out(node, journal, number, act)? {
                Outcome::Done | Outcome::AlreadyGone => done.push(act),
                other => {
                    failed = Some(format!("{}: {other:?}", act.describe()));
                    break;
                }
            }
        }
        thread::sleep(SETTLE);
        let rate = rate(&fought.link)?;
        let dropped = drops::dropped(&fought.link)?.saturating_sub(before);
        let helped = failed.is_none() && fought.is_over(rate);
        let took_ms = decided.elapsed().as_millis();
        if !helped {
            for act in done.into_iter().rev() {
                if let Some(back) = act.undo() {
                    repair::carry_out(node, journal, number, &back)?;
                }
            }
        }
        let taken_back = || "it did not help, and was taken back".to_owned();
        tried.push(Tried {
            step: step.what.clone(),
            helped,
            dropped,
            packets_per_second: rate,
            took_ms,
            why: failed.or_else(|| (!helped).then(taken_back)),
        });
        if helped {
            return Ok((tried, true));
        }
    }
    Ok((tried, false))
}

/// Packets a second that come in by a link now.
fn rate(link: &str) -> anyhow::Result<f64> {
    let mut meter = Meter::new("/proc", 1);
    meter.look()?;
    thread::sleep(MEASURE);
    meter.look()?;
    live::received(&meter.counters(), link)
        .with_context(|| format!("the counters of link {link} cannot be read any more"))
}

/// The rate with which it came back within the time that it is watched, if it did.
fn comes_back(fought: &Fought) -> anyhow::Result<Option<f64>> {
    let until = Instant::now() + WATCH;
    while Instant::now() < until {
        let now = rate(&fought.link)?;
        if !fought.is_over(now) {
            return Ok(Some(now));
        }
    }
    Ok(None)
}

fn write_steps(fought: &Fought, args: &LoopEndArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{}", head(fought).bold())?;
    writeln!(
        out,
        "One step at a time, each verified, and taken back if it does not help:"
    )?;
    for (number, step) in (1..).zip(&fought.steps) {
        writeln!(
            out,
            "  {number}. {} where it enters {}, for {} s at most",
            step.what, fought.link, args.keep
        )?;
    }
    Ok(writeln!(
        out,
        "Nothing was changed. Add --yes to carry this out."
    )?)
}

fn head(fought: &Fought) -> String {
    format!(
        "{} for {} circulate by link {}, {:.0} packets a second, and nobody lives there.",
        crate::output::count(fought.circulating, "packet"),
        fought.address,
        fought.link,
        fought.rate
    )
}

fn write_table(
    fought: &Fought,
    tried: &[Tried],
    ended: bool,
    came_back: Option<f64>,
    journal: &str,
    args: &LoopEndArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    writeln!(out, "{}", head(fought).bold())?;
    for one in tried {
        let word = if one.helped {
            "helped".green().to_string()
        } else {
            "no help".yellow().to_string()
        };
        writeln!(out, "  {word}  {}", one.step)?;
        writeln!(
            out,
            "    {} dropped; {:.0} packets a second come in {} ms after the decision",
            one.dropped, one.packets_per_second, one.took_ms
        )?;
        if let Some(why) = &one.why {
            writeln!(out, "    {why}")?;
        }
    }
    match (ended, came_back) {
        (true, None) => writeln!(
            out,
            "{} The drop goes by itself within {} s.",
            "The loop is ended.".bold().green(),
            args.keep
        )?,
        (true, Some(rate)) => writeln!(
            out,
            "{} Packets come in again, {rate:.0} a second: something sends more of them. See: sexton trace --live",
            "It came back.".bold().red()
        )?,
        (false, _) => writeln!(
            out,
            "{} Nothing of this is left on the node. For whoever runs the platform: sexton trace --live --save loop.pcap",
            "The loop goes on.".bold().red()
        )?,
    }
    Ok(writeln!(
        out,
        "journal: {journal} (take a drop away now with: sexton undo {journal} --yes)"
    )?)
}

fn write_json(
    fought: &Fought,
    tried: &[Tried],
    ended: bool,
    came_back: Option<f64>,
    journal: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let document = serde_json::json!({
        "schema": "sexton.dev/loop-end/v1",
        "address": fought.address,
        "link": fought.link,
        "packets_per_second": fought.rate,
        "circulating": fought.circulating,
        "steps": tried,
        "ended": ended,
        "came_back": came_back,
        "journal": journal,
    });
    write_document(&document, out)
}
