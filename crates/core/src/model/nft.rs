//! nftables: sets, maps and the rules that are not iptables' own.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};

use super::{Dnat, Mac, PortRange, Proto};

/// A table's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NftFamily {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Both.
    Inet,
    /// ARP.
    Arp,
    /// Bridge.
    Bridge,
    /// Ingress and egress of a device.
    Netdev,
}

impl fmt::Display for NftFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
            Self::Arp => "arp",
            Self::Bridge => "bridge",
            Self::Netdev => "netdev",
        })
    }
}

/// One value of a key or of a map's data.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NftValue {
    /// `ipv4_addr` or `ipv6_addr`.
    Addr(IpAddr),
    /// A prefix or range of addresses, as printed.
    AddrRange(String),
    /// `inet_proto`.
    Proto(Proto),
    /// `inet_service`.
    Port(u16),
    /// `ether_addr`.
    Mac(Mac),
    /// `ifname`.
    Interface(String),
    /// `mark`.
    Mark(u32),
    /// A verdict, as printed: `accept`, `goto chain`.
    Verdict(String),
    /// Anything else, as hex digits or as printed.
    Other(String),
}

impl fmt::Display for NftValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr(ip) => write!(f, "{ip}"),
            Self::Proto(proto) => write!(f, "{proto}"),
            Self::Port(port) => write!(f, "{port}"),
            Self::Mac(mac) => write!(f, "{mac}"),
            Self::Mark(mark) => write!(f, "0x{mark:08x}"),
            Self::Interface(name) => write!(f, "\"{name}\""),
            Self::AddrRange(text) | Self::Verdict(text) | Self::Other(text) => f.write_str(text),
        }
    }
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NftElement {
    /// Its key, one value a part of a concatenation.
    pub key: Vec<NftValue>,
    /// Its data, for a map.
    pub data: Vec<NftValue>,
    /// Its comment.
    pub comment: Option<String>,
    /// Milliseconds after which it goes; `None` if never.
    pub timeout_ms: Option<u64>,
    /// Milliseconds until it goes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_ms: Option<u64>,
}

impl NftElement {
    /// The element as `nft list` prints it, without its timeout.
    pub fn text(&self) -> String {
        let join = |values: &[NftValue]| {
            values
                .iter()
                .map(NftValue::to_string)
                .collect::<Vec<_>>()
                .join(" . ")
        };
        let comment = self
            .comment
            .as_ref()
            .map(|c| format!(" comment \"{c}\""))
            .unwrap_or_default();
        let data = if self.data.is_empty() {
            String::new()
        } else {
            format!(" : {}", join(&self.data))
        };
        format!("{}{comment}{data}", join(&self.key))
    }
}

/// A set or map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NftSet {
    /// The table's family.
    pub family: NftFamily,
    /// The table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// True for a map.
    pub is_map: bool,
    /// Its key's type as nft prints it: `ipv4_addr . inet_service`.
    pub key_type: String,
    /// Its data's type, for a map.
    pub data_type: Option<String>,
    /// Its elements.
    pub elements: Vec<NftElement>,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NftChain {
    /// The table's family.
    pub family: NftFamily,
    /// The table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// The hook of a base chain.
    pub hook: Option<String>,
    /// The device of a netdev chain.
    pub device: Option<String>,
    /// The kernel's handle.
    pub handle: Option<u64>,
}

/// A rule as the kernel keeps it, so that one that was taken away can be put back whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NftRaw {
    /// The payload of `NFTA_RULE_EXPRESSIONS` (`linux/netfilter/nf_tables.h`), in hex digits.
    pub expressions: String,
    /// The payload of `NFTA_RULE_USERDATA`, in hex digits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub userdata: Option<String>,
}

/// A rule of a table that is not iptables'.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NftRule {
    /// The table's family.
    pub family: NftFamily,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The kernel's handle: with the content, what a deletion names.
    pub handle: Option<u64>,
    /// Its comment.
    pub comment: Option<String>,
    /// The protocol that it matches, where it does.
    pub proto: Option<Proto>,
    /// The destination address that it matches, as printed.
    pub destination: Option<String>,
    /// The destination ports that it matches.
    pub dports: Vec<PortRange>,
    /// Where it sends packets.
    pub dnat: Option<Dnat>,
    /// A map that it looks its DNAT up in (`@npl`), or a chain that it jumps to.
    pub target: Option<String>,
    /// The rule as printed, where it came as text; else what could be decoded of it.
    pub text: String,
    /// What the kernel keeps of it: only of a rule that a CNI plugin marked, read from the kernel, that refers to no set of its
    /// own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub raw: Option<NftRaw>,
}

impl NftRule {
    /// A rule of which nothing is known but its place and its text.
    pub fn bare(family: NftFamily, table: &str, chain: &str, text: String) -> Self {
        Self {
            family,
            table: table.to_owned(),
            chain: chain.to_owned(),
            handle: None,
            comment: None,
            proto: None,
            destination: None,
            dports: Vec::new(),
            dnat: None,
            target: None,
            text,
            raw: None,
        }
    }

    /// The rule with its place, as `nft add rule` takes it.
    pub fn placed(&self) -> String {
        format!("{} {} {} {}", self.family, self.table, self.chain, self.text)
    }

    /// The single addresses that stand in its text, and its DNAT's.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let words = self.text.split_whitespace();
        let named = words.filter_map(|word| {
            let ip = word.parse::<IpAddr>().ok();
            ip.or_else(|| word.parse::<SocketAddr>().ok().map(|at| at.ip()))
        });
        named.chain(self.dnat.map(|dnat| dnat.ip))
    }

    /// True if the other is this rule as far as a person can see it: place and text, without its handle.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.family, &self.table, &self.chain, &self.text)
            == (other.family, &other.table, &other.chain, &other.text)
    }
}

/// Everything of nftables but iptables' tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NftState {
    /// The generation that was read; `None` in a recording.
    pub generation: Option<u32>,
    /// Tables, as family and name.
    pub tables: Vec<(NftFamily, String)>,
    /// Sets and maps.
    pub sets: Vec<NftSet>,
    /// Chains.
    pub chains: Vec<NftChain>,
    /// Rules.
    pub rules: Vec<NftRule>,
}
