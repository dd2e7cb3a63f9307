//! What an nftables rule matches and does, as far as it is simple.
//!
//! A rule is a small program over registers. It is followed with what each register holds: a field of the packet, a
//! constant, or what a map gave for one. Whatever is not understood leaves its fields empty and never gives a wrong one.

use std::collections::HashMap;

use nlink::netlink::nftables::expr::RuleExpr;
use nlink::netlink::nftables::{CmpOp, MetaKey, NatType, PayloadBase, RangeOp, Register, RuleInfo};
use sexton_core::marks;
use sexton_core::model::{Dnat, Family, NftElement, NftFamily, NftRaw, NftRule, NftValue, PortRange, Proto};

use super::attrs::{be16, ip};
use super::nft::{TableName, verdict_chain};
use super::nft_value::hex;

/// Elements of the sets without a name that rules hold (`tcp dport { 80, 443 }`), by table and set.
pub(super) type AnonymousSets = HashMap<TableName, HashMap<String, Vec<NftElement>>>;

/// What a register holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    /// The transport protocol.
    Proto,
    /// The transport destination port.
    Dport,
    /// The transport destination port, known to be at least this.
    DportFrom(u16),
    /// The destination address, under a mask if there is one.
    Daddr(Family, Option<Vec<u8>>),
    /// A constant.
    Constant(Vec<u8>),
    /// What the map of this name gave.
    FromMap(String),
}

/// A register's first word among the sixteen of four bytes; the old names of sixteen bytes overlap the new ones.
fn word(register: Register) -> u32 {
    match register as u32 {
        old @ 1..=4 => (old - 1) * 4,
        new => new.saturating_sub(8),
    }
}

/// The rule in the model's terms.
pub(super) fn rule(
    info: &RuleInfo,
    family: NftFamily,
    anonymous: &HashMap<String, Vec<NftElement>>,
) -> NftRule {
    let expressions = info.expressions();
    let mut out = NftRule {
        handle: Some(info.handle),
        comment: info.comment_text.clone(),
        ..NftRule::bare(family, &info.table, &info.chain, String::new())
    };
    let mut held: HashMap<u32, Held> = HashMap::new();
    for expression in &expressions {
        follow(expression, &mut held, anonymous, &mut out);
    }
    out.text = info
        .nft_syntax_stateless()
        .unwrap_or_else(|| outline(&expressions, &out));
    out.raw = raw(info, &expressions, &out);
    out
}

/// What the kernel keeps of a rule that may be taken away; none where it refers to a set without a name, which goes with it.
fn raw(info: &RuleInfo, expressions: &[RuleExpr], rule: &NftRule) -> Option<NftRaw> {
    let own_set = expressions.iter().any(|expression| {
        let name = match expression {
            RuleExpr::Lookup { set, .. } => set,
            _ => return false,
        };
        name.starts_with("__")
    });
    (marks::nft::of(rule).is_some() && !own_set).then(|| NftRaw {
        expressions: hex(&info.expression_bytes),
        userdata: info.userdata_raw.as_deref().map(hex),
    })
}

/// Notes what a register holds now; nothing that is understood forgets what it held.
fn load(held: &mut HashMap<u32, Held>, register: &Register, what: Option<Held>) {
    match what {
        Some(what) => held.insert(word(*register), what),
        None => held.remove(&word(*register)),
    };
}

fn follow(
    expression: &RuleExpr,
    held: &mut HashMap<u32, Held>,
    anonymous: &HashMap<String, Vec<NftElement>>,
    out: &mut NftRule,
) {
    match expression {
        RuleExpr::Meta { dreg, key, .. } => {
            load(held, dreg, (*key == MetaKey::L4Proto).then_some(Held::Proto))
        }
        RuleExpr::Payload {
            dreg,
            base,
            offset,
            len,
            ..
        } => load(
            held,
            dreg,
            match (base, offset, len) {
                (PayloadBase::Transport, 2, 2) => Some(Held::Dport),
                (PayloadBase::Network, 9, 1) | (PayloadBase::Network, 6, 1) => Some(Held::Proto),
                // A prefix of whole bytes is compared without a mask, over that many bytes.
                (PayloadBase::Network, 16, 1..=4) => Some(Held::Daddr(Family::Ipv4, None)),
                (PayloadBase::Network, 24, 1..=16) => Some(Held::Daddr(Family::Ipv6, None)),
                _ => None,
            },
        ),
        RuleExpr::Immediate { dreg, data, .. } => load(held, dreg, Some(Held::Constant(data.clone()))),
        RuleExpr::Bitwise {
            sreg,
            dreg,
            mask,
            xor,
            ..
        } => {
            let masked = match held.get(&word(*sreg)) {
                Some(Held::Daddr(family, None)) if xor.iter().all(|byte| *byte == 0) => {
                    Some(Held::Daddr(*family, Some(mask.clone())))
                }
                _ => None,
            };
            load(held, dreg, masked);
        }
        RuleExpr::Cmp { sreg, op, data, .. } if *op == CmpOp::Eq => match held.get(&word(*sreg)) {
            Some(Held::Proto) => out.proto = data.first().copied().map(Proto::from_number),
            Some(Held::Dport) => out.dports.extend(be16(data).map(PortRange::one)),
            Some(Held::Daddr(family, mask)) => out.destination = prefix(*family, data, mask.as_deref()),
            _ => {}
        },
        RuleExpr::Cmp {
            sreg,
            op: CmpOp::Neq,
            data,
            ..
        } => {
            if let Some(Held::Daddr(family, mask)) = held.get(&word(*sreg)) {
                let but = prefix(*family, data, mask.as_deref());
                out.destination = but.map(|but| format!("!= {but}"));
            }
        }
        // A range of ports, before nft knew a word for it: not less than the first, not more than the last.
        RuleExpr::Cmp { sreg, op, data, .. } if held.get(&word(*sreg)) == Some(&Held::Dport) => match op {
            CmpOp::Gte => {
                if let Some(first) = be16(data) {
                    held.insert(word(*sreg), Held::DportFrom(first));
                }
            }
            CmpOp::Lte => {
                if let Some(last) = be16(data) {
                    out.dports.push(PortRange { first: 0, last });
                }
            }
            _ => {}
        },
        RuleExpr::Cmp {
            sreg,
            op: CmpOp::Lte,
            data,
            ..
        } => {
            if let Some(Held::DportFrom(first)) = held.get(&word(*sreg))
                && let Some(last) = be16(data)
            {
                out.dports.push(PortRange { first: *first, last });
            }
        }
        RuleExpr::Range {
            sreg, op, from, to, ..
        } if *op == RangeOp::Eq && held.get(&word(*sreg)) == Some(&Held::Dport) => {
            if let (Some(first), Some(last)) = (be16(from), be16(to)) {
                out.dports.push(PortRange { first, last });
            }
        }
        RuleExpr::Lookup {
            set,
            sreg,
            dreg: None,
            invert: false,
            ..
        } => {
            if held.get(&word(*sreg)) == Some(&Held::Dport)
                && let Some(elements) = anonymous.get(set)
            {
                out.dports.extend(elements.iter().filter_map(port_range));
            }
        }
        RuleExpr::Lookup {
            set,
            dreg: Some(dreg),
            ..
        } => {
            if *dreg == Register::Verdict {
                out.target = Some(format!("@{set}"));
            } else {
                load(held, dreg, Some(Held::FromMap(set.clone())));
            }
        }
        RuleExpr::Nat {
            nat_type: NatType::Dnat,
            addr: Some((first, last)),
            proto,
            ..
        } => match held.get(&word(*first)) {
            Some(Held::FromMap(map)) => out.target = Some(format!("@{map}")),
            Some(Held::Constant(data)) if held.get(&word(*first)) == held.get(&word(*last)) => {
                let port = proto.as_ref().map(|(first, last)| match held.get(&word(*first)) {
                    Some(Held::Constant(port)) if held.get(&word(*first)) == held.get(&word(*last)) => {
                        be16(port)
                    }
                    _ => None,
                });
                // A port that is there and not understood makes the whole target unknown.
                out.dnat = match (ip(data), port) {
                    (Some(ip), None) => Some(Dnat { ip, port: None }),
                    (Some(ip), Some(Some(port))) => Some(Dnat { ip, port: Some(port) }),
                    _ => None,
                };
            }
            _ => {}
        },
        RuleExpr::Verdict(verdict) => {
            if let Some(chain) = verdict_chain(verdict) {
                out.target = Some(chain);
            }
        }
        RuleExpr::Ct { dreg, .. } | RuleExpr::CtDirectional { dreg, .. } | RuleExpr::Fib { dreg, .. } => {
            load(held, dreg, None);
        }
        RuleExpr::Exthdr { dreg, .. }
        | RuleExpr::Rt { dreg, .. }
        | RuleExpr::Byteorder { dreg, .. }
        | RuleExpr::Socket { dreg, .. }
        | RuleExpr::Osf { dreg, .. }
        | RuleExpr::Numgen { dreg, .. }
        | RuleExpr::Hash { dreg, .. } => load(held, dreg, None),
        _ => {}
    }
}

/// An address, or a prefix by its mask or by its length in bytes.
fn prefix(family: Family, data: &[u8], mask: Option<&[u8]>) -> Option<String> {
    let whole: u32 = match family {
        Family::Ipv4 => 32,
        Family::Ipv6 => 128,
    };
    let mut bytes = data.to_vec();
    bytes.resize(whole as usize / 8, 0);
    let address = ip(&bytes)?;
    let length = match mask {
        None => u32::try_from(data.len()).ok()? * 8,
        Some(mask) => {
            let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
            // Ones after a zero are no prefix.
            let leading: u32 = mask.iter().take_while(|byte| **byte == 0xff).map(|_| 8).sum();
            let partial = mask
                .iter()
                .find(|byte| **byte != 0xff)
                .map_or(0, |byte| byte.leading_ones());
            (leading + partial == ones).then_some(ones)?
        }
    };
    Some(if length == whole {
        address.to_string()
    } else {
        format!("{address}/{length}")
    })
}

fn port_range(element: &NftElement) -> Option<PortRange> {
    match &element.key[..] {
        [NftValue::Port(port)] => Some(PortRange::one(*port)),
        [NftValue::Other(range)] => {
            let (first, last) = range.split_once('-')?;
            Some(PortRange {
                first: first.parse().ok()?,
                last: last.parse().ok()?,
            })
        }
        _ => None,
    }
}

/// What can be said of a rule that cannot be printed as nft would: the names of its expressions, with what was
/// understood of them.
fn outline(expressions: &[RuleExpr], rule: &NftRule) -> String {
    let mut out = String::new();
    let mut add = |part: &str| {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(part);
    };
    if let Some(destination) = &rule.destination {
        add(&format!("daddr {destination}"));
    }
    if let Some(proto) = rule.proto {
        add(&format!("l4proto {proto}"));
    }
    for range in &rule.dports {
        if range.first == range.last {
            add(&format!("dport {}", range.first));
        } else {
            add(&format!("dport {}-{}", range.first, range.last));
        }
    }
    for expression in expressions {
        let word = format!("{expression:?}");
        let end = word.find(|c: char| !c.is_alphanumeric()).unwrap_or(word.len());
        add(&format!(
            "[{}]",
            word.get(..end).unwrap_or_default().to_ascii_lowercase()
        ));
    }
    if let Some(dnat) = &rule.dnat {
        let port = dnat.port.map(|port| format!(":{port}")).unwrap_or_default();
        add(&format!("dnat to {}{port}", dnat.ip));
    }
    if let Some(target) = &rule.target {
        add(target);
    }
    if let Some(comment) = &rule.comment {
        add(&format!("comment \"{comment}\""));
    }
    out
}
