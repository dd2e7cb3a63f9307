//! Where a reading comes from: the live node, or a recording.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use sexton_core::{
    interest::Interest,
    model::{CtEntry, NodeState, Proto, Timestamp, Unread},
};
use sexton_formats::bundle;
use sexton_linux::{ApiAccess, LinuxNode, LinuxOptions, Tracked};

use crate::{
    args::SourceArgs,
    recording::{self, Recording},
};

/// The time. The only place of the program that asks for it, the live node aside.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// One reading, and the moment to judge it at: now for the live node, the time of recording for a bundle.
pub struct Reading {
    /// The state.
    pub state: NodeState,
    /// When it is judged.
    pub at: Timestamp,
}

/// Reads the source that the flags name. `asked` are addresses that every tracked connection is wanted of.
pub fn read(args: &SourceArgs, asked: &[std::net::IpAddr]) -> anyhow::Result<Reading> {
    match &args.bundle {
        Some(path) => {
            let state = read_bundle(path, args, asked)?;
            let at = state.taken_at.unwrap_or_else(now);
            Ok(Reading { state, at })
        }
        None => {
            let mut node = open_live(args, asked, false)?;
            let spinner = spinner("reading the node");
            let state = node.observe();
            spinner.finish_and_clear();
            Ok(Reading { at: now(), state })
        }
    }
}

/// Opens the live node. With `replies`, connections of every protocol are kept whose replies the kernel counts.
pub fn open_live(args: &SourceArgs, asked: &[std::net::IpAddr], replies: bool) -> anyhow::Result<LinuxNode> {
    let SourceArgs {
        bundle: _,
        kubeconfig,
        context,
        node,
        cri_socket,
        cni_conf_dir,
        cni_data_dir,
    } = args;
    let api = match (kubeconfig, context) {
        (None, None) => ApiAccess::Infer,
        (path, context) => ApiAccess::Kubeconfig {
            path: path.clone(),
            context: context.clone(),
        },
    };
    let asked = asked.to_vec();
    let tracked = match (asked.is_empty(), replies) {
        (false, _) => Tracked::Every,
        (true, false) => Tracked::Udp,
        (true, true) => Tracked::UdpAndReplies,
    };
    // Which Services there are is not known while the table is read: all of UDP is kept.
    let keep = move |entry: &CtEntry| {
        entry.proto == Proto::Udp
            || (replies && entry.reply_count.is_some_and(|count| count.packets > 0))
            || [
                entry.original.src,
                entry.original.dst,
                entry.reply.src,
                entry.reply.dst,
            ]
            .iter()
            .any(|ip| asked.contains(ip))
    };
    let options = LinuxOptions {
        node_name: node.clone(),
        api,
        cri_endpoint: cri_socket.as_ref().map(|path| path.display().to_string()),
        cni_config_dirs: vec![cni_conf_dir.clone()],
        cni_data_dir: cni_data_dir.join("networks"),
        cni_cache_dir: cni_data_dir.join("results"),
        tracked,
        keep_conntrack: Some(Arc::new(keep)),
        ..LinuxOptions::default()
    };
    LinuxNode::open(options).context("cannot read this node")
}

fn read_bundle(path: &Path, args: &SourceArgs, asked: &[std::net::IpAddr]) -> anyhow::Result<NodeState> {
    let asked = asked.to_vec();
    let options = bundle::BundleOptions {
        node: args.node.clone(),
        keep: Some(Box::new(move |state| {
            let interest = Interest::new(state, asked.clone());
            Box::new(move |entry| interest.keeps(entry))
        })),
        ..bundle::BundleOptions::default()
    };
    let shown = path.display();
    let meta = fs::metadata(path).with_context(|| format!("cannot open the bundle {shown}"))?;
    let spinner = spinner("reading the bundle");
    let mut files: Box<dyn bundle::Files> = if meta.is_dir() {
        Box::new(Folder {
            root: path.to_owned(),
        })
    } else {
        let file = File::open(path).with_context(|| format!("cannot open the bundle {shown}"))?;
        Box::new(bundle::Archive::new(file, options.limits))
    };
    // What `sexton collect` wrote is the state itself: nothing else of the bundle needs to be read.
    if let Some(state) = recorded(files.as_mut(), args.node.as_deref())? {
        spinner.finish_and_clear();
        return Ok(state);
    }
    let state = bundle::read(files.as_mut(), &options);
    spinner.finish_and_clear();
    state.with_context(|| format!("cannot read the bundle {shown}"))
}

/// The state that `sexton collect` wrote, if this bundle has it.
fn recorded(files: &mut dyn bundle::Files, node: Option<&str>) -> anyhow::Result<Option<NodeState>> {
    let mut found = None;
    // A bundle that cannot be walked to its end is judged by the other reader, with its words.
    let _ = files.visit(&mut |entry, reader| {
        if entry.path.rsplit('/').next() == Some(recording::FILE) {
            found = Some(Recording::read(reader, &entry.path));
            return std::ops::ControlFlow::Break(());
        }
        std::ops::ControlFlow::Continue(())
    });
    let Some(state) = found.transpose()? else {
        return Ok(None);
    };
    let here = &state.identity.name;
    if let Some(asked) = node.filter(|asked| asked != here) {
        anyhow::bail!("the bundle is of node {here:?}, not of {asked:?}");
    }
    Ok(Some(state))
}

/// A sign of life on standard error, where that is a terminal.
pub fn spinner(what: &'static str) -> ProgressBar {
    // Hidden by itself where stderr is no terminal.
    let spinner = ProgressBar::new_spinner().with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(std::time::Duration::from_millis(120));
    spinner
}

/// A bundle that is a folder.
struct Folder {
    root: PathBuf,
}

impl bundle::Files for Folder {
    fn visit(&mut self, visitor: &mut bundle::Visitor<'_>) -> Result<Vec<Unread>, bundle::VisitError> {
        let failed = |path: &Path, source: std::io::Error| bundle::VisitError::Read {
            after: path.display().to_string(),
            source,
        };
        let mut refused = Vec::new();
        let mut dirs = vec![self.root.clone()];
        while let Some(dir) = dirs.pop() {
            let mut entries: Vec<PathBuf> = fs::read_dir(&dir)
                .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect())
                .map_err(|e| failed(&dir, e))?;
            entries.sort();
            for path in entries {
                let name = path
                    .strip_prefix(&self.root)
                    .unwrap_or(&path)
                    .display()
                    .to_string();
                let meta = fs::symlink_metadata(&path).map_err(|e| failed(&path, e))?;
                if meta.is_dir() {
                    dirs.push(path);
                } else if meta.is_file() {
                    let mtime = meta.modified().ok().and_then(|m| Timestamp::try_from(m).ok());
                    let entry = bundle::FileEntry {
                        path: name,
                        size: Some(meta.len()),
                        mtime,
                    };
                    match File::open(&path) {
                        Ok(mut file) => {
                            if visitor(&entry, &mut file).is_break() {
                                return Ok(refused);
                            }
                        }
                        Err(error) => refused.push(Unread {
                            path: entry.path,
                            why: error.to_string(),
                        }),
                    }
                } else {
                    // A link may leave the bundle: what it shows is not part of it.
                    refused.push(Unread {
                        path: name,
                        why: "not a regular file".to_owned(),
                    });
                }
            }
        }
        Ok(refused)
    }
}

/// Files, folders and archives that are of one node together.
pub struct Paths {
    /// Each with the name that its files are shown under; none for a folder or archive that stands for the whole.
    paths: Vec<(PathBuf, Option<String>)>,
    bar: ProgressBar,
}

impl Paths {
    /// These, each of which must be there.
    pub fn open(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let alone = paths.len() == 1;
        let named = |path: &PathBuf| {
            let meta = fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
            let whole = alone && (meta.is_dir() || is_archive(path));
            let shown = path.display().to_string();
            let name = shown.trim_start_matches("./").trim_end_matches('/').to_owned();
            Ok((path.clone(), (!whole).then_some(name)))
        };
        Ok(Self {
            paths: paths.iter().map(named).collect::<anyhow::Result<_>>()?,
            bar: spinner("reading"),
        })
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// By the name's end: a compressed capture is no archive.
fn is_archive(path: &Path) -> bool {
    let name = path.display().to_string().to_ascii_lowercase();
    [".tar", ".tar.gz", ".tgz", ".zip"]
        .iter()
        .any(|end| name.ends_with(end))
}

impl bundle::Files for Paths {
    fn visit(&mut self, visitor: &mut bundle::Visitor<'_>) -> Result<Vec<Unread>, bundle::VisitError> {
        let mut refused = Vec::new();
        let bar = self.bar.clone();
        for (path, name) in &self.paths {
            let failed = |source| bundle::VisitError::Read {
                after: path.display().to_string(),
                source,
            };
            let mut each = |entry: &bundle::FileEntry, reader: &mut dyn std::io::Read| {
                let size = entry
                    .size
                    .map_or_else(String::new, |size| format!(" ({} MB)", size >> 20));
                bar.set_message(format!("reading {}{size}", entry.path));
                visitor(entry, reader)
            };
            let mut under = |entry: &bundle::FileEntry, reader: &mut dyn std::io::Read| {
                let path = match name {
                    Some(name) => format!("{name}/{}", entry.path),
                    None => entry.path.clone(),
                };
                let entry = bundle::FileEntry {
                    path,
                    ..entry.clone()
                };
                each(&entry, reader)
            };
            let meta = fs::metadata(path).map_err(failed)?;
            if meta.is_dir() {
                let mut folder = Folder { root: path.clone() };
                refused.extend(folder.visit(&mut under)?);
            } else if is_archive(path) {
                let file = File::open(path).map_err(failed)?;
                let mut archive = bundle::Archive::new(file, bundle::Limits::default());
                refused.extend(archive.visit(&mut under)?);
            } else {
                let entry = bundle::FileEntry {
                    path: name.clone().unwrap_or_else(|| path.display().to_string()),
                    size: Some(meta.len()),
                    mtime: meta.modified().ok().and_then(|m| Timestamp::try_from(m).ok()),
                };
                let mut file = File::open(path).map_err(failed)?;
                if each(&entry, &mut file).is_break() {
                    break;
                }
            }
        }
        Ok(refused)
    }
}
