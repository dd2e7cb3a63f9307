//! Services by the addresses and ports that the node serves them at, with the endpoints behind each.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use crate::model::{EndpointSlice, NodeState, Proto, Service, ServicePort};

/// How a packet reaches a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// By its cluster address.
    ClusterIp,
    /// By an external address.
    ExternalIp,
    /// By a load balancer's address.
    LoadBalancerIp,
    /// By a port of every node.
    NodePort,
}

/// One port of a Service that an address and port lead to.
#[derive(Clone, Copy, Debug)]
pub struct ServedPort<'a> {
    /// The Service.
    pub service: &'a Service,
    /// Its port.
    pub port: &'a ServicePort,
    /// By which of its addresses.
    pub front: Front,
}

/// Where the endpoints of one Service port are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backends {
    /// Addresses and ports that serve, terminating ones that still serve included.
    serving: HashSet<(IpAddr, u16)>,
    /// Addresses whose slice gives no port: they serve all.
    any_port: HashSet<IpAddr>,
}

impl Backends {
    /// True if this address serves at this port.
    pub fn serves(&self, ip: IpAddr, port: u16) -> bool {
        self.serving.contains(&(ip, port)) || self.any_port.contains(&ip)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.serving.len() + self.any_port.len()
    }

    /// True if nobody serves.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// All Services of a reading.
pub struct ServiceMap<'a> {
    state: &'a NodeState,
    slices: HashMap<(&'a str, &'a str), Vec<&'a EndpointSlice>>,
    /// Several Services may have one external address and port.
    by_front: HashMap<(IpAddr, u16, Proto), Vec<ServedPort<'a>>>,
    by_node_port: HashMap<(u16, Proto), ServedPort<'a>>,
    vips: HashSet<IpAddr>,
}

impl<'a> ServiceMap<'a> {
    /// Indexes the Services of a reading.
    pub fn new(state: &'a NodeState) -> Self {
        let mut by_front: HashMap<_, Vec<_>> = HashMap::new();
        let mut by_node_port = HashMap::new();
        let mut vips = HashSet::new();
        for service in &state.services.value {
            vips.extend(service.vips());
            let fronts = [
                (&service.cluster_ips, Front::ClusterIp),
                (&service.external_ips, Front::ExternalIp),
                (&service.load_balancer_ips, Front::LoadBalancerIp),
            ];
            for port in &service.ports {
                for (ips, front) in fronts {
                    for ip in ips {
                        by_front
                            .entry((*ip, port.port, port.proto))
                            .or_default()
                            .push(ServedPort { service, port, front });
                    }
                }
                if let Some(node_port) = port.node_port {
                    let served = ServedPort {
                        service,
                        port,
                        front: Front::NodePort,
                    };
                    by_node_port.insert((node_port, port.proto), served);
                }
            }
        }
        let mut slices: HashMap<(&str, &str), Vec<&EndpointSlice>> = HashMap::new();
        for slice in &state.endpoint_slices.value {
            if let Some(service) = &slice.service {
                slices.entry((&slice.namespace, service)).or_default().push(slice);
            }
        }
        Self {
            state,
            slices,
            by_front,
            by_node_port,
            vips,
        }
    }

    /// True if some Service has this address, at whatever port.
    pub fn is_vip(&self, ip: IpAddr) -> bool {
        self.vips.contains(&ip)
    }

    /// The Service ports at an address that is not a node's own.
    pub fn at(&self, ip: IpAddr, port: u16, proto: Proto) -> &[ServedPort<'a>] {
        self.by_front.get(&(ip, port, proto)).map_or(&[], Vec::as_slice)
    }

    /// The Service port at a port of the node.
    pub fn at_node_port(&self, port: u16, proto: Proto) -> Option<ServedPort<'a>> {
        self.by_node_port.get(&(port, proto)).copied()
    }

    /// The endpoints of a Service port. Serving-terminating endpoints count: kube-proxy falls back to them.
    pub fn backends(&self, served: ServedPort<'_>) -> Backends {
        let mut out = Backends::default();
        let service = served.service;
        let of_service = self
            .slices
            .get(&(service.namespace.as_str(), service.name.as_str()));
        for slice in of_service.into_iter().flatten() {
            let ports = slice
                .ports
                .iter()
                .filter(|p| p.name == served.port.name && p.proto == served.port.proto);
            for port in ports {
                for endpoint in slice.endpoints.iter().filter(|e| e.ready || e.serving) {
                    match port.port {
                        Some(number) => out
                            .serving
                            .extend(endpoint.addresses.iter().map(|ip| (*ip, number))),
                        None => out.any_port.extend(&endpoint.addresses),
                    }
                }
            }
        }
        out
    }

    /// True if an address is inside the cluster's Service ranges; `None` if those are not known.
    pub fn in_service_range(&self, ip: IpAddr, told: &[ipnet::IpNet]) -> Option<bool> {
        let ranges = self.state.service_cidrs.value.iter().chain(told);
        let mut known = false;
        for range in ranges.filter(|r| r.addr().is_ipv4() == ip.is_ipv4()) {
            known = true;
            if range.contains(&ip) {
                return Some(true);
            }
        }
        known.then_some(false)
    }
}
