//! host-local leases whose sandbox no runtime knows.

use super::{Fault, expect_leftovers, lose};
use crate::error::LabError;
use crate::node::LabNode;
use crate::pods::PodSpec;

pub(super) fn make(node: &LabNode) -> Result<(), LabError> {
    let spec = |name: &str| PodSpec::new("shop", name).tcp(8080);
    let pods = node.pods([spec("cart-0"), spec("cart-1"), spec("cart-2")])?;
    let [first, second, living] = &pods[..] else {
        return Err(LabError::State("three Pods were asked for".into()));
    };
    lose(node, &[first, second])?;
    for pod in [first, second] {
        expect_leftovers(node, Fault::Leases, pod);
    }
    // As old as the others: only the runtime tells them apart.
    node.age_files(living)?;
    let lease = format!("/var/lib/cni/networks/podnet/{}", living.ip);
    node.keep(
        Fault::Leases,
        "as old a lease, of a sandbox that runs",
        &[&lease, &living.sandbox],
    );
    node.keep(
        Fault::Leases,
        "the masquerade rule of a sandbox that runs",
        &["-A POSTROUTING", &living.sandbox],
    );
    Ok(())
}
