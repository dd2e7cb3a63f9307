//! Tests.

use proptest::prelude::*;

use super::*;

fn addresses(out: &NicOutput) -> Vec<String> {
    let all = out.nics.iter().flat_map(|nic| &nic.addresses);
    all.map(|owned| format!("{}{}", owned.address, if owned.primary { "*" } else { "" }))
        .collect()
}

#[test]
fn arm_flat_nested_and_in_older_spelling() {
    let flat = r#"{"name": "nic-0", "macAddress": "60-45-BD-12-45-65", "primary": true, "enableAcceleratedNetworking": true,
        "enableIPForwarding": true, "ipConfigurations": [
        {"name": "ipconfig1", "primary": true, "privateIPAddress": "10.240.1.4"},
        {"name": "ipconfig2", "primary": false, "privateIpAddress": "10.240.1.77"}]}"#;
    let nested = r#"[{"name": "nic-0", "properties": {"macAddress": "60-45-BD-12-45-65", "primary": true,
        "enableAcceleratedNetworking": true, "enableIPForwarding": true, "ipConfigurations": [
        {"name": "ipconfig1", "properties": {"primary": true, "privateIPAddress": "10.240.1.4"}},
        {"name": "ipconfig2", "properties": {"primary": false, "privateIPAddress": "10.240.1.77"}}]}}]"#;
    for text in [flat, nested] {
        let out = parse(text.as_bytes(), "nic.json");
        assert_eq!((out.source, out.problems.len()), (Some(NicSource::Arm), 0));
        assert_eq!(addresses(&out), ["10.240.1.4*", "10.240.1.77"]);
        let (nic, owned) = out.owner("10.240.1.77".parse().unwrap()).unwrap();
        assert_eq!(nic.mac.as_deref(), Some("60:45:bd:12:45:65"));
        assert_eq!(
            (nic.primary, nic.accelerated, nic.forwarding),
            (true, Some(true), Some(true))
        );
        assert_eq!(owned.name.as_deref(), Some("ipconfig2"));
        assert!(out.source.unwrap().lists_all());
    }
}

#[test]
fn nmagent_as_xml_and_json() {
    let xml = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<Interfaces>\n<Interface MacAddress=\"002248263DBD\" IsPrimary=\"true\"><IPSubnet Prefix=\"10.240.0.0/16\"><IPAddress Address=\"10.240.0.4\" IsPrimary=\"true\"/><IPAddress Address=\"10.240.0.5\" IsPrimary='false'></IPAddress></IPSubnet></Interface>\n<Interface MacAddress=\"002248263DBE\"/></Interfaces>";
    let json = r#"{"Interfaces": [{"MacAddress": "002248263DBD", "IsPrimary": true, "IPSubnets": [{"Prefix": "10.240.0.0/16",
        "IPAddresses": [{"Address": "10.240.0.4", "IsPrimary": true}, {"Address": "10.240.0.5", "IsPrimary": false}]}]},
        {"MacAddress": "002248263DBE"}]}"#;
    for text in [xml, json] {
        let out = parse(text.as_bytes(), "interfaceinfo");
        assert_eq!(
            (out.source, out.problems.len()),
            (Some(NicSource::NmAgent), 0),
            "{out:?}"
        );
        assert!(out.completeness.is_complete());
        assert_eq!(addresses(&out), ["10.240.0.4*", "10.240.0.5"]);
        assert_eq!(out.nics[1].mac.as_deref(), Some("00:22:48:26:3d:be"));
    }
    let cut = parse(
        &xml.as_bytes()[..xml.find("<IPAddress Address=\"10.240.0.5").unwrap() + 20],
        "interfaceinfo.xml",
    );
    assert_eq!(addresses(&cut), ["10.240.0.4*"]);
    assert!(matches!(cut.completeness, Completeness::Partial(_)), "{cut:?}");
    let bad = parse(
        b"<Interfaces>\n<Interface>\n<IPAddress Address=\"x\"/></Interface></Interfaces>",
        "f",
    );
    assert_eq!(bad.problems[0].place, "f:3");
    assert!(matches!(
        parse(b"<html></html>", "f").completeness,
        Completeness::Unavailable(_)
    ));
}

#[test]
fn imds_cns_and_ipam() {
    let imds = r#"{"interface":[{"ipv4":{"ipAddress":[{"privateIpAddress":"10.1.5.4","publicIpAddress":""},
        {"privateIpAddress":"10.1.5.5"}],"subnet":[{"address":"10.1.5.0","prefix":"24"}]},
        "ipv6":{"ipAddress":[{"privateIpAddress":"fd00::4"}]},"macAddress":"000D3ABE51D2"}]}"#;
    let out = parse(imds.as_bytes(), "imds.json");
    assert_eq!(out.source, Some(NicSource::Imds));
    assert_eq!(addresses(&out), ["10.1.5.4*", "10.1.5.5", "fd00::4*"]);
    let instance = format!("{{\"compute\":{{}},\"network\":{imds}}}");
    assert_eq!(parse(instance.as_bytes(), "f").nics, out.nics);

    let cns = r#"{"IPConfigurationStatus":[{"NCID":"nc","ID":"a","IPAddress":"10.1.0.7","LastStateTransition":"x",
        "PodInfo":{},"state":"Available"}, {"ID":"b","IPAddress":"10.1.0.8","state":"Assigned"}]}"#;
    let out = parse(cns.as_bytes(), "cns.json");
    assert_eq!(out.source, Some(NicSource::Cns));
    let used: Vec<_> = out.nics[0].addresses.iter().map(|owned| owned.in_use).collect();
    assert_eq!(used, [Some(false), Some(true)]);

    let ipam = r#"{"IPAM":{"Version":"v1","AddressSpaces":{"local":{"Pools":{"10.240.0.0/16":{"IfName":"Ethernet 2",
        "Addresses":{"10.240.1.30":{"ID":"","Addr":"10.240.1.30","InUse":false},
        "10.240.1.31":{"ID":"x","Addr":"10.240.1.31","InUse":true}}}}}}}}"#;
    let out = parse(ipam.as_bytes(), "azure-vnet-ipam.json");
    assert_eq!(out.source, Some(NicSource::Ipam));
    assert_eq!(out.nics[0].addresses.len(), 2);
    assert_eq!(
        out.owner("10.240.1.31".parse().unwrap()).unwrap().1.in_use,
        Some(true)
    );
}

#[test]
fn what_is_none_of_them_is_said() {
    for text in ["", "hello", "{}", "[1, 2]", "{\"a\": [", "null"] {
        let out = parse(text.as_bytes(), "f");
        assert!(
            matches!(out.completeness, Completeness::Unavailable(_)),
            "{text}: {out:?}"
        );
        assert_eq!(out.problems.len(), 1, "{text}");
    }
    let out = parse(
        br#"{"ipConfigurations": [{"privateIPAddress": "10.0.0.300"}, {"privateIPAddress": "10.0.0.3"}]}"#,
        "f",
    );
    assert_eq!(
        (addresses(&out), out.problems.len()),
        (vec!["10.0.0.3".to_owned()], 1)
    );
}

#[test]
fn spellings_of_a_mac_address() {
    for text in [
        "000D3A5C20C0",
        "00-0d-3A-5c-20-C0",
        "00:0d:3a:5c:20:c0",
        "000d.3a5c.20c0",
    ] {
        assert_eq!(canonical_mac(text).as_deref(), Some("00:0d:3a:5c:20:c0"));
    }
    for text in ["", "00", "000D3A5C20CG", "000D3A5C20C0FF", "äää"] {
        assert_eq!(canonical_mac(text), None);
    }
}

proptest! {
    #[test]
    fn nothing_panics(text in "[<{\\[]?[ -~]{0,200}") {
        parse(text.as_bytes(), "f");
    }
}
