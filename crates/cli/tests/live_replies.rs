//! Law 7 on a real kernel: who answers lives, whatever every list says, where the kernel counts replies.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

mod live;

use std::process::{Child, Stdio};
use std::time::Duration;

use live::{node_with, repair};
use serde_json::Value;
use sexton_lab::{LabNode, Variant};

/// An address in the Pods' range that no source knows, and who answers there: somebody behind another machine.
const TALKS: &str = "10.10.1.210";

/// The same, connected and silent.
const SILENT: &str = "10.10.1.211";

/// Ends its program with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two addresses behind the clients' machine, each with an echo server and one TCP connection of the node to it.
fn strangers(node: &LabNode) -> Vec<Running> {
    let client = node.client_netns().display().to_string();
    let mut running = Vec::new();
    for (ip, pause) in [(TALKS, "0.2"), (SILENT, "1000")] {
        node.run_client(["ip", "addr", "add", &format!("{ip}/32"), "dev", "eth0"])
            .unwrap();
        node.run(["ip", "route", "add", &format!("{ip}/32"), "via", "172.20.0.200"])
            .unwrap();
        let server = std::process::Command::new("nsenter")
            .args([&format!("--net={client}"), "setpriv", "--pdeathsig", "KILL", "--"])
            .args([
                "socat",
                &format!("TCP-LISTEN:7,bind={ip},fork,reuseaddr"),
                "EXEC:cat",
            ])
            .spawn()
            .unwrap();
        running.push(Running(server));
        let script = node.path(format!("talk-{ip}"));
        // The last line gets the first answer before anybody looks.
        let talk = format!(
            "#!/bin/sh\n(echo 1; while sleep {pause}; do echo 2; done) | socat - TCP:{ip}:7,retry=20,interval=0.1\n"
        );
        std::fs::write(&script, talk).unwrap();
        let talker = node
            .spawn(["sh", script.to_str().unwrap()], Stdio::null(), Stdio::null())
            .unwrap();
        running.push(Running(talker));
    }
    running
}

/// Waits until the node's table has both connections with an answer.
fn connected(node: &LabNode) {
    let both = || {
        let listed = node
            .run(["conntrack", "-L", "-p", "tcp", "--dport", "7"])
            .unwrap()
            .stdout;
        [TALKS, SILENT]
            .iter()
            .all(|ip| listed.contains(&format!("ESTABLISHED src=172.20.0.11 dst={ip}")))
    };
    for _ in 0..100 {
        if both() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("they are not connected");
}

/// What became of the mapping to an address: its outcome, or why it was left out.
fn became(report: &Value, ip: &str) -> (&'static str, String) {
    let find = |list: &Value, object: fn(&Value) -> &Value| {
        let list = list.as_array().unwrap();
        let found = list
            .iter()
            .find(|item| object(item).as_str().is_some_and(|text| text.contains(ip)));
        found.cloned()
    };
    let repaired = find(&report["repaired"], |item| &item["finding"]["object"]);
    let left = find(&report["left_out"], |item| &item["object"]);
    match (repaired, left) {
        (Some(item), None) => ("repaired", item["result"]["outcome"].as_str().unwrap().to_owned()),
        (None, Some(item)) => ("left out", item["why"].as_str().unwrap().to_owned()),
        both => panic!("{both:?}"),
    }
}

fn repaired_with(accounting: bool) -> [(&'static str, String); 2] {
    let node = node_with("replies", Variant::Nft);
    let setting = format!("net.netfilter.nf_conntrack_acct={}", u8::from(accounting));
    node.run(["sysctl", "-qw", &setting]).unwrap();
    let iptables = |rule: &str| {
        let words = ["iptables", "-w", "10", "-t", "nat"].into_iter();
        node.run(words.chain(rule.split(' '))).unwrap();
    };
    iptables("-N ANTREA-NODE-PORT-LOCAL");
    for (port, ip) in [(61040, TALKS), (61041, SILENT)] {
        iptables(&format!(
            "-A ANTREA-NODE-PORT-LOCAL -p tcp -m tcp --dport {port} -j DNAT --to-destination {ip}:7"
        ));
    }
    let running = strangers(&node);
    connected(&node);
    let ran = repair(&node, &["--rule", "npl-stale-target", "--yes", "-o", "json"]);
    drop(running);
    let report = ran.json();
    let became = [became(&report, TALKS), became(&report, SILENT)];
    let rules = node.run(["iptables-save", "-t", "nat"]).unwrap().stdout;
    for (ip, (how, _)) in [TALKS, SILENT].iter().zip(&became) {
        assert_eq!(rules.contains(ip), *how == "left out", "{ip}: {rules}");
    }
    // Something that was left is no success.
    ran.exits(i32::from(accounting));
    node.down().unwrap();
    became
}

#[test]
fn an_address_that_answers_keeps_its_mapping_where_the_kernel_counts() {
    needs_lab!();
    let done = ("repaired", "done".to_owned());
    let answers = format!("somebody lives at {TALKS} although no Pod of the API has it");
    assert_eq!(repaired_with(true), [("left out", answers), done.clone()]);
    // Where nothing counts, this veto is silent.
    assert_eq!(repaired_with(false), [done.clone(), done]);
}
