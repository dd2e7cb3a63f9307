//! The marks of CNI plugins in nftables (containernetworking/plugins 1.6 and later, where `ipMasqBackend` or portmap's
//! `backend` is `nftables`, or iptables is not there).
//!
//! The firewall plugin has no nftables backend and names no container in its rules (`plugins/meta/firewall/iptables.go`).
//! bridge's `macspoofchk` (`pkg/link/spoofcheck.go`) names one in table `bridge nat`; its rules match a device that is
//! gone with the sandbox, and are not judged.

use sha2::{Digest as _, Sha512};

use crate::model::{ContainerId, NftFamily, NftRule};

/// portmap's table, one in `ip` and one in `ip6` (`plugins/meta/portmap/portmap_nftables.go`).
pub const PORTMAP_TABLE: &str = "cni_hostport";

/// Its chains that hold rules of containers, in the order in which a packet meets them. The first is of older
/// releases, which put rules of one host address there.
const PORTMAP_CHAINS: [&str; 3] = ["hostip_hostports", "hostports", "masquerading"];

/// The table of bridge's and ptp's masquerade, in `inet` (`pkg/ip/ipmasq_nftables_linux.go`).
pub const MASQUERADE_TABLE: &str = "cni_plugins_masquerade";

/// Its chain that holds rules of containers.
const MASQUERADE_CHAIN: &str = "masq_checks";

/// The longest comment that the plugins write; what is longer is cut there (knftables `types.go`, `CommentLengthMax`).
const COMMENT_MAX: usize = 128;

/// Digits of each of the two hashes that a masquerade's comment begins with.
const HASH_LEN: usize = 16;

/// Who a rule's comment names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NftMark {
    /// The network; portmap does not name it.
    pub network: Option<String>,
    /// The container; the first digits of its ID where the comment was cut.
    pub container: ContainerId,
    /// What a cut comment still tells of the whole ID.
    pub cut: Option<CutMark>,
}

/// A comment that was cut inside of the ID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CutMark {
    interface: String,
    hash: String,
}

impl CutMark {
    /// True if the comment was made for this container.
    pub fn is_of(&self, container: &ContainerId) -> bool {
        hash(&format!("{}:{container}", self.interface)) == self.hash
    }
}

/// True for a table whose rules are read with all that the kernel keeps of them, because one may be taken away and put
/// back.
pub fn is_plugins_table(family: NftFamily, table: &str) -> bool {
    match table {
        PORTMAP_TABLE => matches!(family, NftFamily::Ip | NftFamily::Ip6),
        MASQUERADE_TABLE => family == NftFamily::Inet,
        _ => false,
    }
}

/// The container of one of portmap's rules, hostPort or masquerade: its comment is the ID and nothing else.
pub fn hostport(rule: &NftRule) -> Option<NftMark> {
    let here = rule.table == PORTMAP_TABLE
        && is_plugins_table(rule.family, &rule.table)
        && PORTMAP_CHAINS.contains(&rule.chain.as_str());
    let id = rule.comment.as_deref().filter(|id| here && is_id(id))?;
    Some(NftMark {
        network: None,
        container: ContainerId::new(id),
        cut: None,
    })
}

/// Where a packet meets a rule among those of portmap's other chains.
pub(crate) fn hostport_order(rule: &NftRule) -> usize {
    let mut chains = PORTMAP_CHAINS.iter();
    chains
        .position(|c| *c == rule.chain)
        .unwrap_or(PORTMAP_CHAINS.len())
}

/// The container of one of bridge's and ptp's masquerades. Its comment is
/// `<hash of the network>-<hash of interface and ID>, net: <network>, if: <interface>, id: <container>`; each hash is the
/// first 16 hex digits of SHA-512. A comment whose hashes do not fit its words is nobody's mark.
pub fn masquerade(rule: &NftRule) -> Option<NftMark> {
    let here = (rule.family, rule.table.as_str(), rule.chain.as_str())
        == (NftFamily::Inet, MASQUERADE_TABLE, MASQUERADE_CHAIN);
    let comment = rule.comment.as_deref().filter(|_| here)?;
    let (network_hash, rest) = comment.split_once('-')?;
    let (instance_hash, rest) = rest.split_once(", net: ")?;
    let (rest, id) = rest.rsplit_once(", id: ")?;
    let (network, interface) = rest.rsplit_once(", if: ")?;
    if instance_hash.len() != HASH_LEN || hash(network) != network_hash || !is_id(id) {
        return None;
    }
    let container = ContainerId::new(id);
    let cut = CutMark {
        interface: interface.to_owned(),
        hash: instance_hash.to_owned(),
    };
    let whole = cut.is_of(&container);
    if !whole && comment.len() < COMMENT_MAX {
        return None;
    }
    Some(NftMark {
        network: Some(network.to_owned()),
        container,
        cut: (!whole).then_some(cut),
    })
}

/// The container that a CNI plugin's rule names.
pub fn of(rule: &NftRule) -> Option<NftMark> {
    hostport(rule).or_else(|| masquerade(rule))
}

fn is_id(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// `utils.MustFormatHashWithPrefix(16, "", text)` of the plugins.
pub(crate) fn hash(text: &str) -> String {
    let digest = Sha512::digest(text.as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.get(..HASH_LEN).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(family: NftFamily, table: &str, chain: &str, comment: &str) -> NftRule {
        NftRule {
            comment: Some(comment.to_owned()),
            ..NftRule::bare(family, table, chain, String::new())
        }
    }

    fn masq(comment: &str) -> Option<NftMark> {
        masquerade(&rule(
            NftFamily::Inet,
            MASQUERADE_TABLE,
            MASQUERADE_CHAIN,
            comment,
        ))
    }

    #[test]
    fn a_masquerade_is_owned_by_hashes_and_not_by_words() {
        let id = "c".repeat(64);
        let comment = |network: &str, id: &str| {
            let hashes = format!("{}-{}", hash(network), hash(&format!("eth0:{id}")));
            format!("{hashes}, net: {network}, if: eth0, id: {id}")
        };
        let whole = masq(&comment("podnet", &id)).unwrap();
        assert_eq!(whole.network.as_deref(), Some("podnet"));
        assert_eq!((whole.container.as_str(), whole.cut), (id.as_str(), None));
        // A long network name leaves less room for the ID.
        let mut text = comment("k8s-pod-network", &id);
        text.truncate(COMMENT_MAX);
        let cut = masq(&text).unwrap();
        assert!(cut.container.as_str().len() < 64);
        let mark = cut.cut.unwrap();
        assert!(mark.is_of(&ContainerId::new(&id)));
        let other = format!("{}d", "c".repeat(63));
        assert!(!mark.is_of(&ContainerId::new(&other)));
        // Words that do not fit the hashes: somebody else's rule.
        assert_eq!(masq(&comment("podnet", &id).replace("podnet,", "other,")), None);
        let forged = comment("podnet", &id).replace(&id, &other);
        assert_eq!(masq(&forged), None);
        // As the plugins' own test has it (`pkg/ip/ipmasq_nftables_linux_test.go`).
        let known = masq("6fd94d501e58f0aa-287fc69eff0574a2, net: unit-test, if: eth0, id: one").unwrap();
        assert_eq!(known.container, ContainerId::new("one"));
        for odd in ["", "-", "a-b, net: , if: , id: ", ", net: a, if: b, id: c"] {
            assert_eq!(masq(odd), None);
        }
    }

    #[test]
    fn a_hostport_is_owned_by_place_and_comment() {
        let id = "a".repeat(64);
        let mark = |family, chain, comment: &str| hostport(&rule(family, PORTMAP_TABLE, chain, comment));
        assert_eq!(
            mark(NftFamily::Ip6, "hostports", &id).unwrap().container.as_str(),
            id
        );
        assert!(mark(NftFamily::Ip, "masquerading", &id).is_some());
        assert!(mark(NftFamily::Inet, "hostports", &id).is_none());
        assert!(mark(NftFamily::Ip, "prerouting", &id).is_none());
        assert!(mark(NftFamily::Ip, "hostports", "not one word").is_none());
    }
}
