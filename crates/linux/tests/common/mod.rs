//! Namespaces of a test's own, and the real tools in them.
#![allow(dead_code, unreachable_pub)] // Each test file uses some of it.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests.

use std::io::Write as _;
use std::process::{Command, Stdio};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use sexton_core::model::{Facts, NodeState};
use sexton_core::node::Applied;
use sexton_linux::{ApiAccess, Kinds, LinuxNode, LinuxOptions};

/// Why a live test cannot run here; none where it can.
pub fn unsupported() -> Option<&'static str> {
    (!rustix::process::geteuid().is_root()).then_some("not root")
}

/// Runs a test in a network namespace of its own, which ends with it: threads and tools started inside are inside.
pub fn in_own_netns(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only unsharing file descriptors is unsafe, and this unshares the network.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("a network namespace of our own");
            run("ip link set lo up");
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs a command line that must succeed, and gives what it printed.
pub fn run(line: &str) -> String {
    let (ok, out) = try_run(line);
    assert!(ok, "{line}: {out}");
    out
}

/// Runs a command line; whether it succeeded, and what it printed.
pub fn try_run(line: &str) -> (bool, String) {
    let output = Command::new("sh").args(["-c", line]).output().expect("a shell");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    (
        output.status.success(),
        if output.status.success() {
            out
        } else {
            format!("{out}{err}")
        },
    )
}

/// Runs a command line with a text on its standard input.
pub fn feed(line: &str, input: &str) -> String {
    let mut child = Command::new("sh")
        .args(["-c", line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a shell");
    child
        .stdin
        .take()
        .expect("its input")
        .write_all(input.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{line}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The node that this thread is on, without an API server.
pub fn node() -> LinuxNode {
    let options = LinuxOptions {
        api: ApiAccess::Off,
        ..LinuxOptions::default()
    };
    LinuxNode::open(options).expect("procfs")
}

/// An act that was done whole.
pub fn done() -> Applied {
    Applied::Done { skipped: Vec::new() }
}

/// Reads some parts of the node that this thread is on, without an API server.
pub fn observe(kinds: Kinds) -> NodeState {
    node().observe_only(kinds)
}

/// The value of a part that must be complete.
pub fn complete<T>(facts: &Facts<T>) -> &T {
    assert!(facts.is_complete(), "{:?}", facts.reports);
    &facts.value
}
