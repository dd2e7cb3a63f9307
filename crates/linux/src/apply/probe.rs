//! Traffic that proves a mapping (law 10): a TCP connection that is closed at once, or one empty UDP datagram. Where it
//! went is read from connection tracking: an answer alone could come from somebody else. Our own entry is taken away
//! again.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use sexton_core::model::{CtEntry, Family, Proto};
use sexton_core::node::Probed;
use sexton_core::plan::Probe;
use socket2::{Domain, Socket, Type};

use crate::netlink::{self, WantedConntrack};
use crate::source::chain;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(2);

/// How long the entry of a datagram may take to appear: it is there once the datagram has left.
const APPEAR: Duration = Duration::from_millis(500);

/// How often our own entry is taken away, and how long to wait in between.
const FORGET_TRIES: usize = 5;
const FORGET_PAUSE: Duration = Duration::from_millis(10);

/// Sends, looks where it went, and cleans up.
pub(super) fn send(probe: &Probe) -> Probed {
    let node_ip = match probe.node_ip.map_or_else(|| own_address(probe.target), Ok) {
        Ok(ip) => ip,
        Err(why) => return Probed::NotTried(why),
    };
    let to = SocketAddr::new(node_ip, probe.node_port);
    match probe.proto {
        Proto::Tcp => tcp(probe, to),
        Proto::Udp => udp(probe, to),
        other => Probed::NotTried(format!("there is no probe for {other}")),
    }
}

fn tcp(probe: &Probe, to: SocketAddr) -> Probed {
    let made = socket(to, Type::STREAM);
    let (socket, port) = match made {
        Ok(made) => made,
        Err(error) => return Probed::NotTried(error.to_string()),
    };
    let connected = socket.connect_timeout(&to.into(), CONNECT);
    let entry = find(probe, port, to);
    drop(socket);
    match (connected, entry) {
        (Ok(()), Ok(entry)) => {
            forget(probe, port, to);
            judge(probe, to, &entry)
        }
        (Ok(()), Err(why)) => Probed::Lost(why),
        (Err(error), entry) => {
            let what = match error.kind() {
                io::ErrorKind::ConnectionRefused => "was refused".to_owned(),
                io::ErrorKind::TimedOut => format!("was not answered within {} ms", CONNECT.as_millis()),
                _ => format!("failed: {error}"),
            };
            // A refused connection has none: the kernel drops it with the refusal.
            let went = entry.map_or_else(
                |_| String::new(),
                |entry| {
                    forget(probe, port, to);
                    format!(" at {}", SocketAddr::new(entry.reply.src, entry.reply.sport))
                },
            );
            Probed::Lost(format!("the connection to {to} {what}{went}"))
        }
    }
}

fn udp(probe: &Probe, to: SocketAddr) -> Probed {
    let sent = socket(to, Type::DGRAM).and_then(|(socket, port)| {
        socket.connect(&to.into())?;
        socket.send(&[])?;
        Ok((socket, port))
    });
    let (socket, port) = match sent {
        Ok(sent) => sent,
        Err(error) => return Probed::Lost(format!("{to}: {error}")),
    };
    let end = Instant::now() + APPEAR;
    let seen = loop {
        match find(probe, port, to) {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            other => break other,
        }
    };
    drop(socket);
    match seen {
        Ok(entry) => {
            forget(probe, port, to);
            judge(probe, to, &entry)
        }
        Err(why) => Probed::Lost(why),
    }
}

/// A socket whose port is known before anything is sent, so that its entry can be found whatever comes back.
fn socket(to: SocketAddr, kind: Type) -> io::Result<(Socket, u16)> {
    let socket = Socket::new(Domain::for_address(to), kind, None)?;
    let any: IpAddr = match to.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(any, 0).into())?;
    let bound = socket.local_addr()?.as_socket();
    let port = bound
        .ok_or_else(|| io::Error::other("the socket has no port"))?
        .port();
    Ok((socket, port))
}

/// The entry of our own connection.
fn find(probe: &Probe, port: u16, to: SocketAddr) -> Result<CtEntry, String> {
    let ours = |entry: &CtEntry| {
        entry.proto == probe.proto
            && entry.original.sport == port
            && entry.original.dst == to.ip().to_canonical()
            && entry.original.dport == to.port()
    };
    let asked = match probe.proto {
        Proto::Udp => WantedConntrack::Udp(Family::of(to.ip())),
        _ => WantedConntrack::Every,
    };
    let reading = netlink::read_conntrack(&asked, &ours).map_err(|error| chain(&error))?;
    let mut entries = reading.entries.into_iter();
    entries
        .next()
        .ok_or_else(|| format!("connection tracking has no entry of our own connection to {to}"))
}

/// Whether the connection went where it should.
fn judge(probe: &Probe, to: SocketAddr, entry: &CtEntry) -> Probed {
    let went = SocketAddr::new(entry.reply.src, entry.reply.sport);
    if went == SocketAddr::new(probe.target, probe.target_port) {
        Probed::Arrived
    } else if went == to {
        Probed::Lost(format!("nothing takes {to} to another address"))
    } else {
        Probed::Lost(format!("it went to {went}"))
    }
}

/// Takes our own entry away. The last packets of a closed connection can make it anew, so this looks again until it
/// stays away.
fn forget(probe: &Probe, port: u16, to: SocketAddr) {
    for _ in 0..FORGET_TRIES {
        let Ok(entry) = find(probe, port, to) else { return };
        // It may have gone by itself; the next look tells.
        let _ = netlink::delete_conntrack(&[entry]);
        std::thread::sleep(FORGET_PAUSE);
    }
}

/// An address of the node of the target's family: one of the link that the default route leaves by, else any that is
/// not loopback's or link-local.
fn own_address(target: IpAddr) -> Result<IpAddr, String> {
    let routing = netlink::read_routing();
    let leaves = routing
        .routes
        .value
        .iter()
        .find(|route| route.dst.is_none() && route.table == 254 && route.gateway.is_some())
        .and_then(|route| route.dev.clone());
    let link = routing
        .links
        .value
        .iter()
        .find(|link| Some(&link.name) == leaves.as_ref());
    let suits = |ip: &IpAddr| {
        ip.is_ipv4() == target.is_ipv4()
            && !ip.is_loopback()
            && match ip {
                IpAddr::V4(ip) => !ip.is_link_local(),
                IpAddr::V6(ip) => !ip.is_unicast_link_local(),
            }
    };
    let mut candidates: Vec<_> = routing.addresses.value.iter().filter(|a| suits(&a.ip)).collect();
    candidates.sort_by_key(|address| link.is_none_or(|link| link.index != address.link));
    candidates
        .first()
        .map(|address| address.ip)
        .ok_or_else(|| "the node has no address of this family".to_owned())
}
