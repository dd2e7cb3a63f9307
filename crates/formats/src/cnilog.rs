//! The log of Azure's CNI plugin, `azure-vnet.log`: which Pod got which address, and when its network was taken down.
//!
//! Sources: azure-container-networking `cni/network/network.go` (`Processing ADD command`, `ADD command completed for`, `Processing DEL
//! command`), as JSON a line since v1.5 and as text before. One process runs one command, so that its lines are told by its number.

use std::{collections::HashMap, io::BufRead, net::IpAddr};

use serde_json::{Map, Value};
use sexton_core::model::{ContainerId, PastEvent, PastKind, PodName, PodUid, Problem, Timestamp};

use crate::{addr::parse_ip, problems::Problems, text::Lines};

/// What a process is doing: an ADD or DEL for a Pod.
struct Command {
    add: bool,
    pod: PodName,
    uid: Option<PodUid>,
    container: Option<ContainerId>,
}

/// Commands that were begun and not ended are remembered up to this number: a process that was killed leaves one.
const MAX_OPEN: usize = 10_000;

/// Reads it. Lines that say nothing of a Pod's network are passed over; only a file that cannot be read on is a problem.
pub fn parse(reader: impl BufRead, path: &str) -> (Vec<PastEvent>, Vec<Problem>) {
    let mut problems = Problems::new(path);
    let mut open: HashMap<u64, Command> = HashMap::new();
    let mut out = Vec::new();
    let mut lines = Lines::new(reader);
    let mut number = 0;
    while let Some(line) = lines.next() {
        number += 1;
        let line = match line {
            Ok(line) => line,
            Err(err) => {
                problems.push(number, format!("cannot read on: {err}"));
                break;
            }
        };
        let text = String::from_utf8_lossy(line.bytes);
        let Some(said) = Said::read(text.trim()) else {
            continue;
        };
        if let Some(command) = said.begins() {
            if !command.add {
                out.push(event(&command, said.at, PastKind::Ended, path));
            }
            if open.len() < MAX_OPEN || open.contains_key(&said.process) {
                open.insert(said.process, command);
            }
            continue;
        }
        if said.message.contains("ADD command completed") {
            let ips = said.addresses();
            if let Some(command) = open.remove(&said.process).filter(|command| command.add)
                && !ips.is_empty()
            {
                out.push(event(&command, said.at, PastKind::Got(ips), path));
            }
        }
    }
    (out, problems.finish())
}

fn event(command: &Command, at: Option<Timestamp>, what: PastKind, path: &str) -> PastEvent {
    PastEvent {
        at,
        pod: command.pod.clone(),
        uid: command.uid.clone(),
        container: command.container.clone(),
        what,
        source: path.to_owned(),
    }
}

/// One line.
struct Said {
    at: Option<Timestamp>,
    process: u64,
    message: String,
    fields: Map<String, Value>,
}

impl Said {
    /// JSON, or `2026/08/18 06:41:30 [7760] [cni-net] ...`.
    fn read(line: &str) -> Option<Self> {
        if line.starts_with('{') {
            let fields: Map<String, Value> = serde_json::from_str(line).ok()?;
            let text = |key: &str| fields.get(key).and_then(Value::as_str);
            return Some(Self {
                at: text("ts").or_else(|| text("time")).and_then(|at| at.parse().ok()),
                process: fields.get("pid").and_then(Value::as_u64).unwrap_or_default(),
                message: text("msg").unwrap_or_default().to_owned(),
                fields,
            });
        }
        let (day, rest) = line.split_once(' ')?;
        let (hour, rest) = rest.split_once(' ')?;
        // The machine's own time zone, which on a node is UTC.
        let at = format!("{}T{hour}Z", day.replace('/', "-")).parse().ok()?;
        let rest = rest.trim_start().strip_prefix('[')?;
        let (process, message) = rest.split_once(']')?;
        Some(Self {
            at: Some(at),
            process: process.parse().ok()?,
            message: message.trim().to_owned(),
            fields: Map::new(),
        })
    }

    fn begins(&self) -> Option<Command> {
        let add = self.message.contains("Processing ADD command");
        if !add && !self.message.contains("Processing DEL command") {
            return None;
        }
        let text = |key: &str| self.fields.get(key).and_then(Value::as_str);
        let args = text("args").unwrap_or(&self.message);
        let arg = |key: &str| {
            let (_, rest) = args.split_once(&format!("{key}="))?;
            let value = rest.split([';', ' ', '}']).next()?;
            (!value.is_empty()).then(|| value.to_owned())
        };
        let container = text("containerId").map(str::to_owned).or_else(|| {
            let (_, rest) = self.message.split_once("ContainerID:")?;
            rest.split([' ', '}']).next().map(str::to_owned)
        });
        Some(Command {
            add,
            pod: PodName {
                namespace: arg("K8S_POD_NAMESPACE")?,
                name: arg("K8S_POD_NAME")?,
            },
            uid: arg("K8S_POD_UID").map(|uid| PodUid::new(&uid)),
            container: container
                .filter(|id| !id.is_empty())
                .map(|id| ContainerId::new(&id)),
        })
    }

    /// The addresses that an ADD came to: those of `IPs` or `IP:`, not gateways.
    fn addresses(&self) -> Vec<IpAddr> {
        let mut out = Vec::new();
        for (key, value) in &self.fields {
            if key.to_ascii_lowercase().starts_with("ip") {
                collect(value, &mut out);
            }
        }
        if self.fields.is_empty() {
            for (_, rest) in self
                .message
                .match_indices("IP:")
                .map(|(at, found)| self.message.split_at(at + found.len()))
            {
                let word = rest.split([' ', '}', ',', '/']).next().unwrap_or_default();
                out.extend(parse_ip(word.trim_start_matches('{')));
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }
}

/// Every address in a value, gateways and masks aside. zap prints a Go value as JSON, or as the text of `%+v`.
fn collect(value: &Value, out: &mut Vec<IpAddr>) {
    match value {
        Value::String(text) => {
            let mut after_gateway = false;
            for word in text.split([' ', '{', '}', '[', ']', ',', '"']) {
                let (key, word) = word
                    .rsplit_once(":{")
                    .or_else(|| split_key(word))
                    .unwrap_or(("", word));
                after_gateway |= key.eq_ignore_ascii_case("gateway");
                if !after_gateway {
                    out.extend(parse_ip(word.split('/').next().unwrap_or(word)));
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|item| collect(item, out)),
        Value::Object(map) => {
            for (key, value) in map {
                if !key.eq_ignore_ascii_case("gateway") && !key.eq_ignore_ascii_case("mask") {
                    collect(value, out);
                }
            }
        }
        _ => {}
    }
}

/// `IP:10.240.1.77`, but not an address of IPv6.
fn split_key(word: &str) -> Option<(&str, &str)> {
    let (key, rest) = word.split_once(':')?;
    key.bytes()
        .all(|b| b.is_ascii_alphabetic())
        .then_some((key, rest))
        .filter(|_| key.len() > 1 && !is_hex(key))
}

fn is_hex(text: &str) -> bool {
    text.len() <= 4 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: &str = r#"{"level":"info","ts":"2026-08-18T06:01:12.003Z","msg":"[cni-net] Processing ADD command","pid":7760,"containerId":"7b79ed658a16","args":"K8S_POD_NAME=invoice-0;K8S_POD_UID=ba9bc060-1f1c-4c36-89ca-b59643051398;K8S_POD_NAMESPACE=billing"}"#;
    const DONE: &str = r#"{"level":"info","ts":"2026-08-18T06:01:13.100Z","msg":"ADD command completed for","pid":7760,"pod":"invoice-0","IPs":[{"Address":{"IP":"10.240.1.77","Mask":"//8AAA=="},"Gateway":"10.240.0.1"}],"error":null}"#;
    const DEL: &str = r#"{"level":"info","ts":"2026-08-18T06:58:01.000Z","msg":"[cni-net] Processing DEL command","pid":9012,"containerId":"7b79ed658a16","args":"K8S_POD_NAME=invoice-0;K8S_POD_UID=ba9bc060-1f1c-4c36-89ca-b59643051398;K8S_POD_NAMESPACE=billing"}"#;

    fn read(text: &str) -> Vec<(String, String, Option<String>)> {
        let (events, problems) = parse(text.as_bytes(), "azure-vnet.log");
        assert_eq!(problems, []);
        let at = |event: &PastEvent| event.at.map(|at| at.to_string()).unwrap_or_default();
        let what = |event: &PastEvent| match &event.what {
            PastKind::Got(ips) => format!("{} got {ips:?}", event.pod),
            PastKind::Ended => format!("{} ended", event.pod),
        };
        let id = |event: &PastEvent| event.container.as_ref().map(|id| id.as_str().to_owned());
        events
            .iter()
            .map(|event| (at(event), what(event), id(event)))
            .collect()
    }

    #[test]
    fn an_add_and_a_del() {
        let expected = |add: &str, del: &str| {
            let id = Some("7b79ed658a16".to_owned());
            vec![
                (
                    add.to_owned(),
                    "billing/invoice-0 got [10.240.1.77]".to_owned(),
                    id.clone(),
                ),
                (del.to_owned(), "billing/invoice-0 ended".to_owned(), id),
            ]
        };
        // Commands of several processes run side by side.
        let other = ADD
            .replace("7760", "7761")
            .replace("invoice-0", "other-0")
            .replace("7b79", "8b79");
        let text = format!("{ADD}\n{other}\nnot a line\n{{\n{DONE}\n{DEL}\n");
        assert_eq!(
            read(&text),
            expected("2026-08-18T06:01:13.1Z", "2026-08-18T06:58:01Z")
        );
        // The same as text of a Go value.
        let go = DONE.replace(
            r#"[{"Address":{"IP":"10.240.1.77","Mask":"//8AAA=="},"Gateway":"10.240.0.1"}]"#,
            r#""[{Address:{IP:10.240.1.77 Mask:ffff0000} Gateway:10.240.0.1}]""#,
        );
        assert_eq!(
            read(&format!("{ADD}\n{go}\n{DEL}")),
            expected("2026-08-18T06:01:13.1Z", "2026-08-18T06:58:01Z")
        );
        let old = "2021/08/18 06:01:12 [7760] [cni-net] Processing ADD command with args {ContainerID:7b79ed658a16 Netns: IfName:eth0 Args:K8S_POD_NAMESPACE=billing;K8S_POD_NAME=invoice-0;X=1 Path:c:/k}.\n\
            2021/08/18 06:01:13 [7760] [cni-net] ADD command completed for pod invoice-0 with IPs:[{Address:{IP:10.240.1.77 Mask:ffff0000} Gateway:10.240.0.1}] err:<nil>.\n\
            2021/08/18 06:58:01 [9012] [cni-net] Processing DEL command with args {ContainerID:7b79ed658a16 Netns: IfName:eth0 Args:K8S_POD_NAMESPACE=billing;K8S_POD_NAME=invoice-0 Path:c:/k}.\n";
        assert_eq!(
            read(old),
            expected("2021-08-18T06:01:13Z", "2021-08-18T06:58:01Z")
        );
    }

    #[test]
    fn an_add_that_failed_gave_nothing() {
        let failed = r#"{"ts":"2026-08-18T06:01:13.100Z","msg":"ADD command completed","pid":7760,"pod":"invoice-0","err":"Failed"}"#;
        assert_eq!(read(&format!("{ADD}\n{failed}\n")), []);
        // Nor one whose end another process' line seems to tell.
        assert_eq!(read(&format!("{ADD}\n{}\n", DONE.replace("7760", "1"))), []);
    }
}
