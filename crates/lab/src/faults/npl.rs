//! What Antrea v2.3.2 leaves when an 8-port StatefulSet Pod is made again under its name.
//!
//! Its controller keeps Pods by name, and a delete takes one rule away for every event that happens to arrive. Four came: those ports were
//! mapped anew, and the other four node ports in the annotation lead to the old address, where nobody lives.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::Fault;
use crate::api::Resource;
use crate::error::LabError;
use crate::node::{LabNode, NODE_IP};
use crate::pods::{NPL_ANNOTATION, Pod, PodSpec};
use crate::talk;
use crate::truth::{Protocol, TargetPath};

const CHAIN: &str = "ANTREA-NODE-PORT-LOCAL";

/// Protocol, Pod's port, node's port of the relay.
const RELAY: [(Protocol, u16, u16); 8] = [
    (Protocol::Tcp, 5060, 61000),
    (Protocol::Tcp, 5061, 61001),
    (Protocol::Tcp, 5062, 61002),
    (Protocol::Tcp, 5063, 61003),
    (Protocol::Udp, 5064, 61004),
    (Protocol::Udp, 5065, 61005),
    (Protocol::Udp, 5066, 61006),
    (Protocol::Udp, 5067, 61007),
];

/// The node ports for which a delete event arrived.
const FOLLOWED: [u16; 4] = [61000, 61001, 61004, 61005];

/// The same of the neighbour, which was never deleted.
const GATEWAY: [(Protocol, u16, u16); 2] = [(Protocol::Tcp, 5060, 61010), (Protocol::Udp, 5064, 61011)];

/// First port of the client that has a UDP conversation with each node port.
const CLIENT_PORT: u16 = 41000;

fn rule((protocol, pod_port, node_port): (Protocol, u16, u16), to: Ipv4Addr) -> String {
    let protocol = protocol.lower();
    format!(
        "-A {CHAIN} -p {protocol} -m {protocol} --dport {node_port} -j DNAT --to-destination {to}:{pod_port}"
    )
}

fn words(rule: &str) -> Vec<&str> {
    rule.split(' ').collect()
}

/// As Antrea changes rules one by one.
fn iptables(node: &LabNode, change: &str) -> Result<(), LabError> {
    let argv = ["iptables", "-w", "10", "-t", "nat"]
        .into_iter()
        .chain(words(change));
    node.run(argv)?;
    Ok(())
}

pub(super) fn make(node: &LabNode) -> Result<(), LabError> {
    let spec = |name: &str| {
        let spec = PodSpec::new("voice", name).stateful().untargeted();
        RELAY
            .iter()
            .fold(spec, |spec, &(protocol, port, _)| match protocol {
                Protocol::Tcp => spec.tcp(port),
                Protocol::Udp => spec.udp(port),
            })
    };
    node.api().put(Resource::Services, service("relay"));
    node.api().put(Resource::Services, service("gateway"));
    let pods = node.pods([spec("relay-1"), spec("gateway-0")])?;
    let [old, neighbour] = &pods[..] else {
        return Err(LabError::State("two Pods were asked for".into()));
    };

    // Antrea's start: the chain and its two jumps, then one iptables a port.
    iptables(node, &format!("-N {CHAIN}"))?;
    for from in ["PREROUTING", "OUTPUT"] {
        iptables(
            node,
            &format!("-A {from} -m addrtype --dst-type LOCAL -j {CHAIN}"),
        )?;
    }
    for (pod, ports) in [(old, &RELAY[..]), (neighbour, &GATEWAY[..])] {
        for &port in ports {
            iptables(node, &rule(port, pod.ip))?;
        }
        annotate(node, pod, ports)?;
    }
    // Conversations that will outlive the old Pod in the connection table.
    for &(protocol, _, port) in RELAY.iter().chain(&GATEWAY) {
        if protocol == Protocol::Udp {
            let uid = if port >= GATEWAY[0].2 {
                &neighbour.uid
            } else {
                &old.uid
            };
            talk::udp_exchange(node, client_port(port), NODE_IP, port, uid)?;
        }
    }

    node.delete_pod(old)?;
    let new = node.pod(spec("relay-1"))?;
    for &port in RELAY.iter().filter(|port| FOLLOWED.contains(&port.2)) {
        iptables(node, &rule(port, old.ip).replacen("-A", "-D", 1))?;
        iptables(node, &rule(port, new.ip))?;
    }
    annotate(node, &new, &RELAY)?;
    write_down(node, old, &new, neighbour);
    Ok(())
}

fn client_port(node_port: u16) -> u16 {
    CLIENT_PORT + (node_port - RELAY[0].2)
}

fn write_down(node: &LabNode, old: &Pod, new: &Pod, neighbour: &Pod) {
    for port in RELAY {
        let followed = FOLLOWED.contains(&port.2);
        node.leads(new, port.2, port.0, TargetPath::Npl, followed);
        if followed {
            let line = rule(port, new.ip);
            node.keep(Fault::Npl, "leads to the Pod that is there now", &[&line]);
        } else {
            let line = rule(port, old.ip);
            node.expect(Fault::Npl, "npl-stale-target", "stale", "repair", &[&line]);
        }
        if port.0 == Protocol::Udp {
            // Also those of the ports whose rules are right: a connection keeps the address that it began with.
            let sport = format!("sport={}", client_port(port.2));
            let (dport, reply) = (format!("dport={}", port.2), format!("src={}", old.ip));
            node.expect(
                Fault::Npl,
                "conntrack-hostport-stale",
                "stale",
                "repair",
                &["udp", &sport, &dport, &reply],
            );
        }
    }
    for port in GATEWAY {
        node.leads(neighbour, port.2, port.0, TargetPath::Npl, true);
        let line = rule(port, neighbour.ip);
        node.keep(
            Fault::Npl,
            "a neighbour's mapping, right from the beginning",
            &[&line],
        );
        if port.0 == Protocol::Udp {
            let sport = format!("sport={}", client_port(port.2));
            let reply = format!("src={}", neighbour.ip);
            node.keep(
                Fault::Npl,
                "a connection to the living neighbour",
                &["udp", &sport, &reply],
            );
        }
    }
}

/// Announces mappings as the controller does.
pub(super) fn annotate(node: &LabNode, pod: &Pod, ports: &[(Protocol, u16, u16)]) -> Result<(), LabError> {
    let entries: Vec<Value> = ports
        .iter()
        .map(|(protocol, port, node_port)| {
            json!({"podPort": port, "nodeIP": NODE_IP, "nodePort": node_port, "protocol": protocol.lower()})
        })
        .collect();
    let text = Value::from(entries).to_string();
    node.edit_pod(pod, |object| {
        object["metadata"]["annotations"][NPL_ANNOTATION] = json!(text)
    })
}

fn service(app: &str) -> Value {
    let ip = if app == "relay" {
        "10.96.201.33"
    } else {
        "10.96.201.34"
    };
    let ports: Vec<Value> = RELAY
        .iter()
        .map(|(protocol, port, _)| {
            let name = format!("{}-{port}", protocol.lower());
            json!({"name": name, "port": port, "protocol": protocol.upper(), "targetPort": port})
        })
        .collect();
    json!({
        "metadata": {"namespace": "voice", "name": app, "annotations": {"nodeportlocal.antrea.io/enabled": "true"}},
        "spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"],
                 "ipFamilyPolicy": "SingleStack", "selector": {"app": app}, "ports": ports, "sessionAffinity": "None"},
        "status": {"loadBalancer": {}},
    })
}
