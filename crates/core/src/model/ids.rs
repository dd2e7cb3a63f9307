//! Identities in canonical form (law 2). Two spellings of one thing are one value here, so that comparing values is
//! comparing things.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A container or sandbox ID: hex digits in lower case, without a runtime's scheme (`containerd://`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(String);

impl ContainerId {
    /// Takes any spelling: with a scheme, in capitals, with white space around it.
    pub fn new(text: &str) -> Self {
        let text = text.trim();
        let text = text.rsplit_once("://").map_or(text, |(_, id)| id);
        Self(text.to_ascii_lowercase())
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 digits, as `docker ps` and `crictl` print them.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }

    /// True if one is the other or a prefix of it of at least 12 digits (`crictl pods` and `docker ps` print 12 or
    /// 13 digits of 64).
    pub fn same_or_prefix(&self, other: &Self) -> bool {
        let (short, long) = if self.0.len() <= other.0.len() {
            (self, other)
        } else {
            (other, self)
        };
        short.0 == long.0 || (short.0.len() >= 12 && long.0.starts_with(&short.0))
    }

    /// True for what containerd, CRI-O, Docker and Podman generate: 64 hex digits.
    pub fn is_generated(&self) -> bool {
        self.0.len() == 64 && self.0.bytes().all(|b| b.is_ascii_hexdigit())
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A Pod's UID, in lower case. A static Pod's UID is 32 hex digits without dashes (the hash of its manifest).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodUid(String);

impl PodUid {
    /// Takes any spelling.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_ascii_lowercase())
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A Pod's name in its namespace. For printing and for what is keyed on names; it identifies nothing (law 2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac([u8; 6]);

impl Mac {
    /// From its six bytes.
    pub const fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// Its six bytes.
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A text that is no Ethernet address.
#[derive(Debug, thiserror::Error)]
#[error("not a MAC address: {0:?} (expected 12 hex digits, with `:`, `-`, `.` or nothing between them)")]
pub struct NotAMac(String);

impl FromStr for Mac {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Self, NotAMac> {
        let wrong = || NotAMac(text.to_owned());
        let digits: String = text
            .trim()
            .chars()
            .filter(|c| !matches!(c, ':' | '-' | '.'))
            .collect();
        if digits.len() != 12 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let number = u64::from_str_radix(&digits, 16).map_err(|_| wrong())?;
        let [_, _, bytes @ ..] = number.to_be_bytes();
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Mac {
    type Error = NotAMac;

    fn try_from(text: String) -> Result<Self, NotAMac> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proto {
    /// 6.
    Tcp,
    /// 17.
    Udp,
    /// 132.
    Sctp,
    /// Any other, by its IANA number.
    Other(u8),
}

impl Proto {
    /// From the IANA number.
    pub const fn from_number(number: u8) -> Self {
        match number {
            6 => Self::Tcp,
            17 => Self::Udp,
            132 => Self::Sctp,
            other => Self::Other(other),
        }
    }

    /// The IANA number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
            Self::Other(number) => number,
        }
    }

    /// From a name in any case (`TCP`, `udp`) or a number; `None` for a name that is not known here.
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "tcp" => Some(Self::Tcp),
            "udp" => Some(Self::Udp),
            "sctp" => Some(Self::Sctp),
            "icmp" => Some(Self::Other(1)),
            "icmpv6" | "ipv6-icmp" => Some(Self::Other(58)),
            "gre" => Some(Self::Other(47)),
            "dccp" => Some(Self::Other(33)),
            "udplite" => Some(Self::Other(136)),
            number => number.parse().ok().map(Self::from_number),
        }
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Udp => f.write_str("udp"),
            Self::Sctp => f.write_str("sctp"),
            Self::Other(1) => f.write_str("icmp"),
            Self::Other(58) => f.write_str("icmpv6"),
            Self::Other(47) => f.write_str("gre"),
            Self::Other(33) => f.write_str("dccp"),
            Self::Other(136) => f.write_str("udplite"),
            Self::Other(number) => write!(f, "{number}"),
        }
    }
}
