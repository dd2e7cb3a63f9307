//! The same two in nftables: what CNI plugins 1.6 and later leave of a lost sandbox, and a node port map with old targets.
//!
//! The words are those of the plugins (`plugins/meta/portmap/portmap_nftables.go`, `pkg/ip/ipmasq_nftables_linux.go`); Debian 12 ships a
//! release that has iptables only, so `nft` says them here.

use serde_json::json;
use sha2::{Digest as _, Sha512};

use super::{Fault, expect_leftovers, lose, npl};
use crate::error::LabError;
use crate::node::{LabNode, NODE_IP};
use crate::pods::{Pod, PodSpec};
use crate::truth::{Protocol, TargetPath};

/// The host port that two Pods had, one after the other.
const SHADOWED: u16 = 8090;

/// Protocol, Pod's port, node's port of the Pod that is made again.
const BRIDGE: [(Protocol, u16, u16); 3] = [
    (Protocol::Tcp, 5070, 61100),
    (Protocol::Tcp, 5071, 61101),
    (Protocol::Udp, 5072, 61102),
];

/// The node port that was mapped anew.
const FOLLOWED: u16 = 61100;

pub(super) fn make(node: &LabNode) -> Result<(), LabError> {
    plugins(node)?;
    map(node)
}

/// First 16 hex digits of SHA-512, as the plugins' comments have them.
fn hash(text: &str) -> String {
    let digest = Sha512::digest(text);
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn masquerade_comment(pod: &Pod) -> String {
    let id = &pod.sandbox;
    let (network, instance) = (hash("podnet"), hash(&format!("eth0:{id}")));
    format!("{network}-{instance}, net: podnet, if: eth0, id: {id}")
}

/// portmap's and bridge's rules of a sandbox that was lost, before those of a living one.
fn plugins(node: &LabNode) -> Result<(), LabError> {
    let spec = |name: &str| PodSpec::new("edge", name).tcp(80);
    let dead = node.pod(spec("ingress-0").untargeted())?;
    lose(node, &[&dead])?;
    let living = node.pod(spec("ingress-1"))?;
    let mut text = String::from(
        "add table ip cni_hostport { comment \"CNI portmap plugin\" ; }
add chain ip cni_hostport hostports
add chain ip cni_hostport prerouting { type nat hook prerouting priority -100 ; }
add rule ip cni_hostport prerouting fib daddr type local jump hostports
add chain ip cni_hostport output { type nat hook output priority -100 ; }
add rule ip cni_hostport output fib daddr type local jump hostports
add chain ip cni_hostport masquerading { type nat hook postrouting priority 100 ; }
add table inet cni_plugins_masquerade
add chain inet cni_plugins_masquerade masq_checks
add chain inet cni_plugins_masquerade postrouting { type nat hook postrouting priority 100 ; }
add rule inet cni_plugins_masquerade postrouting ip daddr == 224.0.0.0/4 return
add rule inet cni_plugins_masquerade postrouting goto masq_checks
",
    );
    for pod in [&dead, &living] {
        let (ip, id) = (pod.ip, &pod.sandbox);
        let masquerade = masquerade_comment(pod);
        text += &format!(
            "add rule ip cni_hostport hostports tcp dport {SHADOWED} dnat to {ip}:80 comment \"{id}\"
add rule ip cni_hostport masquerading ip saddr {ip} ip daddr {ip} masquerade comment \"{id}\"
add rule inet cni_plugins_masquerade masq_checks ip saddr == {ip} ip daddr != 10.10.1.0/24 masquerade comment \"{masquerade}\"
"
        );
    }
    node.run_stdin(["nft", "-f", "-"], text)?;
    // The lab's own portmap writes iptables, so only the API hears of the host port.
    node.edit_pod(&living, |object| {
        object["spec"]["containers"][0]["ports"][0]["hostPort"] = json!(SHADOWED);
    })?;
    node.leads(&living, SHADOWED, Protocol::Tcp, TargetPath::HostPort, false);

    let dnat = format!("tcp dport {SHADOWED} dnat to {}:80", dead.ip);
    let masquerade = format!("net: podnet, if: eth0, id: {}", dead.sandbox);
    for (rule, contains) in [
        ("hostport-stale-target", &dnat),
        ("cni-rule-dead-sandbox", &masquerade),
    ] {
        node.expect(Fault::Nftables, rule, "stale", "repair", &[contains]);
    }
    expect_leftovers(node, Fault::Nftables, &dead);
    node.keep(
        Fault::Nftables,
        "rules of a sandbox that runs",
        &[&living.sandbox],
    );
    Ok(())
}

/// A map of node ports of which two still lead to the address that the Pod had before.
fn map(node: &LabNode) -> Result<(), LabError> {
    let spec = || {
        let spec = PodSpec::new("voice", "bridge-0").stateful().untargeted();
        spec.tcp(5070).tcp(5071).udp(5072)
    };
    let old = node.pod(spec())?;
    node.delete_pod(&old)?;
    let new = node.pod(spec())?;
    let mut text = format!(
        "table inet sexton {{
  map npl4 {{ type inet_proto . inet_service : ipv4_addr . inet_service; }}
  chain prerouting {{
    type nat hook prerouting priority -110;
    ip daddr {NODE_IP} dnat ip to meta l4proto . th dport map @npl4
  }}
  chain output {{
    type nat hook output priority -110;
    ip daddr {NODE_IP} dnat ip to meta l4proto . th dport map @npl4
  }}
}}
"
    );
    for (protocol, port, node_port) in BRIDGE {
        let pod = if node_port == FOLLOWED { &new } else { &old };
        let (ip, uid, protocol) = (pod.ip, &pod.uid, protocol.lower());
        text += &format!(
            "add element inet sexton npl4 {{ {protocol} . {node_port} comment \"sexton:{uid}:npl\" : {ip} . {port} }}\n"
        );
    }
    node.run_stdin(["nft", "-f", "-"], text)?;
    npl::annotate(node, &new, &BRIDGE)?;
    for (protocol, port, node_port) in BRIDGE {
        let followed = node_port == FOLLOWED;
        node.leads(&new, node_port, protocol, TargetPath::Npl, followed);
        let words = format!("{} . {node_port}", protocol.lower());
        let leads = |to: &Pod| format!("{} . {port}", to.ip);
        if followed {
            node.keep(
                Fault::Nftables,
                "leads to the Pod that is there now",
                &[&words, &leads(&new)],
            );
        } else {
            let contains = [words.as_str(), &leads(&old)];
            node.expect(Fault::Nftables, "npl-stale-target", "stale", "repair", &contains);
        }
    }
    Ok(())
}
