//! What a full audit costs beside the tools that a person would use, in one run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use sexton_linux::{ApiAccess, Kinds, LinuxNode, LinuxOptions, Tracked};

use super::{cri, kernel, objects};
use crate::api::Api;
use crate::cmd::CommandError;
use crate::error::LabError;
use crate::node::{LabOptions, Place, Variant, write};

/// The node's name.
const NODE: &str = "bench";

/// What is measured.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// The program.
    pub sexton: PathBuf,
    /// A directory for files, empty or absent.
    pub dir: PathBuf,
    /// DNATs and entries of connection tracking, each as many; ascending.
    pub sizes: Vec<usize>,
    /// How often each is measured.
    pub rounds: usize,
}

/// All rounds of one size.
#[derive(Debug)]
pub struct Rounds {
    /// DNATs and entries of connection tracking.
    pub size: usize,
    /// Rules of iptables.
    pub rules: usize,
    /// Links with a route and a neighbour each.
    pub links: usize,
    /// The machine's load average over a minute, at the end.
    pub load: f64,
    /// The audits.
    pub audits: Vec<Cost>,
    /// The kernel part read on its own, with nothing beside it: milliseconds.
    pub alone: Vec<f64>,
    /// The parts of each audit: milliseconds by source.
    pub sources: Vec<BTreeMap<String, f64>>,
    /// The other tools, one after the other, taken together.
    pub tools: Vec<Cost>,
    /// Each of them.
    pub by_tool: BTreeMap<String, Vec<Cost>>,
    /// Objects that the audit counted, by kind.
    pub counted: Value,
    /// What the audit found, which should be nothing.
    pub found: usize,
}

/// What one run of a program cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// From start to end, in milliseconds.
    pub wall_ms: f64,
    /// Processor time, in milliseconds, to the hundredth of a second that time(1) tells.
    pub cpu_ms: f64,
    /// Peak resident memory, in KiB.
    pub rss_kib: u64,
}

/// The tools of a person, each with its arguments.
const TOOLS: [(&str, &[&str]); 7] = [
    ("nft list ruleset", &["nft", "list", "ruleset"]),
    ("iptables-save", &["iptables-save", "-c"]),
    ("ip6tables-save", &["ip6tables-save", "-c"]),
    ("conntrack -L", &["conntrack", "-L"]),
    ("ip addr", &["ip", "addr"]),
    ("ip route", &["ip", "route", "show", "table", "all"]),
    ("ip neigh", &["ip", "neigh"]),
];

/// Builds the node and measures; `each` gets the rounds of one size as soon as they are done, first without rules of iptables, then with
/// a tenth as many as there are DNATs.
///
/// # Errors
///
/// [`LabError`] when the node cannot be made or a program does not run.
pub fn audit(options: &AuditOptions, mut each: impl FnMut(&Rounds)) -> Result<(), LabError> {
    let place = Place::new(&options.dir)?;
    let dir = place.dir().to_owned();
    std::fs::create_dir_all(dir.join("ns")).map_err(LabError::file("make", &dir))?;
    let netns = place.netns();
    std::os::unix::fs::symlink(format!("/proc/{}/ns/net", std::process::id()), &netns)
        .map_err(LabError::file("make", &netns))?;
    kernel::node()?;
    let mut pods = kernel::pods()?;
    objects::cni_files(&dir.join("cni"))?;
    let socket = dir.join("cri.sock");
    let _runtime = cri::start(&socket, pods.iter().map(std::process::Child::id).collect())?;
    let lab = LabOptions {
        node_name: NODE.to_owned(),
        ..LabOptions::default()
    };
    write(&place.kubeconfig(), crate::node::kubeconfig(&lab))?;
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|source| LabError::Socket {
            what: "the API's event loop".into(),
            source,
        })?;
    let api = Api::start(&place, &lab, machine.trim(), tokio.handle())?;
    let bench = Bench {
        dir: &dir,
        options,
        socket: &socket,
    };
    let mut links = 0;
    for &size in &options.sizes {
        // More links would measure the making of links.
        let wanted = (size / 10).clamp(100, 5000);
        kernel::links(links..wanted.max(links))?;
        links = wanted.max(links);
        kernel::dnat_map(size)?;
        kernel::conntrack(size, &dir.join("conntrack.load"))?;
        for rules in [0, size / 10] {
            objects::put(&api, NODE, rules);
            kernel::npl_rules(Variant::Nft, rules)?;
            if rules == 0 {
                kernel::no_npl_rules()?;
            }
            each(&bench.rounds(size, rules, links)?);
        }
        kernel::no_npl_rules()?;
    }
    api.stop();
    for pod in &mut pods {
        let _ = pod.kill();
        let _ = pod.wait();
    }
    Ok(())
}

struct Bench<'a> {
    dir: &'a Path,
    options: &'a AuditOptions,
    socket: &'a Path,
}

impl Bench<'_> {
    fn rounds(&self, size: usize, rules: usize, links: usize) -> Result<Rounds, LabError> {
        let mut out = Rounds {
            size,
            rules,
            links,
            load: 0.0,
            audits: Vec::new(),
            alone: Vec::new(),
            sources: Vec::new(),
            tools: Vec::new(),
            by_tool: BTreeMap::new(),
            counted: Value::Null,
            found: 0,
        };
        for round in 0..=self.options.rounds {
            let (cost, report) = self.one_audit()?;
            let mut together = Cost::default();
            let mut by_tool = Vec::new();
            for (name, argv) in TOOLS {
                let cost = self.cost(
                    &argv.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(),
                    &[0],
                )?;
                together.wall_ms += cost.wall_ms;
                together.cpu_ms += cost.cpu_ms;
                together.rss_kib = together.rss_kib.max(cost.rss_kib);
                by_tool.push((name.to_owned(), cost));
            }
            // The first round warms caches.
            if round == 0 {
                continue;
            }
            out.audits.push(cost);
            out.alone.push(kernel_alone()?);
            out.tools.push(together);
            out.sources.push(took(&report));
            for (name, cost) in by_tool {
                out.by_tool.entry(name).or_default().push(cost);
            }
            out.counted = report["summary"]["by_kind"].clone();
            out.found = report["findings"].as_array().map_or(0, Vec::len);
        }
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        out.load = load
            .split(' ')
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or_default();
        Ok(out)
    }

    fn one_audit(&self) -> Result<(Cost, Value), LabError> {
        let report = self.dir.join("report.json");
        let show = |path: &Path| path.to_string_lossy().into_owned();
        let range = format!("{}-{}", objects::FIRST_NODE_PORT, objects::LAST_NODE_PORT);
        let argv = [
            show(&self.options.sexton),
            "audit".to_owned(),
            "--output=json".to_owned(),
            format!("--out={}", show(&report)),
            format!("--kubeconfig={}", show(&self.dir.join("kubeconfig"))),
            format!("--node={NODE}"),
            format!("--cri-socket={}", show(self.socket)),
            format!("--cni-conf-dir={}", show(&self.dir.join("cni/net.d"))),
            format!("--cni-data-dir={}", show(&self.dir.join("cni"))),
            format!("--npl-range={range}"),
        ];
        let cost = self.cost(&argv, &[0, 1, 3])?;
        let text = std::fs::read_to_string(&report).map_err(LabError::file("read", &report))?;
        let value = serde_json::from_str(&text)
            .map_err(|error| LabError::State(format!("the report is no JSON: {error}")))?;
        Ok((cost, value))
    }

    fn cost(&self, argv: &[String], codes: &[i32]) -> Result<Cost, LabError> {
        cost(&self.dir.join("time.txt"), argv, codes)
    }
}

/// Reads what the kernel tells as an audit does, and nothing else.
fn kernel_alone() -> Result<f64, LabError> {
    let options = LinuxOptions {
        api: ApiAccess::Off,
        tracked: Tracked::Udp,
        ..LinuxOptions::default()
    };
    let failed = |error| LabError::State(format!("the node cannot be read: {error}"));
    let mut node = LinuxNode::open(options).map_err(failed)?;
    let begin = Instant::now();
    let state = node.observe_only(Kinds::KERNEL);
    let took = begin.elapsed().as_secs_f64() * 1e3;
    let parts = [
        state.conntrack.is_complete(),
        state.nft.is_complete(),
        state.links.is_complete(),
    ];
    if parts.contains(&false) {
        return Err(LabError::State("the kernel part was not read whole".into()));
    }
    Ok(took)
}

/// Runs a program under time(1), whose note is written to `note`; its exit code must be one of `codes`.
pub(super) fn cost(note: &Path, argv: &[String], codes: &[i32]) -> Result<Cost, LabError> {
    let start = |source| {
        LabError::Command(CommandError::Start {
            command: format!("/usr/bin/time {}", argv.join(" ")),
            source,
        })
    };
    let begin = Instant::now();
    let status = Command::new("/usr/bin/time")
        .args(["--format=%U %S %M", "--output"])
        .arg(note)
        .args(argv)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(start)?;
    let wall_ms = begin.elapsed().as_secs_f64() * 1e3;
    if !status.code().is_some_and(|code| codes.contains(&code)) {
        return Err(LabError::Command(CommandError::Failed {
            command: argv.join(" "),
            status,
            stdout: String::new(),
            stderr: String::new(),
        }));
    }
    let text = std::fs::read_to_string(note).map_err(LabError::file("read", note))?;
    // Before the last line it tells of an exit code that is not 0.
    let numbers: Vec<f64> = text
        .lines()
        .last()
        .unwrap_or_default()
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [user, system, rss] = numbers[..] else {
        return Err(LabError::State(format!("time(1) wrote {text:?}")));
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number of KiB, read as a float"
    )]
    let rss_kib = rss as u64;
    Ok(Cost {
        wall_ms,
        cpu_ms: (user + system) * 1e3,
        rss_kib,
    })
}

fn took(report: &Value) -> BTreeMap<String, f64> {
    let sources = report["sources"].as_array().into_iter().flatten();
    sources
        .filter_map(|source| Some((source["name"].as_str()?.to_owned(), source["took_ms"].as_f64()?)))
        .collect()
}

/// Sources of one audit that ask the routing side of the kernel, one after the other on a thread of theirs.
const ROUTING: [&str; 4] = ["links", "addresses", "routes", "neighbours"];

impl Rounds {
    /// The kernel part of each audit in milliseconds: from the first question to the last answer, its sources being asked side by side;
    /// and the sum of what each took.
    pub fn kernel(&self) -> Vec<(f64, f64)> {
        self.sources
            .iter()
            .map(|took| {
                let kernel = |name: &str| {
                    ["nftables", "conntrack", "iptables-nft/", "iptables-legacy/"]
                        .iter()
                        .any(|word| name.starts_with(word))
                };
                let routing: f64 = ROUTING.iter().filter_map(|name| took.get(*name)).sum();
                let others = took.iter().filter(|(name, _)| kernel(name)).map(|(_, ms)| *ms);
                let longest = others.clone().fold(routing, f64::max);
                (longest, others.sum::<f64>() + routing)
            })
            .collect()
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let costs = |costs: &[Cost]| -> Value {
            costs
                .iter()
                .map(|cost| json!({"wall_ms": cost.wall_ms, "cpu_ms": cost.cpu_ms, "rss_kib": cost.rss_kib}))
                .collect()
        };
        let by_tool: BTreeMap<_, _> = self
            .by_tool
            .iter()
            .map(|(name, list)| (name, costs(list)))
            .collect();
        let kernel: Vec<Value> = self
            .kernel()
            .into_iter()
            .map(|(longest, sum)| json!({"longest_ms": longest, "sum_ms": sum}))
            .collect();
        json!({
            "size": self.size, "rules": self.rules, "links": self.links, "load": self.load, "audits": costs(&self.audits), "kernel_alone_ms": self.alone,
            "kernel": kernel, "sources_ms": self.sources, "tools": costs(&self.tools), "by_tool": by_tool,
            "counted": self.counted, "found": self.found,
        })
    }
}
