//! One reading of a live node, from all sources side by side.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread::{self, ScopedJoinHandle};

use ipnet::IpNet;
use jiff::Timestamp;
use sexton_core::model::{
    Completeness, Conntrack, Facts, Family, NftFamily, NftState, NodeState, Route, XtVariant,
};

use crate::apply::Hands;
use crate::kinds::Kinds;
use crate::netlink::{self, TableName, WantedConntrack};
use crate::options::{KeepConntrack, LinuxOptions, Tracked};
use crate::procs::Processes;
use crate::source::{Watch, chain};
use crate::xtables::{self, XtReading};
use crate::{api, cni_files, identity, kubelet, modules, namespaces, runtime};

/// Why a live node cannot be opened at all. A source that is missing is no reason: it is said in its facts.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system gave no runtime for sockets and timers.
    #[error("cannot start the reader of sockets")]
    Runtime(#[source] std::io::Error),
    /// The process file system is not there.
    #[error("{} is not procfs", path.display())]
    NoProc {
        /// Where it was expected.
        path: std::path::PathBuf,
    },
}

/// A live Linux node.
pub struct LinuxNode {
    pub(crate) options: LinuxOptions,
    pub(crate) runtime: tokio::runtime::Runtime,
    api_server: Option<api::ApiServer>,
    pub(crate) hands: Hands,
}

impl LinuxNode {
    /// Makes ready to read the node that this program runs on. Nothing is read yet.
    ///
    /// # Errors
    ///
    /// Only what makes any reading impossible: no procfs, no runtime.
    pub fn open(options: LinuxOptions) -> Result<Self, OpenError> {
        if !options.proc.join("self/ns").exists() {
            return Err(OpenError::NoProc {
                path: options.proc.clone(),
            });
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(OpenError::Runtime)?;
        Ok(Self {
            options,
            runtime,
            api_server: None,
            hands: Hands::default(),
        })
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &LinuxOptions {
        &self.options
    }

    /// Reads everything.
    pub fn observe(&mut self) -> NodeState {
        self.observe_only(Kinds::ALL)
    }

    /// Reads some parts. The others stay empty with the completeness `Unavailable("not read")`.
    pub fn observe_only(&mut self, kinds: Kinds) -> NodeState {
        let taken_at = Timestamp::now();
        let options = &self.options;
        let proc = options.proc.as_path();
        let processes = Processes::read(proc);
        let kubelet = kubelet::read(proc, &processes, &options.kubelet_config);
        let identity = identity::read(options.node_name.as_deref(), proc, &kubelet);
        let tables = if kinds.intersects(Kinds::XTABLES | Kinds::NFT) {
            nft_tables(options)
        } else {
            Ok(Vec::new())
        };
        let api_server = &mut self.api_server;
        let mut state = NodeState {
            identity,
            taken_at: Some(taken_at),
            live: true,
            ..NodeState::default()
        };
        // From the reader of routes to that of connections: whether IPv6 leads anywhere. No answer is a yes.
        let (tell, ipv6) = mpsc::channel();
        thread::scope(|scope| {
            // One after the other: both hang on one lock of the kernel's (rtnl), and would only wait for it side by side.
            let routing = kinds.intersects(Kinds::ROUTING | Kinds::NAMESPACES).then(|| {
                scope.spawn(|| {
                    let routing = kinds.intersects(Kinds::ROUTING).then(netlink::read_routing);
                    // Nobody waits for it where connections are not read.
                    let _ = routing.as_ref().map(|r| tell.send(ipv6_leads_on(&r.routes)));
                    drop(tell);
                    (
                        routing,
                        kinds
                            .contains(Kinds::NAMESPACES)
                            .then(|| namespaces::read(proc, &processes)),
                    )
                })
            });
            let nft = kinds.contains(Kinds::NFT).then(|| {
                // What iptables' own tool can print is left to it.
                scope.spawn(|| {
                    read_nft("nftables", &tables, &|family, name| {
                        !xtables::is_candidate(family, name)
                    })
                })
            });
            let conntrack = kinds
                .contains(Kinds::CONNTRACK)
                .then(|| scope.spawn(move || read_conntrack(options, &|| ipv6.recv().unwrap_or(true))));
            let xt = kinds
                .intersects(Kinds::XTABLES | Kinds::NFT)
                .then(|| scope.spawn(|| xtables::read(proc, &tables, options.deadline)));
            let files = kinds
                .intersects(Kinds::CNI_CONFIG | Kinds::IPAM | Kinds::CNI_CACHE)
                .then(|| scope.spawn(|| cni_files::read(options)));

            // What waits for answers of other programs waits side by side.
            let (api, runtime) = self.runtime.block_on(async {
                let name = state.identity.name.as_str();
                let api = api::read(&options.api, api_server, name, kinds, options.deadline);
                let runtime = async {
                    if kinds.contains(Kinds::RUNTIME) {
                        runtime::read(options, &kubelet, &processes).await
                    } else {
                        Facts::default()
                    }
                };
                tokio::join!(api, runtime)
            });
            state.runtime = runtime;
            state.pods = api.pods;
            state.services = api.services;
            state.endpoint_slices = api.endpoint_slices;
            state.nodes = api.nodes;
            state.service_cidrs = api.service_cidrs;
            state.problems.extend(api.problems);

            if let Some(read) = files.and_then(|reader| reader.join().ok()) {
                if kinds.contains(Kinds::CNI_CONFIG) {
                    state.cni_config = read.config;
                }
                if kinds.contains(Kinds::IPAM) {
                    state.ipam = read.ipam;
                }
                if kinds.contains(Kinds::CNI_CACHE) {
                    state.cni_cache = read.cache;
                }
                state.problems.extend(read.problems);
            }
            let (routing, namespaces) = match routing.map(ScopedJoinHandle::join) {
                None => (None, None),
                Some(Ok(read)) => read,
                Some(Err(_)) => (
                    Some(netlink::no_routing(UNEXPECTED)),
                    Some(Watch::start("namespaces").unavailable(UNEXPECTED)),
                ),
            };
            if let Some(read) = routing {
                // The links are read for their names whenever one of the others is.
                if kinds.contains(Kinds::LINKS) {
                    state.links = read.links;
                }
                if kinds.contains(Kinds::ADDRESSES) {
                    state.addresses = read.addresses;
                }
                if kinds.contains(Kinds::ROUTES) {
                    state.routes = read.routes;
                }
                if kinds.contains(Kinds::NEIGHBOURS) {
                    state.neighbours = read.neighbours;
                }
                if kinds.contains(Kinds::IP_RULES) {
                    state.ip_rules = read.rules;
                }
            }
            if let Some(reader) = conntrack {
                state.conntrack = joined(reader, "conntrack");
            }
            if let Some(read) = namespaces.filter(|_| kinds.contains(Kinds::NAMESPACES)) {
                state.namespaces = read;
            }
            let xt = xt.map(|reader| reader.join().unwrap_or_else(|_| xtables::broken()));
            if let Some(reader) = nft {
                state.nft = joined(reader, "nftables");
                if let Some(rest) = xt.as_ref().and_then(|xt| read_rest(&tables, xt)) {
                    join_nft(&mut state.nft, rest);
                }
            }
            if let Some(xt) = xt
                && kinds.contains(Kinds::XTABLES)
            {
                state.xtables = xt.facts;
                state.problems.extend(xt.problems);
            }
        });
        state
    }
}

/// What a source's thread gave.
fn joined<T: Default>(reader: ScopedJoinHandle<'_, Facts<T>>, name: &str) -> Facts<T> {
    reader
        .join()
        .unwrap_or_else(|_| Watch::start(name).unavailable(UNEXPECTED))
}

/// Why a source whose thread panicked has nothing.
const UNEXPECTED: &str = "its reader ended unexpectedly";

/// The tables that nf_tables holds, or why that is not known. None where nf_tables is not loaded: asking would load it.
fn nft_tables(options: &LinuxOptions) -> Result<Vec<TableName>, String> {
    if modules::would_load(&options.proc, "nf_tables", "nf_tables_getgen") {
        return Ok(Vec::new());
    }
    netlink::read_nft_tables().map_err(|error| chain(&error))
}

fn read_nft(
    name: &str,
    tables: &Result<Vec<TableName>, String>,
    wanted: &dyn Fn(NftFamily, &str) -> bool,
) -> Facts<NftState> {
    let watch = Watch::start(name);
    match tables {
        Err(why) => return watch.unavailable(why.clone()),
        // Nothing is there, or nothing of this part: no more questions.
        Ok(tables) if tables.is_empty() => {
            return watch.facts(NftState::default(), Completeness::Complete, 0);
        }
        Ok(_) => {}
    }
    match netlink::read_nft(wanted) {
        Err(error) => watch.unavailable(chain(&error)),
        Ok(reading) => {
            let mut problems = Vec::new();
            if !reading.steady {
                problems.push("the ruleset was changed during each of several readings".to_owned());
            }
            if reading.unreadable > 0 {
                problems.push(format!("{} elements could not be read", reading.unreadable));
            }
            let completeness = if problems.is_empty() {
                Completeness::Complete
            } else {
                Completeness::Partial(problems.join("; "))
            };
            let elements: usize = reading.state.sets.iter().map(|set| set.elements.len()).sum();
            let items = elements + reading.state.rules.len();
            watch.facts(reading.state, completeness, items)
        }
    }
}

/// Chains that iptables' tool printed, with their tables.
fn given(xt: &XtReading) -> HashSet<(NftFamily, &str, &str)> {
    let nft = xt
        .facts
        .value
        .iter()
        .filter(|table| table.variant == XtVariant::Nft);
    nft.flat_map(|table| {
        let family = match table.family {
            Family::Ipv4 => NftFamily::Ip,
            Family::Ipv6 => NftFamily::Ip6,
        };
        let chains = table.chains.iter();
        chains.map(move |chain| (family, table.name.as_str(), chain.name.as_str()))
    })
    .collect()
}

/// Reads what iptables' tool did not print, or not all of: tables that could be its own and hold something that it
/// does not know.
fn read_rest(tables: &Result<Vec<TableName>, String>, xt: &XtReading) -> Option<Facts<NftState>> {
    let given = given(xt);
    let whole = xt.facts.is_complete();
    let left: HashSet<&TableName> = tables
        .iter()
        .flatten()
        .filter(|(family, name)| xtables::is_candidate(*family, name))
        .filter(|(family, name)| !whole || !given.iter().any(|(f, n, _)| f == family && n == name))
        .collect();
    if left.is_empty() {
        return None;
    }
    let mut rest = read_nft("nftables, of iptables' tables", tables, &|family, name| {
        left.contains(&(family, name.to_owned()))
    });
    let state = &mut rest.value;
    state
        .chains
        .retain(|chain| !given.contains(&(chain.family, &chain.table, &chain.name)));
    state
        .rules
        .retain(|rule| !given.contains(&(rule.family, &rule.table, &rule.chain)));
    // A table of which nothing is left was iptables' after all.
    let mut used: HashSet<TableName> = HashSet::new();
    used.extend(
        state
            .chains
            .iter()
            .map(|chain| (chain.family, chain.table.clone())),
    );
    used.extend(state.sets.iter().map(|set| (set.family, set.table.clone())));
    let shown = |(family, name): &TableName| given.iter().any(|(f, n, _)| f == family && n == name);
    state.tables.retain(|table| used.contains(table) || !shown(table));
    Some(rest)
}

fn join_nft(first: &mut Facts<NftState>, second: Facts<NftState>) {
    let mut more = second.value;
    let value = &mut first.value;
    value.generation = more.generation.or(value.generation);
    value.tables.append(&mut more.tables);
    value.sets.append(&mut more.sets);
    value.chains.append(&mut more.chains);
    value.rules.append(&mut more.rules);
    first.completeness = first.completeness.clone().max(second.completeness);
    first.reports.extend(second.reports);
}

/// Whether a packet of IPv6 can be forwarded or sent to anywhere: there is a route that is not of a link itself, multicast's or loopback's.
fn ipv6_leads_on(routes: &Facts<Vec<Route>>) -> bool {
    let leads_on = |route: &Route| match (route.dst, route.gateway) {
        (Some(IpNet::V6(to)), _) => {
            let ip = to.addr();
            !ip.is_loopback() && !ip.is_multicast() && !ip.is_unicast_link_local()
        }
        (None, Some(gateway)) => gateway.is_ipv6(),
        // A default route by a link: it may be of either.
        (None, None) => true,
        (Some(IpNet::V4(_)), _) => false,
    };
    !routes.is_complete() || routes.value.iter().any(leads_on)
}

/// `ipv6` is asked once IPv4's entries are read.
fn read_conntrack(options: &LinuxOptions, ipv6: &dyn Fn() -> bool) -> Facts<Conntrack> {
    let watch = Watch::start("conntrack");
    let proc = options.proc.as_path();
    // Without the module that tracks there is nothing tracked, and asking would load it.
    let tracking = proc.join("sys/net/netfilter/nf_conntrack_max").exists()
        || proc.join("sys/net/nf_conntrack_max").exists();
    if !tracking && modules::would_load(proc, "nf_conntrack", "nf_conntrack_in") {
        return watch.facts(Conntrack::default(), Completeness::Complete, 0);
    }
    if modules::would_load(proc, "nf_conntrack_netlink", "ctnetlink_init") {
        return watch.unavailable(
            "the kernel's module nf_conntrack_netlink is not loaded, and reading loads nothing",
        );
    }
    let accounting = netlink::accounting(proc);
    let every = match options.tracked {
        Tracked::Every => true,
        Tracked::Udp => false,
        Tracked::UdpAndReplies => accounting == Some(true),
    };
    let wanted = if every {
        WantedConntrack::Every
    } else {
        WantedConntrack::UdpOfBoth(ipv6)
    };
    let keep_all: KeepConntrack = std::sync::Arc::new(|_| true);
    let keep = options.keep_conntrack.as_ref().unwrap_or(&keep_all);
    match netlink::read_conntrack(&wanted, keep.as_ref()) {
        Err(error) => watch.unavailable(chain(&error)),
        Ok(reading) => {
            let completeness = if reading.unreadable == 0 {
                Completeness::Complete
            } else {
                Completeness::Partial(format!("{} entries could not be read", reading.unreadable))
            };
            let items = usize::try_from(reading.seen).unwrap_or(usize::MAX);
            let value = Conntrack {
                entries: reading.entries,
                udp: reading.udp,
                accounting,
            };
            watch.facts(value, completeness, items)
        }
    }
}
