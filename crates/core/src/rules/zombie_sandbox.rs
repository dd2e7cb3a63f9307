//! Sandboxes and namespaces that live on although their Pod is gone from the API. The living come first: reported only.

use super::{Part, Rule};
use crate::{
    finding::{Evidence, Finding, Object, Owner, Verdict, Witness},
    judge::Judge,
    model::{NetNs, Sandbox, SandboxState},
};

/// See the page.
pub(super) static RULE: Rule = Rule {
    id: "zombie-sandbox",
    tier: 2,
    summary: "a sandbox that lives although its Pod is gone from the API",
    page: include_str!("pages/zombie-sandbox.md"),
    needs: &[Part::Pods, Part::Runtime],
    judge,
};

const WHY: &str = "what lives is never touched; end it with the runtime's own command";

fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    if !judge.state.pods.is_complete() {
        return Vec::new();
    }
    let sandboxes = judge
        .state
        .runtime
        .value
        .sandboxes
        .iter()
        .filter_map(|s| judge_sandbox(judge, s));
    let namespaces = judge
        .state
        .namespaces
        .value
        .iter()
        .filter_map(|n| judge_namespace(judge, n));
    sandboxes.chain(namespaces).collect()
}

fn judge_sandbox(judge: &Judge<'_>, sandbox: &Sandbox) -> Option<Finding> {
    if sandbox.from_manifest || judge.roster.pod(&sandbox.uid).is_some() {
        return None;
    }
    let state = judge.state;
    let namespace = state.namespaces.value.iter().find(|ns| {
        ns.has_process()
            && (sandbox.pid.is_some_and(|pid| ns.pids.contains(&pid))
                || sandbox.netns.as_ref().is_some_and(|path| ns.paths.contains(path)))
    });
    let alive = match sandbox.state {
        SandboxState::Ready => Evidence::new(
            state.runtime.source_names(),
            format!("sandbox {} is ready", sandbox.id.short()),
        ),
        SandboxState::NotReady => Evidence::new(
            state.namespaces.source_names(),
            format!(
                "processes {:?} live in the namespace of the ended sandbox",
                namespace?.pids
            ),
        ),
    };
    let count = state.pods.value.len();
    let gone = format!("none of {count} Pods has the UID {}", sandbox.uid);
    let mut witnesses = vec![Witness::Api, Witness::Cri];
    if namespace.is_some() {
        witnesses.push(Witness::Kernel);
    }
    let command = format!("crictl stopp {0} && crictl rmp {0}", sandbox.id.short());
    Some(Finding {
        rule: RULE.id,
        verdict: Verdict::Conflict,
        why_not_repair: Some(WHY.to_owned()),
        object: Object::Sandbox {
            sandbox: sandbox.clone(),
        },
        owner: Some(Owner {
            namespace: sandbox.pod.namespace.clone(),
            name: sandbox.pod.name.clone(),
            uid: Some(sandbox.uid.clone()),
            ended_at: None,
        }),
        consequence: format!(
            "Pod {} still runs here and keeps its addresses although the API no longer knows it; what to run once that is certain: {command}",
            sandbox.pod
        ),
        evidence: vec![Evidence::new(state.pods.source_names(), gone), alive],
        witnesses,
        remedy: None,
    })
}

/// A namespace with a process that holds an address of this node's Pod range, and that neither API nor runtime knows: what is
/// left of a runtime that lost its store.
fn judge_namespace(judge: &Judge<'_>, namespace: &NetNs) -> Option<Finding> {
    let state = judge.state;
    if !namespace.has_process() || !state.runtime.is_complete() {
        return None;
    }
    let ips = namespace.ips.as_deref()?;
    let known = |ip: &std::net::IpAddr| {
        state.pods.value.iter().any(|p| p.own_ips().any(|own| own == *ip))
            || state
                .runtime
                .value
                .sandboxes
                .iter()
                .any(|s| s.ips.iter().flatten().any(|own| own == ip))
    };
    let claimed = state.runtime.value.sandboxes.iter().any(|s| {
        s.pid.is_some_and(|pid| namespace.pids.contains(&pid))
            || s.netns
                .as_ref()
                .is_some_and(|path| namespace.paths.contains(path))
    });
    let ip = ips.iter().find(|ip| judge.roster.in_pod_range(**ip))?;
    if claimed || ips.iter().any(known) {
        return None;
    }
    let process = namespace.pids.first().copied().unwrap_or_default();
    let command = namespace.commands.first().map_or("?", String::as_str);
    Some(Finding {
        rule: RULE.id,
        verdict: Verdict::Conflict,
        why_not_repair: Some(WHY.to_owned()),
        object: Object::Namespace {
            inode: namespace.inode,
            paths: namespace.paths.clone(),
            pids: namespace.pids.clone(),
        },
        owner: judge.roster.last_owner(*ip),
        consequence: format!(
            "Process {process} ({command}) lives at {ip}, and neither the API nor the runtime knows it."
        ),
        evidence: vec![
            Evidence::new(
                state.namespaces.source_names(),
                format!("net:[{}] holds {ip}", namespace.inode),
            ),
            Evidence::new(state.runtime.source_names(), format!("no sandbox has {ip}")),
            Evidence::new(state.pods.source_names(), format!("no Pod has {ip}")),
        ],
        witnesses: vec![Witness::Api, Witness::Cri, Witness::Kernel],
        remedy: None,
    })
}
