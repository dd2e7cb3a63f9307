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

/// A node of a fleet: counters at this rate, and what kind of machine it is.
fn fleet_node(dir: &Path, name: &str, rate: f64, build: &str, size: &str) {
    let folder = dir.join(name);
    fs::create_dir(&folder).unwrap();
    let host = name.to_uppercase();
    let path =
        |adapter: &str, way: &str| format!(r#""\\{host}\Network Interface({adapter})\Packets {way}/sec""#);
    let mut counters = format!(
        "\r\n\"(PDH-CSV 4.0)\",{},{}\r\n",
        path("Microsoft Hyper-V Network Adapter _2", "Received"),
        path("Mellanox ConnectX-4 Lx Virtual Ethernet Adapter", "Sent")
    );
    for second in 0..5 {
        counters += &format!(
            "\"03/05/2024 09:00:{:02}.113\",\"{rate:.3}\",\"{:.3}\"\r\n",
            second * 2,
            rate * 1.001
        );
    }
    fs::write(folder.join("counters.csv"), counters).unwrap();
    let meta = serde_json::json!({"node": name, "taken_at": "2024-03-05T09:00:30Z",
        "traits": {"OS build": build, "VM size": size, "NIC driver": "23.4.26054.1"}});
    fs::write(folder.join("meta.json"), meta.to_string()).unwrap();
}

#[test]
fn a_fleet_is_ranked_and_the_sick_are_compared_with_the_healthy() {
    // The incident: 18 of 138 nodes, one image against another.
    let dir = tempfile::tempdir().unwrap();
    for n in 0..138_u32 {
        let sick = n % 8 == 3 || n == 0;
        let rate = if sick {
            18_000.0 + f64::from(n) * 1_000.0
        } else {
            27.5
        };
        let size = if n % 2 == 0 { "D8d_v4" } else { "E8as_v4" };
        fleet_node(
            dir.path(),
            &format!("akswnp{n:06}"),
            rate,
            if sick { "20348.5139" } else { "20348.5020" },
            size,
        );
    }
    fs::write(dir.path().join("broken.csv"), "not counters").unwrap();
    let args = ["--fleet", dir.path().to_str().unwrap()];
    let report = json(&args);
    assert_eq!(
        report["answer"],
        "139 nodes: 0 in a loop, 18 suspected, 1 unknown, 120 healthy."
    );
    let nodes = report["nodes"].as_array().unwrap();
    // The busiest first, the healthy last.
    assert_eq!(
        (&nodes[0]["node"], &nodes[0]["class"]),
        (&Value::from("akswnp000131"), &Value::from("suspected"))
    );
    assert_eq!(
        (&nodes[18]["node"], &nodes[18]["class"]),
        (&Value::from("broken"), &Value::from("unknown"))
    );
    assert_eq!(nodes[138]["class"], "healthy");
    let first = &report["common"][0];
    assert_eq!(
        (
            &first["name"],
            &first["value"],
            &first["sick"],
            &first["sick_of"],
            &first["healthy"],
            &first["healthy_of"]
        ),
        (
            &"OS build".into(),
            &"20348.5139".into(),
            &18.into(),
            &18.into(),
            &0.into(),
            &120.into()
        )
    );
    assert_eq!(report["too_small"], Value::Null);
    for format in ["table", "markdown", "html"] {
        let output = trace(&[&args[..], &["-o", format]].concat());
        assert!(
            text(&output).contains("20348.5139") && text(&output).contains("18 of 18"),
            "{format}"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_small_fleet_says_that_it_is_small() {
    let dir = tempfile::tempdir().unwrap();
    fleet_node(dir.path(), "akswnp000001", 60_000.0, "20348.5139", "D8d_v4");
    fleet_node(dir.path(), "akswnp000002", 27.0, "20348.5020", "D8d_v4");
    let report = json(&["--fleet", dir.path().to_str().unwrap()]);
    assert!(
        report["too_small"].as_str().unwrap().contains("too few"),
        "{report}"
    );
}

#[test]
fn the_vendors_report_holds_what_it_takes_and_redacted_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vendor.md");
    let case = scenario("packet-loop-positive-owner-by-log");
    let write = |more: &[&str]| {
        let args = [
            &[case.to_str().unwrap(), "--report", file.to_str().unwrap()],
            more,
        ]
        .concat();
        assert_eq!(trace(&args).status.code(), Some(1));
        fs::read_to_string(&file).unwrap()
    };
    let report = write(&[]);
    for wanted in [
        "## Environment",
        "## Counters",
        "## Flows",
        "## Time line",
        "## What was tried",
        "Is it a known defect?",
        "clear a node without replacing it?",
        "configuration that prevents it?",
        "Does an overlay avoid it?",
        "for a drained node",
        "tcp 10.240.255.8:443 > 10.240.1.77:51000",
        "last owner: billing/invoice-1, until 2024-03-05T08:41:02Z",
        "2024-03-04T18:01:13Z billing/invoice-1 gets the address",
    ] {
        assert!(report.contains(wanted), "{wanted}: {report}");
    }
    let redacted = write(&["--redact"]);
    for name in ["akswnp00002f", "10.240.", "invoice", "billing", "nic-aks"] {
        assert!(!redacted.to_lowercase().contains(name), "{name}: {redacted}");
    }
    assert!(
        redacted.contains("## Flows") && redacted.contains(":443 > address-"),
        "{redacted}"
    );
}
