//! iptables, as its own save format tells it.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{Family, Proto};

/// Which iptables wrote a table: both can exist side by side on one node, and only the same one can change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XtVariant {
    /// `iptables-legacy`: the kernel's x_tables.
    Legacy,
    /// `iptables-nft`: nf_tables.
    Nft,
    /// A recording that does not say (its comment line is missing).
    Unknown,
}

impl fmt::Display for XtVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Legacy => "iptables-legacy",
            Self::Nft => "iptables-nft",
            Self::Unknown => "iptables",
        })
    }
}

/// A port or a range of ports, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortRange {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

impl PortRange {
    /// A single port.
    pub const fn one(port: u16) -> Self {
        Self {
            first: port,
            last: port,
        }
    }

    /// True if the port is inside.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// Where a DNAT sends packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dnat {
    /// The address, canonical.
    pub ip: IpAddr,
    /// The port, if it is changed too.
    pub port: Option<u16>,
}

/// What a rule matches and does, in the fields that judging needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct XtMatch {
    /// `-p`.
    pub proto: Option<Proto>,
    /// `-s`, as printed.
    pub source: Option<String>,
    /// `-d`, as printed.
    pub destination: Option<String>,
    /// `--dport` and `--dports`.
    pub dports: Vec<PortRange>,
    /// `--comment`, unquoted.
    pub comment: Option<String>,
    /// `-i`.
    pub in_interface: Option<String>,
    /// `-o`.
    pub out_interface: Option<String>,
    /// `--dst-type`.
    pub dst_type: Option<String>,
    /// `-j` or `-g`.
    pub target: Option<String>,
    /// `--to-destination`, when it is one address with or without one port.
    pub dnat: Option<Dnat>,
    /// True if some of the fields above is negated by `!`.
    pub negated: bool,
    /// Matches and options that are not among the fields above, so that a rule with something unknown is never taken
    /// for a plain one.
    pub others: Vec<String>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XtRule {
    /// The rule as iptables-save prints it, without counters: `-A CHAIN ...`.
    pub line: String,
    /// Packets and bytes, where told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counters: Option<(u64, u64)>,
    /// What it matches and does.
    pub spec: XtMatch,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XtChain {
    /// Its name.
    pub name: String,
    /// The policy of a built-in chain; `None` for a user's.
    pub policy: Option<String>,
    /// Its rules, in order.
    pub rules: Vec<XtRule>,
}

/// A table of one variant and family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XtTable {
    /// Legacy or nft.
    pub variant: XtVariant,
    /// IPv4 or IPv6.
    pub family: Family,
    /// `nat`, `filter`, ...
    pub name: String,
    /// Its chains, in order.
    pub chains: Vec<XtChain>,
    /// The source that told it, for evidence.
    pub source: String,
}

impl XtTable {
    /// The chain of this name.
    pub fn chain(&self, name: &str) -> Option<&XtChain> {
        self.chains.iter().find(|c| c.name == name)
    }

    /// Every rule with the name of its chain.
    pub fn rules(&self) -> impl Iterator<Item = (&XtChain, &XtRule)> {
        self.chains
            .iter()
            .flat_map(|c| c.rules.iter().map(move |r| (c, r)))
    }
}

/// The address of a match on one address (`10.0.0.1/32`); `None` for a wider one.
pub(crate) fn single_address(text: &str) -> Option<IpAddr> {
    let net: ipnet::IpNet = text
        .parse()
        .or_else(|_| text.parse::<IpAddr>().map(ipnet::IpNet::from))
        .ok()?;
    (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())
}
