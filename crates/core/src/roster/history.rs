//! Who had an address last, and when that ended.

use std::net::IpAddr;

use super::{Roster, owner_of, owner_of_cached, owner_of_sandbox};
use crate::{
    finding::{Evidence, Owner},
    model::{ContainerId, PastEvent, PastKind, PodName, PodUid, Timestamp},
};

impl Roster<'_> {
    /// Who had the address last, by what is left of them: ended sandboxes, the CNI cache, a lease, logs and Events, an endpoint that
    /// is left over.
    pub fn last_owner(&self, ip: IpAddr) -> Option<Owner> {
        let mut owner = self.last_owner_left(ip).or_else(|| self.last_owner_told(ip))?;
        if owner.ended_at.is_none() {
            owner.ended_at = self.ended_at(&owner.pod_name(), owner.uid.as_ref(), None);
        }
        Some(owner)
    }

    fn last_owner_left(&self, ip: IpAddr) -> Option<Owner> {
        let finished = self.pods_by_ip.get(&ip).into_iter().flatten().next();
        if let Some(pod) = finished {
            return Some(owner_of(pod, pod.deleting_since));
        }
        if let Some(sandbox) = self.sandboxes_by_ip.get(&ip).into_iter().flatten().next_back() {
            let uid = Some(&sandbox.uid);
            let ended = self.ended_at(&sandbox.pod, uid, Some(&sandbox.id));
            return Some(owner_of_sandbox(
                sandbox,
                ended.or_else(|| self.reborn_at(&sandbox.pod, uid)),
            ));
        }
        let cached = self.cache_by_ip.get(&ip).into_iter().flatten().next_back()?;
        let pod = cached.pod.as_ref()?;
        let uid = cached.uid.as_ref();
        let ended = self.ended_at(pod, uid, Some(&cached.container));
        owner_of_cached(cached, ended.or_else(|| self.reborn_at(pod, uid)))
    }

    /// By logs and Events: the last one that got the address.
    fn last_owner_told(&self, ip: IpAddr) -> Option<Owner> {
        if let Some(got) = self.last_got(ip) {
            let ended = self.ended_at(&got.pod, got.uid.as_ref(), got.container.as_ref());
            return Some(Owner {
                namespace: got.pod.namespace.clone(),
                name: got.pod.name.clone(),
                uid: got.uid.clone(),
                ended_at: ended.or_else(|| self.reborn_at(&got.pod, got.uid.as_ref())),
            });
        }
        let slices = self.state.endpoint_slices.value.iter();
        let mut left = slices.flat_map(|slice| &slice.endpoints);
        let left = left.find(|endpoint| endpoint.addresses.contains(&ip) && endpoint.pod.is_some())?;
        let pod = left.pod.as_ref()?;
        Some(Owner {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: left.pod_uid.clone(),
            ended_at: self.reborn_at(pod, left.pod_uid.as_ref()),
        })
    }

    fn last_got(&self, ip: IpAddr) -> Option<&PastEvent> {
        let history = self.state.history.value.iter();
        let got = history.filter(|event| matches!(&event.what, PastKind::Got(ips) if ips.contains(&ip)));
        got.max_by_key(|event| event.at)
    }

    /// When a sandbox's network was taken down; else when the Pod's containers were stopped.
    fn ended_at(
        &self,
        pod: &PodName,
        uid: Option<&PodUid>,
        container: Option<&ContainerId>,
    ) -> Option<Timestamp> {
        let ended = || {
            let history = self.state.history.value.iter();
            history.filter(|event| event.what == PastKind::Ended)
        };
        let of_container = container.and_then(|id| {
            let of =
                ended().filter(|event| event.container.as_ref().is_some_and(|own| own.same_or_prefix(id)));
            of.filter_map(|event| event.at).max()
        });
        of_container.or_else(|| {
            let of = ended().filter(|event| match (uid, &event.uid) {
                (Some(uid), Some(own)) => uid == own,
                // Another Pod may have had this name: without a UID that is all that is told.
                _ => event.pod == *pod && container.is_none(),
            });
            of.filter_map(|event| event.at).max()
        })
    }

    /// What is told of an address' past, for a report.
    pub(super) fn past_of(&self, ip: IpAddr) -> Vec<Evidence> {
        let Some(owner) = self.last_owner(ip) else {
            return Vec::new();
        };
        let got = self.last_got(ip);
        let source = got.map_or("history", |event| event.source.as_str());
        let since = got.and_then(|event| event.at);
        let since = since.map_or_else(String::new, |at| format!(" from {at:.0} on"));
        let until = owner
            .ended_at
            .map_or_else(String::new, |at| format!(", and ended by {at:.0}"));
        vec![Evidence::new(
            source,
            format!("{ip} belonged to Pod {} before{since}{until}", owner.pod_name()),
        )]
    }

    /// When another Pod of this name was created: the one with this UID had ended by then.
    pub(super) fn reborn_at(&self, name: &PodName, uid: Option<&PodUid>) -> Option<Timestamp> {
        let pods = &self.state.pods.value;
        let now = pods
            .iter()
            .find(|p| p.namespace == name.namespace && p.name == name.name)?;
        let another = uid.is_some_and(|uid| !now.is_known_as(uid));
        now.created_at.filter(|_| another)
    }
}
