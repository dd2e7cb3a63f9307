//! What the lab's live tests share.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]
#![allow(clippy::panic, reason = "a test's helpers fail the test")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use sexton_lab::{LabNode, LabOptions};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory for a lab that no other test has.
pub fn dir(name: &str) -> PathBuf {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!("/tmp/sexton-lab-{name}-{}-{number}", std::process::id()))
}

/// A node for a test.
pub fn node(name: &str, options: LabOptions) -> LabNode {
    LabNode::up(dir(name), options).unwrap_or_else(|error| panic!("no lab node: {}", chain(&error)))
}

/// An error with its sources.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(&format!(": {source}"));
        next = source.source();
    }
    text
}
