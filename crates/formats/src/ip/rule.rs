//! `ip rule`, as JSON and as text.
//!
//! Source: iproute2 6.1, `ip/iprule.c` (`print_rule`). Neither form tells the family of a rule without addresses; rules come
//! in the order of their priorities, so where that falls in one file another listing begins, which is taken for that of
//! IPv6 (`{ ip rule; ip -6 rule; } >ip-rule.txt`).

use serde::Deserialize;
use serde_json::{Map, Value};
use sexton_core::model::{Family, IpRule, IpRuleAction, Problem};

use super::{is_json, protocol_number, table_number};
use crate::{
    addr::parse_net,
    items::{self, Shape},
    problems::Problems,
};

/// Reads `ip rule`. `family` is that of a first rule without addresses.
///
/// A rule that cannot be read is a problem with its line, and the rest is used.
pub fn read_rules(path: &str, bytes: &[u8], family: Family) -> (Vec<IpRule>, Vec<Problem>) {
    let mut place = Place { family, last: 0 };
    let mut rules = Vec::new();
    let mut wrong = Problems::new(path);
    if is_json(bytes) {
        let mut unreadable = Vec::new();
        let problems = items::read(path, bytes, Shape::Plain, &mut |line, raw| {
            let object = items::item::<Object>(path, line, raw, &mut unreadable);
            match object.map(json) {
                Some(Ok(rule)) => rules.push(place.settle(rule)),
                Some(Err(what)) => wrong.push(line, what),
                None => {}
            }
        });
        let mut all = wrong.finish();
        all.extend(unreadable);
        all.extend(problems);
        return (rules, all);
    }
    for (at, line) in String::from_utf8_lossy(bytes).lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}');
        if line.trim().is_empty() {
            continue;
        }
        match text(line) {
            Ok(rule) => rules.push(place.settle(rule)),
            Err(what) => wrong.push(at + 1, what),
        }
    }
    (rules, wrong.finish())
}

/// The rules of one family as `ip rule` prints them.
pub fn print_rules(rules: &[IpRule], family: Family) -> String {
    let of_family = rules.iter().filter(|rule| rule.family == family);
    of_family.map(|rule| rule.text() + "\n").collect()
}

/// Where in the listings a rule stands.
struct Place {
    family: Family,
    last: u32,
}

impl Place {
    fn settle(&mut self, (mut rule, told): (IpRule, Option<Family>)) -> IpRule {
        if rule.priority < self.last {
            self.family = Family::Ipv6;
        }
        self.last = rule.priority;
        if let Some(told) = told {
            self.family = told;
        }
        rule.family = self.family;
        rule
    }
}

/// A rule with the family that its addresses tell.
type Told = (IpRule, Option<Family>);

fn empty(priority: u32) -> IpRule {
    IpRule {
        family: Family::Ipv4,
        priority,
        inverted: false,
        from: None,
        to: None,
        mark: None,
        iif: None,
        oif: None,
        detached: false,
        others: Vec::new(),
        action: IpRuleAction::Other(String::new()),
        protocol: None,
    }
}

/// A prefix; none for all addresses. The family comes with it.
fn net(text: &str, told: &mut Option<Family>) -> Result<Option<ipnet::IpNet>, String> {
    if text == "all" {
        return Ok(None);
    }
    let net = parse_net(text).ok_or_else(|| format!("not an address or prefix: {text:?}"))?;
    *told = Some(Family::of(net.addr()));
    Ok((net.prefix_len() > 0).then_some(net))
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `0x1` or `0x1/0xff`.
fn mark(text: &str) -> Result<(u32, u32), String> {
    let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
    let both = number(value).zip(number(mask));
    both.ok_or_else(|| format!("not a mark: {text:?}"))
}

fn lookup(table: &str) -> IpRuleAction {
    match table_number(table) {
        Some(number) => IpRuleAction::Lookup(number),
        None => IpRuleAction::Other(format!("lookup {table}")),
    }
}

/// `proto` by number. The kernel's own and none are only printed with `-d`.
fn protocol(name: &str, rule: &mut IpRule) {
    match protocol_number(name) {
        Some(0 | 2) => {}
        Some(number) => rule.protocol = Some(number),
        None => rule.others.push(format!("proto {name}")),
    }
}

fn text(line: &str) -> Result<Told, String> {
    let clip = || line.trim().chars().take(60).collect::<String>();
    let (priority, rest) = line
        .split_once(':')
        .and_then(|(priority, rest)| Some((priority.trim().parse().ok()?, rest)))
        .ok_or_else(|| format!("expected a rule with its priority, found {:?}", clip()))?;
    let mut rule = empty(priority);
    let mut told = None;
    let mut action = None;
    let mut words = rest.split_whitespace();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} has no value"));
        match word {
            "not" => rule.inverted = true,
            "from" => rule.from = net(value()?, &mut told)?,
            "to" => rule.to = net(value()?, &mut told)?,
            "fwmark" => rule.mark = Some(mark(value()?)?),
            "iif" => rule.iif = Some(value()?.to_owned()),
            "oif" => rule.oif = Some(value()?.to_owned()),
            "[detached]" => rule.detached = true,
            "proto" | "protocol" => protocol(value()?, &mut rule),
            "lookup" | "table" => action = Some(lookup(value()?)),
            "goto" => {
                let target = value()?;
                let priority = target
                    .parse()
                    .map_err(|_| format!("not a priority: {target:?}"))?;
                action = Some(IpRuleAction::Goto(priority));
            }
            "unreachable" | "blackhole" | "prohibit" | "nop" | "masquerade" => {
                action = Some(IpRuleAction::Other(word.to_owned()));
            }
            "map-to" => action = Some(IpRuleAction::Other(format!("map-to {}", value()?))),
            // `goto` of a rule that is not there.
            "[unresolved]" | "[l3mdev-table]" => rule.others.push(word.to_owned()),
            selector => {
                let value = value()?;
                rule.others.push(format!("{selector} {value}"));
            }
        }
    }
    rule.action = action.ok_or_else(|| format!("expected a rule with its action, found {:?}", clip()))?;
    Ok((rule, told))
}

#[derive(Deserialize)]
struct Object {
    priority: Option<u32>,
    src: Option<String>,
    srclen: Option<u8>,
    dst: Option<String>,
    dstlen: Option<u8>,
    fwmark: Option<String>,
    fwmask: Option<String>,
    iif: Option<String>,
    oif: Option<String>,
    table: Option<Value>,
    goto: Option<u32>,
    action: Option<String>,
    protocol: Option<Value>,
    /// `not`, `iif_detached`, `nop`, selectors.
    #[serde(flatten)]
    more: Map<String, Value>,
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn json(object: Object) -> Result<Told, String> {
    let Some(priority) = object.priority else {
        return Err("expected a rule, found an object without `priority`".to_owned());
    };
    let mut rule = empty(priority);
    let mut told = None;
    let prefix = |address: String, length: Option<u8>| match length {
        Some(length) => format!("{address}/{length}"),
        None => address,
    };
    if let Some(src) = object.src {
        rule.from = net(&prefix(src, object.srclen), &mut told)?;
    }
    if let Some(dst) = object.dst {
        rule.to = net(&prefix(dst, object.dstlen), &mut told)?;
    }
    if let Some(value) = object.fwmark {
        let mask = object.fwmask.map(|mask| format!("/{mask}")).unwrap_or_default();
        rule.mark = Some(mark(&format!("{value}{mask}"))?);
    }
    (rule.iif, rule.oif) = (object.iif, object.oif);
    let more = &object.more;
    let has = |key: &str| more.contains_key(key);
    let told_of = |key: &str| more.get(key).map(word);
    rule.inverted = has("not");
    rule.detached = has("iif_detached") || has("oif_detached");
    rule.action = match (object.table, object.goto, object.action) {
        (Some(table), ..) => lookup(&word(&table)),
        (_, Some(target), _) => IpRuleAction::Goto(target),
        (_, _, Some(action)) => IpRuleAction::Other(action),
        _ if has("nop") => IpRuleAction::Other("nop".to_owned()),
        _ if has("masquerade") => IpRuleAction::Other("masquerade".to_owned()),
        _ if has("l3mdev") => IpRuleAction::Other("lookup [l3mdev-table]".to_owned()),
        _ => return Err("expected a rule, found an object without a table or an action".to_owned()),
    };
    // In the order of the text.
    for (key, first, last) in [
        ("tos", "tos", ""),
        ("uidrange", "uid_start", "uid_end"),
        ("ipproto", "ipproto", ""),
        ("sport", "sport", ""),
        ("sport", "sport_start", "sport_end"),
        ("dport", "dport", ""),
        ("dport", "dport_start", "dport_end"),
        ("tun_id", "tun_id", ""),
        ("suppress_prefixlength", "suppress_prefixlen", ""),
        ("suppress_ifgroup", "suppress_ifgroup", ""),
        ("realms", "flow_to", ""),
    ] {
        if let Some(value) = told_of(first) {
            let value = match told_of(last) {
                Some(end) => format!("{value}-{end}"),
                None => value,
            };
            rule.others.push(format!("{key} {value}"));
        }
    }
    if has("unresolved") {
        rule.others.push("[unresolved]".to_owned());
    }
    if let Some(name) = object.protocol {
        protocol(&word(&name), &mut rule);
    }
    Ok((rule, told))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Printed by iproute2 6.1 in a network namespace of its own.
    const TEXT: &str = "0:\tfrom all lookup local\n\
        1000:\tfrom 10.10.1.5 lookup 100\n\
        1001:\tnot from 10.0.0.0/8 to 10.10.1.0/24 fwmark 0x1/0xff iif d0 [detached] lookup 2000 proto static\n\
        1002:\tfrom 10.10.1.6 unreachable\n\
        1003:\tfrom all goto 32766\n\
        1004:\tfrom all oif d0 [detached] lookup main suppress_prefixlength 0\n\
        1005:\tfrom all tos 0x10 uidrange 0-10 ipproto tcp sport 5 dport 80-90 lookup 7\n\
        1006:\tfrom 1.2.3.4 blackhole\n\
        1007:\tfrom 1.2.3.5 prohibit\n\
        1008:\tfrom all nop\n\
        1009:\tfrom all lookup [l3mdev-table]\n\
        32766:\tfrom all lookup main\n\
        32767:\tfrom all lookup default\n";
    const DETAILS: &str = "0:\tfrom all lookup local proto kernel\n\
        1000:\tfrom 10.10.1.5 lookup 100 proto unspec\n";
    const JSON: &str = r#"[{"priority":0,"src":"all","table":"local"},{"priority":1000,"src":"10.10.1.5","table":"100"},{"priority":1001,"not":null,"src":"10.0.0.0","srclen":8,"dst":"10.10.1.0","dstlen":24,"fwmark":"0x1","fwmask":"0xff","iif":"d0","iif_detached":null,"table":"2000","protocol":"static"},{"priority":1002,"src":"10.10.1.6","action":"unreachable"},{"priority":1003,"src":"all","goto":32766},{"priority":1004,"src":"all","oif":"d0","oif_detached":null,"table":"main","suppress_prefixlen":0},{"priority":1005,"src":"all","tos":"0x10","uid_start":0,"uid_end":10,"ipproto":"tcp","sport":5,"dport_start":80,"dport_end":90,"table":"7"},{"priority":1006,"src":"1.2.3.4","action":"blackhole"},{"priority":1007,"src":"1.2.3.5","action":"prohibit"},{"priority":1008,"src":"all","nop":null},{"priority":1009,"src":"all","l3mdev":null},{"priority":32766,"src":"all","table":"main"},{"priority":32767,"src":"all","table":"default"}]"#;

    fn rules(text: &str) -> Vec<IpRule> {
        let (rules, problems) = read_rules("p", text.as_bytes(), Family::Ipv4);
        assert_eq!(problems, []);
        rules
    }

    #[test]
    fn text_and_json_are_the_same_with_and_without_details() {
        let all = rules(TEXT);
        assert_eq!(all.len(), 13);
        assert_eq!(rules(JSON), all);
        assert_eq!(rules(DETAILS), all[..2]);
        let rule = &all[2];
        assert!(rule.inverted && rule.detached);
        assert_eq!((rule.mark, rule.protocol), (Some((1, 0xff)), Some(4)));
        assert_eq!(rule.action, IpRuleAction::Lookup(2000));
        assert_eq!(all[4].action, IpRuleAction::Goto(32766));
        assert_eq!(all[5].others, ["suppress_prefixlength 0"]);
    }

    #[test]
    fn two_listings_in_one_file_are_two_families() {
        let both = format!("{TEXT}0:\tfrom all lookup local\n32765:\tfrom fd00::5 lookup 100\n");
        let families: Vec<_> = rules(&both).iter().map(|rule| rule.family).collect();
        assert!(families[..13].iter().all(|family| *family == Family::Ipv4));
        assert_eq!(families[13..], [Family::Ipv6, Family::Ipv6]);
    }

    #[test]
    fn what_is_no_rule_is_named_with_its_line() {
        let (rules, problems) = read_rules(
            "p",
            b"0:\tfrom all lookup local\nhello\n5:\tfrom x lookup 1\n6:\tfrom all\n7:\tfrom all lookup\n",
            Family::Ipv4,
        );
        assert_eq!(rules.len(), 1);
        let places: Vec<_> = problems.iter().map(|p| p.place.as_str()).collect();
        assert_eq!(places, ["p:2", "p:3", "p:4", "p:5"]);
        let (_, problems) = read_rules("p", br#"[{"a":1},{"priority":1}]"#, Family::Ipv4);
        assert_eq!(problems.len(), 2);
    }

    fn any_net() -> impl Strategy<Value = Option<ipnet::IpNet>> {
        proptest::option::of(
            (any::<[u8; 4]>(), 1_u8..=32)
                .prop_map(|(ip, length)| ipnet::IpNet::new(std::net::IpAddr::from(ip), length).unwrap()),
        )
    }

    fn any_rule() -> impl Strategy<Value = IpRule> {
        let action = prop_oneof![
            any::<u32>().prop_map(IpRuleAction::Lookup),
            any::<u32>().prop_map(IpRuleAction::Goto),
            prop_oneof![Just("nop"), Just("unreachable"), Just("lookup blue")]
                .prop_map(|text| IpRuleAction::Other(text.to_owned())),
        ];
        let link = || proptest::option::of("[a-z][a-z0-9@.]{0,8}");
        let others = proptest::collection::vec("(tos 0x10|ipproto udp|dport 80-90)", 0..3);
        let mark = proptest::option::of(any::<(u32, u32)>());
        let protocol = proptest::option::of((3_u8..).prop_filter("not hidden", |p| *p > 2));
        (
            (any::<bool>(), any_net(), any_net(), mark),
            (link(), link(), any::<bool>(), others, action, protocol),
        )
            .prop_map(
                |((inverted, from, to, mark), (iif, oif, detached, others, action, protocol))| IpRule {
                    family: Family::Ipv4,
                    priority: 0,
                    inverted,
                    from,
                    to,
                    mark,
                    detached: detached && (iif.is_some() || oif.is_some()),
                    iif,
                    oif,
                    others,
                    action,
                    protocol,
                },
            )
    }

    proptest! {
        #[test]
        fn what_was_printed_is_read_back(all in proptest::collection::vec(any_rule(), 0..8)) {
            let mut all = all;
            for (priority, rule) in (0..).zip(&mut all) {
                rule.priority = priority;
            }
            let text = print_rules(&all, Family::Ipv4);
            prop_assert_eq!(rules(&text), all);
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_rules("p", &bytes, Family::Ipv6);
        }
    }
}
