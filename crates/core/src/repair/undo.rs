//! Taking back what a repair did, where nobody needs the place now (law 9).

mod nft;
mod xt;

use super::{Journal, Outcome, Record, RepairError, carry_out};
use crate::{
    judge::Judge,
    model::{NftValue, NplAnnotation, PortRange, Proto, XtRule},
    node::Node,
    plan::Act,
    roster::Standing,
    settings::Settings,
};

/// One act that a journal did, as an undo sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Undone {
    /// The act that takes it back.
    pub act: Act,
    /// What became of it.
    pub outcome: Outcome,
}

/// Takes back what a journal's round did, last first, where nobody needs the place now (law 9).
///
/// `parse` reads one rule as iptables-save prints it, so that a deleted DNAT is only put back for a port that no living Pod
/// has.
///
/// # Errors
///
/// The journal of the undo itself cannot be written.
pub fn undo(
    node: &mut dyn Node,
    journal: &mut dyn Journal,
    records: &[Record],
    settings: &Settings,
    parse: Parse<'_>,
) -> Result<Vec<Undone>, RepairError> {
    let mut done: Vec<(u32, &Act)> = Vec::new();
    for record in records {
        match record {
            Record::Intent { step, act, .. } => done.push((*step, act)),
            Record::Result { step, outcome, .. } if *outcome != Outcome::Done => {
                done.retain(|(number, _)| number != step);
            }
            _ => {}
        }
    }
    let mut out = Vec::new();
    for (step, act) in done.into_iter().rev() {
        let Some(back) = act.undo() else { continue };
        let state = node.observe();
        let now = node.now();
        let Parted { free, needed } = part(&Judge::new(&state, None, settings, now), &back, parse);
        let refused = |(act, who)| Undone {
            act,
            outcome: Outcome::JudgedDifferently(who),
        };
        out.extend(needed.map(refused));
        let Some(back) = free else { continue };
        let outcome = carry_out(node, journal, step, &back)?;
        out.push(Undone { act: back, outcome });
    }
    Ok(out)
}

/// Reads one rule as iptables-save prints it.
type Parse<'a> = &'a dyn Fn(&str) -> Option<XtRule>;

/// An undo in two parts.
struct Parted {
    /// The part whose place nobody needs.
    free: Option<Act>,
    /// The part whose place somebody needs, and who.
    needed: Option<(Act, String)>,
}

impl Parted {
    /// The needed part is refused for all of the `reasons`.
    fn new(free: Option<Act>, needed: Option<Act>, mut reasons: Vec<String>) -> Self {
        reasons.sort();
        reasons.dedup();
        let needed = needed.map(|act| (act, reasons.join("; ")));
        Self { free, needed }
    }
}

fn part(judge: &Judge<'_>, back: &Act, parse: Parse<'_>) -> Parted {
    let refused = |who| Parted::new(None, Some(back.clone()), vec![who]);
    if let Some(why) = undo_lacks(judge) {
        return refused(format!("it needs {why}"));
    }
    match back {
        Act::NftEdit { edit } => nft::part(judge, edit),
        Act::XtRestore { edit } => xt::part(judge, edit, parse),
        _ => match needed_by(judge, back) {
            Some(who) => refused(who),
            None => Parted::new(Some(back.clone()), None, Vec::new()),
        },
    }
}

/// What an undo needs to know that nobody has the place: all that a repair does, and both who tell of the living (law 9).
fn undo_lacks(judge: &Judge<'_>) -> Option<String> {
    let state = judge.state;
    let parts = [
        (
            &state.pods.completeness,
            "a complete Pod list from the API server",
        ),
        (&state.runtime.completeness, "the runtime's list of sandboxes"),
    ];
    let unread = parts
        .into_iter()
        .find_map(|(part, what)| Some(format!("{what} ({})", part.why()?)));
    judge.roster.repair_blockers().into_iter().next().or(unread)
}

/// Who needs the place that an undo would fill.
fn needed_by(judge: &Judge<'_>, back: &Act) -> Option<String> {
    match back {
        Act::LeaseRestore { lease } => {
            let at = judge.roster.address(lease.ip);
            (at.standing == Standing::Live).then(|| format!("somebody alive has {}", lease.ip))
        }
        Act::NftAddElement { element, .. } => element.key.iter().find_map(|value| match value {
            NftValue::Addr(ip) if judge.roster.has_live_owner(*ip) => {
                Some(format!("somebody alive has {ip}"))
            }
            _ => None,
        }),
        Act::XtRestore { .. }
        | Act::NftEdit { .. }
        | Act::ConntrackDelete { .. }
        | Act::LeaseQuarantine { .. }
        | Act::NftDeleteElement { .. } => None,
    }
}

/// The living Pod that has one of these ports of the node today, as hostPort or by its annotation.
fn port_taken(judge: &Judge<'_>, proto: Proto, ports: &[PortRange]) -> Option<String> {
    let takes = |port: u16| ports.iter().any(|range| range.contains(port));
    let living = judge.state.local_pods().filter(|p| !p.phase.is_terminal());
    living
        .flat_map(|pod| {
            let host_ports = pod.ports.iter().filter_map(|p| Some((p.proto, p.host_port?)));
            let announced = match &pod.npl {
                NplAnnotation::Entries(entries) => entries.as_slice(),
                NplAnnotation::Absent | NplAnnotation::Unreadable(_) => &[],
            };
            let announced = announced.iter().map(|e| (e.proto, e.node_port));
            host_ports.chain(announced).map(move |taken| (pod, taken))
        })
        .find(|(_, (other, port))| *other == proto && takes(*port))
        .map(|(pod, (_, port))| format!("Pod {} has {proto} port {port} of this node now", pod.pod_name()))
}
