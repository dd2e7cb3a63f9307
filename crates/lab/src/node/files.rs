//! The files of a node: where a real one has them, with what a real one has in them.

use super::image::IMAGE;
use super::{API_PORT, LabOptions, Place};

/// containerd's configuration. `restrict_oom_score_adj` and `disable_apparmor` because containers and CI machines often lack the rights
/// for these; the snapshotters that need what a test machine does not have are left out.
pub(crate) fn containerd_config(place: &Place) -> String {
    let bin = place.path("cni-bin");
    format!(
        r#"version = 2
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.tracing.processor.v1.otlp"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{}"
    conf_dir = "/etc/cni/net.d"
"#,
        bin.display()
    )
}

/// The Pods' network: a bridge with masquerading, host-local and portmap, all in their default places. With `slow` a plugin that takes
/// its time comes last.
pub(crate) fn conflist(slow: bool) -> String {
    let mut plugins = vec![
        serde_json::json!({
            "type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.10.1.0/24"}]]},
        }),
        serde_json::json!({"type": "portmap", "capabilities": {"portMappings": true}}),
    ];
    if slow {
        plugins.push(serde_json::json!({"type": "slow"}));
    }
    serde_json::json!({"cniVersion": "1.0.0", "name": "podnet", "plugins": plugins}).to_string()
}

/// A chained plugin that hands its `prevResult` on, on ADD only after the seconds that the file beside it says.
pub(crate) const SLOW_PLUGIN: &str = r#"#!/bin/sh
in=$(cat)
if [ "$CNI_COMMAND" = ADD ]; then
  echo "$CNI_CONTAINERID" > "$0.started.new" && mv "$0.started.new" "$0.started"
  sleep "$(cat "$0.seconds" 2>/dev/null || echo 5)"
  printf %s "$in" | jq -c '.prevResult + {cniVersion}'
fi
exit 0
"#;

/// The kubelet's configuration, as far as a program on the node reads it.
pub(crate) fn kubelet_config() -> &'static str {
    "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
podCIDR: 10.10.1.0/24
runtimeRequestTimeout: 2m0s
staticPodPath: /etc/kubernetes/manifests
"
}

/// The kubeconfig that leads to the stand-in of the API.
pub(crate) fn kubeconfig(options: &LabOptions) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster:
    server: http://127.0.0.1:{API_PORT}
users:
- name: lab
  user:
    token: {node}
contexts:
- name: lab
  context:
    cluster: lab
    user: lab
current-context: lab
",
        node = options.node_name
    )
}

/// What makes the namespaces a node: its own `/proc`, `/sys` and `/run`, `/etc` and `/var/lib` as the machine's with a private layer above
/// them, and the lab's directories where they belong. It ends as the first process of the node, which takes in orphans.
pub(crate) fn setup_script(place: &Place, options: &LabOptions) -> String {
    let dir = place.dir().display();
    let node = &options.node_name;
    format!(
        r#"set -e
mount -t proc proc /proc
# Namespace files of others (`ip netns`) would be kept alive by this copy of the mounts.
for m in $(sed -n 's/^[^ ]* \([^ ]*\) nsfs .*/\1/p' /proc/mounts); do umount -l "$m" || :; done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/containerd /run/lock /run/.lab/cgroup
mount --bind /run/netns /run/netns
mount --make-shared /run/netns
# A new /sys shows this namespace's devices; the cgroups come back into it.
mount --rbind /sys/fs/cgroup /run/.lab/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/.lab/cgroup /sys/fs/cgroup
umount -l /run/.lab/cgroup
for d in etc var/lib; do
  n=$(echo $d | tr / -)
  mkdir -p /run/.lab/$n-upper /run/.lab/$n-work
  mount -t overlay -o lowerdir=/$d,upperdir=/run/.lab/$n-upper,workdir=/run/.lab/$n-work overlay /$d
done
# What is there already belongs to the machine's root, which an unprivileged user is not in here either.
for d in cni containerd kubernetes; do
  mkdir -p /etc/$d
  mount -t tmpfs -o mode=755 tmpfs /etc/$d
done
mkdir -p /etc/cni/net.d /etc/kubernetes/manifests /var/lib/cni /var/lib/kubelet /var/lib/containerd
mount --bind {dir}/net.d /etc/cni/net.d
mount --bind {dir}/var-lib-cni /var/lib/cni
mount --bind {dir}/containerd /var/lib/containerd
mount --bind {dir}/kubelet /var/lib/kubelet
cp {dir}/containerd.toml /etc/containerd/config.toml
cp {dir}/kubeconfig /etc/kubernetes/kubelet.conf
hostname {node}
for f in machine-id hostname; do
  [ -e /etc/$f ] || : > /etc/$f
  mount --bind {dir}/$f /etc/$f
done
echo ready
exec >/dev/null 2>&1
while :; do sleep 2147483 & wait; done
"#
    )
}
