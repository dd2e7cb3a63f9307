//! The demo: a lab node with stale state of every kind, clients that talk to the living all the while, and `sexton` that sees, plans and
//! repairs. What it said and did is held against what the lab knows it made.

mod check;
mod circles;
mod compare;
mod outcome;
mod show;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use sexton_core::plan::Plan;
use sexton_core::report::Report;

use crate::error::LabError;
use crate::faults::Fault;
use crate::load::{Load, LoadOptions};
use crate::node::{LabNode, LabOptions, RuntimeKind, Variant};
use crate::snapshot::Snapshot;
use crate::talk::{Probe, probe};
use crate::truth::{Target, Truth};
pub use circles::{LoopOutcome, run_loop};
pub use outcome::{Outcome, Port, RuleLine};
use show::{Ran, Show};

/// How long the clients talk at least.
const TALK: Duration = Duration::from_secs(5);

/// New connections a second to each living target that the demo is to show.
const PROMISED_RATE: f64 = 200.0;

/// How the demo runs.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The program `sexton`, which must be readable from inside the node: not below `/run`, `/etc` or `/var/lib`.
    pub sexton: PathBuf,
    /// Directory of the lab, empty or absent.
    pub dir: PathBuf,
    /// Which tables the node's iptables writes to.
    pub variant: Variant,
    /// The node's runtime.
    pub runtime: RuntimeKind,
    /// Where every report, plan, journal and snapshot goes.
    pub keep: Option<PathBuf>,
    /// Whether colours are wanted.
    pub colour: bool,
}

/// Why the demo could not be shown to its end. That Sexton was wrong is no such error but part of the [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// This machine cannot have such a lab.
    #[error("no lab can be made here: {0}")]
    Unsupported(String),
    /// The lab failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// What is shown could not be written.
    #[error("cannot write what is shown")]
    Write(#[from] std::io::Error),
    /// `sexton` ended with an error.
    #[error("`{command}` ended with exit code {code}: {stderr}")]
    Sexton {
        /// The command line.
        command: String,
        /// Its exit code; -1 when a signal ended it.
        code: i32,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// A document of `sexton` is not what its schema says.
    #[error("{what} cannot be read")]
    Document {
        /// The document.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// Runs the whole demo. The node is taken down at its end, whatever happens.
///
/// # Errors
///
/// [`DemoError`] when it could not be shown to its end.
pub fn run(options: &DemoOptions, out: &mut dyn Write) -> Result<Outcome, DemoError> {
    let missing = match options.runtime {
        RuntimeKind::Containerd => crate::node::unsupported(),
        // Whoever runs this is in a user namespace already, or is root: the first failing tool says what is missing.
        RuntimeKind::Lab => None,
    };
    if let Some(why) = missing {
        return Err(DemoError::Unsupported(why));
    }
    let mut show = Show::new(out, options);
    let node = make(options, &mut show)?;
    let truth = node.truth();

    show.step("Clients outside ask once at every address")?;
    let before_probes = probe(&node, &truth.targets)?;
    show.probes(&before_probes)?;
    let before = Snapshot::take(&node)?;
    let talk: Vec<Target> = truth.working().cloned().collect();
    show.step(&format!(
        "They talk to the {} addresses that work from now on: {} new connections a second each, without retry, a long \
         stream, a UDP sequence",
        talk.len(),
        LoadOptions::default().connections
    ))?;
    let talking = Instant::now();
    let load = Load::start(&node, talk.clone(), LoadOptions::default())?;

    let said = Said::hear(&node, &mut show)?;

    std::thread::sleep(TALK.saturating_sub(talking.elapsed()));
    let load = load.stop()?;
    let after_probes = probe(&node, &truth.targets)?;
    let after = Snapshot::take(&node)?;
    show.step("The clients have stopped and asked once more at every address")?;
    show.probes(&after_probes)?;

    let mut wrong = said.disagreements(&truth);
    wrong.extend(unlike_the_truth(&before_probes));
    wrong.extend(still_broken(&after_probes));
    wrong.extend(check::gone(&truth, &before, &after));
    wrong.extend(compare::unexplained(&before, &after, &said.plan, &truth, &talk));
    show.save("snapshot-before.txt", &before.to_string())?;
    show.save("snapshot-after.txt", &after.to_string())?;
    show.save_json("lab.json", &truth)?;
    show.save_json("load.json", &load)?;
    show.save_dir("journal", &node.path(STATE).join("journal"))?;
    node.down()?;

    let outcome = Outcome {
        rules: check::rules(&truth, &said.before, &said.after),
        ports: outcome::ports(&before_probes, &after_probes),
        planned: said.plan.steps.iter().map(|step| step.findings.len()).sum(),
        traffic: said.traffic,
        not_shown: not_shown(options, &load),
        load,
        took_ms: show.elapsed().as_millis().try_into().unwrap_or(u64::MAX),
        disagreements: wrong,
    };
    show.save_json("outcome.json", &outcome)?;
    show.end(&outcome)?;
    Ok(outcome)
}

/// Where Sexton keeps its journals, in the lab's directory.
const STATE: &str = "sexton-state";

/// A node with a place for Sexton's journals.
fn up(options: &DemoOptions) -> Result<LabNode, LabError> {
    let lab = LabOptions {
        variant: options.variant,
        runtime: options.runtime,
        ..LabOptions::default()
    };
    let node = LabNode::up(&options.dir, lab)?;
    let state = node.path(STATE);
    std::fs::create_dir(&state).map_err(LabError::file("make", &state))?;
    Ok(node)
}

fn make(options: &DemoOptions, show: &mut Show<'_>) -> Result<LabNode, DemoError> {
    let runtime = match options.runtime {
        RuntimeKind::Containerd => "a real containerd",
        RuntimeKind::Lab => "the lab's own small runtime",
    };
    let iptables = match options.variant {
        Variant::Nft => "iptables-nft",
        Variant::Legacy => "iptables-legacy",
    };
    show.step(&format!(
        "A node in namespaces of its own: {runtime}, real CNI plugins, {iptables}"
    ))?;
    let node = up(options)?;
    show.step("Stale state, each kind beside something alive that looks almost the same")?;
    for fault in Fault::DEMO {
        node.fault(fault)?;
        let words = fault
            .to_possible_value()
            .and_then(|value| value.get_help().cloned());
        show.note(&words.map(|words| words.to_string()).unwrap_or_default())?;
    }
    Ok(node)
}

/// What Sexton said.
struct Said {
    before: Report,
    plan: Plan,
    after: Report,
    /// Its line about the traffic by which it proved the repair.
    traffic: String,
    repair: Ran,
}

impl Said {
    /// Runs it inside the node and shows its words.
    fn hear(node: &LabNode, show: &mut Show<'_>) -> Result<Self, DemoError> {
        let kubeconfig = [OsString::from("--kubeconfig"), node.kubeconfig().into()];
        let plan = node.path("plan.json");
        let state = node.path(STATE);
        let words = |words: &[&str]| -> Vec<OsString> {
            words
                .iter()
                .map(OsString::from)
                .chain(kubeconfig.clone())
                .collect()
        };

        let audit = show.sexton(node, "audit-1.txt", &words(&["audit"]), &[0, 1, 3])?;
        show.whole(&audit)?;
        let json = show.quietly(node, "audit-1.json", &words(&["audit", "-o", "json"]), &[0, 1, 3])?;
        let before = document("the report of the first audit", &json)?;

        let planned = words(&["plan", "--out", &plan.to_string_lossy()]);
        let planned = show.sexton(node, "plan.txt", &planned, &[0, 1, 3])?;
        show.digest(&planned)?;
        let text = std::fs::read_to_string(&plan).map_err(LabError::file("read", &plan))?;
        show.save("plan.json", &text)?;
        let plan = document("the plan", &text)?;

        let repair = words(&[
            "repair",
            "--tier",
            "1",
            "--yes",
            "--state-dir",
            &state.to_string_lossy(),
        ]);
        let repair = show.sexton(node, "repair.txt", &repair, &[0, 1, 3])?;
        show.digest(&repair)?;

        let again = show.sexton(node, "audit-2.txt", &words(&["audit"]), &[0, 1, 3])?;
        show.whole(&again)?;
        let json = show.quietly(node, "audit-2.json", &words(&["audit", "-o", "json"]), &[0, 1, 3])?;
        let after = document("the report of the second audit", &json)?;
        let traffic = show::find_line(&repair, "traffic: ").unwrap_or_else(|| "none".into());
        Ok(Self {
            before,
            plan,
            after,
            traffic,
            repair,
        })
    }

    fn disagreements(&self, truth: &Truth) -> Vec<String> {
        let all: Vec<_> = truth.expected.iter().collect();
        let reported: Vec<_> = truth
            .expected
            .iter()
            .filter(|expected| expected.action == "report")
            .collect();
        let mut wrong = check::report("the first audit", &self.before, &all, truth);
        wrong.extend(check::plan(&self.plan, &self.before, &all, truth));
        if self.repair.code != 0 {
            wrong.push(format!("repair ended with exit code {}", self.repair.code));
        }
        wrong.extend(check::report("the second audit", &self.after, &reported, truth));
        wrong
    }
}

fn document<T: serde::de::DeserializeOwned>(what: &'static str, text: &str) -> Result<T, DemoError> {
    serde_json::from_str(text).map_err(|source| DemoError::Document { what, source })
}

/// Where the lab itself is not as it wrote down.
fn unlike_the_truth(probes: &[Probe]) -> Vec<String> {
    let odd = probes.iter().filter(|probe| probe.answered != probe.target.works);
    odd.map(|probe| format!("before the repair, {}", show::answer(probe)))
        .collect()
}

fn still_broken(probes: &[Probe]) -> Vec<String> {
    let broken = probes.iter().filter(|probe| !probe.answered);
    broken
        .map(|probe| format!("after the repair, {}", show::answer(probe)))
        .collect()
}

fn not_shown(options: &DemoOptions, load: &crate::load::Summary) -> Vec<String> {
    let mut lines = Vec::new();
    if options.runtime == RuntimeKind::Lab {
        lines.push(
            "a real containerd: it needs root; the lab's own small CRI server ran the same CNI plugins"
                .into(),
        );
    }
    lines.push(
        "a real API server: a stand-in of the lab listed and watched (script/test runs a real one)".into(),
    );
    lines.push(match options.variant {
        Variant::Nft => "rules of iptables-legacy: add --variant legacy".into(),
        Variant::Legacy => "rules of iptables-nft: leave --variant legacy away".to_owned(),
    });
    let slowest = outcome::slowest(load);
    if slowest < PROMISED_RATE {
        lines.push(format!(
            "{PROMISED_RATE:.0} new connections a second to each: this machine made only {slowest:.0}"
        ));
    }
    lines
}
