//! The text form, for people. Every record begins at the left edge; its further lines are indented, or follow a
//! backslash with `-o`.

use sexton_core::model::{Address, Link, Neighbour, Route};

use super::{BOOT, RawLink, protocol_number, table_number};
use crate::{
    addr::{parse_ip, parse_net},
    problems::Problems,
};

/// Lines with their numbers; what `-o` joined by backslashes is taken apart.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(|(at, line)| {
        let parts = line.split('\\').filter(|part| !part.trim().is_empty());
        parts.map(move |part| (at + 1, part))
    })
}

pub(super) fn links(text: &str, problems: &mut Problems<'_>) -> (Vec<RawLink>, Vec<Address>) {
    let mut links: Vec<RawLink> = Vec::new();
    let mut addresses = Vec::new();
    let mut index = None;
    // further lines of a link that could not be read are not worth a word
    let mut skip = false;
    for (number, line) in lines(text) {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if !line.starts_with(char::is_whitespace) {
            index = first
                .strip_suffix(':')
                .and_then(|digits| digits.parse::<u32>().ok());
            skip = index.is_none();
            let Some(index) = index else {
                problems.push(number, format!("expected a link, found {:?}", clip(line)));
                continue;
            };
            let name = words.next().unwrap_or_default();
            let mut rest = words.clone();
            match rest.next() {
                // `ip -o addr`
                Some("inet" | "inet6") => address(index, rest.next(), number, &mut addresses, problems),
                Some(flags) if flags.starts_with('<') => links.push(header(index, name, flags, rest)),
                _ => {
                    skip = true;
                    problems.push(number, format!("expected a link, found {:?}", clip(line)));
                }
            }
            continue;
        }
        let Some(index) = index.filter(|_| !skip) else {
            if !skip {
                problems.push(number, format!("expected a link, found {:?}", clip(line)));
            }
            continue;
        };
        match first {
            "inet" | "inet6" => address(index, words.next(), number, &mut addresses, problems),
            _ => {
                if let Some(raw) = links.last_mut().filter(|raw| raw.link.index == index) {
                    detail(&mut raw.link, line, first, words);
                }
            }
        }
    }
    (links, addresses)
}

/// `2: eth0@if7: <BROADCAST,UP> mtu 1500 qdisc noqueue master cni0 state UP ...`
fn header<'w>(index: u32, name: &str, flags: &str, mut words: impl Iterator<Item = &'w str>) -> RawLink {
    let name = name.strip_suffix(':').unwrap_or(name);
    let (name, lower) = match name.rsplit_once('@') {
        Some((name, lower)) => (name, Some(lower)),
        None => (name, None),
    };
    let master = words.find(|word| *word == "master").and_then(|_| words.next());
    // A link may be called `if7` itself, but a name after `@` is printed as an index only when it is elsewhere.
    let peer = lower.and_then(|lower| lower.strip_prefix("if")?.parse().ok());
    RawLink {
        link: Link {
            index,
            name: name.to_owned(),
            mac: None,
            kind: String::new(),
            master: None,
            peer,
            peer_netns: None,
            up: flags.trim_matches(['<', '>']).split(',').any(|flag| flag == "UP"),
        },
        master: master.map(str::to_owned),
        lower: lower.filter(|_| peer.is_none()).map(str::to_owned),
    }
}

/// `10.0.0.1/24`, or `10.0.0.1` before `peer 10.0.0.2/32`, whose prefix length is the link's address's.
fn address(
    link: u32,
    word: Option<&str>,
    number: usize,
    addresses: &mut Vec<Address>,
    problems: &mut Problems<'_>,
) {
    let word = word.unwrap_or_default();
    match parse_net(word) {
        Some(net) => addresses.push(Address {
            link,
            ip: net.addr(),
            prefix: net.prefix_len(),
        }),
        None => problems.push(number, format!("not an address: {:?}", clip(word))),
    }
}

/// A further line: the hardware address, or with `-d` the kind.
fn detail<'w>(link: &mut Link, line: &str, first: &str, mut words: impl Iterator<Item = &'w str>) {
    match first.split_once('/') {
        Some(("link", kind)) => {
            let mac = words.next().unwrap_or_default();
            if kind == "ether" {
                link.mac = mac.parse().ok();
            }
            let netns = words
                .find(|word| *word == "link-netnsid")
                .and_then(|_| words.next());
            link.peer_netns = netns.and_then(|number| number.parse().ok());
        }
        _ => {
            // The kind is the first line after `link/` that is indented by four; others have words of their own.
            let other = matches!(
                first,
                "alias"
                    | "altname"
                    | "vf"
                    | "prog/xdp"
                    | "parentbus"
                    | "parentdev"
                    | "RX:"
                    | "TX:"
                    | "RX"
                    | "TX"
            );
            let indent = line.len() - line.trim_start().len();
            if link.kind.is_empty()
                && indent == 4
                && !other
                && !first.ends_with("_slave")
                && first.starts_with(|c: char| c.is_ascii_alphabetic())
            {
                first.clone_into(&mut link.kind);
            }
        }
    }
}

pub(super) fn routes(text: &str, table: u32, problems: &mut Problems<'_>) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    // The route that next hops belong to, and whether it stands in the list itself.
    let mut base: Option<(Route, bool)> = None;
    for (number, line) in lines(text) {
        let mut words = line.split_whitespace().peekable();
        if words.peek() == Some(&"nexthop") {
            let Some((route, listed)) = &mut base else {
                continue;
            };
            if std::mem::take(listed) {
                routes.pop();
            }
            let mut route = route.clone();
            match attributes(&mut route, words) {
                Ok(()) => routes.push(route),
                Err(what) => problems.push(number, what),
            }
            continue;
        }
        if line.starts_with(char::is_whitespace) {
            // `-s` and caches: nothing that is kept
            continue;
        }
        base = match route(words, table) {
            Ok(route) => {
                routes.push(route.clone());
                Some((route, true))
            }
            Err(what) => {
                problems.push(number, what);
                None
            }
        };
    }
    routes
}

/// Types of routes: `rtnl_rtntype_n2a`.
const KINDS: [&str; 11] = [
    "unicast",
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
    "nat",
    "xresolve",
];

fn route<'w>(
    mut words: std::iter::Peekable<impl Iterator<Item = &'w str>>,
    table: u32,
) -> Result<Route, String> {
    let kind = words.next_if(|word| KINDS.contains(word)).unwrap_or("unicast");
    let dst = match words.next() {
        Some("default") => None,
        Some(text) => match parse_net(text) {
            Some(net) => Some(net),
            None => return Err(format!("expected a route, found {:?}", clip(text))),
        },
        None => return Err("a route without a destination".to_owned()),
    };
    let mut route = Route {
        dst: dst.filter(|net| net.prefix_len() > 0),
        gateway: None,
        dev: None,
        table,
        kind: kind.to_owned(),
        protocol: BOOT,
        metric: None,
    };
    attributes(&mut route, words)?;
    Ok(route)
}

fn attributes<'w>(route: &mut Route, mut words: impl Iterator<Item = &'w str>) -> Result<(), String> {
    while let Some(word) = words.next() {
        if !matches!(word, "via" | "dev" | "table" | "proto" | "metric") {
            continue;
        }
        let mut value = words.next().unwrap_or_default();
        match word {
            "via" => {
                if matches!(value, "inet" | "inet6") {
                    value = words.next().unwrap_or_default();
                }
                let ip = parse_ip(value).ok_or_else(|| format!("not a gateway: {:?}", clip(value)))?;
                route.gateway = Some(ip);
            }
            "dev" => route.dev = Some(value.to_owned()),
            "table" => {
                route.table = table_number(value)
                    .ok_or_else(|| format!("a routing table of an unknown name: {:?}", clip(value)))?;
            }
            "proto" => route.protocol = protocol_number(value).unwrap_or_default(),
            _ => route.metric = value.parse().ok(),
        }
    }
    Ok(())
}

pub(super) fn neighbours(text: &str, problems: &mut Problems<'_>) -> Vec<Neighbour> {
    let mut neighbours = Vec::new();
    for (number, line) in lines(text) {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let Some(ip) = parse_ip(first) else {
            problems.push(number, format!("expected a neighbour, found {:?}", clip(line)));
            continue;
        };
        let mut neighbour = Neighbour {
            ip,
            dev: String::new(),
            mac: None,
            state: "NONE".to_owned(),
        };
        while let Some(word) = words.next() {
            match word {
                "dev" => words.next().unwrap_or_default().clone_into(&mut neighbour.dev),
                "lladdr" => neighbour.mac = words.next().and_then(|mac| mac.parse().ok()),
                "proxy" => neighbour.state = "PROXY".to_owned(),
                state if state.bytes().all(|b| b.is_ascii_uppercase() || b == b',') => {
                    state.clone_into(&mut neighbour.state);
                }
                _ => {}
            }
        }
        neighbours.push(neighbour);
    }
    neighbours
}

/// The first characters, for a message.
fn clip(text: &str) -> String {
    text.trim().chars().take(60).collect()
}
