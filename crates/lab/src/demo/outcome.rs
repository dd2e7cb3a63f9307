//! What came of a demo, as values and as the tables at its end.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::load::{Kind, Line, Summary};
use crate::talk::Probe;
use crate::truth::{Target, TargetPath};

/// What came of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleLine {
    /// How many such things the lab had made.
    pub made: usize,
    /// How many of them the first audit found, with the right verdict.
    pub found: usize,
    /// How many of these were repairable and gone in the second audit.
    pub repaired: usize,
    /// How many findings of the rule the second audit had.
    pub left: usize,
}

/// One address, as a client outside found it before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// The address, and the Pod that must answer.
    #[serde(flatten)]
    pub target: Target,
    /// Whether that Pod answered before.
    pub before: bool,
    /// Whether it did after.
    pub after: bool,
}

/// What came of a demo.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// By rule.
    pub rules: BTreeMap<String, RuleLine>,
    /// By address.
    pub ports: Vec<Port>,
    /// Findings that the plan took on.
    pub planned: usize,
    /// Sexton's own word on the traffic by which it proved the repair, such as `4 of 4 mappings proved`.
    pub traffic: String,
    /// What the clients saw that talked to the living meanwhile.
    pub load: Summary,
    /// How long all of it took, in milliseconds.
    pub took_ms: u64,
    /// What was not shown, and why.
    pub not_shown: Vec<String>,
    /// Where Sexton or the node is not as the truth says. Empty when all is well.
    pub disagreements: Vec<String>,
}

impl Outcome {
    /// Whether everything agrees with the truth and no request to the living failed.
    pub fn is_good(&self) -> bool {
        self.disagreements.is_empty() && self.load.failed == 0
    }

    fn sum(&self, number: impl Fn(&RuleLine) -> usize) -> usize {
        self.rules.values().map(number).sum()
    }

    /// Clients of one kind: how many, their requests, and how many of these failed.
    fn clients(&self, kind: Kind) -> (usize, u64, u64) {
        of_kind(&self.load, kind).fold((0, 0, 0), |(clients, requests, failed), line| {
            (clients + 1, requests + line.requests, failed + line.failed)
        })
    }

    fn rule_table(&self) -> Table {
        let mut table = new_table();
        table.set_header(["rule", "made", "found", "repaired", "left"]);
        let row = |name: &str, line: RuleLine| {
            let numbers = [line.made, line.found, line.repaired, line.left];
            std::iter::once(name.to_owned())
                .chain(numbers.map(|number| number.to_string()))
                .collect::<Vec<_>>()
        };
        for (rule, line) in &self.rules {
            table.add_row(row(rule, *line));
        }
        let all = RuleLine {
            made: self.sum(|line| line.made),
            found: self.sum(|line| line.found),
            repaired: self.sum(|line| line.repaired),
            left: self.sum(|line| line.left),
        };
        table.add_row(row("all", all));
        table
    }

    fn port_table(&self) -> Table {
        let mut table = new_table();
        table.set_header(["a client outside asks at", "", "Pod", "before", "after"]);
        let word = |reached| if reached { "reached" } else { "lost" };
        for port in &self.ports {
            let target = &port.target;
            let way = match target.path {
                TargetPath::Pod => "Pod",
                TargetPath::HostPort => "hostPort",
                TargetPath::Npl => "NodePortLocal",
                TargetPath::Service => "Service",
            };
            let address = format!("{}:{}/{}", target.ip, target.port, target.protocol.lower());
            table.add_row([&address, way, &target.pod, word(port.before), word(port.after)]);
        }
        table
    }

    fn number_table(&self) -> Table {
        let mut table = new_table();
        let found = format!(
            "{} of {}",
            self.sum(|line| line.found),
            self.sum(|line| line.made)
        );
        table.add_row(["found", &found]);
        let repaired = format!("{} of {}", self.sum(|line| line.repaired), self.planned);
        table.add_row(["repaired", &repaired]);
        let broken: Vec<&Port> = self.ports.iter().filter(|port| !port.before).collect();
        let mended = broken.iter().filter(|port| port.after).count();
        table.add_row([
            "verified by traffic",
            &format!(
                "{mended} of {} broken addresses, from outside; Sexton itself: {}",
                broken.len(),
                self.traffic
            ),
        ]);
        let load = &self.load;
        table.add_row([
            "requests to the living",
            &format!(
                "{} in {:.1} s, {} failed",
                load.requests,
                load.took_ms as f64 / 1000.0,
                load.failed
            ),
        ]);
        let (clients, requests, failed) = self.clients(Kind::Connections);
        table.add_row([
            "new connections",
            &format!(
                "{requests} to {clients} addresses, at least {:.0} a second each, {failed} failed",
                slowest(load)
            ),
        ]);
        let (clients, requests, failed) = self.clients(Kind::Stream);
        let streams = format!("{failed} of {requests} lines lost on {clients} connections");
        table.add_row(["long streams", &streams]);
        let (clients, requests, failed) = self.clients(Kind::Datagrams);
        let datagrams = format!("{failed} of {requests} datagrams lost in {clients} sequences");
        table.add_row(["UDP", &datagrams]);
        table.add_row(["longest gap", &format!("{:.0} ms", load.longest_gap_ms)]);
        table.add_row(["wall time", &format!("{:.1} s", self.took_ms as f64 / 1000.0)]);
        table
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.rule_table())?;
        writeln!(out, "{}", self.port_table())?;
        writeln!(out, "{}", self.number_table())?;
        writeln!(out, "Not shown:")?;
        for line in &self.not_shown {
            writeln!(out, "  {line}")?;
        }
        for line in self.load.clients.iter().filter(|line| line.failed > 0) {
            writeln!(
                out,
                "FAILED: {} of {} requests to {} at {}:{}, the first: {}",
                line.failed,
                line.requests,
                line.target.pod,
                line.target.ip,
                line.target.port,
                line.first_failure.as_deref().unwrap_or("unknown")
            )?;
        }
        for line in &self.disagreements {
            writeln!(out, "WRONG: {line}")?;
        }
        if self.is_good() {
            writeln!(
                out,
                "All is as the lab made it: everything stale was found and mended, nothing alive was named or touched, \
                 and no request to the living failed."
            )?;
        }
        Ok(())
    }
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn of_kind(load: &Summary, kind: Kind) -> impl Iterator<Item = &Line> {
    load.clients.iter().filter(move |line| line.kind == kind)
}

/// New connections a second of the client that made the fewest.
pub(super) fn slowest(load: &Summary) -> f64 {
    let rates = of_kind(load, Kind::Connections).map(|line| line.rate);
    rates.fold(f64::INFINITY, f64::min)
}

pub(super) fn ports(before: &[Probe], after: &[Probe]) -> Vec<Port> {
    let pairs = before.iter().zip(after);
    pairs
        .map(|(before, after)| Port {
            target: before.target.clone(),
            before: before.answered,
            after: after.answered,
        })
        .collect()
}
