//! `sexton trace --fleet DIR`: each folder, archive and file of a folder is a node.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use sexton_core::{judge::Judge, model::NodeState, settings::Settings};
use sexton_formats::bundle::{self, BundleError, BundleOptions};

use super::emit;
use crate::{
    args::TraceArgs,
    output::trace::{
        Report,
        fleet::{self, Class, Fleet, Node},
    },
    source,
};

/// Files that are of the whole cluster.
const OF_ALL: [&str; 4] = ["nodes.json", "pods.json", "events.json", "services.json"];

/// Reads every node, compares them, prints.
pub fn run(dir: &Path, args: &TraceArgs) -> anyhow::Result<u8> {
    let shown = dir.display();
    let entries = fs::read_dir(dir).with_context(|| format!("cannot open {shown}"))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    let (shared, nodes): (Vec<PathBuf>, Vec<PathBuf>) = paths
        .into_iter()
        .filter(|path| !name(path).starts_with('.'))
        .partition(|path| OF_ALL.contains(&name(path).as_str()));
    if nodes.is_empty() {
        anyhow::bail!("{shown} holds no folder, archive or file of a node");
    }
    let found = nodes
        .iter()
        .map(|path| node(path, &name(path), &shared))
        .collect();
    let fleet = Fleet::new(found);
    emit(args.out.as_deref(), |out| fleet::write(&fleet, args.output, out))?;
    Ok(fleet.exit_code())
}

/// One node; what cannot be read is unknown, and the others are read all the same.
fn node(path: &Path, file: &str, shared: &[PathBuf]) -> Node {
    let name = [
        ".tar.gz", ".tgz", ".tar", ".zip", ".csv", ".txt", ".pcap", ".pcapng",
    ]
    .iter()
    .find_map(|end| file.strip_suffix(end))
    .unwrap_or(file)
    .to_owned();
    match read(path, &name, shared) {
        Ok(state) => {
            let settings = Settings::default();
            let at = state.taken_at.unwrap_or_else(source::now);
            let report = Report::new(&Judge::new(&state, None, &settings, at));
            let told = &state.identity.name;
            let mut node = Node::new(
                if told.is_empty() { name } else { told.clone() },
                &report,
                state.machine(),
            );
            if state.captures.value.is_empty() && state.counters.value.is_empty() {
                node.class = Class::Unknown;
                node.answer = "it has no capture and no counters".to_owned();
            }
            node
        }
        Err(err) => Node {
            node: name,
            class: Class::Unknown,
            answer: format!("{err:#}"),
            packets_per_second: None,
            addresses: Vec::new(),
            traits: Default::default(),
        },
    }
}

fn read(path: &Path, name: &str, shared: &[PathBuf]) -> anyhow::Result<NodeState> {
    let mut paths = vec![path.to_owned()];
    paths.extend(shared.iter().cloned());
    let mut files = source::Paths::open(&paths)?;
    let mut with = |node: Option<String>| {
        let options = BundleOptions {
            node,
            ..BundleOptions::default()
        };
        bundle::read(&mut files, &options)
    };
    // Where nothing tells whose it is, its own name does.
    match with(None) {
        Ok(state) if !state.identity.name.is_empty() => Ok(state),
        Ok(_) | Err(BundleError::Nameless { .. }) => Ok(with(Some(name.to_owned()))?),
        Err(err) => Err(err.into()),
    }
}
