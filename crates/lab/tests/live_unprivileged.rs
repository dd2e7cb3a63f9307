//! A node without root: the program in a user namespace, with the lab's own runtime and the real CNI plugins.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test's helpers fail the test"
)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use sexton_lab::load::Summary;
use sexton_lab::skip;
use sexton_lab::snapshot::Snapshot;
use sexton_lab::truth::Truth;

/// The user that root turns into for this test: nobody's number on Debian.
const NOBODY: &str = "65534";

/// The program as a user who is not root runs it, from a place where every user can.
struct Program(PathBuf);

impl Program {
    fn new() -> Self {
        let dir = common::dir("bin");
        std::fs::create_dir(&dir).unwrap();
        let program = dir.join("sexton-lab");
        std::fs::copy(env!("CARGO_BIN_EXE_sexton-lab"), &program).unwrap();
        Self(program)
    }

    fn run(&self, words: &[&str]) -> Output {
        let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
        let mut command = if root {
            let mut setpriv = Command::new("setpriv");
            setpriv.args([
                "--reuid",
                NOBODY,
                "--regid",
                NOBODY,
                "--clear-groups",
                "--bounding-set",
                "-all",
                "--",
            ]);
            setpriv.arg(&self.0);
            setpriv
        } else {
            Command::new(&self.0)
        };
        command.args(words).current_dir("/").output().unwrap()
    }

    fn good(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

#[test]
fn a_node_without_root_has_all_the_faults() {
    if let Some(why) = sexton_lab::unprivileged_unsupported() {
        return skip!("{why}");
    }
    let program = Program::new();
    let dir = common::dir("rootless");
    let dir = dir.to_str().unwrap();
    let start = Instant::now();
    program.good(&["up", dir, "--unprivileged"]);
    println!("up {:?}", start.elapsed());
    let start = Instant::now();
    program.good(&["fault", dir, "--all"]);
    println!("faults {:?}", start.elapsed());

    let truth = Truth::load(&sexton_lab::Place::new(dir).unwrap()).unwrap();
    assert_eq!(truth.faults.len(), sexton_lab::Fault::ALL.len());
    let snapshot = program.good(&["snapshot", dir]);
    let lines = snapshot.lines().map(str::to_owned).collect();
    let seen = Snapshot {
        sections: [("all".to_owned(), lines)].into(),
    };
    for expected in truth
        .expected
        .iter()
        .filter(|expected| expected.rule != "zombie-sandbox")
    {
        let is_unit = expected.rule == "hostport-stale-target";
        let parts = expected.contains.iter().all(|word| seen.holds(&[word]));
        assert!(
            seen.holds(&expected.contains) || (is_unit && parts),
            "not there: {expected:?}\n{snapshot}"
        );
    }
    let probes: Vec<serde_json::Value> =
        serde_json::from_slice(&program.run(&["probe", dir, "--json"]).stdout).unwrap();
    assert_eq!(probes.len(), truth.targets.len());
    for probe in &probes {
        assert_eq!(probe["answered"], probe["works"], "{probe}");
    }
    let file = format!("{dir}/load.json");
    program.good(&["load", dir, "--for", "1.5s", "--out", &file]);
    let summary: Summary = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(summary.failed, 0, "{summary:?}");

    program.good(&["down", dir]);
    assert!(!Path::new(dir).exists());
}
