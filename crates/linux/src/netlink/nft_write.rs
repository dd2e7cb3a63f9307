//! Adding and deleting elements under a generation (`NFNL_BATCH_GENID`): the kernel refuses the batch with ERESTART if
//! the ruleset was changed since it was read.

use nlink::Connection;
use nlink::netlink::Nftables;
use nlink::netlink::nftables::{NFT_MSG_DELSETELEM, NFT_MSG_NEWSETELEM, RawMessage};
use sexton_core::model::{NftElement, NftValue};

use super::attrs::{NLA_F_NESTED, push, push_text};
use super::nft::{self, RawSet, TableName, WireKey};
use super::nft_value::{encode, type_name};
use super::{DUMP_TRIES, NetlinkError, block_on, is_torn};

const NFTA_LIST_ELEM: u16 = 1;
const NLM_F_EXCL: u16 = 0x200;
pub(super) const NLM_F_CREATE: u16 = 0x400;

/// What became of a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Swapped {
    /// It was made.
    Done,
    /// There was nothing to change.
    Absent,
    /// What is there is not what was expected; nothing was changed.
    Changed(String),
    /// It cannot be made.
    Refused(String),
}

/// Deletes an element if key, data and comment are as expected.
pub(crate) fn delete(table: &TableName, set: &str, expected: &NftElement) -> Result<Swapped, NetlinkError> {
    swap(async |conn| {
        let Some((set, found)) = find(conn, table, set, expected).await? else {
            return Ok(Step::End(Swapped::Absent));
        };
        let Some((element, keys)) = found else {
            return Ok(Step::End(Swapped::Absent));
        };
        if element.text() != expected.text() {
            return Ok(Step::End(Swapped::Changed(format!(
                "the element is now {}",
                element.text()
            ))));
        }
        Ok(Step::Send(vec![gone_element(&set, &keys)]))
    })
}

/// Adds an element if its key is free.
pub(crate) fn add(table: &TableName, set: &str, element: &NftElement) -> Result<Swapped, NetlinkError> {
    swap(async |conn| {
        let Some((set, found)) = find(conn, table, set, element).await? else {
            return Ok(Step::End(Swapped::Changed("the set is gone".to_owned())));
        };
        if let Some((there, _)) = found {
            return Ok(Step::End(if there.text() == element.text() {
                Swapped::Absent
            } else {
                Swapped::Changed(format!("the key is taken: {}", there.text()))
            }));
        }
        Ok(match new_element(&set, element) {
            Ok(message) => Step::Send(vec![message]),
            Err(why) => Step::End(Swapped::Refused(why.to_string())),
        })
    })
}

/// The message that adds an element.
pub(super) fn new_element(set: &RawSet, element: &NftElement) -> Result<RawMessage, Unwritable> {
    let elements = wire_elements(set, element)?;
    Ok(message(NFT_MSG_NEWSETELEM, set, &elements).flags(NLM_F_CREATE | NLM_F_EXCL))
}

/// The message that deletes what a look found.
pub(super) fn gone_element(set: &RawSet, keys: &[WireKey]) -> RawMessage {
    let elements = keys.iter().map(wire_key).collect::<Vec<_>>();
    message(NFT_MSG_DELSETELEM, set, &elements)
}

/// What to do after a look.
pub(super) enum Step {
    Send(Vec<RawMessage>),
    End(Swapped),
}

/// Looks and sends as one transaction, again when the ruleset was changed in between.
pub(super) fn swap(
    look: impl AsyncFn(&Connection<Nftables>) -> Result<Step, NetlinkError>,
) -> Result<Swapped, NetlinkError> {
    block_on("nftables", async {
        for _ in 0..DUMP_TRIES {
            let conn = nft::open()?;
            let generation = nft::generation(&conn).await?;
            let step = match look(&conn).await {
                Err(error) if is_torn(&error) => continue,
                other => other?,
            };
            let messages = match step {
                Step::End(end) => return Ok(end),
                Step::Send(messages) => messages,
            };
            let empty = conn.transaction().expect_generation(generation);
            let batch = messages
                .into_iter()
                .fold(empty, |batch, message| batch.raw(message));
            match batch.commit(&conn).await {
                Ok(()) => return Ok(Swapped::Done),
                Err(error) if error.is_restart() => {}
                Err(source) => {
                    return Err(NetlinkError::Write {
                        what: "nftables",
                        source,
                    });
                }
            }
        }
        Ok(Swapped::Changed(format!(
            "the ruleset was changed during each of {DUMP_TRIES} tries"
        )))
    })
}

pub(super) type Found = Option<(NftElement, Vec<WireKey>)>;

/// The set, and what it holds under the element's key. None where the set is gone.
pub(super) async fn find(
    conn: &Connection<Nftables>,
    table: &TableName,
    name: &str,
    element: &NftElement,
) -> Result<Option<(RawSet, Found)>, NetlinkError> {
    let sets = nft::sets(conn, &|family, wanted| {
        (family, wanted) == (table.0, table.1.as_str())
    })
    .await?;
    let Some(set) = sets.into_iter().find(|set| set.name == name) else {
        return Ok(None);
    };
    let mut unreadable = 0;
    let elements = nft::elements(conn, &set, &mut unreadable).await?;
    let found = elements.into_iter().find(|(there, _)| there.key == element.key);
    Ok(Some((set, found)))
}

fn message(kind: u8, set: &RawSet, elements: &[Vec<u8>]) -> RawMessage {
    let mut attrs = Vec::new();
    push_text(&mut attrs, nft::NFTA_SET_ELEM_LIST_TABLE, &set.table);
    push_text(&mut attrs, nft::NFTA_SET_ELEM_LIST_SET, &set.name);
    let mut list = Vec::new();
    for element in elements {
        push(&mut list, NFTA_LIST_ELEM | NLA_F_NESTED, element);
    }
    push(&mut attrs, nft::NFTA_SET_ELEM_LIST_ELEMENTS | NLA_F_NESTED, &list);
    RawMessage::new(kind, nft::wire_family(set.family)).attrs(attrs)
}

fn push_value(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let mut inner = Vec::new();
    push(&mut inner, nft::NFTA_DATA_VALUE, value);
    push(out, kind | NLA_F_NESTED, &inner);
}

/// An element as a deletion names it.
fn wire_key(name: &WireKey) -> Vec<u8> {
    let mut out = Vec::new();
    if name.flags & nft::NFT_SET_ELEM_CATCHALL == 0 {
        push_value(&mut out, nft::NFTA_SET_ELEM_KEY, &name.key);
    }
    if let Some(end) = &name.key_end {
        push_value(&mut out, nft::NFTA_SET_ELEM_KEY_END, end);
    }
    if name.flags != 0 {
        push(&mut out, nft::NFTA_SET_ELEM_FLAGS, &name.flags.to_be_bytes());
    }
    out
}

/// Why an element cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unwritable {
    /// A part of the key.
    #[error("the key {text} cannot be written as {wanted}")]
    Key {
        /// The element's key.
        text: String,
        /// The set's type.
        wanted: String,
    },
    /// A range in a set that keeps none.
    #[error("{text} is a range, and the set {set} keeps single values")]
    Range {
        /// The element.
        text: String,
        /// The set.
        set: String,
    },
    /// A map's data.
    #[error("the data of {text} cannot be written as {wanted}")]
    Data {
        /// The element.
        text: String,
        /// The map's type.
        wanted: String,
    },
    /// A verdict that is none of nftables'.
    #[error("{text:?} is no verdict that can be written")]
    Verdict {
        /// What was to be one.
        text: String,
    },
    /// A comment for which the kernel has no room.
    #[error("the comment of {text} is longer than 254 bytes")]
    Comment {
        /// The element.
        text: String,
    },
}

/// An element as an addition describes it, with the end of its range where the set keeps that as an element of its own.
fn wire_elements(set: &RawSet, element: &NftElement) -> Result<Vec<Vec<u8>>, Unwritable> {
    let text = element.text();
    let Some((first, last)) = encode(set.key_type, &element.key) else {
        let wanted = type_name(set.key_type);
        return Err(Unwritable::Key { text, wanted });
    };
    let paired = nft::is_paired(set);
    let ranges = paired || set.flags & nft::NFT_SET_CONCAT != 0;
    if first != last && !ranges {
        let set = set.name.clone();
        return Err(Unwritable::Range { text, set });
    }
    let mut out = Vec::new();
    push_value(&mut out, nft::NFTA_SET_ELEM_KEY, &first);
    if !paired && first != last {
        push_value(&mut out, nft::NFTA_SET_ELEM_KEY_END, &last);
    }
    push_data(&mut out, set, element)?;
    if let Some(timeout) = element.timeout_ms {
        push(&mut out, nft::NFTA_SET_ELEM_TIMEOUT, &timeout.to_be_bytes());
        // What comes back lives no longer than it would have lived.
        if let Some(left) = element.expires_ms.filter(|left| *left <= timeout) {
            push(&mut out, nft::NFTA_SET_ELEM_EXPIRATION, &left.to_be_bytes());
        }
    }
    if let Some(comment) = &element.comment {
        let Ok(len) = u8::try_from(comment.len() + 1) else {
            return Err(Unwritable::Comment { text });
        };
        let mut data = vec![nft::NFTNL_UDATA_SET_ELEM_COMMENT, len];
        data.extend_from_slice(comment.as_bytes());
        data.push(0);
        push(&mut out, nft::NFTA_SET_ELEM_USERDATA, &data);
    }
    let mut elements = vec![out];
    // A range up to the highest value has no end.
    if paired && let Some(after) = after(&last) {
        elements.push(wire_key(&WireKey {
            key: after,
            key_end: None,
            flags: nft::NFT_SET_ELEM_INTERVAL_END,
        }));
    }
    Ok(elements)
}

/// The data of a map's element: a value, or a verdict with the chain that it leads to.
fn push_data(out: &mut Vec<u8>, set: &RawSet, element: &NftElement) -> Result<(), Unwritable> {
    let refused = |wanted: String| {
        let text = element.text();
        Err(Unwritable::Data { text, wanted })
    };
    match (set.data_type, element.data.as_slice()) {
        (None, []) => Ok(()),
        (None, _) => refused("no data: it is a set".to_owned()),
        (Some(nft::NFT_DATA_VERDICT), [NftValue::Verdict(verdict)]) => {
            let data = wire_verdict(verdict)?;
            let mut inner = Vec::new();
            push(&mut inner, nft::NFTA_DATA_VERDICT | NLA_F_NESTED, &data);
            push(out, nft::NFTA_SET_ELEM_DATA | NLA_F_NESTED, &inner);
            Ok(())
        }
        (Some(nft::NFT_DATA_VERDICT), _) => refused("a verdict".to_owned()),
        (Some(data_type), values) => match encode(data_type, values) {
            Some((data, end)) if data == end => {
                push_value(out, nft::NFTA_SET_ELEM_DATA, &data);
                Ok(())
            }
            _ => refused(type_name(data_type)),
        },
    }
}

/// A verdict's code (`enum nft_verdicts` and `NF_DROP`, `NF_ACCEPT`) with its chain.
fn wire_verdict(text: &str) -> Result<Vec<u8>, Unwritable> {
    let (word, chain) = match text.split_once(' ') {
        Some((word, chain)) => (word, Some(chain)),
        None => (text, None),
    };
    let code: i32 = match (word, chain) {
        ("drop", None) => 0,
        ("accept", None) => 1,
        ("continue", None) => -1,
        ("return", None) => -5,
        ("jump", Some(_)) => -3,
        ("goto", Some(_)) => -4,
        _ => {
            let text = text.to_owned();
            return Err(Unwritable::Verdict { text });
        }
    };
    let mut out = Vec::new();
    push(&mut out, nft::NFTA_VERDICT_CODE, &code.to_be_bytes());
    if let Some(chain) = chain {
        push_text(&mut out, nft::NFTA_VERDICT_CHAIN, chain);
    }
    Ok(out)
}

/// The value after this one, as a number in network order; none after the highest.
fn after(key: &[u8]) -> Option<Vec<u8>> {
    let mut out = key.to_vec();
    for byte in out.iter_mut().rev() {
        let (more, carried) = byte.overflowing_add(1);
        *byte = more;
        if !carried {
            return Some(out);
        }
    }
    None
}
