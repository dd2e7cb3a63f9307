//! Everything on a node as text, for a comparison before and after.
//!
//! Counters, timeouts, ages of neighbours and the like are left out, so that two looks at a node that nobody changed are equal.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::Value;

use crate::cmd::CommandError;
use crate::error::LabError;
use crate::node::Place;

/// A node at one moment, by sections, each a list of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Name of a section (the command or the folder) and its lines.
    pub sections: BTreeMap<String, Vec<String>>,
}

impl Snapshot {
    /// Looks at the node in `place` with the tools that a person would use. It changes nothing: in particular it does not make a legacy
    /// iptables table by listing it.
    ///
    /// # Errors
    ///
    /// [`LabError`] when one of the tools fails.
    pub fn take(place: &Place) -> Result<Self, LabError> {
        let mut all = Self::default();
        for family in ["iptables", "ip6tables"] {
            let saved = place.run([&format!("{family}-nft-save")])?.stdout;
            all.add(&format!("{family}-nft-save"), xtables(&saved));
            // `-legacy-save` without a table makes none, but each `-t` would.
            let names = format!(
                "/proc/net/{}_tables_names",
                family.trim_end_matches("tables").trim_end_matches('_')
            );
            let tables = place
                .run(["cat", &names])
                .map(|out| out.stdout)
                .unwrap_or_default();
            for table in tables.lines() {
                let saved = place.run([&format!("{family}-legacy-save"), "-t", table])?.stdout;
                all.add(&format!("{family}-legacy-save -t {table}"), xtables(&saved));
            }
            all.add(&names, tables.lines().map(str::to_owned).collect());
        }
        all.add(
            "nft -s list ruleset",
            nft(&place.run(["nft", "-s", "list", "ruleset"])?.stdout),
        );
        for argv in [
            ["ip", "-j", "link", "show"],
            ["ip", "-j", "addr", "show"],
            ["ip", "-j", "route", "show table all"],
            ["ip", "-j", "-6", "route show table all"],
            ["ip", "-j", "rule", "show"],
            ["ip", "-j", "neigh", "show"],
        ] {
            let words: Vec<&str> = argv.iter().flat_map(|word| word.split(' ')).collect();
            let text = place.run(&words)?.stdout;
            all.add(&words.join(" "), json_lines(&text));
        }
        all.add("conntrack -L", conntrack(&place.run(["conntrack", "-L"])?.stdout));
        for names in ["containers", "tasks"] {
            let listed = place.run(["ctr", "-n", "k8s.io", names, "ls", "-q"]);
            let lines = match listed {
                Ok(out) => out.stdout.lines().map(str::to_owned).collect(),
                // A stopped runtime is part of the picture.
                Err(CommandError::Failed { .. }) => vec!["unavailable".to_owned()],
                Err(other) => return Err(other.into()),
            };
            all.add(&format!("ctr {names} ls"), lines);
        }
        let mounts = place.run(["cat", "/proc/self/mountinfo"])?.stdout;
        all.add("mounted namespaces", mounted_namespaces(&mounts));
        let mut files = Vec::new();
        for (outside, inside) in [("var-lib-cni", "/var/lib/cni"), ("net.d", "/etc/cni/net.d")] {
            tree(&place.path(outside), inside, &mut files)?;
        }
        all.add("files", files);
        Ok(all)
    }

    fn add(&mut self, section: &str, mut lines: Vec<String>) {
        // The order of rules is part of what they say, that of the rest is not.
        if !section.contains("-save") && !section.contains("nft") {
            lines.sort();
        }
        self.sections.insert(section.to_owned(), lines);
    }

    /// Lines that only one of the two has, as `- section: line` and `+ section: line`.
    pub fn diff(&self, after: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let names: std::collections::BTreeSet<&String> =
            self.sections.keys().chain(after.sections.keys()).collect();
        for name in names {
            let count = |snapshot: &Self| {
                let mut counts: BTreeMap<String, i64> = BTreeMap::new();
                for line in snapshot.sections.get(name).into_iter().flatten() {
                    *counts.entry(line.clone()).or_default() += 1;
                }
                counts
            };
            let (old, new) = (count(self), count(after));
            let all: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let before = lines.len();
            for line in all {
                let change = new.get(line).unwrap_or(&0) - old.get(line).unwrap_or(&0);
                let sign = if change < 0 { '-' } else { '+' };
                lines.extend((0..change.abs()).map(|_| format!("{sign} {name}: {line}")));
            }
            if lines.len() == before && self.sections.get(name) != after.sections.get(name) {
                lines.push(format!("~ {name}: the same lines in another order"));
            }
        }
        lines
    }

    /// Whether one line of a section holds all of these.
    pub fn holds<S: AsRef<str>>(&self, words: &[S]) -> bool {
        let mut lines = self.sections.values().flatten();
        lines.any(|line| words.iter().all(|word| line.contains(word.as_ref())))
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, lines) in &self.sections {
            writeln!(out, "== {name}")?;
            for line in lines {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }
}

/// `-save` output without comments (they hold the time) and counters.
fn xtables(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split(" [").next().unwrap_or_default().to_owned())
        .collect()
}

/// `nft` output without what runs: how long an element still has.
fn nft(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    // The elements of a set have no order, and where a line breaks says nothing: each gets a line of its own.
    let mut elements: Option<String> = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(list) = &mut elements {
            list.push(' ');
            list.push_str(line.trim());
        } else if let Some(list) = line.trim().strip_prefix("elements = {") {
            elements = Some(list.trim().to_owned());
        } else {
            lines.push(without_expiry(line));
            continue;
        }
        let whole = elements.as_deref().and_then(|list| list.strip_suffix('}'));
        if let Some(list) = whole {
            let mut all: Vec<String> = outside_quotes(list)
                .map(|element| format!("\t\telement {}", without_expiry(element.trim())))
                .collect();
            all.sort();
            lines.append(&mut all);
            elements = None;
        }
    }
    lines
}

/// A list of elements, cut at its commas; one in a comment is a part of it.
fn outside_quotes(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    list.split(move |character| {
        quoted ^= character == '"';
        character == ',' && !quoted
    })
}

/// The time that an element has left runs.
fn without_expiry(line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut skip = false;
    for word in line.split(' ') {
        if skip {
            skip = false;
        } else if word == "expires" {
            skip = true;
        } else {
            words.push(word);
        }
    }
    words.join(" ")
}

/// One line an object of `ip -j`, without what changes by itself.
fn json_lines(text: &str) -> Vec<String> {
    const MOVING: [&str; 8] = [
        "stats",
        "stats64",
        "valid_life_time",
        "preferred_life_time",
        "state",
        "expires",
        "used",
        "confirmed",
    ];
    fn settle(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                MOVING.iter().for_each(|name| {
                    fields.remove(*name);
                });
                fields.values_mut().for_each(settle);
            }
            Value::Array(items) => items.iter_mut().for_each(settle),
            _ => {}
        }
    }
    let objects: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    objects
        .into_iter()
        // A neighbour that was asked for in vain is nothing that exists.
        .filter(|object| object.get("state").is_none_or(|_| object.get("lladdr").is_some()))
        .map(|mut object| {
            settle(&mut object);
            object.to_string()
        })
        .collect()
}

/// `conntrack -L` without timeouts, and without TCP connections that are over and go by themselves in a moment.
fn conntrack(text: &str) -> Vec<String> {
    let over = |line: &&str| line.contains(" TIME_WAIT ") || line.contains(" CLOSE ");
    text.lines()
        .filter(|line| !over(line))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (head, rest) = words.split_at(words.len().min(2));
            let rest = rest.get(1..).unwrap_or_default();
            head.iter().chain(rest).copied().collect::<Vec<_>>().join(" ")
        })
        .collect()
}

/// `mountinfo` lines of namespace files: `net:[inode] path`.
fn mounted_namespaces(text: &str) -> Vec<String> {
    let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words
        .filter(|words| words.contains(&"nsfs"))
        .filter_map(|words| Some(format!("{} {}", words.get(3)?, words.get(4)?)))
        .collect()
}

/// Every file below a directory with its mode, time and content.
fn tree(dir: &Path, shown: &str, lines: &mut Vec<String>) -> Result<(), LabError> {
    for entry in std::fs::read_dir(dir)
        .map_err(LabError::file("list", dir))?
        .flatten()
    {
        let path = entry.path();
        let name = format!("{shown}/{}", entry.file_name().to_string_lossy());
        let meta = std::fs::symlink_metadata(&path).map_err(LabError::file("look at", &path))?;
        if meta.is_dir() {
            tree(&path, &name, lines)?;
            lines.push(format!("{name}/ {:o}", meta.mode()));
        } else {
            let content = std::fs::read(&path).map_err(LabError::file("read", &path))?;
            let content = String::from_utf8_lossy(&content).escape_debug().to_string();
            lines.push(format!(
                "{name} {:o} {}.{} {content}",
                meta.mode(),
                meta.mtime(),
                meta.mtime_nsec()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(lines: &[&str]) -> Snapshot {
        let lines = lines.iter().map(|&line| line.to_owned()).collect();
        Snapshot {
            sections: BTreeMap::from([("iptables-nft-save".to_owned(), lines)]),
        }
    }

    #[test]
    fn a_difference_is_named_and_counted() {
        let (before, after) = (snapshot(&["a", "b", "b"]), snapshot(&["b", "c", "a"]));
        assert_eq!(
            before.diff(&after),
            ["- iptables-nft-save: b", "+ iptables-nft-save: c"]
        );
        assert!(before.diff(&before).is_empty());
        let turned = snapshot(&["b", "a", "b"]);
        assert_eq!(
            before.diff(&turned),
            ["~ iptables-nft-save: the same lines in another order"]
        );
    }

    #[test]
    fn what_moves_by_itself_is_left_out() {
        let text =
            "udp      17 26 src=172.20.0.200 dst=172.20.0.11 sport=1 dport=2 [UNREPLIED] mark=0 use=1\n";
        assert_eq!(
            conntrack(text),
            ["udp 17 src=172.20.0.200 dst=172.20.0.11 sport=1 dport=2 [UNREPLIED] mark=0 use=1"]
        );
        assert_eq!(
            xtables("# Generated by x\n*nat\n:INPUT ACCEPT [12:720]\n"),
            ["*nat", ":INPUT ACCEPT"]
        );
        assert_eq!(
            nft(concat!(
                "set a {\n\telements = { 10.0.0.2 timeout 1h expires 59m58s comment \"x, y\", 10.0.0.1 timeout 1h,\n",
                "\t\t 10.0.0.3 }\n}\n# Warning\n"
            )),
            [
                "set a {",
                "\t\telement 10.0.0.1 timeout 1h",
                "\t\telement 10.0.0.2 timeout 1h comment \"x, y\"",
                "\t\telement 10.0.0.3",
                "}",
            ]
        );
        assert_eq!(
            json_lines(
                r#"[{"dst":"10.0.0.1","state":["FAILED"]},{"dst":"10.0.0.2","lladdr":"a","state":["STALE"]}]"#
            ),
            [r#"{"dst":"10.0.0.2","lladdr":"a"}"#]
        );
    }
}
