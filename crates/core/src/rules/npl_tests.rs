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

/// What is said of mappings of tcp port 61000: verdict, whether it may be repaired, owner, consequence.
type Said = (Verdict, bool, Option<String>, String);

fn said(state: &NodeState) -> Vec<Said> {
    let all = judge(state);
    let stale = all.iter().filter(|f| f.rule == "npl-stale-target");
    stale
        .map(|f| {
            let owner = f.owner.as_ref().map(|owner| owner.pod_name().to_string());
            let repair = f.action() == crate::finding::Action::Repair;
            (f.verdict, repair, owner, f.consequence.clone())
        })
        .collect()
}

fn to(target: &str) -> XtRule {
    dnat(ANTREA_NPL_CHAIN, Proto::Tcp, 61000, target)
}

/// Two Pods of this node, and one of another; those that `announce` have tcp port 61000 for their port 80.
fn mapped(rules: Vec<XtRule>, announce: &[&str]) -> NodeState {
    let mut far = pod("far-0", 3, "10.10.1.4");
    far.node = Some("worker-z".to_owned());
    let mut pods = vec![pod("web-0", 1, "10.10.1.2"), pod("web-1", 2, "10.10.1.3"), far];
    for pod in pods
        .iter_mut()
        .filter(|pod| announce.contains(&pod.name.as_str()))
    {
        pod.npl = npl(&[(Proto::Tcp, 61000, 80)]);
    }
    let mut state = with_tables(node(pods), vec![npl_table(rules)]);
    state
        .runtime
        .value
        .sandboxes
        .retain(|sandbox| sandbox.pod.name != "far-0");
    state
}

fn cut(state: NodeState) -> NodeState {
    let mut state = state;
    state.pods.completeness = Completeness::Partial("cut off".to_owned());
    state
}

#[test]
fn behind_a_port_that_nobody_announces_only_a_pod_of_this_node_is_right() {
    let of = |target| mapped(vec![to(target)], &[]);
    assert_eq!(said(&of("10.10.1.2:80")), []);
    let elsewhere =
        "Traffic to tcp port 61000 (ipv4) of this node reaches Pod voice/far-0, which is not of this node.";
    assert_eq!(
        said(&of("10.10.1.4:80")),
        [(Verdict::Stale, true, None, elsewhere.to_owned())]
    );
    // A Pod that the API did not list yet may be of this node under any name.
    assert_eq!(said(&cut(of("10.10.1.4:80"))), []);
    let nobody = "Traffic to tcp port 61000 (ipv4) of this node is sent to 10.10.1.9, where nobody lives.";
    assert_eq!(
        said(&of("10.10.1.9:80")),
        [(Verdict::Stale, true, None, nobody.to_owned())]
    );
}

#[test]
fn a_stranger_behind_an_announced_port_is_wrong_only_where_the_annotations_tell_whose_it_is() {
    let stranger = "Traffic to tcp port 61000 (ipv4) of this node reaches Pod voice/web-1 instead; Pod voice/web-0 announces the port and gets none \
                    of it.";
    let wrong = (
        Verdict::Stale,
        true,
        Some("voice/web-0".to_owned()),
        stranger.to_owned(),
    );
    let one = || mapped(vec![to("10.10.1.3:80")], &["web-0"]);
    assert_eq!(said(&one()), [wrong]);

    let untold = "Traffic to tcp port 61000 (ipv4) of this node is sent to 10.10.1.3, and who lives there cannot be told.";
    let cannot_tell = |owner: Option<&str>| {
        (
            Verdict::Unknown,
            false,
            owner.map(str::to_owned),
            untold.to_owned(),
        )
    };
    assert_eq!(said(&cut(one())), [cannot_tell(Some("voice/web-0"))]);
    // Two that announce it, neither of them who is behind it.
    let mut two = one();
    let mut third = pod("web-2", 4, "10.10.1.5");
    third.npl = npl(&[(Proto::Tcp, 61000, 80)]);
    two.runtime
        .value
        .sandboxes
        .push(sandbox(&third, id("0004aaaaaaaaaaaa")));
    two.pods.value.push(third);
    assert_eq!(said(&two), [cannot_tell(None)]);
    let all = judge(&two);
    let both = "voice/web-0 and voice/web-2 all announce tcp port 61000";
    assert!(
        all.iter().any(|f| f.evidence.iter().any(|e| e.text == both)),
        "{all:#?}"
    );
    // With one there is nothing of that kind to say.
    assert!(
        !judge(&one())
            .iter()
            .any(|f| f.evidence.iter().any(|e| e.text.contains("all announce")))
    );
}

/// Moving a living Pod's traffic takes the second witness: the runtime must have been read whole.
#[test]
fn a_strangers_traffic_is_moved_only_where_the_runtime_spoke() {
    let mut state = mapped(vec![to("10.10.1.3:80")], &["web-0"]);
    state.runtime.completeness = Completeness::Partial("one sandbox did not answer".to_owned());
    let all = judge(&state);
    let finding = all.iter().find(|f| f.rule == "npl-stale-target").unwrap();
    assert_eq!(finding.verdict, Verdict::Stale);
    let why = finding.why_not_repair.as_deref().unwrap();
    assert!(
        why.contains("PodSandboxStatus of every sandbox from the runtime"),
        "{why}"
    );
}

/// The first rule for a port is the one that works; the wrong one is said to wait behind it only where it does.
#[test]
fn a_wrong_rule_is_shadowed_only_by_a_right_one_before_it() {
    let behind = "The right rule for tcp port 61000 (ipv4) stands before this one, which would lead to 10.10.1.9 as soon as that is gone.";
    let first = "Traffic to tcp port 61000 (ipv4) of this node is sent to 10.10.1.9, where nobody lives; Pod voice/web-0 announces the port and gets \
                 none of it.";
    let (right, wrong) = (to("10.10.1.2:80"), to("10.10.1.9:80"));
    for (rules, text) in [
        (vec![right.clone(), wrong.clone()], behind),
        (vec![wrong, right], first),
    ] {
        let owner = Some("voice/web-0".to_owned());
        assert_eq!(
            said(&mapped(rules, &["web-0"])),
            [(Verdict::Stale, true, owner, text.to_owned())]
        );
    }
}

/// An annotation that names one mapping twice says one thing; two Pods that name one port contradict each other.
#[test]
fn one_mapping_named_twice_is_one_claim() {
    let mut state = mapped(vec![to("10.10.1.9:80")], &["web-0"]);
    state.pods.value[0].npl = npl(&[(Proto::Tcp, 61000, 80), (Proto::Tcp, 61000, 80)]);
    assert_eq!(
        said(&state).iter().map(|s| (s.0, s.1)).collect::<Vec<_>>(),
        [(Verdict::Stale, true)]
    );
    // Another port of the same Pod is another claim.
    state.pods.value[0].npl = npl(&[(Proto::Tcp, 61000, 80), (Proto::Tcp, 61000, 81)]);
    assert_eq!(
        said(&state).iter().map(|s| (s.0, s.1)).collect::<Vec<_>>(),
        [(Verdict::Stale, false)]
    );
    // As is the same port of another Pod.
    let state = mapped(vec![to("10.10.1.9:80")], &["web-0", "web-1"]);
    assert_eq!(
        said(&state).iter().map(|s| (s.0, s.1)).collect::<Vec<_>>(),
        [(Verdict::Stale, false)]
    );
}

/// A rule of a range of ports takes each of them of its own protocol, and no other.
#[test]
fn a_range_takes_the_ports_of_its_protocol() {
    let missing = |proto, port| {
        let mut web = pod("web-0", 1, "10.10.1.2");
        web.npl = npl(&[(proto, port, 80)]);
        let mut range = to("10.10.1.2:80");
        range.spec.dports[0] = PortRange {
            first: 61000,
            last: 61005,
        };
        let state = with_tables(node(vec![web]), vec![npl_table(vec![range])]);
        found(&state).contains(&("npl-missing-mapping", Verdict::Missing))
    };
    assert!(!missing(Proto::Tcp, 61000));
    assert!(!missing(Proto::Tcp, 61005));
    assert!(missing(Proto::Udp, 61002));
    assert!(missing(Proto::Tcp, 61006));
}
