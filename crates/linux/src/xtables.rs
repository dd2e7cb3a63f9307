//! iptables by its own tools: the only ones that print a rule of either variant without loss.
//!
//! Reading must change nothing (law 12), and the tools do: `iptables-legacy-save -t nat` *creates* the legacy table.
//! So the legacy tool is run only for tables that `/proc/net/ip_tables_names` lists, and the nft tool only where
//! nf_tables holds a table that could be iptables'.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use sexton_core::model::{Completeness, Facts, Family, NftFamily, Problem, SourceReport, XtTable, XtVariant};
use sexton_formats::iptables::{XtInput, parse};

use crate::command::{self, CommandError};
use crate::netlink::TableName;
use crate::source::{Watch, chain};

/// The tables that iptables has. It makes no others, and its nft variant reads only these.
const TABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];

/// Whether a table of nftables can be one of iptables-nft's.
pub(crate) fn is_candidate(family: NftFamily, name: &str) -> bool {
    matches!(family, NftFamily::Ip | NftFamily::Ip6) && TABLES.contains(&name)
}

/// Where the tools of one variant and family are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tools {
    /// `iptables-legacy-save` or the like.
    pub(crate) save: PathBuf,
    /// `iptables-legacy-restore` or the like.
    pub(crate) restore: PathBuf,
}

/// Finds the tools: by the variant's own name, or, where only one variant is installed, by the plain name if it says
/// that it is this variant.
pub(crate) fn tools(variant: XtVariant, family: Family) -> Option<Tools> {
    let base = match family {
        Family::Ipv4 => "iptables",
        Family::Ipv6 => "ip6tables",
    };
    let word = match variant {
        XtVariant::Legacy => "legacy",
        XtVariant::Nft => "nft",
        XtVariant::Unknown => return None,
    };
    let own =
        command::find(&format!("{base}-{word}-save")).zip(command::find(&format!("{base}-{word}-restore")));
    let (save, restore) = own.or_else(|| {
        let save = command::find(&format!("{base}-save"))?;
        let restore = command::find(&format!("{base}-restore"))?;
        (variant_of(&save) == Some(variant)).then_some((save, restore))
    })?;
    Some(Tools { save, restore })
}

/// What `iptables-save --version` says of itself: `(nf_tables)`, `(legacy)`, or nothing before 1.8, which is legacy.
fn variant_of(save: &Path) -> Option<XtVariant> {
    let output = command::run(save, &["--version"], &[], Duration::from_secs(2)).ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("nf_tables") {
        Some(XtVariant::Nft)
    } else if output.status.success() {
        Some(XtVariant::Legacy)
    } else {
        None
    }
}

/// Everything of iptables.
#[derive(Debug, Default)]
pub(crate) struct XtReading {
    /// The tables, with a report a variant and family.
    pub(crate) facts: Facts<Vec<XtTable>>,
    /// What was wrong with what the tools printed.
    pub(crate) problems: Vec<Problem>,
}

/// Reads all variants and families side by side. `nft` is what nf_tables holds, or why that is not known.
pub(crate) fn read(proc: &Path, nft: &Result<Vec<TableName>, String>, deadline: Duration) -> XtReading {
    let gathered = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (order, (variant, family)) in [
            (XtVariant::Nft, Family::Ipv4),
            (XtVariant::Nft, Family::Ipv6),
            (XtVariant::Legacy, Family::Ipv4),
            (XtVariant::Legacy, Family::Ipv6),
        ]
        .into_iter()
        .enumerate()
        {
            let gathered = &gathered;
            scope.spawn(move || {
                let part = read_part(proc, nft, variant, family, deadline);
                gathered
                    .lock()
                    .unwrap_or_else(|broken| broken.into_inner())
                    .push((order, part));
            });
        }
    });
    let mut parts = gathered.into_inner().unwrap_or_else(|broken| broken.into_inner());
    parts.sort_by_key(|(order, _)| *order);
    let mut out = XtReading::default();
    for (_, (facts, problems)) in parts {
        out.facts.join(facts);
        out.problems.extend(problems);
    }
    out
}

type Part = (Facts<Vec<XtTable>>, Vec<Problem>);

fn read_part(
    proc: &Path,
    nft: &Result<Vec<TableName>, String>,
    variant: XtVariant,
    family: Family,
    deadline: Duration,
) -> Part {
    let name = format!("{variant}/{family}");
    let watch = Watch::start(&name);
    let present = match variant {
        XtVariant::Legacy => legacy_tables(proc, family),
        _ => nft.clone().map(|tables| nft_tables(&tables, family)),
    };
    let present = match present {
        Ok(present) if present.is_empty() => {
            return (watch.facts(Vec::new(), Completeness::Complete, 0), Vec::new());
        }
        Ok(present) => present,
        Err(why) => return (watch.unavailable(why), Vec::new()),
    };
    let Some(tools) = tools(variant, family) else {
        let why = format!(
            "the kernel has tables of {name} ({}), and no program to read them is installed",
            present.join(", ")
        );
        return (watch.unavailable(why), Vec::new());
    };
    let mut tables = Vec::new();
    let mut problems = Vec::new();
    let mut worst = Completeness::Complete;
    let runs: Vec<Vec<&str>> = match variant {
        XtVariant::Legacy => present
            .iter()
            .map(|table| vec!["-c", "-t", table.as_str()])
            .collect(),
        _ => vec![vec!["-c"]],
    };
    for arguments in runs {
        match save(&tools.save, &arguments, deadline) {
            Ok(text) => {
                let input = XtInput {
                    source: &name,
                    family: Some(family),
                    variant: Some(variant),
                    table: None,
                };
                let read = parse(text.as_slice(), &input);
                worst = worst.max(read.completeness);
                if let Some(line) = incompatible(&text) {
                    worst = worst.max(Completeness::Partial(line));
                }
                tables.extend(read.tables);
                problems.extend(read.problems);
            }
            Err(error) => worst = worst.max(Completeness::Unavailable(chain(&error))),
        }
    }
    // Some of several tables are part of it.
    if let Completeness::Unavailable(why) = &worst
        && !tables.is_empty()
    {
        worst = Completeness::Partial(why.clone());
    }
    if worst.is_complete()
        && let Some(missing) = present
            .iter()
            .find(|name| !tables.iter().any(|table: &XtTable| table.name == **name))
    {
        worst = Completeness::Partial(format!("{} does not show table {missing}", tools.save.display()));
    }
    let rules = tables.iter().map(|table| table.rules().count()).sum();
    (watch.facts(tables, worst, rules), problems)
}

/// Runs a save tool and gives what it printed.
pub(crate) fn save(save: &Path, arguments: &[&str], deadline: Duration) -> Result<Vec<u8>, CommandError> {
    let output = command::run(save, arguments, &[], deadline)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(CommandError::Failed {
            program: save.to_path_buf(),
            status: output.status,
            message: output.stderr,
        })
    }
}

/// What the tool says of a table that was made with something else, of which it prints nothing or a part: `# Table
/// \`nat' is incompatible, use 'nft' tool.`, `# Table \`nat' contains incompatible base-chains, ...`.
fn incompatible(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let line = text
        .lines()
        .find(|line| line.starts_with("# Table ") && line.contains("incompatible"))?;
    Some(line.trim_start_matches('#').trim().to_owned())
}

fn nft_tables(all: &[TableName], family: Family) -> Vec<String> {
    let wanted = match family {
        Family::Ipv4 => NftFamily::Ip,
        Family::Ipv6 => NftFamily::Ip6,
    };
    all.iter()
        .filter(|(family, name)| *family == wanted && is_candidate(*family, name))
        .map(|(_, name)| name.clone())
        .collect()
}

/// The legacy tables that exist. The file is there once x_tables is; without it there are none.
pub(crate) fn legacy_tables(proc: &Path, family: Family) -> Result<Vec<String>, String> {
    // Not `/proc/net`, which is the namespace of the process's first thread.
    let file = proc.join("thread-self/net").join(match family {
        Family::Ipv4 => "ip_tables_names",
        Family::Ipv6 => "ip6_tables_names",
    });
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

/// The report of a part that nobody could read because its reader broke.
pub(crate) fn broken() -> XtReading {
    let report = SourceReport {
        name: "iptables".to_owned(),
        completeness: Completeness::Unavailable("its reader ended unexpectedly".to_owned()),
        items: 0,
        read_at: None,
        took_ms: 0.0,
    };
    XtReading {
        facts: Facts::from_source(Vec::new(), report),
        problems: Vec::new(),
    }
}
