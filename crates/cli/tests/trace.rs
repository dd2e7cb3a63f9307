//! `sexton trace` from outside: the incident's published figures, the formats, and bad input.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use sexton_formats::capture::made::{self, Segment};

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios")
        .join(name)
}

fn trace(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sexton"))
        .arg("trace")
        .args(args)
        .env("NO_COLOR", "1")
        .env_remove("NODE_NAME")
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = trace(&[args, &["-o", "json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|err| {
        panic!(
            "{err}: {}{}",
            text(&output),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// A capture in which each flow's one packet goes round so many times, evenly over so many seconds; beside what tells that the
/// address is nobody's.
fn circulating(dir: &Path, flows: &[u32], seconds: u64) -> String {
    let mut records: Vec<(u64, u16)> = Vec::new();
    for (flow, packets) in (0_u16..).zip(flows) {
        let gap = seconds * 1_000_000_000 / u64::from(*packets);
        records.extend((0..u64::from(*packets)).map(|n| (n * gap + u64::from(flow) * 1_000, flow)));
    }
    records.sort_unstable();
    let mut bytes = made::pcap_header(1);
    for (at, flow) in records {
        let frame = Segment::reset(51_022 + flow).frame();
        made::pcap_record(&mut bytes, 1_786_000_000_000_000_000 + at, &frame, 60);
    }
    fs::write(dir.join("capture.pcap"), bytes).unwrap();
    for name in ["nic.json", "hns-endpoints.json", "pods.json", "meta.json"] {
        fs::copy(scenario("packet-loop-positive").join(name), dir.join(name)).unwrap();
    }
    dir.display().to_string()
}

#[test]
fn the_first_clusters_capture_as_it_was_published() {
    // 145,294 packets of 7 flows in 8 seconds; the busiest had 25,739, 25,388 and 25,388.
    let flows = [25_739, 25_388, 25_388, 17_195, 17_195, 17_195, 17_194];
    assert_eq!(flows.iter().sum::<u32>(), 145_294);
    let dir = tempfile::tempdir().unwrap();
    let report = json(&[&circulating(dir.path(), &flows, 8)]);
    assert_eq!(report["verdict"], "proved");
    let loops = report["loops"].as_array().unwrap();
    assert_eq!(loops.len(), 1);
    let found = &loops[0];
    assert_eq!(
        (&found["address"], &found["packets"]),
        (&Value::from("10.240.1.77"), &Value::from(145_294))
    );
    let packets: Vec<u64> = found["flows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flow| flow["packets"].as_u64().unwrap())
        .collect();
    assert_eq!(packets, flows.map(u64::from));
    let rate = found["packets_per_second"].as_f64().unwrap();
    assert!((rate - 145_294.0 / 8.0).abs() < 20.0, "{rate}");
    // One packet a flow: the incident may have had no more.
    assert_eq!(found["circulating"], 7);
    assert_eq!(found["ttl_falls"], false);
}

#[test]
fn the_second_clusters_capture_as_it_was_published() {
    // 61,224 packets in 5 seconds to one address.
    let dir = tempfile::tempdir().unwrap();
    let report = json(&[&circulating(dir.path(), &[20_408, 20_408, 20_408], 5)]);
    let found = &report["loops"][0];
    assert_eq!(
        (&report["verdict"], &found["address"], &found["packets"]),
        (
            &Value::from("proved"),
            &Value::from("10.240.1.77"),
            &Value::from(61_224)
        )
    );
    let rate = found["packets_per_second"].as_f64().unwrap();
    assert!((rate - 61_224.0 / 5.0).abs() < 20.0, "{rate}");
}

#[test]
fn the_counters_as_they_were_published() {
    let report = json(&[scenario("packet-loop-positive-counters").to_str().unwrap()]);
    assert_eq!(report["verdict"], "suspected");
    let counters = &report["counters"][0];
    let pair = &counters["pairs"][0];
    let near = |value: &Value, wanted: f64| {
        let value = value.as_f64().unwrap();
        assert!((value - wanted).abs() <= wanted * 0.001, "{value} {wanted}");
    };
    near(&pair["received"], 177_859.0);
    near(&pair["sent"], 177_990.0);
    near(&counters["switch"], 335_912.0);
    assert_eq!(counters["one_sided_cores"], true);
    let cores: Vec<i64> = counters["cores"]
        .as_array()
        .unwrap()
        .iter()
        .map(|core| core["percent"].as_f64().unwrap().round() as i64)
        .collect();
    assert_eq!(cores, [91, 0, 72, 0, 86, 0, 67, 0]);
    // A healthy node of the same pool.
    let healthy = scenario("packet-loop-negative-counters-healthy");
    let output = trace(&[healthy.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(json(&[healthy.to_str().unwrap()])["verdict"], Value::Null);
}

#[test]
fn every_format_answers_first() {
    let case = scenario("i1-rst-loop-pktmon");
    let case = case.to_str().unwrap();
    let answer = "Packets circulate on node akswnp00002f for 10.240.1.77, where nobody lives: 4 flows, 45418 packets a second.";
    assert!(text(&trace(&[case])).starts_with(answer));
    let report = json(&["--bundle", case]);
    assert_eq!(
        (&report["schema"], &report["answer"]),
        (&Value::from("sexton.dev/trace/v1"), &Value::from(answer))
    );
    let markdown = text(&trace(&[case, "-o", "markdown"]));
    assert!(markdown.contains(&format!("**{answer}**")), "{markdown}");
    let html = text(&trace(&[case, "-o", "html"]));
    assert!(
        html.contains(answer) && html.matches("<svg").count() == 3,
        "{html}"
    );
    // Nothing comes from elsewhere.
    for outside in ["http:", "https:", "src=", "href=", "@import", "url(", "<script"] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn bad_input_is_named_with_its_place_and_the_rest_is_used() {
    for (case, place, what, code) in [
        (
            "bad-capture-cut-off",
            "capture.pcap: byte 9068",
            "cut off inside of a record",
            1,
        ),
        (
            "bad-capture-random",
            "capture.pcap: byte 0",
            "found something else",
            3,
        ),
        (
            "bad-capture-packet-of-4-gb",
            "capture.pcap: byte 1924",
            "4294967295 bytes",
            1,
        ),
        (
            "bad-capture-times-go-backwards",
            "capture.pcap: byte 100",
            "goes backwards",
            1,
        ),
        ("bad-counters-cut-off", "counters.csv:6", "the row is cut off", 1),
        ("bad-nic-list", "nic.json:1", "the JSON is cut off", 3),
    ] {
        let output = trace(&[scenario(case).to_str().unwrap()]);
        let said = text(&output);
        assert!(
            said.lines()
                .any(|line| line.contains(place) && line.contains(what)),
            "{case}: {said}"
        );
        assert_eq!(output.status.code(), Some(code), "{case}: {said}");
    }
    let empty = tempfile::tempdir().unwrap();
    let output = trace(&[empty.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no capture and no counters were given"));
    let strange = trace(&[scenario("packet-loop-negative-nic-list-of-another-node")
        .to_str()
        .unwrap()]);
    assert_eq!(strange.status.code(), Some(3));
    assert!(
        text(&strange).contains("list of this node's own adapters"),
        "{}",
        text(&strange)
    );
}
