//! `ip` of iproute2: links, addresses, routes, neighbours and rules, as JSON (`-j`, with or without `-d`) or as text.
//!
//! Source: iproute2 6.1, `ip/ipaddress.c`, `ip/iproute.c`, `ip/ipneigh.c`, `lib/rt_names.c`. Which of the two forms it
//! is shows in the first character.

mod json;
mod rule;
mod text;

use sexton_core::model::{Address, Link, Neighbour, Problem, Route};

use crate::problems::Problems;

pub use rule::{print_rules, read_rules};

/// Reads `ip addr` or `ip link`. The kind of a link is told only with `-d`; `ip -o addr` tells no links.
///
/// What came before a cut is kept, and the cut is a problem; text that ends early does not show it.
pub fn read_links(path: &str, bytes: &[u8]) -> ((Vec<Link>, Vec<Address>), Vec<Problem>) {
    let (mut raw, addresses, problems) = if is_json(bytes) {
        json::links(path, bytes)
    } else {
        let mut problems = Problems::new(path);
        let (raw, addresses) = text::links(&String::from_utf8_lossy(bytes), &mut problems);
        (raw, addresses, problems.finish())
    };
    let names: Vec<(String, u32)> = raw.iter().map(|r| (r.link.name.clone(), r.link.index)).collect();
    let index_of = |name: &String| names.iter().find(|(n, _)| n == name).map(|(_, index)| *index);
    for RawLink { link, master, lower } in &mut raw {
        link.master = link.master.or_else(|| index_of(master.as_ref()?));
        link.peer = link.peer.or_else(|| index_of(lower.as_ref()?));
    }
    let links = raw.into_iter().map(|r| r.link).collect();
    ((links, addresses), problems)
}

/// Reads `ip route`. `table` is the number of the table that was asked for, which the output leaves out: 254 (`main`)
/// for `ip route` and for `ip route show table all`.
///
/// A route with several next hops is as many routes.
pub fn read_routes(path: &str, bytes: &[u8], table: u32) -> (Vec<Route>, Vec<Problem>) {
    if is_json(bytes) {
        return json::routes(path, bytes, table);
    }
    let mut problems = Problems::new(path);
    let routes = text::routes(&String::from_utf8_lossy(bytes), table, &mut problems);
    (routes, problems.finish())
}

/// Reads `ip neigh`. An entry of `ip neigh show proxy` has the state `PROXY`.
pub fn read_neighbours(path: &str, bytes: &[u8]) -> (Vec<Neighbour>, Vec<Problem>) {
    if is_json(bytes) {
        return json::neighbours(path, bytes);
    }
    let mut problems = Problems::new(path);
    let neighbours = text::neighbours(&String::from_utf8_lossy(bytes), &mut problems);
    (neighbours, problems.finish())
}

/// A link whose relations are still names.
struct RawLink {
    link: Link,
    master: Option<String>,
    lower: Option<String>,
}

fn is_json(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    matches!(bytes.trim_ascii_start().first(), Some(b'[' | b'{'))
}

/// A table's number: `rtnl_rttable_init`. Other names are of the node's own `/etc/iproute2/rt_tables`.
fn table_number(name: &str) -> Option<u32> {
    match name {
        "default" => Some(253),
        "main" => Some(254),
        "local" => Some(255),
        "unspec" => Some(0),
        number => number.parse().ok(),
    }
}

/// The number of an origin: `rtnl_rtprot_tab` and `/etc/iproute2/rt_protos`. It is left out for `boot`.
fn protocol_number(name: &str) -> Option<u8> {
    Some(match name {
        "none" | "unspec" => 0,
        "redirect" => 1,
        "kernel" => 2,
        "boot" => BOOT,
        "static" => 4,
        "gated" => 8,
        "ra" => 9,
        "mrt" => 10,
        "zebra" => 11,
        "bird" => 12,
        "dnrouted" => 13,
        "xorp" => 14,
        "ntk" => 15,
        "dhcp" => 16,
        "mrouted" => 17,
        "keepalived" => 18,
        "babel" => 42,
        "ovn" => 84,
        "openr" => 99,
        "bgp" => 186,
        "isis" => 187,
        "ospf" => 188,
        "rip" => 189,
        "eigrp" => 192,
        number => return number.parse().ok(),
    })
}

/// `RTPROT_BOOT`.
const BOOT: u8 = 3;

#[cfg(test)]
mod tests;
