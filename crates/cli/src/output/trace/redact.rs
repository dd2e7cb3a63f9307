//! Names and addresses become numbers: the same name is the same number, so that who speaks to whom stays told.

use std::{collections::BTreeMap, net::IpAddr};

use sexton_core::model::NodeState;

/// What is replaced by what.
pub struct Redaction {
    /// Names of this node's recording, the longest first, with the kind of thing that they name.
    names: Vec<(String, String)>,
    seen: BTreeMap<String, String>,
}

impl Redaction {
    /// Of everything that the recording names.
    pub fn new(state: &NodeState) -> Self {
        let mut kinds: BTreeMap<String, &str> = BTreeMap::new();
        let mut put = |name: &str, kind: &'static str| {
            // A name of one or two letters would be in every word.
            if name.len() > 2 {
                kinds.insert(name.to_owned(), kind);
            }
        };
        put(&state.identity.name, "node");
        let hosts = state.counters.value.iter().flat_map(|file| &file.counters.series);
        hosts
            .filter_map(|series| series.counter.host.as_deref())
            .for_each(|host| put(host, "node"));
        for pod in &state.pods.value {
            put(&pod.name, "pod");
            put(&pod.namespace, "namespace");
            pod.node.iter().for_each(|node| put(node, "node"));
        }
        for event in &state.history.value {
            put(&event.pod.name, "pod");
            put(&event.pod.namespace, "namespace");
        }
        state.nodes.value.iter().for_each(|node| put(&node.name, "node"));
        for (nic, _) in state.adapters.value.iter().flat_map(|list| list.addresses()) {
            nic.name.iter().for_each(|name| put(name, "nic"));
        }
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut names: Vec<(String, String)> = kinds
            .into_iter()
            .map(|(name, kind)| {
                let number = numbers.entry(kind).or_default();
                *number += 1;
                (name, format!("{kind}-{number}"))
            })
            .collect();
        names.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then(a.cmp(b)));
        Self {
            names,
            seen: BTreeMap::new(),
        }
    }

    /// Replaces them all in a text; what looks like an address, a MAC or a GUID too, whether it is known or not.
    pub fn apply(&mut self, text: &str) -> String {
        let mut out = text.to_owned();
        for (name, to) in &self.names {
            out = replace_words(&out, name, to);
        }
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-');
        let mut done = String::with_capacity(out.len());
        let mut rest = out.as_str();
        while let Some(at) = rest.find(part) {
            let (before, from) = rest.split_at(at);
            let end = from.find(|c| !part(c)).unwrap_or(from.len());
            let (word, after) = from.split_at(end);
            done.push_str(before);
            done.push_str(&self.word(word));
            rest = after;
        }
        done.push_str(rest);
        done
    }

    fn word(&mut self, word: &str) -> String {
        let bare = word.trim_end_matches(['.', ':', '-']);
        let tail = word.get(bare.len()..).unwrap_or_default();
        if bare.parse::<IpAddr>().is_ok() {
            return self.number(bare, "address") + tail;
        }
        if let Some((address, port)) = bare.rsplit_once(':')
            && address.parse::<IpAddr>().is_ok()
            && port.bytes().all(|b| b.is_ascii_digit())
        {
            return format!("{}:{port}{tail}", self.number(address, "address"));
        }
        let hex = bare.bytes().filter(u8::is_ascii_hexdigit).count();
        let marks = bare.len() - hex;
        match (hex, marks) {
            (12, 5) => self.number(bare, "mac") + tail,
            (32, 4) => self.number(bare, "id") + tail,
            _ => word.to_owned(),
        }
    }

    fn number(&mut self, text: &str, kind: &str) -> String {
        let key = text.to_ascii_lowercase().replace('-', ":");
        let next = self.seen.values().filter(|to| to.starts_with(kind)).count() + 1;
        self.seen
            .entry(key)
            .or_insert_with(|| format!("{kind}-{next}"))
            .clone()
    }
}

/// Replaces a name where it is a word of its own, in whatever case.
fn replace_words(text: &str, name: &str, to: &str) -> String {
    let (low, name) = (text.to_ascii_lowercase(), name.to_ascii_lowercase());
    let inside = |c: char| c.is_alphanumeric() || c == '-';
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (at, found) in low.match_indices(&name) {
        let before = low.get(..at).and_then(|text| text.chars().next_back());
        let after = low.get(at + found.len()..).and_then(|text| text.chars().next());
        if at < from || before.is_some_and(inside) || after.is_some_and(inside) {
            continue;
        }
        out.push_str(text.get(from..at).unwrap_or_default());
        out.push_str(to);
        from = at + found.len();
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_is_the_same_number_and_nothing_of_it_stays() {
        let mut state = NodeState::default();
        state.identity.name = "akswnp00002f".to_owned();
        let mut redaction = Redaction::new(&state);
        let text = "node AKSWNP00002F: tcp 10.240.255.8:443 > 10.240.1.77:51022, nobody has 10.240.1.77. MAC 00-15-5D-8E-0D-BD, \
                    00:15:5d:8e:0d:bd, 705f2a0d-cd52-4535-ae32-df0ed4f33151; [fd00::7] 20348.5139.260513 kept";
        assert_eq!(
            redaction.apply(text),
            "node node-1: tcp address-1:443 > address-2:51022, nobody has address-2. MAC mac-1, mac-1, id-1; [address-3] \
             20348.5139.260513 kept"
        );
    }
}
