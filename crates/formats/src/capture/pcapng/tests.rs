//! Tests.

use pcap_parser::{Block, PcapBlockOwned, PcapNGReader, traits::PcapReaderIterator};

use super::{
    super::{
        Outcome, Packet, flags_text,
        made::{self, Segment},
        read,
    },
    *,
};

fn all(bytes: &[u8]) -> (Outcome, Vec<Packet>) {
    let mut packets = Vec::new();
    let outcome = read(bytes, "f", &mut |packet| packets.push(*packet));
    (outcome, packets)
}

#[test]
fn times_of_every_resolution() {
    for (resolution, units, nanoseconds) in [
        (6, 1_500_000, 1_500_000_000),
        (0, 3, 3_000_000_000),
        (3, 1_500, 1_500_000_000),
        (9, 1_500_000_001, 1_500_000_001),
        (12, 1_500_000_000_999, 1_500_000_000),
        (28, 10_u64.pow(19), 1),
        (100, u64::MAX, 0),
        (0x80, 3, 3_000_000_000),
        (0x8a, 1_536, 1_500_000_000),
        (0x80 | 32, 3 << 31, 1_500_000_000),
        (0xff, u64::MAX, 0),
        (9, u64::MAX, i64::MAX),
        (0, u64::MAX, i64::MAX),
    ] {
        assert_eq!(
            Scale::of(resolution).nanoseconds(units),
            nanoseconds,
            "{resolution:#x}"
        );
    }
}

#[test]
fn sections_interfaces_and_all_kinds_of_packets() {
    let frame = Segment::reset(51_022).frame();
    let mut bytes = Vec::new();
    made::section(&mut bytes);
    made::interface(&mut bytes, 1, "Ethernet 2", 6);
    // Something unknown between.
    made::block(&mut bytes, 0x0bad, &[7; 33]);
    made::interface(&mut bytes, 101, "raw", 0x80 | 10);
    made::packet(&mut bytes, 0, 5_000_000, &frame, 1);
    made::packet(&mut bytes, 1, 1_536, &Segment::reset(2).ip(), 2);
    // A simple packet, and an old one with its two short fields first.
    let mut simple = 60_u32.to_le_bytes().to_vec();
    simple.extend_from_slice(&frame);
    made::block(&mut bytes, 3, &simple);
    let mut old = vec![0, 0, 9, 0];
    for word in [0_u32, 7_000_000, 60, 60] {
        old.extend_from_slice(&word.to_le_bytes());
    }
    old.extend_from_slice(&frame);
    made::option(&mut old, 2, &1_u32.to_le_bytes());
    made::block(&mut bytes, 2, &old);
    // The second section numbers its interfaces from 0 again.
    made::section(&mut bytes);
    made::interface(&mut bytes, 1, "other", 9);
    made::packet(&mut bytes, 0, 42, &frame, 0);

    let (outcome, packets) = all(&bytes);
    assert_eq!(outcome.problems, []);
    assert_eq!((outcome.frames, outcome.packets), (5, 5));
    let seen: Vec<_> = packets
        .iter()
        .map(|p| (p.time, p.point.place, p.point.direction))
        .collect();
    assert_eq!(
        seen,
        [
            (Some(5_000_000_000), Place::Interface(0), Direction::In),
            (Some(1_500_000_000), Place::Interface(1), Direction::Out),
            (None, Place::Interface(0), Direction::Unknown),
            (Some(7_000_000_000), Place::Interface(0), Direction::In),
            (Some(42), Place::Interface(2), Direction::Unknown),
        ]
    );
    let names: Vec<_> = outcome.interfaces.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["Ethernet 2", "raw", "other"]);
    assert_eq!(outcome.name(Place::Interface(2)), Some("other"));
    assert_eq!(flags_text(packets[0].tcp.unwrap().flags.unwrap()), "R.");
}

#[test]
fn an_offset_in_seconds_and_the_other_byte_order() {
    let mut bytes = Vec::new();
    let big = |bytes: &mut Vec<u8>, kind: u32, body: &[u8]| {
        let length = u32::try_from(12 + body.len()).unwrap().to_be_bytes();
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(&length);
    };
    let mut header = 0x1a2b_3c4d_u32.to_be_bytes().to_vec();
    header.extend_from_slice(&[0, 1, 0, 0]);
    header.extend_from_slice(&[0xff; 8]);
    big(&mut bytes, SECTION, &header);
    let mut interface = vec![0, 1, 0, 0, 0, 0, 0, 0];
    interface.extend_from_slice(&[0, 14, 0, 8]);
    interface.extend_from_slice(&(-10_i64).to_be_bytes());
    interface.extend_from_slice(&[0, 0, 0, 0]);
    big(&mut bytes, INTERFACE, &interface);
    let frame = Segment::reset(1).frame();
    let mut packet = Vec::new();
    for word in [0_u32, 0, 30_000_000, 60, 60] {
        packet.extend_from_slice(&word.to_be_bytes());
    }
    packet.extend_from_slice(&frame);
    big(&mut bytes, ENHANCED_PACKET, &packet);
    let (outcome, packets) = all(&bytes);
    assert_eq!(outcome.problems, []);
    assert_eq!(packets[0].time, Some(20_000_000_000));
}

#[test]
fn a_component_in_the_comment() {
    for (comment, component_of) in [
        ("Component 14", Some(14)),
        ("PktGroupId 5, ComponentId: 78, Edge 1", Some(78)),
        ("component=9", Some(9)),
        ("PID=4 TID=0", None),
        ("component", None),
    ] {
        assert_eq!(component(comment.as_bytes()), component_of, "{comment}");
    }
    let mut bytes = Vec::new();
    made::section(&mut bytes);
    made::interface(&mut bytes, 1, "pktmon", 9);
    let mut body = Vec::new();
    for word in [0_u32, 0, 1, 60, 60] {
        body.extend_from_slice(&word.to_le_bytes());
    }
    body.extend_from_slice(&Segment::reset(1).frame());
    made::option(&mut body, 1, b"Component 14");
    made::option(&mut body, 2, &1_u32.to_le_bytes());
    made::block(&mut bytes, 6, &body);
    let (_, packets) = all(&bytes);
    assert_eq!(packets[0].point.to_string(), "component 14 in");
}

#[test]
fn broken_blocks_are_named_and_the_rest_is_used() {
    let frame = Segment::reset(1).frame();
    let mut bytes = Vec::new();
    made::section(&mut bytes);
    made::interface(&mut bytes, 1, "a", 9);
    made::packet(&mut bytes, 7, 1, &frame, 0);
    // It says that it holds more than its block.
    let at = bytes.len();
    made::packet(&mut bytes, 0, 2, &frame, 0);
    bytes[at + 20..at + 24].copy_from_slice(&u32::MAX.to_le_bytes());
    made::packet(&mut bytes, 0, 3, &frame, 0);
    // A block of 4 GB that nobody knows is passed over.
    let end = bytes.len();
    bytes.extend_from_slice(&0x0bad_u32.to_le_bytes());
    bytes.extend_from_slice(&0xffff_fff0_u32.to_le_bytes());
    bytes.extend_from_slice(&[0; 100]);
    let (outcome, packets) = all(&bytes);
    assert_eq!(packets.len(), 1);
    let said: Vec<_> = outcome.problems.iter().map(|p| p.what.as_str()).collect();
    assert_eq!(
        said,
        [
            "a packet of interface 7, which the section does not describe",
            "a packet of 4294967295 bytes in a block that holds 60",
            "the capture is cut off inside of a record",
        ]
    );
    assert_eq!(outcome.problems[1].place, format!("f: byte {at}"));
    assert!(outcome.completeness.why().is_some());

    // A block that is shorter than its own head ends it.
    bytes.truncate(end);
    bytes.extend_from_slice(&[6, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    made::packet(&mut bytes, 0, 3, &frame, 0);
    let (outcome, packets) = all(&bytes);
    assert_eq!(packets.len(), 1);
    assert!(
        outcome.problems[2].what.contains("4 bytes long"),
        "{:?}",
        outcome.problems
    );
}

#[test]
fn a_hundred_thousand_interfaces() {
    let frame = Segment::reset(1).frame();
    let mut bytes = Vec::new();
    made::section(&mut bytes);
    for n in 0..100_000 {
        made::interface(&mut bytes, 1, &format!("veth{n}"), 9);
    }
    made::packet(&mut bytes, 99_999, 3, &frame, 0);
    let (outcome, packets) = all(&bytes);
    assert_eq!(outcome.problems, []);
    assert_eq!(packets[0].point.place, Place::Interface(99_999));
    assert_eq!(outcome.interfaces.len(), MAX_NAMES);
}

#[test]
fn pcap_parser_reads_the_same_packets() {
    let mut bytes = Vec::new();
    made::section(&mut bytes);
    for n in 0..5_u16 {
        made::interface(&mut bytes, 1, &format!("eth{n}"), 9);
        made::block(&mut bytes, 5, &[0; 12]);
    }
    for n in 0..500_u16 {
        made::packet(
            &mut bytes,
            u32::from(n) % 5,
            u64::from(n) * 1_000_000_007,
            &Segment::reset(n).frame(),
            u32::from(n) % 3,
        );
    }
    let mut theirs = Vec::new();
    let mut reader = PcapNGReader::new(1 << 20, bytes.as_slice()).unwrap();
    while let Ok((used, block)) = reader.next() {
        if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = block {
            let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            theirs.push((packet.if_id, i64::try_from(units).unwrap(), packet.origlen));
        }
        reader.consume(used);
    }
    let (_, packets) = all(&bytes);
    let ours: Vec<_> = packets
        .iter()
        .map(|packet| match packet.point.place {
            Place::Interface(n) => (n, packet.time.unwrap(), packet.length),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(theirs.len(), 500);
    assert_eq!(ours, theirs);
}
