//! Which addresses the node's network adapters own, and which endpoints of the Windows Host Network Service use them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Completeness;

/// An address that an adapter owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicAddress {
    /// The address.
    pub address: IpAddr,
    /// True for the adapter's own, which the machine itself uses.
    pub primary: bool,
    /// Whether its allocator gave it to somebody, where the source tells.
    pub in_use: Option<bool>,
    /// What it is called there: the ipConfiguration's name, CNS' ID.
    pub name: Option<String>,
}

/// An adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its name.
    pub name: Option<String>,
    /// Its MAC address, as `00:0d:3a:5c:20:c0`.
    pub mac: Option<String>,
    /// True for the machine's first adapter.
    pub primary: bool,
    /// Whether it has accelerated networking, where the source tells.
    pub accelerated: Option<bool>,
    /// Whether it takes packets for other addresses, where the source tells.
    pub forwarding: Option<bool>,
    /// Its addresses.
    pub addresses: Vec<NicAddress>,
}

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NicSource {
    /// Azure's resource manager.
    Arm,
    /// The instance metadata service. It is not known to list all secondary addresses.
    Imds,
    /// NMAgent, by way of the wire server.
    NmAgent,
    /// CNS' list of addresses.
    Cns,
    /// The state of Azure's IPAM plugin.
    Ipam,
}

impl NicSource {
    /// True if it lists all addresses of an adapter.
    pub const fn lists_all(self) -> bool {
        matches!(self, Self::Arm | Self::NmAgent)
    }
}

/// One source's list of the node's adapters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adapters {
    /// The file, or the service that was asked.
    pub path: String,
    /// What it is.
    pub source: NicSource,
    /// The adapters.
    pub nics: Vec<Nic>,
    /// Whether that is all.
    #[serde(flatten)]
    pub completeness: Completeness,
}

impl Adapters {
    /// True if an address that is not in it is on no adapter of the node.
    pub fn is_whole(&self) -> bool {
        self.source.lists_all() && self.completeness.is_complete()
    }

    /// The address, if an adapter owns it.
    pub fn owner(&self, address: IpAddr) -> Option<(&Nic, &NicAddress)> {
        self.nics.iter().find_map(|nic| {
            let found = nic.addresses.iter().find(|owned| owned.address == address)?;
            Some((nic, found))
        })
    }

    /// Every address with its adapter.
    pub fn addresses(&self) -> impl Iterator<Item = (&Nic, &NicAddress)> {
        self.nics
            .iter()
            .flat_map(|nic| nic.addresses.iter().map(move |owned| (nic, owned)))
    }
}

/// An endpoint of the Host Network Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HnsEndpoint {
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

impl HnsEndpoint {
    /// True if it is of this node and not known to be taken away.
    pub fn is_local(&self) -> bool {
        !self.remote && !matches!(self.state, Some(4 | 6))
    }
}
