//! What the kernel holds outside of its firewall tables.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{Mac, Proto};

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// The family of an address.
    pub const fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        })
    }
}

/// A direction's tuple of a tracked connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CtTuple {
    /// Source address, canonical.
    pub src: IpAddr,
    /// Destination address, canonical.
    pub dst: IpAddr,
    /// Source port; 0 for protocols without ports.
    pub sport: u16,
    /// Destination port; 0 for protocols without ports.
    pub dport: u16,
}

/// Packets and bytes of one direction, where `nf_conntrack_acct` is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direction {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What the kernel says of an entry's state. `[ASSURED]` and a missing `[UNREPLIED]` are sticky and say nothing about
/// now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CtFlags {
    /// No packet was seen in the reply direction, ever.
    pub unreplied: bool,
    /// Traffic was seen in both directions.
    pub assured: bool,
    /// Handled by a flow table, in software or hardware.
    pub offload: bool,
}

/// A tracked connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CtEntry {
    /// The transport protocol.
    pub proto: Proto,
    /// A protocol's state, such as `ESTABLISHED`.
    pub state: Option<Box<str>>,
    /// Seconds until it expires.
    pub timeout: Option<u32>,
    /// The first packet's direction.
    pub original: CtTuple,
    /// The direction of replies: its source is where packets really went.
    pub reply: CtTuple,
    /// Its flags.
    pub flags: CtFlags,
    /// `mark`.
    pub mark: u32,
    /// The zone; 0 is the default one.
    pub zone: u16,
    /// The kernel's ID of the entry (`CTA_ID`), which a new entry with the same tuple does not share.
    pub id: Option<u32>,
    /// Counters of the original direction.
    pub original_count: Option<Direction>,
    /// Counters of the reply direction.
    pub reply_count: Option<Direction>,
}

impl CtEntry {
    /// True if the destination was rewritten.
    pub fn is_dnat(&self) -> bool {
        self.reply.src != self.original.dst || self.reply.sport != self.original.dport
    }

    /// True if both are one entry: a later one with the same tuples has another ID.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.proto, self.zone, self.id, self.original, self.reply)
            == (other.proto, other.zone, other.id, other.original, other.reply)
    }

    /// The entry as `conntrack -L` prints it, without timeout and counters, so that a person can grep for its parts.
    pub fn text(&self) -> String {
        use fmt::Write as _;
        let mut out = format!("{:<8} {}", self.proto.to_string(), self.proto.number());
        if let Some(state) = &self.state {
            let _ = write!(out, " {state}");
        }
        let tuple = |out: &mut String, t: &CtTuple| {
            let _ = write!(
                out,
                " src={} dst={} sport={} dport={}",
                t.src, t.dst, t.sport, t.dport
            );
        };
        tuple(&mut out, &self.original);
        if self.flags.unreplied {
            out.push_str(" [UNREPLIED]");
        }
        tuple(&mut out, &self.reply);
        if self.flags.assured {
            out.push_str(" [ASSURED]");
        }
        let _ = write!(out, " mark={}", self.mark);
        if self.zone != 0 {
            let _ = write!(out, " zone={}", self.zone);
        }
        out
    }
}

/// The connection tracking table, as far as rules look at it.
///
/// A table of millions of entries is read as a stream: every entry of UDP is counted, and only those that a rule could judge
/// are kept (`sexton_core::interest`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conntrack {
    /// The entries that were kept.
    pub entries: Vec<CtEntry>,
    /// How many entries of UDP there were, kept or not: what the rules look at.
    pub udp: u64,
    /// Whether counters a direction are kept (`nf_conntrack_acct`); `None` where it is not known.
    pub accounting: Option<bool>,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its index in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address, where it has an Ethernet one.
    pub mac: Option<Mac>,
    /// `veth`, `bridge`, `vxlan`, ...; empty for a physical one.
    pub kind: String,
    /// Its master's index.
    pub master: Option<u32>,
    /// Its peer's or lower link's index (`@if7`).
    pub peer: Option<u32>,
    /// The namespace ID (`link-netnsid`) of its peer.
    pub peer_netns: Option<i32>,
    /// Whether it is administratively up.
    pub up: bool,
}

/// An address of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The link's index.
    pub link: u32,
    /// The address, canonical.
    pub ip: IpAddr,
    /// The prefix length.
    pub prefix: u8,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination; `None` is the default route.
    pub dst: Option<ipnet::IpNet>,
    /// The next hop.
    pub gateway: Option<IpAddr>,
    /// The outgoing link's name, or index where the name is not known.
    pub dev: Option<String>,
    /// The table's number (`main` is 254, `local` 255).
    pub table: u32,
    /// `unicast`, `local`, `blackhole`, ...
    pub kind: String,
    /// `proto`, by number.
    pub protocol: u8,
    /// The metric.
    pub metric: Option<u32>,
}

/// A neighbour entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// The address, canonical.
    pub ip: IpAddr,
    /// The link's name, or index where the name is not known.
    pub dev: String,
    /// The hardware address.
    pub mac: Option<Mac>,
    /// `REACHABLE`, `STALE`, `PERMANENT`, ...
    pub state: String,
}

/// A network namespace of the node other than the node's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetNs {
    /// Its inode: its identity. Paths are reused.
    pub inode: u64,
    /// Where it is mounted, if anywhere.
    pub paths: Vec<String>,
    /// Processes inside, up to a few of them.
    pub pids: Vec<u32>,
    /// Names of those processes, in the same order.
    pub commands: Vec<String>,
    /// Its addresses other than loopback and link-local ones, canonical; `None` where it could not be entered.
    pub ips: Option<Vec<IpAddr>>,
    /// MACs of its links.
    pub macs: Vec<Mac>,
}

impl NetNs {
    /// True if a process lives in it. An empty mounted namespace is a leftover, even though its kernel answers pings.
    pub fn has_process(&self) -> bool {
        !self.pids.is_empty()
    }
}
