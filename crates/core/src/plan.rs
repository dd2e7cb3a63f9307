//! From findings to steps: a plain value that a person can review and that leaves the executor no choice.
//!
//! A plan names for every step its reason, the exact value that it expects to find, what it depends on, and its undo.
//! Making one changes nothing. It expires, and it is sealed, so that one made for another node, one that is too old
//! and one that was edited are refused with words.

mod draft;
mod nft;

use std::{collections::BTreeMap, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    finding::{Action, Finding, Object, XtPlace},
    model::{CtEntry, Lease, NftElement, NftFamily, NodeState, PodName, Proto, Timestamp},
    settings::Settings,
};

pub(crate) use draft::narrow;
use draft::{Draft, Drafts};
pub use nft::{NftEdit, NftElementAt, NftRuleAt};

/// The schema's name, written into every plan.
pub const SCHEMA: &str = "sexton.dev/plan/v1";

/// How traffic proves that a mapping works again (law 10).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Probe {
    /// TCP: connect and close at once. UDP: one empty datagram.
    pub proto: Proto,
    /// The node's address to send to; `None` where the Pod announces none: one of the node's own is taken.
    pub node_ip: Option<IpAddr>,
    /// The port on the node.
    pub node_port: u16,
    /// Where the connection must arrive.
    pub target: IpAddr,
    /// The port there.
    pub target_port: u16,
}

/// What would mend one finding. Remedies for one table become one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Remedy {
    /// Changes to rules of one iptables table.
    Xt(XtEdit),
    /// Changes to rules and elements of one nftables table.
    Nft(NftEdit),
    /// Take an element out of a set or map.
    NftElement {
        /// The table's family.
        family: NftFamily,
        /// The table.
        table: String,
        /// The set.
        set: String,
        /// The element as observed.
        element: NftElement,
    },
    /// Take a tracked connection away.
    Conntrack(CtEntry),
    /// Put a lease into quarantine.
    Lease(Lease),
}

impl Remedy {
    /// The act that carries this remedy out alone.
    pub fn act(&self) -> Act {
        match self {
            Self::Xt(edit) => Act::XtRestore { edit: edit.clone() },
            Self::Nft(edit) => Act::NftEdit { edit: edit.clone() },
            Self::NftElement {
                family,
                table,
                set,
                element,
            } => Act::NftDeleteElement {
                family: *family,
                table: table.clone(),
                set: set.clone(),
                element: element.clone(),
            },
            Self::Conntrack(entry) => Act::ConntrackDelete {
                entries: vec![entry.clone()],
            },
            Self::Lease(lease) => Act::LeaseQuarantine { lease: lease.clone() },
        }
    }
}

/// Changes to one iptables table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XtEdit {
    /// The table.
    pub place: XtPlace,
    /// Rules to take away, in full, as iptables-save prints them (`-A CHAIN ...`). A rule that is there twice is named
    /// twice.
    pub delete: Vec<String>,
    /// Chains to take away once their rules are gone: they must be empty and unreferenced by then.
    pub drop_chains: Vec<String>,
    /// Chains to make first, which must be absent before (only an undo makes some).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub new_chains: Vec<String>,
    /// Rules to append, which must be absent before.
    pub add: Vec<String>,
    /// Connections that prove the added rules.
    pub probes: Vec<Probe>,
    /// How many of the deleted rules have a living owner that gets a right one at once. They do not count against the
    /// share limit (law 15).
    pub replaced: usize,
}

impl XtEdit {
    /// An edit of this table that changes nothing yet.
    pub const fn of(place: XtPlace) -> Self {
        Self {
            place,
            delete: Vec::new(),
            drop_chains: Vec::new(),
            new_chains: Vec::new(),
            add: Vec::new(),
            probes: Vec::new(),
            replaced: 0,
        }
    }
}

/// One change to the node, all or nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Act {
    /// One `iptables-restore --noflush` of one table.
    XtRestore {
        /// The changes.
        #[serde(flatten)]
        edit: XtEdit,
    },
    /// One transaction of one nftables table, under the generation that its rules and elements were read again with.
    NftEdit {
        /// The changes.
        #[serde(flatten)]
        edit: NftEdit,
    },
    /// Delete one element of a set or map, under the generation that it was read with.
    NftDeleteElement {
        /// The table's family.
        family: NftFamily,
        /// The table.
        table: String,
        /// The set.
        set: String,
        /// The element as observed.
        element: NftElement,
    },
    /// Add one element to a set or map (the undo of the above).
    NftAddElement {
        /// The table's family.
        family: NftFamily,
        /// The table.
        table: String,
        /// The set.
        set: String,
        /// The element.
        element: NftElement,
    },
    /// Delete tracked connections, each by tuple, zone and ID.
    ConntrackDelete {
        /// The entries as observed.
        entries: Vec<CtEntry>,
    },
    /// Move a lease into the quarantine beside its data directory.
    LeaseQuarantine {
        /// The lease as observed.
        lease: Lease,
    },
    /// Move a lease back out of the quarantine (the undo of the above).
    LeaseRestore {
        /// The lease.
        lease: Lease,
    },
}

impl Act {
    /// What it does, in one line.
    pub fn describe(&self) -> String {
        match self {
            Self::XtRestore { edit } => {
                let mut parts = Vec::new();
                for (count, word) in [
                    (edit.delete.len(), "delete"),
                    (edit.add.len(), "add"),
                    (edit.drop_chains.len(), "drop"),
                ] {
                    let noun = match (word, count) {
                        ("drop", 1) => "chain",
                        ("drop", _) => "chains",
                        (_, 1) => "rule",
                        _ => "rules",
                    };
                    if count > 0 {
                        parts.push(format!("{word} {count} {noun}"));
                    }
                }
                format!("{}: {} in one restore", edit.place, parts.join(", "))
            }
            Self::NftEdit { edit } => edit.describe(),
            Self::NftDeleteElement {
                family,
                table,
                set,
                element,
            } => {
                format!(
                    "nft delete element {family} {table} {set} {{ {} }}",
                    element.text()
                )
            }
            Self::NftAddElement {
                family,
                table,
                set,
                element,
            } => {
                format!("nft add element {family} {table} {set} {{ {} }}", element.text())
            }
            Self::ConntrackDelete { entries } => match entries.as_slice() {
                [one] => format!("delete conntrack entry {}", one.text()),
                many => format!("delete {} conntrack entries", many.len()),
            },
            Self::LeaseQuarantine { lease } => {
                format!(
                    "move lease {} of {} into quarantine",
                    lease.path,
                    lease.container.short()
                )
            }
            Self::LeaseRestore { lease } => format!("put lease {} back", lease.path),
        }
    }

    /// The exact value that it expects to find, as text.
    pub fn expects(&self) -> String {
        match self {
            Self::XtRestore { edit } => {
                let mut lines: Vec<_> = edit.delete.iter().map(|l| format!("present: {l}")).collect();
                lines.extend(edit.add.iter().map(|l| format!("absent: {l}")));
                lines.join("\n")
            }
            Self::NftEdit { edit } => edit.expects(),
            Self::NftDeleteElement { element, .. } => format!("present: {}", element.text()),
            Self::NftAddElement { element, .. } => format!("absent: {}", element.text()),
            Self::ConntrackDelete { entries } => {
                let line = |entry: &CtEntry| {
                    let id = entry.id.map(|id| format!(" id={id}")).unwrap_or_default();
                    format!("present: {}{id}", entry.text())
                };
                entries.iter().map(line).collect::<Vec<_>>().join("\n")
            }
            Self::LeaseQuarantine { lease } => format!("{} holds {:?}", lease.path, lease.content),
            Self::LeaseRestore { lease } => format!("{} does not exist", lease.path),
        }
    }

    /// What takes it back; `None` for what cannot be (a tracked connection is made again by its next packet).
    pub fn undo(&self) -> Option<Self> {
        match self {
            Self::XtRestore { edit } => Some(Self::XtRestore {
                edit: XtEdit {
                    delete: edit.add.clone(),
                    drop_chains: edit.new_chains.clone(),
                    new_chains: edit.drop_chains.clone(),
                    add: edit.delete.clone(),
                    ..XtEdit::of(edit.place.clone())
                },
            }),
            Self::NftEdit { edit } => edit.undo().map(|edit| Self::NftEdit { edit }),
            Self::NftDeleteElement {
                family,
                table,
                set,
                element,
            } => Some(Self::NftAddElement {
                family: *family,
                table: table.clone(),
                set: set.clone(),
                element: element.clone(),
            }),
            Self::NftAddElement {
                family,
                table,
                set,
                element,
            } => Some(Self::NftDeleteElement {
                family: *family,
                table: table.clone(),
                set: set.clone(),
                element: element.clone(),
            }),
            Self::ConntrackDelete { .. } => None,
            Self::LeaseQuarantine { lease } => Some(Self::LeaseRestore { lease: lease.clone() }),
            Self::LeaseRestore { lease } => Some(Self::LeaseQuarantine { lease: lease.clone() }),
        }
    }

    /// How it is taken back, in one line.
    pub fn undo_words(&self) -> String {
        match (self.undo(), self) {
            (Some(undo), _) => undo.describe(),
            (None, Self::NftEdit { .. }) => {
                "none: not all of it was read as the kernel keeps it; the rules are printed here".to_owned()
            }
            (None, _) => "none: the connection's next packet makes a new entry".to_owned(),
        }
    }

    /// True for a change of rules: tracked connections wait for it.
    pub(crate) const fn changes_rules(&self) -> bool {
        matches!(self, Self::XtRestore { .. } | Self::NftEdit { .. })
    }

    /// Connections that prove it.
    pub(crate) fn probes(&self) -> &[Probe] {
        match self {
            Self::XtRestore { edit } => &edit.probes,
            Self::NftEdit { edit } => &edit.probes,
            _ => &[],
        }
    }
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its number, from 1.
    pub number: u32,
    /// The findings that it mends.
    pub findings: Vec<PlannedFinding>,
    /// Why.
    pub reason: String,
    /// What it expects to find, in words.
    pub expects: String,
    /// How it is taken back, in words.
    pub undo: String,
    /// Steps that must be done before.
    pub depends_on: Vec<u32>,
    /// The change.
    pub act: Act,
}

/// A finding as a plan names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFinding {
    /// Its ID.
    pub id: String,
    /// Its rule.
    pub rule: String,
    /// Its object, as its own tool prints it.
    pub object: String,
}

impl PlannedFinding {
    /// Names a finding of this node.
    pub fn of(finding: &Finding, node: &str) -> Self {
        Self {
            id: finding.id(node),
            rule: finding.rule.to_owned(),
            object: finding.object.text(),
        }
    }
}

/// Steps that would mend what was found on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: String,
    /// The node that it is for.
    pub node: String,
    /// The machine that it is for, where known.
    pub machine_id: Option<String>,
    /// When it was made.
    pub made_at: Timestamp,
    /// When it may be carried out no more.
    pub expires_at: Timestamp,
    /// True if it was made from a live node. A plan from a recording is for reading.
    pub live: bool,
    /// The steps.
    pub steps: Vec<Step>,
    /// Findings with a step that were left out, with why (share limit, `--limit`, an answer between the two readings).
    pub left_out: Vec<LeftOut>,
    /// SHA-256 over all of the above, to notice an edit by accident. It is no signature.
    pub seal: String,
}

/// A finding that could be repaired and is not in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The finding.
    #[serde(flatten)]
    pub finding: PlannedFinding,
    /// Why.
    pub why: String,
}

/// Why a plan file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanRefused {
    /// It is no plan.
    #[error("this is not a plan: {why}")]
    Unreadable {
        /// What the reader said.
        why: String,
    },
    /// Another version.
    #[error("the plan's schema is {found:?}, expected {SCHEMA:?}")]
    Schema {
        /// The schema that it names.
        found: String,
    },
    /// Another node.
    #[error("the plan is for node {found:?}, and this is {here:?}")]
    OtherNode {
        /// The plan's node.
        found: String,
        /// This node.
        here: String,
    },
    /// Another machine under the same name.
    #[error("the plan is for machine {found}, and this is {here}")]
    OtherMachine {
        /// The plan's machine ID.
        found: String,
        /// This machine's ID.
        here: String,
    },
    /// Too old.
    #[error("the plan expired at {expired_at}; make a new one")]
    Expired {
        /// When.
        expired_at: Timestamp,
    },
    /// Changed since it was made.
    #[error("the plan was changed after it was made (its seal does not fit); make a new one")]
    Edited,
    /// From a recording.
    #[error("the plan was made from a recording, which cannot be repaired; make one on the node")]
    Recorded,
}

/// What of the findings to repair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Rules by name.
    pub rules: Vec<String>,
    /// All rules of this tier.
    pub tier: Option<u8>,
    /// Only findings whose owner is in one of these namespaces; all if empty.
    pub namespaces: Vec<String>,
    /// At most so many findings.
    pub limit: Option<usize>,
}

impl Choice {
    /// True if a rule of this tier is chosen.
    pub fn takes_rule(&self, rule: &str, tier: u8) -> bool {
        self.tier == Some(tier) || self.rules.iter().any(|r| r == rule)
    }

    pub(crate) fn takes(&self, finding: &Finding) -> bool {
        let tier = crate::rules::find(finding.rule).map_or(0, |r| r.tier);
        let namespace = finding.owner.as_ref().map(|o| o.namespace.as_str());
        self.takes_rule(finding.rule, tier)
            && (self.namespaces.is_empty()
                || namespace.is_some_and(|ns| self.namespaces.iter().any(|wanted| wanted == ns)))
    }
}

/// Makes the plan for the findings that `choice` takes.
///
/// The order is: tombstones over the living, then rules, then tracked connections (which would be made again by a wrong
/// rule), then leases. Nothing is planned twice; the share limit of law 15 is kept a kind.
pub fn make(
    state: &NodeState,
    findings: &[Finding],
    choice: &Choice,
    settings: &Settings,
    now: Timestamp,
) -> Plan {
    let node = &state.identity.name;
    let mut left_out = Vec::new();
    let leave = |finding: &Finding, why| LeftOut {
        finding: PlannedFinding::of(finding, node),
        why,
    };
    let mut chosen: Vec<&Finding> = findings
        .iter()
        .filter(|f| f.action() == Action::Repair && choice.takes(f))
        .collect();
    if let Some(limit) = choice.limit.filter(|limit| *limit < chosen.len()) {
        for finding in chosen.split_off(limit) {
            left_out.push(leave(finding, format!("beyond --limit {limit}")));
        }
    }
    let over = share_exceeded(state, &chosen, settings);
    chosen.retain(|finding| match over.get(finding.object.kind()) {
        Some(why) => {
            left_out.push(leave(finding, why.clone()));
            false
        }
        None => true,
    });

    let mut drafts = Drafts::default();
    for finding in chosen {
        let Some(remedy) = &finding.remedy else { continue };
        drafts.add(remedy, finding);
    }
    let mut drafts = drafts.all;
    drafts.sort_by_key(|draft| draft.rank);
    let rule_steps: Vec<u32> = drafts
        .iter()
        .zip(1..)
        .filter(|(draft, _)| draft.act.changes_rules())
        .map(|(_, number)| number)
        .collect();
    let steps = drafts
        .into_iter()
        .zip(1..)
        .map(|(Draft { act, findings, .. }, number)| {
            let depends_on = if matches!(act, Act::ConntrackDelete { .. }) {
                rule_steps.clone()
            } else {
                Vec::new()
            };
            Step {
                number,
                findings: findings.iter().map(|f| PlannedFinding::of(f, node)).collect(),
                reason: reason(&findings),
                expects: act.expects(),
                undo: act.undo_words(),
                depends_on,
                act,
            }
        })
        .collect();
    let expires_at = now.checked_add(settings.plan_expiry).unwrap_or(now);
    let mut plan = Plan {
        schema: SCHEMA.to_owned(),
        node: node.clone(),
        machine_id: state.identity.machine_id.clone(),
        made_at: now,
        expires_at,
        live: state.live,
        steps,
        left_out,
        seal: String::new(),
    };
    plan.seal = plan.compute_seal();
    plan
}

impl Plan {
    /// Names further findings that are not in the plan, and seals it again.
    pub fn leave_out(&mut self, more: impl IntoIterator<Item = LeftOut>) {
        self.left_out.extend(more);
        self.seal = self.compute_seal();
    }
}

fn reason(findings: &[&Finding]) -> String {
    let mut lines: Vec<&str> = findings.iter().map(|f| f.consequence.as_str()).collect();
    lines.dedup();
    lines.join("\n")
}

/// Law 15: when more than a few objects of a kind would be deleted, at most a share of what there is.
fn share_exceeded(
    state: &NodeState,
    chosen: &[&Finding],
    settings: &Settings,
) -> BTreeMap<&'static str, String> {
    let mut deleted: BTreeMap<&'static str, usize> = BTreeMap::new();
    for finding in chosen {
        let counts = match (&finding.remedy, &finding.object) {
            (Some(Remedy::Xt(edit)), _) => edit.delete.len() > edit.replaced && !edit.delete.is_empty(),
            (Some(Remedy::Nft(edit)), _) => edit.deletions() > edit.replaced,
            // Leases older than the boot are a class of their own: no sandbox survives one.
            (_, Object::Lease { lease }) => {
                let booted = state.identity.booted_at;
                lease
                    .modified_at
                    .zip(booted)
                    .is_none_or(|(modified, boot)| modified >= boot)
            }
            _ => true,
        };
        if counts {
            *deleted.entry(finding.object.kind()).or_default() += 1;
        }
    }
    let counts = crate::judge::owned_counts(state);
    let mut over = BTreeMap::new();
    for (kind, number) in deleted {
        let total = counts.get(kind).copied().unwrap_or(0);
        let share = settings.share_limit_percent;
        if number > settings.share_floor && (number as u64) * 100 > total * share as u64 {
            over.insert(
                kind,
                format!(
                    "would delete {number} of the {total} {kind} objects that are known writers' in one round; the limit is {share} %"
                ),
            );
        }
    }
    over
}

impl Plan {
    fn compute_seal(&self) -> String {
        let unsealed = Self {
            seal: String::new(),
            ..self.clone()
        };
        let text = serde_json::to_string(&unsealed).unwrap_or_default();
        Sha256::digest(text.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Reads a plan from a file's content.
    pub fn parse(text: &str) -> Result<Self, PlanRefused> {
        serde_json::from_str(text).map_err(|error| PlanRefused::Unreadable {
            why: error.to_string(),
        })
    }

    /// Refuses a plan that is not for this node, too old, or edited.
    pub fn check(&self, state: &NodeState, now: Timestamp) -> Result<(), PlanRefused> {
        if self.schema != SCHEMA {
            return Err(PlanRefused::Schema {
                found: self.schema.clone(),
            });
        }
        if self.seal != self.compute_seal() {
            return Err(PlanRefused::Edited);
        }
        if !self.live {
            return Err(PlanRefused::Recorded);
        }
        if self.node != state.identity.name {
            return Err(PlanRefused::OtherNode {
                found: self.node.clone(),
                here: state.identity.name.clone(),
            });
        }
        if let (Some(found), Some(here)) = (&self.machine_id, &state.identity.machine_id)
            && found != here
        {
            return Err(PlanRefused::OtherMachine {
                found: found.clone(),
                here: here.clone(),
            });
        }
        if now >= self.expires_at {
            return Err(PlanRefused::Expired {
                expired_at: self.expires_at,
            });
        }
        Ok(())
    }

    /// An identifier for file names: the seal's first 12 digits.
    pub fn short_id(&self) -> &str {
        self.seal.get(..12).unwrap_or("unsealed")
    }
}

/// The Pod that a probe is for, in words.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = std::net::SocketAddr::new(self.target, self.target_port);
        write!(f, "{} port {} to {target}", self.proto, self.node_port)
    }
}

/// Words for a Pod that may not be known.
pub(crate) fn pod_or_nobody(pod: Option<&PodName>) -> String {
    pod.map_or_else(|| "nobody".to_owned(), PodName::to_string)
}
