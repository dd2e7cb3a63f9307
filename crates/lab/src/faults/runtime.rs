//! What a runtime that dies, forgets or is slow leaves (`platform.md`, ways 1 to 3).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sexton_linux::cri::proto::PodSandboxState;
use tokio::task::JoinHandle;

use crate::error::LabError;
use crate::node::{LabNode, RuntimeKind};
use crate::pods::{Made, Pod, PodSpec};
use crate::truth::PodState;

/// How long to wait for what a tool has set going.
const PATIENCE: Duration = Duration::from_secs(10);

/// A CNI ADD that is running: the API has the Pod without an address, the lease and portmap's rules are there, and no CRI list names the sandbox.
#[derive(Debug)]
pub struct AddInFlight {
    /// UID of the Pod.
    pub uid: String,
    /// Container ID of its sandbox.
    pub sandbox: String,
    /// File of the lease.
    pub lease: PathBuf,
    spec: PodSpec,
    task: JoinHandle<Result<Made, LabError>>,
}

impl LabNode {
    /// Waits until something has become true.
    pub(crate) fn wait_for(
        &self,
        what: &'static str,
        mut is: impl FnMut() -> Result<bool, LabError>,
    ) -> Result<(), LabError> {
        let end = Instant::now() + PATIENCE;
        while !is()? {
            if Instant::now() >= end {
                return Err(LabError::NotReady {
                    what,
                    log: self.log_tail("containerd.log"),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Starts a Pod whose ADD takes `seconds` in its last plugin, and returns while it runs. Other Pods can be made as usual.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn begin_slow_add(&self, spec: PodSpec, seconds: u32) -> Result<AddInFlight, LabError> {
        let started = self.path("cni-bin/slow.started");
        let _ = std::fs::remove_file(&started);
        self.write_conflist(Some(seconds))?;
        let (uid, task) = self.begin_pod(&spec)?;
        let begun = self.wait_for("the slow plugin", || Ok(started.exists()));
        // The runtime has the list that it began with; the next Pod gets the usual one.
        self.write_conflist(None)?;
        begun?;
        let sandbox = std::fs::read_to_string(&started)
            .map_err(LabError::file("read", &started))?
            .trim()
            .to_owned();
        let leases = self.path("var-lib-cni/networks/podnet");
        let mut files = std::fs::read_dir(&leases)
            .map_err(LabError::file("list", &leases))?
            .flatten();
        let lease = files
            .find(|file| std::fs::read_to_string(file.path()).is_ok_and(|text| text.starts_with(&sandbox)))
            .ok_or_else(|| LabError::State(format!("no lease names the sandbox {sandbox}")))?;
        Ok(AddInFlight {
            uid,
            sandbox,
            lease: lease.path(),
            spec,
            task,
        })
    }

    /// Waits for the end of a slow ADD.
    ///
    /// # Errors
    ///
    /// [`LabError`] when it failed.
    pub fn finish_slow_add(&self, add: AddInFlight) -> Result<Pod, LabError> {
        self.finish_pod(add.spec, add.uid, add.task)
    }

    /// Way 1: kills the runtime in the middle of an ADD and starts it again. It lists the sandbox as NotReady; namespace, veth, lease and
    /// rules are there; the Pod still waits for its address.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn kill_runtime_in_add(&self, spec: PodSpec) -> Result<AddInFlight, LabError> {
        if self.options.runtime == RuntimeKind::Lab {
            let why = "the lab's own runtime writes nothing down in an ADD; this way needs containerd";
            return Err(LabError::State(why.into()));
        }
        let add = self.begin_slow_add(spec, 20)?;
        self.crash_runtime();
        self.start_runtime()?;
        Ok(add)
    }

    /// Way 2: kills the first process of a Pod's sandbox. Returns when the runtime lists it as NotReady.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn kill_sandbox(&self, pod: &Pod) -> Result<(), LabError> {
        self.silence_pod(pod);
        self.run(["kill", "-9", &pod.pid.to_string()])?;
        let cri = self.cri()?;
        self.wait_for("the sandbox's end", || {
            let answer = self.tokio.block_on(cri.pod_sandbox_status(&pod.sandbox, false))?;
            Ok(answer
                .status
                .is_some_and(|status| status.state() == PodSandboxState::NotReady))
        })?;
        self.pod_becomes(&pod.uid, PodState::NotReady)
    }

    /// Way 3: the runtime loses its store. It lists nothing; every Pod runs on and answers.
    ///
    /// # Errors
    ///
    /// [`LabError`].
    pub fn lose_store(&self) -> Result<(), LabError> {
        self.crash_runtime();
        self.delete_store()?;
        self.start_runtime()?;
        self.import_image()?;
        let living: Vec<String> = {
            let truth = self.truth();
            let living = truth.pods.into_iter().filter(|pod| pod.state == PodState::Living);
            living.map(|pod| pod.uid).collect()
        };
        living
            .iter()
            .try_for_each(|uid| self.pod_becomes(uid, PodState::Unlisted))
    }
}
