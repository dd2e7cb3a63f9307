//! What a rule matches and does, out of its words.

use sexton_core::model::{Dnat, NftRule, PortRange, Proto};

use super::{
    lex::{Kind, Token},
    value::port,
};
use crate::addr::parse_ip;

/// Fills in what the words of a rule, or of one of its statements, tell.
pub(super) fn fill(rule: &mut NftRule, tokens: &[Token<'_>]) {
    let mut depth = 0_usize;
    let mut in_dnat = false;
    for (at, token) in tokens.iter().enumerate() {
        let word = match token.kind {
            Kind::Open => {
                depth += 1;
                continue;
            }
            Kind::Close => {
                depth = depth.saturating_sub(1);
                continue;
            }
            Kind::Word(word) if depth == 0 => word,
            _ => continue,
        };
        let next = tokens.get(at + 1);
        let before = at.checked_sub(1).and_then(|at| tokens.get(at));
        let after_two = tokens.get(at + 2..).unwrap_or_default();
        match word {
            "comment" => {
                if let Some(Token {
                    kind: Kind::Quoted(text),
                    ..
                }) = next
                {
                    rule.comment = Some((*text).to_owned());
                }
            }
            "jump" | "goto" => {
                if let Some(name) = next.and_then(Token::text) {
                    rule.target = Some(name.to_owned());
                }
            }
            "dnat" => {
                in_dnat = true;
                rule.dnat = dnat(tokens.get(at + 1..).unwrap_or_default());
            }
            "vmap" => named_map(rule, next),
            "map" if in_dnat => named_map(rule, next),
            "l4proto" | "protocol" | "nexthdr" => {
                let matches = before.is_some_and(|b| b.is("meta") || b.is("ip") || b.is("ip6"));
                if let Some(value) = next.and_then(Token::text).filter(|_| matches) {
                    rule.proto = rule.proto.or_else(|| Proto::parse(value));
                }
            }
            "tcp" | "udp" | "sctp" | "dccp" | "udplite" | "th" => {
                // `meta l4proto tcp`: a value, not the beginning of a match
                let is_value = before.is_some_and(|b| b.is("l4proto") || b.is("protocol") || b.is("nexthdr"));
                let Some(field) = next.and_then(Token::text).filter(|_| !is_value && !in_dnat) else {
                    continue;
                };
                rule.proto = rule.proto.or_else(|| Proto::parse(word));
                if field == "dport" && rule.dports.is_empty() && !before.is_some_and(|b| b.is(".")) {
                    rule.dports = ports(after_two);
                }
            }
            "ip" | "ip6" => {
                let alone = !in_dnat && !before.is_some_and(|b| b.is("."));
                if alone && next.is_some_and(|n| n.is("daddr")) && rule.destination.is_none() {
                    rule.destination = destination(after_two);
                }
            }
            _ => {}
        }
    }
}

/// `vmap @name`.
fn named_map(rule: &mut NftRule, next: Option<&Token<'_>>) {
    if let Some(name) = next.and_then(Token::text).filter(|name| name.starts_with('@')) {
        rule.target = Some(name.to_owned());
    }
}

/// `[ip|ip6] [addr . port] to 10.0.0.1:80`: only one address with or without one port.
fn dnat(tokens: &[Token<'_>]) -> Option<Dnat> {
    let to = tokens.iter().take(5).position(|t| t.is("to"))?;
    let text = tokens.get(to + 1)?.text()?;
    // `dnat to ip saddr map ...`, `dnat to numgen ...` begin with a word that is no address
    if let Some(ip) = parse_ip(text) {
        return Some(Dnat { ip, port: None });
    }
    let (ip, port_text) = match text.strip_prefix('[') {
        Some(rest) => {
            let (ip, rest) = rest.split_once(']')?;
            if rest.is_empty() {
                return Some(Dnat {
                    ip: parse_ip(ip)?,
                    port: None,
                });
            }
            (ip, rest.strip_prefix(':')?)
        }
        None => text.rsplit_once(':')?,
    };
    Some(Dnat {
        ip: parse_ip(ip)?,
        port: Some(port(port_text)?),
    })
}

/// Ports after `dport`: one, a range or a set of them in braces. Nothing for a comparison other than equality, a named
/// set or a map.
fn ports(tokens: &[Token<'_>]) -> Vec<PortRange> {
    let tokens = match tokens {
        [first, rest @ ..] if first.is("==") => rest,
        all => all,
    };
    let texts: Vec<&str> = match tokens.first().map(|t| t.kind) {
        Some(Kind::Word(text)) => vec![text],
        Some(Kind::Open) => tokens
            .iter()
            .skip(1)
            .take_while(|t| t.kind != Kind::Close)
            .filter_map(Token::text)
            .collect(),
        _ => return Vec::new(),
    };
    let ranges = texts.into_iter().map(|text| match text.split_once('-') {
        Some((first, last)) if port(text).is_none() => Some(PortRange {
            first: port(first)?,
            last: port(last)?,
        }),
        _ => port(text).map(PortRange::one),
    });
    ranges.collect::<Option<_>>().unwrap_or_default()
}

/// The value after `daddr`, as printed.
fn destination(tokens: &[Token<'_>]) -> Option<String> {
    let (operator, tokens) = match tokens {
        [first, rest @ ..] if first.is("!=") => ("!= ", rest),
        [first, rest @ ..] if first.is("==") => ("", rest),
        all => ("", all),
    };
    match tokens.first()?.kind {
        Kind::Word("." | "map" | "vmap" | "set" | "&" | "<" | ">" | "<=" | ">=") => None,
        Kind::Word(text) => Some(format!("{operator}{text}")),
        Kind::Open => {
            let values = tokens.iter().skip(1).take_while(|t| t.kind != Kind::Close);
            let values: Vec<&str> = values.filter_map(Token::text).collect();
            Some(format!("{operator}{{ {} }}", values.join(", ")))
        }
        _ => None,
    }
}
