//! What a runtime adds about a sandbox when asked verbosely.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Deserialize;

/// The verbose part of a sandbox's status (`PodSandboxStatusResponse.info["info"]`, JSON), as containerd and CRI-O write it. Everything in
/// it is optional: the format is the runtime's own and not part of CRI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxInfo {
    /// The sandbox's first process, in the PID namespace of the runtime; none when it has ended (containerd writes 0).
    pub pid: Option<u32>,
    /// File of the sandbox's network namespace; none for `hostNetwork` Pods.
    pub netns: Option<PathBuf>,
    /// The interfaces that the CNI plugins answered, by name in order.
    pub interfaces: Vec<CniInterface>,
}

/// One interface of a CNI result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniInterface {
    /// Name of the interface.
    pub name: String,
    /// MAC address as the plugin wrote it; may be empty.
    pub mac: String,
    /// The namespace that it is in; empty for the node's.
    pub sandbox: String,
    /// Addresses of it.
    pub ips: Vec<String>,
}

/// The verbose part is there and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the runtime's verbose sandbox status is not the JSON that containerd and CRI-O write")]
pub struct SandboxInfoError(#[from] serde_json::Error);

impl SandboxInfo {
    /// Reads the verbose part of a status. None where the runtime gave none.
    ///
    /// # Errors
    ///
    /// [`SandboxInfoError`] when the text is not JSON or a field that is read has another type.
    pub fn parse(info: &HashMap<String, String>) -> Result<Option<Self>, SandboxInfoError> {
        let Some(text) = info.get("info") else {
            return Ok(None);
        };
        let raw: RawInfo = serde_json::from_str(text)?;
        let netns = raw
            .runtime_spec
            .and_then(|spec| spec.linux)
            .into_iter()
            .flat_map(|linux| linux.namespaces)
            .find(|namespace| namespace.r#type == "network")
            .and_then(|namespace| namespace.path)
            .filter(|path| !path.as_os_str().is_empty());
        let mut interfaces: Vec<CniInterface> = raw
            .cni_result
            .map(|result| result.interfaces)
            .unwrap_or_default()
            .into_iter()
            .map(|(name, interface)| CniInterface {
                name,
                mac: interface.mac,
                sandbox: interface.sandbox,
                ips: interface
                    .ip_configs
                    .unwrap_or_default()
                    .into_iter()
                    .map(|config| config.ip)
                    .collect(),
            })
            .collect();
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Some(Self {
            pid: raw.pid.filter(|pid| *pid != 0),
            netns,
            interfaces,
        }))
    }
}

#[derive(Deserialize)]
struct RawInfo {
    pid: Option<u32>,
    #[serde(rename = "runtimeSpec")]
    runtime_spec: Option<RawSpec>,
    #[serde(rename = "cniResult")]
    cni_result: Option<RawCni>,
}

#[derive(Deserialize)]
struct RawSpec {
    linux: Option<RawLinux>,
}

#[derive(Deserialize)]
struct RawLinux {
    #[serde(default)]
    namespaces: Vec<RawNamespace>,
}

#[derive(Deserialize)]
struct RawNamespace {
    r#type: String,
    path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct RawCni {
    #[serde(rename = "Interfaces", default)]
    interfaces: HashMap<String, RawInterface>,
}

#[derive(Deserialize)]
struct RawInterface {
    #[serde(rename = "Mac", default)]
    mac: String,
    #[serde(rename = "Sandbox", default)]
    sandbox: String,
    #[serde(rename = "IPConfigs")]
    ip_configs: Option<Vec<RawIpConfig>>,
}

#[derive(Deserialize)]
struct RawIpConfig {
    #[serde(rename = "IP")]
    ip: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<SandboxInfo>, SandboxInfoError> {
        SandboxInfo::parse(&HashMap::from([("info".to_owned(), text.to_owned())]))
    }

    #[test]
    fn containerd_info_is_read() {
        let info = parse(
            r#"{"pid":4711,"processStatus":"running","runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},
              {"type":"network","path":"/var/run/netns/cni-1b3c"}]}},"cniResult":{"Interfaces":{
              "lo":{"IPConfigs":[{"IP":"127.0.0.1","Gateway":""}],"Mac":"00:00:00:00:00:00","Sandbox":"/var/run/netns/cni-1b3c"},
              "eth0":{"IPConfigs":[{"IP":"10.10.1.7","Gateway":"10.10.1.1"}],"Mac":"3a:01:02:03:04:05","Sandbox":"/var/run/netns/cni-1b3c"},
              "cni0":{"IPConfigs":null,"Mac":"3a:01:02:03:04:06","Sandbox":""}}}}"#,
        )
        .unwrap()
        .unwrap();
        assert_eq!(info.pid, Some(4711));
        assert_eq!(info.netns, Some(PathBuf::from("/var/run/netns/cni-1b3c")));
        let names: Vec<&str> = info
            .interfaces
            .iter()
            .map(|interface| interface.name.as_str())
            .collect();
        assert_eq!(names, ["cni0", "eth0", "lo"]);
        assert_eq!(info.interfaces[1].ips, ["10.10.1.7"]);
        assert_eq!(info.interfaces[1].mac, "3a:01:02:03:04:05");
    }

    #[test]
    fn an_ended_sandbox_has_no_pid_and_host_network_no_namespace() {
        let info = parse(r#"{"pid":0,"runtimeSpec":{"linux":{"namespaces":[{"type":"network"}]}}}"#)
            .unwrap()
            .unwrap();
        assert_eq!(info, SandboxInfo::default());
    }

    #[test]
    fn nothing_verbose_is_none_and_rubbish_is_an_error() {
        assert_eq!(SandboxInfo::parse(&HashMap::new()).unwrap(), None);
        assert!(parse("{\"pid\":").is_err());
        assert!(parse("{\"pid\":\"4711\"}").is_err());
    }
}
