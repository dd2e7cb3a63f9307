//! The program: a node that outlives the command that made it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use sexton_lab::load::Summary;
use sexton_lab::truth::Truth;
use sexton_lab::{Place, skip};

fn lab(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sexton-lab"))
        .args(words)
        .output()
        .unwrap()
}

fn good(words: &[&str]) -> String {
    let output = lab(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_node_is_made_used_and_taken_down_from_a_shell() {
    if let Some(why) = sexton_lab::unsupported() {
        return skip!("{why}");
    }
    let dir = common::dir("program");
    let dir = dir.to_str().unwrap();
    good(&["up", dir, "--node", "worker-b"]);
    assert_eq!(good(&["exec", dir, "--", "hostname"]).trim(), "worker-b");
    let refused = lab(&["up", dir]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("is not empty"),
        "{refused:?}"
    );

    good(&["fault", dir, "npl"]);
    let truth = Truth::load(&Place::new(dir).unwrap()).unwrap();
    assert_eq!(truth.faults, ["npl"]);
    let snapshot = good(&["snapshot", dir]);
    assert!(
        truth
            .expected
            .iter()
            .all(|expected| expected.contains.iter().all(|word| snapshot.contains(word)))
    );
    let probes = lab(&["probe", dir]);
    assert_eq!(probes.status.code(), Some(1), "four ports are broken");
    let text = String::from_utf8(probes.stdout).unwrap();
    assert_eq!(
        text.lines().filter(|line| line.ends_with(" ok")).count(),
        6,
        "{text}"
    );

    let file = format!("{dir}/load.json");
    good(&["load", dir, "--for", "1.5s", "--out", &file]);
    let summary: Summary = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(summary.failed, 0);
    assert!(summary.requests > 900, "{summary:?}");

    good(&["runtime", dir, "crash"]);
    let gap = good(&["snapshot", dir]);
    assert!(gap.contains("unavailable"), "{gap}");
    good(&["runtime", dir, "start"]);
    good(&["api", dir, "pods", "forbidden"]);
    good(&["api", dir]);
    good(&["down", dir]);
    assert!(!Path::new(dir).exists());
    assert_eq!(
        lab(&["down", dir]).status.code(),
        Some(2),
        "there is nothing to take down"
    );
}

#[test]
fn a_node_whose_keeper_was_killed_is_taken_down_all_the_same() {
    if let Some(why) = sexton_lab::unsupported() {
        return skip!("{why}");
    }
    let dir = common::dir("orphan");
    let dir = dir.to_str().unwrap();
    good(&["up", dir]);
    let init = std::fs::read_link(format!("{dir}/ns/root")).unwrap();
    let find = Command::new("pgrep")
        .args(["-f", &format!("sexton-lab keep {dir} ")])
        .output()
        .unwrap();
    let pid = String::from_utf8(find.stdout).unwrap();
    assert!(
        Command::new("kill")
            .args(["-9", pid.trim()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(lab(&["fault", dir, "npl"]).status.code(), Some(2));
    assert!(init.exists(), "the node is still there");
    good(&["down", dir]);
    assert!(!init.exists() && !Path::new(dir).exists());
}
