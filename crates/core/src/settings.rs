//! The numbers that judging and repairing go by. `docs/rules` and `sexton audit --help` show the same defaults.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::PortRange;

/// How long one RunPodSandbox may take by default: the kubelet waits twice its `runtimeRequestTimeout` of two minutes for it
/// (kubernetes `pkg/kubelet/cri/remote/remote_runtime.go`, `RunPodSandbox`).
pub const RUN_POD_SANDBOX: Duration = Duration::from_secs(4 * 60);

/// All numbers, with their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Pause before the second reading that a repair needs.
    pub second_reading: Duration,
    /// How long a container ID must have been dead before what is keyed on it is repaired.
    pub container_grace: Duration,
    /// How long one RunPodSandbox may take, where the caller says so (law 6). `None`: what the node's kubelet was told, else
    /// [`RUN_POD_SANDBOX`].
    pub run_pod_sandbox: Option<Duration>,
    /// A round that would delete more than this many objects of one kind is held to `share_limit`.
    pub share_floor: usize,
    /// The largest part of one kind that a round may delete, in percent.
    pub share_limit_percent: usize,
    /// How long a plan may be carried out after it was made.
    pub plan_expiry: Duration,
    /// The range that a NodePortLocal controller takes its ports from.
    pub npl_range: PortRange,
    /// Service CIDRs told by the caller.
    pub service_cidrs: Vec<ipnet::IpNet>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            second_reading: Duration::from_secs(2),
            container_grace: Duration::from_secs(4 * 60),
            run_pod_sandbox: None,
            share_floor: 20,
            share_limit_percent: 25,
            plan_expiry: Duration::from_secs(15 * 60),
            npl_range: PortRange {
                first: 61000,
                last: 62000,
            },
            service_cidrs: Vec::new(),
        }
    }
}
