//! From the bytes of a frame to a packet: link layer, IP, transport. Every header may be cut off.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Direction, FlowKey, Identity, Packet, Place, Point, Strength, Tcp, identity::Mix};

/// How a frame begins. The numbers are those of <https://www.tcpdump.org/linktypes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkType {
    /// BSD loopback: four bytes of address family, in either byte order.
    Null,
    /// Ethernet, with or without VLAN tags.
    Ethernet,
    /// IPv4 or IPv6 without a link header.
    Raw,
    /// Linux cooked: no interface.
    Cooked1,
    /// Linux cooked, version 2: with the interface's index.
    Cooked2,
    /// One that is not read.
    Other(u16),
}

impl LinkType {
    pub(super) const fn of(number: u16) -> Self {
        match number {
            0 | 108 => Self::Null,
            1 => Self::Ethernet,
            // 12 and 14 are what some systems write for DLT_RAW.
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            113 => Self::Cooked1,
            276 => Self::Cooked2,
            other => Self::Other(other),
        }
    }
}

/// Why a frame gave no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPacket {
    /// It is whole enough, and not IP: ARP, LLDP, an unknown link type.
    NotIp,
    /// The capture ends before the addresses, or a header contradicts itself.
    Cut,
}

/// A frame with what its container says about it.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) link: LinkType,
    pub(super) time: Option<i64>,
    pub(super) place: Place,
    pub(super) direction: Direction,
    pub(super) length: u32,
    pub(super) bytes: &'a [u8],
}

/// Reads a frame.
pub(super) fn packet(frame: &Frame<'_>) -> Result<Packet, NoPacket> {
    let mut point = Point {
        place: frame.place,
        edge: 0,
        direction: frame.direction,
    };
    let bytes = frame.bytes;
    let ip = match frame.link {
        LinkType::Ethernet => ether(be16(bytes, 12)?, bytes.get(14..))?,
        LinkType::Raw => bytes,
        LinkType::Null => bytes.get(4..).ok_or(NoPacket::Cut)?,
        LinkType::Cooked1 => {
            cooked(&mut point, be16(bytes, 0)?);
            ether(be16(bytes, 14)?, bytes.get(16..))?
        }
        LinkType::Cooked2 => {
            point.place = Place::Interface(be32(bytes, 4)?);
            cooked(&mut point, u16::from(*bytes.get(10).ok_or(NoPacket::Cut)?));
            ether(be16(bytes, 0)?, bytes.get(20..))?
        }
        LinkType::Other(_) => return Err(NoPacket::NotIp),
    };
    let mut packet = match ip.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(ip, frame.length)?,
        Some(6) => ipv6(ip)?,
        Some(_) => return Err(NoPacket::NotIp),
        None => return Err(NoPacket::Cut),
    };
    packet.time = frame.time;
    packet.point = point;
    packet.length = frame.length;
    Ok(packet)
}

/// The packet type of Linux cooked headers: 4 is outgoing, others came in.
fn cooked(point: &mut Point, packet_type: u16) {
    if point.direction == Direction::Unknown {
        point.direction = if packet_type == 4 {
            Direction::Out
        } else {
            Direction::In
        };
    }
}

/// Takes VLAN tags off (802.1Q, 802.1ad and the older numbers of stacked tags), and asks for IP.
fn ether(mut kind: u16, rest: Option<&[u8]>) -> Result<&[u8], NoPacket> {
    let mut rest = rest.ok_or(NoPacket::Cut)?;
    // Stacked tags are two; more than eight are no traffic.
    for _ in 0..8 {
        match kind {
            0x0800 | 0x86dd => return Ok(rest),
            0x8100 | 0x88a8 | 0x9100 | 0x9200 => {
                kind = be16(rest, 2)?;
                rest = rest.get(4..).ok_or(NoPacket::Cut)?;
            }
            _ => return Err(NoPacket::NotIp),
        }
    }
    Err(NoPacket::NotIp)
}

fn ipv4(bytes: &[u8], wire: u32) -> Result<Packet, NoPacket> {
    let (header, _) = bytes.split_first_chunk::<20>().ok_or(NoPacket::Cut)?;
    let header_length = usize::from(header[0] & 15) * 4;
    if header_length < 20 {
        return Err(NoPacket::Cut);
    }
    let total = u16::from_be_bytes([header[2], header[3]]);
    let id = u16::from_be_bytes([header[4], header[5]]);
    let fragmenting = u16::from_be_bytes([header[6], header[7]]);
    let protocol = header[9];
    let source = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    let destination = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
    // Segmentation offload leaves 0 where the length does not fit; then all that is there is the packet.
    let end = if total == 0 {
        bytes.len()
    } else {
        bytes.len().min(usize::from(total))
    };
    let options = bytes.get(20..header_length.min(end)).unwrap_or_default();
    let payload = bytes.get(header_length..end).unwrap_or_default();
    let later_fragment = fragmenting & 0x1fff != 0;
    let fragment = fragmenting & 0x3fff != 0;

    let length = if total == 0 { wire } else { u32::from(total) };
    let mut mix = Mix::new();
    mix.word(u64::from(length) << 32 | u64::from(id) << 16 | u64::from(fragmenting & 0x7fff));
    mix.word(u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()));
    mix.word(u64::from(protocol));
    if !options.is_empty() {
        mix.bytes(options);
    }
    mix.bytes(payload);
    let transport = transport(protocol, payload, later_fragment);
    let strength = if id != 0 && (fragment || transport.checksum) {
        Strength::Full
    } else {
        Strength::Bytes
    };
    Ok(Packet {
        time: None,
        point: NOWHERE,
        flow: FlowKey {
            source: IpAddr::V4(source),
            destination: IpAddr::V4(destination),
            protocol,
            ports: transport.ports,
        },
        tcp: transport.tcp,
        ttl: Some(header[8]),
        fragment,
        length: 0,
        identity: Identity {
            hash: mix.finish(),
            strength,
        },
    })
}

/// More extension headers than this are no traffic.
const MAX_EXTENSIONS: usize = 16;

fn ipv6(bytes: &[u8]) -> Result<Packet, NoPacket> {
    let (header, _) = bytes.split_first_chunk::<40>().ok_or(NoPacket::Cut)?;
    let payload_length = u16::from_be_bytes([header[4], header[5]]);
    let source = address6(header.get(8..24))?;
    let destination = address6(header.get(24..40))?;
    // A jumbogram and segmentation offload leave 0.
    let end = if payload_length == 0 {
        bytes.len()
    } else {
        bytes.len().min(40 + usize::from(payload_length))
    };
    let all = bytes.get(40..end).unwrap_or_default();

    let mut next = header[6];
    let mut rest = all;
    let mut fragment = false;
    let mut later_fragment = false;
    for _ in 0..MAX_EXTENSIONS {
        let length = match next {
            // Hop-by-hop, routing, destination options, mobility, host identity, shim6: in units of 8 after the first.
            0 | 43 | 60 | 135 | 139 | 140 => rest.get(1).map(|units| (usize::from(*units) + 1) * 8),
            44 => {
                let offset = be16(rest, 2).unwrap_or(0);
                fragment |= offset & 0xfff9 != 0;
                later_fragment |= offset & 0xfff8 != 0;
                Some(8)
            }
            // Authentication: in units of 4, minus 2.
            51 => rest.get(1).map(|units| (usize::from(*units) + 2) * 4),
            _ => break,
        };
        let (Some(kind), Some(length)) = (rest.first(), length) else {
            break;
        };
        next = *kind;
        rest = rest.get(length..).unwrap_or_default();
        if later_fragment {
            break;
        }
    }

    let mut mix = Mix::new();
    mix.address(IpAddr::V6(source));
    mix.address(IpAddr::V6(destination));
    mix.word(u64::from(payload_length) << 8 | u64::from(header[6]));
    mix.bytes(all);
    let transport = transport(next, rest, later_fragment);
    Ok(Packet {
        time: None,
        point: NOWHERE,
        flow: FlowKey {
            source: IpAddr::V6(source),
            destination: IpAddr::V6(destination),
            protocol: next,
            ports: transport.ports,
        },
        tcp: transport.tcp,
        ttl: Some(header[7]),
        fragment,
        length: 0,
        // A fragment header has an ID of 32 bits.
        identity: Identity {
            hash: mix.finish(),
            strength: if fragment { Strength::Full } else { Strength::Bytes },
        },
    })
}

/// To be overwritten by the frame's.
const NOWHERE: Point = Point {
    place: Place::Somewhere,
    edge: 0,
    direction: Direction::Unknown,
};

#[derive(Default)]
struct Transport {
    ports: Option<(u16, u16)>,
    tcp: Option<Tcp>,
    /// The checksum over the whole payload was captured.
    checksum: bool,
}

fn transport(protocol: u8, bytes: &[u8], later_fragment: bool) -> Transport {
    if later_fragment {
        return Transport::default();
    }
    let ports = bytes.first_chunk::<4>().map(|chunk| {
        let source = u16::from_be_bytes([chunk[0], chunk[1]]);
        (source, u16::from_be_bytes([chunk[2], chunk[3]]))
    });
    match protocol {
        6 => Transport {
            ports,
            tcp: be32(bytes, 4).ok().map(|seq| Tcp {
                seq,
                ack: be32(bytes, 8).unwrap_or(0),
                flags: bytes.get(13).copied(),
            }),
            checksum: bytes.len() >= 18,
        },
        // UDP, and UDP-Lite with the same layout.
        17 | 136 => Transport {
            ports,
            tcp: None,
            checksum: be16(bytes, 6).is_ok_and(|sum| sum != 0),
        },
        // SCTP and DCCP begin with ports too.
        132 | 33 => Transport {
            ports,
            tcp: None,
            checksum: bytes.len() >= 12,
        },
        1 | 58 => Transport {
            ports: None,
            tcp: None,
            checksum: bytes.len() >= 4,
        },
        _ => Transport::default(),
    }
}

fn be16(bytes: &[u8], at: usize) -> Result<u16, NoPacket> {
    let chunk = bytes.get(at..).and_then(<[u8]>::first_chunk::<2>);
    chunk.map(|chunk| u16::from_be_bytes(*chunk)).ok_or(NoPacket::Cut)
}

fn be32(bytes: &[u8], at: usize) -> Result<u32, NoPacket> {
    let chunk = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
    chunk.map(|chunk| u32::from_be_bytes(*chunk)).ok_or(NoPacket::Cut)
}

fn address6(bytes: Option<&[u8]>) -> Result<Ipv6Addr, NoPacket> {
    let chunk = bytes.and_then(<[u8]>::first_chunk::<16>);
    chunk.map(|chunk| Ipv6Addr::from(*chunk)).ok_or(NoPacket::Cut)
}

#[cfg(test)]
mod tests;
