//! Calling CNI plugins as libcni does, with its cache (`containernetworking/cni`, SPEC.md 1.0 and `libcni/api.go`).

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::cri::{PodSandboxConfig, PortProtocol};
use crate::error::LabError;
use crate::node::Place;

/// One attachment of a sandbox.
pub(super) struct Attachment<'a> {
    pub(super) place: &'a Place,
    pub(super) id: &'a str,
    /// File of the namespace, as the node names it.
    pub(super) netns: &'a str,
    pub(super) config: &'a PodSandboxConfig,
}

/// The network's configuration as the file has it.
pub(super) fn configuration(place: &Place) -> Result<String, LabError> {
    let path = place.path("net.d/10-podnet.conflist");
    std::fs::read_to_string(&path).map_err(LabError::file("read", &path))
}

impl Attachment<'_> {
    fn arguments(&self) -> Vec<(&'static str, String)> {
        let metadata = self.config.metadata.clone().unwrap_or_default();
        vec![
            ("IgnoreUnknown", "1".to_owned()),
            ("K8S_POD_NAMESPACE", metadata.namespace),
            ("K8S_POD_NAME", metadata.name),
            ("K8S_POD_INFRA_CONTAINER_ID", self.id.to_owned()),
            ("K8S_POD_UID", metadata.uid),
        ]
    }

    fn port_mappings(&self) -> Value {
        let mappings = self.config.port_mappings.iter().map(|mapping| {
            let protocol = match mapping.protocol() {
                PortProtocol::Tcp => "tcp",
                PortProtocol::Udp => "udp",
                PortProtocol::Sctp => "sctp",
            };
            json!({"hostPort": mapping.host_port, "containerPort": mapping.container_port,
                   "protocol": protocol, "hostIP": mapping.host_ip})
        });
        mappings.collect()
    }

    fn cache(&self, network: &str) -> PathBuf {
        self.place
            .path("var-lib-cni/results")
            .join(format!("{network}-{}-eth0", self.id))
    }

    /// Calls the plugins in order, and keeps the result in the cache. A failure in the middle leaves what the plugins before it made, which is
    /// what DEL is for.
    pub(super) fn add(&self) -> Result<Value, LabError> {
        let text = configuration(self.place)?;
        let list = parse(&text)?;
        let mut result = Value::Null;
        for plugin in list["plugins"].as_array().into_iter().flatten() {
            let answer = self.call("ADD", &list, plugin, &result)?;
            result = parse(&answer)?;
        }
        let network = list["name"].as_str().unwrap_or_default();
        let mut cached = json!({
            "kind": "cniCacheV1", "containerId": self.id, "config": BASE64.encode(&text), "ifName": "eth0",
            "networkName": network, "cniArgs": self.arguments(), "result": result,
        });
        if !self.config.port_mappings.is_empty() {
            cached["capabilityArgs"] = json!({"portMappings": self.port_mappings()});
        }
        let path = self.cache(network);
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(LabError::file("make", dir))?;
        }
        crate::node::write(&path, cached.to_string())?;
        Ok(result)
    }

    /// Calls the plugins in reverse order, with the cached result, and forgets it.
    pub(super) fn del(&self) -> Result<(), LabError> {
        let list = parse(&configuration(self.place)?)?;
        let path = self.cache(list["name"].as_str().unwrap_or_default());
        let cached = std::fs::read_to_string(&path)
            .ok()
            .and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let result = cached.map(|cached| cached["result"].clone()).unwrap_or_default();
        for plugin in list["plugins"].as_array().into_iter().flatten().rev() {
            self.call("DEL", &list, plugin, &result)?;
        }
        match std::fs::remove_file(&path) {
            Err(absent) if absent.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(LabError::file("remove", &path)),
        }
    }

    fn call(&self, command: &str, list: &Value, plugin: &Value, result: &Value) -> Result<String, LabError> {
        let mut input = plugin.clone();
        input["name"] = list["name"].clone();
        input["cniVersion"] = list["cniVersion"].clone();
        if plugin["capabilities"]["portMappings"] == true && !self.config.port_mappings.is_empty() {
            input["runtimeConfig"] = json!({"portMappings": self.port_mappings()});
        }
        if !result.is_null() {
            input["prevResult"] = result.clone();
        }
        let arguments: Vec<String> = self
            .arguments()
            .into_iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let bin = self.place.path("cni-bin");
        let argv = [
            "env".to_owned(),
            format!("CNI_COMMAND={command}"),
            format!("CNI_CONTAINERID={}", self.id),
            format!("CNI_NETNS={}", self.netns),
            "CNI_IFNAME=eth0".to_owned(),
            format!("CNI_ARGS={}", arguments.join(";")),
            format!("CNI_PATH={}", bin.display()),
            bin.join(plugin["type"].as_str().unwrap_or_default())
                .display()
                .to_string(),
        ];
        Ok(self.place.run_stdin(argv, input.to_string())?.stdout)
    }
}

fn parse(text: &str) -> Result<Value, LabError> {
    serde_json::from_str(text).map_err(|source| LabError::Json {
        what: "a CNI document".into(),
        source,
    })
}
