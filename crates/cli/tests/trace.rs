//! `sexton trace`: the program on files.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::{fs, path::Path, process::Command};

const CAPTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../formats/src/capture/testdata/loop-200.pcap"
);

/// Exit code and output.
fn trace(arguments: &[&Path], json: bool) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sexton"));
    command.arg("trace").args(arguments).env_remove("NODE_NAME");
    if json {
        command.args(["-o", "json"]);
    }
    let output = command.output().unwrap();
    let text = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

fn owned(dir: &Path, endpoints: &str) {
    let nic = r#"{"name": "nic-0", "ipConfigurations": [{"name": "ipconfig1", "primary": true, "privateIPAddress": "10.240.0.9"},
        {"name": "ipconfig2", "privateIPAddress": "10.240.0.4"}]}"#;
    fs::write(dir.join("nic.json"), nic).unwrap();
    fs::write(dir.join("hns-endpoints.json"), endpoints).unwrap();
}

#[test]
fn a_loop_is_proved_when_the_adapter_owns_the_address_and_nobody_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let capture = Path::new(CAPTURE);
    // Alone it is unknown whose address it is.
    let (code, text) = trace(&[capture], false);
    assert_eq!(code, 3, "{text}");
    assert!(
        text.starts_with("Packets circulate for 10.240.0.4; who lives there cannot be told."),
        "{text}"
    );
    owned(dir.path(), "[]");
    let (code, text) = trace(&[capture, dir.path()], true);
    assert_eq!(code, 1, "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["schema"], "sexton.dev/trace/v1");
    assert_eq!(report["verdict"], "proved");
    assert_eq!(report["loops"][0]["address"], "10.240.0.4");
    assert_eq!(report["loops"][0]["circulating"], 7);
    assert_eq!(report["loops"][0]["flows"].as_array().unwrap().len(), 7);
    // Somebody has it.
    owned(
        dir.path(),
        r#"[{"ID": "a", "Name": "x-eth0", "IPAddress": "10.240.0.4", "State": 3}]"#,
    );
    let (code, text) = trace(&[capture, dir.path()], false);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("somebody lives there"), "{text}");
}

#[test]
fn files_that_are_no_capture_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    owned(dir.path(), "[]");
    let (code, text) = trace(&[dir.path()], false);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("no capture and no counters"), "{text}");
}
