//! The API source against a real kube-apiserver: pages, refusals, expired certificates, a server that dies.
#![allow(clippy::unwrap_used)] // Helpers of tests are not in `#[test]` functions.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sexton_core::model::{Completeness, NodeState, NplAnnotation, Phase};
use sexton_lab::kubeserver::{Error, KubeServer};
use sexton_linux::{ApiAccess, Kinds, LinuxNode, LinuxOptions};

fn node(kubeconfig: PathBuf, name: &str) -> LinuxNode {
    LinuxNode::open(LinuxOptions {
        node_name: Some(name.to_owned()),
        api: ApiAccess::Kubeconfig {
            path: Some(kubeconfig),
            context: None,
        },
        deadline: Duration::from_secs(10),
        ..LinuxOptions::default()
    })
    .unwrap()
}

fn read(kubeconfig: PathBuf) -> NodeState {
    node(kubeconfig, "node-a").observe_only(Kinds::API)
}

fn why(completeness: &Completeness) -> String {
    completeness.why().unwrap_or_default().to_owned()
}

fn pod(name: &str, node: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {
            "nodeportlocal.antrea.io": r#"[{"podPort":8080,"nodeIP":"192.0.2.1","nodePort":61000,"protocol":"tcp"}]"#}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "example.invalid/c:1",
            "ports": [{"containerPort": 8080, "hostPort": 18080}]}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]},
    })
}

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("s{number}"), "namespace": "default"},
        "spec": {"clusterIP": "None", "ports": [{"port": 53, "protocol": "UDP"}]},
    })
}

/// A server with a Node, three Pods (two of them here), more Services than fit a page, and a slice.
async fn filled(server: &KubeServer, services: usize) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"},
        "spec": {"podCIDRs": ["10.10.1.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
    });
    server.create(node).await.unwrap();
    for (name, node, ip) in [
        ("web-0", "node-a", "10.10.1.7"),
        ("web-1", "node-a", "10.10.1.8"),
        ("web-2", "node-b", "10.10.2.7"),
    ] {
        server.create(pod(name, node, ip)).await.unwrap();
    }
    let client = server.client().await.unwrap();
    let api: kube::Api<k8s_openapi::api::core::v1::Service> = kube::Api::namespaced(client, "default");
    let make = |number| {
        let api = api.clone();
        async move {
            let service = serde_json::from_value(service(number)).unwrap();
            api.create(&kube::api::PostParams::default(), &service)
                .await
                .unwrap();
        }
    };
    use futures::StreamExt as _;
    futures::stream::iter(0..services)
        .for_each_concurrent(16, make)
        .await;
    server
        .create(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "s0-x", "namespace": "default", "labels": {"kubernetes.io/service-name": "s0"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.10.1.7"], "conditions": {"ready": true}}],
            "ports": [{"name": "", "port": 53, "protocol": "UDP"}],
        }))
        .await
        .unwrap();
}

macro_rules! server {
    () => {
        match KubeServer::start() {
            Err(Error::NotFound(why)) => return sexton_lab::skip!("{why}"),
            other => other.unwrap(),
        }
    };
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn lists_are_whole_and_refusals_stand_alone() {
    let mut server = server!();
    let tokio = runtime();
    tokio.block_on(filled(&server, 1100));

    // Three pages of Services.
    let state = read(server.kubeconfig());
    for report in state
        .source_reports()
        .iter()
        .filter(|r| r.name.starts_with("api/"))
    {
        assert!(report.completeness.is_complete(), "{report:?}");
    }
    assert!(state.problems.is_empty(), "{:?}", state.problems);
    // The API server's own Service is there too.
    assert_eq!(state.services.value.len(), 1101);
    let names: std::collections::BTreeSet<_> = state.services.value.iter().map(|s| s.name.clone()).collect();
    assert_eq!(names.len(), 1101, "no page twice");
    let mut pods: Vec<_> = state.pods.value.iter().map(|p| p.name.as_str()).collect();
    pods.sort_unstable();
    assert_eq!(pods, ["web-0", "web-1"]);
    let web = state.pods.value.iter().find(|p| p.name == "web-0").unwrap();
    assert_eq!((web.phase, web.node.as_deref()), (Phase::Running, Some("node-a")));
    assert_eq!(web.ips, ["10.10.1.7".parse::<std::net::IpAddr>().unwrap()]);
    assert!(web.uid.is_some() && web.created_at.is_some());
    assert_eq!(web.ports[0].host_port, Some(18080));
    assert!(matches!(&web.npl, NplAnnotation::Entries(entries) if entries.len() == 1));
    assert_eq!(
        state.kube_node().unwrap().pod_cidrs,
        ["10.10.1.0/24".parse().unwrap()]
    );
    assert_eq!(
        state
            .endpoint_slices
            .value
            .iter()
            .filter(|s| s.service.as_deref() == Some("s0"))
            .count(),
        1
    );
    assert_eq!(state.service_cidrs.value.len(), 1, "the server's own default");

    // One resource refused, the others read.
    let may = json!([
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]},
    ]);
    let limited = tokio.block_on(server.limited_kubeconfig("limited", may)).unwrap();
    let state = read(limited);
    assert!(state.pods.is_complete() && state.nodes.is_complete() && state.endpoint_slices.is_complete());
    assert_eq!(state.pods.value.len(), 2);
    assert!(matches!(
        state.services.completeness,
        Completeness::Unavailable(_)
    ));
    let told = why(&state.services.completeness);
    assert!(
        told.contains("403 Forbidden") && told.contains("services"),
        "{told}"
    );
    assert!(why(&state.service_cidrs.completeness).contains("403"));

    // A name that is no Node's: an empty list of Pods that may not be believed.
    let state = node(server.kubeconfig(), "node-z").observe_only(Kinds::PODS);
    assert!(state.pods.value.is_empty());
    assert!(
        why(&state.pods.completeness).contains("no Node \"node-z\""),
        "{:?}",
        state.pods.reports
    );
    // A Node that has no Pods is another thing.
    let empty = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-e"}});
    tokio.block_on(server.create(empty)).unwrap();
    let state = node(server.kubeconfig(), "node-e").observe_only(Kinds::PODS);
    assert!(state.pods.is_complete() && state.pods.value.is_empty());

    // A certificate that has expired, and one that is not good yet.
    for (name, from, until) in [
        ("old", (2020, 1, 1), (2021, 1, 1)),
        ("new", (2090, 1, 1), (2091, 1, 1)),
    ] {
        let kubeconfig = server.certificate_kubeconfig(name, from, until).unwrap();
        let state = read(kubeconfig);
        assert!(matches!(state.pods.completeness, Completeness::Unavailable(_)));
        let told = why(&state.pods.completeness);
        assert!(
            told.contains("401 Unauthorized") && told.contains("expired"),
            "{told}"
        );
    }

    // The same client again after the server was away.
    let mut held = node(server.kubeconfig(), "node-a");
    assert!(held.observe_only(Kinds::PODS).pods.is_complete());
    server.kill().unwrap();
    let state = held.observe_only(Kinds::PODS | Kinds::SERVICES);
    assert!(
        matches!(state.pods.completeness, Completeness::Unavailable(_)),
        "{:?}",
        state.pods.reports
    );
    assert!(!why(&state.pods.completeness).is_empty());
    server.restart().unwrap();
    let state = held.observe_only(Kinds::PODS);
    assert!(state.pods.is_complete(), "{:?}", state.pods.reports);
    assert_eq!(state.pods.value.len(), 2);
}

/// Hands connections on to the API server; when the client asks for more after so many bytes of answers, `on_more` is
/// called first and nothing is handed on any more.
fn relay(to: String, after: usize, on_more: impl Fn() + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let on_more = Arc::new(on_more);
    std::thread::spawn(move || {
        for inbound in listener.incoming().flatten() {
            let Ok(outbound) = TcpStream::connect(&to) else {
                return;
            };
            let (mut asking, mut asked) = (inbound.try_clone().unwrap(), outbound.try_clone().unwrap());
            let answered = Arc::new(AtomicUsize::new(0));
            let (seen, on_more) = (answered.clone(), on_more.clone());
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = asking.read(&mut buffer) {
                    if seen.load(Ordering::SeqCst) >= after {
                        return on_more();
                    }
                    if asked.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
            });
            std::thread::spawn(move || {
                let (mut from, mut to) = (outbound, inbound);
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut buffer) {
                    answered.fetch_add(count, Ordering::SeqCst);
                    if to.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    port
}

#[test]
fn a_server_killed_in_the_middle_of_paging_leaves_a_part() {
    let server = server!();
    let tokio = runtime();
    tokio.block_on(filled(&server, 1100));
    let url = server.url().unwrap();
    let address = url.trim_start_matches("https://").to_owned();
    let kubeconfig = server.kubeconfig();
    let text = std::fs::read_to_string(&kubeconfig).unwrap();

    // Only Services are read, one page after the other: the server is killed as the second page is asked for.
    let server = Arc::new(std::sync::Mutex::new(server));
    let killed = Arc::new(AtomicUsize::new(0));
    let port = relay(address.clone(), 100_000, {
        let (server, killed) = (server.clone(), killed.clone());
        move || {
            killed.fetch_add(1, Ordering::SeqCst);
            server.lock().unwrap().kill().unwrap();
        }
    });
    let through = kubeconfig.with_file_name("through.kubeconfig");
    std::fs::write(&through, text.replace(&address, &format!("127.0.0.1:{port}"))).unwrap();
    let state = node(through, "node-a").observe_only(Kinds::SERVICES);
    assert_eq!(killed.load(Ordering::SeqCst), 1, "{:?}", state.services.reports);
    assert!(
        matches!(state.services.completeness, Completeness::Partial(_)),
        "{:?}",
        state.services.reports
    );
    assert_eq!(state.services.value.len(), 500, "the first page");
    let told = why(&state.services.completeness);
    assert!(told.starts_with("after 500 objects: "), "{told}");
}

#[test]
fn no_server_and_no_kubeconfig_are_unavailable() {
    let state = read("/no/such/kubeconfig".into());
    let told = why(&state.pods.completeness);
    assert!(matches!(state.pods.completeness, Completeness::Unavailable(_)));
    assert!(told.contains("/no/such/kubeconfig"), "{told}");

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    let told = why(&read(path.clone()).services.completeness);
    assert!(told.to_lowercase().contains("refused"), "{told}");
    let expected = format!(
        "the API server at http://127.0.0.1:{port}/ (kubeconfig {}) cannot be asked: ",
        path.display()
    );
    assert!(told.starts_with(&expected), "{told}");
}
