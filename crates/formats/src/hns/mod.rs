//! Endpoints of the Windows Host Network Service, as far as it takes to say who uses an address: `Get-HnsEndpoint |
//! ConvertTo-Json` (version 1) and HCN's JSON (version 2).
//!
//! Sources: hcsshim `internal/hns/hnsendpoint.go` and `hcn/hcnendpoint.go`; states: 1 created, 2 attached, 3 attached and
//! shared, 4 detached, 5 degraded, 6 destroyed.

use std::net::IpAddr;

use serde::Deserialize;
use sexton_core::model::{Completeness, Problem};

use crate::{
    addr::parse_ip,
    items::{Shape, item, read},
    nic::canonical_mac,
};

pub use sexton_core::model::HnsEndpoint as Endpoint;

/// What a file came to.
#[derive(Clone, Debug, PartialEq)]
pub struct HnsOutput {
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Whether that is all.
    pub completeness: Completeness,
    /// What was wrong.
    pub problems: Vec<Problem>,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "ID", alias = "Id")]
    id: String,
    #[serde(rename = "Name", default)]
    name: Option<String>,
    #[serde(rename = "IPAddress", default)]
    ip_address: Option<String>,
    #[serde(rename = "IPv6Address", default)]
    ipv6_address: Option<String>,
    #[serde(rename = "IpConfigurations", default)]
    ip_configurations: Option<OneOrMany<IpConfiguration>>,
    #[serde(rename = "MacAddress", default)]
    mac_address: Option<String>,
    #[serde(rename = "IsRemoteEndpoint", default)]
    is_remote: Option<bool>,
    #[serde(rename = "Flags", default)]
    flags: Option<u32>,
    #[serde(rename = "State", default)]
    state: Option<u16>,
    #[serde(rename = "SharedContainers", default)]
    shared: Option<OneOrMany<String>>,
}

#[derive(Deserialize)]
struct IpConfiguration {
    #[serde(rename = "IpAddress", default)]
    ip_address: Option<String>,
}

/// `ConvertTo-Json` writes a list of one as its item.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    Many(Vec<T>),
    One(T),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::Many(list) => list,
            Self::One(one) => vec![one],
        }
    }
}

/// Reads a list of endpoints, in UTF-8 (decode PowerShell's UTF-16 with [`crate::text::open`]). Never fails.
pub fn endpoints(bytes: &[u8], path: &str) -> HnsOutput {
    let mut endpoints = Vec::new();
    let mut broken = Vec::new();
    let mut listed = 0;
    let mut problems = read(path, bytes, Shape::Plain, &mut |line, raw| {
        listed += 1;
        let Some(raw) = item::<Raw>(path, line, raw, &mut broken) else {
            return;
        };
        let single = [raw.ip_address, raw.ipv6_address].into_iter().flatten();
        let many = raw.ip_configurations.map(OneOrMany::into_vec).unwrap_or_default();
        let said = single.chain(many.into_iter().filter_map(|of| of.ip_address));
        let mut addresses: Vec<IpAddr> = said.filter_map(|text| parse_ip(&text)).collect();
        addresses.dedup();
        endpoints.push(Endpoint {
            id: raw.id.trim_matches(['{', '}']).to_ascii_lowercase(),
            name: raw.name.unwrap_or_default(),
            addresses,
            mac: raw.mac_address.as_deref().and_then(canonical_mac),
            // Flag 1 of version 2.
            remote: raw
                .is_remote
                .unwrap_or_else(|| raw.flags.is_some_and(|flags| flags & 1 != 0)),
            state: raw.state,
            containers: raw.shared.map(OneOrMany::into_vec).unwrap_or_default(),
        });
    });
    problems.append(&mut broken);
    let completeness = match problems.first() {
        None => Completeness::Complete,
        Some(problem) if endpoints.is_empty() => Completeness::Unavailable(problem.what.clone()),
        Some(problem) => Completeness::Partial(format!(
            "{} of {listed} endpoints: {}",
            endpoints.len(),
            problem.what
        )),
    };
    HnsOutput {
        endpoints,
        completeness,
        problems,
    }
}

#[cfg(test)]
mod tests;
