use std::net::Ipv4Addr;

use super::*;

fn snapshot(sections: &[(&str, &[&str])]) -> Snapshot {
    let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
    Snapshot {
        sections: sections
            .iter()
            .map(|&(name, text)| (name.to_owned(), lines(text)))
            .collect(),
    }
}

const BEFORE: [&str; 9] = [
    "*filter", ":NPL -", "COMMIT", "*nat", ":NPL -", ":OLD -", "-A NPL a", "-A NPL b", "COMMIT",
];

fn edit(delete: &[&str], add: &[&str], drop: &[&str]) -> XtEdit {
    let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
    XtEdit {
        place: XtPlace {
            variant: XtVariant::Nft,
            family: Family::Ipv4,
            table: "nat".into(),
        },
        delete: lines(delete),
        drop_chains: lines(drop),
        new_chains: Vec::new(),
        add: lines(add),
        probes: Vec::new(),
        replaced: 0,
    }
}

#[test]
fn a_restore_is_carried_out_in_its_table_and_in_order() {
    let mut node = snapshot(&[("iptables-nft-save", &BEFORE)]);
    restore(&mut node, &edit(&["-A NPL a"], &["-A NPL c"], &["OLD"])).unwrap();
    let wanted = [
        "*filter", ":NPL -", "COMMIT", "*nat", ":NPL -", "-A NPL b", "-A NPL c", "COMMIT",
    ];
    assert_eq!(node, snapshot(&[("iptables-nft-save", &wanted)]));
    let refused = restore(&mut node, &edit(&["-A NPL a"], &[], &[])).unwrap_err();
    assert_eq!(refused, "iptables-nft-save has no rule -A NPL a");
}

#[test]
fn tables_of_iptables_are_left_to_it() {
    let text = [
        "table ip nat {",
        "\tchain X {",
        "}",
        "table netdev sexton {",
        "\t\telement 10.0.0.1 timeout 1h",
        "}",
    ];
    let lines: Vec<String> = text.iter().map(|&line| line.to_owned()).collect();
    assert_eq!(nft(&lines), text[3..]);
}

#[test]
fn only_new_connections_of_the_clients_are_left_out() {
    let line = |sport: u16| {
        format!(
            "udp 17 src={CLIENT_IP} dst={NODE_IP} sport={sport} dport=61004 src=10.10.1.2 dst={CLIENT_IP} sport=5064 dport={sport} mark=0 use=1"
        )
    };
    let target = Target {
        pod: "voice/relay-1".into(),
        uid: "u".into(),
        ip: NODE_IP.parse().unwrap_or(Ipv4Addr::UNSPECIFIED),
        port: 61004,
        protocol: Protocol::Udp,
        path: crate::truth::TargetPath::Npl,
        works: true,
    };
    let before = snapshot(&[(CONNTRACK, &[&line(41004)])]);
    let mut after = snapshot(&[(
        CONNTRACK,
        &[&line(41004), &line(50000), "udp 17 src=10.10.1.9 dst=1.1.1.1 "],
    )]);
    clients(&before, &mut after, &[target]);
    assert_eq!(
        after,
        snapshot(&[(CONNTRACK, &[&line(41004), "udp 17 src=10.10.1.9 dst=1.1.1.1 "])])
    );
}

#[test]
fn a_lease_that_is_not_in_quarantine_is_missed() {
    let lease = "600 1.0 abc".to_owned();
    let mut after = snapshot(&[(
        FILES,
        &[
            "/var/lib/cni/.sexton-quarantine/ 755",
            "/var/lib/cni/.sexton-quarantine/networks/podnet/10.10.1.2.abc 600 1.0 abc",
            "/var/lib/cni/.sexton-quarantine/networks/podnet/10.10.1.3.def 600 1.0 def",
            "/var/lib/cni/networks/ 755",
        ],
    )]);
    assert!(quarantined(&mut after, vec![lease]).is_empty());
    assert_eq!(
        after,
        snapshot(&[(
            FILES,
            &[
                "/var/lib/cni/.sexton-quarantine/networks/podnet/10.10.1.3.def 600 1.0 def",
                "/var/lib/cni/networks/ 755",
            ]
        )])
    );
    assert_eq!(quarantined(&mut after, vec!["600 9 zzz".into()]).len(), 1);
}
