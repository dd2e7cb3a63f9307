//! Sets of ipset.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A member of a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IpSetMember {
    /// Its parts as printed, with commas between: `10.0.0.1,tcp:80`.
    pub entry: String,
    /// What follows: `timeout 299 comment "x"`.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub options: String,
}

impl IpSetMember {
    /// The addresses and prefixes among its parts.
    pub fn addresses(&self) -> impl Iterator<Item = ipnet::IpNet> {
        self.entry.split(',').filter_map(|part| {
            let net = part.parse::<ipnet::IpNet>().ok();
            net.or_else(|| part.parse::<IpAddr>().ok().map(ipnet::IpNet::from))
        })
    }
}

/// A set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpSet {
    /// Its name.
    pub name: String,
    /// `hash:ip`, `list:set`, ...
    pub kind: String,
    /// What follows in the line that makes it: `family inet hashsize 1024 ...`.
    pub options: String,
    /// Its members, in the order of the listing.
    pub members: Vec<IpSetMember>,
}

impl IpSet {
    /// The line of a member, as `ipset save` prints it, without its options.
    pub fn line(&self, member: &IpSetMember) -> String {
        format!("add {} {}", self.name, member.entry)
    }
}
