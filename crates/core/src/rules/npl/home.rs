//! Where a mapping is kept: a rule of Antrea's chain, or an element of a map in Sexton's own table.
//!
//! The map's form is `inet_proto . inet_service : ipv4_addr . inet_service` (or `ipv6_addr`) in table `inet sexton`, looked up
//! by a DNAT; the element's comment names the Pod: `sexton:<uid>:npl`.

use std::net::SocketAddr;

use super::{Mapping, Wanted, object};
use crate::{
    finding::Object,
    judge::Judge,
    marks::{NPL_TABLE, TOMBSTONE_MARK},
    model::{Family, NftElement, NftFamily, NftSet, NftValue, NodeState, XtRule, XtTable},
    plan::{NftEdit, NftElementAt, Probe, Remedy, XtEdit},
};

/// A mapping's place.
#[derive(Clone, Copy)]
pub(super) enum Home<'a> {
    /// A DNAT of iptables.
    Rule {
        /// Its table.
        table: &'a XtTable,
        /// The rule.
        rule: &'a XtRule,
    },
    /// An element of a map of nftables.
    Element {
        /// Its map.
        set: &'a NftSet,
        /// The element.
        element: &'a NftElement,
    },
}

/// The family of a map of node ports; none for any other set.
fn family_of(set: &NftSet) -> Option<Family> {
    let ours = set.family == NftFamily::Inet && set.table == NPL_TABLE && set.is_map;
    if !ours || set.key_type != "inet_proto . inet_service" {
        return None;
    }
    match set.data_type.as_deref() {
        Some("ipv4_addr . inet_service") => Some(Family::Ipv4),
        Some("ipv6_addr . inet_service") => Some(Family::Ipv6),
        _ => None,
    }
}

/// The one map of node ports of a family; none where there is none, or more than one.
pub(super) fn map(state: &NodeState, family: Family) -> Option<&NftSet> {
    let mut maps = state
        .nft
        .value
        .sets
        .iter()
        .filter(|set| family_of(set) == Some(family));
    maps.next().filter(|_| maps.next().is_none())
}

/// Every mapping that is an element.
pub(super) fn mappings(state: &NodeState) -> impl Iterator<Item = Mapping<'_>> {
    state.nft.value.sets.iter().flat_map(|set| {
        let family = family_of(set);
        let elements = family.map(|family| set.elements.iter().map(move |element| (family, element)));
        elements
            .into_iter()
            .flatten()
            .filter_map(move |(family, element)| {
                let [NftValue::Proto(proto), NftValue::Port(node_port)] = element.key[..] else {
                    return None;
                };
                let [NftValue::Addr(ip), NftValue::Port(port)] = element.data[..] else {
                    return None;
                };
                Some(Mapping {
                    home: Home::Element { set, element },
                    port: (family, proto, node_port),
                    target: SocketAddr::new(ip, port),
                })
            })
    })
}

/// The element that leads a Pod's announced port to it.
fn element_for(claim: &Wanted<'_>) -> NftElement {
    let uid = claim.pod.uid.as_ref();
    NftElement {
        key: vec![
            NftValue::Proto(claim.entry.proto),
            NftValue::Port(claim.entry.node_port),
        ],
        data: vec![NftValue::Addr(claim.ip), NftValue::Port(claim.entry.pod_port)],
        comment: uid.map(|uid| format!("{TOMBSTONE_MARK}{uid}:npl")),
        timeout_ms: None,
        expires_ms: None,
    }
}

/// What adds a missing mapping to a map.
pub(super) fn addition(set: &NftSet, claim: &Wanted<'_>) -> Remedy {
    Remedy::Nft(NftEdit {
        add_elements: vec![NftElementAt {
            set: set.name.clone(),
            element: element_for(claim),
        }],
        probes: vec![claim.probe()],
        ..NftEdit::of(set.family, set.table.clone())
    })
}

impl Home<'_> {
    /// What told it.
    pub(super) fn source(&self, judge: &Judge<'_>) -> String {
        match self {
            Self::Rule { table, .. } => table.source.clone(),
            Self::Element { .. } => judge.state.nft.source_names(),
        }
    }

    /// Law 8: that an element of the map bears a mark that is not ours.
    pub(super) fn foreign(&self) -> Option<String> {
        let Self::Element { element, .. } = self else {
            return None;
        };
        let comment = element.comment.as_deref()?;
        (!comment.starts_with(TOMBSTONE_MARK))
            .then(|| format!("our mark {TOMBSTONE_MARK:?} in its comment: somebody else set it"))
    }

    /// The mapping as a finding shows it.
    pub(super) fn object(&self) -> Object {
        match self {
            Self::Rule { table, rule } => object(table, rule),
            Self::Element { set, element } => Object::NftElement {
                family: set.family,
                table: set.table.clone(),
                set: set.name.clone(),
                element: (*element).clone(),
            },
        }
    }

    /// What takes it away and puts the right one there, in one transaction.
    pub(super) fn replacement(
        &self,
        right: Option<&Wanted<'_>>,
        probes: Vec<Probe>,
        replaced: usize,
    ) -> Remedy {
        match self {
            Self::Rule { table, rule } => Remedy::Xt(XtEdit {
                delete: vec![rule.line.clone()],
                add: right.map(Wanted::line).into_iter().collect(),
                probes,
                replaced,
                ..XtEdit::of(Judge::place(table))
            }),
            Self::Element { set, element } => {
                let at = |element: NftElement| NftElementAt {
                    set: set.name.clone(),
                    element,
                };
                Remedy::Nft(NftEdit {
                    delete_elements: vec![at((*element).clone())],
                    add_elements: right.map(|claim| at(element_for(claim))).into_iter().collect(),
                    probes,
                    replaced,
                    ..NftEdit::of(set.family, set.table.clone())
                })
            }
        }
    }
}
