//! What runs in a Pod: a server that says who it is, and then says everything back.
//!
//! The sockets are made in the Pod's namespace and served by the lab's own process; the Pod's namespace is held by its sandbox.
//! TCP: one line `sexton-lab UID PORT`, then every byte that comes. UDP: `UID PORT ` and the datagram.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::Path;

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};

use crate::error::LabError;
use crate::ns::in_netns;
use crate::truth::Protocol;

/// First word of the banner.
pub(crate) const BANNER: &str = "sexton-lab";

/// The line that a TCP client gets.
pub(crate) fn banner(uid: &str, port: u16) -> String {
    format!("{BANNER} {uid} {port}\n")
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Echo {
    tasks: Vec<JoinHandle<()>>,
    handle: Handle,
}

enum Bound {
    Tcp(TcpListener, u16),
    Udp(UdpSocket, u16),
}

impl Echo {
    /// Listens on `ports` in the namespace `netns`.
    pub(crate) fn start(
        handle: &Handle,
        netns: &Path,
        uid: &str,
        ports: &[(Protocol, u16)],
    ) -> Result<Self, LabError> {
        let wanted = ports.to_vec();
        let bound = in_netns(netns, move || {
            wanted.into_iter().map(bind).collect::<Result<Vec<_>, LabError>>()
        })??;
        let mut echo = Self {
            tasks: Vec::new(),
            handle: handle.clone(),
        };
        let _entered = handle.enter();
        for socket in bound {
            let into = |source| LabError::Socket {
                what: "a Pod's port for the event loop".into(),
                source,
            };
            let task = match socket {
                Bound::Tcp(listener, port) => {
                    let listener = tokio::net::TcpListener::from_std(listener).map_err(into)?;
                    handle.spawn(serve_tcp(listener, banner(uid, port)))
                }
                Bound::Udp(socket, port) => {
                    let socket = tokio::net::UdpSocket::from_std(socket).map_err(into)?;
                    handle.spawn(serve_udp(socket, format!("{uid} {port} ")))
                }
            };
            echo.tasks.push(task);
        }
        Ok(echo)
    }

    /// Stops listening, ends the connections, and returns when the sockets are closed.
    pub(crate) fn stop(mut self) {
        for task in &self.tasks {
            task.abort();
        }
        let tasks = std::mem::take(&mut self.tasks);
        self.handle.block_on(async {
            for task in tasks {
                // Aborted, which is what was asked.
                let _ = task.await;
            }
        });
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn bind((protocol, port): (Protocol, u16)) -> Result<Bound, LabError> {
    let error = |source| LabError::Socket {
        what: format!("{} port {port} of a Pod", protocol.lower()),
        source,
    };
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    let made = match protocol {
        Protocol::Tcp => {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(error)?;
            socket.set_reuse_address(true).map_err(error)?;
            socket.bind(&address.into()).map_err(error)?;
            socket.listen(1024).map_err(error)?;
            socket.set_nonblocking(true).map_err(error)?;
            Bound::Tcp(socket.into(), port)
        }
        Protocol::Udp => {
            let socket = UdpSocket::bind(address).map_err(error)?;
            socket.set_nonblocking(true).map_err(error)?;
            Bound::Udp(socket, port)
        }
    };
    Ok(made)
}

async fn serve_tcp(listener: tokio::net::TcpListener, banner: String) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A client that is gone again, or no free file for a moment: the next one may do.
                let Ok((mut stream, _)) = accepted else {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    continue;
                };
                let banner = banner.clone();
                connections.spawn(async move {
                    let _ = stream.set_nodelay(true);
                    if stream.write_all(banner.as_bytes()).await.is_err() {
                        return;
                    }
                    let mut buffer = [0; 2048];
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        if stream.write_all(&buffer[..count]).await.is_err() {
                            return;
                        }
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_udp(socket: tokio::net::UdpSocket, prefix: String) {
    let mut buffer = [0; 2048];
    loop {
        // An ICMP error of an earlier answer says nothing about the next question.
        let Ok((count, from)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        let mut answer = prefix.clone().into_bytes();
        answer.extend_from_slice(&buffer[..count]);
        let _ = socket.send_to(&answer, from).await;
    }
}
