//! Connection tracking (`linux/netfilter/nfnetlink_conntrack.h`).

use std::net::IpAddr;
use std::path::Path;

use futures::StreamExt as _;
use nlink::Connection;
use nlink::netlink::Netfilter;
use nlink::netlink::netfilter::{ConntrackBuilder, ConntrackTuple, IpProtocol};
use nlink::netlink::parse::{FromNetlink, PResult};
use sexton_core::model::{CtEntry, CtFlags, CtTuple, Direction, Family, Proto};

use super::attrs::{AF_INET, AF_INET6, AttrIter, NLA_F_NESTED, be16, be32, be64, ip, push};
use super::{NetlinkError, SILENCE, block_on};
use crate::source::chain;

/// `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET`.
const CT_GET: u16 = 0x0101;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_PROTOINFO: u16 = 4;
const CTA_TIMEOUT: u16 = 7;
const CTA_MARK: u16 = 8;
const CTA_COUNTERS_ORIG: u16 = 9;
const CTA_COUNTERS_REPLY: u16 = 10;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;

const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_TUPLE_ZONE: u16 = 3;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;

const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_DCCP: u16 = 2;
const CTA_PROTOINFO_SCTP: u16 = 3;
const CTA_PROTOINFO_STATE: u16 = 1;

const CTA_COUNTERS_PACKETS: u16 = 1;
const CTA_COUNTERS_BYTES: u16 = 2;

const IPS_SEEN_REPLY: u32 = 1 << 1;
const IPS_ASSURED: u32 = 1 << 2;
const IPS_OFFLOAD: u32 = 1 << 14;
const IPS_HW_OFFLOAD: u32 = 1 << 15;

/// `enum ctattr_filter`, of kernel 5.8 and later; an older one ignores it and answers with every entry.
const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
/// `CTA_FILTER_F_CTA_PROTO_NUM` (`net/netfilter/nf_internals.h`).
const FILTER_BY_PROTOCOL: u32 = 1 << 3;

/// What was read of the table.
pub(crate) struct ConntrackReading {
    /// The entries that the caller wanted.
    pub(crate) entries: Vec<CtEntry>,
    /// How many the kernel told of.
    pub(crate) seen: u64,
    /// How many of them are of UDP.
    pub(crate) udp: u64,
    /// Messages that could not be read as an entry.
    pub(crate) unreadable: u64,
}

/// Which entries the kernel is asked for.
pub(crate) enum Wanted<'a> {
    /// Every one.
    Every,
    /// Those of UDP, of one family: telling of an entry costs the kernel far more than walking past it, and on most nodes nearly all are of
    /// TCP.
    Udp(Family),
    /// Those of UDP. After those of IPv4 were read, the question tells whether those of IPv6 are wanted: they are another walk over the
    /// whole table.
    UdpOfBoth(&'a dyn Fn() -> bool),
}

/// Reads the table, keeping what `keep` answers yes to. Entries are decoded one by one as they arrive, so that memory grows with what is
/// kept and not with the table.
pub(crate) fn read(
    wanted: &Wanted<'_>,
    keep: &dyn Fn(&CtEntry) -> bool,
) -> Result<ConntrackReading, NetlinkError> {
    match wanted {
        Wanted::Every => dump(&EVERY, None, keep),
        Wanted::Udp(family) => udp(*family, keep),
        Wanted::UdpOfBoth(ipv6) => {
            let mut reading = udp(Family::Ipv4, keep)?;
            if ipv6() {
                let more = udp(Family::Ipv6, keep)?;
                reading.entries.extend(more.entries);
                reading.seen += more.seen;
                reading.udp += more.udp;
                reading.unreadable += more.unreadable;
            }
            Ok(reading)
        }
    }
}

/// One family's entries of UDP. A kernel that refuses the filter, or does not know it, is asked without it.
fn udp(family: Family, keep: &dyn Fn(&CtEntry) -> bool) -> Result<ConntrackReading, NetlinkError> {
    let keep = |entry: &CtEntry| {
        entry.proto == Proto::Udp && Family::of(entry.original.dst) == family && keep(entry)
    };
    match dump(&udp_request(family), Some(family), &keep) {
        Err(NetlinkError::Read { .. }) => dump(&EVERY, Some(family), &keep),
        other => other,
    }
}

/// `struct nfgenmsg` with `AF_UNSPEC`: every entry.
const EVERY: [u8; 4] = [0; 4];

/// Asks for one family's entries whose original tuple is of UDP (`ctnetlink_alloc_filter` in
/// `net/netfilter/nf_conntrack_netlink.c`, which refuses the filter for `AF_UNSPEC`).
fn udp_request(family: Family) -> Vec<u8> {
    let family = match family {
        Family::Ipv4 => AF_INET,
        Family::Ipv6 => AF_INET6,
    };
    let mut number = Vec::new();
    push(&mut number, CTA_PROTO_NUM, &[Proto::Udp.number()]);
    let mut tuple = Vec::new();
    push(&mut tuple, NLA_F_NESTED | CTA_TUPLE_PROTO, &number);
    let mut flags = Vec::new();
    push(
        &mut flags,
        CTA_FILTER_ORIG_FLAGS,
        &FILTER_BY_PROTOCOL.to_ne_bytes(),
    );
    let mut request = vec![family, 0, 0, 0];
    push(&mut request, NLA_F_NESTED | CTA_TUPLE_ORIG, &tuple);
    push(&mut request, NLA_F_NESTED | CTA_FILTER, &flags);
    request
}

/// One walk over the table. Only entries of `family` are counted, if one is given.
fn dump(
    request: &[u8],
    family: Option<Family>,
    keep: &dyn Fn(&CtEntry) -> bool,
) -> Result<ConntrackReading, NetlinkError> {
    block_on("conntrack", async {
        let conn = open()?;
        let failed = |source| NetlinkError::Read {
            what: "conntrack",
            source,
        };
        let mut reading = ConntrackReading {
            entries: Vec::new(),
            seen: 0,
            udp: 0,
            unreadable: 0,
        };
        let mut stream = conn
            .dump_stream_with_body::<Message>(CT_GET, request)
            .await
            .map_err(failed)?;
        while let Some(message) = stream.next().await {
            reading.seen += 1;
            match message.map_err(failed)?.0 {
                Some(entry) => {
                    let counts = family.is_none_or(|family| family == Family::of(entry.original.dst));
                    reading.udp += u64::from(counts && entry.proto == Proto::Udp);
                    if keep(&entry) {
                        reading.entries.push(entry);
                    }
                }
                None => reading.unreadable += 1,
            }
        }
        Ok(reading)
    })
}

/// What became of one entry that was to be deleted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// It is gone now.
    Done,
    /// It was gone before, or is another one by now.
    Gone,
    /// The kernel refused, or it cannot be named exactly.
    Failed(String),
}

/// Deletes entries one by one. The kernel finds each by its original tuple in its zone, and takes it only if its ID is
/// the one that was read.
pub(crate) fn delete(entries: &[CtEntry]) -> Result<Vec<Deleted>, NetlinkError> {
    block_on("conntrack", async {
        let conn = open()?;
        let mut out = Vec::with_capacity(entries.len());
        for entry in entries {
            out.push(delete_one(&conn, entry).await);
        }
        Ok(out)
    })
}

async fn delete_one(conn: &Connection<Netfilter>, entry: &CtEntry) -> Deleted {
    let Some(id) = entry.id else {
        return Deleted::Failed("its ID is not known, so another entry could be meant".to_owned());
    };
    let proto = match entry.proto {
        Proto::Tcp => IpProtocol::Tcp,
        Proto::Udp => IpProtocol::Udp,
        Proto::Sctp => IpProtocol::Other(132),
        // ICMP's tuples have a type, a code and an identifier in place of ports, which the model does not keep.
        other => return Deleted::Failed(format!("entries of {other} are not deleted")),
    };
    let tuple = &entry.original;
    let (builder, wire) = match (tuple.src, tuple.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => (ConntrackBuilder::new_v4(proto), ConntrackTuple::v4(src, dst)),
        (IpAddr::V6(src), IpAddr::V6(dst)) => (ConntrackBuilder::new_v6(proto), ConntrackTuple::v6(src, dst)),
        _ => return Deleted::Failed("its addresses are of two families".to_owned()),
    };
    let mut builder = builder.orig(wire.ports(tuple.sport, tuple.dport)).id(id);
    if entry.zone != 0 {
        builder = builder.zone(entry.zone);
    }
    match conn.del_conntrack(builder).await {
        Ok(()) => Deleted::Done,
        Err(error) if error.is_not_found() => Deleted::Gone,
        Err(error) => Deleted::Failed(chain(&error)),
    }
}

/// A socket for connection tracking.
fn open() -> Result<Connection<Netfilter>, NetlinkError> {
    let conn = Connection::<Netfilter>::new().map_err(|source| NetlinkError::Open {
        protocol: "netfilter",
        source,
    })?;
    Ok(conn.timeout(SILENCE))
}

/// Whether counters a direction are kept; `None` where the kernel does not say.
pub(crate) fn accounting(proc: &Path) -> Option<bool> {
    let text = std::fs::read_to_string(proc.join("sys/net/netfilter/nf_conntrack_acct")).ok()?;
    Some(text.trim() != "0")
}

/// A message of the dump: an entry, if it could be read as one.
struct Message(Option<CtEntry>);

impl FromNetlink for Message {
    fn parse(input: &mut &[u8]) -> PResult<Self> {
        Ok(Self(parse_entry(std::mem::take(input))))
    }

    fn from_bytes(data: &[u8]) -> nlink::Result<Self> {
        Ok(Self(parse_entry(data)))
    }
}

fn parse_entry(body: &[u8]) -> Option<CtEntry> {
    let (mut original, mut reply) = (None, None);
    let mut status = 0;
    let (mut state, mut timeout, mut id) = (None, None, None);
    let (mut mark, mut zone) = (0, None);
    let (mut original_count, mut reply_count) = (None, None);
    for (kind, data) in AttrIter::new(body.get(4..)?) {
        match kind {
            CTA_TUPLE_ORIG => original = parse_tuple(data),
            CTA_TUPLE_REPLY => reply = parse_tuple(data),
            CTA_STATUS => status = be32(data)?,
            CTA_PROTOINFO => state = parse_state(data),
            CTA_TIMEOUT => timeout = be32(data),
            CTA_MARK => mark = be32(data)?,
            CTA_COUNTERS_ORIG => original_count = parse_counters(data),
            CTA_COUNTERS_REPLY => reply_count = parse_counters(data),
            CTA_ID => id = be32(data),
            CTA_ZONE => zone = be16(data),
            _ => {}
        }
    }
    let (original, proto, original_zone) = original?;
    let (reply, ..) = reply?;
    Some(CtEntry {
        proto,
        state: state.map(Into::into),
        timeout,
        original,
        reply,
        flags: CtFlags {
            unreplied: status & IPS_SEEN_REPLY == 0,
            assured: status & IPS_ASSURED != 0,
            offload: status & (IPS_OFFLOAD | IPS_HW_OFFLOAD) != 0,
        },
        mark,
        // A zone of one direction is told in that direction's tuple.
        zone: zone.or(original_zone).unwrap_or(0),
        id,
        original_count,
        reply_count,
    })
}

/// A tuple with its protocol and, if it has one of its own, its zone.
fn parse_tuple(data: &[u8]) -> Option<(CtTuple, Proto, Option<u16>)> {
    let (mut src, mut dst, mut proto, mut zone) = (None, None, None, None);
    let (mut sport, mut dport) = (0, 0);
    for (kind, data) in AttrIter::new(data) {
        match kind {
            CTA_TUPLE_IP => {
                for (kind, data) in AttrIter::new(data) {
                    match kind {
                        CTA_IP_V4_SRC | CTA_IP_V6_SRC => src = ip(data),
                        CTA_IP_V4_DST | CTA_IP_V6_DST => dst = ip(data),
                        _ => {}
                    }
                }
            }
            CTA_TUPLE_PROTO => {
                for (kind, data) in AttrIter::new(data) {
                    match kind {
                        CTA_PROTO_NUM => proto = data.first().copied().map(Proto::from_number),
                        CTA_PROTO_SRC_PORT => sport = be16(data)?,
                        CTA_PROTO_DST_PORT => dport = be16(data)?,
                        _ => {}
                    }
                }
            }
            CTA_TUPLE_ZONE => zone = be16(data),
            _ => {}
        }
    }
    let tuple = CtTuple {
        src: src?,
        dst: dst?,
        sport,
        dport,
    };
    Some((tuple, proto?, zone))
}

fn parse_counters(data: &[u8]) -> Option<Direction> {
    let (mut packets, mut bytes) = (None, None);
    for (kind, data) in AttrIter::new(data) {
        match kind {
            CTA_COUNTERS_PACKETS => packets = be64(data),
            CTA_COUNTERS_BYTES => bytes = be64(data),
            _ => {}
        }
    }
    Some(Direction {
        packets: packets?,
        bytes: bytes?,
    })
}

/// The protocol's state as `conntrack -L` prints it (libnetfilter_conntrack, `src/conntrack/snprintf.c`).
fn parse_state(data: &[u8]) -> Option<&'static str> {
    const TCP: [&str; 10] = [
        "NONE",
        "SYN_SENT",
        "SYN_RECV",
        "ESTABLISHED",
        "FIN_WAIT",
        "CLOSE_WAIT",
        "LAST_ACK",
        "TIME_WAIT",
        "CLOSE",
        "SYN_SENT2",
    ];
    const SCTP: [&str; 9] = [
        "NONE",
        "CLOSED",
        "COOKIE_WAIT",
        "COOKIE_ECHOED",
        "ESTABLISHED",
        "SHUTDOWN_SENT",
        "SHUTDOWN_RECD",
        "SHUTDOWN_ACK_SENT",
        "HEARTBEAT_SENT",
    ];
    const DCCP: [&str; 10] = [
        "NONE", "REQUEST", "RESPOND", "PARTOPEN", "OPEN", "CLOSEREQ", "CLOSING", "TIMEWAIT", "IGNORE",
        "INVALID",
    ];
    let (kind, data) = AttrIter::new(data).next()?;
    let names: &[&str] = match kind {
        CTA_PROTOINFO_TCP => &TCP,
        CTA_PROTOINFO_SCTP => &SCTP,
        CTA_PROTOINFO_DCCP => &DCCP,
        _ => return None,
    };
    let (_, number) = AttrIter::new(data).find(|(kind, _)| *kind == CTA_PROTOINFO_STATE)?;
    names.get(usize::from(*number.first()?)).copied()
}
