//! Links, addresses, routes, neighbours and rules (`linux/rtnetlink.h`, `rtnetlink(7)`).

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use nlink::Connection;
use nlink::netlink::{NlMsgType, Route as RouteProtocol};
use sexton_core::model::{Address, Completeness, Facts, IpRule, Link, Mac, Neighbour, Route};

use crate::source::{Watch, chain};

use super::attrs::{AF_INET, AF_INET6, AttrIter, ip, ne32, push, text};
use super::{DUMP_TRIES, NetlinkError, SILENCE, block_on, dump, is_torn};

const AF_UNSPEC: u8 = 0;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_LINK_NETNSID: u16 = 37;
/// Leave the counters out: they are most of a link's message.
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
const IFF_UP: u32 = 1;
const ARPHRD_ETHER: u16 = 1;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_NOARP: u16 = 0x40;

/// Everything that the kernel's routing side told.
#[derive(Default)]
pub(crate) struct Routing {
    /// The links.
    pub(crate) links: Facts<Vec<Link>>,
    /// Their addresses.
    pub(crate) addresses: Facts<Vec<Address>>,
    /// Routes of all tables, one a next hop.
    pub(crate) routes: Facts<Vec<Route>>,
    /// Neighbours, without those of links that need none (`NOARP`), as `ip neigh` shows them.
    pub(crate) neighbours: Facts<Vec<Neighbour>>,
    /// Rules of the routing policy, IPv4's first.
    pub(crate) rules: Facts<Vec<IpRule>>,
}

/// Reads the routing side of the calling thread's namespace.
pub(crate) fn read() -> Routing {
    let reading = block_on("links", async {
        let links = facts("links", links).await;
        let names: HashMap<u32, String> = links
            .value
            .iter()
            .map(|link| (link.index, link.name.clone()))
            .collect();
        let name = |index: u32| names.get(&index).cloned().unwrap_or_else(|| index.to_string());
        let routes = facts("routes", async |conn: &Connection<RouteProtocol>| {
            let raw = routes(conn).await?;
            Ok(raw
                .into_iter()
                .map(|(mut route, dev)| {
                    route.dev = dev.map(name);
                    route
                })
                .collect())
        });
        let neighbours = facts("neighbours", async |conn: &Connection<RouteProtocol>| {
            let raw = neighbours(conn).await?;
            Ok(raw
                .into_iter()
                .map(|(mut neighbour, dev)| {
                    neighbour.dev = name(dev);
                    neighbour
                })
                .collect())
        });
        Ok(Routing {
            addresses: facts("addresses", addresses).await,
            routes: routes.await,
            neighbours: neighbours.await,
            rules: facts("rules", rules).await,
            links,
        })
    });
    reading.unwrap_or_else(|error| unavailable(&chain(&error)))
}

/// Nothing of it, and why.
pub(crate) fn unavailable(why: &str) -> Routing {
    Routing {
        links: Watch::start("links").unavailable(why),
        addresses: Watch::start("addresses").unavailable(why),
        routes: Watch::start("routes").unavailable(why),
        neighbours: Watch::start("neighbours").unavailable(why),
        rules: Watch::start("rules").unavailable(why),
    }
}

/// Reads one part and makes its report.
async fn facts<T>(
    what: &'static str,
    reading: impl AsyncFn(&Connection<RouteProtocol>) -> Result<Vec<T>, NetlinkError>,
) -> Facts<Vec<T>> {
    let watch = Watch::start(what);
    match retry(what, reading).await {
        Ok(value) => {
            let items = value.len();
            watch.facts(value, Completeness::Complete, items)
        }
        Err(error) => watch.unavailable(chain(&error)),
    }
}

/// MACs and addresses in the calling thread's namespace, without loopback's: what a namespace holds.
pub(crate) async fn read_interior() -> Result<(Vec<Mac>, Vec<IpAddr>), NetlinkError> {
    let conn = open()?;
    let links = links(&conn).await?;
    let macs = links
        .iter()
        .filter(|link| link.name != "lo")
        .filter_map(|link| link.mac)
        .collect();
    let ips = addresses(&conn)
        .await?
        .into_iter()
        .map(|address| address.ip)
        .collect();
    Ok((macs, ips))
}

fn open() -> Result<Connection<RouteProtocol>, NetlinkError> {
    let conn = Connection::<RouteProtocol>::new().map_err(|source| NetlinkError::Open {
        protocol: "route",
        source,
    })?;
    Ok(conn.timeout(SILENCE))
}

/// Reads on a socket of its own, again when the kernel says that the reading does not fit together.
async fn retry<T>(
    what: &'static str,
    reading: impl AsyncFn(&Connection<RouteProtocol>) -> Result<T, NetlinkError>,
) -> Result<T, NetlinkError> {
    for _ in 0..DUMP_TRIES {
        match reading(&open()?).await {
            Err(error) if is_torn(&error) => {}
            other => return other,
        }
    }
    Err(NetlinkError::Unsteady { what })
}

async fn links(conn: &Connection<RouteProtocol>) -> Result<Vec<Link>, NetlinkError> {
    let mut request = vec![0; 16];
    push(
        &mut request,
        IFLA_EXT_MASK,
        &RTEXT_FILTER_SKIP_STATS.to_ne_bytes(),
    );
    let mut out = Vec::new();
    dump(conn, "links", NlMsgType::RTM_GETLINK, &request, |body| {
        out.extend(parse_link(body));
    })
    .await?;
    Ok(out)
}

fn parse_link(body: &[u8]) -> Option<Link> {
    let (header, attrs) = body.split_at_checked(16)?;
    let hardware = u16::from_ne_bytes(*header.get(2..)?.first_chunk()?);
    let flags = ne32(header.get(8..)?)?;
    let mut link = Link {
        index: ne32(header.get(4..)?)?,
        name: String::new(),
        mac: None,
        kind: String::new(),
        master: None,
        peer: None,
        peer_netns: None,
        up: flags & IFF_UP != 0,
    };
    for (kind, data) in AttrIter::new(attrs) {
        match kind {
            IFLA_IFNAME => link.name = text(data),
            // Loopback has an address of six zeros, which is no Ethernet address; a tunnel's is an IP address.
            IFLA_ADDRESS if hardware == ARPHRD_ETHER => link.mac = mac(data),
            IFLA_LINK => link.peer = ne32(data),
            IFLA_MASTER => link.master = ne32(data),
            IFLA_LINK_NETNSID => link.peer_netns = data.first_chunk().map(|b| i32::from_ne_bytes(*b)),
            IFLA_LINKINFO => {
                let name = AttrIter::new(data).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                link.kind = name.map(|(_, data)| text(data)).unwrap_or_default();
            }
            _ => {}
        }
    }
    Some(link)
}

async fn addresses(conn: &Connection<RouteProtocol>) -> Result<Vec<Address>, NetlinkError> {
    let mut out = Vec::new();
    dump(
        conn,
        "addresses",
        NlMsgType::RTM_GETADDR,
        &[AF_UNSPEC; 8],
        |body| {
            out.extend(parse_address(body));
        },
    )
    .await?;
    Ok(out)
}

fn parse_address(body: &[u8]) -> Option<Address> {
    let (header, attrs) = body.split_at_checked(8)?;
    let (mut local, mut other) = (None, None);
    for (kind, data) in AttrIter::new(attrs) {
        match kind {
            IFA_LOCAL => local = ip(data),
            // The peer's on a point-to-point link, which has IFA_LOCAL too.
            IFA_ADDRESS => other = ip(data),
            _ => {}
        }
    }
    Some(Address {
        link: ne32(header.get(4..)?)?,
        ip: local.or(other)?,
        prefix: *header.get(1)?,
    })
}

async fn routes(conn: &Connection<RouteProtocol>) -> Result<Vec<(Route, Option<u32>)>, NetlinkError> {
    let mut out = Vec::new();
    dump(
        conn,
        "routes",
        NlMsgType::RTM_GETROUTE,
        &[AF_UNSPEC; 12],
        |body| {
            parse_route(body, &mut out);
        },
    )
    .await?;
    Ok(out)
}

/// Adds the message's routes, one a next hop, each with the index of its link.
fn parse_route(body: &[u8], out: &mut Vec<(Route, Option<u32>)>) -> Option<()> {
    let (header, attrs) = body.split_at_checked(12)?;
    let &[family, prefix, _, _, table, protocol, _, kind, ..] = header else {
        return None;
    };
    // Multicast routing and MPLS answer too when all families are asked for.
    if family != AF_INET && family != AF_INET6 {
        return None;
    }
    let (mut dst, mut gateway, mut dev, mut metric, mut table) = (None, None, None, None, u32::from(table));
    let mut hops = None;
    for (kind, data) in AttrIter::new(attrs) {
        match kind {
            RTA_DST => dst = ip(data),
            RTA_GATEWAY => gateway = ip(data),
            RTA_VIA => gateway = data.get(2..).and_then(ip),
            RTA_OIF => dev = ne32(data),
            RTA_PRIORITY => metric = ne32(data),
            RTA_TABLE => table = ne32(data).unwrap_or(table),
            RTA_MULTIPATH => hops = Some(data),
            _ => {}
        }
    }
    let route = Route {
        dst: dst.and_then(|ip| IpNet::new(ip, prefix).ok()),
        gateway,
        dev: None,
        table,
        kind: route_kind(kind).to_owned(),
        protocol,
        metric,
    };
    let Some(mut hops) = hops else {
        out.push((route, dev));
        return Some(());
    };
    // struct rtnexthop: u16 length, u8 flags, u8 hops, u32 interface, then attributes.
    while hops.len() >= 8 {
        let len = usize::from(u16::from_ne_bytes(*hops.first_chunk()?));
        let hop = hops.get(8..len)?;
        let gateway = AttrIter::new(hop).find_map(|(kind, data)| match kind {
            RTA_GATEWAY => ip(data),
            RTA_VIA => data.get(2..).and_then(ip),
            _ => None,
        });
        let dev = ne32(hops.get(4..)?);
        out.push((
            Route {
                gateway,
                ..route.clone()
            },
            dev,
        ));
        hops = hops.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(())
}

/// `RTN_*` as `ip route` names them.
fn route_kind(kind: u8) -> &'static str {
    match kind {
        1 => "unicast",
        2 => "local",
        3 => "broadcast",
        4 => "anycast",
        5 => "multicast",
        6 => "blackhole",
        7 => "unreachable",
        8 => "prohibit",
        9 => "throw",
        10 => "nat",
        11 => "xresolve",
        _ => "unspec",
    }
}

async fn rules(conn: &Connection<RouteProtocol>) -> Result<Vec<IpRule>, NetlinkError> {
    let mut out = Vec::new();
    for family in [AF_INET, AF_INET6] {
        // struct fib_rule_hdr
        let mut request = [0; 12];
        request[0] = family;
        dump(conn, "rules", NlMsgType::RTM_GETRULE, &request, |body| {
            out.extend(super::rule::parse(body));
        })
        .await?;
    }
    Ok(out)
}

async fn neighbours(conn: &Connection<RouteProtocol>) -> Result<Vec<(Neighbour, u32)>, NetlinkError> {
    let mut out = Vec::new();
    dump(
        conn,
        "neighbours",
        NlMsgType::RTM_GETNEIGH,
        &[AF_UNSPEC; 12],
        |body| {
            out.extend(parse_neighbour(body));
        },
    )
    .await?;
    Ok(out)
}

fn parse_neighbour(body: &[u8]) -> Option<(Neighbour, u32)> {
    let (header, attrs) = body.split_at_checked(12)?;
    let family = *header.first()?;
    let state = u16::from_ne_bytes(*header.get(8..)?.first_chunk()?);
    if (family != AF_INET && family != AF_INET6) || state & NUD_NOARP != 0 {
        return None;
    }
    let (mut dst, mut lladdr) = (None, None);
    for (kind, data) in AttrIter::new(attrs) {
        match kind {
            NDA_DST => dst = ip(data),
            NDA_LLADDR => lladdr = mac(data),
            _ => {}
        }
    }
    let neighbour = Neighbour {
        ip: dst?,
        dev: String::new(),
        mac: lladdr,
        state: neighbour_state(state).to_owned(),
    };
    Some((neighbour, ne32(header.get(4..)?)?))
}

/// `NUD_*` as `ip neigh` names them.
fn neighbour_state(state: u16) -> &'static str {
    match state {
        0x01 => "INCOMPLETE",
        0x02 => "REACHABLE",
        0x04 => "STALE",
        0x08 => "DELAY",
        0x10 => "PROBE",
        0x20 => "FAILED",
        0x80 => "PERMANENT",
        _ => "NONE",
    }
}

fn mac(data: &[u8]) -> Option<Mac> {
    <[u8; 6]>::try_from(data).ok().map(Mac::from_bytes)
}
