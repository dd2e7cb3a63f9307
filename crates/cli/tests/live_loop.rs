//! Packets that circulate on a real kernel: resets for a Pod that is gone, beside living Pods; and what only looks like it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test's helpers fail the test"
)]

mod live;

use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use live::{Ran, node_with, sexton, targets_work};
use serde_json::Value;
use sexton_lab::fabric::{Fabric, VIP, VIP_PORT};
use sexton_lab::{LabNode, Pod, PodSpec, Variant, in_netns};

/// How long it may take from the start of the program to its answer: three intervals of counters, a capture of a second at most, and a
/// reading of the node.
const PROOF: Duration = Duration::from_secs(5);

/// A node whose Pod shop/cart-0 had so many connections to the load balancer and is gone, with its resets going round.
fn circling(fabric: &Fabric<'_>, node: &LabNode, flows: usize) -> (Pod, Vec<u16>) {
    let pod = node
        .pod(PodSpec::new("shop", "cart-0").tcp(8080).untargeted())
        .unwrap();
    let connections = fabric.keep_alive(&pod, flows).unwrap();
    let ports = connections.ports().unwrap();
    node.delete_pod(&pod).unwrap();
    fabric.unused(pod.ip).unwrap();
    fabric.reset(connections).unwrap();
    (pod, ports)
}

fn trace(node: &LabNode, args: &[&str]) -> Ran {
    let all: Vec<&str> = ["trace", "--live", "-o", "json"]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    sexton(node, &all)
}

/// Within five percent.
fn is_about(seen: f64, truth: f64) -> bool {
    (seen - truth).abs() <= truth * 0.05
}

/// Resets of so many connections go round, at this pace or as fast as they can: all of it is named, and what lives goes on living.
fn proved(flows: usize, pace: Option<u32>) {
    let node = node_with("loop", Variant::Nft);
    node.pod(PodSpec::new("shop", "web-0").tcp(8080).udp(9000))
        .unwrap();
    let fabric = node.fabric(pace).unwrap();
    let (pod, ports) = circling(&fabric, &node, flows);
    let before = fabric.rate(Duration::from_millis(700)).unwrap();
    let start = Instant::now();
    let ran = trace(&node, &[]);
    let took = start.elapsed();
    let after = fabric.rate(Duration::from_millis(700)).unwrap();
    let report = ran.json();
    ran.exits(1);
    println!("{flows} flows at {pace:?}: {before:.0} and {after:.0} a second; answered in {took:?}");
    assert!(took <= PROOF, "{took:?}");
    assert_eq!(report["verdict"], "proved", "{report:#}");
    let [one] = &report["loops"].as_array().unwrap()[..] else {
        panic!("{report:#}")
    };
    let seen = |key: &str| one[key].clone();
    assert_eq!(seen("address"), pod.ip.to_string());
    assert_eq!(seen("circulating"), flows);
    assert_eq!(seen("circulating_exact"), true);
    assert_eq!(seen("ttl_falls"), false);
    assert!(
        seen("enters").as_str().unwrap().ends_with(" in (eth0)"),
        "{one:#}"
    );
    assert!(
        seen("leaves").as_str().unwrap().ends_with(" out (vf0)"),
        "{one:#}"
    );
    let mut named: Vec<String> = one["flows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flow| {
            assert_eq!(flow["flags"], "R.", "a reset: {flow}");
            flow["flow"].as_str().unwrap().to_owned()
        })
        .collect();
    let mut wanted: Vec<String> = ports
        .iter()
        .map(|port| format!("tcp {VIP}:{VIP_PORT} > {}:{port}", pod.ip))
        .collect();
    named.sort();
    wanted.sort();
    assert_eq!(named, wanted);
    // On a machine that others use too, a loop without a pace is as fast as it gets time for.
    if pace.is_some() {
        let rate = seen("packets_per_second").as_f64().unwrap();
        assert!(
            is_about(rate, before) || is_about(rate, after),
            "{rate} is told; {before} before, {after} after"
        );
    }
    targets_work(&node, |_| true);
    node.down().unwrap();
}

#[test]
fn a_loop_of_one_packet_is_proved() {
    needs_lab!();
    proved(1, Some(8_000));
}

#[test]
fn the_incidents_seven_flows_are_proved() {
    needs_lab!();
    proved(7, Some(20_000));
}

#[test]
fn a_loop_as_fast_as_the_machine_is_proved() {
    needs_lab!();
    proved(3, None);
}

#[test]
fn fifty_flows_are_proved() {
    needs_lab!();
    proved(50, Some(40_000));
}

#[test]
fn twenty_flows_are_proved() {
    needs_lab!();
    proved(20, Some(12_000));
}

/// Somebody who sends datagrams from the clients' namespace until he is dropped, or for ten seconds.
struct Sender {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Sender {
    /// `next` gives destination and content of the n-th datagram; about `rate` a second are sent.
    fn start(
        node: &LabNode,
        rate: u32,
        next: impl Fn(u64) -> (SocketAddr, Vec<u8>) + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let socket = in_netns(&node.client_netns(), || UdpSocket::bind("0.0.0.0:0"))
            .unwrap()
            .unwrap();
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let mut sent = 0;
            while !told.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(10) {
                let due = (start.elapsed().as_secs_f64() * f64::from(rate)) as u64;
                while sent < due {
                    let (to, content) = next(sent);
                    // One that finds no room is one less.
                    let _ = socket.send_to(&content, to);
                    sent += 1;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            sent
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Nothing is suspected in the end, and if there was a reason to capture, it is told what it was.
fn is_nothing(ran: &Ran) -> Value {
    let report = ran.json();
    assert_ne!(report["verdict"], "proved", "{report:#}");
    assert_ne!(report["verdict"], "suspected", "{report:#}");
    assert_eq!(ran.code, 0, "{report:#}");
    report
}

/// In by the uplink, out to a Pod, far above the rate: the counters look the same, and each packet is another.
#[test]
fn a_busy_gateway_is_no_loop() {
    needs_lab!();
    let node = node_with("gateway", Variant::Nft);
    let pod = node
        .pod(PodSpec::new("shop", "web-0").tcp(8080).udp(9000))
        .unwrap();
    node.fabric(None).unwrap();
    let to = SocketAddr::from((pod.ip, 9000));
    let sender = Sender::start(&node, 12_000, move |n| (to, n.to_be_bytes().to_vec()));
    std::thread::sleep(Duration::from_millis(300));
    let ran = trace(&node, &["--for", "3"]);
    let sent = sender.end();
    let report = is_nothing(&ran);
    println!("{sent} sent; {}", report["answer"]);
    let captures = report["captures"].as_array().unwrap();
    assert_eq!(captures.len(), 1, "it was worth a look: {report:#}");
    assert!(captures[0]["packets"].as_u64().unwrap() > 5_000, "{report:#}");
    targets_work(&node, |_| true);
    node.down().unwrap();
}

/// The same loop for an address at which somebody lives: that is a fault of routing, and no business of a dead Pod.
#[test]
fn a_loop_for_somebody_alive_is_said_to_be_something_else() {
    needs_lab!();
    let node = node_with("alive", Variant::Nft);
    let pod = node
        .pod(PodSpec::new("shop", "cart-0").tcp(8080).untargeted())
        .unwrap();
    let fabric = node.fabric(Some(20_000)).unwrap();
    let connections = fabric.keep_alive(&pod, 4).unwrap();
    fabric.unused(pod.ip).unwrap();
    fabric.reset(connections).unwrap();
    let ran = trace(&node, &[]);
    let report = is_nothing(&ran);
    let loops = report["loops"].as_array().unwrap();
    assert_eq!(loops.len(), 1, "{report:#}");
    assert_eq!(loops[0]["verdict"], Value::Null, "{report:#}");
    assert_eq!(loops[0]["address"], pod.ip.to_string());
    assert_eq!(loops[0]["owner"]["name"], "cart-0", "{report:#}");
    node.down().unwrap();
}

/// A node with a living Pod is sent such datagrams while it is looked at, and nothing comes of it.
fn only_sent(name: &str, rate: u32, next: impl Fn(u64) -> (SocketAddr, Vec<u8>) + Send + 'static) {
    let node = node_with(name, Variant::Nft);
    node.pod(PodSpec::new("shop", "web-0").tcp(8080)).unwrap();
    node.fabric(None).unwrap();
    let sender = Sender::start(&node, rate, next);
    let ran = trace(&node, &["--for", "3"]);
    let sent = sender.end();
    let report = is_nothing(&ran);
    println!("{sent} sent; {}", report["answer"]);
    targets_work(&node, |_| true);
    node.down().unwrap();
}

/// A scan of addresses that nobody uses: each packet comes once.
#[test]
fn a_scan_of_free_addresses_is_no_loop() {
    needs_lab!();
    only_sent("scan", 10_000, |n| {
        let host = u8::try_from(100 + n % 150).unwrap();
        let port = u16::try_from(1_000 + n / 150 % 60_000).unwrap();
        (
            SocketAddr::from((Ipv4Addr::new(10, 10, 1, host), port)),
            b"probe".to_vec(),
        )
    });
}

/// The same content to a group again and again.
#[test]
fn a_flood_of_multicast_is_no_loop() {
    needs_lab!();
    let group = SocketAddr::from((Ipv4Addr::new(239, 1, 2, 3), 5_000));
    only_sent("multicast", 15_000, move |_| (group, vec![7; 40]));
}

/// A quiet node is asked nothing more than its counters.
#[test]
fn a_quiet_node_is_not_captured() {
    needs_lab!();
    let node = node_with("quiet", Variant::Nft);
    node.pod(PodSpec::new("shop", "web-0").tcp(8080)).unwrap();
    node.fabric(None).unwrap();
    let report = is_nothing(&trace(&node, &["--for", "2"]));
    assert_eq!(report["captures"], Value::Array(Vec::new()));
    assert_eq!(report["loops"], Value::Array(Vec::new()));
    assert_eq!(report["counters"][0]["samples"], 3, "{report:#}");
    node.down().unwrap();
}

/// Runs `sexton loop end` with the node's own state directory.
fn end(node: &LabNode, address: Ipv4Addr, args: &[&str]) -> Ran {
    let dir = live::state_dir(node).display().to_string();
    let address = address.to_string();
    let all: Vec<&str> = ["loop", "end", &address, "--state-dir", &dir]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    sexton(node, &all)
}

/// A client that asks a living Pod without a pause, a new connection each time, until it is dropped.
struct Asking {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<(u64, u64)>>,
}

impl Asking {
    fn start(node: &LabNode, pod: &Pod) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let (netns, to) = (node.client_netns(), SocketAddr::from((pod.ip, 8080)));
        let thread = std::thread::spawn(move || {
            in_netns(&netns, move || {
                let (mut good, mut failed) = (0, 0);
                while !told.load(Ordering::Relaxed) {
                    match TcpStream::connect_timeout(&to, Duration::from_secs(1)) {
                        Ok(_) => good += 1,
                        Err(_) => failed += 1,
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                (good, failed)
            })
            .unwrap()
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn drops(node: &LabNode) -> Vec<String> {
    let listed = node.run(["nft", "list", "table", "netdev", "sexton"]);
    let text = listed.map(|out| out.stdout).unwrap_or_default();
    text.lines()
        .filter(|line| line.contains(":loop\" ") || line.contains(":loop\",") || line.contains("expires"))
        .map(|line| line.trim().to_owned())
        .collect()
}

/// The whole ladder on the incident's loop: shown first, then carried out. Each circulating packet is dropped once, the living are not
/// disturbed, and what comes again is seen and ended again.
#[test]
fn a_loop_is_ended_by_its_narrowest_drop() {
    needs_lab!();
    let node = node_with("end", Variant::Nft);
    let living = node.pod(PodSpec::new("shop", "web-0").tcp(8080)).unwrap();
    let fabric = node.fabric(Some(20_000)).unwrap();
    let pod = node
        .pod(PodSpec::new("shop", "cart-0").tcp(8080).untargeted())
        .unwrap();
    let first = fabric.keep_alive(&pod, 7).unwrap();
    let later = fabric.keep_alive(&pod, 3).unwrap();
    node.delete_pod(&pod).unwrap();
    fabric.unused(pod.ip).unwrap();
    fabric.reset(first).unwrap();

    let shown = end(&node, pod.ip, &[]).exits(1);
    assert!(
        shown.says(&[
            "7 packets for",
            "1. drop the resets of 7 flows",
            "2. drop everything for",
            "Nothing was changed"
        ]),
        "{shown:?}"
    );
    assert!(fabric.rate(Duration::from_millis(300)).unwrap() > 10_000.0);
    assert!(node.run(["nft", "list", "table", "netdev", "sexton"]).is_err());

    let asking = Asking::start(&node, &living);
    for (circulating, connections) in [(7, None), (3, Some(later))] {
        if let Some(connections) = connections {
            fabric.reset(connections).unwrap();
        }
        let ran = end(&node, pod.ip, &["--yes", "-o", "json"]);
        let report = ran.json();
        println!("{report:#}");
        assert_eq!(report["ended"], true, "{report:#}");
        assert_eq!(report["came_back"], Value::Null, "{report:#}");
        assert_eq!(report["circulating"], circulating);
        let [step] = &report["steps"].as_array().unwrap()[..] else {
            panic!("{report:#}")
        };
        assert_eq!(
            step["step"],
            format!("drop the resets of {circulating} flows to {}", pod.ip)
        );
        assert_eq!(
            step["dropped"], circulating,
            "each circulating packet once: {report:#}"
        );
        assert!(step["took_ms"].as_u64().unwrap() <= 1_000, "{report:#}");
        assert!(fabric.rate(Duration::from_millis(300)).unwrap() < 3_000.0);
        ran.exits(0);
    }
    let (good, failed) = asking.end();
    assert_eq!(failed, 0, "of {good}");
    assert!(good > 500, "{good}");
    let marks = drops(&node);
    assert!(
        !marks.is_empty() && marks.iter().all(|line| line.contains("timeout 1m")),
        "{marks:?}"
    );
    targets_work(&node, |_| true);
    node.down().unwrap();
}

/// What is not a reset is ended by the second step only; and `undo` takes the drop away before its time.
#[test]
fn datagrams_are_ended_by_their_destination() {
    needs_lab!();
    let node = node_with("udp", Variant::Nft);
    node.pod(PodSpec::new("shop", "web-0").tcp(8080)).unwrap();
    let fabric = node.fabric(Some(15_000)).unwrap();
    let free = Ipv4Addr::new(10, 10, 1, 99);
    fabric.unused(free).unwrap();
    in_netns(&node.client_netns(), move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for n in 0..5u8 {
            socket.send_to(&[n; 16], (free, 5_000)).unwrap();
        }
    })
    .unwrap();
    let ran = end(&node, free, &["--yes", "-o", "json"]);
    let report = ran.json();
    assert_eq!(report["ended"], true, "{report:#}");
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 1, "{report:#}");
    assert_eq!(steps[0]["step"], "drop everything for 10.10.1.99");
    assert_eq!(steps[0]["dropped"], 5, "{report:#}");
    assert_eq!(drops(&node).len(), 1);
    let journal = report["journal"].as_str().unwrap();
    let state = live::state_dir(&node).display().to_string();
    sexton(&node, &["undo", journal, "--yes", "--state-dir", &state]).exits(0);
    assert_eq!(drops(&node), Vec::<String>::new());
    node.down().unwrap();
}

/// Nothing is dropped for an address of somebody, nor on a suspicion, nor where nothing circulates.
#[test]
fn what_is_no_proved_loop_of_nobody_is_left_alone() {
    needs_lab!();
    let node = node_with("refuse", Variant::Nft);
    let pod = node
        .pod(PodSpec::new("shop", "cart-0").tcp(8080).udp(9000).untargeted())
        .unwrap();
    let fabric = node.fabric(Some(20_000)).unwrap();
    let quiet = end(&node, pod.ip, &["--yes"]).exits(1);
    assert!(
        quiet.says(&["the counters are not suspicious", "Nothing was changed"]),
        "{quiet:?}"
    );

    let to = SocketAddr::from((pod.ip, 9000));
    let sender = Sender::start(&node, 12_000, move |n| (to, n.to_be_bytes().to_vec()));
    let gateway = end(&node, pod.ip, &["--yes"]).exits(1);
    assert!(
        gateway.says(&["again and again", "Nothing was changed"]),
        "{gateway:?}"
    );
    sender.end();

    let connections = fabric.keep_alive(&pod, 4).unwrap();
    fabric.unused(pod.ip).unwrap();
    fabric.reset(connections).unwrap();
    let alive = end(&node, pod.ip, &["--yes"]).exits(1);
    assert!(alive.says(&["cart-0", "Nothing was changed"]), "{alive:?}");
    assert!(node.run(["nft", "list", "table", "netdev", "sexton"]).is_err());
    assert!(fabric.rate(Duration::from_millis(300)).unwrap() > 10_000.0);
    node.down().unwrap();
}
