//! The test support itself, against a real kube-apiserver: what other live tests build on.
#![allow(clippy::unwrap_used, clippy::panic)]

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use sexton_lab::kubeserver::{Error, KubeServer};
use std::path::Path;

async fn client(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

fn pod(name: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "node-a", "containers": [{"name": "c", "image": "example.invalid/c:1"}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]},
    })
}

async fn pod_ips(client: &Client) -> Vec<(String, String)> {
    let pods: Api<Pod> = Api::all(client.clone());
    let list = pods
        .list(&ListParams::default().fields("spec.nodeName=node-a"))
        .await
        .unwrap();
    let mut ips: Vec<_> = list
        .into_iter()
        .map(|p| {
            (
                p.metadata.name.unwrap(),
                p.status.and_then(|s| s.pod_ip).unwrap_or_default(),
            )
        })
        .collect();
    ips.sort();
    ips
}

/// The HTTP code of the server's refusal.
fn refusal<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> u16 {
    match answer {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("the server should have refused, but: {other:?}"),
    }
}

#[tokio::test]
async fn serves_objects_and_outlives_a_crash() {
    let mut server = match KubeServer::start() {
        Err(Error::NotFound(why)) => return sexton_lab::skip!("{why}"),
        other => other.unwrap(),
    };
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-a"},
        "status": {"nodeInfo": {"machineID": "m1", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "linux",
            "architecture": "amd64"}},
    });
    server.create(node).await.unwrap();
    let old = server.create(pod("web-0", "10.10.1.7")).await.unwrap();
    server.create(pod("web-1", "10.10.1.8")).await.unwrap();

    // What was written is what a client by either kubeconfig reads.
    let by_certificate = client(&server.kubeconfig()).await;
    let by_token = client(&server.token_kubeconfig()).await;
    let both = [("web-0", "10.10.1.7"), ("web-1", "10.10.1.8")].map(|(n, i)| (n.to_owned(), i.to_owned()));
    assert_eq!(pod_ips(&by_certificate).await, both);
    assert_eq!(pod_ips(&by_token).await, both);
    let node = Api::<Node>::all(by_token.clone()).get("node-a").await.unwrap();
    assert_eq!(node.status.unwrap().node_info.unwrap().machine_id, "m1");

    // The same name again is another Pod.
    server.delete(&pod("web-0", ""), Some(0)).await.unwrap();
    assert_eq!(server.get(&pod("web-0", "")).await.unwrap(), None);
    let new = server.create(pod("web-0", "10.10.1.9")).await.unwrap();
    assert_ne!(old.metadata.uid, new.metadata.uid);

    // A deleted Pod with a grace stays, terminating.
    server.delete(&pod("web-1", ""), None).await.unwrap();
    let leaving = server.get(&pod("web-1", "")).await.unwrap().unwrap();
    assert!(leaving.metadata.deletion_timestamp.is_some());

    // A patch changes what it names and nothing else.
    server
        .patch(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "default",
            "annotations": {"nodeportlocal.antrea.io": "[]"}}, "status": {"phase": "Succeeded"}}),
        )
        .await
        .unwrap();
    let patched = server.get(&pod("web-0", "")).await.unwrap().unwrap();
    assert_eq!(
        patched.metadata.annotations.unwrap()["nodeportlocal.antrea.io"],
        "[]"
    );
    assert_eq!(patched.data["status"]["phase"], "Succeeded");
    assert_eq!(patched.data["status"]["podIP"], "10.10.1.9");

    // A user with less rights is told so, resource by resource.
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    let limited = client(&server.limited_kubeconfig("only-pods", rules).await.unwrap()).await;
    assert_eq!(pod_ips(&limited).await.len(), 2);
    assert_eq!(
        refusal(Api::<Node>::all(limited).list(&ListParams::default()).await),
        403
    );

    // The same certificate, good and expired.
    let good = server
        .certificate_kubeconfig("good", (2020, 1, 1), (2120, 1, 1))
        .unwrap();
    assert_eq!(pod_ips(&client(&good).await).await.len(), 2);
    let expired = server
        .certificate_kubeconfig("expired", (2020, 1, 1), (2021, 1, 1))
        .unwrap();
    let nodes: Api<Node> = Api::all(client(&expired).await);
    assert_eq!(refusal(nodes.list(&ListParams::default()).await), 401);

    // Killed, it answers nobody; started again, it has everything at the same place.
    let url = server.url().unwrap();
    server.kill().unwrap();
    let nodes: Api<Node> = Api::all(by_token.clone());
    let error = nodes.get("node-a").await.unwrap_err();
    assert!(
        matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_)),
        "{error:?}"
    );
    assert!(server.url().is_err());
    server.restart().unwrap();
    assert_eq!(server.url().unwrap(), url);
    assert_eq!(pod_ips(&by_token).await.len(), 2);
    server.stop().unwrap();
}
