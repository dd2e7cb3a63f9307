//! The samples were printed by iproute2 6.1 in a network namespace with a veth pair inside, one across, a bridge and a
//! vxlan link.

use super::*;

macro_rules! sample {
    ($name:literal) => {
        include_bytes!(concat!("samples/", $name)).as_slice()
    };
}

fn links(bytes: &[u8]) -> (Vec<Link>, Vec<Address>) {
    let (value, problems) = read_links("p", bytes);
    assert_eq!(problems, []);
    value
}

#[test]
fn links_of_text_and_json_are_the_same() {
    let (json, addresses) = links(sample!("addr-j-d.json"));
    assert_eq!(json.len(), 6);
    assert_eq!(addresses.len(), 9);
    let [lo, across, bridge, vethb, vetha, vxlan] = &json[..] else {
        panic!("{json:?}");
    };
    assert_eq!((lo.name.as_str(), lo.index, lo.mac, lo.up), ("lo", 1, None, true));
    assert_eq!((across.peer, across.peer_netns), (Some(2), Some(0)));
    assert_eq!(across.mac.unwrap().to_string(), "ce:56:a8:37:40:80");
    assert_eq!(bridge.kind, "bridge");
    assert_eq!((vethb.peer, vethb.master), (Some(5), None));
    assert_eq!((vetha.peer, vetha.master), (Some(4), Some(3)));
    assert_eq!((vxlan.kind.as_str(), vxlan.up), ("vxlan", false));

    // a namespace that has a name is told by it, so that its ID is not known from text
    let without_netns = |mut links: Vec<Link>| {
        links.iter_mut().for_each(|link| link.peer_netns = None);
        links
    };
    let without_kind = |links: Vec<Link>| {
        let mut links = without_netns(links);
        links.iter_mut().for_each(|link| link.kind.clear());
        links
    };
    let json = without_netns(json);
    let text = links(sample!("addr-d.txt"));
    assert_eq!((without_netns(text.0), &text.1), (json.clone(), &addresses));
    assert_eq!(without_netns(links(sample!("link-d.txt")).0), json);
    assert_eq!(without_netns(links(sample!("link-j-d.json")).0), json);
    let json = without_kind(json);
    for bytes in [sample!("addr.txt"), sample!("addr-s.txt"), sample!("addr-j.json")] {
        let (mut found, found_addresses) = links(bytes);
        found = without_kind(found);
        assert_eq!((found, found_addresses), (json.clone(), addresses.clone()));
    }
    assert_eq!(without_kind(links(sample!("link-o.txt")).0), json);
    assert_eq!(links(sample!("addr-o.txt")), (vec![], addresses.clone()));
    let peer = addresses.iter().find(|a| a.link == 2).unwrap();
    assert_eq!(peer.ip.to_string(), "192.168.7.1");
}

#[test]
fn a_namespace_without_a_name_is_told_by_its_number() {
    let text = "3: eth0@if7: <BROADCAST,UP> mtu 1500 master br0 state UP\n    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff link-netnsid 4\n";
    let (links, _) = links(text.as_bytes());
    assert_eq!(
        (links[0].peer, links[0].peer_netns, links[0].master),
        (Some(7), Some(4), None)
    );
}

#[test]
fn routes_of_text_and_json_are_the_same() {
    let (json, problems) = read_routes("p", sample!("route-show-table-all-j.json"), 254);
    assert_eq!(problems, []);
    let find = |dst: &str| {
        let found: Vec<&Route> = json
            .iter()
            .filter(|r| r.dst.map_or("default".to_owned(), |d| d.to_string()) == dst)
            .collect();
        found
    };
    let defaults = find("default");
    assert_eq!(defaults.len(), 4);
    let gateways: Vec<_> = defaults.iter().map(|r| r.gateway.unwrap().to_string()).collect();
    assert_eq!(gateways, ["10.77.0.2", "10.77.0.3", "10.77.0.4", "fd00::9"]);
    assert_eq!((defaults[1].metric, defaults[1].protocol), (Some(100), 4));
    assert_eq!(defaults[2].dev.as_deref(), Some("cni0"));
    assert_eq!(find("10.97.0.0/16")[0].table, 100);
    assert_eq!(find("10.96.1.0/24")[0].gateway.unwrap().to_string(), "fd00::7");
    assert_eq!(find("10.96.2.0/24")[0].protocol, 66);
    assert_eq!(find("10.98.0.1/32")[0].kind, "unreachable");
    assert_eq!(
        (
            find("10.99.0.0/24")[0].kind.as_str(),
            &find("10.99.0.0/24")[0].dev
        ),
        ("blackhole", &None)
    );
    let local = find("10.77.0.1/32");
    assert_eq!(
        (local[0].table, local[0].kind.as_str(), local[0].protocol),
        (255, "local", 2)
    );
    for bytes in [
        sample!("route-show-table-all.txt"),
        sample!("route-show-table-all-o.txt"),
        sample!("route-show-table-all-d.txt"),
        sample!("route-show-table-all-j-d.json"),
    ] {
        assert_eq!(read_routes("p", bytes, 254), (json.clone(), vec![]));
    }
    assert_eq!(read_routes("p", b"10.0.0.0/8 dev eth0\n", 77).0[0].table, 77);
}

#[test]
fn neighbours_of_text_and_json_are_the_same() {
    let (json, problems) = read_neighbours("p", sample!("neigh-j.json"));
    assert_eq!(problems, []);
    let states: Vec<_> = json.iter().map(|n| n.state.as_str()).collect();
    assert_eq!(states, ["INCOMPLETE", "PERMANENT", "REACHABLE", "STALE"]);
    assert_eq!((json[0].mac, json[0].dev.as_str()), (None, "cni0"));
    assert_eq!(json[3].mac.unwrap().to_string(), "02:00:00:00:00:77");
    for bytes in [
        sample!("neigh.txt"),
        sample!("neigh-o.txt"),
        sample!("neigh-s.txt"),
    ] {
        assert_eq!(read_neighbours("p", bytes), (json.clone(), vec![]));
    }
    for text in [
        "10.0.0.77 dev eth0 proxy \n",
        r#"[{"dst":"10.0.0.77","dev":"eth0","proxy":null}]"#,
    ] {
        assert_eq!(read_neighbours("p", text.as_bytes()).0[0].state, "PROXY");
    }
}

#[test]
fn one_bad_line_is_one_problem() {
    let text = String::from_utf8(sample!("route-show-table-all.txt").to_vec()).unwrap();
    let bad = text
        .replacen("10.97.0.0/16", "10.97.0.0/77", 1)
        .replacen("table local", "table mine", 1);
    let (routes, problems) = read_routes("routes.txt", bad.as_bytes(), 254);
    let places: Vec<_> = problems.iter().map(|p| p.place.as_str()).collect();
    assert_eq!(places, ["routes.txt:1", "routes.txt:12"]);
    let all = read_routes("p", text.as_bytes(), 254).0.len();
    assert_eq!(routes.len(), all - 2);

    let garbage = "Command \"addr\" is unknown, try \"ip help\".\n".repeat(500);
    for problems in [
        read_links("p", garbage.as_bytes()).1,
        read_routes("p", garbage.as_bytes(), 254).1,
        read_neighbours("p", garbage.as_bytes()).1,
    ] {
        assert_eq!(problems.len(), 101);
        assert_eq!(problems[100].what, "400 more problems");
    }
}

#[test]
fn cut_json_keeps_what_came_before() {
    let bytes = sample!("addr-j.json");
    let ((links, _), problems) = read_links("p", &bytes[..bytes.len() / 2]);
    assert!(!links.is_empty() && links.len() < 6);
    assert_eq!(problems.len(), 1);
    let bad = r#"[{"ifindex":1,"ifname":"a","addr_info":[{"local":"1.2.3"}]},{},{"ifindex":"x"},{"x":1}]"#;
    let ((links, addresses), problems) = read_links("p", bad.as_bytes());
    assert_eq!((links.len(), addresses.len(), problems.len()), (1, 0, 3));
}

#[test]
fn nothing_is_nothing() {
    for bytes in [b"".as_slice(), b"[]", b"[ ]\n"] {
        assert_eq!(read_links("p", bytes), ((vec![], vec![]), vec![]));
        assert_eq!(read_routes("p", bytes, 254), (vec![], vec![]));
        assert_eq!(read_neighbours("p", bytes), (vec![], vec![]));
    }
}
