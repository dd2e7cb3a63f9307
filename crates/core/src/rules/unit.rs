//! A container's own chain with the jumps to it: what CNI plugins write as one, and what is judged as one.

use std::{collections::HashMap, net::IpAddr};

use crate::{
    marks::{self, CniMark},
    model::{XtRule, XtTable, single_address},
};

/// The jumps of one table by the chain that they go to.
pub(super) struct Jumps<'a> {
    table: &'a XtTable,
    by_target: HashMap<&'a str, Vec<&'a XtRule>>,
}

/// A container's chain.
pub(super) struct Unit<'a> {
    /// The jumps to it that bear its container's mark, in the order of the table. portmap writes one a protocol and 15
    /// ports, bridge one an address.
    pub(super) jumps: Vec<&'a XtRule>,
    /// How many jumps to it do not.
    pub(super) foreign: usize,
    /// Its rules; none where the chain is gone.
    pub(super) rules: &'a [XtRule],
    /// Whether the chain is there.
    pub(super) exists: bool,
}

impl<'a> Jumps<'a> {
    pub(super) fn new(table: &'a XtTable) -> Self {
        let mut by_target: HashMap<&str, Vec<&XtRule>> = HashMap::new();
        for (_, rule) in table.rules() {
            if let Some(target) = rule.spec.target.as_deref().filter(|t| t.starts_with("CNI-")) {
                by_target.entry(target).or_default().push(rule);
            }
        }
        Self { table, by_target }
    }

    /// The chain of this name as that of a container.
    pub(super) fn unit(&self, name: &str, mark: &CniMark) -> Unit<'a> {
        let all = self.by_target.get(name).map_or(&[][..], Vec::as_slice);
        let is_own = |rule: &XtRule| {
            let comment = rule.spec.comment.as_deref();
            comment.and_then(marks::cni_comment).as_ref() == Some(mark)
        };
        let jumps: Vec<&XtRule> = all.iter().copied().filter(|rule| is_own(rule)).collect();
        let chain = self.table.chain(name);
        Unit {
            foreign: all.len() - jumps.len(),
            jumps,
            rules: chain.map_or(&[][..], |c| c.rules.as_slice()),
            exists: chain.is_some(),
        }
    }
}

/// The single addresses that a rule names.
pub(super) fn addresses(rule: &XtRule) -> impl Iterator<Item = IpAddr> + use<> {
    let spec = &rule.spec;
    let matched = [&spec.source, &spec.destination];
    let matched = matched.map(|text| text.as_deref().and_then(single_address));
    matched.into_iter().flatten().chain(spec.dnat.map(|dnat| dnat.ip))
}

impl Unit<'_> {
    /// True for the jump that names the unit: it is judged once, by its first.
    pub(super) fn is_named_by(&self, rule: &XtRule) -> bool {
        self.jumps.first().is_some_and(|first| std::ptr::eq(*first, rule))
    }

    /// The single addresses that it names: the container's, and a host's.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let jumps = self.jumps.iter().copied();
        jumps.chain(self.rules).flat_map(addresses)
    }

    /// Every line of it: what is taken away with it.
    pub(super) fn lines(&self) -> Vec<String> {
        let jumps = self.jumps.iter().copied();
        jumps.chain(self.rules).map(|rule| rule.line.clone()).collect()
    }
}
