//! Where a node's things are found: the usual places, each of which can be given.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sexton_core::model::CtEntry;

/// Whether an entry of connection tracking is kept. Entries of UDP are counted, kept or not.
pub type KeepConntrack = Arc<dyn Fn(&CtEntry) -> bool + Send + Sync>;

/// How the API server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiAccess {
    /// As kubectl does: `KUBECONFIG`, `~/.kube/config`, the service account of the Pod that we run in; then the kubelet's own
    /// file of this node.
    #[default]
    Infer,
    /// A kubeconfig file, and the context in it if not the current one.
    Kubeconfig {
        /// The file; `None` is kubectl's usual one.
        path: Option<PathBuf>,
        /// The context.
        context: Option<String>,
    },
    /// Not at all.
    Off,
}

/// What [`LinuxNode`](crate::LinuxNode) reads and from where.
#[derive(Clone)]
pub struct LinuxOptions {
    /// The Node's name. `None`: `NODE_NAME`, then the kubelet's `hostnameOverride`, then the host name.
    pub node_name: Option<String>,
    /// How the API server is reached.
    pub api: ApiAccess,
    /// The CRI endpoint (`unix://` before it or not). `None`: the kubelet's flags or configuration, then the usual
    /// sockets.
    pub cri_endpoint: Option<String>,
    /// Sockets tried for CRI where nothing tells the endpoint, in order.
    pub cri_sockets: Vec<PathBuf>,
    /// The kubelet's configuration file, used where its command line does not name one.
    pub kubelet_config: PathBuf,
    /// Directories of CNI configuration.
    pub cni_config_dirs: Vec<PathBuf>,
    /// host-local's default data directory; those that configurations name are read as well.
    pub cni_data_dir: PathBuf,
    /// Directory of cached CNI results.
    pub cni_cache_dir: PathBuf,
    /// Where procfs is mounted. It must show the node's processes.
    pub proc: PathBuf,
    /// How long one source may take.
    pub deadline: Duration,
    /// Which tracked connections the kernel is asked for.
    pub tracked: Tracked,
    /// Which entries of connection tracking are kept of those; `None` keeps all.
    pub keep_conntrack: Option<KeepConntrack>,
}

/// Tracked connections to ask the kernel for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracked {
    /// All of them.
    #[default]
    Every,
    /// Those of UDP, and of IPv6 only where it leads anywhere: all that the rules look at.
    Udp,
    /// The same, and every one where the kernel counts replies (`nf_conntrack_acct`): a growing count of any protocol is a sign of life,
    /// for which a repair reads twice.
    UdpAndReplies,
}

impl Default for LinuxOptions {
    fn default() -> Self {
        Self {
            node_name: None,
            api: ApiAccess::default(),
            cri_endpoint: None,
            cri_sockets: [
                "/run/containerd/containerd.sock",
                "/run/crio/crio.sock",
                "/var/run/cri-dockerd.sock",
                "/run/k3s/containerd/containerd.sock",
            ]
            .map(PathBuf::from)
            .to_vec(),
            kubelet_config: "/var/lib/kubelet/config.yaml".into(),
            cni_config_dirs: vec!["/etc/cni/net.d".into()],
            cni_data_dir: "/var/lib/cni/networks".into(),
            cni_cache_dir: "/var/lib/cni/results".into(),
            proc: "/proc".into(),
            deadline: Duration::from_secs(15),
            tracked: Tracked::Every,
            keep_conntrack: None,
        }
    }
}

impl fmt::Debug for LinuxOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinuxOptions")
            .field("node_name", &self.node_name)
            .field("api", &self.api)
            .field("cri_endpoint", &self.cri_endpoint)
            .field("kubelet_config", &self.kubelet_config)
            .field("cni_config_dirs", &self.cni_config_dirs)
            .field("cni_data_dir", &self.cni_data_dir)
            .field("cni_cache_dir", &self.cni_cache_dir)
            .field("proc", &self.proc)
            .field("deadline", &self.deadline)
            .field("tracked", &self.tracked)
            .field("keep_conntrack", &self.keep_conntrack.is_some())
            .finish_non_exhaustive()
    }
}
