//! What CNI plugins and libcni keep in files: host-local's leases, cached results, configuration.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use sexton_core::model::{
    CacheEntry, CniConfig, CniPlugin, ContainerId, CorruptFile, Lease, PodName, PodUid, Problem, Timestamp,
};

use crate::{
    addr::{parse_ip, parse_net},
    items,
};

/// What a file of a host-local store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseFile {
    /// A lease.
    Lease(Lease),
    /// A file with an address for its name and something else for its content.
    Corrupt(CorruptFile),
    /// Not a lease: `lock`, `last_reserved_ip.0`, or a name that is no address.
    Other,
}

/// Reads a file of a host-local store: `<data dir>/<network>/<address>` with the container ID, a line end (CR LF; LF
/// where somebody edited it) and the interface's name. Versions before 0.8.3 wrote only the ID.
///
/// Source: containernetworking/plugins, `plugins/ipam/host-local/backend/disk/backend.go`; on Windows the colons of an
/// IPv6 address are underscores.
pub fn read_lease(path: &str, content: &[u8], modified_at: Option<Timestamp>) -> LeaseFile {
    let mut parts = path.rsplit(['/', '\\']);
    let name = parts.next().unwrap_or_default();
    let network = parts.next().unwrap_or_default();
    let Some(ip) = parse_ip(name).or_else(|| parse_ip(&name.replace('_', ":"))) else {
        return LeaseFile::Other;
    };
    let corrupt = |why: String| {
        LeaseFile::Corrupt(CorruptFile {
            path: path.to_owned(),
            why,
        })
    };
    let expected = "expected a container ID and an interface's name";
    if content.trim_ascii().is_empty() {
        return corrupt(format!("{expected}, found an empty file"));
    }
    let Ok(content) = std::str::from_utf8(content) else {
        return corrupt(format!("{expected}, found bytes that are not UTF-8"));
    };
    let mut lines = content.lines().map(str::trim).filter(|line| !line.is_empty());
    let id = lines.next().unwrap_or_default();
    let interface = lines.next();
    if !is_container_id(id) {
        return corrupt(format!("{expected}, found {:?} in its first line", clip(id)));
    }
    if let Some(bad) = interface.filter(|name| !is_interface(name)) {
        return corrupt(format!("{expected}, found {:?} in its second line", clip(bad)));
    }
    if let Some(more) = lines.next() {
        return corrupt(format!("{expected}, found a third line {:?}", clip(more)));
    }
    LeaseFile::Lease(Lease {
        path: path.to_owned(),
        network: network.to_owned(),
        ip,
        container: ContainerId::new(id),
        interface: interface.map(str::to_owned),
        content: content.to_owned(),
        modified_at,
    })
}

/// As the CNI specification defines it ("Parameters"): it starts with a letter or digit, then also `_`, `.` and `-`.
fn is_container_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// As `utils.ValidateInterfaceName` of libcni: up to 15 bytes without `/`, `:` and white space.
fn is_interface(text: &str) -> bool {
    text.len() <= 15
        && !matches!(text, "" | "." | "..")
        && !text
            .chars()
            .any(|c| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control())
}

/// The first characters, for a message.
fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct CacheObject {
    kind: Option<String>,
    container_id: Option<String>,
    if_name: Option<String>,
    network_name: Option<String>,
    netns: Option<String>,
    cni_args: Option<Vec<(String, String)>>,
    result: Option<Value>,
}

/// Reads a cached CNI result, `<cache dir>/results/<network>-<container ID>-<interface>`.
///
/// What the file does not tell is taken from its name: libcni before 0.8 cached the bare result, and a broken file
/// still has a name. A broken file gives an entry without addresses and a problem, so that its container is not
/// forgotten.
pub fn read_cache(
    path: &str,
    bytes: &[u8],
    modified_at: Option<Timestamp>,
) -> (Option<CacheEntry>, Vec<Problem>) {
    let mut problems = Vec::new();
    let value: Value = serde_json::from_slice(bytes).unwrap_or_else(|err| {
        problems.push(items::json_problem(path, &err));
        Value::Null
    });
    let mut object = CacheObject::default();
    if !value.is_null() {
        match CacheObject::deserialize(&value) {
            Ok(read) => object = read,
            Err(err) => problems.push(Problem {
                place: format!("{path}:1"),
                what: format!("not a cached CNI result: {err}"),
            }),
        }
    }
    let result = match (&object.kind, &object.result) {
        (Some(_), result) => result.as_ref(),
        (None, _) => Some(&value),
    };
    let ips = result.map(result_ips).unwrap_or_default();
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let (network, container, interface) = split_name(name).unwrap_or_default();
    let told = |field: Option<String>, named: &str| {
        field
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| named.to_owned())
    };
    let container = told(object.container_id, container);
    if container.is_empty() {
        problems.push(Problem {
            place: format!("{path}:1"),
            what: "neither the file nor its name tells a container ID".to_owned(),
        });
        return (None, problems);
    }
    let mut args = object.cni_args.unwrap_or_default();
    let mut arg = |key: &str| {
        let at = args.iter().position(|(name, _)| name == key)?;
        Some(args.swap_remove(at).1).filter(|text| !text.is_empty())
    };
    let pod = arg("K8S_POD_NAMESPACE")
        .zip(arg("K8S_POD_NAME"))
        .map(|(namespace, name)| PodName { namespace, name });
    let entry = CacheEntry {
        path: path.to_owned(),
        network: told(object.network_name, network),
        container: ContainerId::new(&container),
        interface: told(object.if_name, interface),
        netns: object.netns.filter(|text| !text.is_empty()),
        pod,
        uid: arg("K8S_POD_UID").map(|uid| PodUid::new(&uid)),
        ips,
        modified_at,
    };
    (Some(entry), problems)
}

/// `<network>-<container ID>-<interface>`. A network's and an interface's name may hold dashes; 64 hex digits between
/// dashes are surely the ID, else the last two parts are ID and interface.
fn split_name(name: &str) -> Option<(&str, &str, &str)> {
    let is_id = |part: &str| part.len() == 64 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let mut start = 0;
    for part in name.split('-') {
        let end = start + part.len();
        if start > 0 && is_id(part) {
            let interface = name.get(end + 1..)?;
            return Some((name.get(..start - 1)?, part, interface));
        }
        start = end + 1;
    }
    let (rest, interface) = name.rsplit_once('-')?;
    let (network, container) = rest.rsplit_once('-')?;
    (!network.is_empty() && !container.is_empty()).then_some((network, container, interface))
}

/// Addresses of a CNI result: `ips[].address` since 0.3.0, `ip4.ip` and `ip6.ip` before.
fn result_ips(result: &Value) -> Vec<IpAddr> {
    let listed = result.get("ips").and_then(Value::as_array).into_iter().flatten();
    let listed = listed.filter_map(|ip| ip.get("address"));
    let old = ["/ip4/ip", "/ip6/ip"]
        .into_iter()
        .filter_map(|at| result.pointer(at));
    let mut out = Vec::new();
    for ip in listed.chain(old).filter_map(Value::as_str).filter_map(parse_net) {
        if !out.contains(&ip.addr()) {
            out.push(ip.addr());
        }
    }
    out
}

/// Reads a CNI configuration: a list (`.conflist`, with `plugins`) or a single plugin (`.conf`, `.json`). The plugins
/// that a plugin delegates to (`delegates` of Multus, `delegate` of flannel) are listed after it.
///
/// Source: CNI specification, "Network configuration format".
pub fn read_config(path: &str, bytes: &[u8]) -> (Option<CniConfig>, Vec<Problem>) {
    let mut problems = Vec::new();
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(err) => return (None, vec![items::json_problem(path, &err)]),
    };
    let mut plugins = Vec::new();
    collect_plugins(path, &value, 0, &mut plugins, &mut problems);
    let name = value.get("name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() || plugins.is_empty() {
        problems.push(Problem {
            place: format!("{path}:1"),
            what: "expected a CNI configuration with a `name` and a `type` or `plugins`".to_owned(),
        });
    }
    if plugins.is_empty() {
        return (None, problems);
    }
    let config = CniConfig {
        path: path.to_owned(),
        name: name.to_owned(),
        plugins,
    };
    (Some(config), problems)
}

/// Delegates of delegates end here.
const MAX_DEPTH: u8 = 4;

fn collect_plugins(
    path: &str,
    value: &Value,
    depth: u8,
    out: &mut Vec<CniPlugin>,
    problems: &mut Vec<Problem>,
) {
    if let Some(kind) = value.get("type").and_then(Value::as_str) {
        let ipam = value.get("ipam");
        let text = |key: &str| {
            ipam.and_then(|i| i.get(key))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let subnets = ipam.map(|ipam| subnets(path, ipam, problems)).unwrap_or_default();
        out.push(CniPlugin {
            kind: kind.to_owned(),
            ipam: text("type"),
            data_dir: text("dataDir"),
            subnets,
        });
    }
    if depth == MAX_DEPTH {
        return;
    }
    for key in ["plugins", "delegates"] {
        for plugin in value.get(key).and_then(Value::as_array).into_iter().flatten() {
            collect_plugins(path, plugin, depth + 1, out, problems);
        }
    }
    if let Some(delegate) = value.get("delegate") {
        collect_plugins(path, delegate, depth + 1, out, problems);
    }
}

fn subnets(path: &str, ipam: &Value, problems: &mut Vec<Problem>) -> Vec<IpNet> {
    let ranges = ipam.get("ranges").and_then(Value::as_array).into_iter().flatten();
    let ranges = ranges.filter_map(Value::as_array).flatten();
    let texts = std::iter::once(ipam)
        .chain(ranges)
        .filter_map(|v| v.get("subnet")?.as_str());
    let mut out = Vec::new();
    for text in texts {
        match parse_net(text) {
            Some(net) => out.push(net),
            // host-local behind flannel and others: the plugin fills it in
            None if text.is_empty() || text == "usePodCidr" => {}
            None => problems.push(Problem {
                place: format!("{path}:1"),
                what: format!("not a subnet: {text:?}"),
            }),
        }
    }
    out
}

#[cfg(test)]
mod tests;
