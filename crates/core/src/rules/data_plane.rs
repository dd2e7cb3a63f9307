//! What the node's own data plane, kube-proxy's rules, does with the first packet of a connection.

use std::collections::HashMap;
use std::net::IpAddr;

#[cfg(test)]
mod tests;

use crate::{
    marks::KUBE_PREFIX,
    model::{CtEntry, NftValue, NodeState, Proto},
    services::Front,
};

/// kube-proxy's table of nftables.
const NFT_TABLE: &str = "kube-proxy";

/// Its maps that are keyed on where a Service is reached.
const NFT_FRONTS: [&str; 4] = [
    "service-ips",
    "service-nodeports",
    "no-endpoint-services",
    "no-endpoint-nodeports",
];

/// A rule with the source that told it.
#[derive(Clone, Copy)]
struct Place<'a> {
    source: &'a str,
    rule: Said<'a>,
}

/// A rule as text, which is only made when it is shown.
#[derive(Clone, Copy)]
enum Said<'a> {
    Line(&'a str),
    Element(&'a crate::model::NftElement),
}

impl Place<'_> {
    fn told(self) -> (String, String) {
        let rule = match self.rule {
            Said::Line(line) => line.to_owned(),
            Said::Element(element) => element.text(),
        };
        (self.source.to_owned(), rule)
    }
}

/// Where a rule serves a port: its address, none for a node port.
type Served<'a> = (Option<IpAddr>, Place<'a>);

/// What the data plane does with an entry's first packet. The pairs are a source and its rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sends {
    /// kube-proxy has rules for it, and none leads to the entry's endpoint.
    Elsewhere((String, String)),
    /// kube-proxy still sends there.
    There((String, String)),
    /// No rule of kube-proxy was found.
    NotFound,
}

/// kube-proxy's rules of one reading, by what they are asked for.
pub(super) struct DataPlane<'a> {
    /// By the endpoint that a rule leads to.
    endpoints: HashMap<(Proto, IpAddr, u16), Place<'a>>,
    /// By protocol and port.
    fronts: HashMap<(Proto, u16), Vec<Served<'a>>>,
    /// Why a rule that still sends there may have been missed.
    pub(super) untold: Option<String>,
}

impl<'a> DataPlane<'a> {
    /// Indexes kube-proxy's rules.
    pub(super) fn new(state: &'a NodeState) -> Self {
        let mut out = Self {
            endpoints: HashMap::new(),
            fronts: HashMap::new(),
            untold: None,
        };
        out.add_xtables(state);
        out.add_nft(state);
        let by_xtables = state.xtables.value.iter().any(|t| {
            t.chains
                .iter()
                .any(|c| c.name.starts_with(KUBE_PREFIX) && !c.rules.is_empty())
        });
        let part = if by_xtables {
            &state.xtables.completeness
        } else {
            &state.nft.completeness
        };
        out.untold = part.why().map(str::to_owned);
        out
    }

    fn add_xtables(&mut self, state: &'a NodeState) {
        for table in &state.xtables.value {
            for (chain, rule) in table.rules().filter(|(c, _)| c.name.starts_with(KUBE_PREFIX)) {
                let spec = &rule.spec;
                let Some(proto) = spec.proto else { continue };
                let place = Place {
                    source: &table.source,
                    rule: Said::Line(&rule.line),
                };
                if let Some(dnat) = spec.dnat
                    && let Some(port) = dnat.port
                    && chain.name.starts_with("KUBE-SEP-")
                {
                    self.endpoints.entry((proto, dnat.ip, port)).or_insert(place);
                }
                let to = match spec.destination.as_deref() {
                    None => None,
                    Some(text) => match text.split('/').next().and_then(|ip| ip.parse().ok()) {
                        Some(ip) => Some(ip),
                        None => continue,
                    },
                };
                for port in spec.dports.iter().filter(|p| p.first == p.last) {
                    self.fronts
                        .entry((proto, port.first))
                        .or_default()
                        .push((to, place));
                }
            }
        }
    }

    fn add_nft(&mut self, state: &'a NodeState) {
        let nft = &state.nft.value;
        let source = state.nft.reports.first().map_or("nft", |r| r.name.as_str());
        for rule in nft.rules.iter().filter(|r| r.table == NFT_TABLE) {
            let Some(dnat) = rule.dnat else { continue };
            let place = Place {
                source,
                rule: Said::Line(&rule.text),
            };
            // The rule of an endpoint matches its protocol in words that are not always decoded: it is taken for both.
            for proto in rule.proto.map_or(vec![Proto::Tcp, Proto::Udp], |p| vec![p]) {
                if let Some(port) = dnat.port {
                    self.endpoints.entry((proto, dnat.ip, port)).or_insert(place);
                }
            }
        }
        let sets = nft.sets.iter().filter(|s| s.table == NFT_TABLE);
        for set in sets.filter(|s| NFT_FRONTS.contains(&s.name.as_str())) {
            for element in &set.elements {
                let (mut proto, mut port, mut to) = (None, None, None);
                for value in &element.key {
                    match value {
                        NftValue::Proto(p) => proto = Some(*p),
                        NftValue::Port(p) => port = Some(*p),
                        NftValue::Addr(ip) => to = Some(*ip),
                        _ => {}
                    }
                }
                if let (Some(proto), Some(port)) = (proto, port) {
                    let place = Place {
                        source,
                        rule: Said::Element(element),
                    };
                    self.fronts.entry((proto, port)).or_default().push((to, place));
                }
            }
        }
    }

    /// What it does with the first packet of such an entry.
    pub(super) fn sends(&self, entry: &CtEntry, front: Front) -> Sends {
        let (to, reply) = (&entry.original, &entry.reply);
        if let Some(place) = self.endpoints.get(&(entry.proto, reply.src, reply.sport)) {
            return Sends::There(place.told());
        }
        let fronts = self.fronts.get(&(entry.proto, to.dport));
        let own = fronts
            .into_iter()
            .flatten()
            .find(|(ip, _)| *ip == Some(to.dst) || (front == Front::NodePort && ip.is_none()));
        own.map_or(Sends::NotFound, |(_, place)| Sends::Elsewhere(place.told()))
    }
}
