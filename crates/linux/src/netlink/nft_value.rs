//! Keys and data of sets and maps: bytes in registers, with the types that nft has noted beside them.
//!
//! The kernel keeps a number for a type and does not look at it. The numbers are `enum datatypes` of nft's
//! `include/datatype.h`; a concatenation has six bits a part, its first part in the highest ones, and every part of it
//! begins at a multiple of four bytes.

use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;
use sexton_core::model::{Mac, NftValue, Proto};

use super::attrs::{be16, ip, text};

const TYPE_BITS: u32 = 6;

/// What is known of a type: its name as nft prints it and its length in bytes, where all its values have one.
struct Kind {
    name: &'static str,
    len: Option<usize>,
}

const fn kind(name: &'static str, len: usize) -> Kind {
    Kind { name, len: Some(len) }
}

fn lookup(id: u32) -> Kind {
    match id {
        2 => kind("nf_proto", 1),
        4 => Kind {
            name: "integer",
            len: None,
        },
        5 => Kind {
            name: "string",
            len: None,
        },
        7 => kind("ipv4_addr", 4),
        8 => kind("ipv6_addr", 16),
        9 => kind("ether_addr", 6),
        10 => kind("ether_type", 2),
        11 => kind("arp_op", 2),
        12 => kind("inet_proto", 1),
        13 => kind("inet_service", 2),
        14 => kind("icmp_type", 1),
        15 => kind("tcp_flag", 1),
        19 => kind("mark", 4),
        20 => kind("iface_index", 4),
        21 => kind("iface_type", 2),
        22 => kind("realm", 4),
        23 => kind("classid", 4),
        24 => kind("uid", 4),
        25 => kind("gid", 4),
        26 => kind("ct_state", 4),
        27 => kind("ct_dir", 1),
        28 => kind("ct_status", 4),
        29 => kind("icmpv6_type", 1),
        31 => kind("pkt_type", 1),
        35 => kind("devgroup", 4),
        36 => kind("dscp", 1),
        38 => kind("fib_addrtype", 4),
        41 => kind("ifname", 16),
        _ => Kind {
            name: "unknown",
            len: None,
        },
    }
}

/// The parts of a type.
fn parts(id: u32) -> Vec<u32> {
    let mut rest = id;
    let mut out = Vec::new();
    while rest != 0 {
        out.push(rest & ((1 << TYPE_BITS) - 1));
        rest >>= TYPE_BITS;
    }
    out.reverse();
    out
}

/// The type as nft prints it: `ipv4_addr . inet_service`.
pub(super) fn type_name(id: u32) -> String {
    let names: Vec<_> = parts(id).into_iter().map(|part| lookup(part).name).collect();
    if names.is_empty() {
        "unknown".to_owned()
    } else {
        names.join(" . ")
    }
}

/// One part's place in a key, and its type.
struct Field {
    id: u32,
    at: usize,
    len: usize,
}

/// The parts' places in a value of this many bytes; `None` where they do not add up, because a part's length is not
/// known or the value is something else (a range in a map's data).
fn fields(id: u32, len: usize) -> Option<Vec<Field>> {
    let ids = parts(id);
    if let [one] = ids[..] {
        return lookup(one)
            .len
            .is_none_or(|known| known == len)
            .then(|| vec![Field { id: one, at: 0, len }]);
    }
    let mut at = 0;
    let mut out = Vec::with_capacity(ids.len());
    for id in ids {
        let len = lookup(id).len?;
        out.push(Field { id, at, len });
        at += len.next_multiple_of(4);
    }
    (at == len).then_some(out)
}

/// A value, a part each.
pub(super) fn decode(id: u32, data: &[u8]) -> Vec<NftValue> {
    let Some(fields) = fields(id, data.len()) else {
        return vec![NftValue::Other(hex(data))];
    };
    fields
        .iter()
        .map(|field| {
            let bytes = data.get(field.at..field.at + field.len).unwrap_or_default();
            decode_one(field.id, bytes)
        })
        .collect()
}

/// A range of values with both ends inside, a part each.
pub(super) fn decode_range(id: u32, from: &[u8], to: &[u8]) -> Vec<NftValue> {
    let Some(fields) = fields(id, from.len()).filter(|_| from.len() == to.len()) else {
        return vec![NftValue::Other(format!("{}-{}", hex(from), hex(to)))];
    };
    fields
        .iter()
        .map(|field| {
            let part = |data: &[u8]| {
                data.get(field.at..field.at + field.len)
                    .unwrap_or_default()
                    .to_vec()
            };
            let (from, to) = (part(from), part(to));
            if from == to {
                return decode_one(field.id, &from);
            }
            match (ip(&from), ip(&to)) {
                (Some(first), Some(last)) if matches!(field.id, 7 | 8) => {
                    NftValue::AddrRange(addr_range(first, last))
                }
                _ => {
                    let end = decode_one(field.id, &to);
                    NftValue::Other(format!("{}-{end}", decode_one(field.id, &from)))
                }
            }
        })
        .collect()
}

/// A prefix where the range is one, else `first-last`, as nft prints it.
fn addr_range(first: IpAddr, last: IpAddr) -> String {
    let longest = if first.is_ipv4() { 32 } else { 128 };
    for len in 0..=longest {
        if let Ok(net) = IpNet::new(first, len)
            && net.network() == first
            && net.broadcast() == last
        {
            return net.to_string();
        }
    }
    format!("{first}-{last}")
}

fn decode_one(id: u32, data: &[u8]) -> NftValue {
    let other = || NftValue::Other(hex(data));
    match id {
        7 | 8 => ip(data).map_or_else(other, NftValue::Addr),
        9 => <[u8; 6]>::try_from(data).map_or_else(|_| other(), |mac| NftValue::Mac(Mac::from_bytes(mac))),
        12 => data
            .first()
            .map_or_else(other, |number| NftValue::Proto(Proto::from_number(*number))),
        13 => be16(data).map_or_else(other, NftValue::Port),
        // Marks, unlike addresses and ports, are kept in the machine's order.
        19 => data
            .first_chunk()
            .map_or_else(other, |mark| NftValue::Mark(u32::from_ne_bytes(*mark))),
        41 => NftValue::Interface(text(data)),
        _ => other(),
    }
}

/// A key or data as bytes: the first and the last value of the range that it is, the same for a single one. `None` for
/// what has no bytes that are known here.
pub(super) fn encode(id: u32, values: &[NftValue]) -> Option<(Vec<u8>, Vec<u8>)> {
    let ids = parts(id);
    if ids.len() != values.len() {
        return None;
    }
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for (id, value) in ids.iter().zip(values) {
        let (from, to) = encode_one(*id, value)?;
        first.extend(from);
        last.extend(to);
        if ids.len() > 1 {
            first.resize(first.len().next_multiple_of(4), 0);
            last.resize(last.len().next_multiple_of(4), 0);
        }
    }
    Some((first, last))
}

fn encode_one(id: u32, value: &NftValue) -> Option<(Vec<u8>, Vec<u8>)> {
    let one = |bytes: Vec<u8>| Some((bytes.clone(), bytes));
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    match (id, value) {
        (7, NftValue::Addr(ip)) if ip.is_ipv4() => one(octets(*ip)),
        (8, NftValue::Addr(ip)) if ip.is_ipv6() => one(octets(*ip)),
        (7 | 8, NftValue::AddrRange(range)) => {
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
                None => {
                    let net: IpNet = range.parse().ok()?;
                    (net.network(), net.broadcast())
                }
            };
            (first.is_ipv4() == (id == 7) && last.is_ipv4() == (id == 7))
                .then(|| (octets(first), octets(last)))
        }
        (9, NftValue::Mac(mac)) => one(mac.bytes().to_vec()),
        (12, NftValue::Proto(proto)) => one(vec![proto.number()]),
        (13, NftValue::Port(port)) => one(port.to_be_bytes().to_vec()),
        (13, NftValue::Other(range)) => {
            let (first, last) = range.split_once('-')?;
            let bytes = |port: &str| port.parse::<u16>().ok().map(|port| port.to_be_bytes().to_vec());
            Some((bytes(first)?, bytes(last)?))
        }
        (19, NftValue::Mark(mark)) => one(mark.to_ne_bytes().to_vec()),
        (41, NftValue::Interface(name)) if name.len() < 16 => {
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(16, 0);
            one(bytes)
        }
        _ => None,
    }
}

/// The bytes that hex digits stand for; `None` for anything else.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
        }
        _ => None,
    });
    pairs.collect()
}

pub(super) fn hex(data: &[u8]) -> String {
    data.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTO_ADDR_PORT: u32 = (12 << 12) | (7 << 6) | 13;

    #[test]
    fn a_concatenation_is_read_part_by_part() {
        assert_eq!(
            type_name(PROTO_ADDR_PORT),
            "inet_proto . ipv4_addr . inet_service"
        );
        let key = [6, 0, 0, 0, 10, 10, 1, 7, 0x1f, 0x90, 0, 0];
        assert_eq!(
            decode(PROTO_ADDR_PORT, &key),
            [
                NftValue::Proto(Proto::Tcp),
                NftValue::Addr("10.10.1.7".parse().unwrap()),
                NftValue::Port(8080)
            ]
        );
    }

    #[test]
    fn what_is_read_can_be_written_back() {
        let key = [6, 0, 0, 0, 10, 10, 1, 7, 0x1f, 0x90, 0, 0];
        let values = decode(PROTO_ADDR_PORT, &key);
        assert_eq!(
            encode(PROTO_ADDR_PORT, &values),
            Some((key.to_vec(), key.to_vec()))
        );
        let range = decode_range(7, &[10, 0, 0, 0], &[10, 0, 0, 255]);
        assert_eq!(encode(7, &range), Some((vec![10, 0, 0, 0], vec![10, 0, 0, 255])));
        let name = decode(41, b"eth0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(encode(41, &name).unwrap().0.len(), 16);
        assert_eq!(encode(7, &[NftValue::Addr("fd00::1".parse().unwrap())]), None);
        assert_eq!(encode(13, &[NftValue::Other("0050".into())]), None);
    }

    #[test]
    fn what_does_not_add_up_is_kept_as_digits() {
        assert_eq!(decode(PROTO_ADDR_PORT, &[6, 0]), [NftValue::Other("0600".into())]);
        assert_eq!(decode(7, &[10, 0, 0]), [NftValue::Other("0a0000".into())]);
        assert_eq!(decode(0, &[1]), [NftValue::Other("01".into())]);
    }

    #[test]
    fn ranges_are_prefixes_where_they_can_be() {
        let range = |to| decode_range(7, &[10, 0, 0, 0], to);
        assert_eq!(
            range(&[10, 0, 0, 255]),
            [NftValue::AddrRange("10.0.0.0/24".into())]
        );
        assert_eq!(
            range(&[10, 0, 0, 9]),
            [NftValue::AddrRange("10.0.0.0-10.0.0.9".into())]
        );
        assert_eq!(
            range(&[10, 0, 0, 0]),
            [NftValue::Addr("10.0.0.0".parse().unwrap())]
        );
        assert_eq!(
            decode_range(13, &[0, 80], &[0, 90]),
            [NftValue::Other("80-90".into())]
        );
    }
}
