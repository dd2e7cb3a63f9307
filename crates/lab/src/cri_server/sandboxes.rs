//! The sandboxes of the lab's own runtime.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sexton_linux::cri::proto::{
    LinuxPodSandboxStatus, Namespace, PodSandbox, PodSandboxNetworkStatus, PodSandboxState, PodSandboxStatus,
    PodSandboxStatusResponse,
};

use super::cni::{self, Attachment};
use crate::cri::PodSandboxConfig;
use crate::error::LabError;
use crate::node::{Place, lock, random_id};

/// What the runtime knows.
#[derive(Debug)]
pub(crate) struct Sandboxes {
    place: Place,
    all: Mutex<BTreeMap<String, Sandbox>>,
    /// Processes whose sandbox was forgotten: they run on.
    lost: Mutex<Vec<Child>>,
}

#[derive(Debug)]
struct Sandbox {
    config: PodSandboxConfig,
    netns: String,
    created_at: i64,
    result: Value,
    pause: Pause,
    stopped: bool,
}

/// The process that sleeps in a sandbox.
#[derive(Debug)]
struct Pause {
    /// `nsenter`, whose child it is.
    outer: Child,
    /// PID in the node's PID namespace.
    pid: u32,
}

impl Pause {
    fn runs(&mut self) -> bool {
        matches!(self.outer.try_wait(), Ok(None))
    }

    fn end(&mut self) {
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

impl Drop for Sandboxes {
    fn drop(&mut self) {
        for sandbox in lock(&self.all).values_mut() {
            sandbox.pause.end();
        }
        for lost in lock(&self.lost).iter_mut() {
            let _ = lost.kill();
            let _ = lost.wait();
        }
    }
}

impl Sandbox {
    fn state(&mut self) -> PodSandboxState {
        if !self.stopped && self.pause.runs() {
            PodSandboxState::Ready
        } else {
            PodSandboxState::NotReady
        }
    }

    fn ip(&self) -> String {
        let address = self.result["ips"][0]["address"].as_str().unwrap_or_default();
        address.split('/').next().unwrap_or_default().to_owned()
    }

    /// As containerd says it.
    fn info(&mut self) -> String {
        let pid = if self.pause.runs() { self.pause.pid } else { 0 };
        let inside = self.result["interfaces"].as_array().into_iter().flatten();
        let mac = inside
            .filter(|it| it["sandbox"] == json!(self.netns))
            .find_map(|it| it["mac"].as_str());
        json!({
            "pid": pid,
            "runtimeSpec": {"linux": {"namespaces": [{"type": "network", "path": self.netns}]}},
            "cniResult": {"Interfaces": {"eth0": {
                "IPConfigs": [{"IP": self.ip()}], "Mac": mac.unwrap_or_default(), "Sandbox": self.netns,
            }}},
        })
        .to_string()
    }
}

impl Sandboxes {
    pub(crate) fn new(place: &Place) -> Self {
        Self {
            place: place.clone(),
            all: Mutex::default(),
            lost: Mutex::default(),
        }
    }

    /// The text of the network's configuration.
    pub(super) fn cni_config(&self) -> Result<String, LabError> {
        cni::configuration(&self.place)
    }

    /// Makes a sandbox: its namespace, its network, its process, in this order, as containerd does.
    pub(super) fn run(&self, config: PodSandboxConfig) -> Result<String, LabError> {
        let id = format!("{}{}", random_id()?, random_id()?).replace('-', "");
        let name = format!("cni-{}", random_id()?);
        self.place.run(["ip", "netns", "add", &name])?;
        let netns = format!("/run/netns/{name}");
        self.place.run(["ip", "-n", &name, "link", "set", "lo", "up"])?;
        let attachment = Attachment {
            place: &self.place,
            id: &id,
            netns: &netns,
            config: &config,
        };
        let result = match attachment.add() {
            Ok(result) => result,
            Err(error) => {
                // As containerd does; what the caller is told is the first error.
                let _ = attachment.del();
                let _ = self.place.run(["ip", "netns", "del", &name]);
                return Err(error);
            }
        };
        let pause = self.start_pause(&netns)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let created_at = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        let sandbox = Sandbox {
            config,
            netns,
            created_at,
            result,
            pause,
            stopped: false,
        };
        lock(&self.all).insert(id.clone(), sandbox);
        Ok(id)
    }

    fn start_pause(&self, netns: &str) -> Result<Pause, LabError> {
        let inside = format!("--net={netns}");
        let script = "echo $$; exec sleep 2147483";
        let mut outer = self.place.spawn(
            ["nsenter", &inside, "sh", "-c", script],
            Stdio::piped(),
            Stdio::null(),
        )?;
        let mut line = String::new();
        if let Some(stdout) = outer.stdout.take() {
            // It ends with the process at the latest.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        match line.trim().parse() {
            Ok(pid) => Ok(Pause { outer, pid }),
            Err(_) => {
                let _ = outer.kill();
                let _ = outer.wait();
                Err(LabError::NotReady {
                    what: "a sandbox's process",
                    log: line,
                })
            }
        }
    }

    pub(super) fn list(&self) -> Vec<PodSandbox> {
        let mut all = lock(&self.all);
        all.iter_mut()
            .map(|(id, sandbox)| PodSandbox {
                id: id.clone(),
                metadata: sandbox.config.metadata.clone(),
                state: sandbox.state() as i32,
                created_at: sandbox.created_at,
                labels: sandbox.config.labels.clone(),
                annotations: sandbox.config.annotations.clone(),
                runtime_handler: String::new(),
            })
            .collect()
    }

    pub(super) fn status(&self, id: &str, verbose: bool) -> Option<PodSandboxStatusResponse> {
        let mut all = lock(&self.all);
        let (id, sandbox) = all
            .iter_mut()
            .find(|(known, _)| !id.is_empty() && known.starts_with(id))?;
        let options = sandbox
            .config
            .linux
            .clone()
            .and_then(|linux| linux.security_context);
        let status = PodSandboxStatus {
            id: id.clone(),
            metadata: sandbox.config.metadata.clone(),
            state: sandbox.state() as i32,
            created_at: sandbox.created_at,
            network: Some(PodSandboxNetworkStatus {
                ip: sandbox.ip(),
                additional_ips: Vec::new(),
            }),
            linux: Some(LinuxPodSandboxStatus {
                namespaces: Some(Namespace {
                    options: options.and_then(|context| context.namespace_options),
                }),
            }),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: String::new(),
        };
        let info = if verbose {
            HashMap::from([("info".into(), sandbox.info())])
        } else {
            HashMap::new()
        };
        Some(PodSandboxStatusResponse {
            status: Some(status),
            info,
            timestamp: 0,
        })
    }

    /// Ends a sandbox's process and takes its network down. One that is not known is no error, as CRI wants.
    pub(super) fn stop(&self, id: &str) -> Result<(), LabError> {
        let (config, netns) = {
            let mut all = lock(&self.all);
            let Some(sandbox) = all.get_mut(id).filter(|sandbox| !sandbox.stopped) else {
                return Ok(());
            };
            sandbox.pause.end();
            (sandbox.config.clone(), sandbox.netns.clone())
        };
        Attachment {
            place: &self.place,
            id,
            netns: &netns,
            config: &config,
        }
        .del()?;
        let name = netns.trim_start_matches("/run/netns/");
        self.place.run(["ip", "netns", "del", name])?;
        if let Some(sandbox) = lock(&self.all).get_mut(id) {
            sandbox.stopped = true;
        }
        Ok(())
    }

    pub(super) fn remove(&self, id: &str) -> Result<(), LabError> {
        self.stop(id)?;
        lock(&self.all).remove(id);
        Ok(())
    }

    /// Ends a sandbox's process and forgets the sandbox; its network stays.
    pub(crate) fn forget(&self, id: &str) {
        let known = lock(&self.all).remove(id);
        if let Some(mut sandbox) = known {
            sandbox.pause.end();
        }
    }

    /// Forgets everything; all sandboxes run on.
    pub(crate) fn forget_all(&self) {
        let all = std::mem::take(&mut *lock(&self.all));
        lock(&self.lost).extend(all.into_values().map(|sandbox| sandbox.pause.outer));
    }
}
