//! Tests.

use super::*;

const V1: &str = r#"[{"ID": "705F2A0D-cd52-4535-ae32-df0ed4f33151", "Name": "9e9633b1-eth0", "IPAddress": "10.240.1.33",
    "MacAddress": "00-15-5D-8E-0D-BD", "State": 3, "SharedContainers": "9e9633b1"},
    {"ID": "1", "Name": "Ethernet", "IPAddress": "10.244.5.23", "IsRemoteEndpoint": true, "State": 1, "SharedContainers": []},
    {"ID": "2", "Name": "gone-eth0", "IPAddress": "10.240.1.50", "State": 6}]"#;

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
fn a_list_that_is_cut_off_is_partial_and_an_empty_one_is_a_list() {
    let cut = endpoints(&V1.as_bytes()[..300], "f");
    assert!(matches!(cut.completeness, Completeness::Partial(_)), "{cut:?}");
    assert_eq!(cut.endpoints.len(), 1);
    let empty = endpoints(b"[]", "f");
    assert_eq!(
        (empty.completeness, empty.endpoints.len()),
        (Completeness::Complete, 0)
    );
    let nothing = endpoints(b"", "f");
    assert!(matches!(nothing.completeness, Completeness::Unavailable(_)));
}

#[test]
fn an_item_that_is_none_is_named_and_the_list_is_not_whole() {
    let out = endpoints(br#"[{"Name": "x"}, {"ID": "a"}]"#, "f");
    assert_eq!((out.endpoints.len(), out.problems.len()), (1, 1));
    assert!(!out.completeness.is_complete());
}
