//! A repair that is killed: whenever it happens, the next one converges, with no memory but what the node itself has (law 16).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

mod live;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use live::{SEXTON, audit, changes, findings, node_with, repair, snapshot, targets_work};
use serde_json::Value;
use sexton_lab::snapshot::Snapshot;
use sexton_lab::{Fault, LabNode, Variant};

/// When a repair is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// As soon as the journal has so many lines.
    Lines(usize),
    /// So long after the first line of the journal.
    After(Duration),
    /// So long after its start, wherever it is then.
    Start(Duration),
}

/// The tables of nftables that a repair changes by rules and mappings.
const NFT_TABLES: [&str; 3] = ["ip cni_hostport", "inet cni_plugins_masquerade", "inet sexton"];

/// What a node had before the first repair, to be put back for the next one with the real tools.
struct Before {
    rules: String,
    save: [&'static str; 3],
    entries: Vec<String>,
    tombstones: String,
    nft: String,
    leases: Vec<(PathBuf, Vec<u8>, SystemTime)>,
}

impl Before {
    fn of(node: &LabNode, variant: Variant) -> Self {
        let save = match variant {
            Variant::Nft => ["iptables-nft-save", "-t", "nat"],
            Variant::Legacy => ["iptables-legacy-save", "-t", "nat"],
        };
        let entries = node.run(["conntrack", "-L", "-p", "udp"]).unwrap().stdout;
        let dir = node.path("var-lib-cni/networks/podnet");
        let leases = std::fs::read_dir(dir)
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("10."))
            .map(|entry| {
                let path = entry.path();
                let time = entry.metadata().unwrap().modified().unwrap();
                (path.clone(), std::fs::read(path).unwrap(), time)
            })
            .collect();
        Self {
            rules: node.run(save).unwrap().stdout,
            save,
            entries: entries.lines().map(str::to_owned).collect(),
            tombstones: node
                .run(["nft", "list", "set", "netdev", "sexton", "tombstones"])
                .unwrap()
                .stdout,
            nft: NFT_TABLES
                .iter()
                .map(|table| {
                    let words = ["nft", "list", "table"].into_iter().chain(table.split(' '));
                    let listed = node.run(words).unwrap().stdout;
                    format!("delete table {table}\n{listed}")
                })
                .collect(),
            leases,
        }
    }

    fn put_back(&self, node: &LabNode) {
        let restore = self.save[0].replace("-save", "-restore");
        node.run_stdin([restore.as_str(), "-w", "10"], &self.rules)
            .unwrap();
        node.run_stdin(["nft", "-f", "-"], &self.nft).unwrap();
        let set = self.tombstones.replace("expires", "# expires");
        // Without the time that was left: a new element gets its whole hour.
        let elements: Vec<String> = self
            .tombstones
            .split("elements = {")
            .nth(1)
            .unwrap_or_else(|| panic!("{set}"))
            .split('}')
            .next()
            .unwrap()
            .split(',')
            .map(|element| {
                let words: Vec<&str> = element.split_whitespace().collect();
                let (ip, comment) = (words[0], words.last().unwrap());
                format!("add element netdev sexton tombstones {{ {ip} timeout 1h comment {comment} }}\n")
            })
            .collect();
        node.run_stdin(
            ["nft", "-f", "-"],
            "flush set netdev sexton tombstones\n".to_owned() + &elements.concat(),
        )
        .unwrap();
        let there = node.run(["conntrack", "-L", "-p", "udp"]).unwrap().stdout;
        let ports = |line: &str| {
            line.split_whitespace()
                .filter(|word| word.starts_with("sport=") || word.starts_with("dport="))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        for line in &self.entries {
            let all = |key: &str| -> Vec<String> {
                let start = format!("{key}=");
                line.split_whitespace()
                    .filter_map(|word| word.strip_prefix(&start).map(str::to_owned))
                    .collect()
            };
            let (src, dst, sport, dport) = (all("src"), all("dst"), all("sport"), all("dport"));
            if there.lines().any(|other| ports(other) == ports(line)) {
                continue;
            }
            node.run([
                "conntrack",
                "-I",
                "-p",
                "udp",
                "-t",
                "600",
                "-s",
                &src[0],
                "-d",
                &dst[0],
                "--sport",
                &sport[0],
                "--dport",
                &dport[0],
                "-r",
                &src[1],
                "-q",
                &dst[1],
                "--reply-port-src",
                &sport[1],
                "--reply-port-dst",
                &dport[1],
            ])
            .unwrap();
        }
        // One lease is put away ten times at most.
        let quarantine = node.path("var-lib-cni/.sexton-quarantine");
        if quarantine.exists() {
            std::fs::remove_dir_all(quarantine).unwrap();
        }
        for (path, content, time) in &self.leases {
            if !path.exists() {
                std::fs::write(path, content).unwrap();
                let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                file.set_modified(*time).unwrap();
            }
        }
    }
}

/// The journals that are there, newest last.
fn journals(node: &LabNode) -> Vec<PathBuf> {
    let dir = live::state_dir(node).join("journal");
    let mut all: Vec<PathBuf> = std::fs::read_dir(dir)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    all.sort();
    all
}

/// Starts a repair and kills it. The lines that its journal has then.
fn killed(node: &LabNode, moment: Moment) -> Vec<String> {
    let known = journals(node);
    let dir = live::state_dir(node).display().to_string();
    let argv = [SEXTON, "repair", "--tier", "1", "--yes", "--state-dir", &dir];
    let mut child = node.spawn(argv, Stdio::null(), Stdio::null()).unwrap();
    let start = Instant::now();
    let mut first_line = None;
    let new = || journals(node).into_iter().find(|path| !known.contains(path));
    let read = |path: &Option<PathBuf>| {
        path.as_ref()
            .and_then(|path| std::fs::read_to_string(path).ok())
            .unwrap_or_default()
    };
    let mut path = None;
    loop {
        if path.is_none() {
            path = new();
        }
        let lines = read(&path).lines().count();
        if lines > 0 && first_line.is_none() {
            first_line = Some(Instant::now());
        }
        let now = match moment {
            Moment::Lines(wanted) => lines >= wanted,
            Moment::After(pause) => first_line.is_some_and(|at| at.elapsed() >= pause),
            Moment::Start(pause) => start.elapsed() >= pause,
        };
        if now || child.try_wait().unwrap().is_some() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{moment:?} never came");
        std::thread::sleep(Duration::from_micros(300));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The program is the child of what was killed, and dies with it; it may hold the node's locks until then.
    let gone = Instant::now();
    while node.run(["pgrep", "-x", "sexton"]).is_ok() {
        assert!(gone.elapsed() < Duration::from_secs(10), "it lives on");
    }
    read(&path.or_else(new)).lines().map(str::to_owned).collect()
}

/// Kills a repair at each of these moments, and lets one more converge each time.
fn kill_at(node: &LabNode, before: &Before, clean: &Snapshot, moments: &[Moment]) {
    for moment in moments {
        let lines = killed(node, *moment);
        for (index, line) in lines.iter().enumerate() {
            let parsed: Result<Value, _> = serde_json::from_str(line);
            // Only what was being written may be cut off.
            assert!(parsed.is_ok() || index + 1 == lines.len(), "{moment:?}: {line}");
        }
        let ended = lines.iter().any(|line| line.contains("\"record\":\"end\""));
        let next = repair(node, &["--tier", "1", "--yes", "-o", "json"]);
        assert_eq!(next.code, 0, "{moment:?} after {} lines: {next:?}", lines.len());
        let left = findings(&audit(node, &[]));
        assert_eq!(left.len(), 1, "{moment:?}: {left:#?}");
        assert_eq!(left[0].rule, "zombie-sandbox");
        targets_work(node, |_| true);
        // The kernel is as after a repair that nobody killed.
        let seen = changes(clean, &snapshot(node));
        let seen: Vec<&String> = seen
            .iter()
            .filter(|line| !line.contains(".sexton-quarantine"))
            .collect();
        // What was put back stands in another order of tables.
        let kernel: Vec<_> = seen
            .iter()
            .filter(|line| !line.contains("conntrack -L") && !line.starts_with("~ nft -s list ruleset"))
            .collect();
        assert!(kernel.is_empty(), "{moment:?} (ended: {ended}): {kernel:#?}");
        before.put_back(node);
    }
}

fn killed_everywhere(name: &str, variant: Variant, moments: &[Moment]) {
    let node = node_with(name, variant);
    for fault in Fault::ALL {
        node.fault(fault)
            .unwrap_or_else(|error| panic!("{fault:?}: {}", live::chain(&error)));
    }
    targets_work(&node, |target| target.works);
    let before = Before::of(&node, variant);
    // Restoring a whole table makes chains that it did not have: let them be there from the beginning.
    before.put_back(&node);
    repair(&node, &["--tier", "1", "--yes"]).exits(0);
    let clean = snapshot(&node);
    before.put_back(&node);
    let again = findings(&audit(&node, &[]));
    assert_eq!(
        again.len(),
        node.truth().expected.len(),
        "all of it is back: {again:#?}"
    );
    kill_at(&node, &before, &clean, moments);
    node.down().unwrap();
}

/// Nine steps have an intent and a result each, between a begin and an end: twenty lines.
fn after_lines(from: usize, to: usize) -> Vec<Moment> {
    (from..=to).map(Moment::Lines).collect()
}

fn side_by_side(name: &str, variant: Variant, parts: [Vec<Moment>; 2]) {
    std::thread::scope(|scope| {
        for moments in &parts {
            scope.spawn(move || killed_everywhere(name, variant, moments));
        }
    });
}

#[test]
fn a_repair_that_is_killed_after_any_line_of_its_journal_converges() {
    needs_lab!();
    side_by_side("lines", Variant::Nft, [after_lines(1, 10), after_lines(11, 20)]);
}

#[test]
fn a_repair_that_is_killed_at_any_time_converges() {
    needs_lab!();
    // Spread over the steps, and different in every run.
    let seed = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    let random = |n: u32| Duration::from_micros(u64::from((seed / (n + 1)) % 400_000));
    let after = (0..8).map(|n| Moment::After(random(n)));
    let start = [500, 2_100].map(|ms| Moment::Start(Duration::from_millis(ms)));
    let all: Vec<Moment> = after.chain(start).collect();
    let (first, second) = all.split_at(5);
    side_by_side("times", Variant::Legacy, [first.to_vec(), second.to_vec()]);
}
