//! Rules of the routing policy (`linux/fib_rules.h`), as `ip rule` prints them (iproute2 6.1, `ip/iprule.c`).

use ipnet::IpNet;
use sexton_core::model::{Family, IpRule, IpRuleAction, Proto};

use super::attrs::{AF_INET, AF_INET6};
use super::attrs::{AttrIter, be64, ip, ne32, text};

const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_FLOW: u16 = 11;
const FRA_TUN_ID: u16 = 12;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_L3MDEV: u16 = 19;
const FRA_UID_RANGE: u16 = 20;
const FRA_PROTOCOL: u16 = 21;
const FRA_IP_PROTO: u16 = 22;
const FRA_SPORT_RANGE: u16 = 23;
const FRA_DPORT_RANGE: u16 = 24;

const FIB_RULE_INVERT: u32 = 0x2;
const FIB_RULE_UNRESOLVED: u32 = 0x4;
const FIB_RULE_IIF_DETACHED: u32 = 0x8;
const FIB_RULE_OIF_DETACHED: u32 = 0x10;

const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_GOTO: u8 = 2;
const FR_ACT_NOP: u8 = 3;
const FR_ACT_BLACKHOLE: u8 = 6;
const FR_ACT_UNREACHABLE: u8 = 7;
const FR_ACT_PROHIBIT: u8 = 8;

/// Selectors and options, in the order in which they are printed.
#[derive(Default)]
struct Others {
    uids: Option<(u32, u32)>,
    protocol: Option<u8>,
    sport: Option<(u16, u16)>,
    dport: Option<(u16, u16)>,
    tunnel: Option<u64>,
    prefix: Option<u32>,
    group: Option<u32>,
    realms: Option<u32>,
}

/// One message: `struct fib_rule_hdr` and its attributes. None for a family other than IPv4 and IPv6.
pub(super) fn parse(body: &[u8]) -> Option<IpRule> {
    let (header, attrs) = body.split_at_checked(12)?;
    let &[family, dst_len, src_len, tos, table, _, _, action, ..] = header else {
        return None;
    };
    let flags = ne32(header.get(8..)?)?;
    let family = match family {
        AF_INET => Family::Ipv4,
        AF_INET6 => Family::Ipv6,
        _ => return None,
    };
    let mut rule = IpRule {
        family,
        priority: 0,
        inverted: flags & FIB_RULE_INVERT != 0,
        from: None,
        to: None,
        mark: None,
        iif: None,
        oif: None,
        detached: flags & (FIB_RULE_IIF_DETACHED | FIB_RULE_OIF_DETACHED) != 0,
        others: Vec::new(),
        action: IpRuleAction::Other(String::new()),
        protocol: None,
    };
    let (mut table, mut target, mut l3mdev) = (u32::from(table), None, false);
    let (mut mark, mut mask) = (None, None);
    let mut others = Others::default();
    for (kind, data) in AttrIter::new(attrs) {
        match kind {
            FRA_PRIORITY => rule.priority = ne32(data)?,
            FRA_SRC => rule.from = ip(data).and_then(|ip| IpNet::new(ip, src_len).ok()),
            FRA_DST => rule.to = ip(data).and_then(|ip| IpNet::new(ip, dst_len).ok()),
            FRA_IIFNAME => rule.iif = Some(text(data)),
            FRA_OIFNAME => rule.oif = Some(text(data)),
            FRA_FWMARK => mark = ne32(data),
            FRA_FWMASK => mask = ne32(data),
            FRA_TABLE => table = ne32(data)?,
            FRA_GOTO => target = ne32(data),
            FRA_L3MDEV => l3mdev = data.first().is_some_and(|on| *on != 0),
            // Nobody, and the kernel: `ip rule` does not print them.
            FRA_PROTOCOL => rule.protocol = data.first().copied().filter(|by| !matches!(*by, 0 | 2)),
            FRA_UID_RANGE => others.uids = ne32(data).zip(data.get(4..).and_then(ne32)),
            FRA_IP_PROTO => others.protocol = data.first().copied(),
            FRA_SPORT_RANGE => others.sport = ports(data),
            FRA_DPORT_RANGE => others.dport = ports(data),
            FRA_TUN_ID => others.tunnel = be64(data),
            FRA_SUPPRESS_PREFIXLEN => others.prefix = ne32(data).filter(|length| *length != u32::MAX),
            FRA_SUPPRESS_IFGROUP => others.group = ne32(data).filter(|group| *group != u32::MAX),
            FRA_FLOW => others.realms = ne32(data),
            _ => {}
        }
    }
    // A mask alone selects by a mark of zero under it.
    rule.mark = (mark.is_some() || mask.is_some())
        .then(|| (mark.unwrap_or_default(), mask.unwrap_or(u32::MAX)))
        .filter(|(mark, mask)| *mark != 0 || *mask != 0);
    rule.others = words(tos, &others);
    rule.action = match action {
        FR_ACT_TO_TBL if l3mdev => IpRuleAction::Other("lookup [l3mdev-table]".to_owned()),
        FR_ACT_TO_TBL => IpRuleAction::Lookup(table),
        FR_ACT_GOTO => IpRuleAction::Goto(target.unwrap_or_default()),
        FR_ACT_NOP => IpRuleAction::Other("nop".to_owned()),
        FR_ACT_BLACKHOLE => IpRuleAction::Other("blackhole".to_owned()),
        FR_ACT_UNREACHABLE => IpRuleAction::Other("unreachable".to_owned()),
        FR_ACT_PROHIBIT => IpRuleAction::Other("prohibit".to_owned()),
        other => IpRuleAction::Other(format!("action {other}")),
    };
    if action == FR_ACT_GOTO && flags & FIB_RULE_UNRESOLVED != 0 {
        rule.others.push("[unresolved]".to_owned());
    }
    Some(rule)
}

/// `struct fib_rule_port_range`.
fn ports(data: &[u8]) -> Option<(u16, u16)> {
    let port = |at: usize| {
        data.get(at..)?
            .first_chunk()
            .map(|bytes| u16::from_ne_bytes(*bytes))
    };
    port(0).zip(port(2))
}

fn words(tos: u8, others: &Others) -> Vec<String> {
    let range = |word: &str, (first, last): (u16, u16)| {
        if first == last {
            format!("{word} {first}")
        } else {
            format!("{word} {first}-{last}")
        }
    };
    let mut out = Vec::new();
    if tos != 0 {
        out.push(format!("tos {tos:#x}"));
    }
    out.extend(
        others
            .uids
            .map(|(first, last)| format!("uidrange {first}-{last}")),
    );
    let protocol = others.protocol.map(Proto::from_number);
    out.extend(protocol.map(|proto| format!("ipproto {}", ipproto(proto))));
    out.extend(others.sport.map(|ports| range("sport", ports)));
    out.extend(others.dport.map(|ports| range("dport", ports)));
    out.extend(others.tunnel.map(|id| format!("tun_id {id}")));
    out.extend(
        others
            .prefix
            .map(|length| format!("suppress_prefixlength {length}")),
    );
    out.extend(others.group.map(|group| format!("suppress_ifgroup {group}")));
    out.extend(others.realms.map(|realms| match (realms >> 16, realms & 0xffff) {
        (0, to) => format!("realms {to}"),
        (from, to) => format!("realms {from}/{to}"),
    }));
    out
}

/// A protocol by the name of `/etc/protocols` where that is the same everywhere.
fn ipproto(proto: Proto) -> String {
    match proto {
        Proto::Other(1) => "icmp".to_owned(),
        Proto::Other(58) => "ipv6-icmp".to_owned(),
        other => other.to_string(),
    }
}
