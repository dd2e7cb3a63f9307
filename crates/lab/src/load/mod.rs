//! Clients that talk to the living all the while, and count what failed.
//!
//! For each target: new TCP connections at a fixed rate, each tried once and checked for the right Pod; one long TCP stream; for UDP one sequence
//! of numbered datagrams from one port. Rates are bounded: a slow node is not flooded by what it has not answered yet.

mod client;
mod summary;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::error::LabError;
use crate::node::Place;
use crate::ns::NsError;
use crate::truth::{Protocol, Target};
pub use summary::{Kind, Line, Summary};

/// How the clients behave.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// New TCP connections a second for each target.
    pub connections: u32,
    /// Messages a second on each long stream and in each UDP sequence.
    pub messages: u32,
}

impl Default for LoadOptions {
    /// 210 connections and 50 messages a second: a little above 200, so that 200 are reached also over a short time.
    fn default() -> Self {
        Self {
            connections: 210,
            messages: 50,
        }
    }
}

/// Running clients. Dropping the value stops them.
#[derive(Debug)]
pub struct Load {
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<Result<Summary, LabError>>>,
}

impl Load {
    /// Starts clients in the clients' namespace, for each of `targets`.
    ///
    /// # Errors
    ///
    /// [`LabError::State`] when there is no target: an empty load would prove nothing.
    pub fn start(place: &Place, targets: Vec<Target>, options: LoadOptions) -> Result<Self, LabError> {
        if targets.is_empty() {
            return Err(LabError::State("there is no target to talk to".into()));
        }
        let (stop, stopped) = watch::channel(false);
        let netns = place.client_netns();
        let file = std::fs::File::open(&netns).map_err(|source| NsError::Open {
            path: netns.clone(),
            source,
        })?;
        let thread = std::thread::spawn(move || {
            use std::os::fd::AsFd;
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(file.as_fd(), kind).map_err(|errno| {
                NsError::Enter {
                    path: netns,
                    source: errno.into(),
                }
            })?;
            go_first();
            // All on this thread, so that every socket is in the clients' namespace.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|source| LabError::Socket {
                    what: "the clients' event loop".into(),
                    source,
                })?;
            runtime.block_on(talk(targets, options, stopped))
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Stops the clients and says what they saw.
    ///
    /// # Errors
    ///
    /// [`LabError`] when the clients could not run.
    pub fn stop(mut self) -> Result<Summary, LabError> {
        self.stop.send_replace(true);
        let thread = self.thread.take();
        let joined = thread.map(std::thread::JoinHandle::join);
        joined
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(LabError::State("the clients' thread panicked".into())))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Puts the calling thread before others, as far as this user may. Clients and servers stand for machines of their own: that a busy test
/// machine does not let them run is no failure of the node.
pub(crate) fn go_first() {
    let _ = rustix::process::setpriority_process(None, -10);
}

async fn talk(
    targets: Vec<Target>,
    options: LoadOptions,
    stopped: watch::Receiver<bool>,
) -> Result<Summary, LabError> {
    let start = Instant::now();
    let mut running = Vec::new();
    for target in targets {
        let target = Arc::new(target);
        match target.protocol {
            Protocol::Tcp => {
                let rate = options.connections.max(1);
                running.push(tokio::spawn(client::connections(
                    target.clone(),
                    rate,
                    stopped.clone(),
                )));
                let pause = Duration::from_secs(1) / options.messages.max(1);
                running.push(tokio::spawn(client::stream(target, pause, stopped.clone())));
            }
            Protocol::Udp => {
                let pause = Duration::from_secs(1) / options.messages.max(1);
                running.push(tokio::spawn(client::sequence(target, pause, stopped.clone())));
            }
        }
    }
    let mut lines = Vec::new();
    for task in running {
        lines.push(
            task.await
                .map_err(|ended| LabError::State(format!("a client ended early: {ended}")))?,
        );
    }
    Ok(Summary::new(lines, start.elapsed()))
}
