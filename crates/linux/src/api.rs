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
    #[error("the service account cannot be used")]
    ServiceAccount(#[source] kube::config::InClusterError),
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

/// An API server to ask. One serves for the life of a [`LinuxNode`](crate::LinuxNode).
#[derive(Clone)]
pub(crate) struct ApiServer {
    client: Client,
    /// Its URL, and what told it: a failure to reach it names both.
    at: String,
}

/// kubectl's usual kubeconfig, as a person knows it.
fn usual_kubeconfig() -> String {
    let named = std::env::var("KUBECONFIG").ok().filter(|named| !named.is_empty());
    named.unwrap_or_else(|| "~/.kube/config".to_owned())
}

/// As kubectl finds its way; then as the kubelet of this node does. What told it comes along.
async fn infer() -> Result<(Config, String), AccessError> {
    let options = KubeConfigOptions::default();
    let kubeconfig = match Config::from_kubeconfig(&options).await {
        Ok(config) => return Ok((config, format!("kubeconfig {}", usual_kubeconfig()))),
        Err(error) => error,
    };
    let service_account = match Config::incluster() {
        Ok(config) => return Ok((config, "the Pod's service account".to_owned())),
        Err(error) => error,
    };
    if let Some(path) = KUBELETS_FILES.iter().find(|path| Path::new(path).exists()) {
        let read = Kubeconfig::read_from(path).map_err(AccessError::Kubeconfig)?;
        let made = Config::from_custom_kubeconfig(read, &options).await;
        let config = made.map_err(AccessError::Kubeconfig)?;
        return Ok((config, format!("kubeconfig {path}")));
    }
    let usual = std::env::var_os("HOME").is_some_and(|home| Path::new(&home).join(".kube/config").exists());
    Err(if std::env::var_os("KUBECONFIG").is_some() || usual {
        AccessError::Kubeconfig(kubeconfig)
    } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        AccessError::ServiceAccount(service_account)
    } else {
        AccessError::NoWay
    })
}

/// Finds the server.
async fn connect(access: &ApiAccess) -> Result<ApiServer, AccessError> {
    let (config, told_by) = match access {
        ApiAccess::Off => return Err(AccessError::Off),
        ApiAccess::Infer => infer().await?,
        ApiAccess::Kubeconfig { path, context } => {
            let (read, file) = match path {
                Some(path) => (Kubeconfig::read_from(path), path.display().to_string()),
                None => (Kubeconfig::read(), usual_kubeconfig()),
            };
            let options = KubeConfigOptions {
                context: context.clone(),
                ..KubeConfigOptions::default()
            };
            let read = read.map_err(AccessError::Kubeconfig)?;
            let config = Config::from_custom_kubeconfig(read, &options)
                .await
                .map_err(AccessError::Kubeconfig)?;
            (config, format!("kubeconfig {file}"))
        }
    };
    let at = format!("{} ({told_by})", config.cluster_url);
    let client = Client::try_from(config).map_err(AccessError::Client)?;
    Ok(ApiServer { client, at })
}

/// Reads what is asked for of `kinds`.
pub(crate) async fn read(
    access: &ApiAccess,
    server: &mut Option<ApiServer>,
    node: &str,
    kinds: Kinds,
    deadline: Duration,
) -> ApiReading {
    if !kinds.intersects(Kinds::API) {
        return ApiReading::default();
    }
    let watch = Watch::start("api");
    let known = match server.clone() {
        Some(known) => known,
        None => match tokio::time::timeout(deadline, connect(access)).await {
            Ok(Ok(new)) => server.insert(new).clone(),
            Ok(Err(error)) => return unavailable(kinds, &chain(&error)),
            Err(_) => {
                let ms = deadline.as_millis();
                return unavailable(
                    kinds,
                    &format!("the way to the API server was not found within {ms} ms"),
                );
            }
        },
    };
    let deadline = deadline.saturating_sub(watch.elapsed());
    let list = |kind: Kinds, resource: Resource| {
        let server = &known;
        async move {
            if kinds.intersects(kind) {
                Some(list(server, &resource, deadline).await)
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
        *server = None;
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

async fn list(server: &ApiServer, resource: &Resource, deadline: Duration) -> Listed {
    let mut out = Listed {
        watch: Watch::start(resource.name),
        items: Vec::new(),
        completeness: Completeness::Complete,
        problems: Vec::new(),
    };
    let broken = match tokio::time::timeout(deadline, pages(&server.client, resource, &mut out)).await {
        Ok(Ok(())) => return out,
        Ok(Err(error)) => explain(&error, &server.at),
        Err(_) => format!(
            "the API server at {} did not answer within {} ms",
            server.at,
            deadline.as_millis()
        ),
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
fn explain(error: &kube::Error, at: &str) -> String {
    let kube::Error::Api(status) = error else {
        return format!("the API server at {at} cannot be asked: {}", chain(error));
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
