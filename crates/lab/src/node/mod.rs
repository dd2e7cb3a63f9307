//! The node: its namespaces, its files, its runtime; up and down.

mod files;
mod image;
mod place;
mod runtime;
mod teardown;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use sexton_linux::cri::CriClient;

use crate::api::{Api, ApiFaults};
use crate::cmd::{self, CommandError};
use crate::error::LabError;
use crate::ns::in_netns;
use crate::pods::Pods;
use crate::truth::Truth;
pub(crate) use files::kubeconfig;
pub use place::Place;
pub(crate) use place::{Process, child_of};
use runtime::{Engine, Runtime};
pub(crate) use teardown::down;

/// Port of the API's stand-in on the node's loopback.
pub(crate) const API_PORT: u16 = 6443;

/// The node's own address on its uplink `eth0`.
pub(crate) const NODE_IP: &str = "172.20.0.11";

/// The address of the clients outside.
pub(crate) const CLIENT_IP: &str = "172.20.0.200";

/// Name of the node's uplink.
pub(crate) const UPLINK: &str = "eth0";

/// Which kernel tables the node's `iptables` writes to.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// nf_tables, by `iptables-nft`.
    #[default]
    Nft,
    /// x_tables, by `iptables-legacy`.
    Legacy,
}

impl Variant {
    /// The program that is all of this variant's commands by its name.
    fn multi(self) -> &'static str {
        match self {
            Self::Nft => "/usr/sbin/xtables-nft-multi",
            Self::Legacy => "/usr/sbin/xtables-legacy-multi",
        }
    }
}

/// How a node is to be.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct LabOptions {
    /// Name of the node, also its host name.
    pub node_name: String,
    /// Its `iptables`.
    pub variant: Variant,
    /// Its container runtime.
    pub runtime: RuntimeKind,
}

/// Which container runtime a node has.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// The machine's containerd, which needs root.
    #[default]
    Containerd,
    /// The lab's own small CRI server with the same CNI plugins, which also runs in an unprivileged user namespace.
    Lab,
}

impl Default for LabOptions {
    fn default() -> Self {
        Self {
            node_name: "worker-a".into(),
            variant: Variant::Nft,
            runtime: RuntimeKind::Containerd,
        }
    }
}

/// A running node. It is taken down when this value is dropped.
///
/// Its methods wait for what they start, so they are not for use inside an async task.
#[derive(Debug)]
pub struct LabNode {
    pub(crate) place: Place,
    pub(crate) options: LabOptions,
    // In this order, so that the servers stop before the runtime that they run on.
    pub(crate) pods: Pods,
    pub(crate) api: Api,
    engine: Engine,
    runtime: Mutex<Option<(Runtime, CriClient)>>,
    pub(crate) truth: Mutex<Truth>,
    holders: Vec<Child>,
    pub(crate) tokio: Arc<tokio::runtime::Runtime>,
}

impl std::ops::Deref for LabNode {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl LabNode {
    /// Makes a node in `dir`, which is created and must be empty or absent. Takes about a second.
    ///
    /// # Errors
    ///
    /// [`LabError`]: no root, a tool missing, or a part that did not start. Nothing stays behind then.
    pub fn up(dir: impl AsRef<Path>, options: LabOptions) -> Result<Self, LabError> {
        let place = Place::new(dir)?;
        check_tools(options.variant, options.runtime)?;
        claim(&place)?;
        let machine_id = random_id()?.replace('-', "");
        write_files(&place, &options, &machine_id)?;
        let mut guard = Unfinished {
            place: place.clone(),
            holders: Vec::new(),
            finished: false,
        };
        let made = Self::start(&place, options, &machine_id, &mut guard);
        if made.is_ok() {
            guard.finished = true;
        }
        made
    }

    fn start(
        place: &Place,
        options: LabOptions,
        machine_id: &str,
        guard: &mut Unfinished,
    ) -> Result<Self, LabError> {
        let io = |source| LabError::Socket {
            what: "the lab's event loop".into(),
            source,
        };
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("lab")
            .on_thread_start(crate::load::go_first)
            .enable_all()
            .build()
            .map_err(io)?;
        let tokio = Arc::new(tokio);

        let script = files::setup_script(place, &options);
        let unshare = [
            "unshare",
            "--net",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
        ];
        let argv = cmd::words(unshare.into_iter().chain(["sh", "-c", &script]));
        let node = hold(place, &argv, "the node's namespaces", &mut guard.holders)?;
        let init = child_of(node.pid)
            .and_then(Process::of)
            .ok_or(LabError::NotReady {
                what: "the node's first process",
                log: place.log_tail("node.log"),
            })?;
        let argv = cmd::words(["unshare", "--net", "sh", "-c", "echo ready; exec sleep 2147483"]);
        let client = hold(place, &argv, "the clients' namespace", &mut guard.holders)?;
        teardown::remember(place, &[node, init, client])?;
        link_namespaces(place, init, client)?;
        // Before there is a link: each takes its own settings from these when it is made.
        sysctls(place)?;
        connect(place)?;

        let api = Api::start(place, &options, machine_id, tokio.handle())?;
        let engine = Engine::new(place, options.runtime);
        let (runtime, cri) = tokio.block_on(engine.start(place))?;
        engine.import_image(place)?;
        let node = Self {
            place: place.clone(),
            truth: Mutex::new(Truth::new(place, &options)),
            options,
            pods: Pods::new(tokio.handle()),
            api,
            engine,
            runtime: Mutex::new(Some((runtime, cri))),
            holders: std::mem::take(&mut guard.holders),
            tokio,
        };
        node.save_truth()?;
        Ok(node)
    }

    /// The directory and the way into the node, which can be cloned and used elsewhere.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// How the node was made.
    pub fn options(&self) -> &LabOptions {
        &self.options
    }

    /// The stand-in of the API: its objects can be read and changed.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The API's fault switches.
    pub fn api_faults(&self) -> &ApiFaults {
        self.api.faults()
    }

    /// What was made on this node so far.
    pub fn truth(&self) -> Truth {
        lock(&self.truth).clone()
    }

    /// A connection to the node's runtime.
    ///
    /// # Errors
    ///
    /// [`LabError::State`] while the runtime is stopped.
    pub fn cri(&self) -> Result<CriClient, LabError> {
        let runtime = lock(&self.runtime);
        let (_, cri) = runtime
            .as_ref()
            .ok_or_else(|| LabError::State("the runtime is stopped".into()))?;
        Ok(cri.clone())
    }

    /// Deletes sandboxes whose processes have ended from the runtime's knowledge, behind the CRI's back.
    pub(crate) fn forget_sandboxes(&self, ids: &[&str]) -> Result<(), LabError> {
        self.engine.forget(self, ids)
    }

    /// Deletes the whole store of the stopped runtime.
    pub(crate) fn delete_store(&self) -> Result<(), LabError> {
        self.engine.delete_store(&self.place)
    }

    /// Gives the runtime its image again.
    pub(crate) fn import_image(&self) -> Result<(), LabError> {
        self.engine.import_image(&self.place)
    }

    /// Kills the runtime as a crash does. Sandboxes go on; the CRI is unavailable until [`LabNode::start_runtime`].
    pub fn crash_runtime(&self) {
        let running = lock(&self.runtime).take();
        if let Some((runtime, _)) = running {
            runtime.crash();
        }
    }

    /// Starts the runtime again.
    ///
    /// # Errors
    ///
    /// [`LabError::NotReady`] when it does not come up.
    pub fn start_runtime(&self) -> Result<(), LabError> {
        self.crash_runtime();
        let started = self.tokio.block_on(self.engine.start(&self.place))?;
        *lock(&self.runtime) = Some(started);
        Ok(())
    }

    /// Writes the CNI configuration: the usual one, or with a slow plugin at its end that takes `slow` seconds on ADD; and waits until
    /// the runtime has it.
    ///
    /// # Errors
    ///
    /// [`LabError::File`]; [`LabError::NotReady`] when the runtime does not take it.
    pub(crate) fn write_conflist(&self, slow: Option<u32>) -> Result<(), LabError> {
        if let Some(seconds) = slow {
            write(&self.path("cni-bin/slow.seconds"), seconds.to_string())?;
        }
        // In place: containerd reads its configuration again after a write, and not after a file was moved in.
        write(
            &self.path("net.d/10-podnet.conflist"),
            files::conflist(slow.is_some()),
        )?;
        let Ok(cri) = self.cri() else { return Ok(()) };
        self.wait_for("the runtime's new CNI configuration", || {
            let status = self.tokio.block_on(cri.status(true))?;
            let config = status
                .info
                .get("cniconfig")
                .map(String::as_str)
                .unwrap_or_default();
            Ok(config.contains("slow") == slow.is_some())
        })
    }

    /// Parent of the sandboxes' cgroups.
    pub(crate) fn cgroup(&self) -> String {
        teardown::cgroup(&self.place)
    }

    pub(crate) fn save_truth(&self) -> Result<(), LabError> {
        lock(&self.truth).save(&self.place)
    }

    /// Takes the node down and removes its directory. Dropping the value does the same and cannot tell what went wrong.
    ///
    /// # Errors
    ///
    /// [`LabError`] when something of it stays behind.
    pub fn down(self) -> Result<(), LabError> {
        let place = self.place.clone();
        drop(self);
        if place.dir().exists() {
            down(&place)
        } else {
            Ok(())
        }
    }
}

impl Drop for LabNode {
    fn drop(&mut self) {
        self.pods.stop();
        self.api.stop();
        self.crash_runtime();
        // What stays behind is found and told by `down`, and by the next `up` in the same place.
        let _ = down(&self.place);
        for holder in &mut self.holders {
            let _ = holder.wait();
        }
    }
}

/// Ends what a failed `up` had started.
struct Unfinished {
    place: Place,
    holders: Vec<Child>,
    finished: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            for holder in &mut self.holders {
                let _ = holder.kill();
                let _ = holder.wait();
            }
            let _ = down(&self.place);
        }
    }
}

/// A lock that a panicked test does not spoil for the clean-up.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), LabError> {
    std::fs::write(path, content).map_err(LabError::file("write", path))
}

/// A random UUID, as Pods have one.
pub(crate) fn random_id() -> Result<String, LabError> {
    let path = Path::new("/proc/sys/kernel/random/uuid");
    Ok(std::fs::read_to_string(path)
        .map_err(LabError::file("read", path))?
        .trim()
        .to_owned())
}

/// Takes a directory that is empty or absent.
fn claim(place: &Place) -> Result<(), LabError> {
    let dir = place.dir();
    if let Ok(mut entries) = std::fs::read_dir(dir)
        && entries.next().is_some()
    {
        let why = "is not empty; if a lab was here, take it down first";
        return Err(LabError::Place {
            dir: dir.to_path_buf(),
            why,
        });
    }
    for name in [
        "",
        "ns",
        "bin",
        "cni-bin",
        "net.d",
        "var-lib-cni",
        "containerd",
        "kubelet",
        "log",
    ] {
        let path = place.path(name);
        std::fs::create_dir_all(&path).map_err(LabError::file("make", &path))?;
    }
    Ok(())
}

/// Where CNI plugins are: Debian's place first, then the usual one.
const CNI_BINS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

fn cni_bin() -> Option<PathBuf> {
    CNI_BINS
        .iter()
        .map(PathBuf::from)
        .find(|dir| dir.join("portmap").exists())
}

/// Why this machine cannot have a [`LabNode`]; none where it can. A test asks first, so that a skip is said and counted:
/// `if let Some(why) = sexton_lab::unsupported() { return sexton_lab::skip!("{why}"); }`
pub fn unsupported() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a lab node needs root".into());
    }
    let kind = RuntimeKind::Containerd;
    let checked = check_tools(Variant::Nft, kind).and_then(|()| check_tools(Variant::Legacy, kind));
    if let Err(missing) = checked {
        return Some(missing.to_string());
    }
    // Root of a container may not make any.
    let unshare = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "true"];
    let refused = cmd::run(&cmd::words(unshare), b"").err()?;
    Some(format!("namespaces cannot be made here: {refused}"))
}

/// Why this machine cannot have a node without root, in a user namespace; none where it can.
pub fn unprivileged_unsupported() -> Option<String> {
    // The whole of what such a node needs from the kernel before anything else: namespaces, and a /proc and a /sys of its own.
    let script = "mount -t proc proc /proc && mount -t sysfs sysfs /sys && ip link add lab type veth peer name lab1 && nft add table inet lab";
    let unshare = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "--uts",
        "--pid",
        "--fork",
        "sh",
        "-c",
        script,
    ];
    if let Err(refused) = cmd::run(&cmd::words(unshare), b"") {
        let why = match refused {
            CommandError::Failed { stderr, .. } => stderr.trim().to_owned(),
            other => other.to_string(),
        };
        return Some(format!("unprivileged user namespaces do not work here: {why}"));
    }
    check_tools(Variant::Nft, RuntimeKind::Lab)
        .err()
        .map(|missing| missing.to_string())
}

fn check_tools(variant: Variant, runtime: RuntimeKind) -> Result<(), LabError> {
    let missing = |what: &str, package| {
        Err(LabError::Missing {
            what: what.to_owned(),
            package,
        })
    };
    if cni_bin().is_none() {
        return missing("the CNI plugin portmap", "containernetworking-plugins");
    }
    if !Path::new(variant.multi()).exists() {
        return missing(variant.multi(), "iptables");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from));
    let everywhere = [
        ("ip", "iproute2"),
        ("nft", "nftables"),
        ("conntrack", "conntrack"),
        ("nsenter", "util-linux"),
        ("unshare", "util-linux"),
        ("setpriv", "util-linux"),
    ];
    let containerd = [
        ("containerd", "containerd"),
        ("ctr", "containerd"),
        ("runc", "runc"),
    ];
    let (more, image): (&[_], _) = match runtime {
        RuntimeKind::Containerd => (&containerd, true),
        RuntimeKind::Lab => (&[], false),
    };
    for &(tool, package) in everywhere.iter().chain(more) {
        if !dirs.iter().any(|dir| dir.join(tool).exists()) {
            return missing(tool, package);
        }
    }
    if image && !Path::new(image::BUSYBOX).exists() {
        return missing(image::BUSYBOX, "busybox-static");
    }
    Ok(())
}

fn write_files(place: &Place, options: &LabOptions, machine_id: &str) -> Result<(), LabError> {
    write(&place.path("containerd.toml"), files::containerd_config(place))?;
    write(&place.path("net.d/10-podnet.conflist"), files::conflist(false))?;
    write(&place.path("kubelet/config.yaml"), files::kubelet_config())?;
    write(&place.kubeconfig(), kubeconfig(options))?;
    write(&place.path("machine-id"), format!("{machine_id}\n"))?;
    write(&place.path("hostname"), format!("{}\n", options.node_name))?;
    let symlink = |target: &Path, link: PathBuf| {
        std::os::unix::fs::symlink(target, &link).map_err(LabError::file("make", &link))
    };
    for family in ["iptables", "ip6tables"] {
        for suffix in ["", "-save", "-restore"] {
            symlink(
                options.variant.multi().as_ref(),
                place.path(format!("bin/{family}{suffix}")),
            )?;
        }
    }
    let plugins = cni_bin().unwrap_or_default();
    for plugin in std::fs::read_dir(&plugins)
        .map_err(LabError::file("list", &plugins))?
        .flatten()
    {
        symlink(&plugin.path(), place.path("cni-bin").join(plugin.file_name()))?;
    }
    let slow = place.path("cni-bin/slow");
    write(&slow, files::SLOW_PLUGIN)?;
    let runnable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&slow, runnable).map_err(LabError::file("make runnable", &slow))
}

/// Starts a process that holds namespaces open, and waits for its word `ready`.
fn hold(
    place: &Place,
    argv: &[std::ffi::OsString],
    what: &'static str,
    holders: &mut Vec<Child>,
) -> Result<Process, LabError> {
    let path = place.path("log/node.log");
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(LabError::file("open", &path))?;
    let start = |source| CommandError::Start {
        command: cmd::shown(&argv[..argv.len() - 1]),
        source,
    };
    let mut child = Command::new(&argv[0])
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(start)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // It ends with the child at the latest, and nothing more than the word is expected.
        BufReader::new(stdout.take(64))
            .read_line(&mut line)
            .map_err(start)?;
    }
    let process = i32::try_from(child.id()).ok().and_then(Process::of);
    holders.push(child);
    match process {
        Some(process) if line.trim() == "ready" => Ok(process),
        _ => Err(LabError::NotReady {
            what,
            log: place.log_tail("node.log"),
        }),
    }
}

fn link_namespaces(place: &Place, init: Process, client: Process) -> Result<(), LabError> {
    for (name, pid, target) in [
        ("net", init.pid, "ns/net"),
        ("mnt", init.pid, "ns/mnt"),
        ("uts", init.pid, "ns/uts"),
        ("pid", init.pid, "ns/pid"),
        ("root", init.pid, "root"),
        ("client", client.pid, "ns/net"),
    ] {
        let link = place.path("ns").join(name);
        std::os::unix::fs::symlink(format!("/proc/{pid}/{target}"), &link)
            .map_err(LabError::file("make", &link))?;
    }
    Ok(())
}

/// Joins node and clients by a veth pair. The clients are the node's way out, and know the Pods' and Services' ranges behind it.
fn connect(place: &Place) -> Result<(), LabError> {
    let client = place.client_netns();
    // From outside, where the path of the clients' namespace means something.
    place.run_net_stdin(
        &place.netns(),
        ["ip", "-batch", "-"],
        format!(
            "link set lo up
link add {UPLINK} type veth peer name eth0 netns {}
addr add {NODE_IP}/24 dev {UPLINK}
link set {UPLINK} up
route add default via {CLIENT_IP}
",
            client.display()
        ),
    )?;
    place.run_net_stdin(
        &client,
        ["ip", "-batch", "-"],
        format!(
            "link set lo up
addr add {CLIENT_IP}/24 dev eth0
link set eth0 up
route add 10.10.1.0/24 via {NODE_IP}
route add 10.96.0.0/12 via {NODE_IP}
"
        ),
    )?;
    Ok(())
}

/// Kernel settings of the two namespaces. UDP entries live for an hour, so that a slow machine does not lose the stale ones before anybody
/// looks; TIME_WAIT is short, because the table's size is the machine's and the clients make thousands of connections.
fn sysctls(place: &Place) -> Result<(), LabError> {
    const NODE: [(&str, &str); 6] = [
        // No duplicate detection, which changes addresses by itself seconds later.
        ("net/ipv6/conf/all/accept_dad", "0"),
        ("net/ipv6/conf/default/accept_dad", "0"),
        ("net/ipv4/ip_forward", "1"),
        ("net/netfilter/nf_conntrack_tcp_timeout_time_wait", "2"),
        ("net/netfilter/nf_conntrack_udp_timeout", "3600"),
        ("net/netfilter/nf_conntrack_udp_timeout_stream", "3600"),
    ];
    const CLIENT: [(&str, &str); 2] = [
        ("net/ipv4/ip_local_port_range", "10000 60999"),
        ("net/ipv4/tcp_tw_reuse", "1"),
    ];
    fn set(settings: &'static [(&'static str, &'static str)]) -> Result<(), LabError> {
        settings
            .iter()
            .try_for_each(|(name, value)| write(&Path::new("/proc/sys").join(name), value))
    }
    in_netns(&place.netns(), || set(&NODE))??;
    in_netns(&place.client_netns(), || set(&CLIENT))?
}
