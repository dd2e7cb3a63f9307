//! Judging: every rule over one reading.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use crate::{
    finding::{Evidence, Finding, XtPlace},
    marks,
    model::{
        CniConfig, ContainerId, CtEntry, CtTuple, Family, NftFamily, NodeState, NplAnnotation, Proto,
        Sandbox, Timestamp, XtChain, XtRule, XtTable,
    },
    roster::{Residence, Roster, Since},
    rules::{self, Rule},
    services::ServiceMap,
    settings::Settings,
};

/// What a rule is given.
pub struct Judge<'a> {
    /// The reading.
    pub state: &'a NodeState,
    /// Who lives here.
    pub roster: Roster<'a>,
    /// Connections whose replies grew between two readings.
    answering: HashSet<Connection>,
    /// Services by their addresses and ports.
    pub services: ServiceMap<'a>,
    /// The numbers.
    pub settings: &'a Settings,
    started: HashMap<usize, Vec<(usize, &'a Sandbox)>>,
    /// The same of nftables' chains, by family, table and chain; places are those among all rules.
    started_nft: HashMap<NftPlace<'a>, Vec<(usize, &'a Sandbox)>>,
    /// The networks of containers, by every object that names both; empty where `networks` is none.
    network_of: HashMap<ContainerId, String>,
    /// Networks that the runtime which was read is known to use; none where that does not matter.
    networks: Option<HashSet<String>>,
}

impl<'a> Judge<'a> {
    /// Joins the sources of `state`. `before` is an earlier reading of the same node, by which replies that came between
    /// the two are seen (law 7).
    pub fn new(
        state: &'a NodeState,
        before: Option<&NodeState>,
        settings: &'a Settings,
        now: Timestamp,
    ) -> Self {
        let answering: HashSet<Connection> = before
            .map(|before| answered_between(before, state).map(connection).collect())
            .unwrap_or_default();
        let since = Since {
            replied: before
                .map(|before| answered_between(before, state).map(|e| e.reply.src).collect())
                .unwrap_or_default(),
            lost: before
                .map(|before| lost_between(before, state))
                .unwrap_or_default(),
        };
        let roster = Roster::new(state, settings, now, since);
        let started = started(state, &roster);
        let networks = networks_of_the_runtime(state);
        Self {
            started,
            started_nft: started_nft(state, &roster),
            network_of: match networks {
                None => HashMap::new(),
                Some(_) => networks_of_containers(state),
            },
            state,
            roster,
            answering,
            services: ServiceMap::new(state),
            settings,
            networks,
        }
    }

    /// Who a container ID belongs to that an object of this CNI network names, which also names the addresses `at`. In a
    /// recording nobody looked for other runtimes (law 5), so a container of a network that the runtime is not known to use may
    /// well be another one's: podman's, nerdctl's.
    pub fn container(
        &self,
        network: &str,
        id: &ContainerId,
        born: Option<Timestamp>,
        at: impl IntoIterator<Item = IpAddr>,
    ) -> Residence {
        self.container_of(Some(network), id, born, at)
    }

    /// The same of an object that may not name its network.
    pub fn container_of(
        &self,
        network: Option<&str>,
        id: &ContainerId,
        born: Option<Timestamp>,
        at: impl IntoIterator<Item = IpAddr>,
    ) -> Residence {
        let residence = self.roster.container(id, born);
        if !residence.is_dead() {
            return residence;
        }
        let why = match (&self.networks, network) {
            (Some(known), Some(network)) if !known.contains(network) => Some(format!(
                "the runtime of network {network:?}, in which no sandbox is that was read"
            )),
            (Some(_), None) => Some(
                "the container's network, to tell which runtime's it is (no lease, cache entry or other rule has it)"
                    .to_owned(),
            ),
            _ => None,
        };
        // Law 7: no lease or cache entry may be left that gives the namespace to this container.
        let why = why.or_else(|| at.into_iter().find_map(|ip| self.roster.stray_life(ip)));
        match why {
            Some(why) => Residence::unknown(residence.owner, residence.evidence, vec![why]),
            None => residence,
        }
    }

    /// Everything that the given rules find, in the order of the rules and of the objects.
    pub fn findings<'r>(&self, rules: impl IntoIterator<Item = &'r Rule>) -> Vec<Finding> {
        rules.into_iter().flat_map(|rule| (rule.judge)(self)).collect()
    }

    /// True if this connection got replies between the two readings: the kernel's veto (law 7).
    pub fn is_answering(&self, entry: &CtEntry) -> bool {
        self.answering.contains(&connection(entry))
    }

    /// Everything that all rules find.
    pub fn all(&self) -> Vec<Finding> {
        self.findings(rules::ALL.iter().copied())
    }

    /// The network of a container, where that matters and another object names it.
    pub(crate) fn network_of(&self, id: &ContainerId) -> Option<&str> {
        self.network_of.get(id).map(String::as_str)
    }

    /// The same as [`Judge::born`] of a rule of nftables, by its place among all of them.
    pub(crate) fn born_in_nft(&self, id: &ContainerId, at: Option<usize>) -> Option<(Timestamp, Evidence)> {
        let by_order = at.and_then(|at| {
            let rule = self.state.nft.value.rules.get(at)?;
            let place = (rule.family, rule.table.as_str(), rule.chain.as_str());
            Self::before_a_sandbox(self.started_nft.get(&place)?, at, &rule.chain)
        });
        self.by_files(id)
            .into_iter()
            .chain(by_order)
            .min_by_key(|(at, _)| *at)
    }

    /// By the lease's and the cache entry's times.
    fn by_files(&self, id: &ContainerId) -> Option<(Timestamp, Evidence)> {
        self.roster.files(id).min().map(|(at, path)| {
            (
                at,
                Evidence::new(path, format!("{} existed at {at:.0}", id.short())),
            )
        })
    }

    /// By the first rule of a sandbox of known start behind a place.
    fn before_a_sandbox(
        started: &[(usize, &Sandbox)],
        place: usize,
        chain: &str,
    ) -> Option<(Timestamp, Evidence)> {
        let after = started.partition_point(|(at, _)| *at <= place);
        let (_, sandbox) = started.get(after)?;
        let at = sandbox.created_at?;
        let text = format!(
            "it stands before the rule of sandbox {}, made at {at:.0}",
            sandbox.id.short()
        );
        Some((at, Evidence::new(chain, text)))
    }

    /// When an object that names this container is known to have existed already, with who said so: by the lease's and the
    /// cache entry's times, or by its place in a chain that is only appended to, before a rule of a sandbox of known start
    /// (law 6).
    pub fn born(&self, id: &ContainerId, place: Option<(&XtChain, usize)>) -> Option<(Timestamp, Evidence)> {
        let by_order = place.and_then(|(chain, index)| {
            let started = self.started.get(&std::ptr::from_ref(chain).addr())?;
            Self::before_a_sandbox(started, index, &chain.name)
        });
        self.by_files(id)
            .into_iter()
            .chain(by_order)
            .min_by_key(|(at, _)| *at)
    }

    /// The place of a table.
    pub fn place(table: &XtTable) -> XtPlace {
        XtPlace {
            variant: table.variant,
            family: table.family,
            table: table.name.clone(),
        }
    }

    /// The iptables tables of this name.
    pub fn tables(&self, name: &str) -> impl Iterator<Item = &'a XtTable> {
        let name = name.to_owned();
        self.state.xtables.value.iter().filter(move |t| t.name == name)
    }
}

/// Where in the chains that plugins append to rules stand that name a sandbox of known start, by a chain's place in memory.
fn started<'a>(state: &'a NodeState, roster: &Roster<'a>) -> HashMap<usize, Vec<(usize, &'a Sandbox)>> {
    let chains = state.xtables.value.iter().flat_map(|table| &table.chains);
    chains
        .filter(|chain| marks::is_append_only(&chain.name))
        .map(|chain| {
            let marked = chain.rules.iter().enumerate().filter_map(|(index, rule)| {
                let mark = rule.spec.comment.as_deref().and_then(marks::cni_comment)?;
                let sandbox = roster.sandbox(&mark.container)?;
                sandbox.created_at.map(|_| (index, sandbox))
            });
            (std::ptr::from_ref(chain).addr(), marked.collect())
        })
        .collect()
}

/// A chain of nftables.
type NftPlace<'a> = (NftFamily, &'a str, &'a str);

/// The same in nftables' chains, where the plugins append too.
fn started_nft<'a>(
    state: &'a NodeState,
    roster: &Roster<'a>,
) -> HashMap<NftPlace<'a>, Vec<(usize, &'a Sandbox)>> {
    let mut out: HashMap<NftPlace<'a>, Vec<(usize, &'a Sandbox)>> = HashMap::new();
    for (at, rule) in state.nft.value.rules.iter().enumerate() {
        let Some(mark) = marks::nft::of(rule) else {
            continue;
        };
        let sandbox = roster.sandbox(&mark.container).filter(|sandbox| {
            let same = mark.cut.as_ref().is_none_or(|cut| cut.is_of(&sandbox.id));
            same && sandbox.created_at.is_some()
        });
        if let Some(sandbox) = sandbox {
            let place = (rule.family, rule.table.as_str(), rule.chain.as_str());
            out.entry(place).or_default().push((at, sandbox));
        }
    }
    out
}

/// Which network a container is in, by leases, by CNI's cache and by the marks of masquerades.
fn networks_of_containers(state: &NodeState) -> HashMap<ContainerId, String> {
    let leases = state.ipam.value.leases.iter();
    let leased = leases.map(|l| (l.container.clone(), l.network.clone()));
    let cached = state.cni_cache.value.iter();
    let cached = cached.map(|e| (e.container.clone(), e.network.clone()));
    let rules = state.nft.value.rules.iter().filter_map(marks::nft::masquerade);
    let marked = rules
        .filter(|mark| mark.cut.is_none())
        .filter_map(|mark| Some((mark.container, mark.network?)));
    leased.chain(cached).chain(marked).collect()
}

/// The network that CNI's configuration gives to Pods, and those of objects whose sandbox the runtime lists or that the kubelet's
/// UID of a Pod stands in. None where other runtimes were looked for: there they need not be told apart by their networks.
fn networks_of_the_runtime(state: &NodeState) -> Option<HashSet<String>> {
    let runtime = &state.runtime.value;
    if runtime.looked_for_others {
        return None;
    }
    let known = |id: &ContainerId| runtime.sandboxes.iter().any(|s| s.id.same_or_prefix(id));
    // containerd and CRI-O take the first file by name (go-cni's `max_conf_num` is 1, ocicni's default network is the
    // first); podman and nerdctl put theirs into the same directory.
    let file = |config: &CniConfig| config.path.rsplit('/').next().map(str::to_owned);
    let configured = state.cni_config.value.iter().min_by_key(|c| file(c));
    let mut networks: HashSet<String> = configured.map(|c| c.name.clone()).into_iter().collect();
    // Only a kubelet's runtime passes a Pod's UID on.
    let cached = state.cni_cache.value.iter();
    let cached = cached.filter(|e| e.uid.is_some() || known(&e.container));
    networks.extend(cached.map(|e| e.network.clone()));
    let leases = state.ipam.value.leases.iter().filter(|l| known(&l.container));
    networks.extend(leases.map(|l| l.network.clone()));
    let rules = state.xtables.value.iter().flat_map(XtTable::rules);
    let marks = rules.filter_map(|(_, rule)| marks::cni_comment(rule.spec.comment.as_deref()?));
    networks.extend(marks.filter(|m| known(&m.container)).map(|m| m.network));
    let marks = state.nft.value.rules.iter().filter_map(marks::nft::masquerade);
    networks.extend(marks.filter(|m| known(&m.container)).filter_map(|m| m.network));
    Some(networks)
}

/// What a connection is known by from one reading to the next.
type Connection = (Proto, u16, CtTuple);

fn connection(entry: &CtEntry) -> Connection {
    (entry.proto, entry.zone, entry.original)
}

/// Connections that got replies between two readings, by the counters of the reply direction.
fn answered_between<'a>(before: &NodeState, after: &'a NodeState) -> impl Iterator<Item = &'a CtEntry> {
    let entries = before.conntrack.value.entries.iter();
    let counted: HashMap<Connection, u64> = entries
        .filter_map(|e| Some((connection(e), e.reply_count?.packets)))
        .collect();
    after.conntrack.value.entries.iter().filter(move |e| {
        let then = counted.get(&connection(e));
        then.zip(e.reply_count)
            .is_some_and(|(then, now)| now.packets > *then)
    })
}

/// Law 15: a source that lost most of what it told a moment ago is not believed. A few objects may well end at once.
fn lost_between(before: &NodeState, after: &NodeState) -> Vec<String> {
    const FEW: usize = 4;
    let told = |state: &NodeState| {
        [
            ("Pods", state.pods.value.len()),
            ("sandboxes", state.runtime.value.sandboxes.len()),
            ("Services", state.services.value.len()),
            (
                "endpoints",
                state
                    .endpoint_slices
                    .value
                    .iter()
                    .map(|s| s.endpoints.len())
                    .sum(),
            ),
        ]
    };
    std::iter::zip(told(before), told(after))
        .filter(|((_, then), (_, now))| *then > FEW && now * 2 < *then)
        .map(|((what, then), (_, now))| {
            format!("a steady source: of {then} {what} {now} are left since the reading before")
        })
        .collect()
}

/// How many objects of each kind a reading holds. The kernel's own tools count the same.
pub fn object_counts(state: &NodeState) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    let mut put = |kind, number: usize| {
        if number > 0 {
            counts.insert(kind, number as u64);
        }
    };
    let tables = &state.xtables.value;
    put("xt-rule", tables.iter().flat_map(XtTable::rules).count());
    let units = tables.iter().map(|table| {
        let jumps = table.rules().map(|(_, rule)| rule);
        let units = jumps.filter(|rule| marks::is_hostport_jump(rule) || marks::is_masquerade_jump(rule));
        units
            .filter_map(|rule| rule.spec.target.as_deref())
            .collect::<HashSet<_>>()
            .len()
    });
    put("xt-unit", units.sum());
    put("nft-rule", state.nft.value.rules.len());
    let marked = state.nft.value.rules.iter();
    let units: HashSet<_> = marked
        .filter_map(|rule| Some((rule.family, &rule.table, marks::nft::of(rule)?)))
        .collect();
    put("nft-unit", units.len());
    put(
        "nft-element",
        state.nft.value.sets.iter().map(|s| s.elements.len()).sum(),
    );
    put(
        "lease",
        state.ipam.value.leases.len() + state.ipam.value.corrupt.len(),
    );
    put("cni-cache-entry", state.cni_cache.value.len());
    put("sandbox", state.runtime.value.sandboxes.len());
    put("container", state.runtime.value.containers.len());
    put("pod", state.local_pods().count());
    put("service", state.services.value.len());
    put("endpoint-slice", state.endpoint_slices.value.len());
    put("link", state.links.value.len());
    put("address", state.addresses.value.len());
    put("route", state.routes.value.len());
    put("neighbour", state.neighbours.value.len());
    put("ip-rule", state.ip_rules.value.len());
    put(
        "ipset-member",
        state.ipsets.value.iter().map(|set| set.members.len()).sum(),
    );
    put("ipvs-service", state.ipvs.value.len());
    put(
        "ipvs-server",
        state.ipvs.value.iter().map(|v| v.servers.len()).sum(),
    );
    put("namespace", state.namespaces.value.len());
    let owned = state.adapters.value.iter().flat_map(|list| list.addresses());
    let owned: HashSet<IpAddr> = owned.map(|(_, owned)| owned.address).collect();
    put("nic-address", owned.len());
    put("hns-endpoint", state.hns_endpoints.value.len());
    put(
        "counter",
        state
            .counters
            .value
            .iter()
            .map(|file| file.counters.series.len())
            .sum(),
    );
    let flows = state.captures.value.iter().map(|capture| capture.totals.flows);
    put("flow", usize::try_from(flows.sum::<u64>()).unwrap_or(usize::MAX));
    let mappings = state.local_pods().map(|p| match &p.npl {
        NplAnnotation::Entries(entries) => entries.len(),
        _ => 0,
    });
    put("npl-mapping", mappings.sum());
    put(
        "conntrack-udp",
        usize::try_from(state.conntrack.value.udp).unwrap_or(usize::MAX),
    );
    counts
}

/// Objects by kind that bear the mark of a writer whose objects may be deleted: what the share limit of law 15 is a share of.
/// A table of thousands of rules of others says nothing about how much of ours is being taken.
pub(crate) fn owned_counts(state: &NodeState) -> BTreeMap<&'static str, u64> {
    let mut counts = object_counts(state);
    let owned = |chain: &XtChain, rule: &XtRule| {
        chain.name == marks::ANTREA_NPL_CHAIN
            || rule
                .spec
                .comment
                .as_deref()
                .is_some_and(|c| marks::cni_comment(c).is_some())
    };
    let rules = state.xtables.value.iter().flat_map(XtTable::rules);
    let rules = rules.filter(|(chain, rule)| owned(chain, rule)).count();
    counts.insert("xt-rule", rules as u64);
    let rules = state.nft.value.rules.iter();
    let rules = rules.filter(|rule| marks::nft::of(rule).is_some()).count();
    counts.insert("nft-rule", rules as u64);
    let sets = state.nft.value.sets.iter();
    let elements = sets.filter(|set| set.table == marks::TOMBSTONE_TABLE);
    let elements = elements.map(|set| set.elements.len()).sum::<usize>();
    counts.insert("nft-element", elements as u64);
    counts.insert("conntrack", state.conntrack.value.udp);
    counts
}

/// The addresses of the node: by the kernel, and by the Node object.
pub fn node_addresses(state: &NodeState, family: Family) -> impl Iterator<Item = IpAddr> + '_ {
    let kernel = state.addresses.value.iter().map(|a| a.ip);
    let api = state
        .kube_node()
        .into_iter()
        .flat_map(|n| n.addresses.iter().copied());
    api.chain(kernel)
        .filter(move |ip| Family::of(*ip) == family && !ip.is_loopback())
}
