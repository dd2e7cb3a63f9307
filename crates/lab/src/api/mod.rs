//! A small stand-in for the Kubernetes API: plain HTTP on the node's loopback, the resources that a program on a node reads, lists with
//! pages, watches, and switches that make it fail.

mod http;
mod store;

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::LabError;
use crate::node::{API_PORT, LabOptions, NODE_IP, Place, lock};
use crate::ns::in_netns;
use store::Store;

/// The resources that the stand-in has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// `v1` pods.
    Pods,
    /// `v1` services.
    Services,
    /// `v1` nodes.
    Nodes,
    /// `discovery.k8s.io/v1` endpointslices.
    EndpointSlices,
    /// `networking.k8s.io/v1` servicecidrs.
    ServiceCidrs,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Pods,
        Self::Services,
        Self::Nodes,
        Self::EndpointSlices,
        Self::ServiceCidrs,
    ];

    /// Its name in a path.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Services => "services",
            Self::Nodes => "nodes",
            Self::EndpointSlices => "endpointslices",
            Self::ServiceCidrs => "servicecidrs",
        }
    }

    /// Its kind.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Pods => "Pod",
            Self::Services => "Service",
            Self::Nodes => "Node",
            Self::EndpointSlices => "EndpointSlice",
            Self::ServiceCidrs => "ServiceCIDR",
        }
    }

    /// Its `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Pods | Self::Services | Self::Nodes => "v1",
            Self::EndpointSlices => "discovery.k8s.io/v1",
            Self::ServiceCidrs => "networking.k8s.io/v1",
        }
    }

    /// Whether its objects are in namespaces.
    pub fn namespaced(self) -> bool {
        !matches!(self, Self::Nodes | Self::ServiceCidrs)
    }

    /// The resource of a kind.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.kind() == kind)
    }

    /// The resource of a plural name.
    pub fn of_plural(plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.plural() == plural)
    }
}

/// A way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiFault {
    /// 403, as without the right to read the resource.
    Forbidden,
    /// 500.
    ServerError,
    /// The right answer after this many milliseconds.
    Slow(u64),
    /// The connection ends in the middle of the answer.
    Cut,
    /// 410 for every `continue` token and every watch, as after a compaction.
    Expired,
}

/// The fault switches, one a resource.
#[derive(Debug, Default)]
pub struct ApiFaults {
    switches: Mutex<HashMap<Resource, ApiFault>>,
}

impl ApiFaults {
    /// Makes every request for a resource fail in one way until it is cleared.
    pub fn set(&self, resource: Resource, fault: ApiFault) {
        lock(&self.switches).insert(resource, fault);
    }

    /// Lets all resources work again.
    pub fn clear(&self) {
        lock(&self.switches).clear();
    }

    fn of(&self, resource: Resource) -> Option<ApiFault> {
        lock(&self.switches).get(&resource).copied()
    }
}

/// The running stand-in.
#[derive(Debug)]
pub struct Api {
    store: Arc<Store>,
    faults: Arc<ApiFaults>,
    handle: Handle,
    place: Place,
    server: Mutex<Option<JoinHandle<()>>>,
}

impl Api {
    pub(crate) fn start(
        place: &Place,
        options: &LabOptions,
        machine_id: &str,
        handle: &Handle,
    ) -> Result<Self, LabError> {
        let api = Self {
            store: Arc::new(Store::default()),
            faults: Arc::new(ApiFaults::default()),
            handle: handle.clone(),
            place: place.clone(),
            server: Mutex::new(None),
        };
        api.put(Resource::Nodes, node_object(options, machine_id));
        api.put(Resource::ServiceCidrs, service_cidr());
        api.put(Resource::Services, kubernetes_service());
        api.resume()?;
        Ok(api)
    }

    /// Serves again after [`Api::stop`]; the objects are still there.
    ///
    /// # Errors
    ///
    /// [`LabError`] when the port cannot be had.
    pub fn resume(&self) -> Result<(), LabError> {
        self.stop();
        let into = |source| LabError::Socket {
            what: format!("port {API_PORT} for the API"),
            source,
        };
        let bound = in_netns(&self.place.netns(), || {
            let listener = TcpListener::bind(("127.0.0.1", API_PORT))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })?;
        let _entered = self.handle.enter();
        let listener = tokio::net::TcpListener::from_std(bound.map_err(into)?).map_err(into)?;
        let server = self
            .handle
            .spawn(http::serve(listener, self.store.clone(), self.faults.clone()));
        *lock(&self.server) = Some(server);
        Ok(())
    }

    /// Ends the server and all its connections, as a killed API server does.
    pub fn stop(&self) {
        let running = lock(&self.server).take();
        if let Some(server) = running {
            server.abort();
            self.handle.block_on(async {
                // Aborted, which is what was asked.
                let _ = server.await;
            });
        }
    }

    /// The fault switches.
    pub fn faults(&self) -> &ApiFaults {
        &self.faults
    }

    /// Makes or replaces an object. `apiVersion`, `kind`, `metadata.uid`, `creationTimestamp` and `resourceVersion` are filled in.
    pub fn put(&self, resource: Resource, object: Value) {
        self.store.put(resource, object);
    }

    /// An object by name; `namespace` is empty for those without.
    pub fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<Value> {
        self.store.get(resource, namespace, name)
    }

    /// All objects of a resource.
    pub fn list(&self, resource: Resource) -> Vec<Value> {
        self.store.list(resource)
    }

    /// Deletes an object by name. Whether there was one.
    pub fn delete(&self, resource: Resource, namespace: &str, name: &str) -> bool {
        self.store.delete(resource, namespace, name)
    }

    /// Deletes the object with this UID, and no other that has its name by now.
    pub fn delete_uid(&self, resource: Resource, uid: &str) -> bool {
        self.store.delete_uid(resource, uid)
    }
}

fn node_object(options: &LabOptions, machine_id: &str) -> Value {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "metadata": {"name": options.node_name, "labels": {"kubernetes.io/hostname": options.node_name, "kubernetes.io/os": "linux"}},
        "spec": {"podCIDR": "10.10.1.0/24", "podCIDRs": ["10.10.1.0/24"]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": NODE_IP}, {"type": "Hostname", "address": options.node_name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now}],
            "nodeInfo": {
                "machineID": machine_id, "systemUUID": "", "bootID": boot.trim(), "operatingSystem": "linux",
                "architecture": "amd64", "containerRuntimeVersion": "containerd://1.6.20", "kubeletVersion": "v1.34.0",
                "kernelVersion": "", "osImage": "", "kubeProxyVersion": "",
            },
        },
    })
}

fn service_cidr() -> Value {
    json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]},
           "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

fn kubernetes_service() -> Value {
    json!({
        "metadata": {"namespace": "default", "name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
                 "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
                 "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]},
        "status": {"loadBalancer": {}},
    })
}

/// The longest that a slow answer is made.
const MAX_SLOW: Duration = Duration::from_secs(120);
