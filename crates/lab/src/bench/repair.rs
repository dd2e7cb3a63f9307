//! What it costs to put wrong rules right: one restore, or a pair of commands a rule.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sexton_core::finding::XtPlace;
use sexton_core::model::{Family, XtVariant};
use sexton_core::node::{Applied, Node};
use sexton_core::plan::{Act, XtEdit};
use sexton_linux::{ApiAccess, LinuxNode, LinuxOptions};

use super::kernel::{self, npl_rule, npl_rules, tool};
use crate::cmd::CommandError;
use crate::error::LabError;
use crate::node::Variant;

/// What is measured.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// Rules in the chain.
    pub rules: usize,
    /// How many of them are replaced by one restore.
    pub batch: usize,
    /// How many of them are replaced by a pair of commands each, which takes its time.
    pub pairs: usize,
    /// The variant of iptables.
    pub variant: Variant,
    /// A directory for a file.
    pub dir: PathBuf,
}

/// What the three ways took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Sexton's step: reading, one restore, reading back.
    pub step: Duration,
    /// The restore alone, by hand.
    pub restore: Duration,
    /// All pairs of `-D` and `-A`.
    pub pairs: Duration,
}

/// Builds the chain and replaces rules in it in three ways.
///
/// # Errors
///
/// [`LabError`] when the rules cannot be made or were not replaced.
pub fn repair(options: &RepairOptions) -> Result<Took, LabError> {
    let &RepairOptions {
        rules,
        batch,
        pairs,
        variant,
        ..
    } = options;
    npl_rules(variant, rules)?;
    // Spread over the chain, as what is stale is.
    let chosen: Vec<usize> = (0..batch).map(|number| number * rules / batch).collect();
    let edit = XtEdit {
        place: XtPlace {
            variant: match variant {
                Variant::Nft => XtVariant::Nft,
                Variant::Legacy => XtVariant::Legacy,
            },
            family: Family::Ipv4,
            table: "nat".to_owned(),
        },
        delete: chosen.iter().map(|number| npl_rule(*number, 0)).collect(),
        drop_chains: Vec::new(),
        new_chains: Vec::new(),
        add: chosen.iter().map(|number| npl_rule(*number, 1)).collect(),
        probes: Vec::new(),
        replaced: batch,
    };
    let node = LinuxNode::open(LinuxOptions {
        api: ApiAccess::Off,
        deadline: Duration::from_secs(120),
        ..LinuxOptions::default()
    });
    let mut node = node.map_err(|error| LabError::State(error.to_string()))?;
    let begin = Instant::now();
    let applied = node.apply(&Act::XtRestore { edit });
    let step = begin.elapsed();
    if applied != (Applied::Done { skipped: Vec::new() }) {
        return Err(LabError::State(format!("the step came out as {applied:?}")));
    }

    let mut text = "*nat\n".to_owned();
    for (from, word) in [(1, "-D"), (2, "-A")] {
        for number in &chosen {
            text.push_str(&npl_rule(*number, from).replacen("-A", word, 1));
            text.push('\n');
        }
    }
    text.push_str("COMMIT\n");
    let begin = Instant::now();
    kernel::run(&[&tool(variant, "-restore"), "--noflush", "--wait=5"], &text)?;
    let restore = begin.elapsed();

    let program = tool(variant, "");
    let begin = Instant::now();
    for number in chosen.iter().take(pairs) {
        for (to, word) in [(2, "-D"), (3, "-A")] {
            let rule = npl_rule(*number, to).replacen("-A", word, 1);
            one(&program, &rule)?;
        }
    }
    let pairs = begin.elapsed();
    Ok(Took { step, restore, pairs })
}

/// One command, as Antrea starts it.
fn one(program: &str, rule: &str) -> Result<(), LabError> {
    let command = || format!("{program} -w 10 -t nat {rule}");
    let status = Command::new(program)
        .args(["-w", "10", "-t", "nat"])
        .args(rule.split(' '))
        .stdin(Stdio::null())
        .status()
        .map_err(|source| CommandError::Start {
            command: command(),
            source,
        })?;
    if status.success() {
        return Ok(());
    }
    Err(LabError::Command(CommandError::Failed {
        command: command(),
        status,
        stdout: String::new(),
        stderr: String::new(),
    }))
}
