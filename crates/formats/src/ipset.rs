//! `ipset save`.
//!
//! Source: ipset(8); ipset 7.17, `lib/print.c` and `lib/session.c` (`list_create`, `list_adt`). A line `create NAME TYPE ...`
//! makes a set, and `add NAME ENTRY ...` a member of one that was made before.

use std::{collections::HashMap, io::BufRead};

use sexton_core::model::{IpSet, IpSetMember, Problem};

use crate::problems::{Problems, each_line};

/// Reads the listing as a stream, a line in memory.
///
/// Never fails: what was wrong is a problem with its line, and the rest is used.
pub fn parse(reader: impl BufRead, path: &str) -> (Vec<IpSet>, Vec<Problem>) {
    let mut sets: Vec<IpSet> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut problems = Problems::new(path);
    each_line(reader, &mut problems, |last, text, problems| {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') || text == "COMMIT" {
            return;
        }
        let mut words = text.splitn(4, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("create" | "-N"), Some(name), Some(kind)) if !name.is_empty() && !kind.is_empty() => {
                if places.contains_key(name) {
                    problems.push(last, format!("the set {name:?} is made twice"));
                    return;
                }
                places.insert(name.to_owned(), sets.len());
                sets.push(IpSet {
                    name: name.to_owned(),
                    kind: kind.to_owned(),
                    options: words.next().unwrap_or_default().to_owned(),
                    members: Vec::new(),
                });
            }
            (Some("add" | "-A"), Some(name), Some(entry)) if !entry.is_empty() => {
                match places.get(name).and_then(|at| sets.get_mut(*at)) {
                    Some(set) => set.members.push(IpSetMember {
                        entry: entry.to_owned(),
                        options: words.next().unwrap_or_default().to_owned(),
                    }),
                    None => problems.push(last, format!("a member of the set {name:?}, which was not made")),
                }
            }
            _ => {
                let found: String = text.chars().take(60).collect();
                problems.push(
                    last,
                    format!("expected `create` or `add` of `ipset save`, found {found:?}"),
                );
            }
        }
    });
    (sets, problems.finish())
}

/// The sets as `ipset save` prints them.
pub fn print(sets: &[IpSet]) -> String {
    let mut out = String::new();
    let mut line = |parts: [&str; 4]| {
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        out.push_str(&parts.join(" "));
        out.push('\n');
    };
    for set in sets {
        line(["create", &set.name, &set.kind, &set.options]);
        for member in &set.members {
            line(["add", &set.name, &member.entry, &member.options]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Printed by ipset 7.17.
    const SAVE: &str = r#"create a hash:ip family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0xd0b2adc1
add a 10.0.0.1
add a 10.0.0.2
create b hash:ip,port family inet hashsize 1024 maxelem 65536 timeout 300 counters comment bucketsize 12 initval 0xb922465b
add b 10.0.0.1,tcp:80 timeout 299 packets 0 bytes 0 comment "x y"
create n hash:net family inet6 hashsize 1024 maxelem 65536 bucketsize 12 initval 0xf3fd9214
add n fd00::/64
create bm bitmap:port range 0-100
add bm 5
create iii hash:ip,port,ip family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x199b1c2e
add iii 10.0.0.1,udp:53,10.2.2.2
create l list:set size 8
add l a
"#;

    #[test]
    fn sets_and_members_are_read_and_printed_again() {
        let (sets, problems) = parse(SAVE.as_bytes(), "p");
        assert_eq!(problems, []);
        assert_eq!(print(&sets), SAVE);
        let shapes: Vec<_> = sets
            .iter()
            .map(|s| (s.name.as_str(), s.kind.as_str(), s.members.len()))
            .collect();
        assert_eq!(
            shapes,
            [
                ("a", "hash:ip", 2),
                ("b", "hash:ip,port", 1),
                ("n", "hash:net", 1),
                ("bm", "bitmap:port", 1),
                ("iii", "hash:ip,port,ip", 1),
                ("l", "list:set", 1)
            ]
        );
        let addresses = |set: usize| {
            let nets = sets[set].members[0].addresses();
            nets.map(|net| net.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(addresses(1), ["10.0.0.1/32"]);
        assert_eq!(addresses(2), ["fd00::/64"]);
        assert_eq!(addresses(4), ["10.0.0.1/32", "10.2.2.2/32"]);
        assert!(addresses(3).is_empty() && addresses(5).is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let text = "create a hash:ip\ncreate a hash:ip\nadd b 10.0.0.1\nhello\nadd a\n\nadd a 10.0.0.1\n";
        let (sets, problems) = parse(text.as_bytes(), "p");
        assert_eq!(sets[0].members.len(), 1);
        let places: Vec<_> = problems.iter().map(|p| p.place.as_str()).collect();
        assert_eq!(places, ["p:2", "p:3", "p:4", "p:5"]);
    }

    proptest! {
        #[test]
        fn what_was_printed_is_read_back(
            all in proptest::collection::vec(
                ("[a-z]{1,6}", "(hash:ip|list:set)", "(family inet( counters)?)?",
                 proptest::collection::vec(("[0-9a-f:.,/]{1,20}", "(timeout [0-9]{1,3})?"), 0..4)),
                0..4,
            )
        ) {
            let sets: Vec<IpSet> = all.into_iter().enumerate().map(|(at, (name, kind, options, members))| IpSet {
                name: format!("{name}{at}"),
                kind,
                options,
                members: members.into_iter().map(|(entry, options)| IpSetMember { entry, options }).collect(),
            }).collect();
            let (read, problems) = parse(print(&sets).as_bytes(), "p");
            prop_assert_eq!(problems, vec![]);
            prop_assert_eq!(&read, &sets);
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (sets, _) = parse(bytes.as_slice(), "p");
            let _ = print(&sets);
        }
    }
}
