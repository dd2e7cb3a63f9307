//! nftables: `nft list ruleset` as text (with or without `-a`, `-n`, `-s`) and `nft -j list ruleset`.
//!
//! Both give the same tables, sets and elements. Source: nftables 1.0.6, `src/rule.c` (`set_print_declaration`,
//! `chain_print_declaration`), `src/expression.c` (`set_elem_expr_print`), `src/json.c` and libnftables-json(5). What
//! JSON leaves out: milliseconds, the device of a netdev chain, and the parameters of an iptables extension, so that
//! the DNAT of a rule that iptables-nft made has no visible target there.

mod json;
mod lex;
mod rule;
mod text;
mod value;

use sexton_core::model::{Family, NftFamily, NftState, Problem, XtTable, XtVariant};

pub use json::read_json;
pub use text::read_text;

/// Reads a ruleset in either form; a JSON one begins with a brace.
pub fn read(path: &str, bytes: &[u8]) -> (NftState, Vec<Problem>) {
    let start = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if start.trim_ascii_start().first() == Some(&b'{') {
        read_json(path, bytes)
    } else {
        read_text(path, &String::from_utf8_lossy(start))
    }
}

/// The tables that iptables-nft makes, in `ip` and `ip6`.
const IPTABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];

/// Takes out the tables that `iptables-save` of the same reading told already: there they are complete.
///
/// A table stays if only `iptables-legacy` told one of its name, since that one lives elsewhere in the kernel.
pub fn drop_iptables_tables(state: &mut NftState, told: &[XtTable]) {
    let covered = |family: NftFamily, name: &str| {
        let family = match family {
            NftFamily::Ip => Family::Ipv4,
            NftFamily::Ip6 => Family::Ipv6,
            _ => return false,
        };
        IPTABLES.contains(&name)
            && told
                .iter()
                .any(|t| t.variant != XtVariant::Legacy && t.family == family && t.name == name)
    };
    state.tables.retain(|(family, name)| !covered(*family, name));
    state.sets.retain(|s| !covered(s.family, &s.table));
    state.chains.retain(|c| !covered(c.family, &c.table));
    state.rules.retain(|r| !covered(r.family, &r.table));
}

/// The family by its word.
fn family(word: &str) -> Option<NftFamily> {
    Some(match word {
        "ip" => NftFamily::Ip,
        "ip6" => NftFamily::Ip6,
        "inet" => NftFamily::Inet,
        "arp" => NftFamily::Arp,
        "bridge" => NftFamily::Bridge,
        "netdev" => NftFamily::Netdev,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
