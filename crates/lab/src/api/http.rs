//! What a client sees of the stand-in.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};

use super::store::{Key, Store};
use super::{ApiFault, ApiFaults, MAX_SLOW, Resource};

/// How long a watch lasts that does not say for itself.
const WATCH_SECONDS: u64 = 300;

#[derive(Clone)]
struct Shared {
    store: Arc<Store>,
    faults: Arc<ApiFaults>,
}

type Parameters = HashMap<String, String>;

/// Serves until the task is ended.
pub(super) async fn serve(listener: tokio::net::TcpListener, store: Arc<Store>, faults: Arc<ApiFaults>) {
    let router = Router::new()
        .fallback(answer)
        .with_state(Shared { store, faults });
    // It does not return, other than by an error that ends the stand-in like a crash.
    let _ = axum::serve(listener, router).await;
}

async fn answer(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    Query(query): Query<Parameters>,
) -> Response {
    if method != Method::GET {
        return failure(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the lab's API is changed by the lab only",
        );
    }
    let path: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    if let Some(document) = discovery(&path) {
        return document;
    }
    let Some(request) = Request::read(&path) else {
        return failure(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        );
    };
    match shared.faults.of(request.resource) {
        Some(ApiFault::Forbidden) => {
            let (plural, group) = (request.resource.plural(), request.resource.api_version());
            let group = group.rsplit_once('/').map_or("", |(group, _)| group);
            let message = format!(
                "{plural} is forbidden: User \"system:node:lab\" cannot list resource \"{plural}\" in API group \"{group}\" at the cluster scope"
            );
            return failure(StatusCode::FORBIDDEN, "Forbidden", &message);
        }
        Some(ApiFault::ServerError) => {
            return failure(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "etcdserver: request timed out",
            );
        }
        Some(ApiFault::Expired) if query.contains_key("continue") || asked(&query, "watch") => {
            return failure(
                StatusCode::GONE,
                "Expired",
                "The provided continue parameter or version is too old",
            );
        }
        Some(ApiFault::Slow(ms)) => tokio::time::sleep(Duration::from_millis(ms).min(MAX_SLOW)).await,
        Some(ApiFault::Cut) => return cut(&request.list(&shared.store, &query)),
        Some(ApiFault::Expired) | None => {}
    }
    if let Some(name) = &request.name {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        return match shared.store.get(request.resource, namespace, name) {
            Some(object) => json_answer(StatusCode::OK, &object),
            None => failure(
                StatusCode::NOT_FOUND,
                "NotFound",
                &format!("{} \"{name}\" not found", request.resource.plural()),
            ),
        };
    }
    if let Err(message) = Selector::read(request.resource, &query) {
        return failure(StatusCode::BAD_REQUEST, "BadRequest", &message);
    }
    if asked(&query, "watch") {
        return watch(&shared.store, &request, &query);
    }
    match request.list(&shared.store, &query) {
        Ok(list) => json_answer(StatusCode::OK, &list),
        Err(answer) => *answer,
    }
}

/// What a path asks for.
#[derive(Clone, Debug)]
struct Request {
    resource: Resource,
    namespace: Option<String>,
    name: Option<String>,
}

impl Request {
    fn read(path: &[&str]) -> Option<Self> {
        let (version, rest) = match path {
            ["api", "v1", rest @ ..] => ("v1".to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
            rest => (None, rest),
        };
        let (plural, name) = match rest {
            [plural] => (*plural, None),
            [plural, name] => (*plural, Some((*name).to_owned())),
            _ => return None,
        };
        let resource = Resource::of_plural(plural).filter(|resource| resource.api_version() == version)?;
        let fits = match (&namespace, &name) {
            (Some(_), _) => resource.namespaced(),
            (None, Some(_)) => !resource.namespaced(),
            (None, None) => true,
        };
        fits.then_some(Self {
            resource,
            namespace,
            name,
        })
    }

    /// One page of a list.
    fn list(&self, store: &Store, query: &Parameters) -> Result<Value, Box<Response>> {
        let selector = Selector::read(self.resource, query)
            .map_err(|message| Box::new(failure(StatusCode::BAD_REQUEST, "BadRequest", &message)))?;
        let (version, objects) = store.snapshot(self.resource);
        let chosen = objects
            .into_iter()
            .filter(|(key, object)| self.holds(key) && selector.takes(object));
        let after = query.get("continue").filter(|token| !token.is_empty());
        let mut rest: VecDeque<(Key, Value)> = chosen
            .filter(|(key, _)| after.is_none_or(|after| token(key) > *after))
            .collect();
        let limit = query
            .get("limit")
            .and_then(|limit| limit.parse().ok())
            .filter(|limit| *limit > 0);
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if let Some(limit) = limit
            && rest.len() > limit
        {
            let left = rest.split_off(limit);
            if let Some((last, _)) = rest.back() {
                metadata["continue"] = json!(token(last));
                metadata["remainingItemCount"] = json!(left.len());
            }
        }
        let items: Vec<Value> = rest.into_iter().map(|(_, object)| object).collect();
        let kind = format!("{}List", self.resource.kind());
        Ok(
            json!({"kind": kind, "apiVersion": self.resource.api_version(), "metadata": metadata, "items": items}),
        )
    }

    fn holds(&self, key: &Key) -> bool {
        self.namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == key.1)
    }
}

/// Where a page ended: a key as text, which sorts like the keys.
fn token(key: &Key) -> String {
    format!("{}\u{1}{}", key.1, key.2)
        .bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn asked(query: &Parameters, name: &str) -> bool {
    query
        .get(name)
        .is_some_and(|value| value == "true" || value == "1")
}

/// The selectors of a request, as far as the API server has them for these resources.
#[derive(Clone, Debug, Default)]
struct Selector {
    /// JSON pointer, value, and whether it must be equal.
    terms: Vec<(String, String, bool)>,
}

impl Selector {
    fn read(resource: Resource, query: &Parameters) -> Result<Self, String> {
        let mut terms = Vec::new();
        let both = [("fieldSelector", true), ("labelSelector", false)];
        for (parameter, is_field) in both {
            let all = query.get(parameter).map(String::as_str).unwrap_or_default();
            for term in all.split(',').filter(|term| !term.is_empty()) {
                let (key, value, equal) = term
                    .split_once("!=")
                    .map(|(key, value)| (key, value, false))
                    .or_else(|| {
                        term.split_once("==")
                            .or_else(|| term.split_once('='))
                            .map(|(k, v)| (k, v, true))
                    })
                    .ok_or_else(|| format!("invalid selector: {term:?}"))?;
                let known = ["metadata.name", "metadata.namespace"].contains(&key)
                    || (resource == Resource::Pods
                        && [
                            "spec.nodeName",
                            "status.phase",
                            "status.podIP",
                            "spec.hostNetwork",
                        ]
                        .contains(&key));
                if is_field && !known {
                    return Err(format!("field label not supported: {key}"));
                }
                let pointer = if is_field {
                    format!("/{}", key.replace('.', "/"))
                } else {
                    format!("/metadata/labels/{}", key.replace('~', "~0").replace('/', "~1"))
                };
                terms.push((pointer, value.to_owned(), equal));
            }
        }
        Ok(Self { terms })
    }

    fn takes(&self, object: &Value) -> bool {
        self.terms.iter().all(|(pointer, value, equal)| {
            (object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                == value)
                == *equal
        })
    }
}

/// A watch: what happens after the version that the client knows, one JSON document a line.
fn watch(store: &Arc<Store>, request: &Request, query: &Parameters) -> Response {
    let known = query
        .get("resourceVersion")
        .map(String::as_str)
        .unwrap_or_default();
    let initial = asked(query, "sendInitialEvents");
    let selector = Selector::read(request.resource, query).unwrap_or_default();
    let mut waiting = VecDeque::new();
    let cursor = if known.is_empty() || known == "0" || initial {
        let (version, objects) = store.snapshot(request.resource);
        for (key, object) in objects {
            if request.holds(&key) && selector.takes(&object) {
                waiting.push_back(json!({"type": "ADDED", "object": object}));
            }
        }
        if initial && asked(query, "allowWatchBookmarks") {
            waiting.push_back(json!({"type": "BOOKMARK", "object": {
                "kind": request.resource.kind(), "apiVersion": request.resource.api_version(),
                "metadata": {"resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}},
            }}));
        }
        version
    } else if let Ok(version) = known.parse() {
        version
    } else {
        return failure(
            StatusCode::BAD_REQUEST,
            "BadRequest",
            "resourceVersion is not a number",
        );
    };
    let seconds = query
        .get("timeoutSeconds")
        .and_then(|s| s.parse().ok())
        .unwrap_or(WATCH_SECONDS);
    let watch = Watch {
        store: store.clone(),
        request: request.clone(),
        selector,
        waiting,
        cursor,
        changes: store.changes(),
        end: tokio::time::Instant::now() + Duration::from_secs(seconds),
        over: false,
    };
    let lines = stream::unfold(watch, |mut watch| async {
        let event = watch.next().await?;
        Some((Ok::<String, Infallible>(format!("{event}\n")), watch))
    });
    (
        [(header::CONTENT_TYPE, "application/json")],
        Body::from_stream(lines),
    )
        .into_response()
}

struct Watch {
    store: Arc<Store>,
    request: Request,
    selector: Selector,
    waiting: VecDeque<Value>,
    cursor: u64,
    changes: tokio::sync::watch::Receiver<u64>,
    end: tokio::time::Instant,
    over: bool,
}

impl Watch {
    /// The next event; none when the watch is over.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            // What is sent from now on wakes the wait below.
            self.changes.borrow_and_update();
            let Some((cursor, events)) = self.store.since(self.request.resource, self.cursor) else {
                self.over = true;
                let message = format!("too old resource version: {}", self.cursor);
                return Some(json!({"type": "ERROR", "object": status(410, "Expired", &message)}));
            };
            self.cursor = cursor;
            for event in events {
                let metadata = |field: &str| {
                    event.object["metadata"][field]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned()
                };
                let key = (event.resource, metadata("namespace"), metadata("name"));
                if self.request.holds(&key) && self.selector.takes(&event.object) {
                    self.waiting
                        .push_back(json!({"type": event.what, "object": event.object}));
                }
            }
            if self.waiting.is_empty() {
                match tokio::time::timeout_at(self.end, self.changes.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => self.over = true,
                }
            }
        }
    }
}

fn json_answer(code: StatusCode, document: &Value) -> Response {
    (
        code,
        [(header::CONTENT_TYPE, "application/json")],
        document.to_string(),
    )
        .into_response()
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
           "message": message, "reason": reason, "code": code})
}

fn failure(code: StatusCode, reason: &str, message: &str) -> Response {
    json_answer(code, &status(code.as_u16(), reason, message))
}

/// The first half of an answer, and then the end of the connection.
fn cut(list: &Result<Value, Box<Response>>) -> Response {
    let text = list.as_ref().map(Value::to_string).unwrap_or_default();
    let half = text.as_bytes()[..text.len() / 2].to_vec();
    let parts = stream::iter([
        Ok(half),
        Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
    ]);
    (
        [(header::CONTENT_TYPE, "application/json")],
        Body::from_stream(parts),
    )
        .into_response()
}

/// The documents by which kubectl and others find out what there is.
fn discovery(path: &[&str]) -> Option<Response> {
    let groups = ["discovery.k8s.io", "networking.k8s.io"];
    let group = |name: &str| {
        let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
        json!({"name": name, "versions": [version.clone()], "preferredVersion": version})
    };
    let document = match path {
        ["version"] => {
            json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0-lab", "gitCommit": "none", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "none", "platform": "linux/amd64"})
        }
        ["healthz" | "readyz" | "livez"] => return Some("ok".into_response()),
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"]}),
        ["apis"] => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.map(group)}),
        ["api", "v1"] => resources("v1"),
        ["apis", name, "v1"] if groups.contains(name) => resources(&format!("{name}/v1")),
        _ => return None,
    };
    Some(json_answer(StatusCode::OK, &document))
}

fn resources(version: &str) -> Value {
    let all: Vec<Value> = Resource::ALL
        .into_iter()
        .filter(|resource| resource.api_version() == version)
        .map(|resource| {
            json!({"name": resource.plural(), "singularName": resource.kind().to_lowercase(), "kind": resource.kind(),
                   "namespaced": resource.namespaced(), "verbs": ["get", "list", "watch"]})
        })
        .collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": all})
}

#[cfg(test)]
mod tests;
