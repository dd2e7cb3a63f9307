//! Golden scenarios: every folder of `scenarios/` is a recorded node. The program's own output on it is `expected.txt`;
//! `script/bless` writes that file anew. A folder that also holds `expected.json` names findings that must and must not come,
//! in the words of the case's author.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(root()).expect("scenarios/");
    let mut dirs: Vec<PathBuf> = entries
        .map(|e| e.unwrap().path())
        .filter(|p| p.is_dir())
        .collect();
    dirs.sort();
    dirs
}

fn sexton(args: &[&str], bundle: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sexton"))
        .args(args)
        .arg("--bundle")
        .arg(bundle)
        .env("NO_COLOR", "1")
        .env_remove("NODE_NAME")
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

/// What a person sees: standard output, and the exit code.
fn seen(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = if complaint.is_empty() {
        String::new()
    } else {
        format!("stderr: {complaint}")
    };
    format!("{text}{complaint}exit {}\n", output.status.code().unwrap())
}

#[test]
fn every_scenario_prints_what_is_expected() {
    let bless = std::env::var_os("SEXTON_BLESS").is_some();
    let (mut ran, mut wrong) = (0, Vec::new());
    for dir in folders() {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let got = seen(&sexton(&["audit"], &dir)).replace(&dir.display().to_string(), "BUNDLE");
        let file = dir.join("expected.txt");
        if bless {
            fs::write(&file, &got).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if got != expected {
            wrong.push(format!("--- {name}: expected\n{expected}--- {name}: got\n{got}"));
        }
        ran += 1;
    }
    assert!(
        ran >= 2 * 14,
        "a positive and a hard negative for each of fourteen rules; ran {ran}"
    );
    assert!(
        wrong.is_empty(),
        "{} of {ran} scenarios differ; script/bless accepts them\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_rule_has_a_scenario_that_it_finds_and_one_that_it_does_not() {
    let mut found: std::collections::BTreeMap<&str, (u32, u32)> = Default::default();
    for rule in sexton_core::rules::ALL {
        let (mut positive, mut negative) = (0, 0);
        for dir in folders() {
            let name = dir.file_name().unwrap().to_string_lossy().into_owned();
            // `<rule>-positive...` and `<rule>-negative...`: the pairs. Other names are whole stories.
            let Some(kind) = name.strip_prefix(rule.id) else {
                continue;
            };
            let report: Value =
                serde_json::from_slice(&sexton(&["audit", "-o", "json"], &dir).stdout).unwrap();
            let hits = findings(&report)
                .filter(|f| f["rule"] == rule.id && f["verdict"] != "unknown")
                .count();
            if kind.starts_with("-positive") {
                assert!(hits > 0, "{name} finds nothing");
                positive += 1;
            } else if kind.starts_with("-negative") {
                assert_eq!(hits, 0, "{name}");
                assert!(report["summary"]["objects"].as_u64() > Some(0), "{name} is blind");
                negative += 1;
            }
        }
        found.insert(rule.id, (positive, negative));
    }
    let lacking: Vec<_> = found.iter().filter(|(_, (p, n))| *p == 0 || *n == 0).collect();
    assert!(lacking.is_empty(), "rules without a pair: {lacking:?}");
}

fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().unwrap().iter()
}

/// Words in lower case with `-` and `:` equal, padded so that whole words are found.
fn words(text: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || "._-:/".contains(c);
    let parts: String = text
        .chars()
        .map(|c| if word(c) { c.to_ascii_lowercase() } else { ' ' })
        .collect();
    let parts: Vec<String> = parts.split_whitespace().map(|w| w.replace(':', "-")).collect();
    format!(" {} ", parts.join(" "))
}

/// True if `part` is in `text` as whole words: its ends touch no letter, digit or dot.
fn holds(text: &str, part: &str) -> bool {
    let (text, part) = (words(text), words(part));
    let part = part.trim();
    let glued = |c: char| c.is_alphanumeric() || c == '.';
    text.match_indices(part).any(|(at, _)| {
        let before = text[..at].chars().next_back().unwrap_or(' ');
        let after = text[at + part.len()..].chars().next().unwrap_or(' ');
        let starts = part.chars().next().is_some_and(glued);
        let ends = part.chars().next_back().is_some_and(glued);
        !((starts && glued(before)) || (ends && glued(after)))
    })
}

fn strings<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    value[key]
        .as_array()
        .into_iter()
        .flatten()
        .map(|v| v.as_str().unwrap())
}

#[test]
fn every_case_comes_out_as_its_author_expects() {
    let mut ran = 0;
    for dir in folders().into_iter().filter(|d| d.join("expected.json").exists()) {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let case: Value = serde_json::from_slice(&fs::read(dir.join("expected.json")).unwrap()).unwrap();
        let report: Value = serde_json::from_slice(&sexton(&["audit", "-o", "json"], &dir).stdout).unwrap();
        let plan: Value = serde_json::from_slice(&sexton(&["plan", "-o", "json"], &dir).stdout).unwrap();
        for expected in case["expect"].as_array().into_iter().flatten() {
            let verdicts: Vec<&str> = expected["verdict"].as_str().unwrap().split('|').collect();
            let hit = findings(&report).any(|f| {
                f["rule"] == expected["rule"]
                    && verdicts.contains(&f["verdict"].as_str().unwrap())
                    && strings(expected, "object_contains").all(|s| holds(&f["object"].to_string(), s))
            });
            assert!(hit, "{name}: not found: {expected}");
        }
        for finding in findings(&report) {
            let verdict = finding["verdict"].as_str().unwrap();
            let acts = ["stale", "proved"].contains(&verdict)
                || (finding["action"] == "repair" && verdict != "missing");
            let object = finding["object"].to_string();
            for alive in strings(&case, "must_not_be_stale").filter(|_| acts) {
                assert!(
                    !holds(&object, alive),
                    "{name}: {alive} is alive and in {finding}"
                );
            }
            assert!(
                !(case["no_stale"] == true && verdict == "stale"),
                "{name}: {finding}"
            );
            assert!(
                verdict != "unknown" || case["allow_extra_unknown"] == true,
                "{name}: {finding}"
            );
            for forbidden in case["forbid"].as_array().into_iter().flatten() {
                let hit = finding["rule"] == forbidden["rule"]
                    && strings(forbidden, "object_contains").all(|s| holds(&object, s));
                assert!(!hit, "{name}: {finding}");
            }
        }
        for step in plan["steps"].as_array().unwrap() {
            for alive in strings(&case, "must_not_touch") {
                assert!(
                    !holds(&step["act"].to_string(), alive),
                    "{name}: a step names {alive}: {step}"
                );
            }
        }
        ran += 1;
    }
    assert!(ran >= 5, "ran {ran}");
}
