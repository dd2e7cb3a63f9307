//! The node itself: it comes up, has Pods that answer, and leaves nothing behind.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test's helpers fail the test"
)]

mod common;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use sexton_lab::{LabNode, LabOptions, PodSpec, Variant, in_netns};

/// The line that a client outside reads at a port, or what went wrong.
fn ask(node: &LabNode, ip: &str, port: u16) -> String {
    let address: SocketAddr = format!("{ip}:{port}").parse().unwrap();
    let asked = in_netns(&node.client_netns(), move || {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok::<String, std::io::Error>(line)
    });
    asked.unwrap().unwrap_or_else(|error| error.to_string())
}

fn lives(variant: Variant) {
    let start = Instant::now();
    let options = LabOptions {
        variant,
        ..LabOptions::default()
    };
    let node = common::node("node", options);
    let up = start.elapsed();
    let start = Instant::now();
    let specs = [
        PodSpec::new("shop", "web-0").tcp(8080).host_port_tcp(18080, 8080),
        PodSpec::new("shop", "web-1").tcp(8080).udp(9000),
    ];
    let pods = node.pods(specs).unwrap();
    let made = start.elapsed();

    let inside = node.run(["hostname"]).unwrap().stdout;
    assert_eq!(inside.trim(), "worker-a");
    let banner = format!("sexton-lab {} 8080\n", pods[0].uid);
    assert_eq!(ask(&node, "172.20.0.11", 18080), banner, "by the hostPort");
    assert_eq!(
        ask(&node, &pods[0].ip.to_string(), 8080),
        banner,
        "by the Pod's address"
    );
    assert_eq!(
        ask(&node, &pods[1].ip.to_string(), 8080),
        format!("sexton-lab {} 8080\n", pods[1].uid)
    );

    // Everything is in its usual place, inside.
    for path in [
        "/run/containerd/containerd.sock",
        "/etc/cni/net.d/10-podnet.conflist",
        "/var/lib/kubelet/config.yaml",
        "/etc/kubernetes/kubelet.conf",
        &format!("/var/lib/cni/networks/podnet/{}", pods[0].ip),
        &format!("/var/lib/cni/results/podnet-{}-eth0", pods[0].sandbox),
    ] {
        node.run(["test", "-e", path])
            .unwrap_or_else(|_| panic!("{path} is missing"));
    }
    let links = node.run(["ls", "/sys/class/net"]).unwrap().stdout;
    assert!(links.contains("cni0") && links.contains("eth0"), "{links}");
    let save = match variant {
        Variant::Nft => ["iptables-nft-save", "-t", "nat"],
        Variant::Legacy => ["iptables-legacy-save", "-t", "nat"],
    };
    let rules = node.run(save).unwrap().stdout;
    assert!(
        rules.contains(&format!("id: \\\"{}\\\"", pods[0].sandbox)),
        "{rules}"
    );
    assert!(
        rules.contains(&format!("--to-destination {}:8080", pods[0].ip)),
        "{rules}"
    );

    node.delete_pod(&pods[0]).unwrap();
    let rules = node.run(save).unwrap().stdout;
    assert!(!rules.contains(&pods[0].sandbox), "{rules}");

    let dir = node.dir().to_path_buf();
    let netns = std::fs::read_link(node.netns().read_link().unwrap()).unwrap();
    let start = Instant::now();
    node.down().unwrap();
    println!(
        "{variant:?}: up {up:?}, two Pods {made:?}, down {:?}",
        start.elapsed()
    );
    assert!(!dir.exists());
    nothing_left(&dir, &netns);
}

/// No mount, no process, no cgroup of the lab is there any more.
fn nothing_left(dir: &Path, netns: &Path) {
    let name = dir.file_name().unwrap().to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(name), "{mounts}");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        if std::fs::read_link(path.join("ns/net")).is_ok_and(|its| its == netns) {
            panic!("{} is still in the node's namespace", path.display());
        }
    }
    let cgroups = std::process::Command::new("find")
        .args(["/sys/fs/cgroup", "-maxdepth", "2", "-name", &format!("*{name}*")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&cgroups.stdout), "");
}

#[test]
fn a_node_with_nft_lives_and_leaves_nothing() {
    if let Some(why) = sexton_lab::unsupported() {
        return sexton_lab::skip!("{why}");
    }
    lives(Variant::Nft);
}

#[test]
fn a_node_with_legacy_lives_and_leaves_nothing() {
    if let Some(why) = sexton_lab::unsupported() {
        return sexton_lab::skip!("{why}");
    }
    lives(Variant::Legacy);
}
