//! A drop of Sexton's own that outlived its reason.

use std::net::Ipv4Addr;

use super::Fault;
use crate::error::LabError;
use crate::node::{LabNode, UPLINK, random_id};
use crate::pods::PodSpec;

/// An address at which nobody lives, and for which a drop is right.
const DEAD: Ipv4Addr = Ipv4Addr::new(10, 10, 1, 250);

pub(super) fn make(node: &LabNode) -> Result<(), LabError> {
    let living = node.pod(PodSpec::new("shop", "search-0").tcp(8080))?;
    let (before, dead) = (random_id()?, random_id()?);
    let ip = living.ip;
    node.run_stdin(
        ["nft", "-f", "-"],
        format!(
            "table netdev sexton {{
  set tombstones {{ type ipv4_addr; flags timeout; }}
  chain uplink {{ type filter hook ingress device \"{UPLINK}\" priority -500; ip daddr @tombstones drop; }}
}}
add element netdev sexton tombstones {{ {ip} timeout 1h comment \"sexton:{before}:loop\" }}
add element netdev sexton tombstones {{ {DEAD} timeout 1h comment \"sexton:{dead}:loop\" }}
"
        ),
    )?;
    node.breaks(&living, 8080);
    let mark = format!("sexton:{before}:loop");
    node.expect(
        Fault::Tombstone,
        "tombstone-over-live-pod",
        "conflict",
        "repair",
        &[&ip.to_string(), &mark],
    );
    node.keep(
        Fault::Tombstone,
        "a drop for an address at which nobody lives",
        &[&format!("sexton:{dead}:loop")],
    );
    Ok(())
}
