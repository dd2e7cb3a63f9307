//! Captures made byte by byte, for tests, fuzz seeds and the throughput example.

use std::net::Ipv4Addr;

/// A TCP segment in an Ethernet frame of 60 bytes, as a reset is.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Sender.
    pub source: (Ipv4Addr, u16),
    /// Receiver.
    pub destination: (Ipv4Addr, u16),
    /// IP ID.
    pub id: u16,
    /// Time to live.
    pub ttl: u8,
    /// TCP flags.
    pub flags: u8,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
}

impl Segment {
    /// The incident's packet: a reset from a load balancer's address to a dead Pod's.
    pub const fn reset(port: u16) -> Self {
        Self {
            source: (Ipv4Addr::new(10, 240, 255, 8), 443),
            destination: (Ipv4Addr::new(10, 240, 1, 77), port),
            id: port ^ 0x1234,
            ttl: 126,
            flags: 0x14,
            seq: 1_928_000 + port as u32,
            ack: 51_000 + port as u32,
        }
    }

    /// From IP on: 40 bytes.
    pub fn ip(&self) -> [u8; 40] {
        let mut out = [0; 40];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        put(0, &[0x45, 0, 0, 40]);
        put(4, &self.id.to_be_bytes());
        put(6, &[0x40, 0, self.ttl, 6]);
        put(12, &self.source.0.octets());
        put(16, &self.destination.0.octets());
        put(20, &self.source.1.to_be_bytes());
        put(22, &self.destination.1.to_be_bytes());
        put(24, &self.seq.to_be_bytes());
        put(28, &self.ack.to_be_bytes());
        put(32, &[0x50, self.flags, 0, 0]);
        // Not the sum that TCP would write, but one that differs as that does.
        let sum = (self.seq ^ self.ack ^ u32::from(self.destination.1)).to_be_bytes();
        put(36, &[sum[2] ^ sum[0], sum[3] ^ sum[1]]);
        out
    }

    /// The frame: 60 bytes, six of them padding.
    pub fn frame(&self) -> [u8; 60] {
        let mut out = [0; 60];
        let link = [
            0x60, 0x45, 0xbd, 0x12, 0x45, 0x65, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 8, 0,
        ];
        let bytes = link.iter().chain(&self.ip()).copied().collect::<Vec<_>>();
        for (place, byte) in out.iter_mut().zip(bytes) {
            *place = byte;
        }
        out
    }
}

/// The header of a classic pcap file with nanoseconds.
pub fn pcap_header(link: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 262_144, link] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out
}

/// A record of such a file.
pub fn pcap_record(out: &mut Vec<u8>, nanoseconds: u64, frame: &[u8], length: usize) {
    #[expect(clippy::cast_possible_truncation, reason = "made for tests")]
    for word in [
        (nanoseconds / 1_000_000_000) as u32,
        (nanoseconds % 1_000_000_000) as u32,
        frame.len() as u32,
        length as u32,
    ] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(frame);
}

/// A block of pcapng in little-endian order.
pub fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    #[expect(clippy::cast_possible_truncation, reason = "made for tests")]
    let length = (12 + body.len().next_multiple_of(4)) as u32;
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend_from_slice(&length.to_le_bytes());
}

/// A section header.
pub fn section(out: &mut Vec<u8>) {
    let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    body.extend_from_slice(&[1, 0, 0, 0]);
    body.extend_from_slice(&[0xff; 8]);
    block(out, 0x0a0d_0d0a, &body);
}

/// An interface with its name and its resolution of time.
pub fn interface(out: &mut Vec<u8>, link: u16, name: &str, resolution: u8) {
    let mut body = link.to_le_bytes().to_vec();
    body.extend_from_slice(&[0; 6]);
    option(&mut body, 2, name.as_bytes());
    option(&mut body, 9, &[resolution]);
    option(&mut body, 0, &[]);
    block(out, 1, &body);
}

/// An option.
pub fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend_from_slice(&code.to_le_bytes());
    #[expect(clippy::cast_possible_truncation, reason = "made for tests")]
    body.extend_from_slice(&(value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// An enhanced packet; `flags` 1 is inbound, 2 outbound, 0 says nothing.
pub fn packet(out: &mut Vec<u8>, interface: u32, units: u64, frame: &[u8], flags: u32) {
    let mut body = interface.to_le_bytes().to_vec();
    #[expect(clippy::cast_possible_truncation, reason = "made for tests")]
    for word in [
        (units >> 32) as u32,
        units as u32,
        frame.len() as u32,
        frame.len() as u32,
    ] {
        body.extend_from_slice(&word.to_le_bytes());
    }
    body.extend_from_slice(frame);
    body.resize(body.len().next_multiple_of(4), 0);
    if flags != 0 {
        option(&mut body, 2, &flags.to_le_bytes());
        option(&mut body, 0, &[]);
    }
    block(out, 6, &body);
}
