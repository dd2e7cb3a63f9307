//! The program from outside: exit codes, formats, bad input, and what people look for in a tool of this kind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios")
        .join(name)
}

fn sexton<I, S>(args: I) -> Output
where
    I: IntoIterator<Item = S>,
    S: AsRef<std::ffi::OsStr>,
{
    let mut command = Command::new(env!("CARGO_BIN_EXE_sexton"));
    command
        .args(args)
        .env("NO_COLOR", "1")
        .env_remove("NODE_NAME")
        .env_remove("KUBECONFIG");
    command.output().unwrap()
}

fn audit(bundle: &Path, more: &[&str]) -> Output {
    let mut args = vec!["audit", "--bundle", bundle.to_str().unwrap()];
    args.extend(more);
    sexton(args)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn exit_codes_say_found_unknown_and_could_not() {
    assert_eq!(code(&audit(&scenario("npl-stale-8port"), &[])), 1);
    assert_eq!(
        code(&audit(&scenario("npl-healthy"), &[])),
        3,
        "nothing found, and sources are missing"
    );
    let whole = audit(&scenario("npl-healthy"), &["--rule", "npl-stale-target"]);
    assert_eq!(
        code(&whole),
        0,
        "all that this rule needs was read: {}",
        out(&whole)
    );
    let nowhere = audit(Path::new("/nonexistent.tar.gz"), &[]);
    assert_eq!(code(&nowhere), 2);
    assert_eq!(
        err(&nowhere),
        "error: cannot open the bundle /nonexistent.tar.gz\n  because No such file or directory (os error 2)\n"
    );
    assert_eq!(code(&sexton(["audit", "--no-such-flag"])), 2);
    assert_eq!(code(&sexton(["repair"])), 2);
    let recorded = sexton([
        "repair",
        "--tier",
        "1",
        "--yes",
        "--bundle",
        scenario("npl-stale-8port").to_str().unwrap(),
    ]);
    assert_eq!(code(&recorded), 2);
    assert!(
        err(&recorded).contains("a recording cannot be repaired"),
        "{}",
        err(&recorded)
    );
}

#[test]
fn a_rule_that_does_not_exist_is_answered_with_those_that_do() {
    let wrong = audit(&scenario("npl-healthy"), &["--rule", "npl-stale"]);
    assert_eq!(code(&wrong), 2);
    assert!(
        err(&wrong).contains("there is no rule \"npl-stale\"; there are: "),
        "{}",
        err(&wrong)
    );
    assert!(err(&wrong).contains("npl-stale-target"));
}

#[test]
fn kubeconfig_in_the_environment_does_not_stand_in_a_bundles_way() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sexton"));
    command
        .args(["audit", "--bundle"])
        .arg(scenario("npl-stale-8port"))
        .env("KUBECONFIG", "/nonexistent");
    assert_eq!(code(&command.output().unwrap()), 1);
}

#[test]
fn a_bundle_of_another_node_is_refused_by_name() {
    let other = audit(&scenario("npl-stale-8port"), &["--node", "worker-b"]);
    assert_eq!(code(&other), 2);
    assert!(
        err(&other).contains("worker-a") && err(&other).contains("worker-b"),
        "{}",
        err(&other)
    );
}

#[test]
fn every_format_tells_the_same_findings() {
    let bundle = scenario("npl-stale-8port");
    let json: Value = serde_json::from_slice(&audit(&bundle, &["-o", "json"]).stdout).unwrap();
    assert_eq!(json["schema"], "sexton.dev/report/v1");
    let findings = json["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 11);
    assert_eq!(json["summary"]["by_verdict"]["stale"], 11);
    assert_eq!(
        json["summary"]["objects"].as_u64().unwrap() - 11,
        json["summary"]["live"].as_u64().unwrap()
    );
    for format in ["table", "markdown", "html"] {
        let text = out(&audit(&bundle, &["-o", format]));
        for finding in findings {
            let line = finding["object"]["text"].as_str().unwrap();
            let shown = line
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('"', "&quot;");
            assert!(
                text.contains(line) || text.contains(&shown),
                "{format} lacks {line}"
            );
        }
    }
    let html = out(&audit(&bundle, &["-o", "html"]));
    for foreign in ["<script", "http://", "https://", "src="] {
        let own = html.replace("src=172", "").replace("src=10", "");
        assert!(!own.contains(foreign), "a self-contained page has no {foreign}");
    }
}

#[test]
fn what_the_input_says_cannot_become_markup() {
    let dir = tempfile::tempdir().unwrap();
    for file in fs::read_dir(scenario("npl-stale-8port")).unwrap() {
        let file = file.unwrap().path();
        fs::copy(&file, dir.path().join(file.file_name().unwrap())).unwrap();
    }
    let pods = dir.path().join("pods.json");
    let text = fs::read_to_string(&pods)
        .unwrap()
        .replace("\"name\": \"relay-1\"", "\"name\": \"<b>|`x`\"");
    fs::write(&pods, text).unwrap();
    assert!(!out(&audit(dir.path(), &["-o", "html"])).contains("<b>"));
    assert!(!out(&audit(dir.path(), &["-o", "markdown"])).contains("<b>|"));
}

#[test]
fn a_report_goes_to_a_file_whole_and_without_colours() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.md");
    let done = audit(
        &scenario("npl-stale-8port"),
        &["-o", "markdown", "--out", file.to_str().unwrap()],
    );
    assert_eq!((code(&done), out(&done).as_str()), (1, ""));
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .starts_with("# Node worker-a\n")
    );
    let lost = audit(&scenario("npl-healthy"), &["--out", "/nonexistent/report"]);
    assert_eq!(code(&lost), 2);
}

#[test]
fn a_plan_of_a_recording_is_for_reading_and_a_broken_plan_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.json");
    let bundle = scenario("npl-stale-8port");
    let made = sexton([
        "plan",
        "--bundle",
        bundle.to_str().unwrap(),
        "--out",
        file.to_str().unwrap(),
    ]);
    assert_eq!(code(&made), 1);
    let text = out(&made);
    assert_eq!(text.matches("no step npl-stale-target: ").count(), 1, "{text}");
    assert_eq!(text.matches("\n  -A ANTREA-NODE-PORT-LOCAL").count(), 7, "{text}");
    assert!(text.contains("\nwritten to "), "{text}");
    assert!(
        !text.contains("sexton repair"),
        "it cannot be carried out: {text}"
    );
    let plan: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(
        (plan["schema"].as_str(), plan["live"].as_bool()),
        (Some("sexton.dev/plan/v1"), Some(false))
    );
    fs::write(&file, "{\"schema\": 1}").unwrap();
    let broken = sexton(["repair", "--plan", file.to_str().unwrap(), "--yes"]);
    assert_eq!(code(&broken), 2);
    assert!(
        err(&broken).starts_with("error: cannot use the plan "),
        "{}",
        err(&broken)
    );
}

#[test]
fn archives_are_read_like_the_folder_and_bombs_and_escapes_are_not() {
    let folder = scenario("npl-stale-8port");
    let expected = out(&audit(&folder, &["-o", "json"]));
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("bundle.tar.gz");
    let encoder =
        flate2::write::GzEncoder::new(fs::File::create(&archive).unwrap(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(encoder);
    tar.append_dir_all("some/where/deep", &folder).unwrap();
    tar.into_inner().unwrap().finish().unwrap();
    let read: Value = serde_json::from_slice(&audit(&archive, &["-o", "json"]).stdout).unwrap();
    let ids = |report: &Value| -> Vec<String> {
        report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| f["id"].to_string())
            .collect()
    };
    assert_eq!(ids(&read), ids(&expected));

    let bomb = dir.path().join("bomb.tar.gz");
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
        fs::File::create(&bomb).unwrap(),
        flate2::Compression::best(),
    ));
    let mut header = tar::Header::new_gnu();
    let size = 80 << 20;
    header.set_size(size);
    header.set_mode(0o600);
    tar.append_data(&mut header, "conntrack.txt", std::io::repeat(b' ').take(size))
        .unwrap();
    tar.into_inner().unwrap().finish().unwrap();
    let refused = audit(&bomb, &[]);
    let said = out(&refused) + &err(&refused);
    assert!(said.contains("zip bomb"), "{said}");

    let escape = dir.path().join("escape.tar");
    let mut tar = tar::Builder::new(fs::File::create(&escape).unwrap());
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..13].copy_from_slice(b"../pods.jsonX");
    header.set_size(2);
    header.set_cksum();
    tar.append(&header, &b"{}"[..]).unwrap();
    tar.into_inner().unwrap().flush().unwrap();
    let refused = audit(&escape, &[]);
    let said = out(&refused) + &err(&refused);
    assert!(said.contains("../pods.json"), "{said}");
    assert!(!dir.path().parent().unwrap().join("pods.jsonX").exists());
}

use std::io::Read as _;

#[test]
fn every_rule_has_its_page() {
    for rule in sexton_core::rules::ALL {
        let page = sexton(["explain", rule.id]);
        assert_eq!(code(&page), 0);
        let text = out(&page);
        assert!(text.starts_with(rule.id), "{text}");
        for part in [
            "What you see",
            "When Sexton says so",
            "What a repair does",
            "By hand",
        ] {
            assert!(text.contains(part), "{} lacks {part:?}", rule.id);
        }
    }
}

#[test]
fn an_address_is_explained_with_everything_that_names_it() {
    let bundle = scenario("npl-stale-8port");
    let bundle = bundle.to_str().unwrap();
    let dead = out(&sexton(["explain", "10.10.1.23", "--bundle", bundle]));
    assert!(
        dead.starts_with("Nobody of this node lives at 10.10.1.23."),
        "{dead}"
    );
    assert_eq!(dead.matches("stale (npl-stale-target)").count(), 7, "{dead}");
    // TCP connections are shown too, though no rule judges them.
    assert_eq!(dead.matches("SYN_SENT").count(), 4, "{dead}");
    let alive = out(&sexton(["explain", "10.10.1.40", "--bundle", bundle]));
    assert!(
        alive.starts_with("10.10.1.40 is alive: Pod voice/relay-1 "),
        "{alive}"
    );
    assert!(alive.contains("--to-destination 10.10.1.40:5067"), "{alive}");
    let service = out(&sexton(["explain", "10.96.201.33", "--bundle", bundle]));
    assert!(
        service.starts_with("10.96.201.33 is an address of Service voice/"),
        "{service}"
    );
    let nothing = sexton(["explain", "what-is-this"]);
    assert_eq!(code(&nothing), 2);
}

/// Both lives of a Pod that was made again: where it is now, and what was its own before.
#[test]
fn a_pod_is_explained_by_its_name() {
    let bundle = scenario("demo-node");
    let bundle = bundle.to_str().unwrap();
    let text = out(&sexton(["explain", "voice/relay-1", "--bundle", bundle]));
    let answers: Vec<&str> = text
        .lines()
        .filter(|line| line.ends_with("(7b2f106f-a6cb-4a68-8428-3cd05e07ae2e)."))
        .collect();
    let address = "10.10.1.4 is alive: Pod voice/relay-1 (7b2f106f-a6cb-4a68-8428-3cd05e07ae2e).";
    let container = "a25501ef9b038f8256c0268e9dac6b9e59af09572ac4c9c1cc1fd9cad9a1d5c6 is alive: Pod voice/relay-1 \
                     (7b2f106f-a6cb-4a68-8428-3cd05e07ae2e).";
    assert_eq!(answers, [address, container]);
    assert!(!text.contains("127.0.0.1 is"), "{text}");
    let before = "\n4 findings on what was this Pod's before\n  xt-rule\n    -A ANTREA-NODE-PORT-LOCAL";
    assert!(text.contains(before), "{text}");

    let json = sexton(["explain", "voice/relay-1", "-o", "json", "--bundle", bundle]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["schema"], "sexton.dev/explain/v1");
    let standing: Vec<&str> = json["places"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| place["standing"].as_str().unwrap())
        .collect();
    assert_eq!(standing, ["live", "live"]);
    let rules: Vec<&str> = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["rule"].as_str().unwrap())
        .collect();
    assert_eq!(rules, ["npl-stale-target"; 4]);

    let nobody = sexton(["explain", "voice/relay-9", "--bundle", bundle]);
    assert_eq!(code(&nobody), 2);
    let said = String::from_utf8_lossy(&nobody.stderr);
    assert!(
        said.contains("no source of node worker-a knows a Pod voice/relay-9"),
        "{said}"
    );
}

#[test]
fn the_twelve_digits_of_a_container_that_crictl_prints_are_enough() {
    let bundle = scenario("ipam-lease-dead-sandbox-positive");
    let bundle = bundle.to_str().unwrap();
    let report = sexton(["audit", "-o", "json", "--bundle", bundle]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let lease = report["findings"][0]["object"]["lease"]["container"].as_str();
    let whole = lease.expect("a lease is found");
    assert_eq!(whole.len(), 64);
    let long = out(&sexton(["explain", whole, "--bundle", bundle]));
    let short = out(&sexton(["explain", &whole[..12], "--bundle", bundle]));
    assert!(
        short.starts_with(&format!("Nobody of this node lives in container {whole}.")),
        "{short}"
    );
    assert_eq!(short, long);
}

#[test]
fn finding_nothing_where_much_was_not_read_is_no_all_clear() {
    let dir = tempfile::tempdir().unwrap();
    let whole = scenario("npl-stale-8port");
    let none = r#"{"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []}"#;
    fs::write(dir.path().join("pods.json"), none).unwrap();
    fs::write(dir.path().join("meta.json"), r#"{"node": "worker-a"}"#).unwrap();
    for format in ["table", "markdown", "html"] {
        let blind = audit(dir.path(), &["-o", format]);
        assert_eq!(code(&blind), 3);
        assert!(out(&blind).contains("this is no all-clear"), "{}", out(&blind));
    }
    let seen = audit(&whole, &["--rule", "npl-missing-mapping"]);
    assert_eq!(code(&seen), 0, "{}", out(&seen));
    assert!(!out(&seen).contains("all-clear"), "{}", out(&seen));
}

#[test]
fn a_form_that_a_plan_cannot_have_is_refused_and_not_passed_over() {
    for command in ["plan", "repair"] {
        let asked = sexton([command, "--tier", "1", "-o", "html"]);
        assert_eq!(code(&asked), 2);
        assert!(
            err(&asked).contains("[possible values: table, json]"),
            "{}",
            err(&asked)
        );
    }
}

#[test]
fn completions_and_manual_pages_come_from_the_same_definitions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = out(&sexton(["completions", shell]));
        for word in [
            "audit",
            "repair",
            "undo",
            "collect",
            "explain",
            "--bundle",
            "--no-probe",
        ] {
            let bare = word.trim_start_matches('-');
            assert!(text.contains(bare), "{shell} lacks {word}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(code(&sexton(["man", dir.path().to_str().unwrap()])), 0);
    let mut pages: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    for page in [
        "sexton.1",
        "sexton-audit.1",
        "sexton-repair.1",
        "sexton-undo.1",
        "sexton-collect.1",
    ] {
        assert!(pages.iter().any(|p| p == page), "{pages:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    use std::process::Stdio;
    let mut child = Command::new(env!("CARGO_BIN_EXE_sexton"))
        .args(["audit", "-o", "json", "--bundle"])
        .arg(scenario("npl-stale-8port"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    child.wait().unwrap();
}
