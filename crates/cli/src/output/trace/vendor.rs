//! What a platform's vendor needs to act, as Markdown.

use std::{collections::BTreeMap, fmt::Write as _};

use sexton_core::{
    finding::Verdict,
    model::{NodeState, PastKind},
    traffic::rank,
};

use super::{Report, circulating, owner, rate, verdict_text, way};
use crate::output::plain;

/// The whole report.
pub fn write(report: &Report, state: &NodeState) -> String {
    let mut out = String::new();
    let mut say = |line: &str| {
        let _ = writeln!(out, "{line}");
    };
    let node = report.node.as_deref().unwrap_or("of an unknown name");
    say("# Packets that circulate for an address of nobody\n");
    say(&format!("{}\n", plain(&report.answer)));
    let worst = report.loops.first();
    let standing = match report.verdict {
        Some(Verdict::Proved) => {
            "Proved: the same packets were captured again and again, and the sources below name nobody at their destination."
        }
        Some(Verdict::Suspected) => "Suspected, not proved: what is lacking is listed below.",
        Some(_) => "Not told: what is lacking is listed below.",
        None => "Nothing of the kind is shown by what was recorded.",
    };
    say(&format!(
        "{standing}\n\n## Environment\n\n| what | value |\n|---|---|"
    ));
    say(&format!("| node | {} |", plain(node)));
    if let Some(at) = report.taken_at {
        say(&format!("| recorded at | {at:.0} |"));
    }
    let machine: BTreeMap<String, String> = state.machine();
    for (name, value) in &machine {
        say(&format!("| {} | {} |", plain(name), plain(value)));
    }
    for list in &state.adapters.value {
        say(&format!(
            "| addresses of the adapters ({}) | {} |",
            plain(&list.path),
            list.addresses().count()
        ));
    }
    if !state.hns_endpoints.reports.is_empty() {
        say(&format!(
            "| HNS endpoints | {} |",
            state.hns_endpoints.value.len()
        ));
    }
    for name in ["OS build", "NIC driver", "VM size", "image"] {
        if !machine.contains_key(name) {
            say(&format!("| {name} | not recorded: please add |"));
        }
    }
    say("\n## Counters\n");
    if report.counters.is_empty() {
        say("None were recorded.");
    }
    for counters in &report.counters {
        for line in &counters.evidence {
            say(&format!("- {}: {}", plain(&counters.path), plain(&line.text)));
        }
        if !counters.cores.is_empty() {
            say("\n| core | time in interrupts, % |\n|---|---:|");
            for core in &counters.cores {
                say(&format!("| {} | {:.1} |", plain(&core.name), core.percent));
            }
        }
    }
    say("\n## Flows\n");
    if report.loops.is_empty() {
        say("No capture shows packets that come again and again.");
    }
    for one in &report.loops {
        say(&format!(
            "### {}: {}\n\n{}\n",
            one.address,
            verdict_text(one.verdict),
            circulating(one)
        ));
        say(match one.ttl_falls {
            Some(true) => "The time to live falls with each turn: a router is on the way.\n",
            Some(false) => "The time to live stays: no router is on the way.\n",
            None => "The capture does not show the time to live.\n",
        });
        say("| flow | flags | packets | a second |\n|---|---|---:|---:|");
        for flow in one.flows.iter().take(100) {
            let flags = flow.flags.as_deref().unwrap_or("-");
            let each = rate(flow.packets_per_second);
            say(&format!(
                "| {} | {flags} | {} | {each} |",
                plain(&flow.flow),
                flow.packets
            ));
        }
        say(&format!(
            "\nPath: {}.\n\nWhose the address is:\n",
            plain(
                &way(one)
                    .unwrap_or_else(|| "the capture does not tell where they come in and go out".to_owned())
            )
        ));
        for line in &one.evidence {
            say(&format!("- {}: {}", plain(&line.source), plain(&line.text)));
        }
        say(&format!(
            "- last owner: {}",
            plain(&owner(one).unwrap_or_else(|| "not told by what was recorded".to_owned()))
        ));
        for lack in &one.lacks {
            say(&format!("- lacking: {}", plain(lack)));
        }
    }
    say("\n## Time line\n");
    let mut line: Vec<(String, String)> = Vec::new();
    for event in &state.history.value {
        let what = match &event.what {
            PastKind::Got(ips) if report.loops.iter().any(|one| ips.contains(&one.address)) => {
                "gets the address"
            }
            PastKind::Ended
                if report
                    .loops
                    .iter()
                    .any(|one| one.owner.as_ref().is_some_and(|o| o.pod_name() == event.pod)) =>
            {
                "ends"
            }
            _ => continue,
        };
        let at = event.at.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"));
        line.push((at, format!("{} {what} ({})", event.pod, event.source)));
    }
    for capture in &state.captures.value {
        let nanoseconds = capture.totals.first.map(i128::from);
        if let Some(at) = nanoseconds.and_then(|ns| sexton_core::model::Timestamp::from_nanosecond(ns).ok()) {
            line.push((format!("{at:.0}"), format!("{} begins", capture.path)));
        }
    }
    line.sort();
    for (at, what) in &line {
        say(&format!("- {at} {}", plain(what)));
    }
    if line.is_empty() {
        say("Nothing was recorded of when the address was given and taken (azure-vnet.log, events.json).");
    }
    say(
        "\n## What was tried\n\nNothing is recorded here. Please add what was done on this node, when, and whether the rates fell.\n",
    );
    say("## Questions\n");
    let shown = rank(report.verdict) >= 2;
    let here = if shown {
        "This node shows the pattern."
    } else {
        "This node does not show the pattern."
    };
    say(&format!(
        "1. **Is it a known defect?** {here} No public statement of a cause is known to the authors of this tool. Unknown."
    ));
    say(
        "2. **Is there a supported way to clear a node without replacing it?** Nothing that was recorded here shows one. In public only \
         replacing the node is known to have cleared it. Unknown; the test below would tell, step by step.",
    );
    let used = |ip| {
        state
            .hns_endpoints
            .value
            .iter()
            .any(|e| e.is_local() && e.addresses.contains(&ip))
    };
    let owned = state.adapters.value.iter().flat_map(|list| list.addresses());
    let free = owned
        .filter(|(_, owned)| !owned.primary && !used(owned.address))
        .count();
    let condition = match (state.hns_endpoints.is_complete(), free) {
        (true, 1..) => "The adapter owns addresses that no endpoint has, as in the public report of it.",
        (true, 0) => "The adapter owns no address that no endpoint has.",
        (false, _) => "What the adapter owns and what uses it was not recorded whole.",
    };
    say(&format!(
        "3. **Is there a configuration that prevents it?** {condition} No setting of a node is known in public that drops such packets, or answers \
         them once, on Windows. Unknown."
    ));
    say(
        "4. **Does an overlay avoid it?** With an overlay the adapter does not own Pods' addresses, so that none is left without an owner. That it \
         ends the fault is not proven by anything that was recorded.",
    );
    let address = worst.map_or_else(|| "ADDRESS".to_owned(), |one| one.address.to_string());
    say(&format!(
        "\n## A repeatable test, for a drained node\n\n\
         1. `kubectl cordon` and `kubectl drain` the node. Record it: counters, a capture of a second, `Get-HnsEndpoint`, the adapter's addresses.\n\
         2. Choose a free address of the adapter: no endpoint, no Pod. In this report it is {address}.\n\
         3. From another node send one TCP reset to it: `nping --tcp --flags rst,ack -g 443 -p 51022 -c 1 {address}`.\n\
         4. Watch `Packets Received/sec` and `Packets Sent/sec` of each adapter for ten seconds. Expected: one packet in, none out. The fault: both \
         rise by the same number and stay.\n\
         5. Capture a second of it (`pktmon start --capture --pkt-size 64`) and give it to `sexton trace` with the files of step 1.\n\
         6. Try one step at a time, and wait ten seconds after each: give the address an HNS endpoint; disable and enable the VF; release the \
         ipConfiguration. Note the rates after each.\n\
         7. Replace the node, whatever came out.\n"
    ));
    out
}
