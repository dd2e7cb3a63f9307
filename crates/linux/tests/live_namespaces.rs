//! Namespaces, found by their mounts and by their processes, against what `ip netns` made.

#![allow(clippy::unwrap_used)] // Helpers of tests are not in `#[test]` functions.

mod common;

use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, Stdio};

use common::{in_own_netns, observe, run, unsupported};
use sexton_linux::Kinds;

/// A named namespace that goes when the test does.
struct Named(String);

impl Named {
    fn new(word: &str) -> Self {
        let name = format!("sexton-{word}-{}", std::process::id());
        run(&format!("ip netns add {name} && ip -n {name} link set lo up"));
        Self(name)
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }

    fn inode(&self) -> u64 {
        std::fs::metadata(self.path()).unwrap().ino()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = common::try_run(&format!("ip netns del {}", self.0));
    }
}

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn mounted_and_lived_in_namespaces_are_told_apart() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        let (lived, empty) = (Named::new("lived"), Named::new("empty"));
        for (named, n) in [(&lived, 7), (&empty, 8)] {
            run(&format!(
                "ip link add v{n} type veth peer name eth0 address 02:00:00:00:00:0{n} netns {}",
                named.0
            ));
            run(&format!("ip -n {} addr add 10.10.1.{n}/24 dev eth0", named.0));
            run(&format!(
                "ip -n {} addr add fd00:10::{n}/64 dev eth0 nodad",
                named.0
            ));
            run(&format!("ip -n {} link set eth0 up", named.0));
        }
        // A process in one of them, and one in a namespace that is mounted nowhere.
        let sleeper = Command::new("nsenter")
            .args([&format!("--net={}", lived.path()), "sleep", "600"])
            .spawn()
            .map(Sleeper)
            .unwrap();
        let hermit = Command::new("unshare")
            .args(["--net", "sleep", "600"])
            .stdin(Stdio::null())
            .spawn()
            .map(Sleeper)
            .unwrap();
        let own = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        let of = |child: &Sleeper| {
            let path = format!("/proc/{}/ns/net", child.0.id());
            std::fs::metadata(path).map_or(own, |m| m.ino())
        };
        let first = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
        for _ in 0..200 {
            if of(&sleeper) == lived.inode() && ![own, first].contains(&of(&hermit)) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // They are still `nsenter` and `unshare` for a moment after they entered.
        std::thread::sleep(std::time::Duration::from_millis(50));

        let state = observe(Kinds::NAMESPACES);
        // A process with more rights than root has here cannot be looked at, and that is said.
        match state.namespaces.completeness.why() {
            None => {}
            Some(why) => assert!(
                why.ends_with("processes hide their namespace")
                    || why.ends_with("process hides its namespace"),
                "{why}"
            ),
        }
        let found = &state.namespaces.value;
        assert!(found.iter().all(|ns| ns.inode != own));
        let get = |inode: u64| found.iter().find(|ns| ns.inode == inode).unwrap();

        let seen = get(lived.inode());
        assert_eq!(seen.paths, [lived.path()]);
        assert_eq!(
            (seen.pids.clone(), seen.commands.clone()),
            (vec![sleeper.0.id()], vec!["sleep".to_owned()])
        );
        assert_eq!(
            seen.ips.clone().unwrap(),
            ["10.10.1.7", "fd00:10::7"].map(|ip| ip.parse::<std::net::IpAddr>().unwrap())
        );
        assert_eq!(seen.macs, ["02:00:00:00:00:07".parse().unwrap()]);

        let seen = get(empty.inode());
        assert!(!seen.has_process());
        assert_eq!(seen.ips.clone().unwrap().len(), 2);

        let seen = get(of(&hermit));
        assert!(seen.paths.is_empty() && seen.has_process());
        assert!(seen.ips.as_ref().unwrap().is_empty());
        // This thread is where it was.
        assert_eq!(std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino(), own);
    });
}
