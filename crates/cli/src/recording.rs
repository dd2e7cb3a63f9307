//! What `sexton collect` writes and `--bundle` reads back exactly: the whole state as Sexton saw it, beside the same things in
//! the forms that other tools read.

use std::io::Read;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sexton_core::model::NodeState;

/// The schema's name.
pub const SCHEMA: &str = "sexton.dev/recording/v1";

/// The file's name inside the bundle.
pub const FILE: &str = "sexton-state.json";

/// A recorded state.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recording {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version that wrote it.
    pub version: String,
    /// The state.
    pub state: NodeState,
}

impl Recording {
    /// Of a live state.
    pub fn new(state: NodeState) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state,
        }
    }

    /// Reads one. The state is no longer live.
    pub fn read(reader: &mut dyn Read, path: &str) -> anyhow::Result<NodeState> {
        let mut text = Vec::new();
        reader
            .read_to_end(&mut text)
            .with_context(|| format!("cannot read {path}"))?;
        let read: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{path}: expected a recording of the schema {SCHEMA}"))?;
        anyhow::ensure!(
            read.schema == SCHEMA,
            "{path}: the schema is {:?}, expected {SCHEMA:?}",
            read.schema
        );
        let mut state = read.state;
        state.live = false;
        Ok(state)
    }
}
