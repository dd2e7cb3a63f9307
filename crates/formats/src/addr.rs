//! Addresses as tools and API servers print them, in canonical form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Reads an address and makes it canonical: an IPv4-mapped IPv6 address is the IPv4 address, a zone (`%eth0`) is
/// dropped, and octets with leading zeros are decimal, as Kubernetes reads them (`netutils.ParseIPSloppy`).
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }
    let text = text.trim();
    if let Some((ip, _zone)) = text.split_once('%') {
        return ip
            .parse::<Ipv6Addr>()
            .ok()
            .map(|ip| IpAddr::V6(ip).to_canonical());
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 4 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse::<u16>().ok()?.try_into().ok()?;
    }
    parts
        .next()
        .is_none()
        .then_some(IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Reads a prefix (`10.0.0.0/8`), or an address as a prefix of its full length. Host bits are kept.
pub fn parse_net(text: &str) -> Option<IpNet> {
    match text.split_once('/') {
        None => parse_ip(text).map(IpNet::from),
        Some((ip, length)) => IpNet::new(parse_ip(ip)?, length.parse().ok()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_address_are_one_value() {
        let v4: IpAddr = "10.0.0.7".parse().unwrap();
        for text in [
            "10.0.0.7",
            " 10.0.0.7\r",
            "::ffff:10.0.0.7",
            "010.000.0.07",
            "::ffff:a00:7",
        ] {
            assert_eq!(parse_ip(text), Some(v4), "{text:?}");
        }
        let v6: IpAddr = "fd00::1".parse().unwrap();
        for text in ["fd00::1", "FD00:0:0::0001", "fd00::1%eth0"] {
            assert_eq!(parse_ip(text), Some(v6), "{text:?}");
        }
        for text in [
            "",
            "10.0.0",
            "10.0.0.256",
            "10.0.0.1.1",
            "10.0.0.-1",
            "node-1",
            "fd00::g",
        ] {
            assert_eq!(parse_ip(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_bare_address_is_a_full_prefix() {
        assert_eq!(parse_net("10.1.2.3").unwrap().to_string(), "10.1.2.3/32");
        assert_eq!(parse_net("fd00::/64").unwrap().to_string(), "fd00::/64");
        assert_eq!(parse_net("10.0.0.0/33"), None);
    }
}
