//! Changes to nftables as the kernel announces them, each with the process that made it.

use std::sync::mpsc;
use std::thread::JoinHandle;

use futures::StreamExt as _;
use nlink::netlink::nftables::{NftablesEvent, NftablesGroup};
use tokio::sync::oneshot;

use super::NetlinkError;
use super::nft::{self, TableName};

/// Room for what is announced while nobody listens, in bytes. A full restore of 10,000 rules announces each of them.
const RECEIVE_BUFFER: usize = 8 << 20;

/// A chain, or a set or map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NftPlace {
    /// The table.
    pub(crate) table: TableName,
    /// The chain's or the set's name.
    pub(crate) name: String,
}

/// One change: a batch that was committed.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The process, by the thread that sent it.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) name: String,
    /// Where something was added or deleted.
    pub(crate) places: Vec<NftPlace>,
}

/// Listens until it is dropped.
pub(crate) struct ChangeListener {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ChangeListener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A listener that panicked has nothing to hand back.
            let _ = thread.join();
        }
    }
}

/// Begins to listen, and tells every change. Changes that come faster than they are read are lost; what is told is
/// right, and may not be all.
pub(crate) fn listen(mut tell: impl FnMut(Change) + Send + 'static) -> Result<ChangeListener, NetlinkError> {
    let (stop, stopped) = oneshot::channel();
    let (ready, begun) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("sexton-nft-watch".to_owned())
        .spawn(move || {
            let listening = super::block_on("nftables' changes", async {
                let conn = nft::open()?;
                let failed = |source| NetlinkError::Read {
                    what: "nftables' changes",
                    source,
                };
                // A smaller buffer than asked for only loses more in a storm.
                let _ = conn.socket().set_rcvbuf(RECEIVE_BUFFER);
                conn.subscribe(&[NftablesGroup::All]).map_err(failed)?;
                let _ = ready.send(Ok(()));
                let mut places: Vec<NftPlace> = Vec::new();
                let mut stopped = stopped;
                let mut events = conn.events().await;
                loop {
                    let event = tokio::select! {
                        _ = &mut stopped => return Ok(()),
                        event = events.next() => event,
                    };
                    match event {
                        None => return Ok(()),
                        // Something was lost: what was gathered may belong to another change.
                        Some(Err(_)) => places.clear(),
                        Some(Ok(NftablesEvent::NewGen(made))) => {
                            if let (Some(pid), Some(name)) = (made.pid, made.proc_name) {
                                let places = std::mem::take(&mut places);
                                tell(Change { pid, name, places });
                            } else {
                                places.clear();
                            }
                        }
                        Some(Ok(event)) => {
                            if let Some(place) = place(event).filter(|place| !places.contains(place)) {
                                places.push(place);
                            }
                        }
                    }
                }
            });
            if let Err(error) = listening {
                let _ = ready.send(Err(error));
            }
        })
        .map_err(|source| NetlinkError::Runtime {
            what: "nftables' changes",
            source,
        })?;
    let listener = ChangeListener {
        stop: Some(stop),
        thread: Some(thread),
    };
    match begun.recv() {
        Ok(Ok(())) | Err(_) => Ok(listener),
        Ok(Err(error)) => Err(error),
    }
}

fn place(event: NftablesEvent) -> Option<NftPlace> {
    let (family, table, name) = match event {
        NftablesEvent::NewRule(rule) | NftablesEvent::DelRule(rule) => (rule.family, rule.table, rule.chain),
        NftablesEvent::NewChain(chain) | NftablesEvent::DelChain(chain) => {
            (chain.family, chain.table, chain.name)
        }
        NftablesEvent::NewSetElements(set) | NftablesEvent::DelSetElements(set) => {
            (set.family, set.table, set.set)
        }
        NftablesEvent::NewSet(set) | NftablesEvent::DelSet(set) => (set.family, set.table, set.name),
        _ => return None,
    };
    Some(NftPlace {
        table: (nft::family(family)?, table),
        name,
    })
}
