//! What the kubelet was told, by its flags and its configuration file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use serde::Deserialize;

use crate::procs::{Processes, command_line};

/// What Sexton needs to know of the kubelet. Everything is `None` where nothing tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kubelet {
    /// The runtime's endpoint (`unix:///run/containerd/containerd.sock`).
    pub(crate) cri_endpoint: Option<String>,
    /// `hostnameOverride`, a flag only.
    pub(crate) hostname_override: Option<String>,
    /// How long it waits for one RunPodSandbox: twice its `runtimeRequestTimeout`, as sandboxes take longer than other requests
    /// (kubernetes `pkg/kubelet/cri/remote/remote_runtime.go`, `RunPodSandbox`).
    pub(crate) run_pod_sandbox: Option<Duration>,
    /// Where the endpoint or the name was found, for the report.
    pub(crate) source: Option<String>,
}

/// The fields of `KubeletConfiguration` (kubelet.config.k8s.io/v1beta1) that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    container_runtime_endpoint: Option<String>,
    runtime_request_timeout: Option<String>,
}

/// Finds the running kubelet's flags, then its configuration file: flags win, as in the kubelet itself.
pub(crate) fn read(proc: &Path, processes: &Processes, usual_config: &Path) -> Kubelet {
    let mut out = Kubelet::default();
    let mut configs = vec![usual_config.to_path_buf()];
    // k3s and RKE2 run the kubelet inside one program, which starts its own containerd.
    let kubelet = processes.all.iter().find(|process| process.command == "kubelet");
    if let Some(process) = kubelet {
        let arguments = command_line(proc, process.pid);
        out.cri_endpoint = flag(&arguments, "container-runtime-endpoint");
        out.hostname_override = flag(&arguments, "hostname-override");
        if out.cri_endpoint.is_some() || out.hostname_override.is_some() {
            out.source = Some(format!("flags of the kubelet, process {}", process.pid));
        }
        out.run_pod_sandbox = flag(&arguments, "runtime-request-timeout").and_then(|text| twice(&text));
        if let Some(path) = flag(&arguments, "config") {
            configs = vec![PathBuf::from(path)];
        }
        configs.extend(flag(&arguments, "config-dir").into_iter().flat_map(drop_ins));
    }
    // What a later file says wins (kubernetes `cmd/kubelet/app/server.go`, `mergeKubeletConfigurations`).
    for config in configs.iter().rev() {
        let Ok(text) = std::fs::read_to_string(config) else {
            continue;
        };
        let Ok(read) = serde_saphyr::from_str::<Config>(&text) else {
            continue;
        };
        let timeout = read.runtime_request_timeout;
        out.run_pod_sandbox = out
            .run_pod_sandbox
            .or_else(|| timeout.and_then(|text| twice(&text)));
        let endpoint = read.container_runtime_endpoint.filter(|text| !text.is_empty());
        if out.cri_endpoint.is_none() && endpoint.is_some() {
            out.cri_endpoint = endpoint;
            out.source = Some(config.display().to_string());
        }
    }
    out
}

/// The files of `--config-dir`, in the order in which the kubelet merges them: those that end in `.conf`, by path.
fn drop_ins(dir: String) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut dirs = vec![PathBuf::from(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            // A link is not followed into a folder: it could lead round.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "conf") {
                out.push(path);
            }
        }
    }
    out.sort();
    out
}

/// Twice a duration in Go's spelling (`2m0s`). Zero is the kubelet's word for its default.
fn twice(text: &str) -> Option<Duration> {
    let once: SignedDuration = text.trim().parse().ok()?;
    let once = Duration::try_from(once).ok().filter(|time| !time.is_zero())?;
    once.checked_mul(2)
}

/// A flag's value, in any of Go's spellings: `--name=value`, `-name value`.
fn flag(arguments: &[String], name: &str) -> Option<String> {
    let mut arguments = arguments.iter();
    let mut found = None;
    while let Some(argument) = arguments.next() {
        let Some(rest) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
            continue;
        };
        match rest.split_once('=') {
            Some((key, value)) if key == name => found = Some(value.to_owned()),
            None if rest == name => found = arguments.next().cloned(),
            _ => {}
        }
    }
    found.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_in_each_spelling_and_the_last_wins() {
        let arguments: Vec<String> = [
            "kubelet",
            "--v=2",
            "--config",
            "/etc/k.yaml",
            "-x",
            "--x=1",
            "--x=2",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(flag(&arguments, "config").as_deref(), Some("/etc/k.yaml"));
        assert_eq!(flag(&arguments, "x").as_deref(), Some("2"));
        assert_eq!(flag(&arguments, "hostname-override"), None);
    }

    #[test]
    fn the_configuration_file_tells_the_endpoint() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.yaml");
        std::fs::write(
            &file,
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             containerRuntimeEndpoint: unix:///run/crio/crio.sock\nmaxPods: 110\nruntimeRequestTimeout: 2m30s\n",
        )
        .unwrap();
        let kubelet = read(dir.path(), &Processes::default(), &file);
        assert_eq!(
            kubelet.cri_endpoint.as_deref(),
            Some("unix:///run/crio/crio.sock")
        );
        assert_eq!(kubelet.source, Some(file.display().to_string()));
        assert_eq!(kubelet.run_pod_sandbox, Some(Duration::from_secs(300)));
        assert_eq!(
            read(dir.path(), &Processes::default(), Path::new("/no/such")),
            Kubelet::default()
        );
    }

    #[test]
    fn durations_are_gos() {
        let seconds = |text| twice(text).map(|time| time.as_secs_f64());
        assert_eq!(
            ["2m0s", "15m", "1h2m3.5s", "90s", "0s", "0", "-2m", "two", ""].map(seconds),
            [
                Some(240.0),
                Some(1800.0),
                Some(7447.0),
                Some(180.0),
                None,
                None,
                None,
                None,
                None
            ]
        );
    }

    #[test]
    fn a_running_kubelet_overrides_the_file() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("77")).unwrap();
        std::fs::write(
            proc.path().join("77/cmdline"),
            "kubelet\0--container-runtime-endpoint=unix:///run/x.sock\0--hostname-override\0node-7\0--runtime-request-timeout=10m\0",
        )
        .unwrap();
        let processes = Processes {
            all: vec![crate::procs::Process {
                pid: 77,
                command: "kubelet".into(),
                netns: None,
            }],
            ..Processes::default()
        };
        let kubelet = read(proc.path(), &processes, Path::new("/no/such"));
        assert_eq!(kubelet.cri_endpoint.as_deref(), Some("unix:///run/x.sock"));
        assert_eq!(kubelet.hostname_override.as_deref(), Some("node-7"));
        assert_eq!(kubelet.run_pod_sandbox, Some(Duration::from_secs(1200)));
    }

    #[test]
    fn files_of_the_configuration_directory_win_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("proc/77")).unwrap();
        std::fs::create_dir(at("conf.d")).unwrap();
        let cmdline = format!(
            "kubelet\0--config={}\0--config-dir={}\0",
            at("config.yaml").display(),
            at("conf.d").display()
        );
        std::fs::write(at("proc/77/cmdline"), cmdline).unwrap();
        std::fs::write(at("config.yaml"), "runtimeRequestTimeout: 2m\n").unwrap();
        std::fs::write(at("conf.d/90-slow.conf"), "runtimeRequestTimeout: 15m\n").unwrap();
        std::fs::write(at("conf.d/10-first.conf"), "runtimeRequestTimeout: 1m\n").unwrap();
        std::fs::write(at("conf.d/99-not.yaml"), "runtimeRequestTimeout: 3m\n").unwrap();
        let processes = Processes {
            all: vec![crate::procs::Process {
                pid: 77,
                command: "kubelet".into(),
                netns: None,
            }],
            ..Processes::default()
        };
        let kubelet = read(&at("proc"), &processes, Path::new("/no/such"));
        assert_eq!(kubelet.run_pod_sandbox, Some(Duration::from_secs(1800)));
    }
}
