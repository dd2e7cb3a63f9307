//! The names inside an archive of `antctl supportbundle`.
//!
//! Source: antrea-io/antrea, `pkg/support/dump.go`, `dump_others.go` and `dump_windows.go`, and
//! `pkg/antctl/raw/supportbundle`. The archive holds `agent_<node>.tar.gz` and `controller_<node>.tar.gz`, whose files
//! have no extension, beside `clusterinfo`.

/// The name by which a recorded node holds the same content; `None` for a file that `antctl` did not write or that
/// tells nothing of the node's state (flows, groups, profiles, logs).
///
/// - `iptables` is what `iptables-save -c` and `ip6tables-save -c` printed, one after the other in either order; the
///   family is in the comment line that each begins with.
/// - `route-table-all` (Antrea since v2.5) holds what `route` holds and more; both have one name here.
/// - `HNSNetwork` and `HNSEndpoint` are `Key : Value` blocks of PowerShell.
pub fn canonical_name(path: &str) -> Option<&'static str> {
    let mut parts = path.rsplit(['/', '\\']).filter(|part| !part.is_empty());
    let name = parts.next()?;
    if parts.any(|folder| folder == "logs") {
        return None;
    }
    Some(match name {
        "iptables" => "iptables-save.txt",
        "nftables" => "nft.txt",
        "ipset" => "ipset.txt",
        "address" => "ip-addr.txt",
        "link" => "ip-link.txt",
        "route" | "route-table-all" => "ip-route.txt",
        "rule" => "ip-rule.txt",
        "HNSNetwork" => "network.txt",
        "HNSEndpoint" => "endpoint.txt",
        _ => return None,
    })
}

/// The node of an agent's archive: `agent_<node>.tar.gz` or a folder of that name.
pub fn node_name(path: &str) -> Option<&str> {
    path.split(['/', '\\']).find_map(|part| {
        let name = part.strip_prefix("agent_")?;
        let name = name.strip_suffix(".tar.gz").unwrap_or(name);
        (!name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests;
