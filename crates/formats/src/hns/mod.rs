//! Endpoints of the Windows Host Network Service, as far as it takes to say who uses an address: `Get-HnsEndpoint |
//! ConvertTo-Json` (version 1) and HCN's JSON (version 2).
//!
//! Sources: hcsshim `internal/hns/hnsendpoint.go` and `hcn/hcnendpoint.go`; states: 1 created, 2 attached, 3 attached and
//! shared, 4 detached, 5 degraded, 6 destroyed.

use std::net::IpAddr;

use serde::Deserialize;
use sexton_core::{
    finding::Evidence,
    model::{Completeness, Problem},
    roster::{Residence, Standing},
};

use crate::{
    addr::parse_ip,
    items::{Shape, item, read},
    nic::{NicOutput, NicSource, canonical_mac},
};

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its GUID, in lower case.
    pub id: String,
    /// Its name; Azure's is the first eight digits of the container ID and the interface: `3f813b02-eth0`.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its MAC address.
    pub mac: Option<String>,
    /// True for one that stands for an address of another node.
    pub remote: bool,
    /// Its state; version 2 has none.
    pub state: Option<u16>,
    /// Containers that share it; empty where Hyper-V isolates them.
    pub containers: Vec<String>,
}

impl Endpoint {
    /// True if it is of this node and not known to be taken away.
    pub fn is_local(&self) -> bool {
        !self.remote && !matches!(self.state, Some(4 | 6))
    }
}

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

/// Who uses an address that an adapter of this node owns, from the adapter's list and the node's endpoints alone.
///
/// Live: the adapter's own, or a local endpoint's. Nobody: owned by the adapter, in a whole list of endpoints of nobody.
/// Else unknown, with what is missing. The Pods and the runtime must be asked too before anything is done.
pub fn residence(address: IpAddr, nics: &NicOutput, endpoints: &HnsOutput) -> Residence {
    let source = match nics.source {
        Some(NicSource::Arm) => "arm",
        Some(NicSource::Imds) => "imds",
        Some(NicSource::NmAgent) => "nmagent",
        Some(NicSource::Cns) => "cns",
        Some(NicSource::Ipam) => "azure-ipam",
        None => "nic",
    };
    let say = |standing, evidence, lacking| Residence {
        standing,
        owner: None,
        witnesses: Vec::new(),
        evidence,
        lacking,
    };
    let owned = nics.owner(address);
    let mut evidence = Vec::new();
    if let Some((nic, owned)) = owned {
        let name = nic.name.as_deref().or(nic.mac.as_deref()).unwrap_or("an adapter");
        let called = owned
            .name
            .as_ref()
            .map_or_else(String::new, |name| format!(" as {name}"));
        evidence.push(Evidence::new(source, format!("{name} owns {address}{called}")));
        if owned.primary {
            return say(Standing::Live, evidence, Vec::new());
        }
    }
    let holder = endpoints
        .endpoints
        .iter()
        .find(|e| e.is_local() && e.addresses.contains(&address));
    if let Some(endpoint) = holder {
        evidence.push(Evidence::new(
            "hns",
            format!("endpoint {} ({}) has {address}", endpoint.id, endpoint.name),
        ));
        return say(Standing::Live, evidence, Vec::new());
    }
    let mut lacking = Vec::new();
    if owned.is_none() {
        lacking.push(match nics.source {
            Some(found) if found.lists_all() && nics.completeness.is_complete() => {
                format!("{address} is no address of this node's adapters, so their lists say nothing of it")
            }
            _ => "a whole list of the addresses that this node's adapters own".to_owned(),
        });
    }
    if let Some(why) = endpoints.completeness.why() {
        lacking.push(format!("the node's HNS endpoints: {why}"));
    }
    if !lacking.is_empty() {
        return say(Standing::Unknown, evidence, lacking);
    }
    let count = endpoints.endpoints.len();
    evidence.push(Evidence::new(
        "hns",
        format!("none of {count} endpoints has {address}"),
    ));
    say(Standing::Nobody, evidence, Vec::new())
}

#[cfg(test)]
mod tests;
