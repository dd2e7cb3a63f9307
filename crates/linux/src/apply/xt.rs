//! Changes to an iptables table: one `iptables-restore --noflush`, which the kernel takes as a whole or not at all.
//!
//! There is no generation of ours here. The guard of a removal is `-D` with the full rule, which fails where the rule is
//! not there any more, and with it the whole restore; then the table is read again and what is left is tried. Legacy
//! waits for the xtables lock by `-w`; the nft variant ignores that lock and has the kernel's own transaction.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use sexton_core::model::{Completeness, Family, NftFamily, XtTable, XtVariant};
use sexton_core::node::Applied;
use sexton_core::plan::XtEdit;
use sexton_formats::iptables::{XtInput, parse};

use crate::command;
use crate::netlink;
use crate::options::LinuxOptions;
use crate::source::chain;
use crate::xtables::{self, Tools};

/// How long a restore waits for the xtables lock, in seconds.
const LOCK_WAIT: &str = "--wait=5";

/// How often a restore is made anew because the table changed under it.
const TRIES: usize = 4;

/// Carries an edit out.
pub(super) fn restore(options: &LinuxOptions, edit: &XtEdit, own: &mut HashSet<u32>) -> Applied {
    let place = &edit.place;
    let Some(tools) = xtables::tools(place.variant, place.family) else {
        return Applied::Failed(format!(
            "no program for {} of {} is installed",
            place.variant, place.family
        ));
    };
    let hands = Hands { options, tools, edit };
    hands.work(own).unwrap_or_else(|applied| applied)
}

struct Hands<'a> {
    options: &'a LinuxOptions,
    tools: Tools,
    edit: &'a XtEdit,
}

impl Hands<'_> {
    /// `Err` is an end before anything was done.
    fn work(&self, own: &mut HashSet<u32>) -> Result<Applied, Applied> {
        let mut last = String::new();
        for _ in 0..TRIES {
            let before = self.read()?;
            let todo = Todo::of(self.edit, &before)?;
            if todo.is_nothing() {
                return Ok(Applied::AlreadyGone);
            }
            match self.run(&todo.text(&self.edit.place.table), own)? {
                None => return self.check(todo, own),
                Some(message) if self.read()? == before => {
                    return Err(Applied::Failed(format!(
                        "{} changed nothing: {message}",
                        self.tools.restore.display()
                    )));
                }
                Some(message) => last = message,
            }
        }
        Err(Applied::Changed(format!(
            "the table was changed during each of {TRIES} tries, the last: {last}"
        )))
    }

    /// The table as it is now.
    fn read(&self) -> Result<XtTable, Applied> {
        let place = &self.edit.place;
        if !exists(self.options, place.variant, place.family, &place.table) {
            return Err(Applied::Changed(format!("{place} is gone")));
        }
        let text = xtables::save(&self.tools.save, &["-t", &place.table], self.options.deadline)
            .map_err(|error| Applied::Failed(chain(&error)))?;
        let source = place.to_string();
        let input = XtInput {
            source: &source,
            family: Some(place.family),
            variant: Some(place.variant),
            table: None,
        };
        let read = parse(text.as_slice(), &input);
        match (read.completeness, read.tables.into_iter().next()) {
            (Completeness::Complete, Some(table)) => Ok(table),
            (Completeness::Complete, None) => Err(Applied::Changed(format!("{place} is gone"))),
            (lesser, _) => Err(Applied::Failed(format!(
                "{place} cannot be read whole, and so is not changed: {}",
                lesser.why().unwrap_or_default()
            ))),
        }
    }

    /// Runs the restore. `Some` is what it said when it refused, which it does as a whole.
    fn run(&self, text: &str, own: &mut HashSet<u32>) -> Result<Option<String>, Applied> {
        let output = command::run(
            &self.tools.restore,
            &["--noflush", LOCK_WAIT],
            text.as_bytes(),
            self.options.deadline.max(Duration::from_secs(10)),
        )
        .map_err(|error| Applied::Failed(chain(&error)))?;
        own.insert(output.pid);
        Ok((!output.status.success()).then_some(output.stderr))
    }

    /// Reads the table back. A rule of ours that a writer added as well is there twice now: ours is taken away again. One that we
    /// took away and that is there all the same was made again at once: who looks again later sees it and names the writer.
    fn check(&self, todo: Todo<'_>, own: &mut HashSet<u32>) -> Result<Applied, Applied> {
        let table = self.read()?;
        let after = Copies::of(&table);
        if let Some(line) = todo.add.iter().find(|line| after.get(line) == 0) {
            return Ok(Applied::Failed(format!(
                "iptables reports success, and the rule is not there: {line}"
            )));
        }
        let surplus: Vec<&str> = todo
            .add
            .iter()
            .filter(|line| after.get(line) > 1)
            .copied()
            .collect();
        let mut skipped = todo.skipped;
        if !surplus.is_empty() {
            let twice = Todo {
                delete: surplus.clone(),
                ..Todo::default()
            };
            // If it fails, the other copy was taken away meanwhile, and one is left as it should be.
            let _ = self.run(&twice.text(&self.edit.place.table), own)?;
            skipped.extend(
                surplus
                    .iter()
                    .map(|line| format!("a writer added it at the same moment: {line}")),
            );
        }
        Ok(Applied::Done { skipped })
    }
}

/// Whether the table exists, asked without making it (law 12).
fn exists(options: &LinuxOptions, variant: XtVariant, family: Family, table: &str) -> bool {
    match variant {
        XtVariant::Legacy => xtables::legacy_tables(&options.proc, family)
            .is_ok_and(|tables| tables.iter().any(|name| name == table)),
        _ => {
            let wanted = match family {
                Family::Ipv4 => NftFamily::Ip,
                Family::Ipv6 => NftFamily::Ip6,
            };
            netlink::read_nft_tables().is_ok_and(|tables| {
                tables
                    .iter()
                    .any(|(family, name)| *family == wanted && name == table)
            })
        }
    }
}

/// How often each rule is there.
#[derive(Default)]
struct Copies<'a>(HashMap<&'a str, usize>);

impl<'a> Copies<'a> {
    fn of(table: &'a XtTable) -> Self {
        let mut out = Self::default();
        table.rules().for_each(|(_, rule)| out.add(&rule.line));
        out
    }

    fn add(&mut self, line: &'a str) {
        *self.0.entry(line).or_default() += 1;
    }

    fn get(&self, line: &str) -> usize {
        self.0.get(line).copied().unwrap_or(0)
    }
}

/// What a table holds once some rules have left.
struct Staying<'a> {
    /// Rules a chain.
    chains: HashMap<&'a str, usize>,
    /// Chains that a rule jumps to.
    jumped_to: HashSet<&'a str>,
}

impl<'a> Staying<'a> {
    fn of(table: &'a XtTable, leaving: &Copies<'_>) -> Self {
        let mut gone: HashMap<&str, usize> = HashMap::new();
        let mut out = Self {
            chains: HashMap::new(),
            jumped_to: HashSet::new(),
        };
        for chain in &table.chains {
            let left = out.chains.entry(&chain.name).or_default();
            for rule in &chain.rules {
                // Of copies as many leave as are named.
                let taken = gone.entry(&rule.line).or_default();
                if *taken < leaving.get(&rule.line) {
                    *taken += 1;
                } else {
                    *left += 1;
                    out.jumped_to.extend(rule.spec.target.as_deref());
                }
            }
        }
        out
    }
}

/// What is left to do of an edit.
#[derive(Debug, Default)]
struct Todo<'a> {
    new_chains: Vec<&'a str>,
    delete: Vec<&'a str>,
    drop_chains: Vec<&'a str>,
    add: Vec<&'a str>,
    skipped: Vec<String>,
}

impl<'a> Todo<'a> {
    fn of(edit: &'a XtEdit, table: &XtTable) -> Result<Self, Applied> {
        let mut out = Self::default();
        for name in &edit.new_chains {
            if table.chain(name).is_some() {
                return Err(Applied::Changed(format!("chain {name} exists")));
            }
            out.new_chains.push(name);
        }
        let there = Copies::of(table);
        let (mut leaving, mut coming) = (Copies::default(), Copies::default());
        for line in &edit.delete {
            chain_of(line)?;
            // A rule that is named twice is there twice, or one of its copies is gone.
            if there.get(line) > leaving.get(line) {
                leaving.add(line);
                out.delete.push(line);
            } else {
                out.skipped.push(line.clone());
            }
        }
        for line in &edit.add {
            let chain = chain_of(line)?;
            if table.chain(chain).is_none() && !edit.new_chains.iter().any(|new| new == chain) {
                return Err(Applied::Changed(format!("chain {chain} is gone")));
            }
            if there.get(line) > leaving.get(line) || coming.get(line) > 0 {
                out.skipped.push(line.clone());
            } else {
                coming.add(line);
                out.add.push(line);
            }
        }
        let staying = Staying::of(table, &leaving);
        for name in &edit.drop_chains {
            if !staying.chains.contains_key(name.as_str()) {
                out.skipped.push(name.clone());
                continue;
            }
            if staying.chains.get(name.as_str()) != Some(&0) {
                return Err(Applied::Changed(format!("chain {name} holds another rule now")));
            }
            if staying.jumped_to.contains(name.as_str()) {
                return Err(Applied::Changed(format!(
                    "chain {name} is jumped to from another rule now"
                )));
            }
            out.drop_chains.push(name);
        }
        Ok(out)
    }

    fn is_nothing(&self) -> bool {
        self.new_chains.is_empty()
            && self.delete.is_empty()
            && self.drop_chains.is_empty()
            && self.add.is_empty()
    }

    /// The restore's input. Chains are made by `-N`, which fails where one is there: the usual `:CHAIN` would empty it.
    fn text(&self, table: &str) -> String {
        let mut out = format!("*{table}\n");
        for name in &self.new_chains {
            let _ = writeln!(out, "-N {name}");
        }
        for line in &self.delete {
            let _ = writeln!(out, "-D{}", line.strip_prefix("-A").unwrap_or(line));
        }
        for line in &self.add {
            let _ = writeln!(out, "{line}");
        }
        for name in &self.drop_chains {
            let _ = writeln!(out, "-X {name}");
        }
        out.push_str("COMMIT\n");
        out
    }
}

/// The chain of a rule as iptables-save prints it. Anything else could be another command.
fn chain_of(line: &str) -> Result<&str, Applied> {
    let refused = || Applied::Failed(format!("not a rule as iptables-save prints it: {line:?}"));
    if line.contains(['\n', '\r', '\0']) {
        return Err(refused());
    }
    let rest = line.strip_prefix("-A ").ok_or_else(refused)?;
    let chain = rest.split(' ').next().filter(|chain| !chain.is_empty());
    chain.ok_or_else(refused)
}
