//! One transaction of one table: rules by handle, elements by key, all of them read again under the generation that the
//! batch names (`NFNL_BATCH_GENID`).
//!
//! A rule that is put back is made of the very bytes that the kernel told of it, behind the rule that it stood behind
//! (`NFTA_RULE_POSITION` with `NLM_F_APPEND`), or at the head of its chain.

use std::collections::{HashMap, HashSet};

use nlink::Connection;
use nlink::netlink::Nftables;
use nlink::netlink::nftables::{NFT_MSG_DELRULE, NFT_MSG_NEWRULE, RawMessage};
use sexton_core::model::{NftElement, NftRule};
use sexton_core::plan::{NftEdit, NftRuleAt};

use super::NetlinkError;
use super::attrs::{push, push_text};
use super::nft::{self, RawSet, WireKey};
use super::nft_value::unhex;
use super::nft_write::{NLM_F_CREATE, Step, Swapped, gone_element, new_element, swap};

const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_POSITION: u16 = 6;
const NFTA_RULE_USERDATA: u16 = 7;
const NLA_F_NESTED: u16 = 1 << 15;
const NLM_F_APPEND: u16 = 0x800;

/// Makes the changes, wholly or not at all, and tells what of them was not needed any more.
pub(crate) fn apply(edit: &NftEdit) -> Result<(Swapped, Vec<String>), NetlinkError> {
    let skipped = std::sync::Mutex::new(Vec::new());
    let swapped = swap(async |conn| {
        let mut look = Look {
            edit,
            messages: Vec::new(),
            skipped: Vec::new(),
        };
        let ended = match look.rules(conn).await? {
            None => look.elements(conn).await?,
            end => end,
        };
        if let Some(end) = ended {
            return Ok(Step::End(end));
        }
        *skipped.lock().unwrap_or_else(|broken| broken.into_inner()) = look.skipped;
        Ok(if look.messages.is_empty() {
            Step::End(Swapped::Absent)
        } else {
            Step::Send(look.messages)
        })
    })?;
    let skipped = skipped.into_inner().unwrap_or_else(|broken| broken.into_inner());
    Ok((swapped, skipped))
}

/// One look at the table, and what is to be sent by it.
struct Look<'a> {
    edit: &'a NftEdit,
    messages: Vec<RawMessage>,
    skipped: Vec<String>,
}

/// A set's elements, each with its names in the kernel.
type Elements = Vec<(NftElement, Vec<WireKey>)>;

/// A reason not to send anything.
type End = Option<Swapped>;

impl Look<'_> {
    async fn rules(&mut self, conn: &Connection<Nftables>) -> Result<End, NetlinkError> {
        let edit = self.edit;
        if edit.delete.is_empty() && edit.add.is_empty() {
            return Ok(None);
        }
        let mut found = Vec::new();
        // Sets without a name are only needed to read ports out of them, which no rule here has.
        nft::rules(conn, (edit.family, &edit.table), &HashMap::new(), &mut found).await?;
        let by_handle: HashMap<(&str, u64), &NftRule> = found
            .iter()
            .filter_map(|rule| Some(((rule.chain.as_str(), rule.handle?), rule)))
            .collect();
        for at in &edit.delete {
            let Some(handle) = at.rule.handle else {
                let why = format!("the handle of {} was not recorded", at.rule.placed());
                return Ok(Some(Swapped::Refused(why)));
            };
            match by_handle.get(&(at.rule.chain.as_str(), handle)) {
                Some(rule) if is_as_observed(rule, &at.rule) => self.messages.push(self.gone(rule, handle)),
                Some(rule) => {
                    let why = format!("the rule of handle {handle} is now {}", rule.placed());
                    return Ok(Some(Swapped::Changed(why)));
                }
                None => self.skipped.push(at.rule.placed()),
            }
        }
        let put_back: HashMap<(&str, u64), Option<u64>> = edit
            .add
            .iter()
            .filter_map(|at| Some(((at.rule.chain.as_str(), at.rule.handle?), at.after)))
            .collect();
        let there: HashSet<(&str, &str)> = found
            .iter()
            .map(|rule| (rule.chain.as_str(), rule.text.as_str()))
            .collect();
        // The last first: of several behind one rule each pushes the one before it on.
        for at in edit.add.iter().rev() {
            let chain = at.rule.chain.as_str();
            if there.contains(&(chain, at.rule.text.as_str())) {
                self.skipped.push(at.rule.placed());
                continue;
            }
            let mut after = at.after;
            // The nearest one before it that is not put back as well. Each step goes to a lower place in the chain.
            for _ in 0..edit.add.len() {
                match after.and_then(|handle| put_back.get(&(chain, handle))) {
                    Some(before) => after = *before,
                    None => break,
                }
            }
            if let Some(handle) = after.filter(|handle| !by_handle.contains_key(&(chain, *handle))) {
                let why = format!("the rule that it stood behind (handle {handle}) is gone");
                return Ok(Some(Swapped::Changed(why)));
            }
            match self.back(at, after) {
                Some(message) => self.messages.push(message),
                None => {
                    let why = format!("what the kernel kept of {} is not known", at.rule.placed());
                    return Ok(Some(Swapped::Refused(why)));
                }
            }
        }
        Ok(None)
    }

    fn place(&self, chain: &str) -> Vec<u8> {
        let mut attrs = Vec::new();
        push_text(&mut attrs, NFTA_RULE_TABLE, &self.edit.table);
        push_text(&mut attrs, NFTA_RULE_CHAIN, chain);
        attrs
    }

    fn gone(&self, rule: &NftRule, handle: u64) -> RawMessage {
        let mut attrs = self.place(&rule.chain);
        push(&mut attrs, NFTA_RULE_HANDLE, &handle.to_be_bytes());
        RawMessage::new(NFT_MSG_DELRULE, nft::wire_family(self.edit.family)).attrs(attrs)
    }

    fn back(&self, at: &NftRuleAt, after: Option<u64>) -> Option<RawMessage> {
        let raw = at.rule.raw.as_ref()?;
        let mut attrs = self.place(&at.rule.chain);
        let expressions = unhex(&raw.expressions)?;
        push(&mut attrs, NFTA_RULE_EXPRESSIONS | NLA_F_NESTED, &expressions);
        if let Some(userdata) = &raw.userdata {
            push(&mut attrs, NFTA_RULE_USERDATA, &unhex(userdata)?);
        }
        let mut flags = NLM_F_CREATE;
        if let Some(handle) = after {
            push(&mut attrs, NFTA_RULE_POSITION, &handle.to_be_bytes());
            flags |= NLM_F_APPEND;
        }
        let message = RawMessage::new(NFT_MSG_NEWRULE, nft::wire_family(self.edit.family));
        Some(message.flags(flags).attrs(attrs))
    }

    async fn elements(&mut self, conn: &Connection<Nftables>) -> Result<End, NetlinkError> {
        let edit = self.edit;
        let all = edit.delete_elements.iter().chain(&edit.add_elements);
        let names: HashSet<&str> = all.map(|at| at.set.as_str()).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let wanted = |family, table: &str| (family, table) == (edit.family, edit.table.as_str());
        let mut sets: HashMap<String, (RawSet, Elements)> = HashMap::new();
        for set in nft::sets(conn, &wanted).await? {
            if names.contains(set.name.as_str()) {
                let mut unreadable = 0;
                let elements = nft::elements(conn, &set, &mut unreadable).await?;
                sets.insert(set.name.clone(), (set, elements));
            }
        }
        let mut freed = Vec::new();
        for at in &edit.delete_elements {
            let found = sets
                .get(&at.set)
                .and_then(|(set, all)| Some((set, all.iter().find(|(e, _)| e.key == at.element.key)?)));
            match found {
                Some((set, (element, keys))) if element.text() == at.element.text() => {
                    self.messages.push(gone_element(set, keys));
                    freed.push((&at.set, &at.element.key));
                }
                Some((_, (element, _))) => {
                    let why = format!("the element is now {}", element.text());
                    return Ok(Some(Swapped::Changed(why)));
                }
                None => self.skipped.push(at.element.text()),
            }
        }
        for at in &edit.add_elements {
            let Some((set, all)) = sets.get(&at.set) else {
                return Ok(Some(Swapped::Changed(format!("the set {} is gone", at.set))));
            };
            let there = all.iter().find(|(e, _)| e.key == at.element.key);
            let is_freed = freed.contains(&(&at.set, &at.element.key));
            match there.filter(|_| !is_freed) {
                Some((element, _)) if element.text() == at.element.text() => {
                    self.skipped.push(element.text());
                }
                Some((element, _)) => {
                    let why = format!("the key is taken: {}", element.text());
                    return Ok(Some(Swapped::Changed(why)));
                }
                None => match new_element(set, &at.element) {
                    Ok(message) => self.messages.push(message),
                    Err(why) => return Ok(Some(Swapped::Refused(why.to_string()))),
                },
            }
        }
        Ok(None)
    }
}

/// True if the kernel's rule is the one that was judged, in every byte where those are known. A rule with a counter never is
/// the same twice: the plugins write none.
fn is_as_observed(rule: &NftRule, observed: &NftRule) -> bool {
    let bytes = observed.raw.is_none() || rule.raw == observed.raw;
    rule.is_same(observed) && rule.comment == observed.comment && bytes
}
