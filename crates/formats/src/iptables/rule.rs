//! One rule.

use std::borrow::Cow;

use sexton_core::model::{Dnat, PortRange, Proto, XtMatch, XtRule};

use crate::addr::parse_ip;

/// A line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It does not begin with `-A CHAIN`.
    #[error("expected -A CHAIN")]
    NotARule,
    /// Counters that are not `[packets:bytes]` or `-c packets bytes`.
    #[error("expected counters as two numbers")]
    Counters,
    /// A quote is open at the end.
    #[error("a quote has no end")]
    OpenQuote,
    /// An option without its value.
    #[error("option {0} has no value")]
    NoValue(String),
    /// A word where an option was expected.
    #[error("expected an option, found {0}")]
    NotAnOption(String),
}

/// A word of a line.
struct Word<'a> {
    text: Cow<'a, str>,
    /// It began with a quote: never an option.
    quoted: bool,
    start: usize,
    end: usize,
}

impl Word<'_> {
    fn is_option(&self) -> bool {
        let bytes = self.text.as_bytes();
        !self.quoted
            && (bytes == b"!"
                || (bytes.first() == Some(&b'-') && bytes.get(1).is_some_and(|b| !b.is_ascii_digit())))
    }
}

/// Words as iptables quotes them: `"` around, and `\` before `"`, `'` and `\` inside.
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<Option<Word<'a>>, RuleError> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(|b| matches!(b, b' ' | b'\t')) {
            self.at += 1;
        }
        let start = self.at;
        let Some(first) = bytes.get(start) else {
            return Ok(None);
        };
        if *first != b'"' {
            let rest = &bytes[start..];
            let end = start
                + rest
                    .iter()
                    .position(|b| matches!(b, b' ' | b'\t'))
                    .unwrap_or(rest.len());
            self.at = end;
            return Ok(Some(Word {
                text: Cow::Borrowed(&self.text[start..end]),
                quoted: false,
                start,
                end,
            }));
        }
        // Up to the closing quote; nearly always there is nothing to take out.
        let mut at = start + 1;
        loop {
            let found = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default());
            at += found.ok_or(RuleError::OpenQuote)?;
            if bytes.get(at) == Some(&b'"') {
                break;
            }
            at += 2;
        }
        self.at = at + 1;
        Ok(Some(Word {
            text: unquote(&self.text[start + 1..at]),
            quoted: true,
            start,
            end: at + 1,
        }))
    }

    fn peek_is_value(&self) -> Result<bool, RuleError> {
        let mut ahead = Words {
            text: self.text,
            at: self.at,
        };
        Ok(ahead.next()?.is_some_and(|word| !word.is_option()))
    }
}

fn unquote(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    Cow::Owned(out)
}

/// Reads a rule as `iptables-save` (with `[packets:bytes]` before it or not) or `iptables -S` (with `-c packets bytes`
/// in it or not) prints it, and the name of its chain.
///
/// # Errors
///
/// [`RuleError`] if it is none. An unknown match or target is no error: it goes to `others`.
pub fn parse_rule(text: &str) -> Result<(&str, XtRule), RuleError> {
    let mut text = text.trim_end();
    let mut counters = None;
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, rest) = rest.split_once("] ").ok_or(RuleError::Counters)?;
        let (packets, bytes) = inside.split_once(':').ok_or(RuleError::Counters)?;
        counters = Some(two_numbers(packets, bytes)?);
        text = rest;
    }
    let rest = text.strip_prefix("-A ").ok_or(RuleError::NotARule)?;
    let chain = rest
        .split(' ')
        .next()
        .filter(|chain| !chain.is_empty())
        .ok_or(RuleError::NotARule)?;
    let mut words = Words {
        text,
        at: "-A ".len() + chain.len(),
    };
    let mut spec = XtMatch::default();
    // Where `-c` and its numbers stand, to be taken out.
    let mut inline = None;
    while let Some(word) = words.next()? {
        option(&mut words, word, &mut spec, &mut inline)?;
    }
    let line = match inline {
        None => text.to_owned(),
        Some((start, end, values)) => {
            counters = Some(values);
            [text[..start].trim_end(), &text[end..]].concat()
        }
    };
    Ok((chain, XtRule { line, counters, spec }))
}

fn two_numbers(packets: &str, bytes: &str) -> Result<(u64, u64), RuleError> {
    let number = |text: &str| text.parse().map_err(|_| RuleError::Counters);
    Ok((number(packets)?, number(bytes)?))
}

type Inline = Option<(usize, usize, (u64, u64))>;

/// One option with its values.
fn option(
    words: &mut Words<'_>,
    first: Word<'_>,
    spec: &mut XtMatch,
    inline: &mut Inline,
) -> Result<(), RuleError> {
    let start = first.start;
    let mut negated = !first.quoted && first.text == "!";
    let name = if negated {
        words.next()?.ok_or_else(|| RuleError::NoValue("!".to_owned()))?
    } else {
        first
    };
    if name.quoted || !name.text.starts_with('-') {
        return Err(RuleError::NotAnOption(name.text.into_owned()));
    }
    let Some(key) = key(&name.text) else {
        let mut end = name.end;
        while words.peek_is_value()? {
            if let Some(value) = words.next()? {
                end = value.end;
            }
        }
        spec.others.push(words.text[start..end].to_owned());
        return Ok(());
    };
    let no_value = || RuleError::NoValue(name.text.clone().into_owned());
    let mut value = words.next()?.ok_or_else(no_value)?;
    if !value.quoted && value.text == "!" {
        // Old versions print `-s ! 10.0.0.0/8`.
        negated = true;
        value = words.next()?.ok_or_else(no_value)?;
    }
    let known = match key {
        Key::Proto => {
            let proto = proto(&value.text);
            spec.proto = proto;
            proto.is_some()
        }
        Key::Source => set(&mut spec.source, &value.text),
        Key::Destination => set(&mut spec.destination, &value.text),
        Key::In => set(&mut spec.in_interface, &value.text),
        Key::Out => set(&mut spec.out_interface, &value.text),
        Key::Target => set(&mut spec.target, &value.text),
        Key::Comment => set(&mut spec.comment, &value.text),
        Key::DstType => set(&mut spec.dst_type, &value.text),
        // Their options are among the fields; every other match is told as such.
        Key::Match => matches!(
            value.text.as_ref(),
            "tcp" | "udp" | "sctp" | "dccp" | "udplite" | "comment" | "multiport" | "addrtype"
        ),
        Key::Dports => ports(&value.text, &mut spec.dports).is_some(),
        Key::ToDestination => {
            let dnat = parse_dnat(&value.text).filter(|_| spec.dnat.is_none());
            if dnat.is_some() {
                spec.dnat = dnat;
            }
            dnat.is_some()
        }
        Key::Counters => {
            let bytes = words.next()?.ok_or_else(no_value)?;
            *inline = Some((start, bytes.end, two_numbers(&value.text, &bytes.text)?));
            return Ok(());
        }
    };
    spec.negated |= negated && known;
    if !known {
        spec.others.push(words.text[start..value.end].to_owned());
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Key {
    Proto,
    Source,
    Destination,
    In,
    Out,
    Target,
    Match,
    Counters,
    Dports,
    Comment,
    DstType,
    ToDestination,
}

/// Takes a value once; a second one is told as something else.
fn set(field: &mut Option<String>, value: &str) -> bool {
    let free = field.is_none();
    if free {
        *field = Some(value.to_owned());
    }
    free
}

/// The two protocols of nearly every rule without a detour.
fn proto(text: &str) -> Option<Proto> {
    match text {
        "tcp" => Some(Proto::Tcp),
        "udp" => Some(Proto::Udp),
        other => Proto::parse(other),
    }
}

/// The field that an option is about; `None` for an option that is not among the fields.
fn key(name: &str) -> Option<Key> {
    if let [b'-', letter] = name.as_bytes() {
        return Some(match letter {
            b'p' => Key::Proto,
            b's' => Key::Source,
            b'd' => Key::Destination,
            b'i' => Key::In,
            b'o' => Key::Out,
            b'j' | b'g' => Key::Target,
            b'm' => Key::Match,
            b'c' => Key::Counters,
            _ => return None,
        });
    }
    Some(match name {
        "--dport" | "--dports" | "--destination-port" | "--destination-ports" => Key::Dports,
        "--comment" => Key::Comment,
        "--to-destination" => Key::ToDestination,
        "--dst-type" => Key::DstType,
        "--protocol" => Key::Proto,
        "--source" | "--src" => Key::Source,
        "--destination" | "--dst" => Key::Destination,
        "--in-interface" => Key::In,
        "--out-interface" => Key::Out,
        "--jump" | "--goto" => Key::Target,
        "--match" => Key::Match,
        "--set-counters" => Key::Counters,
        _ => return None,
    })
}

/// `80`, `80:90`, `80,443,8000:8080`; an end that is left out is the least or the greatest port. Adds all or none.
fn ports(text: &str, out: &mut Vec<PortRange>) -> Option<()> {
    let port = |text: &str, otherwise: u16| {
        if text.is_empty() {
            Some(otherwise)
        } else {
            text.parse().ok()
        }
    };
    let before = out.len();
    for part in text.split(',') {
        let range = match part.split_once(':') {
            None => part.parse().ok().map(PortRange::one),
            Some((first, last)) => port(first, 0)
                .zip(port(last, u16::MAX))
                .map(|(first, last)| PortRange { first, last }),
        };
        let Some(range) = range else {
            out.truncate(before);
            return None;
        };
        out.push(range);
    }
    Some(())
}

/// `10.0.0.1`, `10.0.0.1:80`, `fd00::1`, `[fd00::1]:80`; `None` for ranges and for a port alone.
fn parse_dnat(text: &str) -> Option<Dnat> {
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, rest) = rest.split_once(']')?;
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(port.parse().ok()?),
            None if rest.is_empty() => None,
            None => return None,
        };
        return Some(Dnat {
            ip: parse_ip(ip)?,
            port,
        });
    }
    // One colon is an IPv4 address and a port; more are an IPv6 address, whose port would be ambiguous without brackets.
    match text.split_once(':') {
        Some((ip, port)) if !port.contains(':') => Some(Dnat {
            ip: parse_ip(ip)?,
            port: Some(port.parse().ok()?),
        }),
        _ => Some(Dnat {
            ip: parse_ip(text)?,
            port: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(line: &str) -> XtMatch {
        parse_rule(line).unwrap().1.spec
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_portmap_jump_with_a_quoted_comment() {
        let line = r#"-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"podnet\" id: \"408809c4415b\"" -m multiport --dports 8080,9000:9010 -j CNI-DN-f43ffeab6331c9f734972"#;
        let text_with_counters = format!("[115:6900] {line}");
        let (chain, rule) = parse_rule(&text_with_counters).unwrap();
        assert_eq!(chain, "CNI-HOSTPORT-DNAT");
        assert_eq!(
            rule,
            XtRule {
                line: line.to_owned(),
                counters: Some((115, 6900)),
                spec: XtMatch {
                    proto: Some(Proto::Tcp),
                    comment: text(r#"dnat name: "podnet" id: "408809c4415b""#),
                    dports: vec![
                        PortRange::one(8080),
                        PortRange {
                            first: 9000,
                            last: 9010
                        }
                    ],
                    target: text("CNI-DN-f43ffeab6331c9f734972"),
                    ..XtMatch::default()
                },
            }
        );
    }

    #[test]
    fn counters_inside_of_a_listing_are_taken_out() {
        let (_, rule) = parse_rule(
            "-A INPUT -p udp -f -m udp ! --dport 53 -c 7 420 -j REJECT --reject-with icmp-port-unreachable",
        )
        .unwrap();
        assert_eq!(
            rule,
            XtRule {
                line: "-A INPUT -p udp -f -m udp ! --dport 53 -j REJECT --reject-with icmp-port-unreachable"
                    .to_owned(),
                counters: Some((7, 420)),
                spec: XtMatch {
                    proto: Some(Proto::Udp),
                    dports: vec![PortRange::one(53)],
                    target: text("REJECT"),
                    negated: true,
                    others: vec!["-f".to_owned(), "--reject-with icmp-port-unreachable".to_owned()],
                    ..XtMatch::default()
                },
            }
        );
    }

    #[test]
    fn every_field_and_what_is_not_one() {
        assert_eq!(
            spec(
                r#"-A PREROUTING ! -s 10.0.0.0/8 -d 192.0.2.1/32 -i eth0 -o eth1 -p tcp -m tcp --dport 1:65535 -m addrtype --dst-type LOCAL -m conntrack --ctstate NEW,RELATED ! --ctproto 6 -m set --match-set a dst,dst -m comment --comment a\b -j DNAT --to-destination 10.0.0.1:80 --random --persistent"#
            ),
            XtMatch {
                proto: Some(Proto::Tcp),
                source: text("10.0.0.0/8"),
                destination: text("192.0.2.1/32"),
                dports: vec![PortRange {
                    first: 1,
                    last: 65535
                }],
                comment: text(r"a\b"),
                in_interface: text("eth0"),
                out_interface: text("eth1"),
                dst_type: text("LOCAL"),
                target: text("DNAT"),
                dnat: Some(Dnat {
                    ip: "10.0.0.1".parse().unwrap(),
                    port: Some(80)
                }),
                negated: true,
                others: [
                    "-m conntrack",
                    "--ctstate NEW,RELATED",
                    "! --ctproto 6",
                    "-m set",
                    "--match-set a dst,dst",
                    "--random",
                    "--persistent"
                ]
                .map(str::to_owned)
                .to_vec(),
            }
        );
        assert!(spec("-A X -s ! 10.0.0.0/8 -j Y").negated);
        assert_eq!(spec("-A X -p esp -g Y").others, ["-p esp"]);
        assert_eq!(spec("-A X -p tcp -m tcp --dport http").others, ["--dport http"]);
        assert_eq!(
            spec("-A X -m u32 --u32 \"-1=2\" -j Y").others,
            ["-m u32", "--u32 \"-1=2\""]
        );
        let twice = spec("-A X -m comment --comment \"\" -m comment --comment x");
        assert_eq!(
            (twice.comment, twice.others),
            (text(""), vec!["--comment x".to_owned()])
        );
        assert_eq!(spec("-A X"), XtMatch::default());
    }

    #[test]
    fn destinations() {
        let dnat = |value: &str| {
            let spec = spec(&format!("-A X -j DNAT --to-destination {value}"));
            assert_eq!(
                spec.dnat.is_none(),
                spec.others == [format!("--to-destination {value}")],
                "{value}"
            );
            spec.dnat.map(|d| (d.ip.to_string(), d.port))
        };
        let some = |ip: &str, port| Some((ip.to_owned(), port));
        assert_eq!(dnat("10.0.0.1"), some("10.0.0.1", None));
        assert_eq!(dnat("10.0.0.1:80"), some("10.0.0.1", Some(80)));
        assert_eq!(dnat("fd00::1"), some("fd00::1", None));
        assert_eq!(dnat("[fd00::1]:80"), some("fd00::1", Some(80)));
        for other in [
            "10.0.0.1-10.0.0.9",
            "10.0.0.1:80-90",
            ":8080",
            "10.0.0.1:80-90/8000",
            "[fd00::1]x",
            "10.0.0.1:99999",
        ] {
            assert_eq!(dnat(other), None, "{other}");
        }
        let two = spec("-A X -j DNAT --to-destination 10.0.0.1 --to-destination 10.0.0.2");
        assert_eq!(two.others, ["--to-destination 10.0.0.2"]);
    }

    #[test]
    fn broken_lines() {
        let err = |line: &str| parse_rule(line).unwrap_err();
        assert_eq!(err("-I INPUT -j X"), RuleError::NotARule);
        assert_eq!(err("-A "), RuleError::NotARule);
        assert_eq!(err("[1:x] -A X"), RuleError::Counters);
        assert_eq!(err("[1:2]-A X"), RuleError::Counters);
        assert_eq!(err("-A X -c 1"), RuleError::NoValue("-c".to_owned()));
        assert_eq!(err("-A X -j"), RuleError::NoValue("-j".to_owned()));
        assert_eq!(err("-A X !"), RuleError::NoValue("!".to_owned()));
        assert_eq!(err("-A X -m comment --comment \"open \\\""), RuleError::OpenQuote);
        assert_eq!(err("-A X -j Y stray"), RuleError::NotAnOption("stray".to_owned()));
        assert_eq!(err("-A X \"-j\" Y"), RuleError::NotAnOption("-j".to_owned()));
    }
}
