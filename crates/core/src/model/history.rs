//! Who had an address before, and when Pods ended: what logs and Events tell.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{ContainerId, PodName, PodUid, Timestamp};

/// One thing that happened to a Pod's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastEvent {
    /// When.
    pub at: Option<Timestamp>,
    /// The Pod.
    pub pod: PodName,
    /// Its UID, where it is told.
    pub uid: Option<PodUid>,
    /// Its sandbox, where it is told.
    pub container: Option<ContainerId>,
    /// What happened.
    pub what: PastKind,
    /// Who says so.
    pub source: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PastKind {
    /// It got these addresses.
    Got(Vec<IpAddr>),
    /// Its network was taken down, or its containers were stopped.
    Ended,
}
