//! Virtual servers of IPVS.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{Family, Proto};

/// What a virtual server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpvsService {
    /// A port of an address.
    Address {
        /// The protocol.
        proto: Proto,
        /// The address, canonical.
        ip: IpAddr,
        /// The port.
        port: u16,
    },
    /// Packets with this mark.
    Mark {
        /// The mark.
        mark: u32,
        /// The family of its real servers.
        family: Family,
    },
}

/// How a packet gets to a real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpvsForward {
    /// With its destination rewritten (`Masq`, `-m`).
    Masquerade,
    /// As it is (`Route`, `-g`).
    Route,
    /// In a tunnel (`Tunnel`, `-i`).
    Tunnel,
}

/// A real server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IpvsServer {
    /// Its address, canonical.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
    /// How it is reached.
    pub forward: IpvsForward,
    /// Its weight: with 0 it gets no new connections, and drains.
    pub weight: i32,
    /// Active and other connections, where the listing tells them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connections: Option<(u32, u32)>,
}

/// A virtual server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpvsVirtual {
    /// What it takes.
    pub service: IpvsService,
    /// The scheduler: `rr`.
    pub scheduler: String,
    /// Seconds that a client stays with its real server; `None` if it does not.
    pub persistent: Option<u32>,
    /// Further flags as printed.
    pub flags: Vec<String>,
    /// Its real servers.
    pub servers: Vec<IpvsServer>,
}

/// An address with a port, as ipvsadm prints it.
fn at(ip: IpAddr, port: u16) -> std::net::SocketAddr {
    std::net::SocketAddr::new(ip, port)
}

impl fmt::Display for IpvsService {
    /// As `ipvsadm -Sn` names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { proto, ip, port } => {
                let flag = match proto {
                    Proto::Tcp => "-t".to_owned(),
                    Proto::Udp => "-u".to_owned(),
                    Proto::Sctp => "--sctp-service".to_owned(),
                    other => format!("--{other}-service"),
                };
                write!(f, "{flag} {}", at(*ip, *port))
            }
            Self::Mark { mark, family } => {
                let six = if *family == Family::Ipv6 { " -6" } else { "" };
                write!(f, "-f {mark}{six}")
            }
        }
    }
}

impl IpvsVirtual {
    /// The virtual server as `ipvsadm -Sn` prints it.
    pub fn text(&self) -> String {
        let persistent = self.persistent.map(|s| format!(" -p {s}")).unwrap_or_default();
        let flags: String = self.flags.iter().map(|flag| format!(" {flag}")).collect();
        format!("-A {} -s {}{persistent}{flags}", self.service, self.scheduler)
    }

    /// A real server of it as `ipvsadm -Sn` prints it.
    pub fn server_text(&self, server: &IpvsServer) -> String {
        let forward = match server.forward {
            IpvsForward::Masquerade => "-m",
            IpvsForward::Route => "-g",
            IpvsForward::Tunnel => "-i",
        };
        let (to, weight) = (at(server.ip, server.port), server.weight);
        format!("-a {} -r {to} {forward} -w {weight}", self.service)
    }
}
