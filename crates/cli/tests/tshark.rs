//! Another reader of captures as oracle: tshark counts the same frames, bytes, packets and flows in every capture of the scenarios.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    collections::BTreeMap,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
};

use sexton_formats::capture::{self, FlowKey};

/// Every pcap and pcapng of the scenarios.
fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let files = folders
        .filter(|path| path.is_dir())
        .flat_map(|dir| ["capture.pcap", "capture.pcapng"].map(|name| dir.join(name)));
    let mut found: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
    found.sort();
    found
}

/// Frames, their bytes, and packets by flow.
#[derive(Debug, Default, PartialEq)]
struct Counted {
    frames: u64,
    bytes: u64,
    flows: BTreeMap<FlowKey, u64>,
}

fn ours(path: &Path) -> Counted {
    let mut out = Counted::default();
    let outcome = capture::read(fs::File::open(path).unwrap(), "capture", &mut |packet| {
        *out.flows.entry(packet.flow).or_default() += 1;
    });
    out.frames = outcome.frames;
    out.bytes = outcome.bytes;
    out
}

fn tshark(path: &Path) -> Counted {
    let fields = [
        "frame.len",
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "ip.proto",
        "ipv6.nxt",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
    ];
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-r"])
        .arg(path)
        .args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    for field in fields {
        command.args(["-e", field]);
    }
    // A capture that is cut off ends it with an error; what it printed before is good.
    let output = command.output().unwrap();
    let mut out = Counted::default();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let cells: Vec<&str> = line.split('|').collect();
        let [
            length,
            src4,
            dst4,
            src6,
            dst6,
            proto4,
            proto6,
            tcp_from,
            tcp_to,
            udp_from,
            udp_to,
        ] = cells[..]
        else {
            panic!("{line}");
        };
        out.frames += 1;
        out.bytes += length.parse::<u64>().unwrap();
        let first = |a: &str, b: &str| if a.is_empty() { b.to_owned() } else { a.to_owned() };
        let (Ok(source), Ok(destination)) = (
            first(src4, src6).parse::<IpAddr>(),
            first(dst4, dst6).parse::<IpAddr>(),
        ) else {
            continue;
        };
        let port = |tcp: &str, udp: &str| first(tcp, udp).parse::<u16>().ok();
        let key = FlowKey {
            source,
            destination,
            protocol: first(proto4, proto6).parse().unwrap(),
            ports: port(tcp_from, udp_from).zip(port(tcp_to, udp_to)),
        };
        *out.flows.entry(key).or_default() += 1;
    }
    out
}

#[test]
fn tshark_agrees_on_frames_bytes_packets_and_flows() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return sexton_lab::skip!("needs tshark");
    }
    let mut compared = 0;
    for path in captures() {
        // Bytes of no capture: both say so and read nothing.
        let found = ours(&path);
        assert_eq!(found, tshark(&path), "{}", path.display());
        compared += 1;
    }
    assert!(compared >= 25, "compared {compared}");
}
