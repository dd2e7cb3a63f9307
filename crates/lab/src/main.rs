//! `sexton-lab`: the lab node from a shell.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "what a command prints is its result")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use sexton_lab::api::ApiFault;
use sexton_lab::demo::{self, DemoError, DemoOptions};
use sexton_lab::keeper::{self, Request, chain};
use sexton_lab::load::{Load, LoadOptions};
use sexton_lab::snapshot::Snapshot;
use sexton_lab::truth::Truth;
use sexton_lab::{Fault, LabOptions, Place, RuntimeKind, Variant, probe};
use tokio::signal::unix::{SignalKind, signal};

/// A test node for Sexton: a real containerd with CNI in namespaces of its own, stale state beside living Pods, and clients that
/// talk to the living.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Make a node in a directory that is empty or absent; it stays until `down`
    Up {
        /// The node's directory, empty or absent; its path is plain and below /tmp
        dir: PathBuf,
        /// Which tables the node's iptables writes to
        #[arg(long, value_enum, default_value_t = Variant::Nft)]
        variant: Variant,
        /// Name of the node
        #[arg(long, default_value = "worker-a")]
        node: String,
        /// Its container runtime
        #[arg(long, value_enum, default_value_t = RuntimeKind::Containerd)]
        runtime: RuntimeKind,
        /// Without root, in a user namespace and with the lab's own runtime
        #[arg(long)]
        unprivileged: bool,
    },
    /// Keep a node, in the foreground; `up` starts this
    #[command(hide = true)]
    Keep {
        dir: PathBuf,
        #[arg(long, value_enum)]
        variant: Variant,
        #[arg(long, value_enum)]
        runtime: RuntimeKind,
        #[arg(long)]
        node: String,
    },
    /// Make stale state of these kinds, each once
    Fault {
        /// The node's directory, as given to `up`
        dir: PathBuf,
        /// All kinds
        #[arg(long, conflicts_with = "faults", required_unless_present = "faults")]
        all: bool,
        #[arg(value_enum)]
        faults: Vec<Fault>,
    },
    /// Let the API fail for a resource (pods, services, nodes, endpointslices, servicecidrs), or work again
    Api {
        /// The node's directory, as given to `up`
        dir: PathBuf,
        /// Plural of the resource; without it everything works again
        resource: Option<String>,
        /// `forbidden`, `server-error`, `cut`, `expired`, or a number of milliseconds to wait
        #[arg(requires = "resource", value_parser = api_fault)]
        fault: Option<ApiFault>,
    },
    /// Kill the runtime (`crash`) or start it again (`start`)
    Runtime {
        /// The node's directory, as given to `up`
        dir: PathBuf,
        #[arg(value_parser = ["crash", "start"])]
        act: String,
    },
    /// Run a command inside the node
    Exec {
        /// The node's directory, as given to `up`
        dir: PathBuf,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Ask once at every target, also at those that a fault broke, and say who answered; exit code 1 if one did not
    Probe {
        /// The node's directory, as given to `up`
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Talk to everything that works, until the time is over or SIGTERM or SIGINT comes; exit code 1 if a request failed
    Load {
        /// The node's directory, as given to `up`
        dir: PathBuf,
        /// How long, such as `20s`; without it until a signal
        #[arg(long = "for", value_parser = seconds)]
        time: Option<Duration>,
        /// Where the summary goes; without it to standard output
        #[arg(long)]
        out: Option<PathBuf>,
        /// New connections a second for each TCP target
        #[arg(long, default_value_t = LoadOptions::default().connections, value_parser = clap::value_parser!(u32).range(1..=2000))]
        rate: u32,
    },
    /// Print everything that is on the node, for a comparison
    Snapshot {
        /// The node's directory, as given to `up`
        dir: PathBuf,
    },
    /// Take the node down, with nothing left
    Down {
        /// The node's directory, as given to `up`
        dir: PathBuf,
    },
    /// Show Sexton at work: a node with stale state of every kind, clients that talk to the living, and the repair; exit code 0 only if all
    /// agrees with what the lab made and no request failed, 3 if this machine cannot have such a node
    Demo(DemoArguments),
}

/// What a demo is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Incident {
    /// Stale state of dead Pods of every kind: found, repaired, proved by traffic
    Stale,
    /// Resets for a dead Pod that circulate: seen, proved, ended
    Loop,
}

#[derive(Debug, Args)]
struct DemoArguments {
    /// The program `sexton`
    #[arg(long)]
    sexton: PathBuf,
    /// Which incident is shown
    #[arg(long, value_enum, default_value_t = Incident::Stale)]
    incident: Incident,
    /// Which tables the node's iptables writes to
    #[arg(long, value_enum, default_value_t = Variant::Nft)]
    variant: Variant,
    /// In a user namespace and with the lab's own runtime, as without root
    #[arg(long)]
    unprivileged: bool,
    /// Keep every report, plan, journal and snapshot here
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The lab's directory, empty or absent
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Already inside of the user namespace
    #[arg(long, hide = true)]
    inside: bool,
}

fn api_fault(text: &str) -> Result<ApiFault, String> {
    match text {
        "forbidden" => Ok(ApiFault::Forbidden),
        "server-error" => Ok(ApiFault::ServerError),
        "cut" => Ok(ApiFault::Cut),
        "expired" => Ok(ApiFault::Expired),
        other => other
            .parse()
            .map(ApiFault::Slow)
            .map_err(|_| format!("no such fault: {other}")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    let seconds: f64 = number
        .parse()
        .map_err(|_| format!("not a time in seconds: {text}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match act(Arguments::parse().act) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "sexton-lab: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn act(act: Act) -> anyhow::Result<ExitCode> {
    if let Act::Exec { dir, .. } | Act::Probe { dir, .. } | Act::Load { dir, .. } | Act::Snapshot { dir } =
        &act
    {
        enter_user_namespace(&Place::new(dir)?)?;
    }
    match act {
        Act::Up {
            dir,
            variant,
            node,
            runtime,
            unprivileged,
        } => {
            let runtime = if unprivileged { RuntimeKind::Lab } else { runtime };
            up(
                &dir,
                &LabOptions {
                    node_name: node,
                    variant,
                    runtime,
                },
                unprivileged,
            )?;
        }
        Act::Keep {
            dir,
            variant,
            runtime,
            node,
        } => {
            return Ok(keep(
                &dir,
                LabOptions {
                    node_name: node,
                    variant,
                    runtime,
                },
            ));
        }
        Act::Fault { dir, all, faults } => {
            let faults = if all { Fault::ALL.to_vec() } else { faults };
            keeper::ask(&Place::new(dir)?, &Request::Faults(faults))?;
        }
        Act::Api { dir, resource, fault } => {
            let request = match (resource, fault) {
                (Some(resource), Some(fault)) => Request::ApiFault(resource, fault),
                (Some(_), None) => bail!("which fault?"),
                (None, _) => Request::ApiClear,
            };
            keeper::ask(&Place::new(dir)?, &request)?;
        }
        Act::Runtime { dir, act } => {
            let request = if act == "crash" {
                Request::CrashRuntime
            } else {
                Request::StartRuntime
            };
            keeper::ask(&Place::new(dir)?, &request)?;
        }
        Act::Exec { dir, command } => {
            let place = Place::new(dir)?;
            let argv = place.enter(command);
            let (program, args) = argv.split_first().context("no command")?;
            // The shell's job control sees the command itself.
            let failed = Command::new(program).args(args).envs(place.environment()).exec();
            return Err(failed).context("cannot run nsenter");
        }
        Act::Probe { dir, json } => return show_probes(&Place::new(dir)?, json),
        Act::Load { dir, time, out, rate } => return talk(&Place::new(dir)?, time, out, rate),
        Act::Snapshot { dir } => print!("{}", Snapshot::take(&Place::new(dir)?)?),
        Act::Down { dir } => keeper::down(&Place::new(dir)?)?,
        Act::Demo(arguments) => return demo(arguments),
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the keeper and waits until its node is up.
fn up(dir: &Path, options: &LabOptions, unprivileged: bool) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot find the program itself")?;
    let mut command = if unprivileged {
        if let Some(why) = sexton_lab::unprivileged_unsupported() {
            bail!("{why}");
        }
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--"]).arg(own);
        unshare
    } else {
        Command::new(own)
    };
    let name = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
    let mut keeper = command
        .arg("keep")
        .arg(dir)
        .args(["--node", &options.node_name])
        .args([
            "--variant",
            &name(options.variant.to_possible_value()).unwrap_or_default(),
        ])
        .args([
            "--runtime",
            &name(options.runtime.to_possible_value()).unwrap_or_default(),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // A Ctrl-C at the shell is for the command that runs there, not for the node.
        .process_group(0)
        .spawn()
        .context("cannot start the keeper")?;
    let mut line = String::new();
    if let Some(stdout) = keeper.stdout.take() {
        BufReader::new(stdout.take(65536))
            .read_line(&mut line)
            .context("cannot hear the keeper")?;
    }
    match line.trim() {
        "ready" => Ok(()),
        "" => bail!("the keeper ended without a word"),
        error => bail!("{error}"),
    }
}

fn demo(arguments: DemoArguments) -> anyhow::Result<ExitCode> {
    let DemoArguments {
        sexton,
        incident,
        variant,
        unprivileged,
        keep,
        dir,
        inside,
    } = arguments;
    if unprivileged && !inside {
        return Err(into_user_namespace());
    }
    let sexton = std::fs::canonicalize(&sexton).with_context(|| format!("no {}", sexton.display()))?;
    let dir = dir.unwrap_or_else(|| std::env::temp_dir().join(format!("sexton-demo-{}", std::process::id())));
    end_with_signals(Place::new(&dir)?)?;
    let options = DemoOptions {
        sexton,
        dir,
        variant,
        runtime: if unprivileged {
            RuntimeKind::Lab
        } else {
            RuntimeKind::Containerd
        },
        keep,
        colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    };
    let mut out = std::io::stdout();
    let good = match incident {
        Incident::Stale => demo::run(&options, &mut out).map(|outcome| outcome.is_good()),
        Incident::Loop => demo::run_loop(&options, &mut out).map(|outcome| outcome.wrong.is_empty()),
    };
    match good {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(DemoError::Unsupported(why)) => {
            let _ = writeln!(std::io::stderr(), "sexton-lab: no lab can be made here: {why}");
            Ok(ExitCode::from(3))
        }
        Err(other) => Err(other.into()),
    }
}

/// Runs the same command again in a user namespace, where this user is root. Returns only if that failed.
fn into_user_namespace() -> anyhow::Error {
    if let Some(why) = sexton_lab::unprivileged_unsupported() {
        let _ = writeln!(std::io::stderr(), "sexton-lab: no lab can be made here: {why}");
        std::process::exit(3);
    }
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return anyhow::Error::new(error).context("cannot find the program itself"),
    };
    let failed = Command::new("unshare")
        .args(["--user", "--map-root-user", "--"])
        .arg(own)
        .args(std::env::args_os().skip(1))
        .arg("--inside")
        .exec();
    anyhow::Error::new(failed).context("cannot run unshare")
}

/// From now on SIGINT and SIGTERM take the node down before they end this process.
fn end_with_signals(place: Place) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut term, mut int) = runtime.block_on(async {
        Ok::<_, std::io::Error>((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    })?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
        });
        // What is not there yet needs no end; a lab in the making is found by the directory that it has claimed.
        let _ = keeper::down(&place);
        std::process::exit(130);
    });
    Ok(())
}

fn keep(dir: &Path, options: LabOptions) -> ExitCode {
    let say = |line: &str| {
        // Whoever started it may be gone; the node is there all the same.
        let _ = writeln!(std::io::stdout(), "{line}");
    };
    match keeper::keep(dir, options, || say("ready")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&chain(&error).replace('\n', " | "));
            ExitCode::from(2)
        }
    }
}

/// Runs the whole command again inside the user namespace of a lab that has one of its own; only there are its namespaces one's own.
fn enter_user_namespace(place: &Place) -> anyhow::Result<()> {
    let theirs = place.path("ns/user");
    let (Ok(ours), Ok(namespace)) = (
        std::fs::read_link("/proc/self/ns/user"),
        std::fs::read_link(&theirs).and_then(std::fs::read_link),
    ) else {
        // No lab, which the command itself says better.
        return Ok(());
    };
    if ours == namespace {
        return Ok(());
    }
    let mut word = OsString::from("--user=");
    word.push(theirs);
    let own = std::env::current_exe().context("cannot find the program itself")?;
    let failed = Command::new("nsenter")
        .arg(word)
        .arg("--preserve-credentials")
        .arg("--")
        .arg(own)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(failed).context("cannot run nsenter")
}

fn show_probes(place: &Place, json: bool) -> anyhow::Result<ExitCode> {
    let truth = Truth::load(place)?;
    let probes = probe(place, &truth.targets)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&probes)?);
    } else {
        for probe in &probes {
            let target = &probe.target;
            let what = probe.instead.as_deref().unwrap_or("ok");
            println!(
                "{:<24} {} {}:{} {what}",
                target.pod,
                target.protocol.lower(),
                target.ip,
                target.port
            );
        }
    }
    let all = probes.iter().all(|probe| probe.answered);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn talk(place: &Place, time: Option<Duration>, out: Option<PathBuf>, rate: u32) -> anyhow::Result<ExitCode> {
    let truth = Truth::load(place)?;
    let targets = truth.working().cloned().collect();
    let options = LoadOptions {
        connections: rate,
        ..LoadOptions::default()
    };
    let load = Load::start(place, targets, options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let end = async {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            () = end => {}
        }
        Ok::<(), std::io::Error>(())
    })?;
    let summary = load.stop()?;
    let text = serde_json::to_string_pretty(&summary)?;
    match out {
        Some(file) => {
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            println!(
                "{} requests, {} failed, longest gap {:.1} ms",
                summary.requests, summary.failed, summary.longest_gap_ms
            );
        }
        None => println!("{text}"),
    }
    Ok(if summary.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
