//! `bench-node`: makes load in namespaces of its own, and prints what programs cost under it. `script/bench/` runs it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "what it prints is its result")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use sexton_lab::Variant;
use sexton_lab::bench::{self, AuditOptions, Cost, RepairOptions, Rounds};

/// Makes load and measures. It changes the namespaces that it runs in: `script/bench/` gives it some of its own.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// A full live audit beside the tools that a person would use
    Audit {
        /// An empty directory for files
        dir: PathBuf,
        /// The program `sexton`
        #[arg(long)]
        sexton: PathBuf,
        /// How many DNATs and tracked connections, ascending
        #[arg(long, value_delimiter = ',', default_value = "1000,10000,50000,200000")]
        sizes: Vec<usize>,
        /// How often each size is measured
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// Where the single figures go, a line of JSON a size
        #[arg(long)]
        out: PathBuf,
    },
    /// One restore beside a pair of commands a rule
    Repair {
        /// An empty directory for files
        dir: PathBuf,
        /// Rules in the chain
        #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
        rules: Vec<usize>,
        /// How many rules are replaced by pairs of commands; the time of as many as by the restore is reckoned from it
        #[arg(long, default_value_t = 40)]
        pairs: usize,
    },
    /// Write a conntrack listing of this many megabytes
    WriteConntrack {
        /// The file
        file: PathBuf,
        #[arg(long, default_value_t = 1000)]
        megabytes: u64,
    },
}

fn main() -> ExitCode {
    match act(Arguments::parse().act) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench-node: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn act(act: Act) -> anyhow::Result<()> {
    match act {
        Act::Audit {
            dir,
            sexton,
            sizes,
            rounds,
            out,
        } => {
            let options = AuditOptions {
                sexton,
                dir,
                sizes,
                rounds,
            };
            let mut file = std::fs::File::create(&out).context("cannot write the figures")?;
            let mut all = Vec::new();
            bench::audit(&options, |rounds| {
                // The table is printed all the same.
                let _ = writeln!(file, "{}", rounds.json());
                all.push(Row::of(rounds));
            })?;
            print_audit(&all);
        }
        Act::Repair { dir, rules, pairs } => repair(&dir, &rules, pairs)?,
        Act::WriteConntrack { file, megabytes } => {
            let lines = bench::write_conntrack(&file, megabytes * 1_000_000)?;
            println!("{lines} entries");
        }
    }
    Ok(())
}

/// The middle of some figures, and the least of them.
fn middle(figures: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.get(figures.len() / 2).copied().unwrap_or_default();
    (middle, figures.first().copied().unwrap_or_default())
}

struct Row {
    head: String,
    cells: Vec<String>,
    sources: Vec<(String, f64)>,
    tools: Vec<(String, f64)>,
}

impl Row {
    fn of(rounds: &Rounds) -> Self {
        let wall = |costs: &[Cost]| middle(costs.iter().map(|cost| cost.wall_ms));
        let cpu = |costs: &[Cost]| middle(costs.iter().map(|cost| cost.cpu_ms)).0;
        let (audit, best) = wall(&rounds.audits);
        let (tools, tools_best) = wall(&rounds.tools);
        let (kernel, kernel_best) = middle(rounds.kernel().iter().map(|(longest, _)| *longest));
        let (alone, alone_best) = middle(rounds.alone.iter().copied());
        let (sum, _) = middle(rounds.kernel().iter().map(|(_, sum)| *sum));
        let pairs = rounds.audits.iter().zip(&rounds.tools);
        let (ratio, _) = middle(pairs.map(|(audit, tools)| audit.wall_ms / tools.wall_ms));
        let rss = rounds
            .audits
            .iter()
            .map(|cost| cost.rss_kib)
            .max()
            .unwrap_or_default();
        let tools_rss = rounds
            .tools
            .iter()
            .map(|cost| cost.rss_kib)
            .max()
            .unwrap_or_default();
        let mib = |kib: u64| format!("{}", kib.div_ceil(1024));
        let names: BTreeSet<&String> = rounds.sources.iter().flat_map(|took| took.keys()).collect();
        let sources = names
            .into_iter()
            .map(|name| {
                (
                    name.clone(),
                    middle(rounds.sources.iter().filter_map(|took| took.get(name).copied())).0,
                )
            })
            .collect();
        let by_tool = rounds
            .by_tool
            .iter()
            .map(|(name, costs)| (name.clone(), wall(costs).0))
            .collect();
        Self {
            head: format!(
                "{} DNATs, {} rules, {} links",
                rounds.size, rounds.rules, rounds.links
            ),
            cells: vec![
                rounds.size.to_string(),
                rounds.rules.to_string(),
                rounds.links.to_string(),
                format!("{alone:.0} ({alone_best:.0})"),
                format!("{kernel:.0} ({kernel_best:.0})"),
                format!("{sum:.0}"),
                format!("{audit:.0} ({best:.0})"),
                format!("{:.0}", cpu(&rounds.audits)),
                mib(rss),
                format!("{tools:.0} ({tools_best:.0})"),
                format!("{:.0}", cpu(&rounds.tools)),
                mib(tools_rss),
                format!("{ratio:.2}"),
                format!("{:.2}", cpu(&rounds.audits) / cpu(&rounds.tools).max(1.0)),
                rounds.found.to_string(),
                format!("{:.1}", rounds.load),
            ],
            sources,
            tools: by_tool,
        }
    }
}

fn print_audit(rows: &[Row]) {
    println!("Milliseconds, the middle of the rounds (the best in parentheses); MiB.\n");
    println!(
        "| DNATs and connections | iptables rules | links | kernel part, read alone | kernel part, in the audit | its sources added up | whole audit | its CPU | its peak memory | tools together | their CPU | largest of them, memory | audit / tools, time | audit / tools, CPU | findings | load |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for row in rows {
        println!("| {} |", row.cells.join(" | "));
    }
    println!("\nTime a source, in milliseconds:\n");
    print_parts(rows, |row| &row.sources);
    println!("\nTime a tool, in milliseconds:\n");
    print_parts(rows, |row| &row.tools);
}

fn print_parts(rows: &[Row], parts: impl Fn(&Row) -> &Vec<(String, f64)>) {
    let names: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| parts(row).iter().map(|(name, _)| name.as_str()))
        .collect();
    let heads: Vec<&str> = rows.iter().map(|row| row.head.as_str()).collect();
    println!("| | {} |", heads.join(" | "));
    println!("|---|{}", "--:|".repeat(rows.len()));
    for name in names {
        let cells: Vec<String> = rows
            .iter()
            .map(|row| {
                let found = parts(row).iter().find(|(own, _)| own == name);
                found.map_or_else(String::new, |(_, ms)| format!("{ms:.1}"))
            })
            .collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}

fn repair(dir: &std::path::Path, rules: &[usize], pairs: usize) -> anyhow::Result<()> {
    println!(
        "| variant | rules in the chain | replaced | sexton's step, ms | the restore alone, ms | pairs of commands, ms (reckoned from {pairs}) | pairs / step |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for variant in [Variant::Nft, Variant::Legacy] {
        for &rules in rules {
            // Half of the chain, as in the incident; and few.
            for batch in [pairs, rules / 2] {
                let took = bench::repair(&RepairOptions {
                    rules,
                    batch,
                    pairs,
                    variant,
                    dir: dir.to_owned(),
                })?;
                let ms = |time: Duration| time.as_secs_f64() * 1e3;
                let share = f64::from(u32::try_from(batch)?) / f64::from(u32::try_from(pairs)?);
                let all = ms(took.pairs) * share;
                let name = match variant {
                    Variant::Nft => "nft",
                    Variant::Legacy => "legacy",
                };
                println!(
                    "| {name} | {rules} | {batch} | {:.0} | {:.0} | {all:.0} | {:.0} |",
                    ms(took.step),
                    ms(took.restore),
                    all / ms(took.step)
                );
            }
        }
    }
    Ok(())
}
