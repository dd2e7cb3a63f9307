//! The API server's view: the Pods of this node, the Node, Services, EndpointSlices and ServiceCIDRs.
//!
//! Each resource is a list of its own, read page by page, with a completeness of its own: a 403 on one does not hide
//! another, and what came before a break is kept as a part.

use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use ipnet::IpNet;
use kube::api::{ListParams, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use sexton_core::model::{Completeness, EndpointSlice, Facts, KubeNode, Pod, Problem, Service};
use sexton_formats::kube::{Kind, KubeItem, read_json};

use crate::kinds::Kinds;
use crate::options::ApiAccess;
use crate::source::{Watch, chain};

/// Objects a page. The API server's own clients ask for as many.
const PAGE: u32 = 500;

/// What the API server told.
#[derive(Debug, Default)]
pub(crate) struct ApiReading {
    pub(crate) pods: Facts<Vec<Pod>>,
    pub(crate) services: Facts<Vec<Service>>,
    pub(crate) endpoint_slices: Facts<Vec<EndpointSlice>>,
    pub(crate) nodes: Facts<Vec<KubeNode>>,
    pub(crate) service_cidrs: Facts<Vec<IpNet>>,
    pub(crate) problems: Vec<Problem>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
enum AccessError {
    #[error("the API server is not asked")]
    Off,
    #[error(
        "no way to the API server is known: no kubeconfig, no service account, and none of the kubelet's files; give --kubeconfig"
    )]
    NoWay,
    #[error("what tells the way to the API server cannot be used")]
    Infer(#[source] kube::config::InferConfigError),
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    #[error("no client can be made of the kubeconfig")]
    Client(#[source] kube::Error),
}

/// The kubelet's own way to the API server, where a node's tools put it: kubeadm, others, k3s.
const KUBELETS_FILES: [&str; 4] = [
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/etc/kubernetes/admin.conf",
];

/// As kubectl finds its way; then as the kubelet of this node does.
async fn infer() -> Result<Config, AccessError> {
    let error = match Config::infer().await {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    if let Some(path) = KUBELETS_FILES.iter().find(|path| Path::new(path).exists()) {
        let read = Kubeconfig::read_from(path).map_err(AccessError::Kubeconfig)?;
        let made = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
        return made.map_err(AccessError::Kubeconfig);
    }
    let named =
        std::env::var_os("KUBECONFIG").is_some() || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let usual = std::env::var_os("HOME").is_some_and(|home| Path::new(&home).join(".kube/config").exists());
    Err(if named || usual {
        AccessError::Infer(error)
    } else {
        AccessError::NoWay
    })
}

/// Makes a client. One client serves for the life of a [`LinuxNode`](crate::LinuxNode).
async fn connect(access: &ApiAccess) -> Result<Client, AccessError> {
    let config = match access {
        ApiAccess::Off => return Err(AccessError::Off),
        ApiAccess::Infer => infer().await?,
        ApiAccess::Kubeconfig { path, context } => {
            let read = match path {
                Some(path) => Kubeconfig::read_from(path),
                None => Kubeconfig::read(),
            };
            let options = KubeConfigOptions {
                context: context.clone(),
                ..KubeConfigOptions::default()
            };
            Config::from_custom_kubeconfig(read.map_err(AccessError::Kubeconfig)?, &options)
                .await
                .map_err(AccessError::Kubeconfig)?
        }
    };
    Client::try_from(config).map_err(AccessError::Client)
}

/// Reads what is asked for of `kinds`.
pub(crate) async fn read(
    access: &ApiAccess,
    client: &mut Option<Client>,
    node: &str,
    kinds: Kinds,
    deadline: Duration,
) -> ApiReading {
    if !kinds.intersects(Kinds::API) {
        return ApiReading::default();
    }
    let watch = Watch::start("api");
    if client.is_none() {
        match tokio::time::timeout(deadline, connect(access)).await {
            Ok(Ok(new)) => *client = Some(new),
            Ok(Err(error)) => return unavailable(kinds, &chain(&error)),
            Err(_) => return unavailable(kinds, &late(deadline)),
        }
    }
    let Some(known) = client.clone() else {
        return unavailable(kinds, "there is no client");
    };
    let deadline = deadline.saturating_sub(watch.elapsed());
    let list = |kind: Kinds, resource: Resource| {
        let client = known.clone();
        async move {
            if kinds.intersects(kind) {
                Some(list(&client, &resource, deadline).await)
            } else {
                None
            }
        }
    };
    // The Node is read along with its Pods: without it, an empty list of Pods may only mean a wrong name.
    let (nodes, pods, services, slices, cidrs) = tokio::join!(
        list(Kinds::NODES | Kinds::PODS, Resource::node(node)),
        list(Kinds::PODS, Resource::pods(node)),
        list(
            Kinds::SERVICES,
            Resource::all("api/services", "/api/v1/services", Kind::Service)
        ),
        list(
            Kinds::ENDPOINT_SLICES,
            Resource::all(
                "api/endpointslices",
                "/apis/discovery.k8s.io/v1/endpointslices",
                Kind::EndpointSlice
            )
        ),
        list(
            Kinds::SERVICE_CIDRS,
            Resource::all(
                "api/servicecidrs",
                "/apis/networking.k8s.io/v1/servicecidrs",
                Kind::ServiceCidr
            )
        ),
    );
    let mut out = ApiReading::default();
    let mut from_flags = Vec::new();
    if let Some(listed) = nodes {
        out.nodes = listed.facts(&mut out.problems, |item| match item {
            KubeItem::Node(node) => Some(node),
            _ => None,
        });
    }
    if let Some(listed) = pods {
        out.pods = listed.facts(&mut out.problems, |item| match item {
            KubeItem::Pod(pod, cidrs) => {
                from_flags.extend(cidrs);
                Some(*pod)
            }
            _ => None,
        });
        distrust_unknown_node(&mut out, node);
    }
    if let Some(listed) = services {
        out.services = listed.facts(&mut out.problems, |item| match item {
            KubeItem::Service(service) => Some(service),
            _ => None,
        });
    }
    if let Some(listed) = slices {
        out.endpoint_slices = listed.facts(&mut out.problems, |item| match item {
            KubeItem::EndpointSlice(slice) => Some(slice),
            _ => None,
        });
    }
    if let Some(listed) = cidrs {
        let facts = listed.facts(&mut out.problems, |item| match item {
            KubeItem::ServiceCidr(nets) => Some(nets),
            _ => None,
        });
        out.service_cidrs = Facts {
            value: facts.value.into_iter().flatten().collect(),
            completeness: facts.completeness,
            reports: facts.reports,
        };
        // An older server has no such objects; on a control plane node its own flag tells.
        if !out.service_cidrs.is_complete() && !from_flags.is_empty() {
            let flags = Watch::start("api/pods, --service-cluster-ip-range");
            let items = from_flags.len();
            out.service_cidrs
                .reports
                .push(flags.report(Completeness::Complete, items));
            out.service_cidrs.value = from_flags;
            out.service_cidrs.completeness = Completeness::Complete;
        }
    }
    // A client that was refused is made anew the next time: its credentials may have been renewed in their file.
    let refused = [
        &out.pods.completeness,
        &out.nodes.completeness,
        &out.services.completeness,
    ];
    if refused
        .iter()
        .any(|told| matches!(told, Completeness::Unavailable(_)))
    {
        *client = None;
    }
    if !kinds.contains(Kinds::NODES) {
        out.nodes = Facts::default();
    }
    out
}

/// A list of Pods by a node's name is complete only for a node that exists: a wrong name gives an empty list too.
fn distrust_unknown_node(out: &mut ApiReading, node: &str) {
    if out.nodes.is_complete() && !out.nodes.value.iter().any(|known| known.name == node) {
        let why = format!("the API server knows no Node {node:?}, so its Pods cannot be told");
        let lesser = Completeness::Partial(why);
        out.pods.completeness = out.pods.completeness.clone().max(lesser.clone());
        for report in &mut out.pods.reports {
            report.completeness = report.completeness.clone().max(lesser.clone());
        }
    }
}

fn unavailable(kinds: Kinds, why: &str) -> ApiReading {
    let mut out = ApiReading::default();
    let no = |name: &str| Watch::start(name);
    if kinds.intersects(Kinds::PODS) {
        out.pods = no("api/pods").unavailable(why);
    }
    if kinds.intersects(Kinds::SERVICES) {
        out.services = no("api/services").unavailable(why);
    }
    if kinds.intersects(Kinds::ENDPOINT_SLICES) {
        out.endpoint_slices = no("api/endpointslices").unavailable(why);
    }
    if kinds.intersects(Kinds::NODES) {
        out.nodes = no("api/nodes").unavailable(why);
    }
    if kinds.intersects(Kinds::SERVICE_CIDRS) {
        out.service_cidrs = no("api/servicecidrs").unavailable(why);
    }
    out
}

fn late(deadline: Duration) -> String {
    format!("the API server did not answer within {} ms", deadline.as_millis())
}

/// A resource to list.
struct Resource {
    /// The source's name.
    name: &'static str,
    path: &'static str,
    kind: Kind,
    /// The field selector.
    fields: Option<String>,
}

impl Resource {
    fn all(name: &'static str, path: &'static str, kind: Kind) -> Self {
        Self {
            name,
            path,
            kind,
            fields: None,
        }
    }

    fn pods(node: &str) -> Self {
        Self {
            fields: Some(format!("spec.nodeName={node}")),
            ..Self::all("api/pods", "/api/v1/pods", Kind::Pod)
        }
    }

    fn node(node: &str) -> Self {
        Self {
            fields: Some(format!("metadata.name={node}")),
            ..Self::all("api/nodes", "/api/v1/nodes", Kind::Node)
        }
    }
}

/// What a list gave.
struct Listed {
    watch: Watch,
    items: Vec<KubeItem>,
    completeness: Completeness,
    problems: Vec<Problem>,
}

impl Listed {
    fn facts<T>(self, problems: &mut Vec<Problem>, pick: impl FnMut(KubeItem) -> Option<T>) -> Facts<Vec<T>> {
        problems.extend(self.problems);
        let value: Vec<T> = self.items.into_iter().filter_map(pick).collect();
        let items = value.len();
        self.watch.facts(value, self.completeness, items)
    }
}

async fn list(client: &Client, resource: &Resource, deadline: Duration) -> Listed {
    let mut out = Listed {
        watch: Watch::start(resource.name),
        items: Vec::new(),
        completeness: Completeness::Complete,
        problems: Vec::new(),
    };
    let broken = match tokio::time::timeout(deadline, pages(client, resource, &mut out)).await {
        Ok(Ok(())) => return out,
        Ok(Err(error)) => explain(&error),
        Err(_) => late(deadline),
    };
    let lesser = if out.items.is_empty() {
        Completeness::Unavailable(broken)
    } else {
        Completeness::Partial(format!("after {} objects: {broken}", out.items.len()))
    };
    out.completeness = out.completeness.max(lesser);
    out
}

async fn pages(client: &Client, resource: &Resource, out: &mut Listed) -> Result<(), kube::Error> {
    let mut token: Option<String> = None;
    let mut began_again = false;
    let mut page = 0_u32;
    loop {
        let mut params = ListParams::default().limit(PAGE);
        if let Some(fields) = &resource.fields {
            params = params.fields(fields);
        }
        if let Some(token) = &token {
            params = params.continue_token(token);
        }
        let request = Request::new(resource.path)
            .list(&params)
            .map_err(kube::Error::BuildRequest)?;
        let text = match client.request_text(request).await {
            // A token lives for some minutes only; the list is begun again, once.
            Err(kube::Error::Api(status)) if status.code == 410 && token.is_some() && !began_again => {
                began_again = true;
                token = None;
                out.items.clear();
                out.problems.clear();
                out.completeness = Completeness::Complete;
                continue;
            }
            other => other?,
        };
        page += 1;
        let items = &mut out.items;
        let read = read_json(text.as_bytes(), Some(resource.kind), &mut |item| items.push(item));
        out.problems
            .extend(read.problems.into_iter().map(|(place, what)| Problem {
                place: format!("{} page {page}: {place}", resource.name),
                what,
            }));
        token = read.meta.r#continue.clone().filter(|token| !token.is_empty());
        // A list that goes on is no shortcoming as long as the next page is asked for.
        if token.is_none() || read.meta.cut() != read.completeness.why().map(str::to_owned) {
            out.completeness = out.completeness.clone().max(read.completeness);
        }
        if token.is_none() {
            return Ok(());
        }
    }
}

/// Why a request failed, in words that name the remedy where there is one.
fn explain(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else {
        return chain(error);
    };
    let word = StatusCode::from_u16(status.code)
        .ok()
        .and_then(|code| code.canonical_reason())
        .unwrap_or("an error");
    let remedy = match status.code {
        401 => " (the credentials are unknown or have expired)",
        403 => " (the user may not list it)",
        404 => " (this API server does not have it)",
        _ => "",
    };
    let message = status.message.trim();
    let message = if message.is_empty() || message == word {
        String::new()
    } else {
        format!(": {message}")
    };
    format!("the API server answered {} {word}{remedy}{message}", status.code)
}
