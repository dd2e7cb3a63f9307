//! Reads captures and says what repeats in them, and how fast that went.
//!
//! `capture FILE...` reads files; `capture [PACKETS]` makes captures of that many packets (5,000,000 unless told): a loop
//! like the incident's, a busy gateway, a million flows, each as pcap and the loop as pcapng too. The rate is packets a
//! second on one core with the verdict, from memory. Build with `--release`.
#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use std::{fs::File, io, net::Ipv4Addr, time::Instant};

use sexton_core::roster::{Residence, Standing};
use sexton_formats::{
    capture::{
        self, Outcome, Trace, Watch,
        made::{self, Segment},
    },
    text,
};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let packets = match arguments.first().map(|first| first.parse::<u32>()) {
        None => 5_000_000,
        Some(Ok(packets)) => packets,
        Some(Err(_)) => {
            for path in &arguments {
                let begin = Instant::now();
                let (outcome, trace) = follow(text::gunzip(File::open(path)?), path);
                report(path, &outcome, &trace, begin);
            }
            return Ok(());
        }
    };
    for (name, bytes) in [
        ("loop, pcap", pcap(packets, looping)),
        ("loop, pcapng", pcapng(packets)),
        ("gateway", pcap(packets, gateway)),
        ("many flows", pcap(packets, flows)),
    ] {
        let mut best = None;
        for _ in 0..3 {
            let begin = Instant::now();
            let (outcome, trace) = follow(bytes.as_slice(), name);
            let took = begin.elapsed().as_secs_f64();
            if best.as_ref().is_none_or(|(before, _, _)| took < *before) {
                best = Some((took, outcome, trace));
            }
        }
        if let Some((took, outcome, trace)) = best {
            let rate = outcome.frames as f64 / took / 1e6;
            let loops = trace
                .destinations
                .iter()
                .filter(|d| verdict(d).verdict.is_some())
                .count();
            println!(
                "{name}: {rate:.1} million packets/s, {} flows, {loops} loops",
                trace.totals.flows
            );
        }
    }
    Ok(())
}

fn follow(reader: impl io::Read, path: &str) -> (Outcome, Trace) {
    let mut watch = Watch::default();
    let outcome = capture::read(reader, path, &mut |packet| watch.see(packet));
    (outcome, watch.finish())
}

/// As if nobody lived anywhere.
fn verdict(destination: &capture::Destination) -> capture::Judgement {
    let nobody = Residence {
        standing: Standing::Nobody,
        owner: None,
        witnesses: Vec::new(),
        evidence: Vec::new(),
        lacking: Vec::new(),
    };
    capture::judge(destination, &nobody)
}

fn report(path: &str, outcome: &Outcome, trace: &Trace, begin: Instant) {
    let took = begin.elapsed().as_secs_f64();
    println!(
        "{path}: {:?}, {} frames, {} packets of IP, {} bytes, {} flows, {:.1} million packets/s",
        outcome.format,
        outcome.frames,
        outcome.packets,
        outcome.bytes,
        trace.totals.flows,
        outcome.frames as f64 / took / 1e6
    );
    for problem in &outcome.problems {
        println!("  {}: {}", problem.place, problem.what);
    }
    for destination in &trace.destinations {
        let judgement = verdict(destination);
        println!(
            "  if nobody lives there: {:?}: {}",
            judgement.verdict, judgement.text
        );
        for line in judgement
            .evidence
            .iter()
            .map(|line| &line.text)
            .chain(&judgement.lacks)
        {
            println!("    {line}");
        }
    }
}

fn pcap(packets: u32, make: fn(u32) -> Segment) -> Vec<u8> {
    let mut out = made::pcap_header(1);
    out.reserve(packets as usize * 76);
    for n in 0..packets {
        made::pcap_record(&mut out, u64::from(n) * 1_000, &make(n).frame(), 60);
    }
    out
}

fn pcapng(packets: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(packets as usize * 108);
    made::section(&mut out);
    made::interface(&mut out, 1, "n0", 9);
    for n in 0..packets {
        made::packet(&mut out, 0, u64::from(n) * 1_000, &looping(n).frame(), 1);
    }
    out
}

/// Seven packets that circulate.
fn looping(n: u32) -> Segment {
    Segment::reset(51_000 + (n % 7) as u16)
}

/// Each packet is another; a hundred flows.
fn gateway(n: u32) -> Segment {
    Segment {
        source: (Ipv4Addr::new(10, 0, 0, 1), 443),
        destination: (Ipv4Addr::new(10, 1, 0, (n % 10) as u8), 40_000 + (n % 100) as u16),
        id: n as u16,
        seq: n,
        ..Segment::reset(1)
    }
}

/// Each packet is another, of a million flows.
fn flows(n: u32) -> Segment {
    let to = (n.wrapping_mul(2_654_435_761) >> 12) % 1_000_000;
    Segment {
        destination: (Ipv4Addr::from(0x0a01_0000 | to >> 4), 1_024 + (to & 15) as u16),
        seq: n,
        id: n as u16,
        ..Segment::reset(1)
    }
}
