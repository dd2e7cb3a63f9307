//! The demo of the loop: a Pod's connections outlive it, their resets go round between two adapters, and `sexton` sees, proves and ends it while
//! clients talk to the living.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use serde_json::Value;

use super::show::Show;
use super::{DemoError, DemoOptions, STATE, document, up};
use crate::load::{Load, LoadOptions};
use crate::node::RuntimeKind;
use crate::pods::PodSpec;

/// Connections that the Pod had: the incident's number of flows.
const FLOWS: usize = 7;

/// Packets a second that go round, the least of what the incident's nodes had.
const PACE: u32 = 20_000;

/// Over how long a rate is measured.
const MEASURE: Duration = Duration::from_millis(500);

/// What was shown, against what the lab made.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopOutcome {
    /// What is not as the lab made it; empty if all is well.
    pub wrong: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// Runs the demo. The node is taken down at its end, whatever happens.
///
/// # Errors
///
/// [`DemoError`] when it could not be shown to its end.
pub fn run_loop(options: &DemoOptions, out: &mut dyn Write) -> Result<LoopOutcome, DemoError> {
    if options.runtime == RuntimeKind::Lab {
        let why = "the loop takes packet sockets and forwarding below IP: it needs root";
        return Err(DemoError::Unsupported(why.into()));
    }
    if let Some(why) = crate::node::unsupported() {
        return Err(DemoError::Unsupported(why));
    }
    let mut show = Show::new(out, options);
    show.step("A node in namespaces of its own, with two adapters and a network that gives back what is for its addresses")?;
    let node = up(options)?;
    let fabric = node.fabric(Some(PACE))?;
    let living = [
        PodSpec::new("shop", "web-0").tcp(8080).udp(9000),
        PodSpec::new("shop", "web-1").tcp(8080),
    ];
    node.pods(living)?;
    let pod = node.pod(PodSpec::new("shop", "cart-0").tcp(8080).untargeted())?;
    show.step(&format!(
        "Pod shop/cart-0 ({}) has {FLOWS} keep-alive connections through a load balancer; clients talk to two other Pods",
        pod.ip
    ))?;
    let connections = fabric.keep_alive(&pod, FLOWS)?;
    let talk = node.truth().working().cloned().collect();
    let load = Load::start(&node, talk, LoadOptions::default())?;
    let quiet = fabric.rate(MEASURE)?;
    show.step("The Pod is deleted, and the load balancer resets its connections")?;
    node.delete_pod(&pod)?;
    fabric.unused(pod.ip)?;
    fabric.reset(connections)?;
    let circling = fabric.rate(MEASURE)?;
    show.note(&format!(
        "{circling:.0} packets a second come in by the first adapter, {quiet:.0} before"
    ))?;

    let kubeconfig = [OsString::from("--kubeconfig"), node.kubeconfig().into()];
    let words = |words: &[&str]| -> Vec<OsString> {
        let own = words.iter().map(OsString::from);
        own.chain(kubeconfig.clone()).collect()
    };
    let trace = show.sexton(&node, "trace-1.txt", &words(&["trace", "--live"]), &[0, 1, 3])?;
    show.whole(&trace)?;
    let address = pod.ip.to_string();
    let state = node.path(STATE).to_string_lossy().into_owned();
    let end = ["loop", "end", &address, "--yes", "--state-dir", &state];
    let ended = show.sexton(&node, "loop-end.txt", &words(&end), &[0, 1])?;
    show.whole(&ended)?;
    let after = fabric.rate(MEASURE)?;
    let json = words(&["trace", "--live", "--for", "2", "-o", "json"]);
    let again = show.quietly(&node, "trace-2.json", &json, &[0, 1, 3])?;
    let again: Value = document("the second trace", &again)?;
    let load = load.stop()?;
    show.save_json("load.json", &load)?;
    show.save_dir("journal", &node.path(STATE).join("journal"))?;
    node.down()?;

    let mut wrong = Vec::new();
    let told = anstream::adapter::strip_str(&trace.stdout).to_string();
    for word in [address.as_str(), &format!("{FLOWS} flows"), "nobody lives"] {
        if !told.contains(word) {
            wrong.push(format!("the trace does not say {word:?}"));
        }
    }
    if ended.code != 0 {
        wrong.push(format!("the loop was not ended: exit code {}", ended.code));
    }
    let dropped = format!("{FLOWS} dropped");
    if !ended.stdout.contains(&dropped) {
        wrong.push(format!("not {dropped}, each circulating packet once"));
    }
    if again["verdict"] == "proved" || again["verdict"] == "suspected" {
        wrong.push(format!("afterwards: {}", again["answer"]));
    }
    if load.failed > 0 {
        wrong.push(format!("{} requests to the living failed", load.failed));
    }
    let took = show.elapsed();
    show.table(&[
        (
            "circulated",
            format!("{FLOWS} packets, {circling:.0} packets a second"),
        ),
        (
            "proved for",
            format!("{address}, Pod shop/cart-0 that was deleted"),
        ),
        (
            "ended by",
            format!("a drop of the resets of {FLOWS} flows; {after:.0} packets a second now"),
        ),
        (
            "requests to the living",
            format!("{}, {} failed", load.requests, load.failed),
        ),
        ("longest gap", format!("{:.0} ms", load.longest_gap_ms)),
        ("wall time", format!("{:.1} s", took.as_secs_f64())),
    ])?;
    if wrong.is_empty() {
        show.step("All is as the lab made it: the loop was seen, proved and ended, and no request to the living failed.")?;
    }
    for line in &wrong {
        show.note(&format!("WRONG: {line}"))?;
    }
    Ok(LoopOutcome { wrong, took })
}
