//! Stale state, made on a node with the tools that leave it in the world, each beside something alive that looks almost the same.
//!
//! Every fault writes down what a good program must find and what it must never touch ([`crate::truth::Truth`]).

mod conntrack;
mod hostport;
mod leases;
mod nftables;
mod npl;
mod runtime;
mod tombstone;

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use crate::error::LabError;
use crate::node::{LabNode, NODE_IP, lock};
use crate::pods::{Pod, PodSpec};
use crate::truth::{Alive, Expected, PodState, Protocol, Target, TargetPath};

pub use runtime::AddInFlight;

/// How old the files of dead sandboxes are made. Programs wait with a repair until such files are older than an ADD can be.
const AGE: Duration = Duration::from_secs(600);

/// A kind of stale state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// What Antrea v2.3.2 leaves after an 8-port StatefulSet Pod was made again: 4 node ports lead to it, 4 to its old address.
    Npl,
    /// A hostPort of a sandbox that no runtime knows, whose rule shadows the one of the Pod that came after it.
    HostPort,
    /// UDP connections that lead to a dead DNS Pod, through a Service's address, through one of no Service, and past all rules.
    Conntrack,
    /// host-local leases of sandboxes that no runtime knows.
    Leases,
    /// A drop that was set for a dead Pod's address, which a living Pod has now.
    Tombstone,
    /// A Pod that is gone from the API and runs on.
    Zombie,
    /// A hostPort, masquerades and NodePortLocal mappings of the dead that stand in nftables.
    Nftables,
}

impl Fault {
    /// Those that the demo makes, in its order. Nftables is left to the tests: it is the same two incidents for another kernel interface.
    pub const DEMO: [Self; 6] = [
        Self::Npl,
        Self::HostPort,
        Self::Conntrack,
        Self::Leases,
        Self::Tombstone,
        Self::Zombie,
    ];

    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Npl,
        Self::HostPort,
        Self::Conntrack,
        Self::Leases,
        Self::Tombstone,
        Self::Zombie,
        Self::Nftables,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Npl => "npl",
            Self::HostPort => "host-port",
            Self::Conntrack => "conntrack",
            Self::Leases => "leases",
            Self::Tombstone => "tombstone",
            Self::Zombie => "zombie",
            Self::Nftables => "nftables",
        }
    }
}

impl LabNode {
    /// Makes one kind of stale state, once for a node.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn fault(&self, fault: Fault) -> Result<(), LabError> {
        let name = fault.name();
        if lock(&self.truth).faults.iter().any(|made| made == name) {
            return Err(LabError::State(format!(
                "the fault {name} was made on this node already"
            )));
        }
        match fault {
            Fault::Npl => npl::make(self),
            Fault::HostPort => hostport::make(self),
            Fault::Conntrack => conntrack::make(self),
            Fault::Leases => leases::make(self),
            Fault::Tombstone => tombstone::make(self),
            Fault::Zombie => zombie(self),
            Fault::Nftables => nftables::make(self),
        }?;
        lock(&self.truth).faults.push(name.into());
        self.save_truth()
    }

    /// Puts the time of a sandbox's lease and CNI cache entries ten minutes back: programs take young ones for an ADD that still runs.
    ///
    /// # Errors
    ///
    /// [`LabError::File`].
    pub fn age_files(&self, pod: &Pod) -> Result<(), LabError> {
        let then = SystemTime::now() - AGE;
        let cni = self.path("var-lib-cni");
        for path in [
            cni.join("networks/podnet").join(pod.ip.to_string()),
            cni.join(format!("results/podnet-{}-eth0", pod.sandbox)),
            cni.join(format!("results/cni-loopback-{}-lo", pod.sandbox)),
        ] {
            let file = match std::fs::OpenOptions::new().write(true).open(&path) {
                Ok(file) => file,
                // Not every way to die leaves each of them.
                Err(absent) if absent.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => {
                    return Err(LabError::File {
                        act: "open",
                        path,
                        source,
                    });
                }
            };
            file.set_modified(then)
                .map_err(LabError::file("set the time of", &path))?;
        }
        Ok(())
    }

    /// Writes down what must be found.
    fn expect(&self, fault: Fault, rule: &str, verdict: &str, action: &str, contains: &[&str]) {
        lock(&self.truth).expected.push(Expected {
            fault: fault.name().into(),
            rule: rule.into(),
            verdict: verdict.into(),
            action: action.into(),
            contains: contains.iter().map(|&word| word.to_owned()).collect(),
        });
    }

    /// Writes down what must never be touched.
    fn keep(&self, fault: Fault, why: &str, contains: &[&str]) {
        lock(&self.truth).alive.push(Alive {
            fault: fault.name().into(),
            why: why.into(),
            contains: contains.iter().map(|&word| word.to_owned()).collect(),
        });
    }

    /// Writes down that a port of the node leads to this Pod, or should.
    fn leads(&self, pod: &Pod, port: u16, protocol: Protocol, path: TargetPath, works: bool) {
        lock(&self.truth).targets.push(Target {
            pod: pod.full_name(),
            uid: pod.uid.clone(),
            ip: NODE_IP.parse().unwrap_or(Ipv4Addr::UNSPECIFIED),
            port,
            protocol,
            path,
            works,
        });
    }

    /// Writes down that what leads to this Pod by `port` is broken until a repair.
    fn breaks(&self, pod: &Pod, port: u16) {
        let mut truth = lock(&self.truth);
        for target in truth
            .targets
            .iter_mut()
            .filter(|target| target.uid == pod.uid && target.port == port)
        {
            target.works = false;
        }
    }
}

/// A Pod gone from the API, whose sandbox is ready and answers; and one that is in both.
fn zombie(node: &LabNode) -> Result<(), LabError> {
    let pods = node.pods([
        PodSpec::new("batch", "worker-0").tcp(9000),
        PodSpec::new("batch", "worker-1").tcp(9000),
    ])?;
    let [gone, lives] = &pods[..] else {
        return Err(LabError::State("two Pods were asked for".into()));
    };
    node.forget_pod(gone)?;
    node.expect(
        Fault::Zombie,
        "zombie-sandbox",
        "conflict",
        "report",
        &[&gone.sandbox],
    );
    node.keep(
        Fault::Zombie,
        "gone from the API, but it still runs: its lease is in use",
        &[&gone.ip.to_string()],
    );
    node.keep(Fault::Zombie, "its Pod is in the API", &[&lives.sandbox]);
    Ok(())
}

/// Takes sandboxes away from the runtime's knowledge (`platform.md`, way 4): their tasks end, their containers are deleted from containerd's
/// store behind the CRI's back, and the runtime forgets the rest in a crash. CNI DEL never runs: lease, cache, veth, namespace and rules stay.
fn lose(node: &LabNode, pods: &[&Pod]) -> Result<(), LabError> {
    for pod in pods {
        node.silence_pod(pod);
    }
    let ids: Vec<&str> = pods.iter().map(|pod| pod.sandbox.as_str()).collect();
    node.forget_sandboxes(&ids)?;
    node.crash_runtime();
    node.start_runtime()?;
    let listed = node.tokio.block_on(node.cri()?.list_pod_sandboxes(None))?;
    for pod in pods {
        if listed.iter().any(|sandbox| sandbox.id == pod.sandbox) {
            return Err(LabError::State(format!(
                "the runtime still lists sandbox {}",
                pod.sandbox
            )));
        }
        node.age_files(pod)?;
        node.forget_pod(pod)?;
        node.pod_becomes(&pod.uid, PodState::Lost)?;
    }
    Ok(())
}

/// What every sandbox that was lost leaves, whatever else it had: its lease and its masquerade rules.
fn expect_leftovers(node: &LabNode, fault: Fault, pod: &Pod) {
    let lease = format!("/var/lib/cni/networks/podnet/{}", pod.ip);
    node.expect(
        fault,
        "ipam-lease-dead-sandbox",
        "stale",
        "repair",
        &[&lease, &pod.sandbox],
    );
    node.expect(
        fault,
        "cni-rule-dead-sandbox",
        "stale",
        "repair",
        &["-A POSTROUTING", &pod.sandbox],
    );
}
