//! Whether packets for a dead Pod can circulate here: unused addresses of this node's Pods that lead back to where they came from.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Rule;
use crate::{
    finding::{Evidence, Finding, Object, Verdict, Witness},
    judge::Judge,
    model::{NodeState, Route},
};

/// See the page.
pub(super) static RULE: Rule = Rule {
    id: "loop-exposed",
    tier: 2,
    summary: "unused Pod addresses of this node lead back into the network that delivers them",
    page: include_str!("pages/loop-exposed.md"),
    // A recording without routes lacks nothing that another rule would need.
    needs: &[],
    judge,
};

fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    let ranges = judge
        .state
        .kube_node()
        .into_iter()
        .flat_map(|node| &node.pod_cidrs);
    let mut out: Vec<Finding> = ranges
        .filter_map(|range| range_is_exposed(judge.state, *range))
        .collect();
    out.extend(adapters_are_exposed(judge));
    out
}

/// The route that packets for an unused address of the range take: the longest that covers all of it.
fn covering(routes: &[Route], range: IpNet) -> Option<&Route> {
    let main = routes.iter().filter(|route| route.table == 254);
    let covers = main.filter(|route| match route.dst {
        Some(dst) => dst.contains(&range),
        None => route
            .gateway
            .is_some_and(|ip| ip.is_ipv4() == range.addr().is_ipv4()),
    });
    covers.max_by_key(|route| {
        let length = route.dst.map_or(0, |dst| dst.prefix_len());
        (length, std::cmp::Reverse(route.metric))
    })
}

fn range_is_exposed(state: &NodeState, range: IpNet) -> Option<Finding> {
    if !state.routes.is_complete() || state.routes.value.is_empty() {
        return None;
    }
    // A range that no Pod of this node has an address of is not what its Pods live in (Calico's blocks are elsewhere).
    if !state
        .local_pods()
        .any(|pod| pod.own_ips().any(|ip| range.contains(&ip)))
    {
        return None;
    }
    // Parts of it may have routes of their own.
    let parts = |route: &Route| {
        route.dst.is_some_and(|dst| {
            range.contains(&dst) && dst != range && dst.prefix_len() < dst.max_prefix_len()
        })
    };
    if state.routes.value.iter().any(parts) {
        return None;
    }
    let route = covering(&state.routes.value, range)?;
    // Blackhole and its like end it here, and a link of the node's own (a bridge) asks for a neighbour that is not there.
    let away = route.kind == "unicast" && route.gateway.is_some();
    if !away {
        return None;
    }
    let to = route
        .dst
        .map_or_else(|| "default".to_owned(), |dst| dst.to_string());
    let dev = route.dev.as_deref().unwrap_or("-");
    let via = route.gateway.map(|ip| format!(" via {ip}")).unwrap_or_default();
    Some(Finding {
        rule: RULE.id,
        verdict: Verdict::Advice,
        why_not_repair: Some(format!(
            "nothing is wrong now; one step prevents it: ip route add blackhole {range} metric 4294967295"
        )),
        object: Object::PodRange { range },
        owner: None,
        consequence: format!(
            "A packet for an address of {range} that no Pod has leaves by the route that it came from, and comes again until its time to \
             live ends."
        ),
        evidence: vec![Evidence::new(
            state.routes.source_names(),
            format!("unused addresses of {range} take: {to}{via} dev {dev}"),
        )],
        witnesses: vec![Witness::Kernel],
        remedy: None,
    })
}

/// A Windows node whose adapter owns addresses that no endpoint has: what they lack is packets.
fn adapters_are_exposed(judge: &Judge<'_>) -> Option<Finding> {
    let state = judge.state;
    if !state.hns_endpoints.is_complete() {
        return None;
    }
    let list = state.adapters.value.iter().find(|list| list.is_whole())?;
    if judge.roster.doubt_adapters().is_some() {
        return None;
    }
    let used = |ip: IpAddr| {
        state
            .hns_endpoints
            .value
            .iter()
            .any(|e| e.is_local() && e.addresses.contains(&ip))
    };
    let secondary: Vec<IpAddr> = list
        .addresses()
        .filter(|(_, owned)| !owned.primary)
        .map(|(_, owned)| owned.address)
        .collect();
    let free = secondary.iter().filter(|ip| !used(**ip)).count();
    if free == 0 {
        return None;
    }
    let accelerated = list.nics.iter().any(|nic| nic.accelerated == Some(true));
    let mut evidence = vec![Evidence::new(
        &list.path,
        format!(
            "its adapters own {} addresses for Pods, and {free} of them have no endpoint",
            secondary.len()
        ),
    )];
    if accelerated {
        evidence.push(Evidence::new(
            &list.path,
            "accelerated networking is on: packets can come in by one adapter and leave by the other",
        ));
    }
    let name = list.nics.iter().find_map(|nic| nic.name.clone());
    Some(Finding {
        rule: RULE.id,
        verdict: Verdict::Advice,
        why_not_repair: Some(
            "nothing is wrong now, and free addresses are normal here; Pods with addresses of a range of their own (an overlay) do \
             away with them"
                .to_owned(),
        ),
        object: Object::NicPool {
            nic: name,
            list: list.path.clone(),
        },
        owner: None,
        consequence: "The network delivers packets for addresses that nobody uses to this node; on some nodes such packets have circulated."
            .to_owned(),
        evidence,
        witnesses: vec![Witness::Kernel],
        remedy: None,
    })
}
