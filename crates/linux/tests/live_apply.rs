//! Acts on the real kernel: done as a whole, refused when the object is another one by now, and nothing beside them
//! changed.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not in `#[test]` functions.

mod common;

use std::fs::File;
use std::time::{Duration, Instant};

use common::{done, feed, in_own_netns, node, observe, run, try_run, unsupported};
use rustix::fs::{FlockOperation, flock};
use sexton_core::finding::XtPlace;
use sexton_core::model::{CtEntry, Family, NftElement, NftFamily, Proto, XtVariant};
use sexton_core::node::{Applied, Node as _, Probed};
use sexton_core::plan::{Act, Probe, XtEdit};
use sexton_linux::{Kinds, LinuxNode};

/// The two programs of a variant and family, and an address of the family by its last part.
struct Tool {
    place: XtPlace,
    command: &'static str,
}

impl Tool {
    fn all() -> [Self; 4] {
        let tool = |variant, family, command| Self {
            place: XtPlace {
                variant,
                family,
                table: "nat".to_owned(),
            },
            command,
        };
        [
            tool(XtVariant::Nft, Family::Ipv4, "iptables-nft"),
            tool(XtVariant::Nft, Family::Ipv6, "ip6tables-nft"),
            tool(XtVariant::Legacy, Family::Ipv4, "iptables-legacy"),
            tool(XtVariant::Legacy, Family::Ipv6, "ip6tables-legacy"),
        ]
    }

    fn rule(&self, port: u16, host: u8) -> String {
        let to = match self.place.family {
            Family::Ipv4 => format!("10.10.1.{host}:8080"),
            Family::Ipv6 => format!("[fd00:10::{host}]:8080"),
        };
        format!("-A NPL -p tcp -m tcp --dport {port} -j DNAT --to-destination {to}")
    }

    fn save(&self) -> Vec<String> {
        let out = run(&format!("{}-save -t nat", self.command));
        out.lines()
            .filter(|line| line.starts_with(['-', ':']))
            .map(|line| match line.strip_prefix(':') {
                Some(_) => line.split(" [").next().unwrap().to_owned(),
                None => line.to_owned(),
            })
            .collect()
    }

    /// A node's rules: a chain with a living neighbour, and ports of a Pod, some of which lead to where it was.
    fn prepare(&self, ports: &[(u16, u8)]) {
        run(&format!(
            "{0} -t nat -N NPL; {0} -t nat -A PREROUTING -j NPL; {0} -t nat -A POSTROUTING -j RETURN",
            self.command
        ));
        for (port, host) in ports {
            self.append(*port, *host);
        }
    }

    fn append(&self, port: u16, host: u8) {
        run(&format!("{} -t nat {}", self.command, self.rule(port, host)));
    }

    fn edit(&self) -> XtEdit {
        XtEdit {
            place: self.place.clone(),
            delete: Vec::new(),
            drop_chains: Vec::new(),
            new_chains: Vec::new(),
            add: Vec::new(),
            probes: Vec::new(),
            replaced: 0,
        }
    }
}

fn restore(node: &mut LinuxNode, edit: &XtEdit) -> Applied {
    node.apply(&Act::XtRestore { edit: edit.clone() })
}

#[test]
fn stale_rules_are_replaced_in_one_restore_and_neighbours_stay() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    for tool in Tool::all() {
        in_own_netns(|| {
            // Host 7 is dead, 8 its successor, 9 a neighbour.
            tool.prepare(&[(61000, 7), (61001, 7), (61002, 8), (61003, 8), (61009, 9)]);
            let mut node = node();
            let edit = XtEdit {
                delete: vec![tool.rule(61000, 7), tool.rule(61001, 7)],
                add: vec![tool.rule(61000, 8), tool.rule(61001, 8)],
                ..tool.edit()
            };
            let before = tool.save();
            assert_eq!(restore(&mut node, &edit), done(), "{}", tool.place);
            let mut expected: Vec<_> = before
                .into_iter()
                .filter(|line| !edit.delete.contains(line))
                .collect();
            let end = expected
                .iter()
                .rposition(|line| line.starts_with("-A NPL"))
                .unwrap();
            for line in edit.add.iter().rev() {
                expected.insert(end + 1, line.clone());
            }
            let mut after = tool.save();
            // Chains are printed in an order of each tool's own.
            after.sort();
            expected.sort();
            assert_eq!(after, expected, "{}", tool.place);

            // Again: nothing is left to do.
            assert_eq!(restore(&mut node, &edit), Applied::AlreadyGone);
            // And back, by the undo of the plan.
            let undo = Act::XtRestore { edit: edit.clone() }.undo().unwrap();
            assert_eq!(node.apply(&undo), done());
            let back = tool.save();
            assert!(edit.delete.iter().all(|line| back.contains(line)));
            assert!(edit.add.iter().all(|line| !back.contains(line)));
        });
    }
}

#[test]
fn what_changed_meanwhile_is_skipped_or_refused() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    for tool in Tool::all() {
        in_own_netns(|| {
            tool.prepare(&[(61000, 7), (61001, 7), (61001, 7), (61009, 9)]);
            let mut node = node();
            // One is gone, one is there twice: one copy is taken, and what is there is not added again.
            let edit = XtEdit {
                delete: vec![tool.rule(61000, 7), tool.rule(61001, 7), tool.rule(61005, 7)],
                add: vec![tool.rule(61009, 9)],
                ..tool.edit()
            };
            let skipped = vec![tool.rule(61005, 7), tool.rule(61009, 9)];
            assert_eq!(
                restore(&mut node, &edit),
                Applied::Done { skipped },
                "{}",
                tool.place
            );
            let lines = tool.save();
            let copies = |rule: String| lines.iter().filter(|line| **line == rule).count();
            assert_eq!(copies(tool.rule(61001, 7)), 1);
            assert_eq!(copies(tool.rule(61009, 9)), 1);

            // A chain that is gone, a rule that is no rule, a chain that others use: nothing is changed.
            let before = tool.save();
            let elsewhere = tool.rule(61001, 8).replace("-A NPL", "-A GONE");
            for (delete, drop, add) in [
                (tool.rule(61001, 7), None, Some(elsewhere)),
                (tool.rule(61001, 7), None, Some("-F NPL".to_owned())),
                (tool.rule(61001, 7), Some("NPL"), None),
            ] {
                let edit = XtEdit {
                    delete: vec![delete],
                    drop_chains: drop.map(str::to_owned).into_iter().collect(),
                    add: add.into_iter().collect(),
                    ..tool.edit()
                };
                let outcome = restore(&mut node, &edit);
                assert!(
                    matches!(outcome, Applied::Changed(_) | Applied::Failed(_)),
                    "{outcome:?}"
                );
                assert_eq!(tool.save(), before);
            }
            // A table that is not there is not made.
            let edit = XtEdit {
                place: XtPlace {
                    table: "raw".to_owned(),
                    ..tool.place.clone()
                },
                delete: vec![tool.rule(61001, 7)],
                ..tool.edit()
            };
            assert!(matches!(restore(&mut node, &edit), Applied::Changed(_)));
            let names =
                run("cat /proc/thread-self/net/ip_tables_names /proc/thread-self/net/ip6_tables_names");
            assert!(!names.contains("raw"));
        });
    }
}

#[test]
fn a_hostport_goes_with_its_chain_and_comes_back() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    for tool in Tool::all() {
        in_own_netns(|| {
            tool.prepare(&[(61009, 9)]);
            let chain = "CNI-DN-0123456789abcdef01234";
            let dnat = tool.rule(18080, 7).replace("-A NPL", &format!("-A {chain}"));
            let jump = format!(
                "-A PREROUTING -p tcp -m comment --comment \"dnat name: \\\"lab\\\" id: \\\"{}\\\"\" -m multiport --dports 18080 -j {chain}",
                "a".repeat(64)
            );
            run(&format!("{} -t nat -N {chain}", tool.command));
            for line in [&dnat, &jump] {
                feed(
                    &format!("{}-restore --noflush", tool.command),
                    &format!("*nat\n{line}\nCOMMIT\n"),
                );
            }
            let before = tool.save();
            assert!(before.contains(&jump), "{before:?}");
            let edit = XtEdit {
                delete: vec![jump.clone(), dnat.clone()],
                drop_chains: vec![chain.to_owned()],
                ..tool.edit()
            };
            let act = Act::XtRestore { edit };
            let mut node = node();
            assert_eq!(node.apply(&act), done(), "{}", tool.place);
            assert!(!tool.save().iter().any(|line| line.contains(chain)));
            assert_eq!(node.apply(&act.undo().unwrap()), done());
            let (mut after, mut before) = (tool.save(), before);
            after.sort();
            before.sort();
            assert_eq!(after, before);
            // The chain is there: made once.
            assert!(matches!(node.apply(&act.undo().unwrap()), Applied::Changed(_)));
        });
    }
}

#[test]
fn legacy_waits_for_the_xtables_lock() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    let [.., tool, _] = Tool::all();
    in_own_netns(|| {
        tool.prepare(&[(61000, 7)]);
        let edit = XtEdit {
            delete: vec![tool.rule(61000, 7)],
            ..tool.edit()
        };
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open("/run/xtables.lock")
            .unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let held = Duration::from_millis(700);
        let start = Instant::now();
        let holder = std::thread::spawn(move || {
            std::thread::sleep(held);
            drop(lock);
        });
        assert_eq!(restore(&mut node(), &edit), done());
        assert!(start.elapsed() >= held);
        holder.join().unwrap();
    });
}

const MAPS: &str = r#"
table inet t {
  map m { type inet_proto . inet_service : ipv4_addr . inet_service; flags timeout;
          elements = { tcp . 61000 timeout 1h comment "sexton:7f1c" : 10.10.1.7 . 8080, tcp . 61001 : 10.10.1.8 . 8080 } }
  set nets { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 11.200.0.0-11.200.0.9, 192.168.0.0/16 } }
  set pairs { type ipv4_addr . inet_service; flags interval; elements = { 10.1.0.0/16 . 80-90, 10.2.0.1 . 443 } }
  set plain { type ipv6_addr; elements = { fd00::1, fd00::2 } }
}
"#;

fn element(set: &str, text: &str) -> NftElement {
    let state = observe(Kinds::NFT);
    let set = state.nft.value.sets.iter().find(|s| s.name == set).unwrap();
    set.elements
        .iter()
        .find(|e| e.text().contains(text))
        .unwrap()
        .clone()
}

fn delete(set: &str, element: NftElement) -> Act {
    Act::NftDeleteElement {
        family: NftFamily::Inet,
        table: "t".to_owned(),
        set: set.to_owned(),
        element,
    }
}

fn ruleset() -> Vec<String> {
    let text = run("nft -s list ruleset");
    // Elements come in any order, and with the time that is left to them.
    let mut words: Vec<String> = text.split([',', '\n']).map(|s| s.trim().to_owned()).collect();
    for word in &mut words {
        if let Some((head, tail)) = word.clone().split_once(" expires ") {
            let rest = tail.split_once(' ').map_or("", |(_, rest)| rest);
            *word = format!("{head} {rest}");
        }
        *word = word
            .trim_start_matches("elements = {")
            .trim_end_matches('}')
            .trim()
            .to_owned();
    }
    words.sort();
    words
}

#[test]
fn elements_are_deleted_by_value_and_put_back_whole() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        feed("nft -f -", MAPS);
        let before = ruleset();
        let mut node = node();
        for (set, text) in [
            ("m", "61000"),
            ("m", "61001"),
            ("nets", "11.200.0.0-11.200.0.9"),
            ("nets", "192.168.0.0/16"),
            ("pairs", "10.1.0.0/16"),
            ("plain", "fd00::1"),
        ] {
            let act = delete(set, element(set, text));
            assert_eq!(node.apply(&act), done(), "{text}");
            let state = observe(Kinds::NFT);
            let left = state.nft.value.sets.iter().find(|s| s.name == set).unwrap();
            assert!(!left.elements.iter().any(|e| e.text().contains(text)), "{text}");
            assert_eq!(node.apply(&act), Applied::AlreadyGone, "{text}");
            let undo = act.undo().unwrap();
            assert_eq!(node.apply(&undo), done(), "{text}");
            assert_eq!(ruleset(), before, "{text}");
            assert_eq!(node.apply(&undo), Applied::AlreadyGone);
        }

        // Another value under the same key: the kernel's own delete would take it.
        let stale = element("m", "61001");
        run(
            "nft 'delete element inet t m { tcp . 61001 }; add element inet t m { tcp . 61001 : 10.10.1.9 . 8080 }'",
        );
        let before = ruleset();
        let act = delete("m", stale);
        assert!(matches!(node.apply(&act), Applied::Changed(_)));
        assert!(matches!(node.apply(&act.undo().unwrap()), Applied::Changed(_)));
        assert_eq!(ruleset(), before);
    });
}

#[test]
fn a_busy_ruleset_never_loses_another_element() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        feed("nft -f -", MAPS);
        let stale = element("m", "61001");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            // A writer that gives the key to somebody else and back, all the time.
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for host in [9, 8] {
                        let (_, _) = try_run(&format!(
                            "nft 'destroy element inet t m {{ tcp . 61001 }}; add element inet t m {{ tcp . 61001 : 10.10.1.{host} . 8080 }}' \
                             || nft 'add element inet t m {{ tcp . 61001 : 10.10.1.{host} . 8080 }}'"
                        ));
                    }
                }
            });
            let mut node = node();
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                // Whatever the outcome, no panic and no failure; the swap is the kernel's.
                let outcome = node.apply(&delete("m", stale.clone()));
                assert!(!matches!(outcome, Applied::Failed(_)), "{outcome:?}");
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        // The neighbour was never touched.
        assert!(run("nft list map inet t m").contains("sexton:7f1c"));
    });
}

fn entries() -> Vec<CtEntry> {
    observe(Kinds::CONNTRACK).conntrack.value.entries
}

#[test]
fn an_entry_is_deleted_by_its_id_and_zone() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        let insert = |extra: &str| {
            run(&format!(
                "conntrack -I -p udp -t 120 -s 10.0.0.1 -d 10.96.0.10 --sport 4000 --dport 53 -g 10.10.1.7 {extra} 2>&1"
            ));
        };
        insert("");
        insert("-w 5");
        run("conntrack -I -p udp -t 120 -s fd00::1 -d fd00::2 --sport 4000 --dport 53 2>&1");
        let all = entries();
        assert_eq!(all.len(), 3);
        let mut node = node();
        let first = all
            .iter()
            .find(|e| e.zone == 0 && e.original.dst.is_ipv4())
            .unwrap()
            .clone();
        let act = |entries: &[CtEntry]| Act::ConntrackDelete {
            entries: entries.to_vec(),
        };
        assert_eq!(node.apply(&act(std::slice::from_ref(&first))), done());
        assert_eq!(entries().len(), 2);
        assert_eq!(
            node.apply(&act(std::slice::from_ref(&first))),
            Applied::AlreadyGone
        );
        // A new connection with the same tuple, which goes elsewhere, is another one, even where the kernel gives it the
        // same ID.
        run("conntrack -I -p udp -t 120 -s 10.0.0.1 -d 10.96.0.10 --sport 4000 --dport 53 -g 10.10.1.8 2>&1");
        assert_eq!(
            node.apply(&act(std::slice::from_ref(&first))),
            Applied::AlreadyGone
        );
        assert_eq!(entries().len(), 3);
        // Without its ID an entry is not named exactly.
        let nameless = CtEntry {
            id: None,
            ..entries()[0].clone()
        };
        assert!(matches!(node.apply(&act(&[nameless])), Applied::Failed(_)));
        let rest = entries();
        let with_gone: Vec<_> = rest.iter().cloned().chain([first.clone()]).collect();
        assert_eq!(
            node.apply(&act(&with_gone)),
            Applied::Done {
                skipped: vec![first.text()]
            }
        );
        assert!(entries().is_empty());
    });
}

#[test]
fn traffic_proves_a_mapping_and_leaves_nothing() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    in_own_netns(|| {
        run("ip link add br0 type bridge && ip link set br0 up && ip addr add 192.0.2.1/24 dev br0");
        run("ip addr add 2001:db8::1/64 dev br0 nodad && ip route add default via 192.0.2.254");
        // The Pods' addresses, on this machine for want of Pods.
        run(
            "ip addr add 10.10.1.7/32 dev lo && ip addr add 10.10.1.8/32 dev lo && ip addr add fd00:10::7/128 dev lo nodad",
        );
        let _tcp = std::net::TcpListener::bind("10.10.1.7:8080").unwrap();
        let _tcp6 = std::net::TcpListener::bind("[fd00:10::7]:8080").unwrap();
        for (tool, proto, port, to) in [
            ("iptables-nft", "tcp", 61000, "10.10.1.7:8080"),
            ("iptables-nft", "udp", 61001, "10.10.1.7:9000"),
            ("iptables-nft", "tcp", 61002, "10.10.1.8:8080"),
            ("ip6tables-nft", "tcp", 61000, "[fd00:10::7]:8080"),
        ] {
            run(&format!(
                "{tool} -t nat -A OUTPUT -p {proto} --dport {port} -m addrtype --dst-type LOCAL -j DNAT --to-destination {to}"
            ));
        }
        let mut node = node();
        let mut probe = |proto, port, target: &str, target_port, node_ip: Option<&str>| {
            node.probe(&Probe {
                proto,
                node_ip: node_ip.map(|ip| ip.parse().unwrap()),
                node_port: port,
                target: target.parse().unwrap(),
                target_port,
            })
        };
        assert_eq!(
            probe(Proto::Tcp, 61000, "10.10.1.7", 8080, Some("192.0.2.1")),
            Probed::Arrived
        );
        assert_eq!(probe(Proto::Tcp, 61000, "10.10.1.7", 8080, None), Probed::Arrived);
        assert_eq!(
            probe(Proto::Tcp, 61000, "fd00:10::7", 8080, Some("2001:db8::1")),
            Probed::Arrived
        );
        assert_eq!(probe(Proto::Udp, 61001, "10.10.1.7", 9000, None), Probed::Arrived);
        let lost = |probed| match probed {
            Probed::Lost(why) => why,
            other => panic!("{other:?}"),
        };
        // It goes to another Pod, to nobody who listens, and nowhere.
        let why = lost(probe(Proto::Tcp, 61000, "10.10.1.8", 8080, None));
        assert!(why.contains("10.10.1.7:8080"), "{why}");
        let why = lost(probe(Proto::Udp, 61001, "10.10.1.8", 9000, None));
        assert!(why.contains("10.10.1.7:9000"), "{why}");
        let why = lost(probe(Proto::Tcp, 61002, "10.10.1.8", 8080, None));
        assert!(why.contains("refused"), "{why}");
        let why = lost(probe(Proto::Udp, 61009, "10.10.1.7", 9000, None));
        assert!(why.contains("nothing takes"), "{why}");
        assert!(matches!(
            probe(Proto::Sctp, 1, "10.10.1.7", 1, None),
            Probed::NotTried(_)
        ));
        // The bridge's own multicast apart.
        let left: Vec<_> = entries()
            .into_iter()
            .filter(|e| matches!(e.proto, Proto::Tcp | Proto::Udp))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn the_kernel_names_who_came_back() {
    if let Some(why) = unsupported() {
        return sexton_lab::skip!("{why}");
    }
    let [tool, _, legacy, _] = Tool::all();
    in_own_netns(|| {
        tool.prepare(&[(61000, 7)]);
        feed("nft -f -", MAPS);
        let mut node = node();
        let edit = XtEdit {
            delete: vec![tool.rule(61000, 7)],
            ..tool.edit()
        };
        let act = Act::XtRestore { edit };
        assert_eq!(node.apply(&act), done());
        let by_value = delete("m", element("m", "61001"));
        assert_eq!(node.apply(&by_value), done());
        std::thread::sleep(Duration::from_millis(50));
        // Our own changes are nobody else's.
        assert_eq!(node.writer(&act), None);
        assert_eq!(node.writer(&by_value), None);

        tool.append(61000, 7);
        run("nft add element inet t m '{ tcp . 61001 : 10.10.1.8 . 8080 }'");
        std::thread::sleep(Duration::from_millis(50));
        let who = node.writer(&act).unwrap();
        assert!(who.contains("iptables"), "{who}");
        let who = node.writer(&by_value).unwrap();
        assert!(who.contains("process nft (pid "), "{who}");
        // Legacy does not tell.
        let silent = Act::XtRestore { edit: legacy.edit() };
        assert_eq!(node.writer(&silent), None);
    });
}
