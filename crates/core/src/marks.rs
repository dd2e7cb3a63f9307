//! Whose is it (law 8): the marks by which known writers' objects are recognised, old ones included.

pub mod nft;

use crate::model::{ContainerId, XtRule};

/// The chain of Antrea's NodePortLocal, the same since v0.13 (antrea `pkg/agent/nodeportlocal/rules`).
pub const ANTREA_NPL_CHAIN: &str = "ANTREA-NODE-PORT-LOCAL";

/// portmap's chain of hostPort DNATs (containernetworking/plugins `plugins/meta/portmap`).
pub const PORTMAP_CHAIN: &str = "CNI-HOSTPORT-DNAT";

/// The prefix of portmap's chain a container: with the first 21 hex digits of SHA-512 over network name and ID.
pub const PORTMAP_UNIT_PREFIX: &str = "CNI-DN-";

/// The prefix of the chains that kube-proxy writes.
pub const KUBE_PREFIX: &str = "KUBE-";

/// The table of Sexton's own drops (law 17).
pub const TOMBSTONE_TABLE: &str = "sexton";

/// The table of Sexton's own NodePortLocal maps, in `inet`.
pub const NPL_TABLE: &str = "sexton";

/// The prefix of a tombstone's comment: `sexton:<uid>:<reason>`.
pub const TOMBSTONE_MARK: &str = "sexton:";

/// Who a CNI rule's comment names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniMark {
    /// The network.
    pub network: String,
    /// The container.
    pub container: ContainerId,
}

/// Reads the comment that bridge's and ptp's masquerade (`name: "n" id: "c"`) and portmap's DNAT (`dnat name: "n" id: "c"`)
/// give their rules. `None` for any other comment: a prefix alone is not ownership.
///
/// Source: containernetworking/plugins `pkg/utils/utils.go`, `FormatComment` (`name: %q id: %q`).
pub fn cni_comment(comment: &str) -> Option<CniMark> {
    let rest = comment
        .strip_prefix("dnat ")
        .unwrap_or(comment)
        .strip_prefix("name: \"")?;
    let (network, rest) = rest.split_once("\" id: \"")?;
    let id = rest.strip_suffix('"')?;
    let valid = !id.is_empty()
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    valid.then(|| CniMark {
        network: network.to_owned(),
        container: ContainerId::new(id),
    })
}

/// True for portmap's jump to a container's own chain.
pub fn is_hostport_jump(rule: &XtRule) -> bool {
    hostport_mark(rule).is_some()
}

/// The owner of a hostPort jump, with the chain that it jumps to.
pub fn hostport_mark(rule: &XtRule) -> Option<(CniMark, &str)> {
    let unit = rule
        .spec
        .target
        .as_deref()
        .filter(|t| t.starts_with(PORTMAP_UNIT_PREFIX))?;
    let comment = rule.spec.comment.as_deref().filter(|c| c.starts_with("dnat "))?;
    Some((cni_comment(comment)?, unit))
}

/// True for a chain to which CNI plugins only append, so that its order is that of their ADDs: bridge's and ptp's
/// masquerades (plugins `pkg/ip/ipmasq_iptables_linux.go`, `AppendUnique`) and portmap's jumps (`plugins/meta/portmap/chain.go`).
pub fn is_append_only(chain: &str) -> bool {
    ["POSTROUTING", PORTMAP_CHAIN].contains(&chain)
}

/// True for the name of the chain that bridge and ptp give a container for its masquerade: `CNI-` and 24 hex digits (plugins
/// `pkg/utils/utils.go`, `FormatChainName`).
pub fn is_masquerade_chain(name: &str) -> bool {
    name.strip_prefix("CNI-")
        .is_some_and(|rest| rest.len() == 24 && rest.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// True for a marked jump to a container's masquerade chain.
pub fn is_masquerade_jump(rule: &XtRule) -> bool {
    rule.spec.target.as_deref().is_some_and(is_masquerade_chain)
        && rule
            .spec
            .comment
            .as_deref()
            .is_some_and(|c| cni_comment(c).is_some())
}
