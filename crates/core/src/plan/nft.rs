//! Changes to one nftables table: a plain value like the rest of a plan.

use serde::{Deserialize, Serialize};

use super::Probe;
use crate::model::{NftElement, NftFamily, NftRule};

/// A rule at its place in a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NftRuleAt {
    /// The rule as observed.
    #[serde(flatten)]
    pub rule: NftRule,
    /// The handle of the rule before it, where there was one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<u64>,
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NftElementAt {
    /// The set.
    pub set: String,
    /// The element.
    #[serde(flatten)]
    pub element: NftElement,
}

/// Changes to one nftables table, made as one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NftEdit {
    /// The table's family.
    pub family: NftFamily,
    /// The table.
    pub table: String,
    /// Rules to take away, each by its handle and only with this content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<NftRuleAt>,
    /// Rules to put back (only an undo does).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<NftRuleAt>,
    /// Elements to take away, each only with this content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete_elements: Vec<NftElementAt>,
    /// Elements to add, whose keys must be free once the others are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_elements: Vec<NftElementAt>,
    /// Connections that prove the change.
    pub probes: Vec<Probe>,
    /// How many of the deleted things have a living owner that is served right again at once. They do not count against the
    /// share limit (law 15).
    pub replaced: usize,
}

impl NftEdit {
    /// An edit of this table that changes nothing yet.
    pub fn of(family: NftFamily, table: impl Into<String>) -> Self {
        Self {
            family,
            table: table.into(),
            delete: Vec::new(),
            add: Vec::new(),
            delete_elements: Vec::new(),
            add_elements: Vec::new(),
            probes: Vec::new(),
            replaced: 0,
        }
    }

    /// True if it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.deletions() + self.add.len() + self.add_elements.len() == 0
    }

    /// How many rules and elements it takes away.
    pub fn deletions(&self) -> usize {
        self.delete.len() + self.delete_elements.len()
    }

    /// True if both are of one table.
    pub fn same_table(&self, other: &Self) -> bool {
        (self.family, &self.table) == (other.family, &other.table)
    }

    /// The changes as commands of `nft`, one a line.
    pub fn commands(&self) -> Vec<String> {
        let Self { family, table, .. } = self;
        let handle = |at: &NftRuleAt| {
            let number = at.rule.handle.map(|handle| format!(" {handle}"));
            number.unwrap_or_else(|| " (not recorded)".to_owned())
        };
        let element =
            |at: &NftElementAt| format!("element {family} {table} {} {{ {} }}", at.set, at.element.text());
        let mut out = Vec::new();
        for at in &self.delete {
            let NftRule { chain, text, .. } = &at.rule;
            out.push(format!(
                "nft delete rule {family} {table} {chain} handle{}  # {text}",
                handle(at)
            ));
        }
        let gone = self.delete_elements.iter();
        out.extend(gone.map(|at| format!("nft delete {}", element(at))));
        let new = self.add_elements.iter();
        out.extend(new.map(|at| format!("nft add {}", element(at))));
        let back = self.add.iter();
        out.extend(back.map(|at| match at.after {
            Some(after) => {
                let NftRule { chain, text, .. } = &at.rule;
                format!("nft add rule {family} {table} {chain} handle {after} {text}")
            }
            None => format!("nft insert rule {}", at.rule.placed()),
        }));
        out
    }

    pub(super) fn describe(&self) -> String {
        let counted = [
            ("delete", self.delete.len(), "rule", "rules"),
            ("put", self.add.len(), "rule back", "rules back"),
            ("delete", self.delete_elements.len(), "element", "elements"),
            ("add", self.add_elements.len(), "element", "elements"),
        ];
        let parts: Vec<String> = counted
            .into_iter()
            .filter(|(_, number, ..)| *number > 0)
            .map(|(verb, number, one, many)| {
                let noun = if number == 1 { one } else { many };
                format!("{verb} {number} {noun}")
            })
            .collect();
        format!(
            "nft {} {}: {} in one transaction",
            self.family,
            self.table,
            parts.join(", ")
        )
    }

    pub(super) fn expects(&self) -> String {
        let handle = |at: &NftRuleAt| {
            at.rule
                .handle
                .map(|h| format!("handle {h} is "))
                .unwrap_or_default()
        };
        let mut lines = Vec::new();
        let rules = self.delete.iter();
        lines.extend(rules.map(|at| format!("present: {}{}", handle(at), at.rule.placed())));
        let element = |at: &NftElementAt| format!("{} {{ {} }}", at.set, at.element.text());
        let elements = self.delete_elements.iter();
        lines.extend(elements.map(|at| format!("present: {}", element(at))));
        let keys = self.add_elements.iter();
        lines.extend(keys.map(|at| format!("absent: {}", element(at))));
        let rules = self.add.iter();
        lines.extend(rules.map(|at| format!("absent: {}", at.rule.placed())));
        lines.join("\n")
    }

    /// What takes it back. A rule can only be put back of which everything is known that the kernel keeps.
    pub(super) fn undo(&self) -> Option<Self> {
        let whole = self.add.is_empty() && self.delete.iter().all(|at| at.rule.raw.is_some());
        whole.then(|| Self {
            add: self.delete.clone(),
            delete_elements: self.add_elements.clone(),
            add_elements: self.delete_elements.clone(),
            ..Self::of(self.family, self.table.clone())
        })
    }
}
