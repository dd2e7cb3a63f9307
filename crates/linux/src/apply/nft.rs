//! Rules, and elements of sets and maps. The kernel's delete looks at the handle or the key only, so the generation carries
//! the swap: rule or element is read under a generation, and the batch is refused if anything changed since.

use std::collections::HashSet;

use sexton_core::model::NftElement;
use sexton_core::node::Applied;
use sexton_core::plan::NftEdit;

use crate::netlink::{self, Swapped, TableName};
use crate::source::chain;

/// Deletes an element that still is as it was observed.
pub(super) fn delete(table: &TableName, set: &str, element: &NftElement, own: &mut HashSet<u32>) -> Applied {
    own.extend(own_thread());
    outcome(netlink::delete_nft_element(table, set, element))
}

/// Adds an element whose key is free.
pub(super) fn add(table: &TableName, set: &str, element: &NftElement, own: &mut HashSet<u32>) -> Applied {
    own.extend(own_thread());
    outcome(netlink::add_nft_element(table, set, element))
}

/// Makes one transaction of a table.
pub(super) fn edit(edit: &NftEdit, own: &mut HashSet<u32>) -> Applied {
    own.extend(own_thread());
    match netlink::edit_nft(edit) {
        Ok((Swapped::Done, skipped)) => Applied::Done { skipped },
        Ok((other, _)) => outcome(Ok(other)),
        Err(error) => outcome(Err(error)),
    }
}

fn outcome(result: Result<Swapped, netlink::NetlinkError>) -> Applied {
    match result {
        Ok(Swapped::Done) => Applied::Done { skipped: Vec::new() },
        Ok(Swapped::Absent) => Applied::AlreadyGone,
        Ok(Swapped::Changed(why)) => Applied::Changed(why),
        Ok(Swapped::Refused(why)) => Applied::Failed(why),
        Err(error) => Applied::Failed(chain(&error)),
    }
}

/// The kernel names a writer by its thread.
fn own_thread() -> Option<u32> {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).ok()
}
