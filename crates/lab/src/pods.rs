//! Pods: an object in the API, a real sandbox in the runtime, and a server that answers at its ports.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use sexton_linux::cri::proto::{NamespaceMode, NamespaceOption, PodSandboxMetadata};
use sexton_linux::cri::{CriClient, SandboxInfo};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::api::Resource;
use crate::cri::{
    self, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, PodSandboxConfig, PortMapping, PortProtocol,
};
use crate::echo::Echo;
use crate::error::LabError;
use crate::node::{LabNode, NODE_IP, lock, random_id};
use crate::truth::{PodRecord, PodState, Protocol, Target, TargetPath};

/// Key of the Pod annotation in which Antrea says which node ports lead to the Pod.
pub const NPL_ANNOTATION: &str = "nodeportlocal.antrea.io";

/// A Pod to be made.
#[derive(Clone, Debug)]
pub struct PodSpec {
    namespace: String,
    name: String,
    owner_kind: &'static str,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    ports: Vec<(Protocol, u16)>,
    host_ports: Vec<(Protocol, u16, u16)>,
    targets: bool,
}

impl PodSpec {
    /// A Pod without ports. Its labels name its app: the Pod's name without the part after the last `-`.
    pub fn new(namespace: &str, name: &str) -> Self {
        let app = name.rsplit_once('-').map_or(name, |(app, _)| app);
        Self {
            namespace: namespace.into(),
            name: name.into(),
            owner_kind: "ReplicaSet",
            labels: BTreeMap::from([("app".into(), app.into())]),
            annotations: BTreeMap::new(),
            ports: Vec::new(),
            host_ports: Vec::new(),
            targets: true,
        }
    }

    /// Says that a StatefulSet owns it, which makes it again under the same name.
    #[must_use]
    pub fn stateful(mut self) -> Self {
        self.owner_kind = "StatefulSet";
        self
    }

    /// Answers at a TCP port.
    #[must_use]
    pub fn tcp(mut self, port: u16) -> Self {
        self.ports.push((Protocol::Tcp, port));
        self
    }

    /// Answers at a UDP port.
    #[must_use]
    pub fn udp(mut self, port: u16) -> Self {
        self.ports.push((Protocol::Udp, port));
        self
    }

    /// Has a TCP hostPort: `host` at the node leads to `container`, which must be one of its ports.
    #[must_use]
    pub fn host_port_tcp(mut self, host: u16, container: u16) -> Self {
        self.host_ports.push((Protocol::Tcp, host, container));
        self
    }

    /// Has a UDP hostPort.
    #[must_use]
    pub fn host_port_udp(mut self, host: u16, container: u16) -> Self {
        self.host_ports.push((Protocol::Udp, host, container));
        self
    }

    /// Has a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Has an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Is no target of the clients: what breaks the ways to it is part of the test.
    #[must_use]
    pub fn untargeted(mut self) -> Self {
        self.targets = false;
        self
    }

    /// The object as the API has it; without `ip` the Pod waits for its sandbox.
    fn object(&self, uid: &str, node: &str, ip: Option<Ipv4Addr>) -> Value {
        let ports: Vec<Value> = self
            .ports
            .iter()
            .map(|(protocol, port)| {
                let host = self
                    .host_ports
                    .iter()
                    .find(|(p, _, to)| (p, to) == (protocol, port));
                let mut entry = json!({"containerPort": port, "protocol": protocol.upper()});
                if let Some((_, host, _)) = host {
                    entry["hostPort"] = json!(host);
                }
                entry
            })
            .collect();
        let app = &self.labels["app"];
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": self.namespace, "name": self.name, "uid": uid,
                "labels": self.labels, "annotations": self.annotations,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": self.owner_kind, "name": app, "controller": true,
                                     "uid": "c844f2bc-c304-40e4-a87c-e7f7f9f5766a"}],
            },
            "spec": {
                "nodeName": node, "restartPolicy": "Always",
                "containers": [{"name": app, "image": "images.example.internal/lab/echo:1", "ports": ports}],
            },
            "status": {"phase": "Pending", "hostIP": NODE_IP, "hostIPs": [{"ip": NODE_IP}]},
        });
        if let Some(ip) = ip {
            pod["status"]["phase"] = json!("Running");
            pod["status"]["podIP"] = json!(ip);
            pod["status"]["podIPs"] = json!([{"ip": ip}]);
            pod["status"]["startTime"] = json!(now);
            pod["status"]["conditions"] = json!([
                {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": now},
                {"type": "Initialized", "status": "True", "lastTransitionTime": now},
                {"type": "Ready", "status": "True", "lastTransitionTime": now},
                {"type": "ContainersReady", "status": "True", "lastTransitionTime": now},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
            ]);
        }
        pod
    }

    fn sandbox(&self, uid: &str, cgroup: String) -> PodSandboxConfig {
        let names = [
            ("io.kubernetes.pod.name", &self.name),
            ("io.kubernetes.pod.namespace", &self.namespace),
            ("io.kubernetes.pod.uid", &uid.to_owned()),
        ];
        let mut labels: HashMap<String, String> = names
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
        labels.extend(self.labels.clone());
        let port_mappings = self
            .host_ports
            .iter()
            .map(|&(protocol, host, container)| PortMapping {
                protocol: match protocol {
                    Protocol::Tcp => PortProtocol::Tcp,
                    Protocol::Udp => PortProtocol::Udp,
                } as i32,
                container_port: container.into(),
                host_port: host.into(),
                host_ip: String::new(),
            })
            .collect();
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: self.name.clone(),
                uid: uid.to_owned(),
                namespace: self.namespace.clone(),
                attempt: 0,
            }),
            hostname: self.name.clone(),
            log_directory: format!("/run/log/pods/{}_{}_{uid}", self.namespace, self.name),
            port_mappings,
            labels,
            annotations: HashMap::from([("kubernetes.io/config.source".into(), "api".into())]),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: cgroup,
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(NamespaceOption {
                        network: NamespaceMode::Pod as i32,
                        pid: NamespaceMode::Container as i32,
                        ipc: NamespaceMode::Pod as i32,
                        target_id: String::new(),
                    }),
                }),
            }),
        }
    }
}

/// A Pod that was made.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Container ID of its sandbox.
    pub sandbox: String,
    /// File of its network namespace, as the node names it.
    pub netns: PathBuf,
    /// First process of its sandbox, in the node's PID namespace.
    pub pid: u32,
    /// How it was asked for.
    pub spec: PodSpec,
}

impl Pod {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// What a client can talk to at this Pod.
    fn targets(&self) -> Vec<Target> {
        let target = |ip, port, protocol, path| Target {
            pod: self.full_name(),
            uid: self.uid.clone(),
            ip,
            port,
            protocol,
            path,
            works: true,
        };
        let node = NODE_IP.parse().unwrap_or(Ipv4Addr::UNSPECIFIED);
        let host =
            |&(protocol, port, _): &(Protocol, u16, u16)| target(node, port, protocol, TargetPath::HostPort);
        if !self.spec.targets {
            return Vec::new();
        }
        if !self.spec.host_ports.is_empty() {
            return self.spec.host_ports.iter().map(host).collect();
        }
        let own = |&(protocol, port): &(Protocol, u16)| target(self.ip, port, protocol, TargetPath::Pod);
        self.spec.ports.iter().map(own).collect()
    }
}

/// The servers of the Pods of a node, by UID.
#[derive(Debug)]
pub(crate) struct Pods {
    handle: Handle,
    servers: Mutex<HashMap<String, Echo>>,
}

impl Pods {
    pub(crate) fn new(handle: &Handle) -> Self {
        Self {
            handle: handle.clone(),
            servers: Mutex::new(HashMap::new()),
        }
    }

    /// Stops all servers.
    pub(crate) fn stop(&self) {
        let servers = std::mem::take(&mut *lock(&self.servers));
        for (_, server) in servers {
            server.stop();
        }
    }

    fn stop_one(&self, uid: &str) {
        let server = lock(&self.servers).remove(uid);
        if let Some(server) = server {
            server.stop();
        }
    }
}

/// A sandbox that is being made.
pub(crate) type Making = JoinHandle<Result<Made, LabError>>;

/// How long making one may take; the kubelet's own default is two minutes.
const MAKE_DEADLINE: Duration = Duration::from_secs(120);

/// What the runtime says about a sandbox that was just made.
#[derive(Debug)]
pub(crate) struct Made {
    sandbox: String,
    ip: Ipv4Addr,
    info: SandboxInfo,
}

async fn make(cri: CriClient, config: PodSandboxConfig) -> Result<Made, LabError> {
    let sandbox = cri::run_pod_sandbox(&cri, config).await?;
    let answer = cri.pod_sandbox_status(&sandbox, true).await?;
    let odd = |what: &str| LabError::State(format!("sandbox {sandbox}: the runtime says no {what}"));
    let ip = answer
        .status
        .as_ref()
        .and_then(|status| status.ips().find_map(|ip| ip.parse().ok()))
        .ok_or_else(|| odd("IPv4 address"))?;
    let info = SandboxInfo::parse(&answer.info)
        .ok()
        .flatten()
        .ok_or_else(|| odd("verbose status"))?;
    Ok(Made { sandbox, ip, info })
}

impl LabNode {
    /// Makes a Pod: in the API, in the runtime with its network, and answering at its ports.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn pod(&self, spec: PodSpec) -> Result<Pod, LabError> {
        let mut pods = self.pods([spec])?;
        pods.pop()
            .ok_or_else(|| LabError::State("no Pod was made".into()))
    }

    /// Makes several Pods side by side. Which gets which address is not said.
    ///
    /// # Errors
    ///
    /// [`LabError`] of the first that failed; the others may have been made.
    pub fn pods(&self, specs: impl IntoIterator<Item = PodSpec>) -> Result<Vec<Pod>, LabError> {
        let mut jobs = Vec::new();
        for spec in specs {
            let (uid, task) = self.begin_pod(&spec)?;
            jobs.push((spec, uid, task));
        }
        jobs.into_iter()
            .map(|(spec, uid, task)| self.finish_pod(spec, uid, task))
            .collect()
    }

    /// Puts a Pod into the API and has its sandbox made in the background.
    pub(crate) fn begin_pod(&self, spec: &PodSpec) -> Result<(String, Making), LabError> {
        let (cri, uid) = (self.cri()?, random_id()?);
        self.api
            .put(Resource::Pods, spec.object(&uid, &self.options.node_name, None));
        let task = self.tokio.spawn(make(
            cri.with_deadline(MAKE_DEADLINE),
            spec.sandbox(&uid, self.cgroup()),
        ));
        Ok((uid, task))
    }

    /// Waits for a Pod's sandbox, lets it answer, and tells the API its address.
    pub(crate) fn finish_pod(&self, spec: PodSpec, uid: String, task: Making) -> Result<Pod, LabError> {
        let made = self
            .tokio
            .block_on(task)
            .map_err(|ended| LabError::State(format!("making a sandbox ended early: {ended}")))??;
        let pod = Pod {
            namespace: spec.namespace.clone(),
            name: spec.name.clone(),
            uid,
            ip: made.ip,
            sandbox: made.sandbox,
            netns: made.info.netns.unwrap_or_default(),
            pid: made.info.pid.unwrap_or_default(),
            spec,
        };
        self.serve(&pod)?;
        self.api.put(
            Resource::Pods,
            pod.spec.object(&pod.uid, &self.options.node_name, Some(pod.ip)),
        );
        {
            let mut truth = lock(&self.truth);
            truth.targets.extend(pod.targets());
            truth.pods.push(PodRecord {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                ip: pod.ip,
                sandbox: pod.sandbox.clone(),
                state: PodState::Living,
            });
        }
        self.save_truth()?;
        Ok(pod)
    }

    fn serve(&self, pod: &Pod) -> Result<(), LabError> {
        let netns = self
            .place
            .pod_netns(&pod.netns)
            .ok_or_else(|| LabError::State(format!("sandbox {}: no namespace", pod.sandbox)))?;
        let server = Echo::start(&self.pods.handle, &netns, &pod.uid, &pod.spec.ports)?;
        lock(&self.pods.servers).insert(pod.uid.clone(), server);
        Ok(())
    }

    /// Deletes a Pod as a healthy node does: its processes end, CNI DEL takes its network down, the API forgets it.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn delete_pod(&self, pod: &Pod) -> Result<(), LabError> {
        let cri = self.cri()?;
        self.pods.stop_one(&pod.uid);
        self.tokio.block_on(async {
            cri::stop_pod_sandbox(&cri, &pod.sandbox).await?;
            cri::remove_pod_sandbox(&cri, &pod.sandbox).await
        })?;
        self.forget_pod(pod)?;
        self.pod_becomes(&pod.uid, PodState::Ended)
    }

    /// Deletes a Pod from the API only: its sandbox goes on as a zombie.
    ///
    /// # Errors
    ///
    /// [`LabError`] when `lab.json` cannot be written.
    pub fn forget_pod(&self, pod: &Pod) -> Result<(), LabError> {
        self.api.delete_uid(Resource::Pods, &pod.uid);
        self.pod_becomes(&pod.uid, PodState::Zombie)
    }

    /// Stops what answers at a Pod's ports, as the end of its processes does.
    pub fn silence_pod(&self, pod: &Pod) {
        self.pods.stop_one(&pod.uid);
    }

    /// Writes down what has become of a Pod; one that is not living is no target any more.
    pub(crate) fn pod_becomes(&self, uid: &str, state: PodState) -> Result<(), LabError> {
        {
            let mut truth = lock(&self.truth);
            for pod in truth.pods.iter_mut().filter(|pod| pod.uid == uid) {
                pod.state = state;
            }
            if state != PodState::Living {
                truth.targets.retain(|target| target.uid != uid);
            }
        }
        self.save_truth()
    }

    /// The Pod's object as the API has it now, changed by `change` and put back.
    ///
    /// # Errors
    ///
    /// [`LabError::State`] when the API has no such Pod.
    pub fn edit_pod(&self, pod: &Pod, change: impl FnOnce(&mut Value)) -> Result<(), LabError> {
        let mut object = self
            .api
            .get(Resource::Pods, &pod.namespace, &pod.name)
            .ok_or_else(|| LabError::State(format!("the API has no Pod {}", pod.full_name())))?;
        change(&mut object);
        self.api.put(Resource::Pods, object);
        Ok(())
    }
}
