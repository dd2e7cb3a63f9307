//! Network namespaces other than the node's own: who is inside, where they are mounted, what addresses they hold.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sexton_core::model::{Completeness, Facts, NetNs};

use crate::netlink;
use crate::procs::{Processes, inode};
use crate::source::{Watch, chain};

/// How many processes of a namespace are named.
const NAMED: usize = 16;

/// Reads all namespaces. Runs on a thread of its own, which ends afterwards: it enters one namespace after the other
/// and nothing else may run in them.
pub(crate) fn read(proc: &Path, processes: &Processes) -> Facts<Vec<NetNs>> {
    let watch = Watch::start("namespaces");
    if let Some(why) = &processes.failed {
        return watch.unavailable(why.clone());
    }
    let Some(own) = processes.own_netns else {
        return watch.unavailable(format!("{}/thread-self/ns/net cannot be read", proc.display()));
    };
    let mut found: BTreeMap<u64, NetNs> = BTreeMap::new();
    for process in &processes.all {
        if let Some(inode) = process.netns.filter(|inode| *inode != own) {
            let namespace = found.entry(inode).or_insert_with(|| empty(inode));
            if namespace.pids.len() < NAMED {
                namespace.pids.push(process.pid);
                namespace.commands.push(process.command.clone());
            }
        }
    }
    let mut problems = Vec::new();
    if processes.hidden > 0 {
        problems.push(match processes.hidden {
            1 => "1 process hides its namespace".to_owned(),
            n => format!("{n} processes hide their namespace"),
        });
    }
    match std::fs::read_to_string(proc.join("thread-self/mountinfo")) {
        Ok(text) => {
            for (inode, path) in mounted(&text).filter(|(inode, _)| *inode != own) {
                let namespace = found.entry(inode).or_insert_with(|| empty(inode));
                if !namespace.paths.contains(&path) {
                    namespace.paths.push(path);
                }
            }
        }
        Err(error) => problems.push(format!("{}/thread-self/mountinfo: {error}", proc.display())),
    }
    let mut found: Vec<NetNs> = found.into_values().collect();
    let (mut closed, mut first) = (0, None);
    let entered = netlink::block_on("namespaces", async {
        for namespace in &mut found {
            if let Err(why) = look_inside(proc, namespace).await {
                closed += 1;
                first.get_or_insert(why);
            }
        }
        Ok(())
    });
    if let Err(error) = entered {
        problems.push(chain(&error));
    }
    if let Some(why) = first {
        problems.push(format!(
            "{closed} of {} cannot be entered, the first: {why}",
            found.len()
        ));
    }
    let completeness = if problems.is_empty() {
        Completeness::Complete
    } else {
        Completeness::Partial(problems.join("; "))
    };
    let items = found.len();
    watch.facts(found, completeness, items)
}

fn empty(inode: u64) -> NetNs {
    NetNs {
        inode,
        paths: Vec::new(),
        pids: Vec::new(),
        commands: Vec::new(),
        ips: None,
        macs: Vec::new(),
    }
}

/// Namespaces that are mounted, by inode and place (`proc_pid_mountinfo(5)`): the fourth field is `net:[INODE]`, the
/// fifth the place, and the file system's type follows a lone dash.
fn mounted(mountinfo: &str) -> impl Iterator<Item = (u64, String)> {
    mountinfo.lines().filter_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        if rest.split(' ').next() != Some("nsfs") {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let inode = fields.next()?.strip_prefix("net:[")?.strip_suffix(']')?;
        Some((inode.parse().ok()?, unescape(fields.next()?)))
    })
}

/// Spaces and the like are written as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let Some((&first, rest)) = bytes.split_first() {
        if first == b'\\'
            && let Some(digits) = rest.get(..3)
            && let Ok(digits) = std::str::from_utf8(digits)
            && let Ok(byte) = u8::from_str_radix(digits, 8)
        {
            out.push(byte);
            bytes = rest.get(3..).unwrap_or_default();
        } else {
            out.push(first);
            bytes = rest;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Fills in what a namespace holds.
async fn look_inside(proc: &Path, namespace: &mut NetNs) -> Result<(), String> {
    let ways = namespace.paths.iter().map(PathBuf::from).chain(
        namespace
            .pids
            .iter()
            .map(|pid| proc.join(pid.to_string()).join("ns/net")),
    );
    let mut why = "it has gone".to_owned();
    for way in ways {
        let file = match File::open(&way) {
            Ok(file) => file,
            Err(error) => {
                why = format!("{}: {error}", way.display());
                continue;
            }
        };
        // A path is reused; the inode says whether this is still the one.
        if inode(&way).ok() != Some(namespace.inode) {
            continue;
        }
        if let Err(error) = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)) {
            why = format!("{}: {error}", way.display());
            continue;
        }
        let (macs, ips) = netlink::read_interior()
            .await
            .map_err(|error| format!("{}: {}", way.display(), chain(&error)))?;
        namespace.macs = macs;
        namespace.ips = Some(ips.into_iter().filter(is_of_interest).collect());
        return Ok(());
    }
    Err(why)
}

/// Loopback and link-local addresses are in every namespace and say nothing.
fn is_of_interest(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_namespaces_are_found_in_mountinfo() {
        let text = "\
            24 1 0:22 / /proc rw,nosuid - proc proc rw\n\
            90 30 0:4 net:[4026532281] /run/netns/cni-1b3c rw shared:9 - nsfs nsfs rw\n\
            91 30 0:4 net:[4026532399] /run/with\\040space rw - nsfs nsfs rw\n\
            92 30 0:4 mnt:[4026532400] /run/mnt rw - nsfs nsfs rw\n\
            93 30 0:4 net:[x] /run/odd rw - nsfs nsfs rw\n";
        assert_eq!(
            mounted(text).collect::<Vec<_>>(),
            [
                (4_026_532_281, "/run/netns/cni-1b3c".to_owned()),
                (4_026_532_399, "/run/with space".to_owned())
            ]
        );
    }
}
