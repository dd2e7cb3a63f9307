//! The kernel by netlink. This module is the only one that knows the netlink crate, so that it could be given another
//! (`docs/netlink.md` says why this one).
//!
//! Of that crate are used: sockets, the sequence of a request and its answers with the kernel's extended errors, the
//! batches of nftables with their generation, and the decoding of nftables rules. The few messages that Sexton reads
//! by the ten thousand are decoded here, straight into the model's types.

mod attrs;
mod conntrack;
mod nft;
mod nft_edit;
mod nft_rule;
mod nft_value;
mod nft_watch;
mod nft_write;
mod route;
mod rule;

pub(crate) use conntrack::{
    Deleted, Wanted as WantedConntrack, accounting, delete as delete_conntrack, read as read_conntrack,
};
pub(crate) use nft::{TableName, read as read_nft, tables as read_nft_tables};
pub(crate) use nft_edit::apply as edit_nft;
pub(crate) use nft_watch::{Change, ChangeListener, NftPlace, listen as listen_nft};
pub(crate) use nft_write::{Swapped, add as add_nft_element, delete as delete_nft_element};
pub(crate) use route::{read as read_routing, read_interior, unavailable as no_routing};

use std::time::Duration;

use futures::StreamExt as _;
use nlink::Connection;
use nlink::netlink::ProtocolState;
use nlink::netlink::parse::{FromNetlink, PResult};

/// How long the kernel may stay silent in the middle of an answer.
const SILENCE: Duration = Duration::from_secs(5);

/// How often a dump is taken again that the kernel calls inconsistent, because something changed meanwhile.
const DUMP_TRIES: usize = 5;

/// Why the kernel gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// No socket of this protocol could be opened.
    #[error("cannot open a netlink socket ({protocol})")]
    Open {
        /// `route`, `netfilter`.
        protocol: &'static str,
        /// What the library said.
        #[source]
        source: nlink::Error,
    },
    /// The kernel refused a request, or its answer broke off.
    #[error("cannot read {what} from the kernel")]
    Read {
        /// What was asked for.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: nlink::Error,
    },
    /// The table changed during every one of several readings.
    #[error("cannot read {what} from the kernel: it changed during each of {DUMP_TRIES} readings")]
    Unsteady {
        /// What was asked for.
        what: &'static str,
    },
    /// The kernel refused a change.
    #[error("cannot change {what}")]
    Write {
        /// What was to be changed.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: nlink::Error,
    },
    /// The thread's own runtime could not be made.
    #[error("cannot start reading {what}")]
    Runtime {
        /// What was to be read.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl NetlinkError {
    /// Whether the caller lacks the right (`CAP_NET_ADMIN`) to ask.
    pub fn is_permission_denied(&self) -> bool {
        match self {
            Self::Open { source, .. } | Self::Read { source, .. } | Self::Write { source, .. } => {
                source.is_permission_denied()
            }
            Self::Unsteady { .. } | Self::Runtime { .. } => false,
        }
    }
}

/// Runs a reading to its end on the calling thread. Each kernel source has a thread of its own: the kernel's part of a
/// dump runs inside the reader's `recvmsg`, so that sources side by side use more than one processor.
pub(crate) fn block_on<T>(
    what: &'static str,
    reading: impl Future<Output = Result<T, NetlinkError>>,
) -> Result<T, NetlinkError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| NetlinkError::Runtime { what, source })?;
    runtime.block_on(reading)
}

/// One message's body, undecoded.
struct Body(Vec<u8>);

impl FromNetlink for Body {
    fn parse(input: &mut &[u8]) -> PResult<Self> {
        Ok(Self(std::mem::take(input).to_vec()))
    }

    fn from_bytes(data: &[u8]) -> nlink::Result<Self> {
        Ok(Self(data.to_vec()))
    }
}

/// Asks for a dump and hands every message's body to `each`.
async fn dump<P: ProtocolState>(
    conn: &Connection<P>,
    what: &'static str,
    msg_type: u16,
    request: &[u8],
    mut each: impl FnMut(&[u8]),
) -> Result<(), NetlinkError> {
    let failed = |source| NetlinkError::Read { what, source };
    let mut stream = conn
        .dump_stream_with_body::<Body>(msg_type, request)
        .await
        .map_err(failed)?;
    while let Some(body) = stream.next().await {
        each(&body.map_err(failed)?.0);
    }
    Ok(())
}

/// Whether a dump is worth taking again: the kernel said that what it told does not fit together.
fn is_torn(error: &NetlinkError) -> bool {
    matches!(error, NetlinkError::Read { source, .. } if source.is_dump_interrupted())
}
