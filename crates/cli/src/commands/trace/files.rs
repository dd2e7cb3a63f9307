//! The files of a trace: captures and counters, and whatever tells who lives where.

use std::path::PathBuf;

use anyhow::Context as _;
use sexton_core::model::NodeState;
use sexton_formats::bundle::{self, BundleError, BundleOptions};

use crate::{args::TraceArgs, source};

/// Reads all of them as one recorded node.
pub fn read(args: &TraceArgs) -> anyhow::Result<NodeState> {
    let options = BundleOptions {
        node: args.source.node.clone(),
        ..BundleOptions::default()
    };
    let nothing =
        "no capture and no counters were given (pcap, pcapng, text of pktmon, CSV of typeperf, Get-Counter)";
    if args.files.is_empty() {
        // What `sexton collect` wrote is the state itself.
        let state = source::read(&args.source, &[])?.state;
        if state.captures.value.is_empty() && state.counters.value.is_empty() {
            anyhow::bail!("the bundle holds no capture and no counters");
        }
        return Ok(state);
    }
    let paths: Vec<PathBuf> = args.files.iter().chain(&args.source.bundle).cloned().collect();
    let mut files = source::Paths::open(&paths)?;
    let state = match bundle::read(&mut files, &options) {
        Ok(state) => state,
        Err(BundleError::Empty { unread }) => {
            let first = unread.first().map(|one| format!("; {}: {}", one.path, one.why));
            anyhow::bail!("{nothing}{}", first.unwrap_or_default());
        }
        Err(err) => return Err(err).context("cannot read the files of the recorded node"),
    };
    if state.captures.value.is_empty() && state.counters.value.is_empty() {
        anyhow::bail!(nothing);
    }
    Ok(state)
}
