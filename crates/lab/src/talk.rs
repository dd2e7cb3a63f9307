//! Single questions of a client outside.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use serde::Serialize;

use crate::cmd::CommandError;
use crate::echo;
use crate::error::LabError;
use crate::node::{CLIENT_IP, Place};
use crate::ns::in_netns;
use crate::truth::{Protocol, Target};

/// How long a single question waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sends one datagram from `from` to `ip`:`port` and waits for the answer of the Pod `uid`, as a client does whose connection is to
/// be in the table.
pub(crate) fn udp_exchange(place: &Place, from: u16, ip: &str, port: u16, uid: &str) -> Result<(), LabError> {
    let answer = udp_ask(place, from, address(ip, port)?)?;
    let answer = answer.map_err(|source| LabError::Socket {
        what: format!("a conversation with {ip}:{port}"),
        source,
    })?;
    if answer.starts_with(uid) {
        Ok(())
    } else {
        Err(LabError::State(format!(
            "{ip}:{port} was answered by {answer:?} and not by {uid}"
        )))
    }
}

/// Sends one datagram that nobody is to answer.
pub(crate) fn udp_shout(place: &Place, from: u16, ip: &str, port: u16) -> Result<(), LabError> {
    let to = address(ip, port)?;
    let sent = in_netns(&place.client_netns(), move || {
        UdpSocket::bind(("0.0.0.0", from)).and_then(|socket| socket.send_to(b"lab", to))
    })?;
    sent.map(|_| ()).map_err(|source| LabError::Socket {
        what: format!("a datagram to {ip}:{port}"),
        source,
    })
}

fn address(ip: &str, port: u16) -> Result<SocketAddr, LabError> {
    let ip: IpAddr = ip
        .parse()
        .map_err(|_| LabError::State(format!("{ip} is no address")))?;
    Ok(SocketAddr::new(ip, port))
}

fn udp_ask(place: &Place, from: u16, to: SocketAddr) -> Result<std::io::Result<String>, LabError> {
    Ok(in_netns(&place.client_netns(), move || {
        exchange(&UdpSocket::bind(("0.0.0.0", from))?, to)
    })?)
}

fn exchange(socket: &UdpSocket, to: SocketAddr) -> std::io::Result<String> {
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(b"lab")?;
    let mut buffer = [0; 2048];
    let count = socket.recv(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..count]).into_owned())
}

/// Asks from a new port and takes the connection out of the node's table again: a question to a dead Pod must not be one more stale entry.
fn udp_probe(place: &Place, to: SocketAddr) -> Result<std::io::Result<String>, LabError> {
    let (answer, port) = in_netns(&place.client_netns(), move || {
        let bound = UdpSocket::bind("0.0.0.0:0").and_then(|socket| Ok((socket.local_addr()?.port(), socket)));
        match bound {
            Ok((port, socket)) => (exchange(&socket, to), Some(port)),
            Err(error) => (Err(error), None),
        }
    })?;
    if let Some(port) = port {
        let (sport, dport) = (port.to_string(), to.port().to_string());
        let argv = [
            "conntrack",
            "-D",
            "-p",
            "udp",
            "-s",
            CLIENT_IP,
            "--sport",
            &sport,
            "--dport",
            &dport,
        ];
        match place.run(argv) {
            // It also fails where there is none, as when the packet was dropped before.
            Ok(_) | Err(CommandError::Failed { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Ok(answer)
}

fn tcp_ask(place: &Place, to: SocketAddr) -> Result<std::io::Result<String>, LabError> {
    Ok(in_netns(&place.client_netns(), move || {
        let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    })?)
}

/// What came of asking at one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The target.
    #[serde(flatten)]
    pub target: Target,
    /// Whether the Pod that must answer there did.
    pub answered: bool,
    /// Who or what answered instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

/// Asks once at every target: one TCP connection, or one datagram from a new port.
///
/// # Errors
///
/// [`LabError`] when the clients' namespace cannot be entered; a target that does not answer is no error.
pub fn probe(place: &Place, targets: &[Target]) -> Result<Vec<Probe>, LabError> {
    // Side by side: a dead target takes its second.
    std::thread::scope(|scope| {
        let asked: Vec<_> = targets
            .iter()
            .map(|target| scope.spawn(move || ask(place, target)))
            .collect();
        asked
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(LabError::State("a probe panicked".into())))
            })
            .collect()
    })
}

fn ask(place: &Place, target: &Target) -> Result<Probe, LabError> {
    let to = SocketAddr::new(target.ip.into(), target.port);
    let (answer, wanted) = match target.protocol {
        Protocol::Tcp => (tcp_ask(place, to)?, format!("{} {} ", echo::BANNER, target.uid)),
        Protocol::Udp => (udp_probe(place, to)?, format!("{} ", target.uid)),
    };
    let instead = match answer {
        Ok(answer) if answer.starts_with(&wanted) => None,
        Ok(answer) => Some(format!("answered by {:?}", answer.trim_end())),
        Err(silent) if matches!(silent.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Some("no answer within 1 s".into())
        }
        Err(error) => Some(error.to_string()),
    };
    Ok(Probe {
        target: target.clone(),
        answered: instead.is_none(),
        instead,
    })
}
