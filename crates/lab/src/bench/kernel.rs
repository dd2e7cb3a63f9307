//! What the kernel is given to hold.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use super::objects::{ENDPOINTS, SERVICES, endpoint_ip, mapping, service_ip};
use super::{PODS, pod_ip};
use crate::cmd::{CommandError, shown, words};
use crate::error::LabError;
use crate::node::{NODE_IP, Variant};

/// The chain of NodePortLocal.
pub(super) const CHAIN: &str = "ANTREA-NODE-PORT-LOCAL";

/// Runs a tool with something on standard input. It may take long: there is much to do.
pub(super) fn run(argv: &[&str], stdin: &str) -> Result<(), LabError> {
    let command = || shown(&words(argv));
    let start = |source| CommandError::Start {
        command: command(),
        source,
    };
    let (program, args) = argv
        .split_first()
        .ok_or_else(|| start(std::io::ErrorKind::InvalidInput.into()))?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(start)?;
    if let Some(mut input) = child.stdin.take() {
        // A tool that ends without reading everything tells so by its status.
        let _ = input.write_all(stdin.as_bytes());
    }
    let status = child.wait().map_err(start)?;
    if status.success() {
        return Ok(());
    }
    Err(LabError::Command(CommandError::Failed {
        command: command(),
        status,
        stdout: String::new(),
        stderr: "its own words are above".to_owned(),
    }))
}

/// The node's own address, and forwarding.
pub(super) fn node() -> Result<(), LabError> {
    let text = format!(
        "link set lo up
link add up0 type bridge
addr add {NODE_IP}/24 dev up0
link set up0 up
route add default via 172.20.0.1
"
    );
    run(&["ip", "-batch", "-"], &text)
}

/// Makes the Pods' namespaces, each with its address and a process that sleeps in it.
pub(super) fn pods() -> Result<Vec<Child>, LabError> {
    let mut text = String::new();
    for pod in 0..PODS {
        let ip = pod_ip(pod);
        let _ = write!(
            text,
            "netns add pod{pod}
link add veth{pod} type veth peer name eth0 netns pod{pod}
link set veth{pod} up
route add {ip}/32 dev veth{pod}
"
        );
    }
    run(&["ip", "-batch", "-"], &text)?;
    (0..PODS)
        .map(|pod| {
            let script = format!(
                "ip link set lo up; ip addr add {}/24 dev eth0; ip link set eth0 up; exec sleep 2147483",
                pod_ip(pod)
            );
            let name = format!("--net=/run/netns/pod{pod}");
            Command::new("nsenter")
                .args([name.as_str(), "sh", "-c", &script])
                .stdin(Stdio::null())
                .spawn()
                .map_err(|source| {
                    LabError::Command(CommandError::Start {
                        command: format!("nsenter {name}"),
                        source,
                    })
                })
        })
        .collect()
}

/// Adds links of number `range`, each with a route and a neighbour.
pub(super) fn links(range: std::ops::Range<usize>) -> Result<(), LabError> {
    let mut text = String::new();
    for number in range {
        let (a, b) = (number / 250, number % 250 + 1);
        let _ = write!(
            text,
            "link add l{number} type bridge
link set l{number} up
route add 10.50.{a}.{b}/32 dev l{number}
neigh add 10.50.{a}.{b} lladdr 02:50:00:00:{a:02x}:{b:02x} nud permanent dev l{number}
"
        );
    }
    run(&["ip", "-batch", "-"], &text)
}

/// A map of this many DNATs in a table of its own, as a proxy on nftables has one.
pub(super) fn dnat_map(count: usize) -> Result<(), LabError> {
    let mut text = "table inet bench\ndelete table inet bench\ntable inet bench {\n map endpoints {\n  type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service\n  elements = {\n".to_owned();
    for number in 0..count {
        let (a, b, port) = (number / 250 % 250, number % 250 + 1, 1024 + number / 62_500);
        let _ = writeln!(text, "10.100.{a}.{b} . tcp . {port} : {} . 8080,", pod_ip(number));
    }
    text.push_str("  }\n }\n chain pre {\n  type nat hook prerouting priority -90; policy accept;\n  dnat ip to ip daddr . meta l4proto . th dport map @endpoints\n }\n}\n");
    run(&["nft", "-f", "-"], &text)
}

/// Entries of connection tracking: UDP to Services, which their endpoints answered, and as many of TCP.
pub(super) fn conntrack(count: usize, file: &std::path::Path) -> Result<(), LabError> {
    let mut text = String::new();
    for number in 0..count {
        let (a, b) = (number / 250 % 250, number % 250 + 1);
        let (client, port) = (format!("10.200.{a}.{b}"), 1024 + number % 60_000);
        let common = format!(
            "-s {client} --sport {port} --reply-dst {client} --reply-port-dst {port} -t 86400 -u SEEN_REPLY,ASSURED"
        );
        if number % 2 == 0 {
            let service = number / 2 % SERVICES;
            let _ = writeln!(
                text,
                "-I -p udp {common} -d {} --dport 53 --reply-src {} --reply-port-src 53",
                service_ip(service),
                endpoint_ip(service, number % ENDPOINTS)
            );
        } else {
            let _ = writeln!(
                text,
                "-I -p tcp {common} -d 10.96.2.{b} --dport 443 --reply-src {} --reply-port-src 8443 --state ESTABLISHED",
                pod_ip(number)
            );
        }
    }
    run(&["conntrack", "-F"], "")?;
    crate::node::write(file, text)?;
    run(&["conntrack", "-R", &file.to_string_lossy()], "")
}

/// A rule of NodePortLocal as iptables-save prints it, to the Pod `shift` places after its own.
pub(super) fn npl_rule(number: usize, shift: usize) -> String {
    let (protocol, port, pod, to) = mapping(number);
    format!(
        "-A {CHAIN} -p {protocol} -m {protocol} --dport {port} -j DNAT --to-destination {}:{to}",
        pod_ip(pod + shift)
    )
}

/// NodePortLocal's chain with this many rules, in place of whatever the nat table had.
pub(super) fn npl_rules(variant: Variant, count: usize) -> Result<(), LabError> {
    let mut text = format!("*nat\n:{CHAIN} - [0:0]\n");
    if count > 0 {
        for from in ["PREROUTING", "OUTPUT"] {
            let _ = writeln!(text, "-A {from} -m addrtype --dst-type LOCAL -j {CHAIN}");
        }
    }
    for number in 0..count {
        text.push_str(&npl_rule(number, 0));
        text.push('\n');
    }
    text.push_str("COMMIT\n");
    run(&[tool(variant, "-restore").as_str()], &text)
}

/// Takes the nat table of iptables-nft away.
pub(super) fn no_npl_rules() -> Result<(), LabError> {
    run(&["nft", "-f", "-"], "table ip nat\ndelete table ip nat\n")
}

/// The name of one of iptables' programs.
pub(super) fn tool(variant: Variant, suffix: &str) -> String {
    match variant {
        Variant::Nft => format!("iptables-nft{suffix}"),
        Variant::Legacy => format!("iptables-legacy{suffix}"),
    }
}
