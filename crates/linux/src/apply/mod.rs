//! Changing the node: one act in, one outcome out (laws 9, 10 and 11).
//!
//! Every act reads its object again just before, changes it only if it still is what was judged, and reads it back.

mod conntrack;
mod lease;
mod nft;
mod probe;
mod writer;
mod xt;

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use sexton_core::model::NodeState;
use sexton_core::node::{Applied, Node, Probed};
use sexton_core::plan::{Act, Probe};

use crate::node::LinuxNode;
use writer::Watcher;

/// What is kept from one act to the next.
#[derive(Default)]
pub(crate) struct Hands {
    /// Listens to who changes nftables; begins with the first act.
    watcher: Option<Watcher>,
    /// Our own process and the tools that we ran: not other writers.
    own: HashSet<u32>,
}

impl Node for LinuxNode {
    fn observe(&mut self) -> NodeState {
        Self::observe(self)
    }

    fn apply(&mut self, act: &Act) -> Applied {
        if self.hands.watcher.is_none() {
            self.hands.own.insert(std::process::id());
            // Without it a writer stays without a name, which is no reason not to repair.
            self.hands.watcher = Watcher::start(&self.options.proc);
        }
        let options = &self.options;
        match act {
            Act::XtRestore { edit } => xt::restore(options, edit, &mut self.hands.own),
            Act::NftEdit { edit } => nft::edit(edit, &mut self.hands.own),
            Act::NftDeleteElement {
                family,
                table,
                set,
                element,
            } => nft::delete(&(*family, table.clone()), set, element, &mut self.hands.own),
            Act::NftAddElement {
                family,
                table,
                set,
                element,
            } => nft::add(&(*family, table.clone()), set, element, &mut self.hands.own),
            Act::ConntrackDelete { entries } => conntrack::delete(entries),
            Act::LeaseQuarantine { lease } => lease::quarantine(lease),
            Act::LeaseRestore { lease } => lease::restore(lease),
        }
    }

    fn probe(&mut self, probe: &Probe) -> Probed {
        probe::send(probe)
    }

    fn writer(&mut self, act: &Act) -> Option<String> {
        let watcher = self.hands.watcher.as_ref()?;
        watcher.last(&writer::places(act), &self.hands.own)
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep(&mut self, pause: Duration) {
        std::thread::sleep(pause);
    }
}
