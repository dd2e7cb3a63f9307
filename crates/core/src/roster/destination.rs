//! Who lives at an address that packets arrive for: an address of this node's adapters or of its Pod range, or one that this
//! node knows nothing of.

use std::net::IpAddr;

use super::{Residence, Roster, Standing};
use crate::{
    finding::{Evidence, Witness},
    model::{Adapters, Facts, Nic, NicAddress, NicSource},
};

impl Roster<'_> {
    /// The adapter of this node that owns an address, with the source that says so.
    pub fn adapter_of(&self, ip: IpAddr) -> Option<(&Adapters, &Nic, &NicAddress)> {
        let lists = self.state.adapters.value.iter();
        // One that lists all addresses is worth more than one that may not.
        let whole = lists.clone().filter(|list| list.is_whole());
        whole.chain(lists).find_map(|list| {
            let (nic, owned) = list.owner(ip)?;
            Some((list, nic, owned))
        })
    }

    /// Who lives at an address that packets arrive for.
    ///
    /// The living first. Nobody does if the address is this node's (an adapter owns it, or it lies in the node's Pod range) and
    /// the sources that know the node's own residents are whole and name none: the endpoints of HNS, or the Pods and sandboxes.
    /// Else it is unknown, with what is lacking: that no Pod has some address of the world says nothing about it.
    pub fn destination(&self, ip: IpAddr) -> Residence {
        let known = self.address(ip);
        if known.standing == Standing::Live {
            return known;
        }
        let owned = self.adapter_of(ip);
        let mut evidence = Vec::new();
        if let Some((list, nic, address)) = owned {
            evidence.push(Evidence::new(&list.path, owns(nic, address)));
            if address.primary && self.doubt_adapters().is_none() {
                return Residence {
                    standing: Standing::Live,
                    owner: None,
                    witnesses: vec![Witness::Kernel],
                    evidence,
                    lacking: Vec::new(),
                };
            }
        }
        let mut lacking = Vec::new();
        if let Some(why) = self.not_of_this_node(ip, owned.is_some()) {
            lacking.push(why);
        }
        let endpoints = &self.state.hns_endpoints;
        let mut witnesses = known.witnesses.clone();
        if let Some(why) = self.doubt_endpoints() {
            lacking.push(why);
        } else if endpoints.is_complete() {
            let count = endpoints.value.len();
            evidence.push(Evidence::new(
                endpoints.source_names(),
                format!("none of {count} endpoints has {ip}"),
            ));
            witnesses.push(Witness::Kernel);
            witnesses.dedup();
        } else if !endpoints.reports.is_empty() {
            let why = endpoints.completeness.why().unwrap_or("unknown");
            lacking.push(format!("the node's HNS endpoints ({why})"));
        } else if !known.is_dead() {
            // Without endpoints it takes the Pods or the sandboxes.
            lacking.extend(known.lacking.iter().cloned());
            lacking.push("or all HNS endpoints of the node".to_owned());
        }
        evidence.extend(known.evidence);
        if !lacking.is_empty() {
            return Residence::unknown(known.owner, evidence, lacking);
        }
        Residence::dead(known.owner, witnesses, evidence, known.lacking)
    }

    /// Why an address cannot be told to be this node's; `None` if it is.
    fn not_of_this_node(&self, ip: IpAddr, owned: bool) -> Option<String> {
        if owned {
            return self.doubt_adapters();
        }
        if self.is_local_pod_address(ip) {
            return None;
        }
        let lists = &self.state.adapters;
        if lists.reports.is_empty() {
            return Some(format!(
                "whose address {ip} is: it lies in no Pod range of this node that was read, and no list of its adapters' \
                 addresses was (nic.json, interfaceinfo.xml)"
            ));
        }
        Some(if lists.value.iter().any(Adapters::is_whole) {
            format!("{ip} is no address of this node's adapters, so their lists say nothing of it")
        } else {
            format!(
                "a whole list of the addresses that this node's adapters own ({})",
                why_not_whole(lists)
            )
        })
    }

    /// Why the adapters' lists are not believed: they are another machine's, if none of the node's own addresses, or of the
    /// addresses in use on it, is in them.
    pub(crate) fn doubt_adapters(&self) -> Option<String> {
        let lists = &self.state.adapters.value;
        let names = self.state.adapters.source_names();
        let owned = |ip: &IpAddr| lists.iter().any(|list| list.owner(*ip).is_some());
        let own: Vec<IpAddr> = self
            .node_ips
            .iter()
            .copied()
            .filter(|ip| !ip.is_loopback())
            .collect();
        if !own.is_empty() {
            return (!own.iter().any(owned)).then(|| {
                format!("the list of this node's own adapters: {names} has none of the node's addresses")
            });
        }
        // Where the node's own address is not told, what is used on it must be in the list.
        let mut used: Vec<IpAddr> = self.endpoints.keys().copied().collect();
        if used.is_empty() {
            used.extend(self.state.local_pods().flat_map(|pod| pod.own_ips()));
        }
        (!used.is_empty() && lists.iter().any(Adapters::is_whole) && !used.iter().any(owned)).then(|| {
            format!("the list of this node's own adapters: {names} has none of the addresses in use on it")
        })
    }

    /// Why the endpoints are not believed: no Pod of this node has one of their addresses.
    fn doubt_endpoints(&self) -> Option<String> {
        if self.endpoints.is_empty() || !self.state.pods.is_complete() {
            return None;
        }
        let running = self.state.local_pods().filter(|pod| !pod.phase.is_terminal());
        let mut ips = running.flat_map(|pod| pod.own_ips()).peekable();
        ips.peek()?;
        (!ips.any(|ip| self.endpoints.contains_key(&ip))).then(|| {
            let names = self.state.hns_endpoints.source_names();
            format!("this node's own HNS endpoints: {names} has none of the addresses of its Pods")
        })
    }
}

/// `nic-0 owns 10.240.1.77 as ipconfig9`.
fn owns(nic: &Nic, owned: &NicAddress) -> String {
    let name = nic.name.as_deref().or(nic.mac.as_deref()).unwrap_or("an adapter");
    let called = owned.name.as_ref();
    let called = called.map_or_else(String::new, |name| format!(" as {name}"));
    let own = if owned.primary { ", its own address" } else { "" };
    format!("{name} owns {}{called}{own}", owned.address)
}

fn why_not_whole(lists: &Facts<Vec<Adapters>>) -> String {
    if let Some(why) = lists.completeness.why() {
        return why.to_owned();
    }
    let source = |list: &Adapters| match list.source {
        NicSource::Imds => "the instance metadata does not list all",
        NicSource::Cns => "CNS lists its own pool",
        NicSource::Ipam => "the IPAM plugin lists its own pool",
        NicSource::Arm | NicSource::NmAgent => "it is cut off",
    };
    lists
        .value
        .iter()
        .map(source)
        .next()
        .unwrap_or("it is empty")
        .to_owned()
}

#[cfg(test)]
mod tests;
