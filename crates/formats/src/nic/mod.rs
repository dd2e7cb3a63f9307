//! Which addresses an Azure network adapter owns: from ARM (`az network nic show` and `list`), the instance metadata
//! service, NMAgent's `getinterfaceinfov1` (XML, and the same tree as JSON on Azure Stack), CNS and Azure's IPAM.
//!
//! On a node with preallocated addresses every *free* one is owned by the adapter and used by nobody: that alone is
//! normal.

use std::net::IpAddr;

use sexton_core::model::{Completeness, Problem};

mod json;
mod xml;

pub use sexton_core::model::{Nic, NicAddress, NicSource};

/// What a file came to.
#[derive(Clone, Debug, PartialEq)]
pub struct NicOutput {
    /// What it is; `None` if nothing was understood.
    pub source: Option<NicSource>,
    /// The adapters.
    pub nics: Vec<Nic>,
    /// Whether that is all.
    pub completeness: Completeness,
    /// What was wrong.
    pub problems: Vec<Problem>,
}

impl NicOutput {
    /// The address, if an adapter owns it.
    pub fn owner(&self, address: IpAddr) -> Option<(&Nic, &NicAddress)> {
        self.nics.iter().find_map(|nic| {
            let found = nic.addresses.iter().find(|owned| owned.address == address)?;
            Some((nic, found))
        })
    }
}

/// Reads any of the sources, told apart by content. Never fails: what was wrong is in the result.
pub fn parse(bytes: &[u8], path: &str) -> NicOutput {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut out = NicOutput {
        source: None,
        nics: Vec::new(),
        completeness: Completeness::Complete,
        problems: Vec::new(),
    };
    match bytes.trim_ascii_start().first() {
        Some(b'<') => xml::parse(bytes, path, &mut out),
        Some(b'{' | b'[') => json::parse(bytes, path, &mut out),
        _ => out.fail(
            path,
            1,
            "expected JSON or XML of an adapter's addresses".to_owned(),
        ),
    }
    out
}

impl NicOutput {
    fn problem(&mut self, path: &str, line: usize, what: String) {
        self.problems.push(Problem {
            place: format!("{path}:{line}"),
            what,
        });
    }

    /// Nothing, or nothing more, could be read.
    fn fail(&mut self, path: &str, line: usize, why: String) {
        self.completeness = if self.nics.is_empty() {
            Completeness::Unavailable(why.clone())
        } else {
            Completeness::Partial(why.clone())
        };
        self.problem(path, line, why);
    }
}

/// `000D3A5C20C0`, `00-0D-3A-5C-20-C0`, `00:0d:...` in one spelling; `None` if it is no MAC address.
pub fn canonical_mac(text: &str) -> Option<String> {
    let digits: String = text
        .chars()
        .filter(|c| !matches!(c, ':' | '-' | '.'))
        .collect::<String>()
        .to_ascii_lowercase();
    if digits.len() != 12 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let pairs: Vec<_> = (0..6).filter_map(|n| digits.get(n * 2..n * 2 + 2)).collect();
    Some(pairs.join(":"))
}

#[cfg(test)]
mod tests;
