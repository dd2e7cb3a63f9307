//! Tests.

use super::*;
use crate::nic;

const V1: &str = r#"[{"ID": "705F2A0D-cd52-4535-ae32-df0ed4f33151", "Name": "9e9633b1-eth0", "IPAddress": "10.240.1.33",
    "MacAddress": "00-15-5D-8E-0D-BD", "State": 3, "SharedContainers": "9e9633b1"},
    {"ID": "1", "Name": "Ethernet", "IPAddress": "10.244.5.23", "IsRemoteEndpoint": true, "State": 1, "SharedContainers": []},
    {"ID": "2", "Name": "gone-eth0", "IPAddress": "10.240.1.50", "State": 6}]"#;

fn nics() -> NicOutput {
    let text = r#"{"name": "nic-0", "ipConfigurations": [{"name": "ipconfig1", "primary": true, "privateIPAddress": "10.240.1.4"},
        {"name": "ipconfig2", "privateIPAddress": "10.240.1.33"}, {"name": "ipconfig9", "privateIPAddress": "10.240.1.77"},
        {"name": "ipconfig8", "privateIPAddress": "10.240.1.50"}]}"#;
    nic::parse(text.as_bytes(), "nic.json")
}

#[test]
fn both_versions() {
    let v1 = endpoints(V1.as_bytes(), "hns-endpoints.json");
    assert_eq!(v1.problems, []);
    assert_eq!(v1.endpoints[0].id, "705f2a0d-cd52-4535-ae32-df0ed4f33151");
    assert_eq!(v1.endpoints[0].mac.as_deref(), Some("00:15:5d:8e:0d:bd"));
    assert_eq!(v1.endpoints[0].containers, ["9e9633b1"]);
    let local: Vec<_> = v1.endpoints.iter().map(Endpoint::is_local).collect();
    assert_eq!(local, [true, false, false]);

    // One object, and version 2.
    let v2 = r#"{"ID": "A", "Name": "x-eth0", "IpConfigurations": [{"IpAddress": "10.0.0.5", "PrefixLength": 24},
        {"IpAddress": "fd00::5"}], "Flags": 0, "SchemaVersion": {"Major": 2}}"#;
    let v2 = endpoints(v2.as_bytes(), "f");
    assert_eq!(v2.endpoints[0].addresses.len(), 2);
    assert!(v2.endpoints[0].is_local());
    let remote = endpoints(
        br#"{"ID": "A", "Flags": 1, "IpConfigurations": {"IpAddress": "10.0.0.5"}}"#,
        "f",
    );
    assert!(remote.endpoints[0].remote);
    assert_eq!(remote.endpoints[0].addresses.len(), 1);
}

#[test]
fn who_uses_an_address_of_the_adapter() {
    let whole = endpoints(V1.as_bytes(), "f");
    let standing =
        |address: &str, nics: &NicOutput, hns: &HnsOutput| residence(address.parse().unwrap(), nics, hns);
    assert_eq!(standing("10.240.1.4", &nics(), &whole).standing, Standing::Live);
    assert_eq!(standing("10.240.1.33", &nics(), &whole).standing, Standing::Live);
    let nobody = standing("10.240.1.77", &nics(), &whole);
    assert_eq!(nobody.standing, Standing::Nobody);
    let said: Vec<_> = nobody.evidence.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(
        said,
        [
            "nic-0 owns 10.240.1.77 as ipconfig9",
            "none of 3 endpoints has 10.240.1.77"
        ]
    );
    // A destroyed endpoint holds nothing.
    assert_eq!(
        standing("10.240.1.50", &nics(), &whole).standing,
        Standing::Nobody
    );
    // Another node's list.
    let strange = standing("10.240.9.9", &nics(), &whole);
    assert_eq!(strange.standing, Standing::Unknown);
    assert!(strange.lacking[0].contains("no address of this node's adapters"));
    // A list that is cut off proves nothing.
    let cut = endpoints(&V1.as_bytes()[..300], "f");
    assert!(matches!(cut.completeness, Completeness::Partial(_)), "{cut:?}");
    assert_eq!(standing("10.240.1.77", &nics(), &cut).standing, Standing::Unknown);
    assert_eq!(standing("10.240.1.33", &nics(), &cut).standing, Standing::Live);
    // An empty list is a list.
    let empty = endpoints(b"[]", "f");
    assert_eq!(
        standing("10.240.1.77", &nics(), &empty).standing,
        Standing::Nobody
    );
    let unread = nic::parse(b"", "f");
    assert_eq!(
        standing("10.240.1.77", &unread, &whole).lacking,
        ["a whole list of the addresses that this node's adapters own"]
    );
}

#[test]
fn an_item_that_is_none_is_named_and_the_list_is_not_whole() {
    let out = endpoints(br#"[{"Name": "x"}, {"ID": "a"}]"#, "f");
    assert_eq!((out.endpoints.len(), out.problems.len()), (1, 1));
    assert!(!out.completeness.is_complete());
}
