//! The golden scenarios without the program around them: what is found, of what, with which verdict and action, and in which words. Quick enough
//! for mutation tests, which no test of the program is; `crates/cli/tests/scenarios.rs` compares the whole output.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use sexton_core::{
    finding::{Action, Finding},
    interest::Interest,
    judge::Judge,
    settings::Settings,
};
use sexton_formats::bundle::{self, BundleOptions, MemoryFiles};

/// Every file under a folder, by its path in it. What is expected of a scenario is no file of its node.
fn files(root: &Path, under: &Path, out: &mut Vec<(String, Vec<u8>)>) {
    let mut inside: Vec<PathBuf> = fs::read_dir(under).unwrap().map(|e| e.unwrap().path()).collect();
    inside.sort();
    for path in inside {
        if path.is_dir() {
            files(root, &path, out);
            continue;
        }
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if !name.starts_with("expected.") {
            out.push((name, fs::read(&path).unwrap()));
        }
    }
}

/// Verdict, action and identifier of each finding that an audit's table shows. The identifier is a hash over rule, node and object.
fn shown(expected: &str) -> BTreeSet<(String, String, String)> {
    expected
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [verdict, action @ ("repair" | "report"), id] = words[..] else {
                return None;
            };
            let is_id = id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
            is_id.then(|| (verdict.to_owned(), action.to_owned(), id.to_owned()))
        })
        .collect()
}

fn found(findings: &[Finding], node: &str) -> BTreeSet<(String, String, String)> {
    let action = |finding: &Finding| match finding.action() {
        Action::Repair => "repair",
        Action::Report => "report",
    };
    findings
        .iter()
        .map(|f| (f.verdict.to_string(), action(f).to_owned(), f.id(node)))
        .collect()
}

#[test]
fn every_scenario_is_judged_as_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut folders: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    let mut ran = 0;
    for dir in &folders {
        let name = dir.file_name().unwrap().to_str().unwrap();
        let expected = fs::read_to_string(dir.join("expected.txt")).unwrap();
        let mut read = Vec::new();
        files(dir, dir, &mut read);
        // What `sexton collect` wrote is the program's own to read; what cannot be read at all is no matter of judging.
        let other = read.iter().any(|(path, _)| path.ends_with("sexton-state.json"));
        if other || expected.ends_with("exit 2\n") {
            continue;
        }
        let options = BundleOptions {
            keep: Some(Box::new(|state| {
                let interest = Interest::new(state, Vec::new());
                Box::new(move |entry| interest.keeps(entry))
            })),
            ..BundleOptions::default()
        };
        let state = bundle::read(&mut MemoryFiles::new(read), &options).expect(name);
        let settings = Settings::default();
        let at = state.taken_at.expect(name);
        let judge = Judge::new(&state, None, &settings, at);
        let findings = judge.all();
        assert_eq!(found(&findings, &state.identity.name), shown(&expected), "{name}");
        for finding in &findings {
            let words = [Some(&finding.consequence), finding.why_not_repair.as_ref()];
            for words in words.into_iter().flatten() {
                assert!(expected.contains(words.as_str()), "{name}: {words:?}\n{expected}");
            }
            if let Some(owner) = &finding.owner {
                let owner = owner.pod_name().to_string();
                assert!(expected.contains(&owner), "{name}: {owner}\n{expected}");
            }
        }
        ran += 1;
    }
    assert!(ran + 5 >= folders.len(), "ran {ran} of {}", folders.len());
}
