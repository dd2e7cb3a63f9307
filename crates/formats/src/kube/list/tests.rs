use super::*;

const LIST: &str = r#"{
  "apiVersion": "v1",
  "items": [
    {"kind": "Pod", "metadata": {"name": "a", "namespace": "x"}, "status": {"podIP": "10.0.0.1"}},
    {"kind": "Service", "metadata": {"name": "s", "namespace": "x"}, "spec": {"clusterIP": "10.96.0.1"}},
    {"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "x"}},
    {"kind": "Pod", "metadata": {"name": "b", "namespace": "y"}, "status": {"podIP": "10.0.0.2"}}
  ],
  "kind": "List",
  "metadata": {"resourceVersion": ""}
}"#;

fn read(text: &str, hint: Option<Kind>) -> (Vec<String>, ListOutcome) {
    let mut names = Vec::new();
    let outcome = read_json(text.as_bytes(), hint, &mut |item| names.push(name(&item)));
    (names, outcome)
}

fn name(item: &KubeItem) -> String {
    match item {
        KubeItem::Pod(pod, _) => format!("pod {}/{} {:?}", pod.namespace, pod.name, pod.ips),
        KubeItem::Service(service) => format!("service {} {:?}", service.name, service.cluster_ips),
        KubeItem::EndpointSlice(slice) => format!("slice {}", slice.name),
        KubeItem::Node(node) => format!("node {}", node.name),
        KubeItem::ServiceCidr(nets) => format!("cidrs {nets:?}"),
        KubeItem::Event(past) => format!("event {past:?}"),
    }
}

#[test]
fn a_mixed_list_of_kubectl() {
    let (names, outcome) = read(LIST, Some(Kind::Pod));
    assert_eq!(
        names,
        [
            "pod x/a [10.0.0.1]",
            "service s [10.96.0.1]",
            "pod y/b [10.0.0.2]"
        ]
    );
    assert_eq!(
        outcome,
        ListOutcome {
            kinds: vec![(Kind::Pod, 2), (Kind::Service, 1)],
            completeness: Completeness::Complete,
            ignored: 1,
            problems: vec![],
            meta: ListMeta {
                resource_version: Some(String::new()),
                ..ListMeta::default()
            },
        }
    );
}

#[test]
fn yaml_says_the_same_as_json() {
    let yaml = "apiVersion: v1\nitems:\n- kind: Pod\n  metadata:\n    name: a\n    namespace: x\n    annotations:\n      nodeportlocal.antrea.io: '[{\"podPort\":80,\"nodePort\":61000}]'\n  status:\n    podIP: 10.0.0.1\n- kind: Service\n  metadata: {name: s, namespace: x}\n  spec:\n    clusterIP: 10.96.0.1\n- kind: ConfigMap\n  metadata: {name: c}\n- kind: Pod\n  metadata: {name: b, namespace: \"y\"}\n  status: {podIP: 10.0.0.2}\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";
    let mut names = Vec::new();
    let outcome = read_yaml(yaml.as_bytes(), None, &mut |item| names.push(name(&item)));
    let (of_json, of_json_outcome) = read(LIST, None);
    assert_eq!(names, of_json);
    assert_eq!(outcome, of_json_outcome);
}

#[test]
fn cut_yaml_keeps_what_came_before() {
    let yaml = "kind: PodList\nitems:\n- metadata: {name: a, namespace: x}\n- metadata: {name: b, namespace: x}\n- metadata: {name: \"c";
    let mut names = Vec::new();
    let outcome = read_yaml(yaml.as_bytes(), None, &mut |item| names.push(name(&item)));
    assert_eq!(names, ["pod x/a []", "pod x/b []"]);
    assert_eq!(outcome.problems[0].0, "line 5 column 20");
    assert!(matches!(outcome.completeness, Completeness::Partial(_)));
}

#[test]
fn every_cut_keeps_the_whole_items_before_it_and_says_so() {
    let (all, _) = read(LIST, None);
    for cut in 1..LIST.len() {
        let (names, outcome) = read(&LIST[..cut], Some(Kind::Pod));
        assert!(all.starts_with(&names), "cut at {cut}: {names:?}");
        let why = outcome.completeness.why().unwrap();
        assert!(why.starts_with("the JSON is cut off"), "cut at {cut}: {why}");
        assert!(outcome.count(Kind::Pod).is_some());
    }
    let cut = LIST.find("{\"kind\": \"ConfigMap").unwrap();
    let (names, outcome) = read(&LIST[..cut + 9], Some(Kind::Pod));
    assert_eq!(names.len(), 2);
    assert_eq!(
        outcome.problems,
        [(
            "line 6 column 13".to_owned(),
            "the JSON is cut off (EOF while parsing a value); 2 items before it are used".to_owned()
        )]
    );
}

#[test]
fn a_continue_token_makes_it_partial() {
    for place in ["before", "after"] {
        let meta = r#""metadata": {"continue": "tok", "remainingItemCount": 412}"#;
        let items = r#""items": [{"metadata": {"name": "a", "namespace": "x"}}]"#;
        let (first, second) = if place == "before" {
            (meta, items)
        } else {
            (items, meta)
        };
        let text = format!("{{\"kind\": \"PodList\", {first}, {second}}}");
        let (names, outcome) = read(&text, None);
        assert_eq!(names, ["pod x/a []"]);
        assert_eq!(
            outcome.completeness,
            Completeness::Partial(
                "the list was cut by a limit: its continue token is set and 412 more items remain".to_owned()
            )
        );
    }
}

#[test]
fn one_bad_item_costs_one_item_and_completeness() {
    let text = r#"{"items": [{"metadata": {"name": "a", "namespace": "x"}}, {"metadata": {"name": "b", "namespace": "x"}, "status": {"podIP": "nope"}}, 7, {"metadata": {"name": "c", "namespace": "x"}}]}"#;
    let (names, outcome) = read(text, Some(Kind::Pod));
    assert_eq!(names, ["pod x/a []", "pod x/c []"]);
    assert_eq!(
        outcome.completeness,
        Completeness::Partial("items that could not be read: 2 of 4".to_owned())
    );
    assert_eq!(
        outcome.problems[0],
        (
            "items[1] (x/b)".to_owned(),
            "left out: not an IP address: \"nope\"".to_owned()
        )
    );
    assert_eq!(outcome.problems[1].0, "items[2]");
}

#[test]
fn unreadable_network_status_makes_the_list_partial() {
    let text = r#"{"kind": "PodList", "items": [{"metadata": {"name": "a", "namespace": "x", "annotations": {"k8s.v1.cni.cncf.io/network-status": "{"}}}]}"#;
    let (names, outcome) = read(text, None);
    assert_eq!(names.len(), 1);
    assert_eq!(
        outcome.completeness,
        Completeness::Partial("Pods with addresses that could not be read: 1".to_owned())
    );
    assert_eq!(outcome.problems.len(), 1);
}

#[test]
fn one_object_is_read_and_is_not_a_list() {
    let (names, outcome) = read(
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"}, "spec": {}, "status": {"podIP": "10.0.0.1"}}"#,
        None,
    );
    assert_eq!(names, ["pod x/a [10.0.0.1]"]);
    assert_eq!(
        outcome.completeness,
        Completeness::Partial("it is one object, not a list".to_owned())
    );
}

#[test]
fn empty_lists_have_the_kind_they_promise() {
    for text in [
        r#"{"kind": "PodList", "items": []}"#,
        r#"{"kind": "PodList", "items": null}"#,
    ] {
        let (_, outcome) = read(text, None);
        assert_eq!(outcome.kinds, [(Kind::Pod, 0)]);
        assert_eq!(outcome.completeness, Completeness::Complete);
    }
    let (_, outcome) = read(r#"{"kind": "List", "items": []}"#, None);
    assert_eq!(outcome.kinds, []);
    let (_, outcome) = read("{}", Some(Kind::Pod));
    assert!(matches!(outcome.completeness, Completeness::Unavailable(_)));
}

#[test]
fn what_is_no_list_is_said_so() {
    for text in [
        "",
        "[1, 2",
        "Error from server (Forbidden): pods is forbidden",
        "\"text\"",
    ] {
        let (names, outcome) = read(text, Some(Kind::Pod));
        assert_eq!(names, Vec::<String>::new());
        assert!(!outcome.completeness.is_complete(), "{text:?}");
        assert!(!outcome.problems.is_empty(), "{text:?}");
    }
}
