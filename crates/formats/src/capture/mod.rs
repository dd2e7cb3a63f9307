//! Captures: bytes of pcap, pcapng and pktmon become packets, and packets that come again and again become a loop.
//!
//! ```text
//! bytes --Reader--> Packet --Watch--> Trace --judge(who lives there?)--> verdict on each destination
//! ```
//!
//! [`Reader`] takes bytes in pieces of any size and hands out packets; how the input is split changes nothing.
//! [`Watch`] keeps bounded tables, so that a capture of any size is followed in the same memory. Neither fails on bad
//! input: what could be read is used, and the rest is a problem with its place.
//!
//! Sources: the pcap and pcapng drafts of the IETF's opsawg group (`draft-ietf-opsawg-pcap`,
//! `draft-ietf-opsawg-pcapng`), the list of link types at tcpdump.org, and Microsoft's pages on `pktmon` with what
//! people quoted from it. Why the headers are read here and not by a library: ARCHITECTURE.md.

use std::io;

use sexton_core::model::{Capture, Problem};

mod identity;
mod link;
#[doc(hidden)]
pub mod made;
mod pcap;
mod pcapng;
mod pktmon;
mod reader;
mod watch;

pub use pktmon::{Component, components};
pub use reader::{Format, Interface, Outcome, Reader};
pub use watch::{Destination, Flow, Judgement, Limits, LookAlike, Repeat, Totals, Trace, Watch, judge};

pub use sexton_core::model::{
    FlowKey, Identity, Packet, Place, Point, Strength, Tcp, Way as Direction, flags_text,
};

/// True if a file that begins so, decompressed, is a capture: by its magic number, or as text of pktmon.
pub fn recognise(head: &[u8]) -> bool {
    let Some(first) = head.first_chunk::<4>() else {
        return false;
    };
    if pcap::is_pcap(*first) || pcapng::is_pcapng(*first) {
        return true;
    }
    // In UTF-16 every other byte is 0; what is looked for is ASCII.
    let text: Vec<u8> = head.iter().copied().filter(|byte| *byte != 0).collect();
    [b"PktGroupId ".as_slice(), b"[Microsoft-Windows-PktMon]"]
        .iter()
        .any(|mark| memchr::memmem::find(&text, mark).is_some())
}

/// Flows of a capture are kept up to this number: a rule looks at those of many packets, and they come first.
const MAX_FLOWS: usize = 10_000;

/// Follows a capture to its end, whatever its length: what was in it, what was wrong in it, and the number of packets.
pub fn follow(reader: impl io::Read, path: &str) -> (Capture, Vec<Problem>, u64) {
    let mut watch = Watch::default();
    let outcome = read(reader, path, &mut |packet| watch.see(packet));
    let mut trace = watch.finish();
    trace.flows.truncate(MAX_FLOWS);
    trace.flows.shrink_to_fit();
    let capture = Capture {
        path: path.to_owned(),
        frames: outcome.frames,
        cut: outcome.cut,
        bytes: outcome.bytes,
        totals: trace.totals,
        flows: trace.flows,
        destinations: trace.destinations,
        interfaces: outcome.interfaces,
        completeness: outcome.completeness,
    };
    (capture, outcome.problems, outcome.packets)
}

/// How much [`read`] reads at once.
const CHUNK: usize = 256 * 1024;

/// Reads a capture to its end, packet by packet. Compression is the caller's ([`crate::text::gunzip`]).
///
/// Never fails: an error of the reader ends it, and the outcome says so.
pub fn read(mut reader: impl io::Read, path: &str, sink: &mut dyn FnMut(&Packet)) -> Outcome {
    let mut capture = Reader::new(path);
    let mut buffer = vec![0; CHUNK];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return capture.finish(sink),
            Ok(count) => capture.push(buffer.get(..count).unwrap_or_default(), sink),
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => {
                capture.broken(&format!("cannot read on: {err}"));
                return capture.finish(sink);
            }
        }
    }
}

#[cfg(test)]
mod tests;
