//! The first visit: every file becomes a part of the state.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashSet},
    io::{BufRead, BufReader, Read},
    ops::ControlFlow,
    rc::Rc,
};

use ipnet::IpNet;
use serde::Deserialize;
use sexton_core::model::{
    Completeness, Interface, NftState, NodeState, Pod, PodName, Sandbox, SourceReport, Timestamp, Unread,
    XtTable, XtVariant,
};

use super::{
    files::{FileEntry, Limits},
    finish::has_source,
    input::{beginning, open},
    join::{completeness, join, worsen},
    kernel::empty,
    problem,
    recognise::{self, FileKind},
};
use crate::{
    antctl, capture, cnilog, ipset,
    iptables::{self, XtInput},
    ipvs,
    kube::{self, Kind, KubeItem},
    text,
};

/// What the bundle says about itself.
#[derive(Default)]
pub(super) struct Meta {
    pub(super) node: Option<(String, String)>,
    pub(super) taken_at: Option<Timestamp>,
}

/// `meta.json`: what `sexton collect` and the examples write.
#[derive(Deserialize)]
struct MetaFile {
    node: Option<String>,
    taken_at: Option<Timestamp>,
    machine_id: Option<String>,
    booted_at: Option<Timestamp>,
    /// What kind of machine it is, in whatever words: `VM size`, `NIC driver`.
    #[serde(default)]
    traits: BTreeMap<String, String>,
}

/// A Pod that something other than the Pod list names.
pub(super) struct Named {
    pub(super) pod: PodName,
    pub(super) by: String,
}

pub(super) struct Collector {
    pub(super) limits: Limits,
    total: Rc<Cell<u64>>,
    files: u64,
    pub(super) state: NodeState,
    pub(super) meta: Meta,
    /// When an iptables-save says that it was taken.
    pub(super) saved_at: Option<Timestamp>,
    /// The newest modification time of a file that was read.
    pub(super) newest: Option<Timestamp>,
    /// Static Pods' manifests.
    pub(super) manifests: Vec<Named>,
    /// Service CIDRs in the flags of static Pods.
    pub(super) flag_cidrs: Vec<IpNet>,
    /// The families whose save warned of legacy tables beside, with the file.
    legacy_beside: Vec<String>,
    /// Sandboxes of `crictl pods`, and those of `crictl inspectp`.
    pub(super) listed: Vec<Sandbox>,
    pub(super) inspected: Vec<Sandbox>,
    /// Rulesets of nft, one a file.
    pub(super) rulesets: Vec<NftState>,
    /// The node that was asked for.
    asked: Option<String>,
    /// The nodes that files of the bundle name as their own, with the first file that does.
    pub(super) named: BTreeMap<String, String>,
    /// The agents of an `antctl supportbundle`, by node.
    pub(super) agents: BTreeSet<String>,
    /// The files that the second visit is for.
    pub(super) conntrack: HashSet<String>,
    /// The names of pktmon's components.
    pub(super) components: Vec<Interface>,
    /// Why the walk ended early.
    pub(super) stopped: Option<String>,
}

impl Collector {
    pub(super) fn new(limits: Limits, asked: Option<String>) -> Self {
        Self {
            limits,
            total: Rc::new(Cell::new(limits.total)),
            files: 0,
            state: NodeState::default(),
            meta: Meta::default(),
            saved_at: None,
            newest: None,
            manifests: Vec::new(),
            flag_cidrs: Vec::new(),
            legacy_beside: Vec::new(),
            listed: Vec::new(),
            inspected: Vec::new(),
            rulesets: Vec::new(),
            asked,
            named: BTreeMap::new(),
            agents: BTreeSet::new(),
            conntrack: HashSet::new(),
            components: Vec::new(),
            stopped: None,
        }
    }

    /// True if no file told anything.
    pub(super) fn is_empty(&mut self) -> bool {
        self.conntrack.is_empty() && self.meta.node.is_none() && !has_source(&mut self.state)
    }

    pub(super) fn refused(&mut self, refused: Vec<Unread>) {
        for unread in refused {
            self.state
                .problems
                .push(problem(&unread.path, format!("refused: {}", unread.why)));
            self.state.unread.push(unread);
        }
    }

    pub(super) fn unread(&mut self, entry: &FileEntry, why: impl Into<String>) {
        self.state.unread.push(Unread {
            path: entry.path.clone(),
            why: why.into(),
        });
    }

    /// Takes one file.
    pub(super) fn file(&mut self, entry: &FileEntry, reader: &mut dyn Read) -> ControlFlow<()> {
        self.files += 1;
        if self.files > self.limits.files {
            self.stopped = Some(format!("it holds more than {} files", self.limits.files));
            return ControlFlow::Break(());
        }
        if self.of_another_agent(entry) {
            return ControlFlow::Continue(());
        }
        let kind = recognise::by_name(&entry.path);
        match kind {
            Some(FileKind::Ignored) => return ControlFlow::Continue(()),
            Some(FileKind::Known(why)) => {
                self.unread(entry, why);
                return ControlFlow::Continue(());
            }
            Some(FileKind::Conntrack) => {
                self.conntrack.insert(entry.path.clone());
                return ControlFlow::Continue(());
            }
            _ => {}
        }
        if matches!(kind, Some(FileKind::Capture)) {
            // Bytes, not text; and as long as it may be, since it is followed in constant memory.
            self.capture(entry, text::gunzip(reader));
            return ControlFlow::Continue(());
        }
        let mut raw = BufReader::new(text::gunzip(reader));
        if kind.is_none() && raw.fill_buf().is_ok_and(capture::recognise) {
            self.capture(entry, raw);
            return ControlFlow::Continue(());
        }
        let mut text = open(&mut raw, self.limits.file, &self.total);
        let kind = match kind {
            Some(kind) => Some(kind),
            None => text.fill_buf().ok().and_then(recognise::by_content),
        };
        match kind {
            Some(kind) => self.read(entry, kind, text),
            None => self.unread(entry, "neither its name nor its content says what it is"),
        }
        if self.total.get() == 0 {
            self.stopped = Some(format!("it holds more than {} bytes", self.limits.total));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// An `antctl supportbundle` may hold the agents of several nodes: only one node is read.
    fn of_another_agent(&mut self, entry: &FileEntry) -> bool {
        let known = antctl::canonical_name(&entry.path).is_some();
        let folder = entry.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let Some(node) = antctl::node_name(folder).filter(|_| known) else {
            return false;
        };
        self.agents.insert(node.to_owned());
        let other = match &self.asked {
            Some(asked) => asked != node,
            // Whose state it would be is not clear any more: the names are all that is still needed.
            None => self.agents.len() > 1,
        };
        if other {
            self.unread(entry, format!("it is of node {node}"));
        }
        other
    }

    fn read(&mut self, entry: &FileEntry, kind: FileKind, text: Box<dyn BufRead + '_>) {
        self.newest = self.newest.max(entry.mtime);
        match kind {
            FileKind::Kube(hint) => self.kube(entry, hint, text),
            FileKind::ClusterInfo => self.cluster_info(entry, text),
            FileKind::Manifest => self.manifest(entry, text),
            FileKind::Iptables {
                family,
                variant,
                table,
            } => {
                let input = XtInput {
                    source: &entry.path,
                    family,
                    variant,
                    table,
                };
                self.iptables(entry, &iptables::parse(text, &input));
            }
            FileKind::Conntrack => {
                self.conntrack.insert(entry.path.clone());
            }
            FileKind::CrictlPods | FileKind::CrictlPs | FileKind::CrictlInspectp => {
                self.crictl(entry, &kind, text)
            }
            FileKind::Lease | FileKind::CniCache | FileKind::CniConfig => self.cni(entry, &kind, text),
            FileKind::Nft => self.nft(entry, text),
            FileKind::IpLink
            | FileKind::IpAddr
            | FileKind::IpRoute
            | FileKind::IpNeigh
            | FileKind::IpRule(_) => self.ip(entry, &kind, text),
            FileKind::Ipset => {
                let (sets, mut problems) = ipset::parse(text, &entry.path);
                problems.extend(empty(entry, sets.is_empty() && problems.is_empty()));
                let items: usize = sets.iter().map(|set| set.members.len()).sum();
                let whole = completeness(sets.len(), &problems);
                join(
                    &mut self.state.ipsets,
                    sets,
                    Self::report(entry, whole, items as u64),
                );
                self.state.problems.extend(problems);
            }
            FileKind::Ipvs => {
                let (services, mut problems) = ipvs::parse(text, &entry.path);
                problems.extend(empty(entry, services.is_empty() && problems.is_empty()));
                let items = services.len();
                let whole = completeness(items, &problems);
                join(
                    &mut self.state.ipvs,
                    services,
                    Self::report(entry, whole, items as u64),
                );
                self.state.problems.extend(problems);
            }
            FileKind::Counters | FileKind::Adapters | FileKind::HnsEndpoints | FileKind::PktmonList => {
                self.traffic(entry, &kind, text)
            }
            FileKind::CniLog => {
                let (events, problems) = cnilog::parse(text, &entry.path);
                let whole = completeness(events.len(), &problems);
                let report = Self::report(entry, whole, events.len() as u64);
                join(&mut self.state.history, events, report);
                self.state.problems.extend(problems);
            }
            FileKind::Capture => self.capture(entry, text),
            FileKind::Meta => self.meta_file(entry, text),
            FileKind::NodeName => self.node_name(entry, text),
            FileKind::Ignored => {}
            FileKind::Known(why) => self.unread(entry, why),
        }
    }

    pub(super) fn report(entry: &FileEntry, completeness: Completeness, items: u64) -> SourceReport {
        SourceReport {
            name: entry.path.clone(),
            completeness,
            items,
            read_at: entry.mtime,
            took_ms: 0.0,
        }
    }

    fn kube(&mut self, entry: &FileEntry, hint: Option<Kind>, mut text: Box<dyn BufRead + '_>) {
        let beginning = beginning(&mut text);
        self.kube_list(entry, hint, text, &beginning);
    }

    /// A list whose `beginning` tells whether it is JSON.
    fn kube_list(
        &mut self,
        entry: &FileEntry,
        hint: Option<Kind>,
        text: Box<dyn BufRead + '_>,
        beginning: &str,
    ) {
        let mut pods: Vec<Pod> = Vec::new();
        let (mut services, mut slices, mut nodes, mut cidrs) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut events = Vec::new();
        let mut sink = |item| match item {
            KubeItem::Pod(pod, flags) => {
                self.flag_cidrs.extend(flags);
                pods.push(*pod);
            }
            KubeItem::Service(service) => services.push(service),
            KubeItem::EndpointSlice(slice) => slices.push(slice),
            KubeItem::Node(node) => nodes.push(node),
            KubeItem::ServiceCidr(nets) => cidrs.extend(nets),
            KubeItem::Event(past) => events.extend(past),
        };
        let outcome = if beginning.is_empty() || beginning.starts_with(['{', '[']) {
            kube::read_json(text, hint, &mut sink)
        } else {
            kube::read_yaml(text, hint, &mut sink)
        };
        if let Completeness::Unavailable(why) = &outcome.completeness
            && outcome.problems.is_empty()
        {
            let what = format!("{why}; it begins with {beginning:?}");
            self.state
                .problems
                .push(problem(format!("{}:1", entry.path), what));
        }
        for (place, what) in &outcome.problems {
            let place = match place.strip_prefix("line ") {
                Some(line) => format!("{}:{}", entry.path, line.replace(" column ", ":")),
                None => format!("{}: {place}", entry.path),
            };
            self.state.problems.push(problem(place, what));
        }
        let mut kinds: Vec<Kind> = outcome.kinds.iter().map(|(kind, _)| *kind).collect();
        if kinds.is_empty() {
            // A file that was promised and could not be read is a source that is missing, not one that is empty.
            match (hint, &outcome.completeness) {
                (Some(hint), Completeness::Unavailable(_) | Completeness::Partial(_)) => kinds.push(hint),
                _ => return self.unread(entry, "it holds no object of a kind that is read"),
            }
        }
        for kind in kinds {
            let items = outcome.count(kind).unwrap_or(0);
            let report = Self::report(entry, outcome.completeness.clone(), items);
            let state = &mut self.state;
            match kind {
                Kind::Pod => {
                    let new = std::mem::take(&mut pods);
                    let new = without_known(&state.pods.value, new);
                    join(&mut state.pods, new, report);
                }
                Kind::Service => join(&mut state.services, std::mem::take(&mut services), report),
                Kind::EndpointSlice => join(&mut state.endpoint_slices, std::mem::take(&mut slices), report),
                Kind::Node => join(&mut state.nodes, std::mem::take(&mut nodes), report),
                Kind::ServiceCidr => join(&mut state.service_cidrs, std::mem::take(&mut cidrs), report),
                Kind::Event => join(&mut state.history, std::mem::take(&mut events), report),
            }
        }
    }

    /// `clusterinfo` of `antctl supportbundle`: for each kind a comment line with its name, a list as YAML without `kind`, and a
    /// line `---`; in any order (antrea `pkg/antctl/raw/supportbundle/command.go`).
    fn cluster_info(&mut self, entry: &FileEntry, mut text: Box<dyn BufRead + '_>) {
        let mut line = Vec::new();
        let mut number = 0_u64;
        // The list that is being read: its kind, the line that it begins after, its text.
        let mut list: Option<(Kind, u64, Vec<u8>)> = None;
        let mut any = false;
        let cut = loop {
            line.clear();
            match text.read_until(b'\n', &mut line) {
                Ok(0) => break list.is_some().then(|| "no `---` ends its last list".to_owned()),
                Ok(_) => number += 1,
                Err(err) => break Some(err.to_string()),
            }
            let content = line.trim_ascii_end();
            if content == b"---" {
                if let Some((kind, before, yaml)) = list.take() {
                    self.list_of_cluster_info(entry, kind, before, &yaml);
                    any = true;
                }
            } else if let Some(comment) = content.strip_prefix(b"#") {
                let kind = match comment {
                    b"pods" => Some(Kind::Pod),
                    b"nodes" => Some(Kind::Node),
                    _ => None,
                };
                list = kind.map(|kind| (kind, number, Vec::new()));
            } else if let Some((_, _, yaml)) = &mut list {
                if u64::try_from(yaml.len() + line.len()).unwrap_or(u64::MAX) > self.limits.in_memory {
                    break Some(format!("one list is larger than {} bytes", self.limits.in_memory));
                }
                yaml.extend_from_slice(&line);
            }
        };
        if let Some((kind, before, yaml)) = list.take() {
            self.list_of_cluster_info(entry, kind, before, &yaml);
            any = true;
        }
        if let Some(cut) = cut {
            let why = format!("{}: the text is cut off: {cut}", entry.path);
            self.state.problems.push(problem(
                format!("{}:{number}", entry.path),
                format!("the text is cut off: {cut}"),
            ));
            worsen(
                &mut self.state.pods.completeness,
                Completeness::Partial(why.clone()),
            );
            worsen(&mut self.state.nodes.completeness, Completeness::Partial(why));
        }
        if !any {
            self.unread(entry, "it holds no list of Pods or Nodes");
        }
    }

    fn list_of_cluster_info(&mut self, entry: &FileEntry, kind: Kind, before: u64, yaml: &[u8]) {
        // Empty lines in front make the line numbers those of the file.
        let text = std::io::repeat(b'\n').take(before).chain(yaml);
        let beginning = String::from_utf8_lossy(yaml.get(..80).unwrap_or(yaml));
        self.kube_list(entry, Some(kind), Box::new(BufReader::new(text)), &beginning);
    }

    /// A static Pod's manifest names a Pod whose mirror the API must have.
    fn manifest(&mut self, entry: &FileEntry, text: Box<dyn BufRead + '_>) {
        let mut found = Vec::new();
        let mut sink = |item| {
            if let KubeItem::Pod(pod, _) = item {
                found.push(pod.pod_name());
            }
        };
        let outcome = kube::read_yaml(text, None, &mut sink);
        if found.is_empty() {
            let why = outcome
                .problems
                .first()
                .map_or("it holds no Pod", |(_, what)| what.as_str());
            return self.unread(entry, format!("not a static Pod's manifest: {why}"));
        }
        for mut pod in found {
            if pod.namespace.is_empty() {
                pod.namespace = "default".to_owned();
            }
            self.manifests.push(Named {
                pod,
                by: entry.path.clone(),
            });
        }
    }

    fn iptables(&mut self, entry: &FileEntry, output: &iptables::XtOutput) {
        self.saved_at = self.saved_at.or(output.saved_at);
        self.state.problems.extend(output.problems.iter().cloned());
        if output.legacy_beside {
            self.legacy_beside.push(entry.path.clone());
        }
        let rules: usize = output.tables.iter().map(|table| table.rules().count()).sum();
        let report = Self::report(entry, output.completeness.clone(), rules as u64);
        let mut new: Vec<XtTable> = Vec::new();
        for table in &output.tables {
            let same = |known: &&XtTable| {
                (known.family, &known.name) == (table.family, &table.name)
                    && (known.variant == table.variant
                        || known.variant == XtVariant::Unknown
                        || table.variant == XtVariant::Unknown)
            };
            match self.state.xtables.value.iter().find(same) {
                // The same kernel object in two files is one object.
                Some(known) => self.state.problems.push(problem(
                    &entry.path,
                    format!(
                        "table {} was read from {} already; this copy is left out",
                        table.name, known.source
                    ),
                )),
                None => new.push(table.clone()),
            }
        }
        join(&mut self.state.xtables, new, report);
    }

    /// A save that warned of legacy tables is only a part, unless the legacy ones are here too.
    pub(super) fn judge_legacy(&mut self) {
        let has_legacy = self
            .state
            .xtables
            .value
            .iter()
            .any(|table| table.variant == XtVariant::Legacy);
        if let Some(path) = self.legacy_beside.first()
            && !has_legacy
        {
            let why =
                format!("{path}: tables of iptables-legacy exist beside these and are not in the bundle");
            worsen(&mut self.state.xtables.completeness, Completeness::Partial(why));
        }
    }

    fn meta_file(&mut self, entry: &FileEntry, text: Box<dyn BufRead + '_>) {
        let meta: MetaFile = match serde_json::from_reader(text) {
            Ok(meta) => meta,
            Err(err) => {
                let place = format!("{}:{}:{}", entry.path, err.line(), err.column());
                self.unread(entry, format!("not the JSON that was expected: {err}"));
                return self
                    .state
                    .problems
                    .push(problem(place, format!("expected node and taken_at: {err}")));
            }
        };
        if let Some(node) = meta.node.filter(|node| !node.is_empty()) {
            self.named
                .entry(node.clone())
                .or_insert_with(|| entry.path.clone());
            self.meta.node = Some((node, entry.path.clone()));
        }
        self.meta.taken_at = self.meta.taken_at.or(meta.taken_at);
        self.state.traits.extend(meta.traits);
        let identity = &mut self.state.identity;
        identity.machine_id = identity.machine_id.take().or(meta.machine_id);
        identity.booted_at = identity.booted_at.or(meta.booted_at);
    }

    /// The node's name alone, or `node: NAME` and `taken_at: TIME` lines.
    fn node_name(&mut self, entry: &FileEntry, text: Box<dyn BufRead + '_>) {
        let mut content = String::new();
        if let Err(err) = text.take(64 * 1024).read_to_string(&mut content) {
            return self.unread(entry, format!("cannot be read: {err}"));
        }
        let mut node = None;
        for line in content.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line
                .split_once(':')
                .map(|(key, value)| (key.trim().to_ascii_lowercase(), value.trim()))
            {
                Some((key, value)) if matches!(key.as_str(), "node" | "name" | "hostname") => {
                    node = node.or_else(|| Some(value.to_owned()));
                }
                Some((key, value)) if matches!(key.as_str(), "taken_at" | "time" | "date") => {
                    self.meta.taken_at = self.meta.taken_at.or(value.parse().ok());
                }
                Some(_) => {}
                None => node = node.or_else(|| Some(line.to_owned())),
            }
        }
        match node {
            Some(node) if !node.contains(char::is_whitespace) => {
                self.named
                    .entry(node.clone())
                    .or_insert_with(|| entry.path.clone());
                self.meta.node.get_or_insert((node, entry.path.clone()));
            }
            _ => self.unread(entry, "it holds no node name"),
        }
    }
}

/// Pods that are not known yet. A kubelet's list has a static Pod under the UID of its manifest, which the API has as
/// the mirror's annotation.
fn without_known(known: &[Pod], new: Vec<Pod>) -> Vec<Pod> {
    let uids: HashSet<_> = known
        .iter()
        .flat_map(|pod| [&pod.uid, &pod.static_uid])
        .flatten()
        .collect();
    new.into_iter()
        .filter(|pod| pod.uid.as_ref().is_none_or(|uid| !uids.contains(uid)))
        .collect()
}
