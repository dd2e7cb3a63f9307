//! A recorded node: a folder or archive of other tools' output becomes a [`NodeState`].

mod archive;
mod collect;
mod files;
mod finish;
mod input;
mod join;
mod kernel;
mod node;
mod pods;
mod recognise;
mod second;
mod traffic;

use std::ops::ControlFlow;

use sexton_core::model::{CtEntry, NodeState, Problem, Unread};

pub use archive::Archive;
pub use files::{FileEntry, Files, LimitError, Limits, MemoryFiles, VisitError, Visitor, clean_path};

use collect::Collector;

/// A test for entries of the connection tracking table.
pub type EntryTest = Box<dyn Fn(&CtEntry) -> bool>;

/// Makes a test for entries from all other parts of the state.
pub type Keep = Box<dyn Fn(&NodeState) -> EntryTest>;

/// How a bundle is read.
#[derive(Default)]
pub struct BundleOptions {
    /// The node that it must be of.
    pub node: Option<String>,
    /// Its limits.
    pub limits: Limits,
    /// Which entries of the connection tracking table are kept; all are counted. All unless told.
    pub keep: Option<Keep>,
}

/// A bundle that cannot be judged at all.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It cannot be opened.
    #[error("cannot open the bundle")]
    Visit(#[from] VisitError),
    /// It is of another node.
    #[error("the bundle is of node {found:?} ({source_of_name}), not of {asked:?}")]
    OtherNode {
        /// The node that was asked for.
        asked: String,
        /// The node that it is of.
        found: String,
        /// What says so.
        source_of_name: String,
    },
    /// It holds the agents of several nodes.
    #[error("the bundle is of several nodes: {}; say which one is meant", .nodes.join(", "))]
    SeveralNodes {
        /// Their names.
        nodes: Vec<String>,
    },
    /// Files of several nodes lie in it.
    #[error("recordings of several nodes lie in the bundle: {}; put each into a bundle of its own", .nodes.join(", "))]
    Mixed {
        /// Their names, each with a file that tells it.
        nodes: Vec<String>,
    },
    /// Nothing tells which node it is of. Judged as nobody's, every Pod would look like another node's.
    #[error("nothing in the bundle tells which node it is of; its Pods are bound to {}; say which one is meant", few(.nodes))]
    Nameless {
        /// The nodes that Pods are bound to.
        nodes: Vec<String>,
    },
    /// It holds nothing that is known here.
    #[error("the bundle holds no file that is known here ({})", first_of(.unread))]
    Empty {
        /// Its files.
        unread: Vec<Unread>,
    },
}

/// The first few files that were not read, with why.
fn first_of(unread: &[Unread]) -> String {
    const SHOWN: usize = 5;
    let mut shown: Vec<String> = unread
        .iter()
        .take(SHOWN)
        .map(|u| format!("{}: {}", u.path, u.why))
        .collect();
    match unread.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => shown.push(format!("and {more} more")),
        _ if shown.is_empty() => shown.push("it is empty".to_owned()),
        _ => {}
    }
    shown.join("; ")
}

/// Reads a bundle.
///
/// Files are recognised by name at any depth, else by content; what is neither is listed as unread. A file that is
/// broken gives problems with their places, and the rest is used.
///
/// # Errors
///
/// [`BundleError`] when it cannot be opened, is of another node than `options.node`, or holds nothing.
pub fn read(files: &mut dyn Files, options: &BundleOptions) -> Result<NodeState, BundleError> {
    let mut collector = Collector::new(options.limits, options.node.clone());
    let walked = visit(files, &options.limits, &mut |entry, reader| {
        collector.file(entry, reader)
    });
    let cut = match walked {
        Ok(refused) => {
            collector.refused(refused);
            None
        }
        Err(err) if collector.is_empty() => return Err(err.into()),
        Err(err) => Some(chain(&err)),
    };
    let conntrack = collector.conntrack.clone();
    let mut state = finish::finish(collector, options, cut)?;
    if !conntrack.is_empty() {
        let keep = options.keep.as_ref().map(|keep| keep(&state));
        let mut second = second::ConntrackReader::new(options.limits, keep);
        let walked = visit(files, &options.limits, &mut |entry, reader| {
            if conntrack.contains(&entry.path) {
                second.file(entry, reader);
            }
            ControlFlow::Continue(())
        });
        second.finish(&mut state, walked.err().map(|err| chain(&err)));
    }
    Ok(state)
}

/// Visits all files, those of a tar inside of the bundle too.
fn visit(
    files: &mut dyn Files,
    limits: &Limits,
    visitor: &mut Visitor<'_>,
) -> Result<Vec<Unread>, VisitError> {
    let mut nested_refused = Vec::new();
    let mut nested_failed = None;
    let refused = files.visit(&mut |entry, reader| {
        if !archive::is_nested(&entry.path) {
            return visitor(entry, reader);
        }
        let mut flow = ControlFlow::Continue(());
        let walked = archive::visit_nested(&entry.path, reader, limits, &mut |entry, reader| {
            flow = if archive::is_nested(&entry.path) {
                // One level is enough for what collectors make.
                nested_refused.push(Unread {
                    path: entry.path.clone(),
                    why: "an archive inside of an archive of the bundle".to_owned(),
                });
                ControlFlow::Continue(())
            } else {
                visitor(entry, reader)
            };
            flow
        });
        match walked {
            Ok(refused) => nested_refused.extend(refused),
            Err(VisitError::NotAnArchive) => nested_refused.push(Unread {
                path: entry.path.clone(),
                why: VisitError::NotAnArchive.to_string(),
            }),
            // The others are good; that something lacks is said at the end.
            Err(err) => nested_failed = nested_failed.take().or(Some(err)),
        }
        flow
    })?;
    nested_refused.extend(refused);
    match nested_failed {
        Some(err) => Err(err),
        None => Ok(nested_refused),
    }
}

/// Names, the first ones of many.
fn few(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// An error with its causes, in one line.
fn chain(err: &dyn std::error::Error) -> String {
    let mut out = err.to_string();
    let mut source = err.source();
    while let Some(cause) = source {
        out.push_str(": ");
        out.push_str(&cause.to_string());
        source = cause.source();
    }
    out
}

fn problem(place: impl Into<String>, what: impl Into<String>) -> Problem {
    Problem {
        place: place.into(),
        what: what.into(),
    }
}

#[cfg(test)]
mod tests;
