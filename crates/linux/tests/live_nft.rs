//! Rules of nftables on the real kernel: what CNI plugins write there is read as `nft` prints it, deleted by handle, and
//! put back byte for byte.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not in `#[test]` functions.

mod common;

use std::time::{Duration, Instant};

use common::{done, feed, in_own_netns, node, observe, run, try_run, unsupported};
use sexton_core::marks;
use sexton_core::model::{NftElement, NftRule, NftState, NftValue, Proto};
use sexton_core::node::{Applied, Node as _};
use sexton_core::plan::{Act, NftEdit, NftElementAt, NftRuleAt};
use sexton_linux::Kinds;

/// The transactions of containernetworking/plugins for two containers, in its words
/// (`plugins/meta/portmap/portmap_nftables.go`, `pkg/ip/ipmasq_nftables_linux.go` and its test).
const PLUGINS: &str = r#"
add table ip cni_hostport { comment "CNI portmap plugin" ; }
add chain ip cni_hostport hostports
add chain ip cni_hostport hostip_hostports
add chain ip cni_hostport hostports_all
add rule ip cni_hostport hostports_all jump hostip_hostports
add rule ip cni_hostport hostports_all jump hostports
add chain ip cni_hostport prerouting { type nat hook prerouting priority -100 ; }
add rule ip cni_hostport prerouting fib daddr type local jump hostports_all
add chain ip cni_hostport output { type nat hook output priority -100 ; }
add rule ip cni_hostport output fib daddr type local jump hostports_all
add chain ip cni_hostport masquerading { type nat hook postrouting priority 100 ; }
add rule ip cni_hostport hostports tcp dport 8080 dnat to 10.88.0.17:80 comment "one"
add rule ip cni_hostport hostports ip daddr 192.168.0.2 udp dport 8083 dnat to 10.88.0.17:83 comment "one"
add rule ip cni_hostport hostports tcp dport 8080 dnat to 10.88.0.31:80 comment "two"
add rule ip cni_hostport hostports tcp dport 8081 dnat to 10.88.0.17:81 comment "one"
add rule ip cni_hostport masquerading ip saddr 10.88.0.17 ip daddr 10.88.0.17 masquerade comment "one"
add rule ip cni_hostport masquerading ip saddr 127.0.0.1 ip daddr 10.88.0.17 masquerade comment "one"
add rule ip cni_hostport masquerading ip saddr 10.88.0.31 ip daddr 10.88.0.31 masquerade comment "two"
add table ip6 cni_hostport { comment "CNI portmap plugin" ; }
add chain ip6 cni_hostport hostports
add rule ip6 cni_hostport hostports tcp dport 8080 dnat to [2001:db8::2]:80 comment "one"
add rule ip6 cni_hostport hostports ip6 daddr 2001:db8:a::1 tcp dport 8085 dnat to [2001:db8::2]:85 comment "two"
add table inet cni_plugins_masquerade { comment "Masquerading for plugins from github.com/containernetworking/plugins" ; }
add chain inet cni_plugins_masquerade masq_checks { comment "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet" ; }
add chain inet cni_plugins_masquerade postrouting { type nat hook postrouting priority 100 ; }
add rule inet cni_plugins_masquerade postrouting ip daddr == 224.0.0.0/4  return
add rule inet cni_plugins_masquerade postrouting ip6 daddr == ff00::/8  return
add rule inet cni_plugins_masquerade postrouting goto masq_checks
add rule inet cni_plugins_masquerade masq_checks ip saddr == 192.168.1.1 ip daddr != 192.168.1.0/24 masquerade comment "6fd94d501e58f0aa-287fc69eff0574a2, net: unit-test, if: eth0, id: one"
add rule inet cni_plugins_masquerade masq_checks ip saddr == 192.168.1.2 ip daddr != 192.168.1.0/24 masquerade comment "6fd94d501e58f0aa-d750b2c8f0f25d5f, net: unit-test, if: eth0, id: two"
add rule inet cni_plugins_masquerade masq_checks ip6 saddr == 2001:db8::2 ip6 daddr != 2001:db8::/64 masquerade comment "6fd94d501e58f0aa-d750b2c8f0f25d5f, net: unit-test, if: eth0, id: two"
"#;

fn ruleset() -> String {
    run("nft -s list ruleset")
}

fn marked(state: &NftState) -> Vec<&NftRule> {
    state
        .rules
        .iter()
        .filter(|rule| marks::nft::of(rule).is_some())
        .collect()
}

/// A deletion of a container's rules in a table, as the rules of the core ask for it.
fn deletion(state: &NftState, table: &str, container: &str) -> NftEdit {
    let mut edit: Option<NftEdit> = None;
    let mut before: Option<&NftRule> = None;
    for rule in &state.rules {
        let mark = marks::nft::of(rule).filter(|m| m.container.as_str() == container && rule.table == table);
        let same_chain = before.filter(|b| (b.family, &b.chain) == (rule.family, &rule.chain));
        let ours = edit.as_ref().is_none_or(|edit| edit.family == rule.family);
        if mark.is_some() && ours {
            let at = NftRuleAt {
                rule: rule.clone(),
                after: same_chain.and_then(|b| b.handle),
            };
            edit.get_or_insert_with(|| NftEdit::of(rule.family, table))
                .delete
                .push(at);
        }
        before = Some(rule);
    }
    edit.unwrap()
}

#[test]
fn what_the_plugins_write_is_read_alike_from_the_kernel_and_from_nfts_words() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        feed("nft -f -", PLUGINS);
        let live = observe(Kinds::NFT).nft.value;
        assert_eq!(marked(&live).len(), 12);
        for command in ["nft -a list ruleset", "nft -j -a list ruleset"] {
            let (recorded, problems) = sexton_formats::nft::read("nft", run(command).as_bytes());
            assert_eq!(problems, []);
            let bare = |rule: &NftRule| NftRule {
                raw: None,
                ..rule.clone()
            };
            let live: Vec<_> = marked(&live).into_iter().map(bare).collect();
            let recorded: Vec<_> = marked(&recorded).into_iter().cloned().collect();
            assert_eq!(live, recorded, "{command}");
        }
        assert!(marked(&live).iter().all(|rule| rule.raw.is_some()));
    });
}

#[test]
fn rules_go_by_handle_and_come_back_in_their_places() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        feed("nft -f -", PLUGINS);
        let mut node = node();
        for (table, count) in [("cni_hostport", 5), ("cni_plugins_masquerade", 1)] {
            let before = ruleset();
            let act = Act::NftEdit {
                edit: deletion(&observe(Kinds::NFT).nft.value, table, "one"),
            };
            let Act::NftEdit { edit } = &act else { panic!() };
            assert_eq!(edit.delete.len(), count);
            assert_eq!(node.apply(&act), done());
            // Exactly these lines are gone.
            let mut wanted: Vec<&str> = before.lines().collect();
            for at in &edit.delete {
                let index = wanted
                    .iter()
                    .position(|line| line.trim() == at.rule.text)
                    .unwrap();
                wanted.remove(index);
            }
            assert_eq!(ruleset().lines().collect::<Vec<_>>(), wanted);
            assert_eq!(node.apply(&act), Applied::AlreadyGone);
            let undo = act.undo().unwrap();
            assert_eq!(node.apply(&undo), done());
            assert_eq!(ruleset(), before);
            assert_eq!(node.apply(&undo), Applied::AlreadyGone);
        }
    });
}

#[test]
fn a_handle_with_another_content_is_refused_with_all_the_rest() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        feed("nft -f -", PLUGINS);
        let mut node = node();
        let edit = deletion(&observe(Kinds::NFT).nft.value, "cni_hostport", "one");
        let handle = edit.delete[0].rule.handle;
        // The table is made anew, and its handles begin anew: the first is another container's by now.
        run("nft delete table ip cni_hostport");
        feed("nft -f -", &PLUGINS.replacen("10.88.0.17:80", "10.88.0.99:80", 1));
        let state = observe(Kinds::NFT).nft.value;
        let other = state
            .rules
            .iter()
            .find(|r| r.table == "cni_hostport" && r.handle == handle);
        assert!(other.unwrap().text.contains("10.88.0.99"), "{other:?}");
        let before = ruleset();
        let outcome = node.apply(&Act::NftEdit { edit: edit.clone() });
        assert!(
            matches!(&outcome, Applied::Changed(why) if why.contains("10.88.0.99")),
            "{outcome:?}"
        );
        assert_eq!(ruleset(), before);
        // One that only differs in what its text does not show.
        let mut edit = deletion(&observe(Kinds::NFT).nft.value, "cni_hostport", "two");
        if let Some(raw) = edit.delete[0].rule.raw.as_mut() {
            raw.expressions.replace_range(0..2, "ff");
        }
        assert!(matches!(node.apply(&Act::NftEdit { edit }), Applied::Changed(_)));
        assert_eq!(ruleset(), before);
    });
}

#[test]
fn an_undo_whose_neighbour_is_gone_is_refused() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        feed("nft -f -", PLUGINS);
        let mut node = node();
        let state = observe(Kinds::NFT).nft.value;
        let edit = deletion(&state, "cni_hostport", "one");
        // The third of them stood behind the other container's.
        let neighbour = edit
            .delete
            .iter()
            .find(|at| at.rule.text.contains("8081"))
            .unwrap()
            .after;
        let act = Act::NftEdit { edit };
        assert_eq!(node.apply(&act), done());
        run(&format!(
            "nft delete rule ip cni_hostport hostports handle {}",
            neighbour.unwrap()
        ));
        let before = ruleset();
        let outcome = node.apply(&act.undo().unwrap());
        assert!(matches!(outcome, Applied::Changed(_)), "{outcome:?}");
        assert_eq!(ruleset(), before);
    });
}

#[test]
fn beside_a_busy_writer_nothing_else_is_ever_deleted() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        feed("nft -f -", PLUGINS);
        let edit = deletion(&observe(Kinds::NFT).nft.value, "cni_hostport", "one");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Another plugin adds and deletes all the time.
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let (_, _) = try_run(
                        "nft -a -e add rule ip cni_hostport hostports tcp dport 9000 dnat to 10.88.0.40:80 comment busy \
                         | sed -n 's/.*handle \\([0-9]*\\)$/delete rule ip cni_hostport hostports handle \\1/p' | nft -f -",
                    );
                }
            });
            let mut node = node();
            let end = Instant::now() + Duration::from_secs(2);
            let mut gone = false;
            while Instant::now() < end {
                match node.apply(&Act::NftEdit { edit: edit.clone() }) {
                    Applied::Done { skipped } => gone = skipped.is_empty(),
                    Applied::AlreadyGone => assert!(gone),
                    // It came between each of our tries.
                    Applied::Changed(why) => assert!(why.contains("during each"), "{why}"),
                    other => panic!("{other:?}"),
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(gone);
        });
        let left = ruleset();
        assert!(
            left.contains("10.88.0.31:80") && !left.contains("10.88.0.17"),
            "{left}"
        );
    });
}

const MAPS: &str = r#"
table inet sexton {
  map npl4 { type inet_proto . inet_service : ipv4_addr . inet_service;
             elements = { tcp . 61000 comment "sexton:old:npl" : 10.10.1.7 . 8080, tcp . 61001 : 10.10.1.9 . 80 } }
}
table inet t {
  chain a { }
  map verdicts { type ipv4_addr : verdict;
                 elements = { 10.0.0.1 : goto a, 10.0.0.2 comment "why" : drop, 10.0.0.3 : accept, 10.0.0.4 : jump a,
                              10.0.0.5 : return, 10.0.0.6 : continue } }
}
"#;

fn elements(set: &str) -> Vec<NftElement> {
    let state = observe(Kinds::NFT);
    let found = state.nft.value.sets.into_iter().find(|s| s.name == set);
    found.unwrap().elements
}

#[test]
fn a_mapping_is_replaced_in_one_transaction() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        feed("nft -f -", MAPS);
        let mut node = node();
        let wrong = elements("npl4")
            .into_iter()
            .find(|e| e.text().contains("61000"))
            .unwrap();
        let right = NftElement {
            data: vec![NftValue::Addr("10.10.1.8".parse().unwrap()), NftValue::Port(8080)],
            comment: Some("sexton:new:npl".to_owned()),
            ..wrong.clone()
        };
        assert_eq!(wrong.key, [NftValue::Proto(Proto::Tcp), NftValue::Port(61000)]);
        let at = |element: &NftElement| {
            vec![NftElementAt {
                set: "npl4".to_owned(),
                element: element.clone(),
            }]
        };
        let act = Act::NftEdit {
            edit: NftEdit {
                delete_elements: at(&wrong),
                add_elements: at(&right),
                ..NftEdit::of(sexton_core::model::NftFamily::Inet, "sexton")
            },
        };
        let texts = || {
            let mut all: Vec<_> = elements("npl4").iter().map(NftElement::text).collect();
            all.sort();
            all
        };
        let before = texts();
        assert_eq!(node.apply(&act), done());
        let mut wanted = before.clone();
        wanted[0] = right.text();
        assert_eq!(texts(), wanted);
        assert!(matches!(node.apply(&act), Applied::Changed(_)));
        assert_eq!(node.apply(&act.undo().unwrap()), done());
        assert_eq!(texts(), before);
    });
}

#[test]
fn verdicts_are_written_back_and_nonsense_is_refused() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        feed("nft -f -", MAPS);
        let before = ruleset();
        let mut node = node();
        let all = elements("verdicts");
        assert_eq!(all.len(), 6);
        for element in &all {
            let act = Act::NftDeleteElement {
                family: sexton_core::model::NftFamily::Inet,
                table: "t".to_owned(),
                set: "verdicts".to_owned(),
                element: element.clone(),
            };
            assert_eq!(node.apply(&act), done(), "{}", element.text());
            assert_eq!(elements("verdicts").len(), 5);
            assert_eq!(node.apply(&act.undo().unwrap()), done(), "{}", element.text());
        }
        assert_eq!(elements("verdicts").len(), 6);
        assert_eq!(sorted(&ruleset()), sorted(&before));
        for data in [
            vec![NftValue::Verdict("goto".to_owned())],
            vec![NftValue::Verdict("hop a".to_owned())],
            vec![NftValue::Port(1)],
            vec![],
        ] {
            let act = Act::NftAddElement {
                family: sexton_core::model::NftFamily::Inet,
                table: "t".to_owned(),
                set: "verdicts".to_owned(),
                element: NftElement {
                    key: vec![NftValue::Addr("10.0.0.9".parse().unwrap())],
                    data: data.clone(),
                    comment: None,
                    timeout_ms: None,
                    expires_ms: None,
                },
            };
            let outcome = node.apply(&act);
            assert!(matches!(outcome, Applied::Failed(_)), "{data:?}: {outcome:?}");
        }
    });
}

/// The words of a ruleset: elements come in any order.
fn sorted(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text
        .split([',', '\n', '{', '}'])
        .map(|word| word.trim().trim_start_matches("elements = "))
        .filter(|word| !word.is_empty() && *word != "elements =")
        .collect();
    words.sort_unstable();
    words
}
