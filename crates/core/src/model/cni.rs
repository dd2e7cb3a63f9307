//! What CNI plugins keep in files.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{ContainerId, PodName, PodUid, Timestamp};

/// A host-local lease: the file `<data dir>/<network>/<address>`, which holds the container ID, CR LF and the
/// interface's name. Source: containernetworking/plugins, `plugins/ipam/host-local/backend/disk`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The file's path.
    pub path: String,
    /// The network, which is the directory's name.
    pub network: String,
    /// The leased address, canonical, from the file's name.
    pub ip: IpAddr,
    /// Who holds it.
    pub container: ContainerId,
    /// The interface inside the sandbox; old versions wrote none.
    pub interface: Option<String>,
    /// The file's whole content, for compare-and-swap.
    pub content: String,
    /// The file's modification time; `None` in a recording that lost it.
    pub modified_at: Option<Timestamp>,
}

/// A lease file that cannot be read as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorruptFile {
    /// The file's path.
    pub path: String,
    /// What was expected and what was found.
    pub why: String,
}

/// All host-local stores of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpamStore {
    /// Readable leases.
    pub leases: Vec<Lease>,
    /// Unreadable ones.
    pub corrupt: Vec<CorruptFile>,
}

/// A cached CNI result: `/var/lib/cni/results/<network>-<container ID>-<interface>`. Source: containernetworking/cni,
/// `libcni/api.go`, kind `cniCacheV1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheEntry {
    /// The file's path.
    pub path: String,
    /// The network's name.
    pub network: String,
    /// The sandbox.
    pub container: ContainerId,
    /// The interface inside the sandbox.
    pub interface: String,
    /// Path of the network namespace.
    pub netns: Option<String>,
    /// The Pod, from `K8S_POD_NAMESPACE` and `K8S_POD_NAME`.
    pub pod: Option<PodName>,
    /// The Pod's UID, from `K8S_POD_UID` (containerd 1.6 and later).
    pub uid: Option<PodUid>,
    /// Addresses of the result, canonical.
    pub ips: Vec<IpAddr>,
    /// The file's modification time.
    pub modified_at: Option<Timestamp>,
}

/// A plugin of a CNI configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniPlugin {
    /// `type`.
    pub kind: String,
    /// `ipam.type`.
    pub ipam: Option<String>,
    /// `ipam.dataDir`.
    pub data_dir: Option<String>,
    /// `ipam.subnet` and `ipam.ranges[][].subnet`.
    pub subnets: Vec<ipnet::IpNet>,
}

/// A CNI configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniConfig {
    /// The file's path.
    pub path: String,
    /// The network's name.
    pub name: String,
    /// Its plugins, in order.
    pub plugins: Vec<CniPlugin>,
}
