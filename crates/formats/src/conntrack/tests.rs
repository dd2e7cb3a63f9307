use std::fmt::Write as _;

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn tuple(src: &str, dst: &str, sport: u16, dport: u16) -> CtTuple {
    CtTuple {
        src: ip(src),
        dst: ip(dst),
        sport,
        dport,
    }
}

fn base(proto: Proto, original: CtTuple, reply: CtTuple) -> CtEntry {
    CtEntry {
        proto,
        state: None,
        timeout: None,
        original,
        reply,
        flags: CtFlags::default(),
        mark: 0,
        zone: 0,
        id: None,
        original_count: None,
        reply_count: None,
    }
}

fn read(text: &str) -> (Vec<CtEntry>, CtOutput) {
    let mut entries = Vec::new();
    let output = parse(text.as_bytes(), "conntrack.txt", &mut |entry| entries.push(entry));
    (entries, output)
}

#[test]
fn a_plain_udp_line() {
    let line = "udp      17 26 src=172.20.0.200 dst=172.20.0.11 sport=41005 dport=61005 src=10.10.1.23 dst=172.20.0.200 sport=5065 dport=41005 mark=0 use=1";
    assert_eq!(
        parse_entry(line),
        Ok(CtEntry {
            timeout: Some(26),
            ..base(
                Proto::Udp,
                tuple("172.20.0.200", "172.20.0.11", 41005, 61005),
                tuple("10.10.1.23", "172.20.0.200", 5065, 41005)
            )
        })
    );
}

#[test]
fn extended_with_everything() {
    let line = "ipv4     2 tcp      6 431999 ESTABLISHED src=10.0.0.1 dst=10.96.0.1 sport=40000 dport=443 zone-orig=7 packets=5 bytes=420 src=10.0.0.9 dst=10.0.0.1 sport=6443 dport=40000 packets=4 bytes=300 [ASSURED] mark=16384 secctx=system_u:object_r:unlabeled_t:s0 delta-time=12 [start=Mon Nov 30 16:19:15 2026] [stop=Mon Nov 30 16:19:16 2026] use=2 id=3735928559 labels=a,b helper=ftp";
    assert_eq!(
        parse_entry(line),
        Ok(CtEntry {
            state: Some("ESTABLISHED".into()),
            timeout: Some(431_999),
            flags: CtFlags {
                assured: true,
                ..CtFlags::default()
            },
            mark: 16384,
            zone: 7,
            id: Some(3_735_928_559),
            original_count: Some(Direction {
                packets: 5,
                bytes: 420
            }),
            reply_count: Some(Direction {
                packets: 4,
                bytes: 300
            }),
            ..base(
                Proto::Tcp,
                tuple("10.0.0.1", "10.96.0.1", 40000, 443),
                tuple("10.0.0.9", "10.0.0.1", 6443, 40000)
            )
        })
    );
}

#[test]
fn proc_icmp_offload_and_ipv6() {
    let icmp = "ipv6     10 icmpv6   58 29 src=fd00::1 dst=fd00::2 type=128 code=0 id=4711 [UNREPLIED] src=fd00::2 dst=fd00::1 type=129 code=0 id=4711 mark=0 zone=0 use=2";
    assert_eq!(
        parse_entry(icmp),
        Ok(CtEntry {
            timeout: Some(29),
            flags: CtFlags {
                unreplied: true,
                ..CtFlags::default()
            },
            ..base(
                Proto::Other(58),
                tuple("fd00::1", "fd00::2", 0, 0),
                tuple("fd00::2", "fd00::1", 0, 0)
            )
        })
    );
    let with_id = "icmp     1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=4711 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=4711 mark=0 use=1 id=99";
    assert_eq!(parse_entry(with_id).unwrap().id, Some(99));
    let offload = "ipv4     2 tcp      6 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1 [OFFLOAD] mark=0 zone=3 use=2";
    let entry = parse_entry(offload).unwrap();
    assert_eq!(
        (entry.timeout, entry.state.as_deref()),
        (None, Some("ESTABLISHED"))
    );
    assert_eq!((entry.flags.offload, entry.zone), (true, 3));
    let gre = "gre      47 29 timeout=30, stream_timeout=180 src=10.0.0.1 dst=10.0.0.2 srckey=0x0 dstkey=0x880b src=10.0.0.2 dst=10.0.0.1 srckey=0x880b dstkey=0x0 mark=0 use=1";
    assert_eq!(parse_entry(gre).unwrap().proto, Proto::Other(47));
    let unknown =
        "unknown  2 533 src=10.0.0.1 dst=224.0.0.22 [UNREPLIED] src=224.0.0.22 dst=10.0.0.1 mark=0 use=1";
    assert_eq!(parse_entry(unknown).unwrap().proto, Proto::Other(2));
}

#[test]
fn what_is_no_entry() {
    for (line, err) in [
        ("[NEW] udp 17 30 src=1.1.1.1", CtError::Event),
        ("udp", CtError::Proto),
        ("udp x src=1.1.1.1", CtError::Proto),
        (
            "tcp 6 118 1SYN src=1.1.1.1 dst=2.2.2.2 src=2.2.2.2 dst=1.1.1.1",
            CtError::State,
        ),
        ("udp 300 src=1.1.1.1", CtError::Proto),
        (
            "udp 17 30 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=2",
            CtError::Tuples,
        ),
        (
            "udp 17 30 src=1.1.1.1 src=2.2.2.2 src=3.3.3.3 dst=1.1.1.1",
            CtError::Tuples,
        ),
        ("udp 17 30 src=1.1.1 dst=2.2.2.2", CtError::Value("src")),
        (
            "udp 17 30 src=1.1.1.1 dst=2.2.2.2 sport=70000",
            CtError::Value("sport"),
        ),
        ("udp 17 3x src=1.1.1.1 dst=2.2.2.2", CtError::Value("the timeout")),
    ] {
        assert_eq!(parse_entry(line), Err(err), "{line}");
    }
}

const LISTING: &str = "udp      17 29 src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1 mark=0 use=1
tcp      6 100 CLOSE src=10.0.0.1 dst=10.0.0.2 sport=3 dport=4 packets=1 bytes=60 src=10.0.0.2 dst=10.0.0.1 sport=4 dport=3 packets=0 bytes=0 mark=0 use=1
";

#[test]
fn a_listing_with_and_without_its_closing_line() {
    let (entries, output) = read(LISTING);
    assert_eq!(entries.len(), 2);
    assert_eq!(
        output,
        CtOutput {
            seen: 2,
            completeness: Completeness::Complete,
            problems: vec![],
            accounting: Some(true),
        }
    );
    for crlf in [false, true] {
        let text = format!("{LISTING}conntrack v1.4.7 (conntrack-tools): 2 flow entries have been shown.\n");
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        assert_eq!(read(&text).1, output);
    }
    let (_, output) = read(&format!(
        "{LISTING}conntrack v1.4.7 (conntrack-tools): 9 flow entries have been shown.\n"
    ));
    assert_eq!(
        output.completeness,
        Completeness::Partial("the tool counted 9 entries and 2 were read".to_owned())
    );
    let (_, output) = read("conntrack v1.4.7 (conntrack-tools): 0 flow entries have been shown.\n");
    assert_eq!(output.completeness, Completeness::Complete);
    let (_, output) = read("");
    assert!(matches!(output.completeness, Completeness::Unavailable(_)));
    let (_, output) = read("conntrack v1.4.7 (conntrack-tools): Operation failed: sorry\n");
    assert!(matches!(output.completeness, Completeness::Partial(_)));
}

#[test]
fn a_cut_or_broken_line_costs_itself() {
    let (entries, output) = read(&LISTING[..LISTING.len() - 8]);
    assert_eq!(entries.len(), 1);
    assert_eq!(
        output.completeness,
        Completeness::Partial("the text is cut off: its last line has no end".to_owned())
    );
    assert_eq!(output.problems[0].place, "conntrack.txt:2");
    let (entries, output) = read(&LISTING.replacen("sport=1 ", "sport=x ", 1));
    assert_eq!(entries.len(), 1);
    assert_eq!(
        output.completeness,
        Completeness::Partial("lines that could not be read: 1".to_owned())
    );
    assert!(
        output.problems[0]
            .what
            .starts_with("left out: cannot read the value of sport: udp ")
    );
}

#[derive(Clone, Copy, Debug)]
struct Options {
    extended: bool,
    id: bool,
    ktimestamp: bool,
    labels: bool,
}

/// As `snprintf_default.c` prints.
fn print(entry: &CtEntry, options: Options) -> String {
    let mut out = String::new();
    if options.extended {
        out.push_str(if entry.original.src.is_ipv4() {
            "ipv4     2 "
        } else {
            "ipv6     10 "
        });
    }
    let _ = write!(out, "{:<8} {} ", entry.proto.to_string(), entry.proto.number());
    if let Some(timeout) = entry.timeout {
        let _ = write!(out, "{timeout} ");
    }
    if let Some(state) = &entry.state {
        let _ = write!(out, "{state} ");
    }
    let mut tuple = |tuple: &CtTuple, count: Option<Direction>, flag: &str| {
        let _ = write!(out, "src={} dst={} ", tuple.src, tuple.dst);
        if entry.proto == Proto::Other(1) {
            out.push_str("type=8 code=0 id=77 ");
        } else {
            let _ = write!(out, "sport={} dport={} ", tuple.sport, tuple.dport);
        }
        if let Some(count) = count {
            let _ = write!(out, "packets={} bytes={} ", count.packets, count.bytes);
        }
        out.push_str(flag);
    };
    tuple(
        &entry.original,
        entry.original_count,
        if entry.flags.unreplied { "[UNREPLIED] " } else { "" },
    );
    tuple(&entry.reply, entry.reply_count, "");
    if entry.flags.assured {
        out.push_str("[ASSURED] ");
    }
    if entry.flags.offload {
        out.push_str("[OFFLOAD] ");
    }
    let _ = write!(out, "mark={} ", entry.mark);
    if entry.zone != 0 {
        let _ = write!(out, "zone={} ", entry.zone);
    }
    if options.ktimestamp {
        out.push_str("delta-time=3 [start=Mon Nov 30 16:19:15 2026] ");
    }
    out.push_str("use=1 ");
    if let Some(id) = entry.id.filter(|_| options.id) {
        let _ = write!(out, "id={id} ");
    }
    if options.labels {
        out.push_str("labels=net,web ");
    }
    out.trim_end().to_owned()
}

prop_compose! {
    fn any_tuple(ports: bool)(src: IpAddr, dst: IpAddr, sport: u16, dport: u16) -> CtTuple {
        let ports = |port| if ports { port } else { 0 };
        CtTuple { src: src.to_canonical(), dst: dst.to_canonical(), sport: ports(sport), dport: ports(dport) }
    }
}

fn any_entry() -> impl Strategy<Value = CtEntry> {
    let proto = select(vec![Proto::Tcp, Proto::Udp, Proto::Sctp, Proto::Other(1)]);
    proto
        .prop_flat_map(|proto| {
            let ports = proto != Proto::Other(1);
            let count = option::of(
                (any::<u64>(), any::<u64>()).prop_map(|(packets, bytes)| Direction { packets, bytes }),
            );
            (
                (
                    Just(proto),
                    option::of(select(vec!["ESTABLISHED", "TIME_WAIT"])),
                    option::of(any::<u32>()),
                ),
                (any_tuple(ports), any_tuple(ports)),
                (any::<bool>(), any::<bool>(), any::<bool>()),
                (any::<u32>(), any::<u16>(), option::of(any::<u32>())),
                (count.clone(), count),
            )
        })
        .prop_map(
            |((proto, state, timeout), (original, reply), flags, (mark, zone, id), counts)| CtEntry {
                proto,
                state: state.map(Into::into),
                timeout,
                original,
                reply,
                flags: CtFlags {
                    unreplied: flags.0,
                    assured: flags.1,
                    offload: flags.2,
                },
                mark,
                zone,
                id,
                original_count: counts.0,
                reply_count: counts.1,
            },
        )
}

#[test]
fn an_entry_with_ports_in_one_direction_only_is_no_entry() {
    let whole = "udp      17 29 src=10.1.0.2 dst=10.96.0.10 sport=4000 dport=53 src=10.1.0.9 dst=10.1.0.2 sport=53 dport=4000 mark=0 use=1\n";
    assert_eq!(read(whole).0.len(), 1);
    let (entries, output) = read(&whole.replace(" sport=53", ""));
    assert_eq!(entries, vec![]);
    assert!(
        matches!(output.completeness, Completeness::Partial(_)),
        "{output:?}"
    );
    // Others than TCP, UDP and SCTP have none.
    let gre = "gre      47 29 src=10.1.0.2 dst=10.1.0.9 srckey=0x0 dstkey=0x1 src=10.1.0.9 dst=10.1.0.2 srckey=0x1 dstkey=0x0 mark=0 use=1\n";
    assert_eq!(read(gre).0.len(), 1);
}

proptest! {
    #[test]
    fn every_entry_is_read_back(
        entries in vec(any_entry(), 0..10),
        (extended, id, ktimestamp, labels) in any::<(bool, bool, bool, bool)>(),
    ) {
        let options = Options { extended, id, ktimestamp, labels };
        let text: String = entries.iter().map(|entry| print(entry, options) + "\n").collect();
        let (read, output) = read(&text);
        let expected: Vec<_> = entries
            .into_iter()
            .map(|entry| CtEntry { id: entry.id.filter(|_| id), ..entry })
            .collect();
        prop_assert_eq!(output.seen, expected.len() as u64);
        prop_assert_eq!(output.problems, vec![]);
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn no_text_panics(text in "(\\PC|[\n =\\[\\]]|src=|dst=|1.1.1.1|udp 17 ){0,60}") {
        let _ = read(&text);
    }
}
