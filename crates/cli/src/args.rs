//! The command line. Help texts, completions and man pages come from these definitions.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use sexton_core::{model::PortRange, plan::Choice, settings::Settings};

/// Sees, proves and repairs the network state that dead Pods leave on a Kubernetes node.
#[derive(Debug, Parser)]
#[command(name = "sexton", version, about, max_term_width = 100)]
#[command(after_help = "Exit codes of every command: 2 it could not be done.\n\
    Of audit and plan: 0 nothing was found and every needed source was read; 1 something was found; 3 nothing was found, \
    but something is unknown or a needed source is missing.\n\
    Of repair: 0 all done and verified; 1 something was refused, failed or came back; 3 something was left unjudged. \
    Without --yes: 1 there are steps, 0 there are none.\n\
    Of undo: 0 all is back; 1 something was left as it is. Of collect: 0 all was read; 3 some source was not read whole.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what is wrong on this node, or on a recorded one. Changes nothing.
    Audit(AuditArgs),
    /// Show what a repair would do, step by step. Changes nothing.
    Plan(PlanArgs),
    /// Judge again, apply, verify and report. Needs --yes and a choice.
    Repair(RepairArgs),
    /// Put back what a repair took, where nobody needs the place now.
    Undo(UndoArgs),
    /// Record this node, so that it can be audited elsewhere.
    Collect(CollectArgs),
    /// Find packets that circulate for a dead Pod, in captures and counters. Changes nothing.
    Trace(TraceArgs),
    /// End packets that circulate for a dead Pod, one verified step at a time.
    Loop {
        /// What to do.
        #[command(subcommand)]
        act: LoopAct,
    },
    /// Show a rule's page; or who lives at an address, and every object that names it.
    Explain(ExplainArgs),
    /// Print shell completions.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Man {
        /// The directory.
        dir: PathBuf,
    },
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For a terminal.
    #[default]
    Table,
    /// One document, which names its schema.
    Json,
    /// For a ticket.
    Markdown,
    /// One self-contained page.
    Html,
}

/// How a plan, or what a repair did, is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// For a terminal.
    #[default]
    Table,
    /// One document, which names its schema.
    Json,
}

/// Where the node's state comes from.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Source")]
pub struct SourceArgs {
    /// A recorded node: a folder, tar, tar.gz or zip, in any layout. Only --node and the settings count beside it.
    #[arg(long, value_name = "PATH")]
    pub bundle: Option<PathBuf>,
    /// The kubeconfig; without one the Pod's service account, then the kubelet's own file.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The node's name; by default the kubelet's hostnameOverride, then the host name. For a bundle: whose it is, if it does not say.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node: Option<String>,
    /// The runtime's socket, instead of the kubelet's own.
    #[arg(long, value_name = "SOCKET")]
    pub cri_socket: Option<PathBuf>,
    /// CNI's configuration.
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
    /// CNI's data: the cache, and host-local's leases.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cni")]
    pub cni_data_dir: PathBuf,
}

/// The numbers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Settings")]
pub struct SettingsArgs {
    /// A range of the cluster's Service addresses, where the API does not tell; may be given again.
    #[arg(long, value_name = "CIDR")]
    pub service_cidr: Vec<IpNet>,
    /// The range of NodePortLocal's ports.
    #[arg(long, value_name = "FIRST-LAST", default_value = "61000-62000", value_parser = port_range)]
    pub npl_range: PortRange,
    /// How long a container must have been dead before what is keyed on it is repaired, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 240)]
    pub container_grace: u64,
    /// How long one RunPodSandbox may take, in seconds. Default: twice the kubelet's runtimeRequestTimeout, 240 where that is not read.
    #[arg(long, value_name = "SECONDS")]
    pub run_pod_sandbox: Option<u64>,
}

fn port_range(text: &str) -> Result<PortRange, String> {
    let wrong = || format!("{text:?} is not FIRST-LAST with FIRST below LAST, such as 61000-62000");
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let range = PortRange {
        first: first.parse().map_err(|_| wrong())?,
        last: last.parse().map_err(|_| wrong())?,
    };
    if range.first < range.last {
        Ok(range)
    } else {
        Err(wrong())
    }
}

impl SettingsArgs {
    /// The settings that these flags ask for.
    pub fn settings(&self) -> Settings {
        let Self {
            service_cidr,
            npl_range,
            container_grace,
            run_pod_sandbox,
        } = self;
        Settings {
            service_cidrs: service_cidr.clone(),
            npl_range: *npl_range,
            container_grace: Duration::from_secs(*container_grace),
            run_pod_sandbox: run_pod_sandbox.map(Duration::from_secs),
            ..Settings::default()
        }
    }
}

/// What of the findings.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Choice")]
pub struct ChoiceArgs {
    /// Only this rule; may be given again.
    #[arg(long, value_name = "RULE")]
    pub rule: Vec<String>,
    /// Only rules of this tier (1: judged and repaired; 2: judged and reported).
    #[arg(long, value_name = "N")]
    pub tier: Option<u8>,
    /// Only findings whose owner is or was in this namespace; may be given again.
    #[arg(long, short = 'n', value_name = "NAME")]
    pub namespace: Vec<String>,
    /// At most this many findings.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

impl ChoiceArgs {
    /// True if rules were named.
    pub fn is_given(&self) -> bool {
        self.tier.is_some() || !self.rule.is_empty()
    }

    /// The choice that these flags make.
    pub fn choice(&self) -> Choice {
        let Self {
            rule,
            tier,
            namespace,
            limit,
        } = self;
        Choice {
            rules: rule.clone(),
            tier: *tier,
            namespaces: namespace.clone(),
            limit: *limit,
        }
    }
}

/// `sexton audit`.
#[derive(Clone, Debug, Args)]
pub struct AuditArgs {
    /// How to print the report.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Format,
    /// Write the report to a file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Show evidence, sources and times in full.
    #[arg(long, short)]
    pub verbose: bool,
    /// What of the findings.
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// Where from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The numbers.
    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// `sexton plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    /// Write the plan to a file, which `sexton repair --plan` carries out within 15 minutes.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// How to print the plan.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: ListFormat,
    /// What of the findings; all of tier 1 by default.
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// Where from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The numbers.
    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// `sexton repair`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("bundle", |arg| arg.hide(true)))]
pub struct RepairArgs {
    /// Carry out a plan that was reviewed: what it holds and nothing else.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Change the node. Without it, nothing is changed and the plan is shown.
    #[arg(long)]
    pub yes: bool,
    /// Prove by reading back only, not by traffic.
    #[arg(long)]
    pub no_probe: bool,
    /// Where journals are kept.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sexton")]
    pub state_dir: PathBuf,
    /// How to print the report.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: ListFormat,
    /// What of the findings.
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// Where from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The numbers.
    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// `sexton undo`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("bundle", |arg| arg.hide(true)))]
pub struct UndoArgs {
    /// The journal of the repair: the path that the repair printed, or its name in the state directory.
    pub journal: PathBuf,
    /// Change the node. Without it, what would be put back is shown.
    #[arg(long)]
    pub yes: bool,
    /// Where journals are kept.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sexton")]
    pub state_dir: PathBuf,
    /// How to print what became of each act.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: ListFormat,
    /// Where from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The numbers.
    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// `sexton collect`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("bundle", |arg| arg.hide(true)))]
pub struct CollectArgs {
    /// The file to write.
    #[arg(long, value_name = "FILE", default_value = "sexton-bundle.tar.gz")]
    pub out: PathBuf,
    /// Where from.
    #[command(flatten)]
    pub source: SourceArgs,
}

/// `sexton explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// A rule's name, an address, a Pod (NAMESPACE/NAME), a container ID, or a finding's ID.
    pub what: String,
    /// How to print it.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: ListFormat,
    /// Where from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The numbers.
    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// `sexton trace`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit codes: 1 a loop is proved or suspected; 3 there is a loop and it is unknown whose, or something could not be \
    read; 0 nothing circulates; 2 it could not be done."
)]
pub struct TraceArgs {
    /// Captures (pcap, pcapng, text of pktmon), counters (typeperf, Get-Counter), and what tells who lives where: nic.json,
    /// hns-endpoints.json, pods.json, crictl-pods.json and others of a recorded node. Folders are walked.
    #[arg(required_unless_present_any = ["live", "bundle", "fleet"], conflicts_with_all = ["live", "fleet"], value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Look at this Linux node: its counters, and for a second at most at its packets, if the counters are suspicious.
    #[arg(long)]
    pub live: bool,
    /// How long to watch the counters, in seconds; it ends at once when they are suspicious.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 10, requires = "live")]
    pub watch: u64,
    /// Packets a second in by one link and out by another, from which on that is suspicious.
    #[arg(long, value_name = "RATE", default_value_t = 5_000.0, requires = "live")]
    pub above: f64,
    /// Keep the packets that were captured, as a file of pcap.
    #[arg(long, value_name = "FILE", requires = "live")]
    pub save: Option<PathBuf>,
    /// A folder of many nodes: each folder, archive and file in it is one; nodes.json, pods.json and events.json beside them are of all.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["live", "bundle", "report"])]
    pub fleet: Option<PathBuf>,
    /// Also write what a platform's vendor needs to act, as Markdown.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Names and addresses become numbers in that report, the same everywhere in it.
    #[arg(long, requires = "report")]
    pub redact: bool,
    /// How to print it.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Format,
    /// Write it to a file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Show all evidence.
    #[arg(long, short)]
    pub verbose: bool,
    /// Where from, if not from files.
    #[command(flatten)]
    pub source: SourceArgs,
}

/// `sexton loop`.
#[derive(Clone, Debug, Subcommand)]
pub enum LoopAct {
    /// Drop what circulates for an address, the narrowest first: the resets of its flows, then all that is for it. Each step is verified, and
    /// taken back if it did not help. Only where a capture of this moment proves the loop and nobody lives at the address.
    End(LoopEndArgs),
}

/// `sexton loop end`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("bundle", |arg| arg.hide(true)))]
pub struct LoopEndArgs {
    /// The address of nobody, as `sexton trace --live` names it.
    pub address: std::net::IpAddr,
    /// Change the node. Without it, the steps are shown.
    #[arg(long)]
    pub yes: bool,
    /// How long a drop stays, in seconds; the kernel takes it away by itself.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub keep: u64,
    /// Packets a second in by one link and out by another, from which on that is suspicious.
    #[arg(long, value_name = "RATE", default_value_t = 5_000.0)]
    pub above: f64,
    /// Where journals are kept.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sexton")]
    pub state_dir: PathBuf,
    /// How to print what became of each step.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: ListFormat,
    /// Where from.
    #[command(flatten)]
    pub source: SourceArgs,
}
