use sexton_core::model::{PastEvent, PastKind, PodName};

use super::*;

fn pod(json: &str) -> PodObject {
    serde_json::from_str(json).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_whole_pod() {
    let object = pod(r#"{
        "kind": "Pod",
        "metadata": {"name": "relay-1", "namespace": "voice", "uid": "E6D6282B-2a3f-4c41-8e64-a1f815a56cc0",
            "creationTimestamp": "2026-11-30T16:18:30Z", "deletionTimestamp": "2026-11-30T16:19:00Z",
            "labels": {"app": "relay"},
            "annotations": {
                "other": "dropped",
                "nodeportlocal.antrea.io": "[{\"podPort\":5060,\"nodeIP\":\"172.20.0.11\",\"nodePort\":61000,\"protocol\":\"tcp\"},{\"podPort\":53,\"nodeIP\":\"fd00::11\",\"nodePort\":61001,\"protocol\":\"udp\",\"ipFamily\":\"IPv6\"}]",
                "k8s.v1.cni.cncf.io/network-status": "[{\"name\":\"a\",\"ips\":[\"10.10.1.40\"],\"default\":true},{\"name\":\"b\",\"interface\":\"net1\",\"ips\":[\"::ffff:192.0.2.9\",\"fd01::9\"],\"mac\":\"aa:bb:cc:dd:ee:ff\"}]"}},
        "spec": {"nodeName": "worker-a", "resourceClaims": [{"name": "nic"}],
            "initContainers": [
                {"name": "once", "ports": [{"containerPort": 1}]},
                {"name": "sidecar", "restartPolicy": "Always", "ports": [{"containerPort": 15001, "protocol": "TCP"}]}],
            "containers": [{"name": "relay", "command": ["relay", "-v"], "args": null, "ports": [
                {"containerPort": 5060, "hostPort": 8080, "hostIP": "172.20.0.11", "name": "sip"},
                {"containerPort": 53, "protocol": "UDP", "hostIP": ""}]}]},
        "status": {"phase": "Running", "startTime": "2026-11-30T16:18:31Z", "podIP": "10.10.1.40",
            "podIPs": [{"ip": "10.10.1.40"}, {"ip": "FD00:10::40"}]}}"#);
    assert_eq!(object.problems(), Vec::<String>::new());
    let port = |name: Option<&str>, container_port, host_port, host_ip, proto| ContainerPort {
        name: name.map(str::to_owned),
        container_port,
        host_port,
        host_ip,
        proto,
    };
    assert_eq!(
        Pod::from(object),
        Pod {
            namespace: "voice".to_owned(),
            name: "relay-1".to_owned(),
            uid: Some(PodUid::new("e6d6282b-2a3f-4c41-8e64-a1f815a56cc0")),
            static_uid: None,
            node: Some("worker-a".to_owned()),
            host_network: false,
            phase: Phase::Running,
            ips: vec![ip("10.10.1.40"), ip("fd00:10::40")],
            extra_ips: vec![ip("192.0.2.9"), ip("fd01::9")],
            created_at: Some("2026-11-30T16:18:30Z".parse().unwrap()),
            deleting_since: Some("2026-11-30T16:19:00Z".parse().unwrap()),
            started_at: Some("2026-11-30T16:18:31Z".parse().unwrap()),
            ports: vec![
                port(Some("sip"), 5060, Some(8080), Some(ip("172.20.0.11")), Proto::Tcp),
                port(None, 53, None, None, Proto::Udp),
                port(None, 15001, None, None, Proto::Tcp),
            ],
            npl: NplAnnotation::Entries(vec![
                NplEntry {
                    pod_port: 5060,
                    node_ip: Some(ip("172.20.0.11")),
                    node_port: 61000,
                    proto: Proto::Tcp,
                    ipv6: false,
                },
                NplEntry {
                    pod_port: 53,
                    node_ip: Some(ip("fd00::11")),
                    node_port: 61001,
                    proto: Proto::Udp,
                    ipv6: true,
                },
            ]),
            has_resource_claims: true,
        }
    );
}

#[test]
fn nulls_are_nothing_and_a_mirror_has_its_static_uid() {
    let object = pod(
        r#"{"metadata": {"name": "etcd-cp", "namespace": "kube-system", "uid": "u-1", "creationTimestamp": null,
        "labels": null, "annotations": {"kubernetes.io/config.mirror": "ABCDEF0123456789abcdef0123456789"}},
        "spec": {"hostNetwork": true, "containers": null, "initContainers": null},
        "status": {"phase": "Odd", "podIPs": null, "podIP": ""}}"#,
    );
    assert_eq!(
        Pod::from(object),
        Pod {
            namespace: "kube-system".to_owned(),
            name: "etcd-cp".to_owned(),
            uid: Some(PodUid::new("u-1")),
            static_uid: Some(PodUid::new("abcdef0123456789abcdef0123456789")),
            host_network: true,
            ..Pod::default()
        }
    );
}

#[test]
fn service_cidrs_come_only_from_the_clusters_own_control_plane() {
    let json = |namespace: &str, annotation: &str| {
        format!(
            r#"{{"metadata": {{"name": "kube-apiserver-cp", "namespace": "{namespace}", "annotations": {{"{annotation}": "h"}}}},
            "spec": {{"hostNetwork": true, "containers": [
                {{"name": "a", "command": ["kube-apiserver", "--x=1", "--service-cluster-ip-range=10.96.0.0/12,fd00:96::/112"]}},
                {{"name": "b", "args": ["--service-cluster-ip-range", "10.96.0.0/12"]}}]}}}}"#
        )
    };
    let nets = |object: PodObject| {
        object
            .service_cidrs()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        nets(pod(&json("kube-system", "kubernetes.io/config.mirror"))),
        ["10.96.0.0/12", "fd00:96::/112", "10.96.0.0/12"]
    );
    // A tenant's virtual cluster.
    assert_eq!(
        nets(pod(&json("vcluster", "kubernetes.io/config.mirror"))),
        Vec::<String>::new()
    );
    assert_eq!(nets(pod(&json("kube-system", "other"))), Vec::<String>::new());
}

#[test]
fn npl_annotations_of_all_ages() {
    let entry = |proto, ipv6| NplEntry {
        pod_port: 80,
        node_ip: Some(ip("192.0.2.1")),
        node_port: 61000,
        proto,
        ipv6,
    };
    let one = |tail: &str| {
        parse_npl_annotation(&format!(
            r#"[{{"podPort":80,"nodeIP":"192.0.2.1","nodePort":61000{tail}}}]"#
        ))
    };
    assert_eq!(one(""), NplAnnotation::Entries(vec![entry(Proto::Tcp, false)]));
    assert_eq!(
        one(r#","protocols":["tcp","udp"]"#),
        NplAnnotation::Entries(vec![entry(Proto::Tcp, false), entry(Proto::Udp, false)])
    );
    assert_eq!(
        one(r#","protocol":"udp","protocols":["udp"],"ipFamily":"IPv6""#),
        NplAnnotation::Entries(vec![entry(Proto::Udp, true)])
    );
    assert_eq!(parse_npl_annotation("[]"), NplAnnotation::Entries(vec![]));
    assert_eq!(parse_npl_annotation("null"), NplAnnotation::Entries(vec![]));
    for bad in ["", "{", r#"{"podPort":80}"#, r#"[{"podPort":80}]"#] {
        assert!(
            matches!(parse_npl_annotation(bad), NplAnnotation::Unreadable(_)),
            "{bad:?}"
        );
    }
    assert_eq!(
        one(r#","protocol":"tpc""#),
        NplAnnotation::Unreadable("protocol \"tpc\" (expected tcp or udp)".to_owned())
    );
    assert_eq!(
        one(r#","ipFamily":"v6""#),
        NplAnnotation::Unreadable("ipFamily \"v6\" (expected IPv4 or IPv6)".to_owned())
    );
}

#[test]
fn an_unreadable_address_fails_its_object() {
    let err = serde_json::from_str::<PodObject>(r#"{"status": {"podIPs": [{"ip": "10.0.0"}]}}"#).unwrap_err();
    assert!(
        err.to_string().starts_with("not an IP address: \"10.0.0\""),
        "{err}"
    );
}

#[test]
fn an_unreadable_network_status_is_a_problem() {
    let object = pod(r#"{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks-status": "[{"}}}"#);
    assert_eq!(object.problems().len(), 1);
    assert_eq!(Pod::from(object).extra_ips, Vec::<IpAddr>::new());
}

#[test]
fn a_service_with_every_kind_of_address() {
    let object: ServiceObject = serde_json::from_str(
        r#"{"metadata": {"name": "dns", "namespace": "kube-system"},
        "spec": {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd00::a"], "externalIPs": ["192.0.2.5"],
            "healthCheckNodePort": 31999, "type": "LoadBalancer",
            "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053, "targetPort": "dns"}, {"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}, {"hostname": "lb.example"}]}}}"#,
    )
    .unwrap();
    let port = |name: &str, port, node_port, proto| ServicePort {
        name: name.to_owned(),
        port,
        node_port,
        proto,
    };
    assert_eq!(
        Service::from(object),
        Service {
            namespace: "kube-system".to_owned(),
            name: "dns".to_owned(),
            cluster_ips: vec![ip("10.96.0.10"), ip("fd00::a")],
            external_ips: vec![ip("192.0.2.5")],
            load_balancer_ips: vec![ip("198.51.100.7")],
            ports: vec![
                port("dns", 53, Some(30053), Proto::Udp),
                port("", 80, None, Proto::Tcp)
            ],
            health_check_node_port: Some(31999),
        }
    );
    let headless: ServiceObject =
        serde_json::from_str(r#"{"spec": {"clusterIP": "None", "clusterIPs": ["None"]}}"#).unwrap();
    assert_eq!(Service::from(headless), Service::default());
}

#[test]
fn endpoint_conditions_have_the_apis_defaults() {
    let object: EndpointSliceObject = serde_json::from_str(
        r#"{"addressType": "IPv4", "metadata": {"name": "dns-x", "namespace": "kube-system", "labels": {"kubernetes.io/service-name": "dns"}},
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {}, "nodeName": "n1",
             "targetRef": {"kind": "Pod", "namespace": "kube-system", "name": "dns-1", "uid": "U1"}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true, "terminating": true}, "targetRef": {"kind": "VM", "name": "v"}},
            {"addresses": ["10.0.0.3", "a.example"], "conditions": {"ready": false}}],
        "ports": [{"name": "dns", "port": 5353, "protocol": "UDP"}, {"name": null, "port": null}]}"#,
    )
    .unwrap();
    let endpoint = |address: &str, ready, serving, terminating| Endpoint {
        addresses: vec![ip(address)],
        ready,
        serving,
        terminating,
        node: None,
        pod: None,
        pod_uid: None,
    };
    assert_eq!(
        EndpointSlice::from(object),
        EndpointSlice {
            namespace: "kube-system".to_owned(),
            name: "dns-x".to_owned(),
            service: Some("dns".to_owned()),
            endpoints: vec![
                Endpoint {
                    node: Some("n1".to_owned()),
                    pod: Some(PodName {
                        namespace: "kube-system".to_owned(),
                        name: "dns-1".to_owned()
                    }),
                    pod_uid: Some(PodUid::new("u1")),
                    ..endpoint("10.0.0.1", true, true, false)
                },
                endpoint("10.0.0.2", false, true, true),
                endpoint("10.0.0.3", false, false, false),
            ],
            ports: vec![
                EndpointPort {
                    name: "dns".to_owned(),
                    port: Some(5353),
                    proto: Proto::Udp
                },
                EndpointPort {
                    name: String::new(),
                    port: None,
                    proto: Proto::Tcp
                },
            ],
        }
    );
}

#[test]
fn a_node_and_a_service_cidr() {
    let object: NodeObject = serde_json::from_str(
        r#"{"metadata": {"name": "n1", "uid": "u", "creationTimestamp": "2026-08-01T00:00:00Z",
            "labels": {"node.kubernetes.io/instance-type": "Standard_D8d_v4"}}, "spec": {"podCIDR": "10.10.1.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": "172.20.0.11"}, {"type": "Hostname", "address": "n1"}],
            "nodeInfo": {"machineID": "", "containerRuntimeVersion": "containerd://2.1.4"}}}"#,
    )
    .unwrap();
    assert_eq!(
        KubeNode::from(object),
        KubeNode {
            name: "n1".to_owned(),
            uid: Some("u".to_owned()),
            addresses: vec![ip("172.20.0.11")],
            pod_cidrs: vec!["10.10.1.0/24".parse().unwrap()],
            machine_id: None,
            runtime_version: Some("containerd://2.1.4".to_owned()),
            created_at: Some("2026-08-01T00:00:00Z".parse().unwrap()),
            traits: [("VM size", "Standard_D8d_v4"), ("runtime", "containerd://2.1.4")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        }
    );
    let object: ServiceCidrObject =
        serde_json::from_str(r#"{"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]}}"#)
            .unwrap();
    assert_eq!(
        Vec::<IpNet>::from(object),
        ["10.96.0.0/12".parse::<IpNet>().unwrap()]
    );
}

#[test]
fn a_list_of_the_api_server() {
    let list: List<PodObject> = serde_json::from_str(
        r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":3},"items":[{"metadata":{"name":"a"}}]}"#,
    )
    .unwrap();
    assert_eq!(list.items[0].metadata.name, "a");
    assert_eq!(
        list.metadata.cut().unwrap(),
        "the list was cut by a limit: its continue token is set and 3 more items remain"
    );
    let list: List<PodObject> = serde_json::from_str(r#"{"metadata":{"continue":""},"items":null}"#).unwrap();
    assert_eq!((list.metadata.cut(), list.items.len()), (None, 0));
}

#[test]
fn what_events_tell_of_a_pods_network() {
    let past = |text: &str| serde_json::from_str::<EventObject>(text).unwrap().past();
    let named = |name: &str| PodName {
        namespace: "billing".to_owned(),
        name: name.to_owned(),
    };
    let event = |name: &str, uid: Option<&str>, what, source: &str| PastEvent {
        at: Some("2026-08-18T06:58:01Z".parse().unwrap()),
        pod: named(name),
        uid: uid.map(PodUid::new),
        container: None,
        what,
        source: source.to_owned(),
    };
    assert_eq!(
        past(
            r#"{"involvedObject": {"kind": "Pod", "namespace": "billing", "name": "invoice-0", "uid": "u1"}, "reason": "Killing",
            "message": "Stopping container app", "lastTimestamp": "2026-08-18T06:58:01Z"}"#
        ),
        Some(event("invoice-0", Some("u1"), PastKind::Ended, "Event Killing"))
    );
    // The other API group, which a controller writes.
    assert_eq!(
        past(
            r#"{"regarding": {"kind": "ReplicaSet", "namespace": "billing", "name": "invoice"}, "reason": "SuccessfulDelete",
            "note": "Deleted pod: invoice-0", "eventTime": "2026-08-18T06:58:01.000000Z", "deprecatedLastTimestamp": null}"#
        ),
        Some(event(
            "invoice-0",
            None,
            PastKind::Ended,
            "Event SuccessfulDelete"
        ))
    );
    assert_eq!(
        past(
            r#"{"involvedObject": {"kind": "Pod", "namespace": "billing", "name": "invoice-0"}, "reason": "AddedInterface",
            "message": "Add eth0 [10.240.1.77/16 fd00::7/64] from azure", "lastTimestamp": "2026-08-18T06:58:01Z"}"#
        ),
        Some(event(
            "invoice-0",
            None,
            PastKind::Got(vec![ip("10.240.1.77"), ip("fd00::7")]),
            "Event AddedInterface"
        ))
    );
    assert_eq!(
        past(r#"{"reason": "Pulled", "involvedObject": {"kind": "Pod"}}"#),
        None
    );
}
