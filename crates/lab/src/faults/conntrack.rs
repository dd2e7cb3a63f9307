//! UDP connections whose Pod is gone: kube-proxy's rules have moved on, the connection table has not.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Fault;
use crate::api::Resource;
use crate::error::LabError;
use crate::node::{LabNode, lock};
use crate::pods::{Pod, PodSpec};
use crate::talk;
use crate::truth::{Protocol, Target, TargetPath};

/// The cluster's DNS.
const DNS: &str = "10.96.0.10";

/// A virtual address whose Service was deleted.
const ORPHAN: &str = "10.96.44.7";

/// A Service for which a client came before the first rules.
const EARLY: &str = "10.96.44.8";

/// A Service that has no endpoint, so that leaving a packet as it is is right.
const EMPTY: &str = "10.96.44.9";

/// Client ports of the connections to the dead Pod and to the living one.
const TO_DEAD: [u16; 4] = [42001, 42002, 42003, 42004];
const TO_LIVING: [u16; 2] = [42101, 42102];
const TO_ORPHAN: u16 = 42201;
const TO_EARLY: u16 = 42301;
const TO_EMPTY: u16 = 42302;

pub(super) fn make(node: &LabNode) -> Result<(), LabError> {
    let spec = |name: &str| {
        PodSpec::new("kube-system", name)
            .label("k8s-app", "kube-dns")
            .udp(53)
            .tcp(53)
            .untargeted()
    };
    let pods = node.pods([spec("coredns-0"), spec("coredns-1")])?;
    let [old, living] = &pods[..] else {
        return Err(LabError::State("two Pods were asked for".into()));
    };
    for (name, ip) in [("kube-dns", DNS), ("early", EARLY), ("empty", EMPTY)] {
        node.api().put(Resource::Services, service(name, ip));
    }

    // Before there is any rule for it, a packet is left as it is, and the connection stays so.
    talk::udp_shout(node, TO_EARLY, EARLY, 53)?;
    talk::udp_shout(node, TO_EMPTY, EMPTY, 53)?;

    program(node, &[("kube-dns", DNS, old), ("orphan", ORPHAN, old)])?;
    for from in TO_DEAD {
        talk::udp_exchange(node, from, DNS, 53, &old.uid)?;
    }
    talk::udp_exchange(node, TO_ORPHAN, ORPHAN, 53, &old.uid)?;

    program(node, &[("kube-dns", DNS, living), ("early", EARLY, living)])?;
    node.delete_pod(old)?;
    node.api()
        .put(Resource::EndpointSlices, slice("kube-dns", Some(living)));
    node.api()
        .put(Resource::EndpointSlices, slice("early", Some(living)));
    node.api().put(Resource::EndpointSlices, slice("empty", None));
    for from in TO_LIVING {
        talk::udp_exchange(node, from, DNS, 53, &living.uid)?;
    }
    write_down(node, old, living);
    Ok(())
}

fn write_down(node: &LabNode, old: &Pod, living: &Pod) {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        lock(&node.truth).targets.push(Target {
            pod: living.full_name(),
            uid: living.uid.clone(),
            ip: DNS.parse().unwrap_or(std::net::Ipv4Addr::UNSPECIFIED),
            port: 53,
            protocol,
            path: TargetPath::Service,
            works: true,
        });
    }
    let fault = Fault::Conntrack;
    let (dead, lives) = (format!("src={}", old.ip), format!("src={}", living.ip));
    for from in TO_DEAD {
        let sport = format!("sport={from}");
        let contains = ["udp", &format!("dst={DNS}"), &sport, &dead];
        node.expect(fault, "conntrack-udp-dead-endpoint", "stale", "repair", &contains);
    }
    let contains = [
        "udp",
        &format!("dst={ORPHAN}"),
        &format!("sport={TO_ORPHAN}"),
        &dead,
    ];
    node.expect(fault, "conntrack-udp-orphan-vip", "stale", "repair", &contains);
    let contains = ["udp", &format!("src={EARLY}"), &format!("sport={TO_EARLY}")];
    node.expect(fault, "conntrack-undnatted-vip", "stale", "repair", &contains);

    for from in TO_LIVING {
        node.keep(
            fault,
            "a connection to the living DNS Pod",
            &["udp", &format!("dst={DNS}"), &format!("sport={from}"), &lives],
        );
    }
    node.keep(
        fault,
        "its Service has no endpoint that it could lead to",
        &["udp", &format!("src={EMPTY}"), &format!("sport={TO_EMPTY}")],
    );
}

/// Writes kube-proxy's chains for some Services with one endpoint each, and takes all others away.
fn program(node: &LabNode, services: &[(&str, &str, &Pod)]) -> Result<(), LabError> {
    let saved = node.run(["iptables-save", "-t", "nat"])?.stdout;
    let mut chains = vec![":KUBE-SERVICES - [0:0]".to_owned()];
    let mut rules = Vec::new();
    let mut gone = Vec::new();
    // Old endpoint chains are flushed and deleted in the same restore, as kube-proxy does.
    for line in saved
        .lines()
        .filter(|line| line.starts_with(":KUBE-S") && !line.starts_with(":KUBE-SERVICES"))
    {
        let name = line.trim_start_matches(':').split(' ').next().unwrap_or_default();
        chains.push(format!(":{name} - [0:0]"));
        gone.push(name.to_owned());
    }
    for from in ["PREROUTING", "OUTPUT"] {
        let jump = format!("-A {from} -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES");
        if !saved.lines().any(|line| line == jump) {
            rules.push(jump);
        }
    }
    for &(name, ip, pod) in services {
        for protocol in ["udp", "tcp"] {
            let port = if protocol == "udp" { "dns" } else { "dns-tcp" };
            let full = format!("kube-system/{name}:{port}");
            let to = format!("{}:53", pod.ip);
            let service = format!("KUBE-SVC-{}", hash(&format!("{full}{protocol}")));
            let endpoint = format!("KUBE-SEP-{}", hash(&format!("{full}{protocol}{to}")));
            for chain in [&service, &endpoint] {
                gone.retain(|old| old != chain);
                let line = format!(":{chain} - [0:0]");
                if !chains.contains(&line) {
                    chains.push(line);
                }
            }
            rules.push(format!(
                "-A KUBE-SERVICES -d {ip}/32 -p {protocol} -m comment --comment \"{full} cluster IP\" -m {protocol} --dport 53 -j {service}"
            ));
            rules.push(format!(
                "-A {service} -m comment --comment \"{full} -> {to}\" -j {endpoint}"
            ));
            rules.push(format!(
                "-A {endpoint} -p {protocol} -m comment --comment \"{full}\" -m {protocol} -j DNAT --to-destination {to}"
            ));
        }
    }
    rules.extend(gone.iter().map(|name| format!("-X {name}")));
    let text = format!("*nat\n{}\n{}\nCOMMIT\n", chains.join("\n"), rules.join("\n"));
    node.run_stdin(["iptables-restore", "-w", "10", "--noflush"], text)?;
    Ok(())
}

/// kube-proxy's name for a chain: the first 16 characters of the Base32 of a SHA-256 (`pkg/proxy/iptables/proxier.go`,
/// `portProtoHash` and `servicePortEndpointChainName`).
fn hash(name: &str) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let digest = Sha256::digest(name.as_bytes());
    let bits = digest
        .iter()
        .take(10)
        .fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    (0..16)
        .rev()
        .map(|place| char::from(ALPHABET[(bits >> (5 * place)) as usize & 31]))
        .collect()
}

fn service(name: &str, ip: &str) -> Value {
    json!({
        "metadata": {"namespace": "kube-system", "name": name},
        "spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"],
                 "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "selector": {"k8s-app": name},
                 "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                           {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53}]},
        "status": {"loadBalancer": {}},
    })
}

fn slice(service: &str, endpoint: Option<&Pod>) -> Value {
    let endpoints: Vec<Value> = endpoint
        .into_iter()
        .map(|pod| {
            json!({"addresses": [pod.ip], "conditions": {"ready": true, "serving": true, "terminating": false},
                   "targetRef": {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}})
        })
        .collect();
    json!({
        "metadata": {"namespace": "kube-system", "name": format!("{service}-x7k2p"),
                     "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}],
    })
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn chains_have_the_names_that_kube_proxy_gives_them() {
        // Known from every cluster with CoreDNS.
        assert_eq!(hash("kube-system/kube-dns:dnsudp"), "TCOU7JCQXEZGVUNU");
        assert_eq!(hash("kube-system/kube-dns:dns-tcptcp"), "ERIFXISQEP7F7OF4");
        assert_eq!(hash("default/kubernetes:httpstcp"), "NPX46M4PTMTKRN6Y");
    }
}
