//! Rules of the routing policy (`ip rule`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Family;

/// What a rule of the routing policy does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpRuleAction {
    /// Looks the route up in the table of this number (`main` is 254, `local` 255, `default` 253).
    Lookup(u32),
    /// Goes on at the rule of this priority.
    Goto(u32),
    /// Anything else, as `ip rule` prints it: `unreachable`, `blackhole`, `nop`, `lookup` of a table whose name is of the
    /// node's own `rt_tables`.
    Other(String),
}

/// A rule of the routing policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IpRule {
    /// The address family.
    pub family: Family,
    /// Its place: the lowest first.
    pub priority: u32,
    /// True if it takes what its selectors do not match.
    pub inverted: bool,
    /// The source prefix; `None` is all.
    pub from: Option<ipnet::IpNet>,
    /// The destination prefix; `None` is all.
    pub to: Option<ipnet::IpNet>,
    /// The packet's mark, and the mask that it is compared under.
    pub mark: Option<(u32, u32)>,
    /// The incoming link.
    pub iif: Option<String>,
    /// The outgoing link.
    pub oif: Option<String>,
    /// True if one of the links is not there.
    pub detached: bool,
    /// Further selectors and options as `ip rule` prints them, a word and its value each: `ipproto tcp`.
    pub others: Vec<String>,
    /// What it does.
    pub action: IpRuleAction,
    /// `proto`, by number; `None` for the kernel's own and for rules without one, which only `ip -d rule` tells apart.
    pub protocol: Option<u8>,
}

impl IpRule {
    /// The rule as `ip rule` prints it, with `proto` as a number.
    pub fn text(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for IpRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let net = |net: &Option<ipnet::IpNet>| match net {
            None => "all".to_owned(),
            Some(net) if net.prefix_len() == net.max_prefix_len() => net.addr().to_string(),
            Some(net) => net.to_string(),
        };
        write!(f, "{}:\t", self.priority)?;
        if self.inverted {
            f.write_str("not ")?;
        }
        write!(f, "from {}", net(&self.from))?;
        if self.to.is_some() {
            write!(f, " to {}", net(&self.to))?;
        }
        match self.mark {
            Some((mark, u32::MAX)) => write!(f, " fwmark {mark:#x}")?,
            Some((mark, mask)) => write!(f, " fwmark {mark:#x}/{mask:#x}")?,
            None => {}
        }
        let detached = if self.detached { " [detached]" } else { "" };
        for (word, link) in [("iif", &self.iif), ("oif", &self.oif)] {
            if let Some(link) = link {
                write!(f, " {word} {link}{detached}")?;
            }
        }
        for other in &self.others {
            write!(f, " {other}")?;
        }
        match &self.action {
            IpRuleAction::Lookup(253) => f.write_str(" lookup default")?,
            IpRuleAction::Lookup(254) => f.write_str(" lookup main")?,
            IpRuleAction::Lookup(255) => f.write_str(" lookup local")?,
            IpRuleAction::Lookup(table) => write!(f, " lookup {table}")?,
            IpRuleAction::Goto(priority) => write!(f, " goto {priority}")?,
            IpRuleAction::Other(text) => write!(f, " {text}")?,
        }
        match self.protocol {
            Some(protocol) => write!(f, " proto {protocol}"),
            None => Ok(()),
        }
    }
}
