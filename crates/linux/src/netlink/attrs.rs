//! Small helpers over attributes of netlink messages (`linux/netlink.h`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) use nlink::netlink::AttrIter;

/// A 16-bit number in network order.
pub(super) fn be16(data: &[u8]) -> Option<u16> {
    data.first_chunk().map(|b| u16::from_be_bytes(*b))
}

/// A 32-bit number in network order.
pub(super) fn be32(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// A 64-bit number in network order.
pub(super) fn be64(data: &[u8]) -> Option<u64> {
    data.first_chunk().map(|b| u64::from_be_bytes(*b))
}

/// A 32-bit number in the machine's order.
pub(super) fn ne32(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// A text that ends with a zero byte, or with the attribute.
pub(super) fn text(data: &[u8]) -> String {
    let end = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    String::from_utf8_lossy(data.get(..end).unwrap_or_default()).into_owned()
}

/// An address of 4 or 16 bytes, canonical.
pub(super) fn ip(data: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(data) {
        return Some(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(data).ok()?;
    Some(IpAddr::from(Ipv6Addr::from(octets)).to_canonical())
}

/// Address families (`bits/socket.h`).
pub(super) const AF_INET: u8 = 2;
pub(super) const AF_INET6: u8 = 10;

/// Marks an attribute that holds attributes (`linux/netlink.h`).
pub(super) const NLA_F_NESTED: u16 = 1 << 15;

/// Appends an attribute to a request.
pub(super) fn push(request: &mut Vec<u8>, kind: u16, data: &[u8]) {
    let len = u16::try_from(data.len() + 4).unwrap_or(u16::MAX);
    request.extend_from_slice(&len.to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(data);
    request.resize(request.len().next_multiple_of(4), 0);
}

/// Appends a text attribute with its closing zero.
pub(super) fn push_text(request: &mut Vec<u8>, kind: u16, value: &str) {
    let mut data = value.as_bytes().to_vec();
    data.push(0);
    push(request, kind, &data);
}
