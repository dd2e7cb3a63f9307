//! What the API server and CNI's files say about the Pods.

use std::path::Path;

use serde_json::{Value, json};

use super::{PODS, pod_ip, pod_uid, sandbox_id};
use crate::NPL_ANNOTATION;
use crate::api::{Api, Resource};
use crate::error::LabError;
use crate::node::{NODE_IP, write};

/// How many Services there are, each with five endpoints.
pub(super) const SERVICES: usize = 100;

/// Endpoints of a Service.
pub(super) const ENDPOINTS: usize = 5;

/// First node port of NodePortLocal: the range is wider than Antrea's, to hold all sizes.
pub(super) const FIRST_NODE_PORT: usize = 20_000;

/// Last node port.
pub(super) const LAST_NODE_PORT: usize = 60_999;

/// A mapping of NodePortLocal: protocol, node port, Pod, the Pod's port.
pub(super) fn mapping(number: usize) -> (&'static str, usize, usize, usize) {
    let ports = LAST_NODE_PORT - FIRST_NODE_PORT + 1;
    let protocol = if number < ports { "tcp" } else { "udp" };
    let port = FIRST_NODE_PORT + number % ports;
    (protocol, port, number % PODS, 8000 + number / PODS)
}

/// Puts all objects; the Pods announce `mappings` node ports between them.
pub(super) fn put(api: &Api, node: &str, mappings: usize) {
    let mut announced: Vec<Vec<Value>> = vec![Vec::new(); PODS];
    for number in 0..mappings {
        let (protocol, port, pod, to) = mapping(number);
        announced[pod]
            .push(json!({"podPort": to, "nodeIP": NODE_IP, "nodePort": port, "protocol": protocol}));
    }
    for (pod, entries) in announced.into_iter().enumerate() {
        let ip = pod_ip(pod);
        let mut annotations = json!({});
        if !entries.is_empty() {
            annotations[NPL_ANNOTATION] = json!(Value::from(entries).to_string());
        }
        api.put(
            Resource::Pods,
            json!({
                "metadata": {"namespace": "bench", "name": format!("pod-{pod}"), "uid": pod_uid(pod),
                             "annotations": annotations, "labels": {"app": "bench"}},
                "spec": {"nodeName": node, "containers": [{"name": "main", "image": "bench", "ports": [{"containerPort": 8080, "protocol": "TCP"}]}]},
                "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": NODE_IP,
                           "conditions": [{"type": "Ready", "status": "True"}]},
            }),
        );
    }
    for service in 0..SERVICES {
        let name = format!("service-{service}");
        let ip = service_ip(service);
        let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53}]);
        api.put(
            Resource::Services,
            json!({
                "metadata": {"namespace": "bench", "name": name},
                "spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"],
                         "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "ports": ports},
                "status": {"loadBalancer": {}},
            }),
        );
        let endpoints: Vec<Value> = (0..ENDPOINTS)
            .map(|number| {
                json!({"addresses": [endpoint_ip(service, number)],
                       "conditions": {"ready": true, "serving": true, "terminating": false}})
            })
            .collect();
        api.put(
            Resource::EndpointSlices,
            json!({
                "metadata": {"namespace": "bench", "name": format!("{name}-x7k2p"), "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}],
            }),
        );
    }
}

/// Cluster address of a Service.
pub(super) fn service_ip(service: usize) -> String {
    format!("10.96.1.{}", service % SERVICES + 1)
}

/// Address of one of a Service's endpoints.
pub(super) fn endpoint_ip(service: usize, number: usize) -> String {
    pod_ip(service * ENDPOINTS + number % ENDPOINTS)
}

/// Leases and cached results of the Pods, below `dir`.
pub(super) fn cni_files(dir: &Path) -> Result<(), LabError> {
    let (leases, cache) = (dir.join("networks/podnet"), dir.join("results"));
    for dir in [&leases, &cache] {
        std::fs::create_dir_all(dir).map_err(LabError::file("make", dir))?;
    }
    for pod in 0..PODS {
        let (ip, id) = (pod_ip(pod), sandbox_id(pod));
        write(&leases.join(&ip), format!("{id}\r\neth0"))?;
        let result = json!({
            "kind": "cniCacheV1", "containerId": id, "ifName": "eth0", "networkName": "podnet", "netns": format!("/run/netns/pod{pod}"),
            "cniArgs": [["K8S_POD_NAMESPACE", "bench"], ["K8S_POD_NAME", format!("pod-{pod}")], ["K8S_POD_UID", pod_uid(pod)],
                        ["K8S_POD_INFRA_CONTAINER_ID", id]],
            "result": {"cniVersion": "1.0.0", "ips": [{"address": format!("{ip}/24"), "interface": 0}],
                       "interfaces": [{"name": "eth0", "sandbox": format!("/run/netns/pod{pod}")}]},
        });
        write(&cache.join(format!("podnet-{id}-eth0")), result.to_string())?;
    }
    Ok(())
}
