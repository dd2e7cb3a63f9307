//! Types of keys and data, and values of those types.

use sexton_core::model::{NftElement, NftValue, Proto};

use crate::addr::parse_ip;

/// What a part of a key or of data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Addr,
    Proto,
    Port,
    Mac,
    Interface,
    Mark,
    Verdict,
    Other,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "ipv4_addr" | "ipv6_addr" => Self::Addr,
            "inet_proto" => Self::Proto,
            "inet_service" => Self::Port,
            "ether_addr" => Self::Mac,
            "ifname" => Self::Interface,
            "mark" => Self::Mark,
            "verdict" => Self::Verdict,
            _ => Self::Other,
        }
    }

    /// The kinds of a type's parts: `ipv4_addr . inet_service`.
    pub(super) fn parts(type_name: &str) -> Vec<Self> {
        type_name.split(" . ").map(Self::of).collect()
    }
}

/// The type of an expression, as `nft` would print the type of a set that was made with `typeof`; an expression that
/// is not known here stands for itself.
pub(super) fn type_of(expression: &str) -> String {
    let parts = expression.split(" . ").map(|part| {
        let words: Vec<&str> = part.split_whitespace().collect();
        match words[..] {
            ["ip", "saddr" | "daddr"] | ["ct", "original" | "reply", "ip", "saddr" | "daddr"] => "ipv4_addr",
            ["ip6", "saddr" | "daddr"] | ["ct", "original" | "reply", "ip6", "saddr" | "daddr"] => {
                "ipv6_addr"
            }
            [
                "tcp" | "udp" | "sctp" | "dccp" | "udplite" | "th",
                "sport" | "dport",
            ]
            | ["ct", "original" | "reply", "proto-src" | "proto-dst"] => "inet_service",
            ["meta", "l4proto"] | ["ip", "protocol"] | ["ip6", "nexthdr"] => "inet_proto",
            ["ether", "saddr" | "daddr"] => "ether_addr",
            ["meta" | "ct", "mark"] => "mark",
            ["iifname" | "oifname"] | ["meta", "iifname" | "oifname"] => "ifname",
            ["ct", "state"] => "ct_state",
            ["meta", "nfproto"] => "nf_proto",
            _ => part,
        }
    });
    parts.collect::<Vec<_>>().join(" . ")
}

/// A value as `nft` prints it, without quotes.
pub(super) fn value(kind: Kind, text: &str) -> NftValue {
    let other = || NftValue::Other(text.to_owned());
    match kind {
        Kind::Addr => match parse_ip(text) {
            Some(ip) => NftValue::Addr(ip),
            None if text.contains(['/', '-']) => NftValue::AddrRange(text.to_owned()),
            None => other(),
        },
        Kind::Proto => Proto::parse(text).map_or_else(other, NftValue::Proto),
        Kind::Port => port(text).map_or_else(other, NftValue::Port),
        Kind::Mac => text.parse().map_or_else(|_| other(), NftValue::Mac),
        Kind::Interface => match text {
            "*" => other(),
            name => NftValue::Interface(name.to_owned()),
        },
        Kind::Mark => number(text).map_or_else(other, NftValue::Mark),
        Kind::Verdict => NftValue::Verdict(text.to_owned()),
        Kind::Other => other(),
    }
}

/// Decimal, or hex with `0x`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A port by number, or by one of the names that `nft` before 0.9.1 (and later with `-S`) prints for the ports that
/// matter here. Source: `/etc/services`.
pub(super) fn port(text: &str) -> Option<u16> {
    Some(match text {
        "ssh" => 22,
        "smtp" => 25,
        "domain" => 53,
        "http" => 80,
        "ntp" => 123,
        "snmp" => 161,
        "https" => 443,
        "syslog" => 514,
        "mdns" => 5353,
        "http-alt" => 8080,
        number => return number.parse().ok(),
    })
}

/// Milliseconds of a time such as `1d2h3m4s5ms`. Source: nftables, `time_print`.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let mut sum = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at_checked(digits)?;
        let letters = tail.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, tail) = tail.split_at_checked(letters)?;
        let factor = match unit {
            "ms" => 1,
            "s" | "" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(sum)
}

/// An element of a set with a timeout of its own has that one, even if an element does not say so; a timeout of
/// nothing is none.
pub(super) fn apply_timeout(elements: &mut [NftElement], of_set: Option<u64>) {
    for element in elements {
        element.timeout_ms = match element.timeout_ms {
            Some(0) => None,
            None if element.expires_ms.is_some() => of_set,
            own => own,
        };
    }
}
