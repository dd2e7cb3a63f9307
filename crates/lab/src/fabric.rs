//! The loop of the incident, for real: a second adapter, a network that gives every packet for one of the node's addresses back, a load
//! balancer with keep-alive connections of a Pod, and the resets that its kernel sends once that Pod is gone.
//!
//! The node hands what comes in for an address that nobody uses to its other adapter, as the host of the incident did; the network delivers it
//! again by the first. Both are forwarding rules below IP, so the time to live stays. The loop lives in the node's own namespaces and ends with
//! them, whatever becomes of the program that made it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::error::LabError;
use crate::node::{LabNode, UPLINK};
use crate::ns::in_netns;
use crate::pods::Pod;

/// The node's second adapter.
pub const VF: &str = "vf0";

/// Its other end, in the network.
const VF_PEER: &str = "vf0f";

/// The load balancer's address, in the clients' namespace.
pub const VIP: Ipv4Addr = Ipv4Addr::new(172, 20, 1, 50);

/// Its port.
pub const VIP_PORT: u16 = 443;

/// Bytes of a reset with its Ethernet header.
const RESET: u32 = 54;

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The network of a node that can loop.
#[derive(Debug)]
pub struct Fabric<'a> {
    node: &'a LabNode,
}

/// Keep-alive connections of a Pod through the load balancer, both ends.
#[derive(Debug)]
pub struct Connections {
    pod: Vec<TcpStream>,
    balancer: Vec<TcpStream>,
}

impl Connections {
    /// The Pod's ports.
    ///
    /// # Errors
    ///
    /// [`LabError::Socket`].
    pub fn ports(&self) -> Result<Vec<u16>, LabError> {
        let port = |stream: &TcpStream| stream.local_addr().map(|at| at.port());
        let ports: Result<Vec<u16>, _> = self.pod.iter().map(port).collect();
        ports.map_err(socket("an address of a connection"))
    }
}

fn socket(what: &'static str) -> impl Fn(std::io::Error) -> LabError {
    move |source| LabError::Socket {
        what: what.to_owned(),
        source,
    }
}

impl LabNode {
    /// Gives the node a second adapter, and its network the load balancer. `pace` is how many packets a second go round at most, all flows
    /// together; without it as many as the machine can.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn fabric(&self, pace: Option<u32>) -> Result<Fabric<'_>, LabError> {
        let client = self.client_netns();
        self.run_net_stdin(
            &self.netns(),
            ["ip", "-batch", "-"],
            format!(
                "link add {VF} type veth peer name {VF_PEER} netns {}
link set {VF} up
route add {VIP}/32 via 172.20.0.200
",
                client.display()
            ),
        )?;
        self.run_client(["ip", "link", "set", VF_PEER, "up"])?;
        self.run_client(["ip", "addr", "add", &format!("{VIP}/32"), "dev", "lo"])?;
        if let Some(rate) = pace {
            // Only what circulates leaves by this adapter, and each of it is as long as a reset.
            let bits = format!("{}bit", rate.saturating_mul(RESET * 8));
            self.run([
                "tc", "qdisc", "add", "dev", VF, "root", "tbf", "rate", &bits, "burst", "1600", "limit",
                "1000000",
            ])?;
        }
        // To the load balancer a Pod comes with its own address, as on the incident's nodes.
        let vip = VIP.to_string();
        self.run([
            "iptables",
            "-w",
            "10",
            "-t",
            "nat",
            "-I",
            "POSTROUTING",
            "-d",
            &vip,
            "-j",
            "ACCEPT",
        ])?;
        self.run_stdin(
            ["nft", "-f", "-"],
            format!(
                "table netdev fabric {{
  set unused {{ type ipv4_addr; }}
  chain uplink {{ type filter hook ingress device \"{UPLINK}\" priority 0; ip daddr @unused fwd to \"{VF}\"; }}
}}
"
            ),
        )?;
        self.run_net_stdin(
            &client,
            ["nft", "-f", "-"],
            format!(
                "table netdev fabric {{
  chain vf {{ type filter hook ingress device \"{VF_PEER}\" priority 0; meta protocol ip fwd to \"eth0\"; }}
}}
"
            ),
        )?;
        Ok(Fabric { node: self })
    }
}

impl Fabric<'_> {
    /// Opens connections of a Pod to the load balancer, and leaves them open.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn keep_alive(&self, pod: &Pod, count: usize) -> Result<Connections, LabError> {
        let netns = self
            .node
            .pod_netns(&pod.netns)
            .ok_or_else(|| LabError::State(format!("{} has no network namespace", pod.full_name())))?;
        let listener = in_netns(&self.node.client_netns(), || {
            TcpListener::bind((VIP, VIP_PORT)).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            })
        })?
        .map_err(socket("the load balancer"))?;
        let target = SocketAddr::from((VIP, VIP_PORT));
        let streams = in_netns(&netns, move || -> std::io::Result<Vec<TcpStream>> {
            (0..count)
                .map(|_| TcpStream::connect_timeout(&target, PATIENCE))
                .collect()
        })?
        .map_err(socket("a connection to the load balancer"))?;
        let mut accepted = Vec::new();
        let until = Instant::now() + PATIENCE;
        while accepted.len() < count {
            match listener.accept() {
                Ok((stream, _)) => accepted.push(stream),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(socket("a connection of the load balancer")(error)),
            }
        }
        Ok(Connections {
            pod: streams,
            balancer: accepted,
        })
    }

    /// Nobody uses an address any more: what comes in for it is handed on.
    ///
    /// # Errors
    ///
    /// [`LabError::Command`].
    pub fn unused(&self, address: Ipv4Addr) -> Result<(), LabError> {
        let element = format!("{{ {address} }}");
        self.node
            .run(["nft", "add", "element", "netdev", "fabric", "unused", &element])?;
        Ok(())
    }

    /// Somebody uses it again.
    ///
    /// # Errors
    ///
    /// [`LabError::Command`].
    pub fn used(&self, address: Ipv4Addr) -> Result<(), LabError> {
        let element = format!("{{ {address} }}");
        self.node
            .run(["nft", "delete", "element", "netdev", "fabric", "unused", &element])?;
        Ok(())
    }

    /// The load balancer gives the connections up: its kernel resets each, which is one packet a connection.
    ///
    /// # Errors
    ///
    /// [`LabError::Socket`].
    pub fn reset(&self, connections: Connections) -> Result<(), LabError> {
        for stream in &connections.balancer {
            // Closed with something unsent thrown away: that is a reset (tcp(7), SO_LINGER with 0).
            SockRef::from(&stream.as_fd())
                .set_linger(Some(Duration::ZERO))
                .map_err(socket("a connection of the load balancer"))?;
        }
        drop(connections.balancer);
        drop(connections.pod);
        Ok(())
    }

    /// Packets that came in by the first adapter so far, as the kernel counts them.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn received(&self) -> Result<u64, LabError> {
        let path = format!("/sys/class/net/{UPLINK}/statistics/rx_packets");
        let text = self.node.run(["cat", &path])?.stdout;
        text.trim()
            .parse()
            .map_err(|_| LabError::State(format!("{path} holds {text:?}")))
    }

    /// Packets a second that come in by the first adapter, over a time.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn rate(&self, over: Duration) -> Result<f64, LabError> {
        let (before, start) = (self.received()?, Instant::now());
        std::thread::sleep(over);
        let (after, span) = (self.received()?, start.elapsed());
        #[allow(clippy::cast_precision_loss, reason = "a count of packets")]
        let packets = after.saturating_sub(before) as f64;
        Ok(packets / span.as_secs_f64())
    }
}
