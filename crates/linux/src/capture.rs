//! A bounded capture of all links: so many packets, so long, so many bytes of each, as a file of pcap.
//!
//! A packet socket of the kernel (packet(7)) gives each packet without its link header and says on which link and in which direction it was
//! seen. That is what Linux cooked mode version 2 writes down (`LINKTYPE_LINUX_SLL2`), with times in nanoseconds. The socket's buffer is made
//! large and read until the first loss: what is in the file then follows each other without a gap, which the counting of circulating packets
//! needs.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// `LINKTYPE_LINUX_SLL2`.
const SLL2: u32 = 276;

/// pcap's magic number for times in nanoseconds.
const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// Bounds of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// It ends after this time.
    pub time: Duration,
    /// It ends after so many packets, each counted wherever it was seen.
    pub packets: usize,
    /// So many bytes of a packet are kept, from its IP header on.
    pub snap: usize,
    /// The buffer that the kernel is asked for, in bytes.
    pub buffer: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(1),
            packets: 60_000,
            snap: 96,
            buffer: 64 << 20,
        }
    }
}

/// A capture that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// A file of pcap.
    pub file: Vec<u8>,
    /// Packets in it.
    pub packets: usize,
    /// How long it was open.
    pub took: Duration,
    /// True if it ended because the kernel had no more room for packets.
    pub lost: bool,
}

/// Why there is no capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The socket cannot be made: that takes CAP_NET_RAW.
    #[error("cannot open a packet socket (that needs CAP_NET_RAW)")]
    Open(#[source] std::io::Error),
    /// It cannot be set up.
    #[error("cannot set {what} of a packet socket")]
    Set {
        /// The option.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It cannot be read.
    #[error("cannot read from a packet socket")]
    Read(#[source] std::io::Error),
}

/// Captures on all links of this thread's network namespace.
///
/// # Errors
///
/// [`CaptureError`]: above all without CAP_NET_RAW.
pub fn capture(bounds: &Bounds) -> Result<Recorded, CaptureError> {
    let socket = open(bounds)?;
    let started = Instant::now();
    let mut file = header(bounds.snap);
    let (mut packets, mut lost) = (0, false);
    let mut bytes = vec![0; bounds.snap.max(1)];
    let mut control = nix::cmsg_space!([nix::sys::time::TimeSpec; 1], u32);
    while packets < bounds.packets && started.elapsed() < bounds.time {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        // The real length is told although the rest is cut off.
        let flags = MsgFlags::MSG_TRUNC;
        let message = match recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
            Ok(message) => message,
            // Nothing came for a while.
            Err(Errno::EAGAIN | Errno::EINTR) => continue,
            // A link went down, which is no end of the others.
            Err(Errno::ENETDOWN) => continue,
            Err(errno) => return Err(CaptureError::Read(errno.into())),
        };
        let (mut time, mut overflow) = (None, 0);
        for one in message.cmsgs().into_iter().flatten() {
            match one {
                ControlMessageOwned::ScmTimestampns(at) => time = Some(at),
                ControlMessageOwned::RxqOvfl(dropped) => overflow = dropped,
                _ => {}
            }
        }
        // What comes after a loss does not follow what came before.
        if overflow > 0 && packets > 0 {
            lost = true;
            break;
        }
        let (length, from) = (message.bytes, message.address);
        let (Some(time), Some(from)) = (time, from) else {
            continue;
        };
        let kept = length.min(bytes.len());
        record(
            &mut file,
            time,
            &from,
            length,
            bytes.get(..kept).unwrap_or_default(),
        );
        packets += 1;
    }
    Ok(Recorded {
        file,
        packets,
        took: started.elapsed(),
        lost,
    })
}

fn open(bounds: &Bounds) -> Result<OwnedFd, CaptureError> {
    let socket = socket(
        AddressFamily::Packet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::EthAll,
    )
    .map_err(|errno| CaptureError::Open(errno.into()))?;
    let set = |what| {
        move |errno: Errno| CaptureError::Set {
            what,
            source: errno.into(),
        }
    };
    // More than the system's limit takes CAP_NET_ADMIN; less is less of a capture.
    if setsockopt(&socket, sockopt::RcvBufForce, &bounds.buffer).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &bounds.buffer).map_err(set("the buffer"))?;
    }
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(set("times"))?;
    setsockopt(&socket, sockopt::RxqOvfl, &1).map_err(set("the count of losses"))?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::milliseconds(20)).map_err(set("a timeout"))?;
    Ok(socket)
}

/// The header of a file, in this machine's byte order as the format allows (IETF draft-ietf-opsawg-pcap).
fn header(snap: usize) -> Vec<u8> {
    let snap = u32::try_from(snap + HEAD).unwrap_or(u32::MAX);
    let mut file = Vec::new();
    file.extend(NANOSECONDS.to_ne_bytes());
    file.extend(2u16.to_ne_bytes());
    file.extend(4u16.to_ne_bytes());
    file.extend([0; 8]);
    file.extend(snap.to_ne_bytes());
    file.extend(SLL2.to_ne_bytes());
    file
}

/// Bytes of a header of Linux cooked mode version 2.
const HEAD: usize = 20;

/// A packet: when, how long it was, how much of it is there, then the header of cooked mode (in network byte order) and the packet.
fn record(file: &mut Vec<u8>, time: nix::sys::time::TimeSpec, from: &LinkAddr, length: usize, bytes: &[u8]) {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).to_ne_bytes();
    file.extend(u32::try_from(time.tv_sec()).unwrap_or(0).to_ne_bytes());
    file.extend(u32::try_from(time.tv_nsec()).unwrap_or(0).to_ne_bytes());
    file.extend(number(HEAD + bytes.len()));
    file.extend(number(HEAD + length));
    // packet(7): the protocol is in network byte order already.
    file.extend(from.protocol().to_ne_bytes());
    file.extend([0; 2]);
    file.extend(u32::try_from(from.ifindex()).unwrap_or(0).to_be_bytes());
    file.extend(from.hatype().to_be_bytes());
    file.push(from.pkttype());
    let address = from.addr().unwrap_or_default();
    file.push(6);
    file.extend(address);
    file.extend([0; 2]);
    file.extend(bytes);
}
