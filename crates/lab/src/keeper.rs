//! A lab that outlives the command that made it: a process keeps the node, and takes requests at a socket in its directory, one line of
//! JSON each.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::api::{ApiFault, Resource};
use crate::error::LabError;
use crate::faults::Fault;
use crate::node::{LabNode, LabOptions, Place};

/// What a keeper can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Make these kinds of stale state.
    Faults(Vec<Fault>),
    /// Let the API fail for a resource, named by its plural.
    ApiFault(String, ApiFault),
    /// Let the API work again.
    ApiClear,
    /// Kill the runtime.
    CrashRuntime,
    /// Start the runtime again.
    StartRuntime,
    /// Take the node down and end.
    Down,
}

/// What it says: an error with its causes, or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    error: Option<String>,
}

/// Name of the socket.
const SOCKET: &str = "lab.sock";

/// An error with its causes, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// Makes a node in `dir`, calls `ready`, and serves requests until it is taken down.
///
/// # Errors
///
/// [`LabError`] when the node does not come up or does not go down.
pub fn keep(dir: impl AsRef<Path>, options: LabOptions, ready: impl FnOnce()) -> Result<(), LabError> {
    let node = LabNode::up(dir, options)?;
    // By this other commands find into the user namespace that the lab may have of its own.
    let link = node.path("ns/user");
    let user = format!("/proc/{}/ns/user", std::process::id());
    std::os::unix::fs::symlink(user, &link).map_err(LabError::file("make", &link))?;
    let path = node.path(SOCKET);
    let listener = UnixListener::bind(&path).map_err(LabError::file("listen at", &path))?;
    ready();
    for stream in listener.incoming() {
        // A client that went away again is no reason to end the node.
        let Ok(mut stream) = stream else { continue };
        let mut line = String::new();
        if BufReader::new(&mut stream).read_line(&mut line).is_err() {
            continue;
        }
        let outcome = match serde_json::from_str(&line) {
            Ok(Request::Down) => {
                let outcome = node.down();
                answer(&mut stream, &outcome);
                return outcome;
            }
            Ok(request) => serve(&node, request),
            Err(source) => Err(LabError::Json {
                what: "the request".into(),
                source,
            }),
        };
        answer(&mut stream, &outcome);
    }
    Ok(())
}

fn answer(stream: &mut UnixStream, outcome: &Result<(), LabError>) {
    let answer = Answer {
        error: outcome.as_ref().err().map(|error| chain(error)),
    };
    if let Ok(text) = serde_json::to_string(&answer) {
        let _ = writeln!(stream, "{text}");
    }
}

fn serve(node: &LabNode, request: Request) -> Result<(), LabError> {
    match request {
        Request::Faults(faults) => faults.into_iter().try_for_each(|fault| node.fault(fault)),
        Request::ApiFault(plural, fault) => {
            let resource = Resource::of_plural(&plural)
                .ok_or_else(|| LabError::State(format!("the API has no {plural}")))?;
            node.api_faults().set(resource, fault);
            Ok(())
        }
        Request::ApiClear => {
            node.api_faults().clear();
            Ok(())
        }
        Request::CrashRuntime => {
            node.crash_runtime();
            Ok(())
        }
        Request::StartRuntime => node.start_runtime(),
        // Taken care of by the loop, which owns the node.
        Request::Down => Ok(()),
    }
}

/// Asks the keeper of the lab in `place` for something and waits until it is done.
///
/// # Errors
///
/// [`LabError::NoLab`] when none is there, [`LabError::State`] with what it says went wrong.
pub fn ask(place: &Place, request: &Request) -> Result<(), LabError> {
    let none = |source| LabError::NoLab {
        dir: place.dir().to_path_buf(),
        source,
    };
    let json = |source| LabError::Json {
        what: "the lab's answer".into(),
        source,
    };
    let mut stream = UnixStream::connect(place.path(SOCKET)).map_err(none)?;
    let text = serde_json::to_string(request).map_err(json)?;
    writeln!(stream, "{text}").map_err(none)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(none)?;
    let answer: Answer = serde_json::from_str(&line).map_err(json)?;
    answer.error.map_or(Ok(()), |error| Err(LabError::State(error)))
}

/// Takes down the lab in `place`, by its keeper, or by its directory alone where that has died.
///
/// # Errors
///
/// [`LabError::NoLab`] when there is none, else what stays behind.
pub fn down(place: &Place) -> Result<(), LabError> {
    match ask(place, &Request::Down) {
        Err(LabError::NoLab { .. }) => crate::node::down(place),
        other => other,
    }
}
