//! Tests.

use etherparse::{LaxSlicedPacket, NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::{super::made::Segment, *};

fn frame(link: LinkType, bytes: &[u8]) -> Result<Packet, NoPacket> {
    packet(&Frame {
        link,
        time: Some(1),
        place: Place::Somewhere,
        direction: Direction::Unknown,
        length: u32::try_from(bytes.len()).unwrap(),
        bytes,
    })
}

fn ethernet(kind: &[u8], ip: &[u8]) -> Vec<u8> {
    [&[2; 12], kind, ip].concat()
}

/// An IPv6 packet with these extension headers before a TCP segment.
fn ipv6_packet(first: u8, extensions: &[u8], hop_limit: u8) -> Vec<u8> {
    let tcp = &Segment::reset(50_000).ip()[20..];
    let mut out = vec![0x60, 0, 0, 0];
    out.extend_from_slice(&u16::try_from(extensions.len() + tcp.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&[first, hop_limit]);
    out.extend_from_slice(&"fd00::8".parse::<Ipv6Addr>().unwrap().octets());
    out.extend_from_slice(&"fd00::77".parse::<Ipv6Addr>().unwrap().octets());
    out.extend_from_slice(extensions);
    out.extend_from_slice(tcp);
    out
}

#[test]
fn every_link_layer_gives_the_same_packet() {
    let segment = Segment::reset(51_022);
    let ip = segment.ip();
    let plain = frame(LinkType::Raw, &ip).unwrap();
    assert_eq!(plain.flow.to_string(), "tcp 10.240.255.8:443 > 10.240.1.77:51022");
    let tcp = plain.tcp.unwrap();
    assert_eq!(
        (tcp.flags, tcp.seq, tcp.ack),
        (Some(0x14), segment.seq, segment.ack)
    );
    assert_eq!((plain.ttl, plain.identity.strength), (Some(126), Strength::Full));

    let mut cooked1 = vec![0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0];
    cooked1.extend_from_slice(&ip);
    let mut cooked2 = vec![8, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0];
    cooked2.extend_from_slice(&ip);
    for (link, bytes) in [
        (LinkType::Ethernet, segment.frame().to_vec()),
        (LinkType::Ethernet, ethernet(&[0x81, 0, 0, 5, 8, 0], &ip)),
        (
            LinkType::Ethernet,
            ethernet(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0], &ip),
        ),
        (
            LinkType::Ethernet,
            ethernet(&[0x91, 0, 0, 5, 0x81, 0, 0, 6, 8, 0], &ip),
        ),
        (LinkType::Null, [&[2, 0, 0, 0], &ip[..]].concat()),
        (LinkType::Null, [&[0, 0, 0, 2], &ip[..]].concat()),
        (LinkType::Cooked1, cooked1.clone()),
        (LinkType::Cooked2, cooked2.clone()),
    ] {
        let packet = frame(link, &bytes).unwrap();
        assert_eq!(packet.flow, plain.flow, "{link:?}");
        assert_eq!(packet.identity, plain.identity, "{link:?}");
        assert_eq!(packet.tcp, plain.tcp, "{link:?}");
    }
    let point = frame(LinkType::Cooked1, &cooked1).unwrap().point;
    assert_eq!((point.place, point.direction), (Place::Somewhere, Direction::Out));
    let point = frame(LinkType::Cooked2, &cooked2).unwrap().point;
    assert_eq!(
        (point.place, point.direction),
        (Place::Interface(9), Direction::In)
    );
}

#[test]
fn the_numbers_of_link_types() {
    for (number, link) in [
        (0, LinkType::Null),
        (1, LinkType::Ethernet),
        (12, LinkType::Raw),
        (101, LinkType::Raw),
        (108, LinkType::Null),
        (113, LinkType::Cooked1),
        (228, LinkType::Raw),
        (229, LinkType::Raw),
        (276, LinkType::Cooked2),
        (105, LinkType::Other(105)),
    ] {
        assert_eq!(LinkType::of(number), link);
    }
    assert_eq!(frame(LinkType::Other(105), &[0; 60]), Err(NoPacket::NotIp));
}

#[test]
fn a_router_leaves_the_identity_and_a_sender_makes_another() {
    let segment = Segment::reset(51_022);
    let identity = |segment: Segment| frame(LinkType::Raw, &segment.ip()).unwrap().identity;
    let same = Segment { ttl: 3, ..segment };
    assert_eq!(identity(segment), identity(same));
    // Also with another header checksum, type of service and MAC addresses.
    let mut bytes = segment.frame();
    bytes[..12].fill(9);
    bytes[15] = 0xb8;
    bytes[24] = 0xff;
    assert_eq!(
        frame(LinkType::Ethernet, &bytes).unwrap().identity,
        identity(segment)
    );
    for other in [
        Segment { id: 1, ..segment },
        Segment { seq: 1, ..segment },
        Segment { ack: 1, ..segment },
        Segment { flags: 4, ..segment },
        Segment {
            destination: (segment.destination.0, 1),
            ..segment
        },
        Segment {
            source: (segment.destination.0, 443),
            ..segment
        },
    ] {
        assert_ne!(identity(other).hash, identity(segment).hash, "{other:?}");
    }
    assert_eq!(identity(Segment { id: 0, ..segment }).strength, Strength::Bytes);
}

#[test]
fn options_extensions_and_fragments() {
    // IPv4 with eight bytes of options.
    let plain = Segment::reset(51_022).ip();
    let mut options = plain[..20].to_vec();
    options[0] = 0x47;
    options[3] = 48;
    options.extend_from_slice(&[1; 8]);
    options.extend_from_slice(&plain[20..]);
    let packet = frame(LinkType::Raw, &options).unwrap();
    assert_eq!(packet.flow.ports, Some((443, 51_022)));

    // Hop-by-hop, destination options, authentication.
    let extensions = [[60, 0, 1, 4, 0, 0, 0, 0], [51, 0, 1, 4, 0, 0, 0, 0]].concat();
    let authentication = [
        6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9,
    ];
    let bytes = ipv6_packet(0, &[&extensions[..], &authentication].concat(), 64);
    let packet = frame(LinkType::Raw, &bytes).unwrap();
    assert_eq!(packet.flow.to_string(), "tcp [fd00::8]:443 > [fd00::77]:50000");
    assert_eq!(packet.identity.strength, Strength::Bytes);
    let lower = frame(
        LinkType::Raw,
        &ipv6_packet(0, &[&extensions[..], &authentication].concat(), 9),
    )
    .unwrap();
    assert_eq!((packet.identity, lower.ttl), (lower.identity, Some(9)));

    // First and later fragment of IPv6.
    let first = frame(LinkType::Raw, &ipv6_packet(44, &[6, 0, 0, 1, 0, 0, 0, 7], 64)).unwrap();
    assert!(first.fragment && first.flow.ports.is_some() && first.identity.strength == Strength::Full);
    let later = frame(LinkType::Raw, &ipv6_packet(44, &[6, 0, 0, 0x10, 0, 0, 0, 7], 64)).unwrap();
    assert!(later.fragment && later.flow.ports.is_none() && later.flow.protocol == 6);

    // A later fragment of IPv4 has no ports.
    let mut fragment = plain;
    fragment[7] = 100;
    let packet = frame(LinkType::Raw, &fragment).unwrap();
    assert!(packet.fragment && packet.flow.ports.is_none() && packet.tcp.is_none());
}

#[test]
fn what_is_cut_off_is_used_as_far_as_it_goes() {
    let segment = Segment::reset(51_022);
    let whole = segment.frame();
    // 14 + 20 + 4: the ports are there, the rest is not.
    let packet = frame(LinkType::Ethernet, &whole[..38]).unwrap();
    assert_eq!((packet.flow.ports, packet.tcp), (Some((443, 51_022)), None));
    assert_eq!(packet.identity.strength, Strength::Bytes);
    let packet = frame(LinkType::Ethernet, &whole[..43]).unwrap();
    assert_eq!(
        packet.tcp,
        Some(Tcp {
            flags: None,
            seq: segment.seq,
            ack: 0
        })
    );
    for length in 0..34 {
        let result = frame(LinkType::Ethernet, &whole[..length]);
        assert_eq!(result, Err(NoPacket::Cut), "{length}");
    }
    let mut short_header = segment.ip();
    short_header[0] = 0x44;
    assert_eq!(frame(LinkType::Raw, &short_header), Err(NoPacket::Cut));
    assert_eq!(
        frame(LinkType::Ethernet, &ethernet(&[8, 6], &[0; 28])),
        Err(NoPacket::NotIp)
    );
    assert_eq!(frame(LinkType::Ethernet, &[0x81; 200]), Err(NoPacket::NotIp));
    // Segmentation offload: no length in the header.
    let mut offloaded = segment.ip();
    offloaded[3] = 0;
    assert_eq!(
        frame(LinkType::Raw, &offloaded).unwrap().flow.ports,
        Some((443, 51_022))
    );
}

/// What etherparse says of the same bytes.
type Read = (IpAddr, IpAddr, u8, u8, Option<(u16, u16)>);

fn theirs(bytes: &[u8]) -> Option<Read> {
    let sliced = LaxSlicedPacket::from_ethernet(bytes).ok()?;
    let (source, destination, ttl, protocol) = match sliced.net? {
        etherparse::LaxNetSlice::Ipv4(v4) => {
            let header = v4.header();
            (
                IpAddr::V4(header.source_addr()),
                IpAddr::V4(header.destination_addr()),
                header.ttl(),
                v4.payload().ip_number.0,
            )
        }
        etherparse::LaxNetSlice::Ipv6(v6) => {
            let header = v6.header();
            (
                IpAddr::V6(header.source_addr()),
                IpAddr::V6(header.destination_addr()),
                header.hop_limit(),
                v6.payload().ip_number.0,
            )
        }
        etherparse::LaxNetSlice::Arp(_) => return None,
    };
    let ports = match sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
        Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
        _ => None,
    };
    Some((source, destination, ttl, protocol, ports))
}

proptest! {
    #[test]
    fn etherparse_reads_the_same(
        vlans in 0..3_usize,
        v6: bool,
        udp: bool,
        addresses: ([u8; 16], [u8; 16]),
        ports: (u16, u16),
        ttl: u8,
        payload in prop::collection::vec(any::<u8>(), 0..80),
        cut in 0..200_usize,
    ) {
        use etherparse::PacketBuilder;
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let four = |bytes: [u8; 16]| *bytes.first_chunk::<4>().unwrap();
        let builder = match (vlans, v6) {
            (0, false) => builder.ipv4(four(addresses.0), four(addresses.1), ttl),
            (0, true) => builder.ipv6(addresses.0, addresses.1, ttl),
            (1, false) => builder.single_vlan(7.try_into().unwrap()).ipv4(four(addresses.0), four(addresses.1), ttl),
            (1, true) => builder.single_vlan(7.try_into().unwrap()).ipv6(addresses.0, addresses.1, ttl),
            (_, false) => builder
                .double_vlan(7.try_into().unwrap(), 9.try_into().unwrap())
                .ipv4(four(addresses.0), four(addresses.1), ttl),
            (_, true) => builder
                .double_vlan(7.try_into().unwrap(), 9.try_into().unwrap())
                .ipv6(addresses.0, addresses.1, ttl),
        };
        let mut bytes = Vec::new();
        if udp {
            builder.udp(ports.0, ports.1).write(&mut bytes, &payload).unwrap();
        } else {
            builder.tcp(ports.0, ports.1, 5, 9).write(&mut bytes, &payload).unwrap();
        }
        // Both understand it whole.
        prop_assert!(matches!(SlicedPacket::from_ethernet(&bytes).unwrap().net, Some(NetSlice::Ipv4(_) | NetSlice::Ipv6(_))));
        let ours = frame(LinkType::Ethernet, &bytes).unwrap();
        let theirs_whole = theirs(&bytes).unwrap();
        let as_theirs = |p: &Packet| (p.flow.source, p.flow.destination, p.ttl.unwrap(), p.flow.protocol, p.flow.ports);
        prop_assert_eq!(as_theirs(&ours), theirs_whole);
        // Cut off, ours reads at least as much.
        let bytes = &bytes[..bytes.len().saturating_sub(cut)];
        if let Some(theirs) = theirs(bytes) {
            let ours = frame(LinkType::Ethernet, bytes).unwrap();
            prop_assert_eq!((ours.flow.source, ours.flow.destination), (theirs.0, theirs.1));
            prop_assert_eq!(ours.ttl.unwrap(), theirs.2);
            if theirs.4.is_some() {
                prop_assert_eq!(ours.flow.ports, theirs.4);
            }
        }
    }

    #[test]
    fn nothing_panics(link in prop::sample::select(vec![0_u16, 1, 101, 113, 276, 9]), bytes in prop::collection::vec(any::<u8>(), 0..160)) {
        let _ = frame(LinkType::of(link), &bytes);
        let mut ip = bytes;
        if let Some(first) = ip.first_mut() {
            *first = 0x60 | *first & 15;
        }
        let _ = frame(LinkType::Raw, &ip);
    }
}
