//! `crictl` with JSON output: `crictl pods -o json`, `crictl ps -a -o json`, `crictl inspectp`.
//!
//! Source: kubernetes-sigs/cri-tools, `cmd/crictl/sandbox.go` and `container.go`; the fields are those of
//! `k8s.io/cri-api`, `runtime.v1`, as protobuf's JSON writes them: 64-bit numbers are strings.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sexton_core::model::{
    Container, ContainerId, PodName, PodUid, Problem, Sandbox, SandboxState, Timestamp,
};

use crate::{
    addr::parse_ip,
    items::{self, Shape},
};

/// Reads `crictl pods -o json`. The addresses and the namespaces are not told by it, nor whether a sandbox shares the
/// node's network.
///
/// Sandboxes before a cut are kept; the cut is a problem.
pub fn read_pods(path: &str, bytes: &[u8]) -> (Vec<Sandbox>, Vec<Problem>) {
    let mut sandboxes = Vec::new();
    let mut wrong = Vec::new();
    let problems = items::read(path, bytes, Shape::Under("items"), &mut |line, raw| {
        if let Some(object) = items::item::<SandboxObject>(path, line, raw, &mut wrong) {
            sandboxes.extend(object.into_sandbox(path, line, &mut wrong));
        }
    });
    wrong.extend(problems);
    (sandboxes, wrong)
}

/// Reads `crictl ps -a -o json`. Without `-a` it lists only what runs.
///
/// Containers before a cut are kept; the cut is a problem.
pub fn read_containers(path: &str, bytes: &[u8]) -> (Vec<Container>, Vec<Problem>) {
    let mut containers = Vec::new();
    let mut wrong = Vec::new();
    let problems = items::read(path, bytes, Shape::Under("containers"), &mut |line, raw| {
        let Some(object) = items::item::<ContainerObject>(path, line, raw, &mut wrong) else {
            return;
        };
        if object.id.is_empty() {
            wrong.push(no_id(path, line));
            return;
        }
        containers.push(Container {
            id: ContainerId::new(&object.id),
            sandbox: (!object.pod_sandbox_id.is_empty()).then(|| ContainerId::new(&object.pod_sandbox_id)),
            name: object.metadata.name,
            running: state_is(&object.state, "CONTAINER_RUNNING", 1),
        });
    });
    wrong.extend(problems);
    (containers, wrong)
}

/// Reads `crictl inspectp`: one object, several one after another, or an array of them. It tells the addresses, and
/// with containerd and CRI-O also the path of the network namespace and the process.
pub fn read_inspectp(path: &str, bytes: &[u8]) -> (Vec<Sandbox>, Vec<Problem>) {
    let mut sandboxes = Vec::new();
    let mut wrong = Vec::new();
    let problems = items::read(path, bytes, Shape::Plain, &mut |line, raw| {
        let Some(object) = items::item::<Inspected>(path, line, raw, &mut wrong) else {
            return;
        };
        let Some(mut sandbox) = object.status.into_sandbox(path, line, &mut wrong) else {
            return;
        };
        sandbox.netns = object.info.netns();
        sandbox.pid = object
            .info
            .pid
            .and_then(|pid| u32::try_from(pid).ok())
            .filter(|pid| *pid != 0);
        sandboxes.push(sandbox);
    });
    wrong.extend(problems);
    (sandboxes, wrong)
}

/// Puts what `inspectp` told in the place of what the list told; a sandbox that only `inspectp` told is added.
pub fn merge(listed: &mut Vec<Sandbox>, inspected: Vec<Sandbox>) {
    for sandbox in inspected {
        match listed.iter_mut().find(|s| s.id == sandbox.id) {
            Some(known) => *known = sandbox,
            None => listed.push(sandbox),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    attempt: u32,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct SandboxObject {
    id: String,
    metadata: Metadata,
    state: Value,
    created_at: Value,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    annotations: BTreeMap<String, String>,
    /// Only in a status.
    network: Option<Network>,
    /// Only in a status.
    linux: Option<Linux>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Network {
    ip: String,
    #[serde(alias = "additional_ips", deserialize_with = "or_default")]
    additional_ips: Vec<PodIp>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodIp {
    ip: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Linux {
    namespaces: Option<Namespaces>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Namespaces {
    options: Option<NamespaceOptions>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamespaceOptions {
    network: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Inspected {
    status: SandboxObject,
    info: Info,
}

/// What the runtime adds of its own; its shape is no contract, so that a wrong one is no problem.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Info {
    pid: Option<u64>,
    runtime_spec: Value,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ContainerObject {
    id: String,
    pod_sandbox_id: String,
    metadata: Metadata,
    state: Value,
}

impl SandboxObject {
    fn into_sandbox(mut self, path: &str, line: usize, problems: &mut Vec<Problem>) -> Option<Sandbox> {
        if self.id.is_empty() {
            problems.push(no_id(path, line));
            return None;
        }
        let mut told = |field: String, label: &str| {
            if field.is_empty() {
                self.labels.remove(label).unwrap_or_default()
            } else {
                field
            }
        };
        let uid = told(self.metadata.uid, "io.kubernetes.pod.uid");
        let pod = PodName {
            namespace: told(self.metadata.namespace, "io.kubernetes.pod.namespace"),
            name: told(self.metadata.name, "io.kubernetes.pod.name"),
        };
        if uid.is_empty() || pod.namespace.is_empty() || pod.name.is_empty() {
            problems.push(Problem {
                place: format!("{path}:{line}"),
                what: format!("sandbox {} lacks its Pod's namespace, name or UID", self.id),
            });
        }
        let created_at = created_at(&self.created_at);
        if created_at.is_none() {
            problems.push(Problem {
                place: format!("{path}:{line}"),
                what: format!("sandbox {}: createdAt is no time: {}", self.id, self.created_at),
            });
        }
        let host_network = self
            .linux
            .and_then(|l| l.namespaces)
            .and_then(|n| n.options)
            .is_some_and(|o| state_is(&o.network, "NODE", 2));
        let ips = self.network.map(|network| {
            let more = network.additional_ips.iter().map(|ip| ip.ip.as_str());
            let texts = std::iter::once(network.ip.as_str()).chain(more);
            let texts = texts.filter(|text| !text.is_empty() && !host_network);
            texts
                .filter_map(|text| {
                    let ip = parse_ip(text);
                    if ip.is_none() {
                        problems.push(Problem {
                            place: format!("{path}:{line}"),
                            what: format!("sandbox {}: not an address: {text:?}", self.id),
                        });
                    }
                    ip
                })
                .collect::<Vec<IpAddr>>()
        });
        let source = self.annotations.get("kubernetes.io/config.source");
        Some(Sandbox {
            id: ContainerId::new(&self.id),
            pod,
            uid: PodUid::new(&uid),
            attempt: self.metadata.attempt,
            state: if state_is(&self.state, "SANDBOX_READY", 0) {
                SandboxState::Ready
            } else {
                SandboxState::NotReady
            },
            created_at,
            ips,
            host_network,
            netns: None,
            pid: None,
            from_manifest: source.is_some_and(|s| s == "file" || s == "http"),
        })
    }
}

impl Info {
    /// The path of the network namespace in the runtime's specification.
    fn netns(&self) -> Option<String> {
        let namespaces = self.runtime_spec.pointer("/linux/namespaces")?.as_array()?;
        let network = namespaces
            .iter()
            .find(|n| n.get("type").and_then(Value::as_str) == Some("network"))?;
        let path = network.get("path")?.as_str()?;
        (!path.is_empty()).then(|| path.to_owned())
    }
}

/// An enum's value is written by its name, and by its number where the writer does not know names.
fn state_is(value: &Value, name: &str, number: u64) -> bool {
    match value {
        Value::String(text) => text == name,
        // protobuf's JSON may leave the zero value out
        Value::Null => number == 0,
        other => other.as_u64() == Some(number),
    }
}

/// Nanoseconds since the epoch as a string (lists), or RFC 3339 (`inspectp`).
fn created_at(value: &Value) -> Option<Timestamp> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    match text.parse::<i128>() {
        Ok(nanoseconds) => Timestamp::from_nanosecond(nanoseconds).ok(),
        Err(_) => text.parse().ok(),
    }
}

fn no_id(path: &str, line: usize) -> Problem {
    Problem {
        place: format!("{path}:{line}"),
        what: "expected an object with an `id`, found none".to_owned(),
    }
}

/// `null` stands for nothing.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(d: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
