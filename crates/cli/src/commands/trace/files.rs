//! Sorts the files of a trace: captures and counters are read as they come, the rest tells who lives where.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use sexton_core::model::{NodeState, Problem, Unread};
use sexton_formats::{
    bundle::{self, BundleError, BundleOptions, MemoryFiles},
    capture::{self, Component, Outcome, Place, Trace, Watch},
    counters::{self, Counters},
    hns::{self, HnsOutput},
    nic::{self, NicOutput},
    text,
};

use crate::args::TraceArgs;

/// A file that is neither a capture nor counters is read up to this size.
const MAX_SMALL: u64 = 256 << 20;

/// So much of a file tells what it is.
const HEAD: u64 = 16 * 1024;

/// What the files held.
#[derive(Default)]
pub struct Gathered {
    pub captures: Vec<(Outcome, Trace, String)>,
    pub counters: Vec<(String, Counters)>,
    pub nics: Option<NicOutput>,
    pub endpoints: Option<HnsOutput>,
    /// Pods, runtime and whatever else a recorded node has.
    pub state: Option<NodeState>,
    pub components: Vec<Component>,
    pub problems: Vec<Problem>,
    pub unread: Vec<Unread>,
}

impl Gathered {
    /// The name of a place: the capture's own, or that of a list of components.
    pub fn name<'a>(&'a self, outcome: &'a Outcome, place: Place) -> Option<&'a str> {
        let listed = || {
            let found = self
                .components
                .iter()
                .find(|component| place == Place::Component(component.id));
            found.map(|component| component.name.as_str())
        };
        outcome.name(place).or_else(listed)
    }
}

/// Reads all of them.
pub fn gather(args: &TraceArgs) -> anyhow::Result<Gathered> {
    let mut out = Gathered::default();
    let mut small = Vec::new();
    for path in &args.files {
        let mut found = Vec::new();
        walk(path, &mut found).with_context(|| format!("cannot open {}", path.display()))?;
        for file in found {
            let shown = file.display().to_string();
            if let Err(err) = one(&file, &shown, &mut out, &mut small) {
                out.unread.push(Unread {
                    path: shown,
                    why: err.to_string(),
                });
            }
        }
    }
    if !small.is_empty() {
        state(small, args, &mut out)?;
    }
    if out.captures.is_empty() && out.counters.is_empty() {
        anyhow::bail!(
            "no capture and no counters were given (pcap, pcapng, text of pktmon, CSV of typeperf, Get-Counter)"
        );
    }
    Ok(out)
}

/// Files of a folder in the order of their names.
fn walk(path: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if !fs::metadata(path)?.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    let mut inside: Vec<PathBuf> = fs::read_dir(path)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    inside.sort();
    for path in inside {
        // A link may lead round.
        let kind = fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            walk(&path, found)?;
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

fn one(path: &Path, shown: &str, out: &mut Gathered, small: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let mut head = Vec::new();
    text::gunzip(File::open(path)?)
        .take(HEAD)
        .read_to_end(&mut head)?;
    if capture::recognise(&head) {
        let mut watch = Watch::default();
        let outcome = capture::read(text::gunzip(File::open(path)?), shown, &mut |packet| {
            watch.see(packet)
        });
        out.problems.extend(outcome.problems.iter().cloned());
        out.captures.push((outcome, watch.finish(), shown.to_owned()));
        return Ok(());
    }
    if counters::recognise(&head) {
        let counters = counters::parse(text::open(File::open(path)?), shown);
        out.problems.extend(counters.problems.iter().cloned());
        out.counters.push((shown.to_owned(), counters));
        return Ok(());
    }
    let mut bytes = Vec::new();
    text::open(File::open(path)?)
        .take(MAX_SMALL + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SMALL {
        return Err(io::Error::other(
            "it is no capture, and too long for anything else that is read",
        ));
    }
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().to_ascii_lowercase())
        .unwrap_or_default();
    // The name of a known collector, else the content.
    if name.starts_with("hns-endpoint") || (name.ends_with(".json") && is_endpoints(&head)) {
        let read = hns::endpoints(&bytes, shown);
        out.problems.extend(read.problems.iter().cloned());
        out.endpoints = Some(read);
    } else if name.starts_with("pktmon-list") || name.starts_with("pktmon_list") {
        out.components = capture::components(&String::from_utf8_lossy(&bytes));
    } else if let Some(read) = adapters(&bytes, shown) {
        out.problems.extend(read.problems.iter().cloned());
        // A source that lists all addresses is worth more than one that may not.
        let lists_all = |nics: &NicOutput| nics.source.is_some_and(nic::NicSource::lists_all);
        if out.nics.as_ref().is_none_or(|before| !lists_all(before)) {
            out.nics = Some(read);
        }
    } else {
        small.push((shown.trim_start_matches(['/', '.']).to_owned(), bytes));
    }
    Ok(())
}

/// Endpoints of HNS: both versions have a MAC address and their network.
fn is_endpoints(head: &[u8]) -> bool {
    let text: String = head
        .iter()
        .filter(|byte| **byte != 0)
        .map(|byte| char::from(*byte))
        .collect();
    text.contains("\"MacAddress\"")
        && (text.contains("\"HostComputeNetwork\"") || text.contains("\"VirtualNetwork\""))
}

/// A list of adapters, if it is one.
fn adapters(bytes: &[u8], shown: &str) -> Option<NicOutput> {
    let begins = bytes.trim_ascii_start().first();
    let read = matches!(begins, Some(b'{' | b'[' | b'<')).then(|| nic::parse(bytes, shown))?;
    read.source.is_some().then_some(read)
}

/// The rest may be files of a recorded node.
fn state(small: Vec<(String, Vec<u8>)>, args: &TraceArgs, out: &mut Gathered) -> anyhow::Result<()> {
    let options = BundleOptions {
        node: args.node.clone(),
        ..BundleOptions::default()
    };
    match bundle::read(&mut MemoryFiles::new(small), &options) {
        Ok(mut state) => {
            out.problems.append(&mut state.problems);
            out.unread.append(&mut state.unread);
            out.state = Some(state);
        }
        Err(BundleError::Empty { unread }) => out.unread.extend(unread),
        Err(err) => return Err(err).context("cannot read the files of the recorded node"),
    }
    Ok(())
}
