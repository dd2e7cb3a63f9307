//! Many nodes: which circulate packets, and what those have in common.

use std::{collections::BTreeMap, io::Write};

use comfy_table::{ContentArrangement, Table, presets};
use owo_colors::OwoColorize as _;
use serde::Serialize;
use sexton_core::{
    finding::Verdict,
    traffic::{
        fleet::{self, Shared},
        rank,
    },
};

use super::{
    Report,
    html::{class, head},
};
use crate::{
    args::Format,
    output::{count, escape, plain},
};

/// What is said of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A loop is proved.
    Loop,
    /// One is suspected.
    Suspected,
    /// It cannot be told.
    Unknown,
    /// Counters or captures were read, and show none.
    Healthy,
}

/// A node of the fleet.
#[derive(Serialize)]
pub struct Node {
    pub node: String,
    pub class: Class,
    /// The answer, or why there is none.
    pub answer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_per_second: Option<f64>,
    pub addresses: Vec<String>,
    pub traits: BTreeMap<String, String>,
}

impl Node {
    /// From a node's own report.
    pub fn new(name: String, report: &Report, traits: BTreeMap<String, String>) -> Self {
        let class = match report.verdict {
            Some(Verdict::Proved) => Class::Loop,
            Some(Verdict::Suspected) => Class::Suspected,
            Some(_) => Class::Unknown,
            None => Class::Healthy,
        };
        let sick = report.loops.iter().filter(|one| rank(one.verdict) > 0);
        let rates: f64 = sick.clone().filter_map(|one| one.packets_per_second).sum();
        let pair = report
            .counters
            .iter()
            .flat_map(|counters| &counters.pairs)
            .map(|pair| pair.received);
        let rate = if rates > 0.0 {
            Some(rates)
        } else {
            pair.fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))))
        };
        Self {
            node: name,
            class,
            answer: report.answer.clone(),
            packets_per_second: rate,
            addresses: sick.map(|one| one.address.to_string()).collect(),
            traits,
        }
    }
}

/// The document, `sexton.dev/trace-fleet/v1`.
#[derive(Serialize)]
pub struct Fleet {
    schema: &'static str,
    answer: String,
    nodes: Vec<Node>,
    /// What the sick have in common against the healthy.
    common: Vec<Shared>,
    /// Why that says little; `None` if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    too_small: Option<String>,
}

impl Fleet {
    /// Ranks the nodes and compares them.
    pub fn new(mut nodes: Vec<Node>) -> Self {
        nodes.sort_by(|a, b| {
            let rate = |node: &Node| node.packets_per_second.unwrap_or_default();
            a.class
                .cmp(&b.class)
                .then(rate(b).total_cmp(&rate(a)))
                .then(a.node.cmp(&b.node))
        });
        let of = |class| nodes.iter().filter(move |node| node.class == class);
        let sick = || of(Class::Loop).chain(of(Class::Suspected));
        let (ill, well) = (sick().count(), of(Class::Healthy).count());
        let common = fleet::shared(sick().map(|n| &n.traits), of(Class::Healthy).map(|n| &n.traits));
        let too_small = (ill < fleet::ENOUGH || well < fleet::ENOUGH).then(|| {
            format!(
                "{ill} sick and {well} healthy nodes are too few to tell a cause from a coincidence: it takes {} of each",
                fleet::ENOUGH
            )
        });
        let answer = format!(
            "{}: {} in a loop, {} suspected, {} unknown, {well} healthy.",
            count(nodes.len() as u64, "node"),
            of(Class::Loop).count(),
            of(Class::Suspected).count(),
            of(Class::Unknown).count()
        );
        Self {
            schema: "sexton.dev/trace-fleet/v1",
            answer,
            nodes,
            common,
            too_small,
        }
    }

    /// 1 a loop or a suspicion, 3 something unknown, 0 all healthy.
    pub fn exit_code(&self) -> u8 {
        match self.nodes.iter().map(|node| node.class).min() {
            Some(Class::Loop | Class::Suspected) => 1,
            Some(Class::Unknown) | None => 3,
            Some(Class::Healthy) => 0,
        }
    }

    fn shown(&self) -> impl Iterator<Item = &Shared> {
        const SHOWN: usize = 12;
        self.common
            .iter()
            .filter(|one| one.difference() > 0.0)
            .take(SHOWN)
    }
}

const fn word(class: Class) -> &'static str {
    match class {
        Class::Loop => "loop",
        Class::Suspected => "suspected",
        Class::Unknown => "unknown",
        Class::Healthy => "healthy",
    }
}

fn row(node: &Node) -> [String; 5] {
    [
        node.node.clone(),
        word(node.class).to_owned(),
        super::rate(node.packets_per_second),
        node.addresses.join(", "),
        if node.class == Class::Healthy {
            String::new()
        } else {
            node.answer.clone()
        },
    ]
}

fn shared_row(one: &Shared) -> [String; 4] {
    [
        one.name.clone(),
        one.value.clone(),
        format!("{} of {}", one.sick, one.sick_of),
        format!("{} of {}", one.healthy, one.healthy_of),
    ]
}

const COLUMNS: [&str; 5] = ["node", "verdict", "packets/s", "address", "why"];
const SHARED: [&str; 4] = ["what", "value", "of the sick", "of the healthy"];

/// Writes it.
pub fn write(fleet: &Fleet, format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, fleet)?;
            Ok(writeln!(out)?)
        }
        Format::Table => table(fleet, out),
        Format::Markdown => markdown(fleet, out),
        Format::Html => html(fleet, out),
    }
}

fn table(fleet: &Fleet, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{}\n", fleet.answer.bold())?;
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(COLUMNS);
    fleet.nodes.iter().for_each(|node| {
        table.add_row(row(node));
    });
    writeln!(out, "{table}")?;
    if fleet.shown().next().is_some() {
        writeln!(
            out,
            "\n{}",
            "what the sick have more often than the healthy".bold()
        )?;
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(SHARED);
        fleet.shown().for_each(|one| {
            table.add_row(shared_row(one));
        });
        writeln!(out, "{table}")?;
    }
    if let Some(why) = &fleet.too_small {
        writeln!(out, "{} {why}", "note:".yellow())?;
    }
    Ok(())
}

fn markdown(fleet: &Fleet, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "# Packets that circulate: a fleet\n\n**{}**\n",
        plain(&fleet.answer)
    )?;
    let line = |cells: &[String]| {
        format!(
            "| {} |",
            cells
                .iter()
                .map(|cell| plain(cell))
                .collect::<Vec<_>>()
                .join(" | ")
        )
    };
    writeln!(out, "| {} |\n|---|---|---:|---|---|", COLUMNS.join(" | "))?;
    for node in &fleet.nodes {
        writeln!(out, "{}", line(&row(node)))?;
    }
    writeln!(
        out,
        "\n## What the sick have more often than the healthy\n\n| {} |\n|---|---|---|---|",
        SHARED.join(" | ")
    )?;
    for one in fleet.shown() {
        writeln!(out, "{}", line(&shared_row(one)))?;
    }
    if let Some(why) = &fleet.too_small {
        writeln!(out, "\n{}.", plain(why))?;
    }
    Ok(())
}

fn html(fleet: &Fleet, out: &mut dyn Write) -> anyhow::Result<()> {
    head("packets that circulate, a fleet", out)?;
    let worst = match fleet.nodes.iter().map(|node| node.class).min() {
        Some(Class::Loop) => class(Some(Verdict::Proved)),
        Some(Class::Suspected) => class(Some(Verdict::Suspected)),
        Some(Class::Unknown) => class(Some(Verdict::Unknown)),
        Some(Class::Healthy) | None => class(None),
    };
    writeln!(
        out,
        "<h1>A fleet</h1><p class=\"answer {worst}\">{}</p>",
        escape(&fleet.answer)
    )?;
    writeln!(
        out,
        "<div class=wide><table><tr>{}</tr>",
        cells("th", &COLUMNS.map(str::to_owned))
    )?;
    for node in &fleet.nodes {
        writeln!(out, "<tr>{}</tr>", cells("td", &row(node)))?;
    }
    writeln!(
        out,
        "</table></div><h2>What the sick have more often than the healthy</h2>"
    )?;
    writeln!(
        out,
        "<div class=wide><table><tr>{}</tr>",
        cells("th", &SHARED.map(str::to_owned))
    )?;
    for one in fleet.shown() {
        writeln!(out, "<tr>{}</tr>", cells("td", &shared_row(one)))?;
    }
    writeln!(out, "</table></div>")?;
    if let Some(why) = &fleet.too_small {
        writeln!(out, "<p><small>{}.</small></p>", escape(why))?;
    }
    Ok(writeln!(out, "</html>")?)
}

fn cells(kind: &str, cells: &[String]) -> String {
    cells
        .iter()
        .map(|cell| format!("<{kind}>{}</{kind}>", escape(cell)))
        .collect()
}
