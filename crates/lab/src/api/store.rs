//! The objects, their versions, and what happened to them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::Resource;
use crate::node::{lock, random_id};

/// How many events are kept for watches that start in the past.
const LOG_LENGTH: usize = 10_000;

/// Resource, namespace, name.
pub(super) type Key = (Resource, String, String);

/// Something that happened to an object.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    pub(super) resource: Resource,
    /// `ADDED`, `MODIFIED`, `DELETED`.
    pub(super) what: &'static str,
    pub(super) object: Value,
}

#[derive(Debug)]
pub(super) struct Store {
    inner: Mutex<Inner>,
    version: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    version: u64,
    objects: BTreeMap<Key, Value>,
    log: VecDeque<Event>,
}

impl Default for Store {
    fn default() -> Self {
        // A cluster that has lived for a while.
        let version = 481_200;
        let inner = Inner {
            version,
            objects: BTreeMap::new(),
            log: VecDeque::new(),
        };
        Self {
            inner: Mutex::new(inner),
            version: watch::Sender::new(version),
        }
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

impl Store {
    pub(super) fn put(&self, resource: Resource, mut object: Value) {
        let mut inner = lock(&self.inner);
        let key = (
            resource,
            text(&object, "namespace").to_owned(),
            text(&object, "name").to_owned(),
        );
        let old = inner.objects.get(&key);
        let keep = |field: &str, make: &dyn Fn() -> String| {
            old.filter(|old| {
                // Another UID is another object, which has nothing of the old one.
                let uid = text(&object, "uid");
                uid.is_empty() || text(old, "uid") == uid
            })
            .map_or_else(make, |old| text(old, field).to_owned())
        };
        let now = || jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let uid = keep("uid", &|| random_id().unwrap_or_default());
        let created = keep("creationTimestamp", &now);
        if text(&object, "uid").is_empty() {
            object["metadata"]["uid"] = json!(uid);
        }
        if text(&object, "creationTimestamp").is_empty() {
            object["metadata"]["creationTimestamp"] = json!(created);
        }
        object["apiVersion"] = json!(resource.api_version());
        object["kind"] = json!(resource.kind());
        let same = old.is_some_and(|old| text(old, "uid") == text(&object, "uid"));
        if !same && let Some(old) = inner.objects.remove(&key) {
            inner.record(resource, "DELETED", old);
        }
        let object = inner.record(resource, if same { "MODIFIED" } else { "ADDED" }, object);
        inner.objects.insert(key, object);
        self.version.send_replace(inner.version);
    }

    pub(super) fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<Value> {
        lock(&self.inner)
            .objects
            .get(&(resource, namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    pub(super) fn list(&self, resource: Resource) -> Vec<Value> {
        let inner = lock(&self.inner);
        inner
            .objects
            .iter()
            .filter(|(key, _)| key.0 == resource)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// The objects in the order of their keys, with the version that they are of.
    pub(super) fn snapshot(&self, resource: Resource) -> (u64, Vec<(Key, Value)>) {
        let inner = lock(&self.inner);
        let objects = inner.objects.iter().filter(|(key, _)| key.0 == resource);
        (
            inner.version,
            objects
                .map(|(key, object)| (key.clone(), object.clone()))
                .collect(),
        )
    }

    pub(super) fn delete(&self, resource: Resource, namespace: &str, name: &str) -> bool {
        self.remove(&(resource, namespace.to_owned(), name.to_owned()))
    }

    pub(super) fn delete_uid(&self, resource: Resource, uid: &str) -> bool {
        let found = {
            let inner = lock(&self.inner);
            let mut keys = inner
                .objects
                .iter()
                .filter(|(key, object)| key.0 == resource && text(object, "uid") == uid);
            keys.next().map(|(key, _)| key.clone())
        };
        found.is_some_and(|key| self.remove(&key))
    }

    fn remove(&self, key: &Key) -> bool {
        let mut inner = lock(&self.inner);
        let Some(old) = inner.objects.remove(key) else {
            return false;
        };
        inner.record(key.0, "DELETED", old);
        self.version.send_replace(inner.version);
        true
    }

    /// Tells when something happened.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// What happened to a resource after `version`, and up to which version that is; none when so much has happened that it is not
    /// known any more.
    pub(super) fn since(&self, resource: Resource, version: u64) -> Option<(u64, Vec<Event>)> {
        let inner = lock(&self.inner);
        let oldest = inner.log.front().map_or(inner.version, |event| event.version - 1);
        if version < oldest || version > inner.version {
            return None;
        }
        let events = inner
            .log
            .iter()
            .filter(|event| event.version > version && event.resource == resource);
        Some((inner.version, events.cloned().collect()))
    }
}

impl Inner {
    /// Gives an object the next version and writes down what happened to it.
    fn record(&mut self, resource: Resource, what: &'static str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.log.push_back(Event {
            version: self.version,
            resource,
            what,
            object: object.clone(),
        });
        if self.log.len() > LOG_LENGTH {
            self.log.pop_front();
        }
        object
    }
}
