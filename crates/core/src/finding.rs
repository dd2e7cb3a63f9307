//! What a rule found: the object as observed, the verdict on it, and the evidence.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    model::{
        CtEntry, Family, Lease, NftElement, NftFamily, NftRule, NplEntry, PodName, PodUid, Sandbox,
        Timestamp, XtRule, XtVariant,
    },
    plan::Remedy,
};

/// The verdict on an object. A live, right object gets none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It belongs to something that ended.
    Stale,
    /// A living owner lacks it.
    Missing,
    /// Two claims exclude each other.
    Conflict,
    /// It may be so; never a ground to act.
    Suspected,
    /// It is so.
    Proved,
    /// Nothing is wrong now, but could be better.
    Advice,
    /// It cannot be told; the finding says what is missing.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "stale",
            Self::Missing => "missing",
            Self::Conflict => "conflict",
            Self::Suspected => "suspected",
            Self::Proved => "proved",
            Self::Advice => "advice",
            Self::Unknown => "unknown",
        })
    }
}

/// Whether a plan step exists for a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// A step exists and may be applied.
    Repair,
    /// It is only reported.
    Report,
}

/// A kind of source that says, on its own, who lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Witness {
    /// The API server.
    Api,
    /// The container runtime.
    Cri,
    /// The kernel: processes in namespaces, or the node's data plane.
    Kernel,
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Api => "api",
            Self::Cri => "cri",
            Self::Kernel => "kernel",
        })
    }
}

/// A fact that the verdict rests on, with who said it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The source's name.
    pub source: String,
    /// What it said.
    pub text: String,
}

impl Evidence {
    /// A line of evidence.
    pub fn new(source: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            text: text.into(),
        }
    }
}

/// Who an object belongs to, or belonged to last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's name.
    pub name: String,
    /// The Pod's UID, where it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub uid: Option<PodUid>,
    /// When it ended, where that is known; for a Pod that was created again under its name, not later than that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<Timestamp>,
}

impl Owner {
    /// `namespace/name`.
    pub fn pod_name(&self) -> PodName {
        PodName {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

/// Where a set of iptables rules lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct XtPlace {
    /// Legacy or nft.
    pub variant: XtVariant,
    /// IPv4 or IPv6.
    pub family: Family,
    /// `nat`, ...
    pub table: String,
}

impl fmt::Display for XtPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.variant, self.family, self.table)
    }
}

/// An object of the node, with every observed field of its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Object {
    /// A rule of iptables.
    XtRule {
        /// Its table.
        place: XtPlace,
        /// Its chain.
        chain: String,
        /// The rule.
        rule: XtRule,
    },
    /// A rule of iptables that jumps to a chain of its own, with that chain.
    XtUnit {
        /// Their table.
        place: XtPlace,
        /// The chain that holds the jump.
        chain: String,
        /// The jump.
        jump: XtRule,
        /// The chain that it jumps to.
        unit: String,
        /// That chain's rules.
        rules: Vec<XtRule>,
    },
    /// All rules of one nftables table that a CNI plugin wrote for one container.
    NftUnit {
        /// The table's family.
        family: NftFamily,
        /// The table.
        table: String,
        /// The rules, in the order of the table.
        rules: Vec<NftRule>,
    },
    /// An element of an nftables set or map.
    NftElement {
        /// The table's family.
        family: NftFamily,
        /// The table.
        table: String,
        /// The set.
        set: String,
        /// The element.
        element: NftElement,
    },
    /// A tracked connection.
    Conntrack {
        /// The entry.
        entry: CtEntry,
    },
    /// A host-local lease.
    Lease {
        /// The lease.
        lease: Lease,
    },
    /// A sandbox of the runtime.
    Sandbox {
        /// The sandbox.
        sandbox: Sandbox,
    },
    /// A mapping that a Pod announces.
    NplMapping {
        /// The Pod.
        pod: PodName,
        /// The announced mapping.
        entry: NplEntry,
    },
    /// A network namespace.
    Namespace {
        /// Its inode.
        inode: u64,
        /// Where it is mounted.
        paths: Vec<String>,
        /// Processes inside.
        pids: Vec<u32>,
    },
    /// Packets that circulate for an address.
    PacketLoop {
        /// The address.
        address: IpAddr,
        /// Their flows, the busiest first.
        flows: Vec<String>,
        /// Packets a second, where the capture has times.
        packets_per_second: Option<f64>,
        /// How many packets circulate.
        circulating: u64,
        /// False if there may be more.
        circulating_exact: bool,
        /// Where they come in.
        enters: Option<String>,
        /// Where they go out.
        leaves: Option<String>,
        /// The capture that shows it.
        capture: String,
    },
    /// Two adapters, of which one sends what the other receives.
    CounterPair {
        /// The file of counters.
        file: String,
        /// The adapter that receives.
        receiver: String,
        /// The adapter that sends.
        sender: String,
        /// Packets a second that come in.
        received: f64,
        /// Packets a second that go out.
        sent: f64,
    },
    /// Counters.
    Counters {
        /// Their file.
        file: String,
    },
    /// An address that an adapter owns.
    NicAddress {
        /// The address.
        address: IpAddr,
        /// The adapter.
        nic: Option<String>,
        /// What the address is called there.
        name: Option<String>,
        /// The list that says so.
        list: String,
    },
    /// A range of Pod addresses.
    PodRange {
        /// The range.
        range: IpNet,
    },
    /// The addresses that an adapter owns for Pods.
    NicPool {
        /// The adapter.
        nic: Option<String>,
        /// The list that says so.
        list: String,
    },
}

impl Object {
    /// The kind's name, as in `summary.objects`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::XtRule { .. } => "xt-rule",
            Self::XtUnit { .. } => "xt-unit",
            Self::NftUnit { .. } => "nft-unit",
            Self::NftElement { .. } => "nft-element",
            Self::Conntrack { .. } => "conntrack",
            Self::Lease { .. } => "lease",
            Self::Sandbox { .. } => "sandbox",
            Self::NplMapping { .. } => "npl-mapping",
            Self::Namespace { .. } => "namespace",
            Self::PacketLoop { .. } => "packet-loop",
            Self::CounterPair { .. } => "counter-pair",
            Self::Counters { .. } => "counters",
            Self::NicAddress { .. } => "nic-address",
            Self::PodRange { .. } => "pod-range",
            Self::NicPool { .. } => "nic-pool",
        }
    }

    /// The object as its own tool prints it, without counters, handles and timeouts, so that a person can grep for it.
    pub fn text(&self) -> String {
        match self {
            Self::XtRule { rule, .. } => rule.line.clone(),
            Self::XtUnit { jump, rules, .. } => {
                let mut lines = vec![jump.line.as_str()];
                lines.extend(rules.iter().map(|r| r.line.as_str()));
                lines.join("\n")
            }
            Self::NftUnit { rules, .. } => {
                let lines = rules.iter().map(NftRule::placed);
                lines.collect::<Vec<_>>().join("\n")
            }
            Self::NftElement {
                family,
                table,
                set,
                element,
            } => {
                format!("{family} {table} {set} {{ {} }}", element.text())
            }
            Self::Conntrack { entry } => entry.text(),
            Self::Lease { lease } => format!("{} ({})", lease.path, lease.container),
            Self::Sandbox { sandbox } => format!("{} {} ({})", sandbox.id, sandbox.pod, sandbox.uid),
            Self::NplMapping { pod, entry } => {
                format!("{pod} {} {} -> {}", entry.proto, entry.node_port, entry.pod_port)
            }
            Self::Namespace { inode, paths, pids } => {
                let at = paths.first().map_or("not mounted", String::as_str);
                format!("net:[{inode}] {at} pids {pids:?}")
            }
            Self::PacketLoop { flows, .. } => {
                const SHOWN: usize = 10;
                let mut lines: Vec<String> = flows.iter().take(SHOWN).cloned().collect();
                if flows.len() > SHOWN {
                    lines.push(format!("and {} more flows", flows.len() - SHOWN));
                }
                lines.join("\n")
            }
            Self::CounterPair {
                receiver,
                sender,
                received,
                sent,
                ..
            } => format!("{receiver} receives {received:.0}/s, {sender} sends {sent:.0}/s"),
            Self::Counters { file } => file.clone(),
            Self::NicAddress {
                address, nic, name, ..
            } => {
                let name = name.as_ref().map_or_else(String::new, |name| format!(" ({name}"));
                let of = nic.as_ref().map_or_else(String::new, |nic| format!(" of {nic}"));
                match name.is_empty() {
                    true => format!("{address}{of}"),
                    false => format!("{address}{name}{of})"),
                }
            }
            Self::PodRange { range } => range.to_string(),
            Self::NicPool { nic, list } => nic.clone().unwrap_or_else(|| list.clone()),
        }
    }

    /// What makes this object this one, in a place: its text with the table that it is in.
    fn identity(&self) -> String {
        match self {
            Self::XtRule { place, .. } | Self::XtUnit { place, .. } => format!("{place} {}", self.text()),
            // A tuple can be taken by a new entry; zone and tuple are in the text, the state is not identity.
            Self::Conntrack { entry } => {
                let (o, r) = (&entry.original, &entry.reply);
                format!("{} {o:?} {r:?} {}", entry.proto, entry.zone)
            }
            // Flows come and go, and rates change: the address stays.
            Self::PacketLoop { address, .. } => address.to_string(),
            Self::CounterPair { receiver, sender, .. } => format!("{receiver} {sender}"),
            _ => self.text(),
        }
    }
}

/// The name of a rule: part of the interface, in reports, metrics and `--rule`.
pub type RuleId = &'static str;

/// One thing that a rule found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule.
    pub rule: RuleId,
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is not repaired, or what a repair would still need; `None` when a step exists.
    pub why_not_repair: Option<String>,
    /// The object, exactly as observed.
    pub object: Object,
    /// Its last or present owner.
    pub owner: Option<Owner>,
    /// What it does to traffic, in one sentence.
    pub consequence: String,
    /// What the verdict rests on.
    pub evidence: Vec<Evidence>,
    /// The kinds of source that said so, each on its own.
    pub witnesses: Vec<Witness>,
    /// What would mend it.
    pub remedy: Option<Remedy>,
}

impl Finding {
    /// Whether a step exists.
    pub fn action(&self) -> Action {
        if self.why_not_repair.is_none() && self.remedy.is_some() {
            Action::Repair
        } else {
            Action::Report
        }
    }

    /// The finding's identifier: the first 16 hex digits of SHA-256 over rule, node, kind and object.
    pub fn id(&self, node: &str) -> String {
        let mut hash = Sha256::new();
        for part in [self.rule, node, self.object.kind(), &self.object.identity()] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        hash.finalize()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}
