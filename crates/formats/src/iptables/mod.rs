//! The text of `iptables-save` and `iptables -S`, without loss.
//!
//! Source: iptables, `iptables/iptables-save.c`, `iptables/nft.c` (`nft_rule_save`) and
//! `libxtables/xtables.c` (`xtables_save_string`), as of 1.8.9.

mod print;
mod rule;

use std::{collections::HashMap, io::BufRead};

use sexton_core::model::{
    Completeness, Family, Problem, Proto, Timestamp, XtChain, XtRule, XtTable, XtVariant,
};

pub use print::print;
pub use rule::{RuleError, parse_rule};

use crate::text::{Line, Lines};

/// What the caller knows about a text.
#[derive(Clone, Debug, Default)]
pub struct XtInput<'a> {
    /// The source's name: the file's path. It is the place of problems and the `source` of tables.
    pub source: &'a str,
    /// The family, where the caller knows it (the file's name). A header in the text wins.
    pub family: Option<Family>,
    /// The variant, where the caller knows it. A header in the text wins.
    pub variant: Option<XtVariant>,
    /// The table of an `iptables -S`, which does not say it; `filter` unless told, as the tool has it.
    pub table: Option<&'a str>,
}

/// What a text gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct XtOutput {
    /// The tables, in order.
    pub tables: Vec<XtTable>,
    /// Whether that is all.
    pub completeness: Completeness,
    /// What was wrong, by line.
    pub problems: Vec<Problem>,
    /// When the header says that it was saved. The header has no zone: it is taken for UTC.
    pub saved_at: Option<Timestamp>,
    /// True if the tool warned that tables of `iptables-legacy` exist beside these.
    pub legacy_beside: bool,
}

/// A piece of a text, in order.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every event is a rule: a box would cost each an allocation"
)]
pub enum XtEvent<'a> {
    /// A table begins.
    Table {
        /// Its name.
        name: &'a str,
        /// Its variant, by the header or the caller.
        variant: XtVariant,
        /// Its family, by the header or the caller.
        family: Option<Family>,
    },
    /// A chain is declared.
    Chain {
        /// Its name.
        name: &'a str,
        /// Its policy, for a built-in chain.
        policy: Option<&'a str>,
    },
    /// A rule.
    Rule {
        /// Its chain.
        chain: &'a str,
        /// The rule.
        rule: XtRule,
    },
}

/// Problems are listed up to this number.
const MAX_PROBLEMS: usize = 100;

/// Reads a text as a stream, one line in memory: hands out each piece, and returns everything but the tables.
pub fn visit(reader: impl BufRead, input: &XtInput<'_>, sink: &mut dyn FnMut(XtEvent<'_>)) -> XtOutput {
    let mut state = State::new(input, sink);
    let mut lines = Lines::new(reader);
    while let Some(line) = lines.next() {
        match line {
            Ok(line) => state.line(line),
            Err(err) => {
                state.cut = Some(err.to_string());
                break;
            }
        }
    }
    state.finish()
}

/// Reads a text with everything in it.
pub fn parse(reader: impl BufRead, input: &XtInput<'_>) -> XtOutput {
    let mut builder = Builder::default();
    let mut output = visit(reader, input, &mut |event| builder.event(event, input.source));
    output.tables = builder.tables.into_iter().map(Building::finish).collect();
    output
}

/// A table that is being put together.
struct Building {
    table: XtTable,
    family: Option<Family>,
    chains: HashMap<String, usize>,
}

impl Building {
    fn finish(self) -> XtTable {
        let mut table = self.table;
        table.family = self.family.or_else(|| family_of(&table)).unwrap_or(Family::Ipv4);
        table
    }
}

#[derive(Default)]
struct Builder {
    tables: Vec<Building>,
    /// The chain that the last rule was in: rules come chain by chain.
    last: usize,
}

impl Builder {
    fn event(&mut self, event: XtEvent<'_>, source: &str) {
        if let XtEvent::Table {
            name,
            variant,
            family,
        } = event
        {
            self.last = 0;
            self.tables.push(Building {
                table: XtTable {
                    variant,
                    family: family.unwrap_or(Family::Ipv4),
                    name: name.to_owned(),
                    chains: Vec::new(),
                    source: source.to_owned(),
                },
                family,
                chains: HashMap::new(),
            });
            return;
        }
        let Some(building) = self.tables.last_mut() else {
            return;
        };
        let chains = &mut building.table.chains;
        match event {
            XtEvent::Table { .. } => {}
            XtEvent::Chain { name, policy } => {
                building.chains.entry(name.to_owned()).or_insert(chains.len());
                chains.push(XtChain {
                    name: name.to_owned(),
                    policy: policy.map(str::to_owned),
                    rules: Vec::new(),
                });
            }
            XtEvent::Rule { chain, rule } => {
                if chains.get(self.last).is_none_or(|last| last.name != chain) {
                    self.last = match building.chains.get(chain) {
                        Some(index) => *index,
                        None => {
                            building.chains.insert(chain.to_owned(), chains.len());
                            chains.push(XtChain {
                                name: chain.to_owned(),
                                policy: None,
                                rules: Vec::new(),
                            });
                            chains.len() - 1
                        }
                    };
                }
                if let Some(chain) = chains.get_mut(self.last) {
                    chain.rules.push(rule);
                }
            }
        }
    }
}

/// The family that a table's addresses tell, if they tell one.
fn family_of(table: &XtTable) -> Option<Family> {
    table.rules().find_map(|(_, rule)| {
        let spec = &rule.spec;
        let address = spec.source.as_ref().or(spec.destination.as_ref());
        match (spec.dnat, address, spec.proto) {
            (Some(dnat), ..) => Some(Family::of(dnat.ip)),
            (_, Some(text), _) => Some(if text.contains(':') {
                Family::Ipv6
            } else {
                Family::Ipv4
            }),
            (_, _, Some(Proto::Other(58))) => Some(Family::Ipv6),
            _ => None,
        }
    })
}

struct State<'s, 'i> {
    input: &'i XtInput<'i>,
    sink: &'s mut dyn FnMut(XtEvent<'_>),
    output: XtOutput,
    variant: XtVariant,
    family: Option<Family>,
    /// Inside of a `*table` that has no COMMIT yet.
    open: Option<(String, u64)>,
    /// Reading `iptables -S`.
    listing: bool,
    any: bool,
    left_out: u64,
    cut: Option<String>,
    incompatible: Vec<String>,
}

impl<'s, 'i> State<'s, 'i> {
    fn new(input: &'i XtInput<'i>, sink: &'s mut dyn FnMut(XtEvent<'_>)) -> Self {
        Self {
            input,
            sink,
            output: XtOutput::default(),
            variant: input.variant.unwrap_or(XtVariant::Unknown),
            family: input.family,
            open: None,
            listing: false,
            any: false,
            left_out: 0,
            cut: None,
            incompatible: Vec::new(),
        }
    }

    fn problem(&mut self, number: u64, what: String) {
        self.left_out += 1;
        if self.output.problems.len() < MAX_PROBLEMS {
            self.output.problems.push(Problem {
                place: format!("{}:{number}", self.input.source),
                what,
            });
        }
    }

    fn line(&mut self, line: Line<'_>) {
        if line.too_long {
            return self.problem(
                line.number,
                format!(
                    "left out: the line is longer than {} bytes",
                    crate::text::MAX_LINE
                ),
            );
        }
        let Ok(text) = std::str::from_utf8(line.bytes) else {
            return self.problem(line.number, "left out: the line is not UTF-8".to_owned());
        };
        let inside = self.open.is_some() || self.listing;
        if !line.ended && inside && text != "COMMIT" {
            // A rule without its end reads like a rule: `10.0.0.12` cut is `10.0.0.1`.
            self.cut = Some("its last line has no end".to_owned());
            return self.problem(
                line.number,
                format!("left out: the line is cut off: {}", excerpt(text)),
            );
        }
        match text.as_bytes() {
            [] => {}
            [b'-' | b'[', ..] => self.rule(text, line.number),
            [b':', ..] => self.chain(&text[1..], line.number),
            [b'#', ..] => self.comment(text),
            [b'*', ..] => self.table(&text[1..], line.number),
            b"COMMIT" => self.open = None,
            _ if text.trim().is_empty() => {}
            _ => self.problem(
                line.number,
                format!(
                    "left out: expected a table, chain, rule, comment or COMMIT, found {}",
                    excerpt(text)
                ),
            ),
        }
    }

    fn table(&mut self, name: &str, number: u64) {
        self.not_committed();
        let name = name.trim();
        self.any = true;
        self.listing = false;
        self.open = Some((name.to_owned(), number));
        (self.sink)(XtEvent::Table {
            name,
            variant: self.variant,
            family: self.family,
        });
    }

    fn not_committed(&mut self) {
        if let Some((name, number)) = self.open.take() {
            let what = format!("table {name} has no COMMIT: the file is cut off or was edited");
            self.problem(number, what.clone());
            self.cut.get_or_insert(what);
        }
    }

    /// `:NAME POLICY [packets:bytes]`.
    fn chain(&mut self, text: &str, number: u64) {
        if self.open.is_none() {
            return self.problem(
                number,
                format!("left out: a chain outside of a table: {}", excerpt(text)),
            );
        }
        let mut words = text.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some(name), Some(policy)) => (self.sink)(XtEvent::Chain {
                name,
                policy: (policy != "-").then_some(policy),
            }),
            _ => self.problem(
                number,
                format!("left out: expected :CHAIN POLICY, found :{}", excerpt(text)),
            ),
        }
    }

    /// A rule of a save or of a listing, or a listing's `-P` or `-N`.
    fn rule(&mut self, text: &str, number: u64) {
        if self.open.is_none() {
            if !self.listing && self.any && self.output.saved_at.is_some() {
                return self.problem(
                    number,
                    format!("left out: a rule outside of a table: {}", excerpt(text)),
                );
            }
            if !self.listing {
                self.listing = true;
                self.any = true;
                (self.sink)(XtEvent::Table {
                    name: self.input.table.unwrap_or("filter"),
                    variant: self.variant,
                    family: self.family,
                });
            }
            let mut words = text.split_ascii_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("-P"), Some(name), Some(policy)) => {
                    return (self.sink)(XtEvent::Chain {
                        name,
                        policy: Some(policy),
                    });
                }
                (Some("-N"), Some(name), _) => {
                    return (self.sink)(XtEvent::Chain { name, policy: None });
                }
                _ => {}
            }
        }
        match parse_rule(text) {
            Ok((chain, rule)) => (self.sink)(XtEvent::Rule { chain, rule }),
            Err(err) => self.problem(number, format!("left out: {err}: {}", excerpt(text))),
        }
    }

    /// Comments carry who wrote the text and what it lacks.
    fn comment(&mut self, text: &str) {
        let text = text.trim_start_matches('#').trim();
        if let Some(rest) = text.strip_prefix("Generated by ") {
            self.not_committed();
            self.header(rest);
        } else if text.starts_with("Completed") {
            self.variant = self.input.variant.unwrap_or(XtVariant::Unknown);
            self.family = self.input.family;
        } else if text.contains("legacy tables present") {
            // `# Warning: iptables-legacy tables present, use iptables-legacy-save to see them`
            self.output.legacy_beside = true;
        } else if text.starts_with("Table ") && text.contains("is incompatible") {
            // "# Table `nat' is incompatible, use 'nft' tool."
            self.incompatible.push(text.to_owned());
        }
    }

    /// `iptables-save v1.8.9 (nf_tables) on Mon Nov 30 16:19:15 2026`.
    fn header(&mut self, text: &str) {
        let (what, when) = text.split_once(" on ").unwrap_or((text, ""));
        let program = what.split_ascii_whitespace().next().unwrap_or_default();
        if program.starts_with("ip6tables") {
            self.family = Some(Family::Ipv6);
        } else if program.starts_with("iptables") {
            self.family = Some(Family::Ipv4);
        } else {
            self.family = self.input.family;
        }
        self.variant = variant(program, what)
            .or(self.input.variant)
            .unwrap_or(XtVariant::Unknown);
        if self.output.saved_at.is_none() {
            self.output.saved_at = jiff::fmt::strtime::parse("%a %b %e %H:%M:%S %Y", when.trim())
                .and_then(|parsed| parsed.to_datetime())
                .and_then(|at| jiff::tz::TimeZone::UTC.to_timestamp(at))
                .ok();
        }
    }

    fn finish(mut self) -> XtOutput {
        self.not_committed();
        let mut lacks = Vec::new();
        lacks.extend(self.cut.as_ref().map(|cut| format!("the text is cut off: {cut}")));
        lacks.append(&mut self.incompatible);
        if self.left_out > 0 && self.cut.is_none() {
            lacks.push(format!("lines that could not be read: {}", self.left_out));
        }
        self.output.completeness = if !self.any {
            Completeness::Unavailable(if lacks.is_empty() {
                "the text holds no table: either none exists or the command failed".to_owned()
            } else {
                lacks.join("; ")
            })
        } else if lacks.is_empty() {
            Completeness::Complete
        } else {
            Completeness::Partial(lacks.join("; "))
        };
        self.output
    }
}

/// The variant that a header tells.
///
/// Before 1.8 there was only legacy. 1.8.0 to 1.8.8 did not print the variant, except that early ones called the nft
/// variant `xtables-save`; 1.8.9 prints `(nf_tables)`, and nothing for legacy (seen on Debian 12).
fn variant(program: &str, what: &str) -> Option<XtVariant> {
    if what.contains("(nf_tables)") || program.starts_with("xtables") || program.contains("-nft") {
        return Some(XtVariant::Nft);
    }
    if what.contains("(legacy)") || program.contains("-legacy") {
        return Some(XtVariant::Legacy);
    }
    let version = what
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix('v'))?;
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (
        parts.next()?,
        parts.next().unwrap_or(0),
        parts.next().unwrap_or(0),
    );
    let silent_in_both = ((1, 8, 0)..(1, 8, 9)).contains(&version);
    (!silent_in_both).then_some(XtVariant::Legacy)
}

/// The beginning of a line, for a message.
fn excerpt(text: &str) -> String {
    const MAX: usize = 120;
    if text.chars().count() <= MAX {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(MAX).collect();
    out.push_str("...");
    out
}

#[cfg(test)]
mod tests;
