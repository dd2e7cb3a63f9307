//! The simulator: a small model of a node that can be read, changed and waited on.
//!
//! It refuses what a node refuses (deleting a rule that is not there, dropping a chain that is in use, taking a lease whose
//! content changed), applies an act wholly or not at all, has a clock of its own, and can be told to do something behind
//! the back of a repair: at a given reading, a writer changes the node.

mod nft;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::{
    model::{CtEntry, Dnat, NodeState, PortRange, Proto, Timestamp, XtChain, XtMatch, XtRule, XtTable},
    node::{Applied, Node, Probed},
    plan::{Act, Probe, XtEdit},
};

/// Something that happens to the node when it is read for the n-th time.
pub type Event = Box<dyn FnMut(&mut NodeState)>;

/// A simulated node.
pub struct SimNode {
    /// Its state. Tests read and change it at will.
    pub state: NodeState,
    /// Its clock.
    pub clock: Timestamp,
    /// Acts that were applied, in order.
    pub applied: Vec<Act>,
    /// What happens at the n-th reading (from 1), before it is answered.
    pub events: BTreeMap<usize, Event>,
    /// Readings so far.
    pub readings: usize,
    /// Acts that fail with this word, by how many came before.
    pub failures: BTreeMap<usize, String>,
}

impl SimNode {
    /// A node in this state at this time.
    pub fn new(state: NodeState, clock: Timestamp) -> Self {
        Self {
            state,
            clock,
            applied: Vec::new(),
            events: BTreeMap::new(),
            readings: 0,
            failures: BTreeMap::new(),
        }
    }

    /// Lets `event` happen just before the n-th reading from now on (1 is the next).
    #[must_use]
    pub fn at_reading(mut self, n: usize, event: impl FnMut(&mut NodeState) + 'static) -> Self {
        self.events.insert(self.readings + n, Box::new(event));
        self
    }

    /// Events that never happened: a test whose fault was not met tested something else.
    pub fn unmet(&self) -> usize {
        self.events.len() + self.failures.len()
    }

    fn restore(&mut self, edit: &XtEdit) -> Applied {
        let wanted = &edit.place;
        let found = self
            .state
            .xtables
            .value
            .iter_mut()
            .find(|t| t.variant == wanted.variant && t.family == wanted.family && t.name == wanted.table);
        let Some(table) = found else {
            return Applied::Changed(format!("{wanted} is gone"));
        };
        let mut next = table.clone();
        let mut skipped = Vec::new();
        for name in &edit.new_chains {
            if next.chain(name).is_some() {
                return Applied::Changed(format!("chain {name} exists"));
            }
            next.chains.push(XtChain {
                name: name.clone(),
                policy: None,
                rules: Vec::new(),
            });
        }
        for line in &edit.delete {
            let place = next.chains.iter_mut().find_map(|c| {
                let index = c.rules.iter().position(|r| r.line == *line)?;
                Some((c, index))
            });
            match place {
                Some((chain, index)) => drop(chain.rules.remove(index)),
                None => skipped.push(line.clone()),
            }
        }
        for name in &edit.drop_chains {
            let in_use = next.rules().any(|(_, r)| r.spec.target.as_deref() == Some(name));
            match next.chains.iter().position(|c| c.name == *name) {
                Some(index) if !in_use && next.chains[index].rules.is_empty() => {
                    drop(next.chains.remove(index))
                }
                Some(_) => return Applied::Failed(format!("chain {name} is in use or not empty")),
                None => skipped.push(name.clone()),
            }
        }
        for line in &edit.add {
            let Some(rule) = parse_rule(line) else {
                return Applied::Failed(format!("cannot parse {line:?}"));
            };
            let name = line.split(' ').nth(1).unwrap_or_default();
            let Some(chain) = next.chains.iter_mut().find(|c| c.name == name) else {
                return Applied::Failed(format!("no chain {name}"));
            };
            if chain.rules.iter().any(|r| r.line == *line) {
                skipped.push(line.clone());
            } else {
                chain.rules.push(rule);
            }
        }
        let asked = edit.delete.len() + edit.drop_chains.len() + edit.add.len();
        if asked == skipped.len() {
            return Applied::AlreadyGone;
        }
        *table = next;
        Applied::Done { skipped }
    }

    fn forget(&mut self, entries: &[CtEntry]) -> Applied {
        let table = &mut self.state.conntrack.value.entries;
        let before = table.len();
        table.retain(|held| !entries.iter().any(|gone| gone.is_same(held)));
        let gone = before - table.len();
        self.state.conntrack.value.udp = self.state.conntrack.value.udp.saturating_sub(gone as u64);
        if gone == 0 {
            Applied::AlreadyGone
        } else {
            Applied::Done { skipped: Vec::new() }
        }
    }
}

/// Reads the rules that repairs write: a DNAT, or a jump. Anything else is refused, as iptables refuses nonsense.
pub(crate) fn parse_rule(line: &str) -> Option<XtRule> {
    let words: Vec<&str> = line.split(' ').collect();
    let after = |flag: &str| {
        words
            .iter()
            .position(|w| *w == flag)
            .and_then(|i| words.get(i + 1))
            .copied()
    };
    let spec = XtMatch {
        proto: after("-p").and_then(Proto::parse),
        dports: after("--dport")
            .and_then(|p| p.parse().ok())
            .map(PortRange::one)
            .into_iter()
            .collect(),
        dst_type: after("--dst-type").map(str::to_owned),
        target: Some(after("-j")?.to_owned()),
        dnat: after("--to-destination")
            .and_then(|t| t.parse::<std::net::SocketAddr>().ok())
            .map(|t| Dnat {
                ip: t.ip(),
                port: Some(t.port()),
            }),
        ..XtMatch::default()
    };
    (words.first() == Some(&"-A")).then(|| XtRule {
        line: line.to_owned(),
        counters: None,
        spec,
    })
}

/// The first DNAT that takes a packet to this port, as the kernel would walk the chains.
fn dnat_of(table: &XtTable, proto: Proto, port: u16) -> Option<(IpAddr, u16)> {
    table
        .rules()
        .filter(|(_, r)| r.spec.proto == Some(proto) && r.spec.dports.iter().any(|p| p.contains(port)))
        .find_map(|(_, r)| r.spec.dnat)
        .map(|d| (d.ip, d.port.unwrap_or(port)))
}

impl Node for SimNode {
    fn observe(&mut self) -> NodeState {
        self.readings += 1;
        if let Some(mut event) = self.events.remove(&self.readings) {
            event(&mut self.state);
        }
        self.state.clone()
    }

    fn apply(&mut self, act: &Act) -> Applied {
        if let Some(why) = self.failures.remove(&self.applied.len()) {
            return Applied::Failed(why);
        }
        let result = match act {
            Act::XtRestore { edit } => self.restore(edit),
            Act::NftEdit { edit } => nft::apply(&mut self.state.nft.value, edit),
            Act::ConntrackDelete { entries } => self.forget(entries),
            Act::NftDeleteElement {
                table, set, element, ..
            } => {
                let held = self
                    .state
                    .nft
                    .value
                    .sets
                    .iter_mut()
                    .find(|s| s.table == *table && s.name == *set);
                match held.map(|s| (s.elements.iter().position(|e| e.key == element.key), s)) {
                    Some((Some(index), s)) if s.elements[index].text() == element.text() => {
                        s.elements.remove(index);
                        Applied::Done { skipped: Vec::new() }
                    }
                    Some((Some(_), _)) => Applied::Changed("the element has other data".to_owned()),
                    _ => Applied::AlreadyGone,
                }
            }
            Act::NftAddElement {
                table, set, element, ..
            } => {
                match self
                    .state
                    .nft
                    .value
                    .sets
                    .iter_mut()
                    .find(|s| s.table == *table && s.name == *set)
                {
                    Some(s) if s.elements.iter().any(|e| e.key == element.key) => {
                        Applied::Changed("the key is taken".to_owned())
                    }
                    Some(s) => {
                        s.elements.push(element.clone());
                        Applied::Done { skipped: Vec::new() }
                    }
                    None => Applied::Failed("no such set".to_owned()),
                }
            }
            Act::LeaseQuarantine { lease } => {
                let leases = &mut self.state.ipam.value.leases;
                match leases.iter().position(|l| l.path == lease.path) {
                    Some(index) if leases[index].content == lease.content => {
                        leases.remove(index);
                        Applied::Done { skipped: Vec::new() }
                    }
                    Some(_) => Applied::Changed(format!("{} has other content", lease.path)),
                    None => Applied::AlreadyGone,
                }
            }
            Act::LeaseRestore { lease } => {
                let leases = &mut self.state.ipam.value.leases;
                if leases.iter().any(|l| l.path == lease.path) {
                    Applied::Changed(format!("{} exists", lease.path))
                } else {
                    leases.push(lease.clone());
                    Applied::Done { skipped: Vec::new() }
                }
            }
        };
        if matches!(result, Applied::Done { .. }) {
            self.applied.push(act.clone());
        }
        result
    }

    fn probe(&mut self, probe: &Probe) -> Probed {
        let nat = self.state.xtables.value.iter().filter(|t| t.name == "nat");
        match nat
            .filter_map(|t| dnat_of(t, probe.proto, probe.node_port))
            .next()
            .or_else(|| nft::dnat_of(&self.state.nft.value, probe.proto, probe.node_port))
        {
            Some(to) if to == (probe.target, probe.target_port) => Probed::Arrived,
            Some((ip, port)) => Probed::Lost(format!("it went to {ip}:{port}")),
            None => Probed::Lost("nothing takes the port".to_owned()),
        }
    }

    fn writer(&mut self, _act: &Act) -> Option<String> {
        None
    }

    fn now(&self) -> Timestamp {
        self.clock
    }

    fn sleep(&mut self, pause: Duration) {
        self.clock = self.clock.checked_add(pause).unwrap_or(self.clock);
    }
}
