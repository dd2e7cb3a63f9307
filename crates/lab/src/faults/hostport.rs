//! A hostPort that portmap was never asked to take away.

use super::{Fault, expect_leftovers, lose};
use crate::error::LabError;
use crate::node::LabNode;
use crate::pods::PodSpec;

/// The port that two Pods had, one after the other.
const SHADOWED: u16 = 8080;

/// The port of a Pod that was always well.
const HEALTHY: u16 = 8081;

pub(super) fn make(node: &LabNode) -> Result<(), LabError> {
    let spec = |name: &str, port| PodSpec::new("edge", name).tcp(80).host_port_tcp(port, 80);
    // One after the other: side by side, portmap writes some of its jumps twice.
    let dead = node.pod(spec("proxy-0", SHADOWED))?;
    let healthy = node.pod(spec("metrics-0", HEALTHY))?;
    lose(node, &[&dead])?;
    // portmap appends: the dead sandbox's rule stays the first for this port.
    let living = node.pod(spec("proxy-1", SHADOWED))?;
    node.breaks(&living, SHADOWED);

    let (to, port) = (format!("{}:80", dead.ip), SHADOWED.to_string());
    node.expect(
        Fault::HostPort,
        "hostport-stale-target",
        "stale",
        "repair",
        &[&dead.sandbox, &port, &to],
    );
    expect_leftovers(node, Fault::HostPort, &dead);
    let to = format!("{}:80", living.ip);
    node.keep(
        Fault::HostPort,
        "the same hostPort, of a sandbox that runs",
        &[&living.sandbox],
    );
    node.keep(
        Fault::HostPort,
        "the same hostPort, of a sandbox that runs",
        &[&to],
    );
    node.keep(
        Fault::HostPort,
        "another hostPort, of a sandbox that runs",
        &[&healthy.sandbox],
    );
    Ok(())
}
