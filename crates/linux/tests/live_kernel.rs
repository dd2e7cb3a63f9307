//! The kernel's state as Sexton reads it, against what the tools of iproute2, nftables, iptables and conntrack say of
//! the same namespace.

#![allow(clippy::unwrap_used)] // Helpers of tests are not in `#[test]` functions.

mod common;

use std::collections::BTreeSet;

use common::{complete, feed, in_own_netns, observe, run, unsupported};
use serde_json::Value;
use sexton_core::model::{Dnat, Family, NftFamily, NftValue, PortRange, Proto, XtTable, XtVariant};
use sexton_linux::{ApiAccess, Kinds, LinuxNode, LinuxOptions};

const RULESET: &str = r#"
table inet sexton {
  map npl4 {
    type inet_proto . inet_service : ipv4_addr . inet_service
    flags timeout
    elements = { tcp . 61000 comment "sexton:7f1c:shop/web-0" : 10.10.1.7 . 8080, udp . 61001 timeout 1h : 10.10.1.8 . 53 }
  }
  map npl6 {
    type inet_service : ipv6_addr . inet_service
    elements = { 61000 : fd00:10::7 . 8080 }
  }
  set nets {
    type ipv4_addr
    flags interval
    elements = { 10.0.0.0/8, 192.168.1.5, 192.168.2.1-192.168.2.9 }
  }
  set pairs {
    type ipv4_addr . inet_service
    flags interval
    elements = { 10.1.0.0/16 . 80-90, 10.2.0.1 . 443 }
  }
  map verdicts {
    type ifname : verdict
    elements = { "eth0" : jump work, "veth1234" : accept }
  }
  set macs {
    type ether_addr
    elements = { 02:00:00:00:00:01 }
  }
  chain prerouting {
    type nat hook prerouting priority dstnat - 5; policy accept;
    meta nfproto ipv4 dnat ip to meta l4proto . th dport map @npl4 comment "ours"
    tcp dport { 80, 443, 8000-8010 } counter accept
    ip daddr 10.9.0.0/16 udp dport 53 dnat ip to 10.10.1.9:5353
    meta nfproto ipv6 tcp dport 61000-61010 dnat ip6 to [fd00:10::9]:8080
    jump work
  }
  chain work { tcp dport 22 drop; }
}
table netdev guard {
  set dead { type ipv4_addr; flags timeout; elements = { 10.240.0.60 timeout 10m comment "sexton:1:loop" } }
  chain in { type filter hook ingress device "lo" priority -500; ip daddr @dead drop; }
}
table ip empty { }
"#;

#[test]
fn nftables_are_what_nft_lists() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        feed("nft -f -", RULESET);
        let before = run("nft list ruleset");
        let state = observe(Kinds::NFT | Kinds::XTABLES);
        let nft = complete(&state.nft);
        let listed: Value = serde_json::from_str(&run("nft -j list ruleset")).unwrap();
        let all = |kind: &str| -> Vec<Value> {
            let list = listed["nftables"].as_array().unwrap();
            list.iter().filter_map(|item| item.get(kind).cloned()).collect()
        };

        let tables: BTreeSet<String> = nft.tables.iter().map(|(f, n)| format!("{f} {n}")).collect();
        let word = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
        let expected = all("table")
            .iter()
            .map(|t| format!("{} {}", word(t, "family"), word(t, "name")))
            .collect();
        assert_eq!(tables, expected);

        let chains: BTreeSet<String> = nft
            .chains
            .iter()
            .map(|c| {
                format!(
                    "{} {} {} {} {:?}",
                    c.family,
                    c.table,
                    c.name,
                    c.hook.clone().unwrap_or_default(),
                    c.handle
                )
            })
            .collect();
        let expected = all("chain")
            .iter()
            .map(|c| {
                format!(
                    "{} {} {} {} {:?}",
                    word(c, "family"),
                    word(c, "table"),
                    word(c, "name"),
                    word(c, "hook"),
                    c["handle"].as_u64()
                )
            })
            .collect();
        assert_eq!(chains, expected);
        // nft 1.0.6 leaves the device out of its JSON.
        let ingress = nft.chains.iter().find(|c| c.family == NftFamily::Netdev).unwrap();
        assert_eq!(ingress.device.as_deref(), Some("lo"));

        let rules: Vec<(String, Option<u64>, Option<String>)> = nft
            .rules
            .iter()
            .map(|r| {
                (
                    format!("{} {} {}", r.family, r.table, r.chain),
                    r.handle,
                    r.comment.clone(),
                )
            })
            .collect();
        let expected: Vec<_> = all("rule")
            .iter()
            .map(|r| {
                (
                    format!("{} {} {}", word(r, "family"), word(r, "table"), word(r, "chain")),
                    r["handle"].as_u64(),
                    r["comment"].as_str().map(str::to_owned),
                )
            })
            .collect();
        assert_eq!(rules, expected);

        let sets: BTreeSet<String> = nft
            .sets
            .iter()
            .map(|s| {
                let kind = if s.is_map { "map" } else { "set" };
                format!("{kind} {} {} {} {}", s.family, s.table, s.name, s.elements.len())
            })
            .collect();
        let expected = ["set", "map"]
            .iter()
            .flat_map(|kind| all(kind).into_iter().map(move |s| (kind, s)))
            .map(|(kind, s)| {
                let count = s["elem"].as_array().map_or(0, Vec::len);
                format!(
                    "{kind} {} {} {} {count}",
                    word(&s, "family"),
                    word(&s, "table"),
                    word(&s, "name")
                )
            })
            .collect();
        assert_eq!(sets, expected);

        let set = |name: &str| nft.sets.iter().find(|s| s.name == name).unwrap();
        let texts =
            |name: &str| -> BTreeSet<String> { set(name).elements.iter().map(|e| e.text()).collect() };
        let these = |list: &[&str]| -> BTreeSet<String> { list.iter().map(|s| (*s).to_owned()).collect() };
        assert_eq!(set("npl4").key_type, "inet_proto . inet_service");
        assert_eq!(set("npl4").data_type.as_deref(), Some("ipv4_addr . inet_service"));
        assert_eq!(
            texts("npl4"),
            these(&[
                "tcp . 61000 comment \"sexton:7f1c:shop/web-0\" : 10.10.1.7 . 8080",
                "udp . 61001 : 10.10.1.8 . 53"
            ])
        );
        let timed = set("npl4").elements.iter().find(|e| e.comment.is_none()).unwrap();
        assert_eq!(timed.timeout_ms, Some(3_600_000));
        assert!(
            timed
                .expires_ms
                .is_some_and(|ms| ms <= 3_600_000 && ms > 3_500_000)
        );
        let lasting = set("npl4").elements.iter().find(|e| e.comment.is_some()).unwrap();
        assert_eq!((lasting.timeout_ms, lasting.expires_ms), (None, None));
        assert_eq!(texts("npl6"), these(&["61000 : fd00:10::7 . 8080"]));
        assert_eq!(
            texts("nets"),
            these(&["10.0.0.0/8", "192.168.1.5", "192.168.2.1-192.168.2.9"])
        );
        assert_eq!(texts("pairs"), these(&["10.1.0.0/16 . 80-90", "10.2.0.1 . 443"]));
        assert_eq!(
            texts("verdicts"),
            these(&["\"eth0\" : jump work", "\"veth1234\" : accept"])
        );
        assert_eq!(texts("macs"), these(&["02:00:00:00:00:01"]));
        assert_eq!(
            set("dead").elements[0].key,
            [NftValue::Addr("10.240.0.60".parse().unwrap())]
        );
        assert_eq!(set("dead").elements[0].timeout_ms, Some(600_000));

        let in_prerouting: Vec<_> = nft.rules.iter().filter(|r| r.chain == "prerouting").collect();
        assert_eq!(in_prerouting[0].target.as_deref(), Some("@npl4"));
        assert_eq!(in_prerouting[0].comment.as_deref(), Some("ours"));
        assert_eq!(in_prerouting[1].proto, Some(Proto::Tcp));
        assert_eq!(
            in_prerouting[1].dports,
            [
                PortRange::one(80),
                PortRange::one(443),
                PortRange {
                    first: 8000,
                    last: 8010
                }
            ]
        );
        assert_eq!(in_prerouting[1].dnat, None);
        assert_eq!(in_prerouting[2].proto, Some(Proto::Udp));
        assert_eq!(in_prerouting[2].destination.as_deref(), Some("10.9.0.0/16"));
        assert_eq!(in_prerouting[2].dports, [PortRange::one(53)]);
        let dnat = |ip: &str, port| Dnat {
            ip: ip.parse().unwrap(),
            port: Some(port),
        };
        assert_eq!(in_prerouting[2].dnat, Some(dnat("10.10.1.9", 5353)));
        assert_eq!(in_prerouting[3].dnat, Some(dnat("fd00:10::9", 8080)));
        assert_eq!(
            in_prerouting[3].dports,
            [PortRange {
                first: 61000,
                last: 61010
            }]
        );
        assert_eq!(in_prerouting[4].target.as_deref(), Some("work"));
        for rule in &nft.rules {
            assert!(!rule.text.is_empty());
        }
        assert!(nft.generation.is_some());
        // Expiry times apart, reading changed nothing.
        let steady = |text: &str| {
            text.lines()
                .map(|l| l.split(" expires ").next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(steady(&before), steady(&run("nft list ruleset")));
    });
}

/// `iptables-save -c` without what has no place in the model: comments and the chains' own counters.
fn saved(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| match line.strip_prefix(':') {
            Some(chain) => format!(":{}", chain.split(" [").next().unwrap_or_default()),
            None => line.to_owned(),
        })
        .collect()
}

fn printed(tables: &[XtTable], variant: XtVariant, family: Family) -> Vec<String> {
    let these: Vec<XtTable> = tables
        .iter()
        .filter(|t| t.variant == variant && t.family == family)
        .cloned()
        .collect();
    saved(&sexton_formats::iptables::print(&these))
}

#[test]
fn iptables_are_what_their_own_tools_save() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        for tool in ["iptables-nft", "iptables-legacy"] {
            run(&format!("{tool} -t nat -N ANTREA-NODE-PORT-LOCAL"));
            run(&format!(
                "{tool} -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j ANTREA-NODE-PORT-LOCAL"
            ));
            run(&format!(
                "{tool} -t nat -A ANTREA-NODE-PORT-LOCAL -p tcp -m tcp --dport 61000 -j DNAT --to-destination 10.10.1.7:8080"
            ));
            run(&format!(
                "{tool} -A FORWARD -s 10.10.0.0/16 -m comment --comment \"a \\\"b\\\" c\" -j ACCEPT"
            ));
        }
        run(
            "ip6tables-nft -t nat -A PREROUTING -p udp --dport 61001 -j DNAT --to-destination [fd00:10::7]:53",
        );
        run("ip6tables-legacy -t mangle -A FORWARD -p tcp -j MARK --set-mark 0x4000/0x4000");
        // Some packets, for the counters.
        run("ping -c 1 -W 1 127.0.0.1");
        let snapshot = || {
            let mut out =
                run("cat /proc/thread-self/net/ip_tables_names /proc/thread-self/net/ip6_tables_names");
            out.push_str(&run("nft list ruleset"));
            out
        };
        let before = snapshot();

        let state = observe(Kinds::XTABLES | Kinds::NFT);
        let tables = complete(&state.xtables);
        assert!(state.problems.is_empty(), "{:?}", state.problems);
        for (variant, family, lines) in [
            (XtVariant::Nft, Family::Ipv4, run("iptables-nft-save -c")),
            (XtVariant::Nft, Family::Ipv6, run("ip6tables-nft-save -c")),
            (
                XtVariant::Legacy,
                Family::Ipv4,
                run(
                    "for t in $(cat /proc/thread-self/net/ip_tables_names); do iptables-legacy-save -c -t $t; done",
                ),
            ),
            (
                XtVariant::Legacy,
                Family::Ipv6,
                run("ip6tables-legacy-save -c -t mangle"),
            ),
        ] {
            assert_eq!(
                printed(tables, variant, family),
                saved(&lines),
                "{variant} {family}"
            );
        }
        let names: BTreeSet<_> = state.xtables.reports.iter().map(|r| r.name.clone()).collect();
        assert_eq!(
            names,
            [
                "iptables-legacy/ipv4",
                "iptables-legacy/ipv6",
                "iptables-nft/ipv4",
                "iptables-nft/ipv6"
            ]
            .map(str::to_owned)
            .into()
        );
        // What iptables' tool printed is not told a second time.
        assert!(
            complete(&state.nft).tables.is_empty(),
            "{:?}",
            state.nft.value.tables
        );
        assert!(state.nft.value.rules.is_empty() && state.nft.value.chains.is_empty());
        assert_eq!(before, snapshot());
    });
}

#[test]
fn looking_creates_no_table() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        let names = "cat /proc/thread-self/net/ip_tables_names /proc/thread-self/net/ip6_tables_names";
        assert_eq!(run(names), "");
        let state = observe(Kinds::ALL - Kinds::API);
        assert!(complete(&state.xtables).is_empty());
        assert!(complete(&state.nft).tables.is_empty());
        assert_eq!(run(names), "");
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
fn a_table_that_iptables_cannot_print_is_read_as_nftables() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    let map = "map m { type inet_service : ipv4_addr; elements = { 80 : 10.0.0.1 }; };";
    // A rule that iptables has no words for; a base chain where it has none, which it leaves out without its rules.
    for chain in [
        "chain PREROUTING { type nat hook prerouting priority dstnat; dnat to tcp dport map @m; };",
        "chain own { type nat hook prerouting priority 5; dnat to tcp dport map @m; };",
    ] {
        in_own_netns(|| {
            feed("nft -f -", &format!("table ip nat {{ {map} {chain} }}\n"));
            let state = observe(Kinds::XTABLES | Kinds::NFT);
            let why = state.xtables.completeness.why().unwrap_or_default().to_owned();
            assert!(
                why.contains("incompatible") && why.contains("nft"),
                "{:?}",
                state.xtables.reports
            );
            let nft = complete(&state.nft);
            assert_eq!(nft.tables, [(NftFamily::Ip, "nat".to_owned())]);
            assert_eq!(nft.rules[0].target.as_deref(), Some("@m"));
            assert_eq!(nft.sets[0].elements[0].text(), "80 : 10.0.0.1");
        });
    }
    // Beside it, what iptables can print is not told twice.
    in_own_netns(|| {
        run("iptables-nft -t nat -A PREROUTING -p tcp --dport 80 -j DNAT --to-destination 10.0.0.2");
        feed(
            "nft -f -",
            "add chain ip nat own { type nat hook prerouting priority 5; }\nadd rule ip nat own accept\n",
        );
        let state = observe(Kinds::XTABLES | Kinds::NFT);
        assert!(!state.xtables.is_complete());
        let chains: Vec<_> = complete(&state.nft)
            .rules
            .iter()
            .map(|r| r.chain.clone())
            .collect();
        assert_eq!(chains, ["own"]);
    });
}

/// The parts of a `conntrack -L -o id` line that stay the same: without the time left and the reference count.
fn listed_entries(text: &str) -> BTreeSet<String> {
    text.lines()
        .map(|line| {
            let words: Vec<_> = line
                .split_whitespace()
                .filter(|w| !w.starts_with("use="))
                .collect();
            words
                .iter()
                .enumerate()
                .filter(|(i, word)| *i != 2 || word.parse::<u32>().is_err())
                .map(|(_, word)| *word)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

#[test]
fn conntrack_is_what_conntrack_lists() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        run("echo 1 > /proc/sys/net/netfilter/nf_conntrack_acct");
        for line in [
            "-p udp -t 120 -s 10.0.0.1 -d 10.96.0.10 --sport 4000 --dport 53 -g 10.10.1.7 -u SEEN_REPLY,ASSURED",
            "-p tcp -t 300 -s 10.0.0.2 -d 10.96.0.1 --sport 4001 --dport 443 --state ESTABLISHED -m 7 -u SEEN_REPLY",
            "-p tcp -t 300 -s 10.0.0.2 -d 10.0.0.3 --sport 4002 --dport 80 --state SYN_SENT",
            "-p udp -t 120 -s fd00::1 -d fd00::2 --sport 4000 --dport 53",
            "-p udp -t 120 -s 10.0.0.1 -d 10.96.0.10 --sport 4000 --dport 53 -w 5",
            "-p sctp -t 120 -s 10.0.0.1 -d 10.0.0.9 --sport 1 --dport 2 --state ESTABLISHED \
             --orig-vtag 1 --reply-vtag 2 -u SEEN_REPLY",
        ] {
            run(&format!("conntrack -I {line} 2>&1"));
        }
        let state = observe(Kinds::CONNTRACK);
        let conntrack = complete(&state.conntrack);
        assert_eq!(conntrack.accounting, Some(true));
        assert_eq!(conntrack.entries.len(), 6);
        let ours: BTreeSet<String> = conntrack
            .entries
            .iter()
            .map(|e| {
                let count = |text: &str, tuple: &str, count: Option<sexton_core::model::Direction>| {
                    let count = count.expect("counters are on");
                    let with = format!("{tuple} packets={} bytes={}", count.packets, count.bytes);
                    text.replacen(tuple, &with, 1)
                };
                let tuple = |t: &sexton_core::model::CtTuple| {
                    format!("src={} dst={} sport={} dport={}", t.src, t.dst, t.sport, t.dport)
                };
                let text = count(&e.text(), &tuple(&e.original), e.original_count);
                let text = count(&text, &tuple(&e.reply), e.reply_count);
                format!(
                    "{} id={}",
                    text.split_whitespace().collect::<Vec<_>>().join(" "),
                    e.id.unwrap()
                )
            })
            .collect();
        let theirs = listed_entries(&run(
            "conntrack -L -o id 2>/dev/null; conntrack -L -f ipv6 -o id 2>/dev/null",
        ));
        assert_eq!(ours, theirs);

        let options = LinuxOptions {
            api: ApiAccess::Off,
            tracked: sexton_linux::Tracked::Udp,
            ..LinuxOptions::default()
        };
        // The kernel is asked for UDP alone, of every zone; of IPv6 once it leads anywhere.
        let mut node = LinuxNode::open(options).unwrap();
        let asked = Kinds::CONNTRACK | Kinds::ROUTES;
        assert_eq!(complete(&node.observe_only(asked).conntrack).udp, 2);
        run(
            "ip link add leads-on type bridge && ip link set leads-on up && ip -6 addr add fd00::9/64 dev leads-on nodad",
        );
        let udp = node.observe_only(asked);
        let all = &conntrack.entries;
        let wanted: BTreeSet<_> = all
            .iter()
            .filter(|e| e.proto == Proto::Udp)
            .map(|e| e.text())
            .collect();
        let got = &complete(&udp.conntrack).entries;
        assert_eq!(got.iter().map(|e| e.text()).collect::<BTreeSet<_>>(), wanted);
        assert_eq!(udp.conntrack.reports[0].items, 3, "what the kernel told of");

        let options = LinuxOptions {
            api: ApiAccess::Off,
            keep_conntrack: Some(std::sync::Arc::new(|e| e.proto == Proto::Udp && e.is_dnat())),
            ..LinuxOptions::default()
        };
        let some = LinuxNode::open(options).unwrap().observe_only(Kinds::CONNTRACK);
        assert_eq!(complete(&some.conntrack).udp, 3);
        let kept = &some.conntrack.value.entries;
        assert_eq!(kept.len(), 1);
        assert_eq!(
            kept[0].reply.src,
            "10.10.1.7".parse::<std::net::IpAddr>().unwrap()
        );
    });
}

#[test]
fn routing_is_what_ip_shows() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        run("ip link add br0 address 02:00:00:00:00:10 type bridge && ip link set br0 up");
        run("ip link add v0 type veth peer name v1 && ip link set v0 master br0 up && ip link set v1 up");
        run("ip addr add 10.10.1.1/24 dev br0 && ip addr add fd00:10::1/64 dev br0 nodad");
        run("ip addr add 10.10.2.1 peer 10.10.2.2/32 dev v1");
        run("ip route add 10.20.0.0/16 via 10.10.1.9 proto 99 metric 7");
        run("ip route add 10.21.0.0/16 nexthop via 10.10.1.8 nexthop via 10.10.1.9");
        run("ip route add blackhole 10.22.0.0/16 table 100");
        run("ip route add default via 10.10.1.254");
        run("ip -6 route add fd00:20::/64 via fd00:10::9");
        run("ip route add 10.23.0.0/16 via inet6 fd00:10::9 dev br0");
        run("ip neigh add 10.10.1.7 lladdr 02:00:00:00:00:07 dev br0 nud permanent");
        run("ip neigh add fd00:10::7 lladdr 02:00:00:00:00:07 dev br0 nud stale");
        let state = observe(Kinds::ROUTING);
        let json = |line: &str| -> Vec<Value> {
            let out = run(line);
            serde_json::from_str(if out.trim().is_empty() { "[]" } else { &out }).unwrap()
        };
        let word = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();

        let links: BTreeSet<String> = complete(&state.links)
            .iter()
            .map(|l| {
                let mac = l.mac.map(|m| m.to_string()).unwrap_or_default();
                format!("{} {} {mac} {} {}", l.index, l.name, l.kind, l.up)
            })
            .collect();
        let shown = json("ip -j -d link");
        let expected = shown
            .iter()
            .map(|l| {
                let mac = if word(l, "link_type") == "ether" {
                    word(l, "address")
                } else {
                    String::new()
                };
                let flags = l["flags"].as_array().unwrap();
                let up = flags.iter().any(|f| f == "UP");
                format!(
                    "{} {} {mac} {} {up}",
                    l["ifindex"],
                    word(l, "ifname"),
                    word(&l["linkinfo"], "info_kind")
                )
            })
            .collect();
        assert_eq!(links, expected);
        let index =
            |name: &str| shown.iter().find(|l| word(l, "ifname") == name).unwrap()["ifindex"].as_u64();
        let v0 = state.links.value.iter().find(|l| l.name == "v0").unwrap();
        assert_eq!(v0.master.map(u64::from), index("br0"));
        assert_eq!(v0.peer.map(u64::from), index("v1"));

        let addresses: BTreeSet<String> = complete(&state.addresses)
            .iter()
            .map(|a| format!("{} {}/{}", a.link, a.ip, a.prefix))
            .collect();
        let expected = json("ip -j addr")
            .iter()
            .flat_map(|l| {
                let index = l["ifindex"].clone();
                l["addr_info"]
                    .as_array()
                    .unwrap()
                    .clone()
                    .into_iter()
                    .map(move |a| format!("{index} {}/{}", a["local"].as_str().unwrap(), a["prefixlen"]))
            })
            .collect();
        assert_eq!(addresses, expected);

        let routes: BTreeSet<String> = complete(&state.routes)
            .iter()
            .map(|r| {
                let dst = r.dst.map(|d| d.to_string()).unwrap_or_default();
                let via = r.gateway.map(|g| g.to_string()).unwrap_or_default();
                let dev = r.dev.clone().unwrap_or_default();
                format!(
                    "{} {dst} {via} {dev} {} {} {:?}",
                    r.kind, r.table, r.protocol, r.metric
                )
            })
            .collect();
        let mut expected = BTreeSet::new();
        let mut shown = json("ip -j -N -4 route show table all");
        shown.extend(json("ip -j -N -6 route show table all"));
        for r in &shown {
            let dst = word(r, "dst");
            let dst = match dst.as_str() {
                "default" => String::new(),
                dst if dst.contains('/') => dst.to_owned(),
                dst if dst.contains(':') => format!("{dst}/128"),
                dst => format!("{dst}/32"),
            };
            let kind = match word(r, "type").as_str() {
                "" | "1" => "unicast",
                "2" => "local",
                "3" => "broadcast",
                "4" => "anycast",
                "5" => "multicast",
                "6" => "blackhole",
                other => panic!("type {other}"),
            };
            let table = match word(r, "table").as_str() {
                "" => "254".to_owned(),
                table => table.to_owned(),
            };
            // `proto boot`, which `ip route add` gives, is not shown.
            let protocol = match word(r, "protocol").as_str() {
                "" => "3".to_owned(),
                protocol => protocol.to_owned(),
            };
            let metric = r["metric"].as_u64();
            let mut add = |hop: &Value| {
                let via = match word(hop, "gateway").as_str() {
                    "" => word(&hop["via"], "host"),
                    gateway => gateway.to_owned(),
                };
                let dev = word(hop, "dev");
                expected.insert(format!("{kind} {dst} {via} {dev} {table} {protocol} {metric:?}"));
            };
            match r["nexthops"].as_array() {
                Some(hops) => hops.iter().for_each(&mut add),
                None => add(r),
            }
        }
        assert_eq!(routes, expected);

        let neighbours: BTreeSet<String> = complete(&state.neighbours)
            .iter()
            .map(|n| {
                let mac = n.mac.map(|m| m.to_string()).unwrap_or_default();
                format!("{} {} {mac} {}", n.ip, n.dev, n.state)
            })
            .collect();
        let expected = json("ip -j neigh")
            .iter()
            .map(|n| {
                format!(
                    "{} {} {} {}",
                    word(n, "dst"),
                    word(n, "dev"),
                    word(n, "lladdr"),
                    n["state"][0].as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(neighbours, expected);
    });
}

#[test]
fn rules_of_the_routing_policy_are_those_that_ip_prints() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        run("ip link add d0 type veth peer name d1");
        for rule in [
            "from 10.10.1.5 lookup 100 prio 1000",
            "not from 10.0.0.0/8 to 10.10.1.0/24 fwmark 0x1/0xff iif d0 lookup 2000 prio 1001 proto static",
            "from 10.10.1.6 unreachable prio 1002",
            "goto 32766 prio 1003",
            "oif d0 lookup main prio 1004 suppress_prefixlength 0",
            "ipproto tcp dport 80-90 sport 5 uidrange 0-10 tos 0x10 lookup 7 prio 1005",
            "from 1.2.3.4 blackhole prio 1006",
            "from 1.2.3.5 prohibit prio 1007",
            "nop prio 1008",
            "goto 40000 prio 1009",
            "fwmark 0x7 lookup local prio 1010",
        ] {
            run(&format!("ip rule add {rule}"));
        }
        run(
            "ip -6 rule add from fd00::5 lookup 100 && ip -6 rule add to fd00::/64 ipproto ipv6-icmp lookup 101",
        );
        run("ip link del d0");
        let state = observe(Kinds::IP_RULES);
        let live = complete(&state.ip_rules);
        for (family, option) in [(Family::Ipv4, "-4"), (Family::Ipv6, "-6")] {
            for form in ["", "-j", "-d", "-j -d"] {
                let text = run(&format!("ip {form} {option} rule"));
                let (recorded, problems) = sexton_formats::ip::read_rules("r", text.as_bytes(), family);
                assert_eq!(problems, []);
                let live: Vec<_> = live
                    .iter()
                    .filter(|rule| rule.family == family)
                    .cloned()
                    .collect();
                assert_eq!(live, recorded, "ip {form} {option} rule");
            }
        }
        assert_eq!(live.len(), 14 + 4);
    });
}
