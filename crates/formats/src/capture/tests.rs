//! Tests.

use std::net::IpAddr;

use proptest::prelude::*;
use sexton_core::{
    finding::Verdict,
    roster::{Residence, Standing},
};

use super::{
    made::{self, Segment},
    *,
};

/// Reads and follows.
fn trace(bytes: &[u8]) -> (Outcome, Trace) {
    let mut watch = Watch::default();
    let outcome = read(bytes, "capture", &mut |packet| watch.see(packet));
    (outcome, watch.finish())
}

fn residence(standing: Standing) -> Residence {
    Residence {
        standing,
        owner: None,
        witnesses: Vec::new(),
        evidence: Vec::new(),
        lacking: Vec::new(),
    }
}

/// The only destination of a loop, judged as nobody's.
fn proved(trace: &Trace) -> &Destination {
    let [destination] = trace.destinations.as_slice() else {
        panic!("expected one destination: {:#?}", trace.destinations);
    };
    let judgement = judge(destination, &residence(Standing::Nobody));
    assert_eq!(
        judgement.verdict,
        Some(Verdict::Proved),
        "{judgement:#?}\n{destination:#?}"
    );
    destination
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Frames as a pcap file, each with its time.
fn pcap(frames: impl IntoIterator<Item = (u64, Segment)>) -> Vec<u8> {
    let mut out = made::pcap_header(1);
    for (time, segment) in frames {
        made::pcap_record(&mut out, time, &segment.frame(), 60);
    }
    out
}

#[test]
fn a_recorded_loop_of_the_kernel_is_one() {
    let bytes = include_bytes!("testdata/loop-200.pcap");
    let (outcome, trace) = trace(bytes);
    assert_eq!(
        (outcome.frames, outcome.packets, outcome.problems.len()),
        (200, 200, 0)
    );
    assert!(outcome.completeness.is_complete());
    assert_eq!(trace.flows.len(), 7);
    let destination = proved(&trace);
    assert_eq!(destination.address, ip("10.240.0.4"));
    assert_eq!((destination.circulating, destination.packets), (7, 200));
    assert_eq!(destination.ttl_falls, Some(false));
    assert_eq!(destination.repeats[0].ttl, Some((126, 126)));
}

#[test]
fn two_copies_of_three_packets_are_six() {
    // A kernel's loop of six packets, of which two and two are the same: resets without an IP ID.
    let (_, trace) = trace(include_bytes!("testdata/loop-copies.pcap"));
    let destination = proved(&trace);
    assert_eq!(destination.repeats.len(), 3);
    assert_eq!(
        (destination.circulating, destination.circulating_exact),
        (6, true)
    );
    assert_eq!(destination.repeats[0].identity.strength, Strength::Bytes);
}

/// Packets of the incident: each of these ports' resets circulates, so many turns.
fn circulating(turns: &[(u16, u32)], span: u64) -> Vec<(u64, Segment)> {
    let mut out = Vec::new();
    for (nth, (port, count)) in turns.iter().enumerate() {
        for turn in 0..*count {
            let time = span * u64::from(turn) / u64::from(*count) + nth as u64 * 11_000;
            out.push((1_700_000_000_000_000_000 + time, Segment::reset(*port)));
        }
    }
    out.sort_by_key(|(time, _)| *time);
    out
}

#[test]
fn the_published_figures_of_the_first_cluster() {
    // 7 flows, 145,294 packets in 8 s: 25,739 + 25,388 + 25,388 + the other four.
    let counts = [25_739, 25_388, 25_388, 25_388, 25_388, 9_001, 9_002];
    assert_eq!(counts.iter().sum::<u32>(), 145_294);
    let turns: Vec<_> = counts
        .iter()
        .enumerate()
        .map(|(n, count)| (51_000 + n as u16, *count))
        .collect();
    let (outcome, trace) = trace(&pcap(circulating(&turns, 8_000_000_000)));
    assert_eq!(outcome.packets, 145_294);
    let destination = proved(&trace);
    assert_eq!(destination.packets, 145_294);
    assert_eq!(destination.flows.len(), 7);
    let most: Vec<_> = destination
        .flows
        .iter()
        .map(|flow| flow.packets)
        .take(3)
        .collect();
    assert_eq!(most, [25_739, 25_388, 25_388]);
    assert_eq!(
        (destination.circulating, destination.circulating_exact),
        (7, true)
    );
    // 18.2 thousand packets a second; the packet of the busiest flow comes by every 0.31 ms.
    let rate = destination.rate.unwrap();
    assert!((rate - 145_294.0 / 8.0).abs() < 20.0, "{rate}");
    let period = destination.repeats[0].period.unwrap();
    assert!((310_000..312_000).contains(&period), "{period}");
}

#[test]
fn the_published_figures_of_the_second_cluster() {
    let turns = [(50_001, 61_224)];
    let (_, trace) = trace(&pcap(circulating(&turns, 5_000_000_000)));
    let destination = proved(&trace);
    assert_eq!((destination.packets, destination.circulating), (61_224, 1));
    assert!((destination.rate.unwrap() - 61_224.0 / 5.0).abs() < 1.0);
}

#[test]
fn a_time_to_live_that_falls_tells_copies_apart() {
    // Three copies of one packet without an IP ID, which started together and are routed round.
    let mut frames = Vec::new();
    for turn in 0..60_u8 {
        for copy in 0..3_u64 {
            let segment = Segment {
                id: 0,
                ttl: 126 - turn * 2,
                ..Segment::reset(51_000)
            };
            frames.push((u64::from(turn) * 900_000 + copy * 7_000, segment));
        }
    }
    let (_, trace) = trace(&pcap(frames));
    let destination = proved(&trace);
    assert_eq!(destination.ttl_falls, Some(true));
    assert_eq!(
        (destination.circulating, destination.circulating_exact),
        (3, true)
    );
    assert_eq!(destination.period, Some(900_000));
    assert_eq!(destination.repeats[0].ttl, Some((126, 8)));
}

#[test]
fn copies_that_circulate_in_a_bunch_are_counted() {
    let mut frames = Vec::new();
    for turn in 0..200_u64 {
        for copy in 0..5_u64 {
            frames.push((
                turn * 100_000 + copy * 1_500 + turn % 3 * 200,
                Segment {
                    id: 0,
                    ..Segment::reset(51_000)
                },
            ));
        }
    }
    let (_, trace) = trace(&pcap(frames));
    let destination = proved(&trace);
    assert_eq!(
        (destination.circulating, destination.circulating_exact),
        (5, true)
    );
}

#[test]
fn who_lives_there_decides() {
    let (_, trace) = trace(&pcap(circulating(&[(51_000, 100), (51_001, 100)], 10_000_000)));
    let [destination] = trace.destinations.as_slice() else {
        panic!("{trace:#?}")
    };
    for (standing, verdict) in [
        (Standing::Nobody, Some(Verdict::Proved)),
        (Standing::Ended, Some(Verdict::Proved)),
        (Standing::Unknown, Some(Verdict::Unknown)),
        (Standing::Live, None),
    ] {
        let judgement = judge(destination, &residence(standing));
        assert_eq!(judgement.verdict, verdict, "{judgement:#?}");
        assert_eq!(
            judgement.lacks.is_empty(),
            standing != Standing::Unknown,
            "{judgement:#?}"
        );
    }
    let mut unread = residence(Standing::Unknown);
    unread.lacking.push("the list of Pods".to_owned());
    assert_eq!(judge(destination, &unread).lacks, ["the list of Pods"]);
}

/// A sender and receiver for look-alikes.
fn between(source: [u8; 4], destination: [u8; 4]) -> Segment {
    Segment {
        source: (source.into(), 40_000),
        destination: (destination.into(), 443),
        flags: 0x10,
        ..Segment::reset(1)
    }
}

/// Says of a capture that nothing in it is a loop, even if nobody lived anywhere.
fn no_loop(name: &str, bytes: &[u8]) {
    let (outcome, trace) = trace(bytes);
    assert!(outcome.packets > 100, "{name}: {outcome:?}");
    for destination in &trace.destinations {
        let judgement = judge(destination, &residence(Standing::Nobody));
        assert_eq!(
            judgement.verdict, None,
            "{name}: {judgement:#?}\n{destination:#?}"
        );
    }
}

#[test]
fn look_alikes_are_no_loops() {
    // A busy gateway: each packet is another, and comes in and goes out.
    let mut out = Vec::new();
    made::section(&mut out);
    made::interface(&mut out, 1, "eth0", 9);
    made::interface(&mut out, 1, "eth1", 9);
    for n in 0..20_000_u32 {
        let id = (n % 65_521) as u16 + 1;
        let segment = Segment {
            id,
            seq: n * 1_000,
            ..between([10, 0, 0, (n % 7) as u8], [10, 1, 0, (n % 11) as u8])
        };
        let passed = Segment {
            ttl: segment.ttl - 1,
            ..segment
        };
        made::packet(&mut out, 0, u64::from(n) * 2_000, &segment.frame(), 1);
        made::packet(&mut out, 1, u64::from(n) * 2_000 + 700, &passed.frame(), 2);
    }
    no_loop("gateway", &out);

    // A sender that tries again: the same words with another IP ID, at growing intervals.
    let storm = |same_id: bool| {
        let mut frames = Vec::new();
        for flow in 0..400_u32 {
            for attempt in 0..7_u32 {
                let time = u64::from(flow) * 50_000 + 200_000_000 * ((1 << attempt) - 1);
                let id = if same_id {
                    0
                } else {
                    (flow * 7 + attempt) as u16 + 1
                };
                frames.push((
                    time,
                    Segment {
                        id,
                        seq: flow,
                        ..between([10, 0, 0, 1], [10, 1, 0, (flow % 200) as u8])
                    },
                ));
            }
        }
        frames.sort_by_key(|(time, _)| *time);
        pcap(frames)
    };
    no_loop("retransmissions", &storm(false));
    no_loop("retransmissions without IP ID", &storm(true));

    // One connection that sends the same segment every 200 ms for a long time, without IP ID.
    let frames = (0..300_u64).map(|n| {
        (
            n * 200_000_000,
            Segment {
                id: 0,
                ..between([10, 0, 0, 1], [10, 1, 0, 5])
            },
        )
    });
    no_loop("keep-alives", &pcap(frames));

    // A scan of free addresses: twice each.
    let frames = (0..20_000_u32).map(|n| {
        let to = (n / 2).to_be_bytes();
        (
            u64::from(n) * 10_000,
            Segment {
                id: 0,
                flags: 2,
                ..between([10, 0, 0, 1], [10, 9, to[2], to[3]])
            },
        )
    });
    no_loop("scan", &pcap(frames));

    // A flood to a group: every packet is the same.
    let frames = (0..5_000_u64).map(|n| (n * 1_000, between([10, 0, 0, 1], [239, 1, 2, 3])));
    no_loop("multicast", &pcap(frames));
    let frames = (0..5_000_u64).map(|n| (n * 1_000, between([10, 0, 0, 1], [255, 255, 255, 255])));
    no_loop("broadcast", &pcap(frames));

    // Load that differs by its sequence number only.
    let frames = (0..50_000_u32).map(|n| {
        (
            u64::from(n) * 1_000,
            Segment {
                id: 0,
                seq: n,
                ..between([10, 0, 0, 1], [10, 1, 0, 5])
            },
        )
    });
    no_loop("load", &pcap(frames));

    // Duplicate acknowledgements without IP ID: the other side sends data all the time.
    let mut frames = Vec::new();
    for n in 0..600_u32 {
        let data = between([10, 1, 0, 5], [10, 0, 0, 1]);
        frames.push((
            u64::from(n) * 10_000,
            Segment {
                id: n as u16,
                seq: n,
                ..data
            },
        ));
        frames.push((
            u64::from(n) * 10_000 + 5_000,
            Segment {
                id: 0,
                ..between([10, 0, 0, 1], [10, 1, 0, 5])
            },
        ));
    }
    no_loop("duplicate acknowledgements", &pcap(frames));

    // A datagram that a sender repeats, without IP ID.
    let mut datagram = between([10, 0, 0, 1], [10, 1, 0, 5]).ip();
    datagram[9] = 17;
    datagram[4..6].fill(0);
    let mut out = made::pcap_header(101);
    for n in 0..5_000 {
        made::pcap_record(&mut out, n * 20_000, &datagram, 40);
    }
    no_loop("datagram", &out);
}

#[test]
fn all_interfaces_of_a_machine_in_one_capture_are_no_loop() {
    // Linux cooked: a bridge floods each packet to 60 ports, and the capture does not tell them apart.
    let mut out = made::pcap_header(113);
    for n in 0..500_u32 {
        let segment = Segment {
            id: n as u16 + 1,
            ..between([10, 0, 0, 1], [10, 1, 0, 5])
        };
        for port in 0..60_u64 {
            let mut frame = vec![0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0];
            frame.extend_from_slice(&segment.ip());
            made::pcap_record(&mut out, u64::from(n) * 1_000_000 + port * 300, &frame, 56);
        }
    }
    no_loop("flooded", &out);
    // What `pktmon etl2pcap` makes: each packet once a component, in one interface.
    let mut out = Vec::new();
    made::section(&mut out);
    made::interface(&mut out, 1, "pktmon", 9);
    for n in 0..2_000_u32 {
        let segment = Segment {
            id: n as u16 + 1,
            ..between([10, 0, 0, 1], [10, 1, 0, 5])
        };
        for component in 0..12_u64 {
            made::packet(
                &mut out,
                0,
                u64::from(n) * 100_000 + component * 900,
                &segment.frame(),
                0,
            );
        }
    }
    no_loop("components", &out);
}

#[test]
fn a_loop_stands_out_of_a_busy_node() {
    // Two hundred thousand others between, so that every table is full many times over.
    let mut watch = Watch::new(Limits {
        recent: 1 << 13,
        tracks: 1 << 10,
        flows: 1 << 11,
        ..Limits::default()
    });
    let mut out = made::pcap_header(1);
    let mut circled = 0_u64;
    for n in 0..200_000_u32 {
        let time = u64::from(n) * 1_000;
        let at = n.to_be_bytes();
        let stranger = Segment {
            seq: n,
            id: n as u16 | 1,
            ..between([10, 3, at[2], at[3]], [10, 2, at[1], at[2]])
        };
        made::pcap_record(&mut out, time, &stranger.frame(), 60);
        if n % 50 == 0 {
            for port in 0..3 {
                made::pcap_record(&mut out, time + 100, &Segment::reset(51_000 + port).frame(), 60);
            }
            circled += 3;
        }
    }
    read(out.as_slice(), "f", &mut |packet| watch.see(packet));
    let trace = watch.finish();
    let destination = proved(&trace);
    assert_eq!((destination.packets, destination.circulating), (circled, 3));
    assert_eq!(
        destination.turns,
        circled - 3,
        "the first sighting of each is not a turn"
    );
    assert!(!trace.totals.flows_exact);
    let listed: u64 = trace.flows.iter().map(|flow| flow.sightings).sum();
    assert_eq!(listed + trace.totals.other_sightings, trace.totals.sightings);
}

/// Text of pktmon, in either form, of the incident's loop beside a living Pod.
fn pktmon_text(long: bool, turns: u32) -> String {
    let mut out = String::new();
    if long {
        for (id, name) in [
            (14, "netvsc.sys, Microsoft Hyper-V Network Adapter #2"),
            (22, "mlx5.sys, Mellanox"),
        ] {
            out += &format!(
                "[00]0000.0000::2026-08-18 07:10:30.000000000 [Microsoft-Windows-PktMon] Component {id}, Type Miniport , Name {name} \r\n"
            );
        }
    }
    let mut group = 562_949_953_421_312_u64;
    let mut time = 800_u32;
    for turn in 0..turns {
        for port in [51_022, 51_023] {
            group += 1;
            for (appearance, direction, component) in
                [(1, "Rx", 14), (2, "Rx", 9), (3, "Tx", 57), (4, "Tx", 22)]
            {
                time += 2_900;
                let clock = if long {
                    format!("[00]0000.0000::2026-08-18 07:10:30.{time:09} [Microsoft-Windows-PktMon]")
                } else {
                    format!("07:10:30.{time:09}")
                };
                out += &format!(
                    "{clock} PktGroupId {group}, PktNumber 1, Appearance {appearance}, Direction {direction} , Type Ethernet , Component {component}, Edge 1, Filter 1, OriginalSize 60, LoggedSize 60 \r\n\t12-34-56-78-9A-BC > 60-45-BD-12-45-65, ethertype IPv4 (0x0800), length 60: 10.240.255.8.443 > 10.240.1.77.{port}: Flags [R.], seq 1928023, ack 51574, win 0, length 0\r\n"
                );
            }
        }
        group += 1;
        for component in [14, 9, 88] {
            time += 2_000;
            let clock = if long {
                format!("[00]0000.0000::2026-08-18 07:10:30.{time:09} [Microsoft-Windows-PktMon]")
            } else {
                format!("07:10:30.{time:09}")
            };
            out += &format!(
                "{clock} PktGroupId {group}, PktNumber 1, Appearance 1, Direction Rx , Type Ethernet , Component {component}, Edge 1, Filter 1, OriginalSize 144, LoggedSize 128 \r\n\t12-34-56-78-9A-BC > 60-45-BD-12-45-65, ethertype IPv4 (0x0800), length 144: 10.240.3.9.40212 > 10.240.1.33.8080: Flags [P.], seq {}:{}, ack 1, win 501, length 90\r\n",
                turn * 90,
                turn * 90 + 90
            );
        }
    }
    out
}

#[test]
fn text_of_pktmon_in_both_forms() {
    for long in [false, true] {
        let text = pktmon_text(long, 40);
        let (outcome, trace) = trace(text.as_bytes());
        assert_eq!(outcome.format, Some(Format::PktmonText));
        assert_eq!(outcome.problems, []);
        assert_eq!((outcome.frames, outcome.packets), (40 * 11, 40 * 11));
        let destination = proved(&trace);
        assert_eq!(destination.address, ip("10.240.1.77"));
        // Seen at four components, and one packet each turn.
        assert_eq!((destination.packets, destination.circulating), (80, 2));
        assert_eq!(destination.enters.unwrap().to_string(), "component 14 in");
        assert_eq!(destination.leaves.unwrap().to_string(), "component 22 out");
        assert_eq!(destination.ttl_falls, None);
        let living = trace
            .flows
            .iter()
            .find(|flow| flow.key.destination == ip("10.240.1.33"))
            .unwrap();
        assert_eq!(
            (living.packets, living.sightings, living.bytes),
            (40, 120, 120 * 144)
        );
        if long {
            assert_eq!(
                outcome.name(Place::Component(14)),
                Some("Microsoft Hyper-V Network Adapter #2")
            );
            assert_eq!(living.first, Some(1_787_037_030_000_026_000));
        }
    }
}

#[test]
fn text_needs_ten_turns_and_both_components() {
    let (_, nine) = trace(pktmon_text(true, 9).as_bytes());
    assert_eq!(nine.destinations, []);
    // Only one component was captured: it goes by what the text has, and that is not enough.
    let text = pktmon_text(true, 40);
    let lines: Vec<&str> = text.split("\r\n").collect();
    let one: String = lines
        .windows(2)
        .filter(|pair| pair[0].contains("Component 14, Edge"))
        .map(|pair| format!("{}\r\n{}\r\n", pair[0], pair[1]))
        .collect();
    let (_, trace) = trace(one.as_bytes());
    let [destination] = trace.destinations.as_slice() else {
        panic!("{trace:#?}")
    };
    let judgement = judge(destination, &residence(Standing::Nobody));
    assert_eq!(judgement.verdict, Some(Verdict::Suspected));
    assert!(judgement.lacks[0].contains("component"), "{judgement:#?}");
}

#[test]
fn text_of_other_languages_drops_and_protocols() {
    let text = "\u{feff}[00]49DC.4A38::2026-08-17 15:52:24.345685300 [Microsoft-Windows-PktMon] PktGroupId 556, PktNumber 1, 모양 0, 방향 Tx , 유형 Ethernet , 구성 요소 80, 에지 1, 필터 1, OriginalSize 66, LoggedSize 66 \n\
        \t00-00-5E-00-53-01 > 00-00-5E-00-53-02, ethertype IPv4 (0x0800), length 66: 192.0.2.10.65375 > 192.0.2.1.443: Flags [S], seq 1612461100, win 65535, options [mss 1460], length 0\n\
        [30]0000.0000::2026-08-17 15:52:25.5 [Microsoft-Windows-PktMon] Drop: PktGroupId 8444249301423149, PktNumber 1, Appearance 0, Direction Rx , Type IP , Component 49, Filter 1, DropReason INET: transport endpoint was not found , DropLocation 0xE000460A, OriginalSize 402, LoggedSize 148\n\
        \tDrop: ip: 192.168.5.88.50005 > 192.168.5.68.50005: UDP, length 374\n\
        15:52:26.1 PktGroupId 5, PktNumber 1, Appearance 1, Direction Rx , Type Ethernet , Component 3, Edge 2, Filter 1, OriginalSize 86, LoggedSize 86\n\
        \tAA-BB-CC-DD-EE-FF > 33-33-00-00-00-01, ethertype IPv6 (0x86dd), length 86: fe80::1.5353 > ff02::fb.5353: 0 PTR (QM)? a.local. (24)\n\
        15:52:26.2 PktGroupId 6, PktNumber 1, Appearance 1, Direction Rx , Type Ethernet , Component 3, Edge 2, Filter 1, OriginalSize 98, LoggedSize 98\n\
        \tAA-BB-CC-DD-EE-FF > 11-22-33-44-55-66, ethertype IPv4 (0x0800), length 98: 10.0.0.1 > 10.0.0.2: ICMP echo request, id 1, seq 1, length 64\n\
        15:52:26.3 PktGroupId 7, PktNumber 1, Appearance 1, Direction Rx , Type Ethernet , Component 3, Edge 2, Filter 1, OriginalSize 42, LoggedSize 42\n\
        \tAA-BB-CC-DD-EE-FF > FF-FF-FF-FF-FF-FF, ethertype ARP (0x0806), length 42: Request who-has 10.0.0.1 tell 10.0.0.2, length 28\n\
        15:52:26.4 PktGroupId x, PktNumber\n";
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for bytes in [text.as_bytes(), &utf16, &big] {
        let mut packets = Vec::new();
        let outcome = read(bytes, "f", &mut |packet| packets.push(*packet));
        let flows: Vec<_> = packets.iter().map(|packet| packet.flow.to_string()).collect();
        assert_eq!(
            flows,
            [
                "tcp 192.0.2.10:65375 > 192.0.2.1:443",
                "udp 192.168.5.88:50005 > 192.168.5.68:50005",
                "udp [fe80::1]:5353 > [ff02::fb]:5353",
                "icmp 10.0.0.1 > 10.0.0.2",
            ]
        );
        assert_eq!(packets[0].point.to_string(), "component 80 out");
        assert_eq!((packets[0].point.edge, packets[1].point.edge), (1, 0));
        assert_eq!((packets[1].length, outcome.frames, outcome.not_ip), (402, 6, 2));
        assert_eq!(outcome.problems.len(), 1, "{:?}", outcome.problems);
        assert_eq!(outcome.problems[0].place, "f:11");
    }
}

#[test]
fn components_of_a_list() {
    let table = "Network Adapters:\r\n   Id MAC Address       Name\r\n   -- -----------       ----\r\n   14 60-45-BD-12-45-65 Microsoft Hyper-V Network Adapter #2\r\n   57 VMSWITCH\r\n";
    let list = components(table);
    assert_eq!(list[0].name, "Microsoft Hyper-V Network Adapter #2");
    assert_eq!(
        (list[0].id, list[0].mac.as_deref()),
        (14, Some("60-45-BD-12-45-65"))
    );
    assert_eq!((list[1].id, list[1].name.as_str()), (57, "VMSWITCH"));
    let json = r#"[{"Group":"g","Components":[{"Id":12,"Name":"a","Properties":[{"Name":"ifIndex"}]}]}]"#;
    assert_eq!(
        components(json),
        [Component {
            id: 12,
            name: "a".to_owned(),
            mac: None
        }]
    );
}

#[test]
fn magic_numbers_of_pcap() {
    let frame = Segment::reset(1).frame();
    for (magic, big, modified, nanoseconds) in [
        (0xa1b2_c3d4_u32, false, false, 5_000),
        (0xa1b2_c3d4, true, false, 5_000),
        (0xa1b2_3c4d, false, false, 5),
        (0xa1b2_3c4d, true, false, 5),
        (0xa1b2_cd34, false, true, 5_000),
        (0xa1b2_cd34, true, true, 5_000),
    ] {
        let word = |word: u32| {
            if big {
                word.to_be_bytes()
            } else {
                word.to_le_bytes()
            }
        };
        let mut bytes = Vec::new();
        for field in [magic, 0, 0, 0, 65_535, 1 | 0x4000_0000, 7, 5, 60, 60] {
            bytes.extend_from_slice(&word(field));
        }
        if modified {
            bytes.extend_from_slice(&word(3));
            bytes.extend_from_slice(&[8, 0, 4, 0]);
        }
        bytes.extend_from_slice(&frame);
        let mut packets = Vec::new();
        let outcome = read(bytes.as_slice(), "f", &mut |packet| packets.push(*packet));
        assert_eq!(outcome.problems, [], "{magic:x}");
        let [packet] = packets.as_slice() else {
            panic!("{magic:x}")
        };
        assert_eq!(packet.time, Some(7_000_000_000 + nanoseconds));
        let expected = if modified { "interface 3 out" } else { "capture" };
        assert_eq!(packet.point.to_string(), expected);
    }
}

#[test]
fn bad_files_are_named_with_their_offset() {
    let none = |_: &Packet| ();
    for (bytes, what) in [
        (&b""[..], "expected a capture, found an empty file"),
        (b"\xa1\xb2", "expected a capture, found a few bytes"),
        (
            b"\x7fELF\x02\x01",
            "expected a capture (pcap, pcapng, or text of pktmon), found something else",
        ),
        (
            b"hello, world\n",
            "expected a capture (pcap, pcapng, or text of pktmon), found other text",
        ),
    ] {
        let outcome = read(bytes, "f", &mut { none });
        assert_eq!(outcome.problems[0].what, what);
        assert_eq!(outcome.format, None);
        assert!(
            matches!(
                outcome.completeness,
                sexton_core::model::Completeness::Unavailable(_)
            ),
            "{outcome:?}"
        );
    }
    let mut whole = pcap(circulating(&[(51_000, 30)], 1_000_000));
    let good = whole.len();
    made::pcap_record(&mut whole, 1, &[], 60);
    whole[good + 8..good + 12].copy_from_slice(&0xffff_ff00_u32.to_le_bytes());
    let outcome = read(whole.as_slice(), "f", &mut { none });
    assert_eq!(outcome.packets, 30);
    assert_eq!(outcome.problems[0].place, format!("f: byte {good}"));
    assert!(
        outcome.problems[0].what.contains("4294967040"),
        "{:?}",
        outcome.problems
    );
    assert!(outcome.completeness.why().unwrap().contains(&good.to_string()));
    // Cut off: what was read is used.
    let outcome = read(&whole[..good - 10], "f", &mut { none });
    assert_eq!((outcome.packets, outcome.problems.len()), (29, 1));
    // A packet of no length, and times that go backwards.
    let mut out = made::pcap_header(1);
    made::pcap_record(&mut out, 5_000, &[], 0);
    made::pcap_record(&mut out, 4_000, &Segment::reset(1).frame(), 60);
    made::pcap_record(&mut out, 3_000, &Segment::reset(2).frame(), 60);
    let (outcome, trace) = trace(&out);
    assert_eq!((outcome.frames, outcome.packets, outcome.cut), (3, 2, 1));
    assert_eq!(trace.totals.backwards, 1);
}

/// Everything that a reader says, when the input comes in these pieces.
fn in_pieces(bytes: &[u8], sizes: &[usize]) -> (Vec<Packet>, Outcome) {
    let mut reader = Reader::new("f");
    let mut packets = Vec::new();
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        reader.push(piece, &mut |packet| packets.push(*packet));
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    let outcome = reader.finish(&mut |packet| packets.push(*packet));
    (packets, outcome)
}

/// One of several kinds of capture, some of them broken.
fn sample(kind: usize, count: u32) -> Vec<u8> {
    let loops = [(51_000, count), (51_001, count / 2 + 1)];
    match kind {
        0 => pcap(circulating(&loops, 1_000_000)),
        1 => pktmon_text(true, count % 6 + 1).into_bytes(),
        2 => pktmon_text(false, count % 6 + 1)
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .fold(vec![0xff, 0xfe], |mut out, b| {
                out.push(b);
                out
            }),
        _ => {
            let mut out = Vec::new();
            made::section(&mut out);
            made::interface(&mut out, 1, "Ethernet", 9);
            made::block(&mut out, 0x0bad, &[3; 70]);
            for (time, segment) in circulating(&loops, 1_000_000) {
                made::packet(&mut out, 0, time, &segment.frame(), 1);
            }
            made::packet(&mut out, 9, 1, &[0; 60], 0);
            out
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_gives_the_same(
        kind in 0..4_usize,
        count in 1..40_u32,
        sizes in prop::collection::vec(1..400_usize, 1..6),
        cut in 0..200_usize,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = sample(kind, count);
        bytes.truncate(bytes.len().saturating_sub(cut));
        for (index, value) in flips {
            if !bytes.is_empty() {
                let at = index.index(bytes.len());
                bytes[at] = value;
            }
        }
        let whole = in_pieces(&bytes, &[usize::MAX]);
        prop_assert_eq!(&in_pieces(&bytes, &sizes), &whole);
        prop_assert_eq!(&in_pieces(&bytes, &[1]), &whole);
    }

    #[test]
    fn without_repeated_packets_there_is_no_loop(
        seeds in prop::collection::hash_set((any::<u16>(), any::<u32>(), 0..3_u8), 1..400),
        step in 1..100_000_u64,
    ) {
        let frames: Vec<_> = seeds
            .into_iter()
            .enumerate()
            .map(|(n, (id, seq, to))| (n as u64 * step, Segment { id, seq, ..between([10, 0, 0, 1], [10, 240, 1, to]) }))
            .collect();
        // Each once, and each twice.
        let (_, once) = trace(&pcap(frames.clone()));
        prop_assert_eq!(once.destinations, vec![]);
        prop_assert_eq!(once.totals.seen_again, 0);
        let twice = frames.iter().flat_map(|frame| [*frame, *frame]);
        let (_, twice) = trace(&pcap(twice));
        prop_assert_eq!(twice.destinations, vec![]);
    }

    #[test]
    fn turns_and_flows_are_counted_exactly(counts in prop::collection::vec(25..400_u32, 1..40)) {
        let turns: Vec<_> = counts.iter().enumerate().map(|(n, count)| (50_000 + n as u16, *count)).collect();
        let (_, trace) = trace(&pcap(circulating(&turns, 50_000_000)));
        let destination = proved(&trace);
        // At least: a packet that is faster than others may be several.
        prop_assert_eq!(destination.circulating, counts.len() as u64);
        prop_assert_eq!(destination.packets, counts.iter().map(|count| u64::from(*count)).sum::<u64>());
    }
}
