//! Pairs of NodePortLocal mappings that differ in one fact.

use crate::{finding::Verdict, marks::ANTREA_NPL_CHAIN, model::*, testkit::*};

/// Rule and verdict of everything that is found.
fn found(state: &NodeState) -> Vec<(&'static str, Verdict)> {
    judge(state).iter().map(|f| (f.rule, f.verdict)).collect()
}

#[test]
fn a_mapping_in_another_form_than_the_controllers_is_not_told() {
    let stale = dnat(ANTREA_NPL_CHAIN, Proto::Tcp, 61000, "10.10.1.9:80");
    let of = |change: &dyn Fn(&mut XtMatch)| {
        let mut rule = stale.clone();
        change(&mut rule.spec);
        found(&with_tables(
            node(vec![pod("web-0", 1, "10.10.1.2")]),
            vec![npl_table(vec![rule])],
        ))
    };
    let text = || Some("x".to_owned());
    assert_eq!(of(&|_| {}), [("npl-stale-target", Verdict::Stale)]);
    let changes: [&dyn Fn(&mut XtMatch); 9] = [
        &|spec| spec.negated = true,
        &|spec| spec.others.push("--tcp-flags".to_owned()),
        &|spec| spec.source = text(),
        &|spec| spec.destination = text(),
        &|spec| spec.in_interface = text(),
        &|spec| spec.out_interface = text(),
        &|spec| spec.dst_type = text(),
        &|spec| spec.dports[0].last += 1,
        &|spec| spec.dnat = None,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(
            of(change),
            [("npl-stale-target", Verdict::Unknown)],
            "change {number}"
        );
    }
}

#[test]
fn an_announced_port_that_is_the_pods_host_port_needs_no_mapping() {
    let missing = |container_port, host_port, proto| {
        let mut web = pod("web-0", 1, "10.10.1.2");
        web.npl = npl(&[(Proto::Tcp, 8080, 80)]);
        web.ports = vec![ContainerPort {
            name: None,
            container_port,
            host_port: Some(host_port),
            host_ip: None,
            proto,
        }];
        found(&with_tables(node(vec![web]), vec![npl_table(Vec::new())]))
    };
    assert_eq!(missing(80, 8080, Proto::Tcp), []);
    let lacks = [("npl-missing-mapping", Verdict::Missing)];
    assert_eq!(missing(81, 8080, Proto::Tcp), lacks);
    assert_eq!(missing(80, 8081, Proto::Tcp), lacks);
    assert_eq!(missing(80, 8080, Proto::Udp), lacks);
}
