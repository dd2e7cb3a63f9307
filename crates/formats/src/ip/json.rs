//! The JSON form.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};
use sexton_core::model::{Address, Link, Neighbour, Problem, Route};

use super::{BOOT, RawLink, protocol_number, table_number};
use crate::{
    addr::{parse_ip, parse_net},
    items::{self, Shape},
    problems::Problems,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct LinkObject {
    ifindex: u32,
    ifname: String,
    link: Option<String>,
    link_index: Option<u32>,
    link_netnsid: Option<i32>,
    flags: Vec<String>,
    master: Option<String>,
    link_type: String,
    address: String,
    linkinfo: LinkInfo,
    addr_info: Vec<AddressObject>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LinkInfo {
    info_kind: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AddressObject {
    local: Option<String>,
    prefixlen: Option<u8>,
}

pub(super) fn links(path: &str, bytes: &[u8]) -> (Vec<RawLink>, Vec<Address>, Vec<Problem>) {
    let (mut links, mut addresses) = (Vec::new(), Vec::new());
    let problems = each(path, bytes, &mut |line, object: LinkObject, problems| {
        if object.ifname.is_empty() && object.ifindex == 0 {
            return problems.push(
                line,
                "expected a link, found an object without `ifname`".to_owned(),
            );
        }
        for address in object.addr_info {
            // an address of a family that is not IP has no `local`
            let Some(text) = address.local else { continue };
            match (parse_ip(&text), address.prefixlen) {
                (Some(ip), Some(prefix)) => addresses.push(Address {
                    link: object.ifindex,
                    ip,
                    prefix,
                }),
                _ => problems.push(line, format!("not an address with a prefix length: {text:?}")),
            }
        }
        links.push(RawLink {
            link: Link {
                index: object.ifindex,
                name: object.ifname,
                mac: (object.link_type == "ether")
                    .then(|| object.address.parse().ok())
                    .flatten(),
                kind: object.linkinfo.info_kind,
                master: None,
                peer: object.link_index,
                peer_netns: object.link_netnsid,
                up: object.flags.iter().any(|flag| flag == "UP"),
            },
            master: object.master,
            lower: object.link,
        });
    });
    (links, addresses, problems)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RouteObject {
    #[serde(rename = "type")]
    kind: Option<String>,
    dst: Option<String>,
    table: Option<Value>,
    protocol: Option<Value>,
    metric: Option<u32>,
    #[serde(flatten)]
    hop: Hop,
    nexthops: Vec<Hop>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Hop {
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Via {
    host: String,
}

pub(super) fn routes(path: &str, bytes: &[u8], table: u32) -> (Vec<Route>, Vec<Problem>) {
    let mut routes = Vec::new();
    let problems = each(path, bytes, &mut |line, object: RouteObject, problems| {
        let word = |value: &Option<Value>| match value {
            Some(Value::String(text)) => Some(text.clone()),
            other => other.as_ref().map(ToString::to_string),
        };
        let dst = match object.dst.as_deref() {
            None => return problems.push(line, "expected a route, found an object without `dst`".to_owned()),
            Some("default") => None,
            Some(text) => match parse_net(text) {
                Some(net) => Some(net),
                None => return problems.push(line, format!("not a destination: {text:?}")),
            },
        };
        let table = match word(&object.table) {
            None => table,
            Some(name) => match table_number(&name) {
                Some(number) => number,
                None => return problems.push(line, format!("a routing table of an unknown name: {name:?}")),
            },
        };
        let protocol = word(&object.protocol);
        let route = Route {
            dst: dst.filter(|net| net.prefix_len() > 0),
            gateway: None,
            dev: None,
            table,
            kind: object.kind.unwrap_or_else(|| "unicast".to_owned()),
            protocol: protocol.map_or(BOOT, |name| protocol_number(&name).unwrap_or_default()),
            metric: object.metric,
        };
        let hops = if object.nexthops.is_empty() {
            vec![object.hop]
        } else {
            object.nexthops
        };
        for hop in hops {
            let gateway = hop.gateway.or(hop.via.map(|via| via.host));
            let ip = gateway.as_deref().and_then(parse_ip);
            if let (Some(text), None) = (gateway, ip) {
                problems.push(line, format!("not a gateway: {text:?}"));
            }
            routes.push(Route {
                gateway: ip,
                dev: hop.dev,
                ..route.clone()
            });
        }
    });
    (routes, problems)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NeighbourObject {
    dst: Option<String>,
    dev: String,
    lladdr: Option<String>,
    state: Vec<String>,
    /// Its presence says it; the value is `null`.
    #[serde(deserialize_with = "present")]
    proxy: bool,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

pub(super) fn neighbours(path: &str, bytes: &[u8]) -> (Vec<Neighbour>, Vec<Problem>) {
    let mut neighbours = Vec::new();
    let problems = each(path, bytes, &mut |line, object: NeighbourObject, problems| {
        let Some(ip) = object.dst.as_deref().and_then(parse_ip) else {
            return problems.push(
                line,
                format!("expected a neighbour, found the address {:?}", object.dst),
            );
        };
        neighbours.push(Neighbour {
            ip,
            dev: object.dev,
            mac: object.lladdr.and_then(|text| text.parse().ok()),
            state: match (object.state.is_empty(), object.proxy) {
                (true, true) => "PROXY".to_owned(),
                (true, false) => "NONE".to_owned(),
                (false, _) => object.state.join(","),
            },
        });
    });
    (neighbours, problems)
}

/// Hands out every object of the list. `ip` before 5.0 printed `{}` for what its filter left out.
fn each<'a, T: Deserialize<'a>>(
    path: &str,
    bytes: &'a [u8],
    take: &mut dyn FnMut(usize, T, &mut Problems<'_>),
) -> Vec<Problem> {
    let mut wrong = Problems::new(path);
    let mut unreadable = Vec::new();
    let problems = items::read(path, bytes, Shape::Plain, &mut |line, raw: &'a RawValue| {
        if raw.get() == "{}" {
            return;
        }
        if let Some(object) = items::item(path, line, raw, &mut unreadable) {
            take(line, object, &mut wrong);
        }
    });
    let mut all = wrong.finish();
    all.extend(unreadable);
    all.extend(problems);
    all
}
