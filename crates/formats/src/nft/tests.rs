//! The samples were printed by nft 1.0.6: `all` from a ruleset with every kind of set, `iptables` from rules that
//! iptables-nft 1.8.9 made.

use std::{fmt::Write as _, net::IpAddr};

use proptest::prelude::*;
use sexton_core::model::{Dnat, NftElement, NftRule, NftSet, NftValue, PortRange, Proto, XtTable};

use super::*;

const ALL_TEXT: &str = include_str!("samples/all.txt");
const ALL_JSON: &str = include_str!("samples/all.json");
const IPTABLES_TEXT: &str = include_str!("samples/iptables.txt");
const IPTABLES_JSON: &str = include_str!("samples/iptables.json");

fn text(text: &str) -> NftState {
    let (state, problems) = read("p", text.as_bytes());
    assert_eq!(problems, []);
    state
}

fn set<'s>(state: &'s NftState, name: &str) -> &'s NftSet {
    state.sets.iter().find(|s| s.name == name).unwrap()
}

fn elements(state: &NftState, name: &str) -> Vec<String> {
    set(state, name).elements.iter().map(NftElement::text).collect()
}

fn rule(state: &NftState, handle: u64) -> &NftRule {
    let in_table = |r: &&NftRule| r.table == "t" && r.handle == Some(handle);
    state.rules.iter().find(in_table).unwrap()
}

/// Only what JSON tells too: no fractions of a second, no devices, no wording of rules.
fn as_json_tells(mut state: NftState) -> NftState {
    for element in state.sets.iter_mut().flat_map(|s| &mut s.elements) {
        element.expires_ms = element.expires_ms.map(|ms| ms / 1000 * 1000);
    }
    state.chains.iter_mut().for_each(|c| c.device = None);
    state.rules.iter_mut().for_each(|r| r.text.clear());
    state
}

#[test]
fn text_and_json_are_the_same_ruleset() {
    let (json, problems) = read("p", ALL_JSON.as_bytes());
    assert_eq!(problems, []);
    let (from_text, from_json) = (as_json_tells(text(ALL_TEXT)), as_json_tells(json));
    assert_eq!(from_text.tables, from_json.tables);
    assert_eq!(from_text.sets, from_json.sets);
    assert_eq!(from_text.chains, from_json.chains);
    assert_eq!(from_text.rules, from_json.rules);
    assert_eq!(from_text.tables.len(), 6);
    assert_eq!(from_text.sets.len(), 18);
}

#[test]
fn elements_of_every_kind() {
    let state = text(ALL_TEXT);
    assert_eq!(
        elements(&state, "a"),
        ["10.0.0.0/24", "10.0.2.1-10.0.2.9", "192.168.1.1"]
    );
    assert_eq!(
        set(&state, "cat").elements[1],
        NftElement {
            key: vec![
                NftValue::Addr("10.0.0.2".parse().unwrap()),
                NftValue::Port(443),
                NftValue::Proto(Proto::Udp)
            ],
            data: vec![],
            comment: Some("x, y : z".to_owned()),
            timeout_ms: None,
            expires_ms: None,
        }
    );
    assert_eq!(
        set(&state, "cat").key_type,
        "ipv4_addr . inet_service . inet_proto"
    );
    assert_eq!(
        set(&state, "ifs").elements[0].key,
        [NftValue::Interface("eth0".to_owned())]
    );
    assert_eq!(set(&state, "marks").elements[1].key, [NftValue::Mark(255)]);
    assert_eq!(elements(&state, "ports"), ["80-90", "443"]);
    assert_eq!(elements(&state, "iv")[0], "10.0.0.0/24 . 80-90");
    assert_eq!(
        elements(&state, "npl")[0],
        "tcp . 61000 comment \"uid\" : 10.10.1.2 . 80"
    );
    assert_eq!(elements(&state, "vm")[1], "10.96.0.1 . tcp . 443 : goto svc2");
    assert_eq!(
        set(&state, "vm").elements[0].data,
        [NftValue::Verdict("drop".to_owned())]
    );
    assert_eq!(set(&state, "vm").data_type.as_deref(), Some("verdict"));
    assert!(set(&state, "vm").is_map && !set(&state, "a").is_map);
    assert_eq!(set(&state, "ivm").data_type.as_deref(), Some("ipv4_addr"));
    assert_eq!(elements(&state, "catchall")[1], "*");
    // a timeout of its own, and the set's
    let timed = &set(&state, "to").elements;
    assert_eq!(
        (timed[0].timeout_ms, timed[0].expires_ms),
        (Some(90_000), Some(89_964))
    );
    assert_eq!(timed[0].comment.as_deref(), Some("sexton:u:x"));
    assert_eq!(
        (timed[1].timeout_ms, timed[1].expires_ms),
        (Some(3_600_000), Some(3_599_964))
    );
    assert_eq!(set(&state, "dyn").elements[0].timeout_ms, Some(150_000));
    assert_eq!(set(&state, "dead").elements[0].timeout_ms, Some(2_595_723_000));
    assert_eq!(set(&state, "dead").family, NftFamily::Netdev);
}

#[test]
fn rules_tell_what_they_match_and_do() {
    let state = text(ALL_TEXT);
    let first = rule(&state, 22);
    assert_eq!(first.chain, "svc");
    assert_eq!(first.proto, Some(Proto::Tcp));
    assert_eq!(
        first.dports,
        [PortRange::one(80), PortRange { first: 90, last: 95 }]
    );
    assert_eq!(first.destination.as_deref(), Some("10.0.0.1"));
    let ip: IpAddr = "10.0.0.2".parse().unwrap();
    assert_eq!(first.dnat, Some(Dnat { ip, port: Some(8080) }));
    assert_eq!(first.comment.as_deref(), Some("dnat # x"));
    assert!(
        first.text.starts_with("tcp dport { 80, 90-95 }") && first.text.ends_with("comment \"dnat # x\"")
    );
    assert_eq!(rule(&state, 23).dnat.unwrap().port, None);
    // one of several addresses is no address
    assert_eq!(
        (rule(&state, 25).dnat, rule(&state, 25).target.as_deref()),
        (None, None)
    );
    assert_eq!(
        (rule(&state, 26).dnat, rule(&state, 26).target.as_deref()),
        (None, Some("@npl"))
    );
    assert_eq!(rule(&state, 27).target.as_deref(), Some("@vm"));
    assert_eq!(
        (rule(&state, 29).proto, &rule(&state, 29).dports),
        (Some(Proto::Udp), &vec![])
    );
    assert_eq!(
        (rule(&state, 31).target.as_deref(), &rule(&state, 31).dports),
        (None, &vec![])
    );
    assert_eq!(rule(&state, 32).destination.as_deref(), Some("@a"));
    assert_eq!(rule(&state, 36).target.as_deref(), Some("svc"));
    // a log prefix is no comment and no block
    assert_eq!(
        (&rule(&state, 34).comment, rule(&state, 34).proto),
        (&None, Some(Proto::Tcp))
    );
    let v6 = state.rules.iter().find(|r| r.family == NftFamily::Ip6).unwrap();
    let ip: IpAddr = "fd00::1".parse().unwrap();
    assert_eq!(v6.dnat, Some(Dnat { ip, port: Some(80) }));
}

#[test]
fn chains_have_hooks_and_devices() {
    let state = text(ALL_TEXT);
    let chain = |table: &str, name: &str| {
        let found = state.chains.iter().find(|c| c.table == table && c.name == name);
        found.unwrap()
    };
    let ingress = chain("sexton", "in");
    assert_eq!(
        (ingress.hook.as_deref(), ingress.device.as_deref()),
        (Some("ingress"), Some("lo"))
    );
    assert_eq!(
        (chain("t", "svc2").hook.as_deref(), chain("t", "svc2").handle),
        (None, Some(2))
    );
    assert_eq!(chain("t", "PREROUTING").hook.as_deref(), Some("prerouting"));
    let newer = "table netdev x {\n\tchain c {\n\t\ttype filter hook ingress devices = { \"a\", \"b\" } priority 0; policy accept;\n\t}\n}\n";
    assert_eq!(text(newer).chains[0].device.as_deref(), Some("a,b"));
}

#[test]
fn other_spellings() {
    // without libraries of iptables, of an old nft, in one line
    let state = text(
        "table nat {\n chain a {\n ip saddr 10.0.0.0/24 # xt_comment counter packets 0 bytes 0 # xt_MASQUERADE # handle 5\n }\n}\ntable ip6 b { chain \"x y\" { tcp dport https jump z; } }",
    );
    assert_eq!(state.tables[0], (NftFamily::Ip, "nat".to_owned()));
    assert_eq!(state.rules[0].handle, Some(5));
    assert_eq!(state.chains[1].name, "x y");
    assert_eq!(
        (&state.rules[1].dports[..], state.rules[1].target.as_deref()),
        (&[PortRange::one(443)][..], Some("z"))
    );
    // nft 1.1 tells the type as an expression
    let json = r#"{"nftables":[{"map":{"family":"ip","table":"t","name":"m",
      "type":{"typeof":{"concat":[{"meta":{"key":"l4proto"}},{"payload":{"protocol":"th","field":"dport"}}]}},
      "map":{"typeof":{"payload":{"protocol":"ip","field":"daddr"}}},"elem":[[{"concat":["tcp",80]},"10.0.0.1"]]}}]}"#;
    assert_eq!(set(&text(json), "m").key_type, "inet_proto . inet_service");
    assert_eq!(elements(&text(json), "m"), ["tcp . 80 : 10.0.0.1"]);
}

#[test]
fn json_hides_the_target_of_iptables_rules() {
    let from_text = text(IPTABLES_TEXT);
    let from_json = text(IPTABLES_JSON);
    let targets = |state: &NftState| state.rules.iter().filter_map(|r| r.dnat).count();
    assert_eq!((targets(&from_text), targets(&from_json)), (2, 0));
    assert_eq!(from_json.rules[1].dports, [PortRange::one(61004)]);
    assert!(
        from_json.rules[1].text.ends_with("xt target DNAT"),
        "{:?}",
        from_json.rules[1].text
    );
    assert_eq!(from_json.rules[2].target.as_deref(), Some("X"));
}

#[test]
fn tables_that_iptables_told_are_taken_out() {
    let table = |variant, family, name: &str| XtTable {
        variant,
        family,
        name: name.to_owned(),
        chains: vec![],
        source: String::new(),
    };
    let with_others =
        format!("{IPTABLES_TEXT}\ntable inet nat {{\n}}\ntable ip sexton {{\n}}\ntable ip6 nat {{\n}}\n");
    let left = |told: &[XtTable]| {
        let mut state = text(&with_others);
        drop_iptables_tables(&mut state, told);
        let tables = state
            .tables
            .iter()
            .map(|(f, n)| format!("{f} {n}"))
            .collect::<Vec<_>>()
            .join(", ");
        (tables, state.rules.len(), state.chains.len())
    };
    let all = "ip nat, inet nat, ip sexton, ip6 nat";
    assert_eq!(left(&[]).0, all);
    assert_eq!(left(&[table(XtVariant::Legacy, Family::Ipv4, "nat")]).0, all);
    assert_eq!(left(&[table(XtVariant::Nft, Family::Ipv4, "filter")]).0, all);
    let told = [
        table(XtVariant::Nft, Family::Ipv4, "nat"),
        table(XtVariant::Unknown, Family::Ipv4, "sexton"),
    ];
    assert_eq!(left(&told), ("inet nat, ip sexton, ip6 nat".to_owned(), 0, 0));
}

#[test]
fn a_cut_keeps_what_came_before() {
    let whole = text(ALL_TEXT);
    for cut in (0..ALL_TEXT.len())
        .step_by(5)
        .filter(|cut| ALL_TEXT.is_char_boundary(*cut))
    {
        let head = &ALL_TEXT[..cut];
        let (state, problems) = read_text("p", head);
        let open = head.lines().filter(|l| l.starts_with("table")).count();
        let closed = head.lines().filter(|l| *l == "}").count();
        if open > closed {
            assert!(!problems.is_empty(), "{cut}");
        }
        assert!(whole.rules.starts_with(&state.rules), "{cut}");
        let sets = state.sets.iter().zip(&whole.sets);
        for (found, full) in sets {
            let (found, full) = (found.elements.iter(), full.elements.iter());
            // the set's own timeout is told before its elements
            assert!(found.zip(full).all(|(a, b)| a == b), "{cut}");
        }
    }
    for cut in (0..ALL_JSON.len()).step_by(97) {
        let (state, problems) = read_json("p", &ALL_JSON.as_bytes()[..cut]);
        assert_eq!(problems.len(), 1, "{cut}");
        assert!(state.rules.len() <= whole.rules.len());
    }
}

#[test]
fn what_is_no_ruleset_is_a_problem() {
    for bytes in [
        "nft: command not found\n",
        "Error: x { y }",
        "table",
        "{\"a\":1}",
        "table ip x\n",
    ] {
        let (state, problems) = read("p", bytes.as_bytes());
        assert!(state.tables.is_empty() && !problems.is_empty(), "{bytes:?}");
        assert!(problems[0].place.starts_with("p:1"), "{problems:?}");
    }
    assert_eq!(read("p", b""), (NftState::default(), vec![]));
    assert_eq!(read("p", b"{\"nftables\":[]}"), (NftState::default(), vec![]));
    let json = r#"{"nftables":[{"set":{"family":"ip","table":"t","name":"s","type":"mark","elem":[1]}},
      {"map":{"family":"ip","table":"t","name":"m","type":"mark","map":"mark","elem":[1,[1,2]]}},
      {"rule":{"family":"xy","table":"t","chain":"c"}}, 7]}"#;
    let (state, problems) = read("p", json.as_bytes());
    assert_eq!(
        (state.sets.len(), state.sets[1].elements.len(), problems.len()),
        (2, 1, 3)
    );
    assert_eq!(problems[0].place, "p:2");
}

fn any_value(kind: usize) -> BoxedStrategy<NftValue> {
    match kind {
        0 => any::<[u8; 4]>()
            .prop_map(|b| NftValue::Addr(IpAddr::from(b)))
            .boxed(),
        1 => any::<[u8; 16]>()
            .prop_map(|b| NftValue::Addr(IpAddr::from(b).to_canonical()))
            .boxed(),
        2 => any::<u8>()
            .prop_map(|n| NftValue::Proto(Proto::from_number(n)))
            .boxed(),
        3 => any::<u16>().prop_map(NftValue::Port).boxed(),
        4 => any::<[u8; 6]>()
            .prop_map(|b| NftValue::Mac(sexton_core::model::Mac::from_bytes(b)))
            .boxed(),
        5 => "[a-z][a-z0-9.:-]{0,14}".prop_map(NftValue::Interface).boxed(),
        6 => any::<u32>().prop_map(NftValue::Mark).boxed(),
        7 => (any::<[u8; 4]>(), 0..32_u8)
            .prop_map(|(b, len)| NftValue::AddrRange(format!("{}/{len}", IpAddr::from(b))))
            .boxed(),
        8 => ("(goto|jump) [a-zA-Z][a-z/_-]{0,9}")
            .prop_map(NftValue::Verdict)
            .boxed(),
        _ => "[a-z]{1,9}(,[a-z]{1,5})?".prop_map(NftValue::Other).boxed(),
    }
}

const TYPES: [&str; 10] = [
    "ipv4_addr",
    "ipv6_addr",
    "inet_proto",
    "inet_service",
    "ether_addr",
    "ifname",
    "mark",
    "ipv4_addr",
    "verdict",
    "ct_state",
];

/// Numbers of types for the key and the data, and elements of those types.
fn any_set() -> impl Strategy<Value = (Vec<usize>, Vec<usize>, Vec<NftElement>)> {
    let key = prop::collection::vec((0..8_usize).prop_map(|k| if k == 7 { 9 } else { k }), 1..4);
    let data = prop_oneof![
        Just(vec![]),
        Just(vec![8]),
        prop::collection::vec(0..8_usize, 1..3)
    ];
    (key, data).prop_flat_map(|(key, data)| {
        let values = |kinds: &[usize]| kinds.iter().map(|k| any_value(*k)).collect::<Vec<_>>();
        let element = (
            values(&key),
            values(&data),
            prop::option::of("[ -!#-~]{0,40}"),
            prop::option::of((1..u64::from(u32::MAX), 1..u64::from(u32::MAX))),
        );
        let element = element.prop_map(|(key, data, comment, times)| NftElement {
            key,
            data,
            comment,
            timeout_ms: times.map(|t| t.0),
            expires_ms: times.map(|t| t.1),
        });
        (Just(key), Just(data), prop::collection::vec(element, 0..5))
    })
}

/// As `time_print` of nftables.
fn print_time(mut ms: u64) -> String {
    let mut out = String::new();
    for (unit, size) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ] {
        if ms >= size {
            let _ = write!(out, "{}{unit}", ms / size);
            ms %= size;
        }
    }
    out
}

fn print(element: &NftElement) -> String {
    let join = |values: &[NftValue]| {
        values
            .iter()
            .map(NftValue::to_string)
            .collect::<Vec<_>>()
            .join(" . ")
    };
    let mut out = join(&element.key);
    if let (Some(timeout), Some(expires)) = (element.timeout_ms, element.expires_ms) {
        let _ = write!(
            out,
            " timeout {} expires {}",
            print_time(timeout),
            print_time(expires)
        );
    }
    if let Some(comment) = &element.comment {
        let _ = write!(out, " comment \"{comment}\"");
    }
    if !element.data.is_empty() {
        let _ = write!(out, " : {}", join(&element.data));
    }
    out
}

proptest! {
    #[test]
    fn elements_survive_printing((key, data, elements) in any_set()) {
        let types = |kinds: &[usize]| kinds.iter().map(|k| TYPES[*k]).collect::<Vec<_>>().join(" . ");
        let is_map = !data.is_empty();
        let kind = if is_map { "map" } else { "set" };
        let mut type_line = types(&key);
        if is_map {
            type_line = format!("{type_line} : {}", types(&data));
        }
        let list = elements.iter().map(print).collect::<Vec<_>>().join(",\n\t\t\t     ");
        let elements_line = if elements.is_empty() { String::new() } else { format!("\t\telements = {{ {list} }}\n") };
        let printed = format!("table inet x {{\n\t{kind} s {{\n\t\ttype {type_line}\n\t\tflags timeout\n{elements_line}\t}}\n}}\n");
        let (state, problems) = read_text("p", &printed);
        prop_assert_eq!(problems, vec![]);
        prop_assert_eq!(&state.sets[0].elements, &elements, "{}", printed);
        prop_assert_eq!(&state.sets[0].key_type, &types(&key));
        prop_assert_eq!(state.sets[0].is_map, is_map);
    }

    #[test]
    fn any_text_ends(text in "(table|set|chain|elements|=|type|[{}\",;:#. \n\t\u{b}\u{a0}a1]){0,60}") {
        let (_, _) = read_text("p", &text);
        let (_, problems) = read_json("p", text.as_bytes());
        prop_assert!(!problems.is_empty());
    }

    #[test]
    fn times_survive_printing(ms in 1..u64::from(u32::MAX)) {
        prop_assert_eq!(value::milliseconds(&print_time(ms)), Some(ms));
    }
}
