//! The place for drops that end a loop: sets with timeout in `table netdev sexton`, looked up where packets enter a link.
//!
//! The elements are added and deleted as any other act. Without one, the rules here drop nothing; each expires by itself (law 17).

use std::time::Duration;

use serde_json::Value;
use sexton_core::model::Family;

use crate::command::{self, CommandError};

/// The set of single flows whose resets are dropped: destination, its port, source, its port. The destination comes first, so that whoever
/// looks for drops over a living address finds it.
pub fn flow_set(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "loopflows",
        Family::Ipv6 => "loopflows6",
    }
}

/// The set of destinations for which everything is dropped.
pub fn address_set(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "tombstones",
        Family::Ipv6 => "tombstones6",
    }
}

/// Why there is no place for a drop.
#[derive(Debug, thiserror::Error)]
pub enum DropsError {
    /// A link's name that nftables cannot take as part of a chain's.
    #[error("the link's name {0:?} cannot be part of a chain's name")]
    Name(String),
    /// `nft` is not there.
    #[error("nft is not installed on this node")]
    NoNft,
    /// It failed.
    #[error("cannot {what} with nft")]
    Nft {
        /// What was to be done.
        what: &'static str,
        /// Why not.
        #[source]
        source: CommandError,
    },
}

/// How long `nft` may take.
const DEADLINE: Duration = Duration::from_secs(5);

fn nft(what: &'static str, arguments: &[&str], input: &str) -> Result<Vec<u8>, DropsError> {
    let program = command::find("nft").ok_or(DropsError::NoNft)?;
    let failed = |source| DropsError::Nft { what, source };
    let output = command::run(&program, arguments, input.as_bytes(), DEADLINE).map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(failed(CommandError::Failed {
        program,
        status: output.status,
        message: output.stderr,
    }))
}

fn chain(link: &str) -> Result<String, DropsError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if link.is_empty() || !link.chars().all(plain) {
        return Err(DropsError::Name(link.to_owned()));
    }
    Ok(format!("loop_{link}"))
}

/// The transaction that makes the place, whether or not it is there.
fn text(link: &str, chain: &str) -> String {
    let mut out = String::from("add table netdev sexton\n");
    for (family, address, network) in [
        (Family::Ipv4, "ipv4_addr", "ip"),
        (Family::Ipv6, "ipv6_addr", "ip6"),
    ] {
        let (flows, all) = (flow_set(family), address_set(family));
        out += &format!(
            "add set netdev sexton {flows} {{ type {address} . inet_service . {address} . inet_service; flags timeout; }}
add set netdev sexton {all} {{ type {address}; flags timeout; }}
"
        );
        if family == Family::Ipv4 {
            out += &format!(
                "add chain netdev sexton {chain} {{ type filter hook ingress device \"{link}\" priority -500; policy accept; }}
flush chain netdev sexton {chain}
"
            );
        }
        out += &format!(
            "add rule netdev sexton {chain} tcp flags & rst == rst {network} daddr . tcp dport . {network} saddr . tcp sport @{flows} \
             counter drop comment \"sexton:loop\"
add rule netdev sexton {chain} {network} daddr @{all} counter drop comment \"sexton:loop\"
"
        );
    }
    out
}

/// Makes the sets and the rules that look them up at a link's ingress, before anything else there.
///
/// # Errors
///
/// [`DropsError`].
pub fn prepare(link: &str) -> Result<(), DropsError> {
    let chain = chain(link)?;
    nft("prepare drops at a link", &["-f", "-"], &text(link, &chain)).map(drop)
}

/// Packets that the rules of a link have dropped since they were prepared.
///
/// # Errors
///
/// [`DropsError`].
pub fn dropped(link: &str) -> Result<u64, DropsError> {
    let chain = chain(link)?;
    let listed = nft(
        "read the count of drops",
        &["-j", "list", "chain", "netdev", "sexton", &chain],
        "",
    )?;
    let value: Value = serde_json::from_slice(&listed).unwrap_or_default();
    let rules = value["nftables"].as_array().into_iter().flatten();
    let counts = rules
        .flat_map(|item| item["rule"]["expr"].as_array().into_iter().flatten())
        .filter_map(|expression| expression["counter"]["packets"].as_u64());
    Ok(counts.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_links_name_is_taken_only_where_it_can_be_part_of_a_chains() {
        assert_eq!(chain("eth0.100").unwrap(), "loop_eth0.100");
        for name in ["", "a b", "x\"", "e;flush ruleset"] {
            assert!(matches!(chain(name), Err(DropsError::Name(_))), "{name}");
        }
    }
}
