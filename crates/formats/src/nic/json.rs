//! The JSON sources. Their objects differ by a name or two, and writers differ in the case of names, so names are looked
//! up without case.

use serde_json::{Map, Value};

use super::{Nic, NicAddress, NicOutput, NicSource, canonical_mac};
use crate::{addr::parse_ip, items::json_problem};

pub(super) fn parse(bytes: &[u8], path: &str, out: &mut NicOutput) {
    // PowerShell and shells put several answers one after another.
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    for value in &mut values {
        match value {
            Ok(value) => document(&value, path, out),
            Err(err) => {
                let problem = json_problem(path, &err);
                out.fail(path, err.line().max(1), problem.what);
                return;
            }
        }
    }
    if out.source.is_none() {
        out.fail(
            path,
            1,
            "expected an adapter with its addresses, found other JSON".to_owned(),
        );
    }
}

/// A value by its name, without case.
fn get<'v>(object: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    let exact = object.get(name);
    exact.or_else(|| {
        object
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    })
}

fn text<'v>(object: &'v Map<String, Value>, name: &str) -> Option<&'v str> {
    get(object, name)?.as_str()
}

fn flag(object: &Map<String, Value>, name: &str) -> Option<bool> {
    match get(object, name)? {
        Value::Bool(value) => Some(*value),
        Value::String(value) if value.eq_ignore_ascii_case("true") => Some(true),
        Value::String(value) if value.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// The items of a list; a single object where a list is expected (`ConvertTo-Json`) is one item.
fn list<'v>(object: &'v Map<String, Value>, name: &str) -> impl Iterator<Item = &'v Map<String, Value>> {
    let value = get(object, name);
    let items = value
        .and_then(Value::as_array)
        .map_or_else(|| value.map(std::slice::from_ref), |list| Some(list));
    items.unwrap_or_default().iter().filter_map(Value::as_object)
}

fn document(value: &Value, path: &str, out: &mut NicOutput) {
    match value {
        Value::Array(items) => {
            // An empty answer of CNS or of `az network nic list`.
            for item in items {
                document(item, path, out);
            }
        }
        Value::Object(object) => {
            if get(object, "ipConfigurations").is_some() || get(object, "properties").is_some() {
                out.source = Some(NicSource::Arm);
                arm(object, path, out);
            } else if let Some(network) = get(object, "network").and_then(Value::as_object) {
                document(&Value::Object(network.clone()), path, out);
            } else if get(object, "interface").is_some() {
                out.source = Some(NicSource::Imds);
                for interface in list(object, "interface") {
                    imds(interface, path, out);
                }
            } else if get(object, "interfaces").is_some() {
                out.source = Some(NicSource::NmAgent);
                for interface in list(object, "interfaces") {
                    nmagent(interface, path, out);
                }
            } else if let Some(ipam) = get(object, "IPAM").and_then(Value::as_object) {
                out.source = Some(NicSource::Ipam);
                self::ipam(ipam, path, out);
            } else if get(object, "IPConfigurationStatus").is_some() {
                for item in list(object, "IPConfigurationStatus") {
                    cns(item, path, out);
                }
                out.source = Some(NicSource::Cns);
            } else if get(object, "NCID").is_some() || get(object, "LastStateTransition").is_some() {
                out.source = Some(NicSource::Cns);
                cns(object, path, out);
            }
        }
        _ => {}
    }
}

fn push(
    nic: &mut Nic,
    said: Option<&str>,
    primary: bool,
    in_use: Option<bool>,
    name: Option<&str>,
) -> Result<(), String> {
    let said = said.unwrap_or_default();
    let address = parse_ip(said.split('/').next().unwrap_or_default());
    nic.addresses.push(NicAddress {
        address: address.ok_or_else(|| format!("expected an address, found {said:?}"))?,
        primary,
        in_use,
        name: name.map(str::to_owned),
    });
    Ok(())
}

fn note(out: &mut NicOutput, path: &str, result: Result<(), String>) {
    if let Err(why) = result {
        out.problem(path, 1, why);
    }
}

/// `az network nic show` writes the properties flat, the REST API below `properties`.
fn arm(object: &Map<String, Value>, path: &str, out: &mut NicOutput) {
    let properties = get(object, "properties")
        .and_then(Value::as_object)
        .unwrap_or(object);
    let mut nic = Nic {
        name: text(object, "name").map(str::to_owned),
        mac: text(properties, "macAddress").and_then(canonical_mac),
        primary: flag(properties, "primary").unwrap_or(false),
        accelerated: flag(properties, "enableAcceleratedNetworking"),
        forwarding: flag(properties, "enableIPForwarding"),
        addresses: Vec::new(),
    };
    for configuration in list(properties, "ipConfigurations") {
        let of = get(configuration, "properties")
            .and_then(Value::as_object)
            .unwrap_or(configuration);
        let primary = flag(of, "primary").unwrap_or(false);
        let result = push(
            &mut nic,
            text(of, "privateIPAddress"),
            primary,
            None,
            text(configuration, "name"),
        );
        note(out, path, result);
    }
    out.nics.push(nic);
}

fn imds(object: &Map<String, Value>, path: &str, out: &mut NicOutput) {
    let mut nic = Nic {
        mac: text(object, "macAddress").and_then(canonical_mac),
        primary: out.nics.is_empty(),
        ..Nic::default()
    };
    for family in ["ipv4", "ipv6"] {
        let Some(family) = get(object, family).and_then(Value::as_object) else {
            continue;
        };
        for (index, address) in list(family, "ipAddress").enumerate() {
            let result = push(
                &mut nic,
                text(address, "privateIpAddress"),
                index == 0,
                None,
                None,
            );
            note(out, path, result);
        }
    }
    out.nics.push(nic);
}

/// The tree of NMAgent's XML as JSON, as Azure Stack writes it (`interfaces.json`).
fn nmagent(object: &Map<String, Value>, path: &str, out: &mut NicOutput) {
    let mut nic = Nic {
        mac: text(object, "MacAddress").and_then(canonical_mac),
        primary: flag(object, "IsPrimary").unwrap_or(false),
        ..Nic::default()
    };
    for subnet in list(object, "IPSubnets") {
        for address in list(subnet, "IPAddresses") {
            let primary = flag(address, "IsPrimary").unwrap_or(false);
            let result = push(&mut nic, text(address, "Address"), primary, None, None);
            note(out, path, result);
        }
    }
    out.nics.push(nic);
}

fn cns(object: &Map<String, Value>, path: &str, out: &mut NicOutput) {
    let state = text(object, "state").unwrap_or_default();
    let in_use = match state.to_ascii_lowercase().as_str() {
        "assigned" => Some(true),
        "available" | "pendingrelease" | "pendingprogramming" => Some(false),
        _ => None,
    };
    if out.nics.is_empty() {
        out.nics.push(Nic::default());
    }
    if let Some(nic) = out.nics.last_mut() {
        let result = push(nic, text(object, "IPAddress"), false, in_use, text(object, "ID"));
        note(out, path, result);
    }
}

fn ipam(object: &Map<String, Value>, path: &str, out: &mut NicOutput) {
    let children = |object: &Map<String, Value>, name: &str| {
        let found = get(object, name)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        found.into_iter().filter_map(|(_, value)| match value {
            Value::Object(object) => Some(object),
            _ => None,
        })
    };
    for space in children(object, "AddressSpaces") {
        for pool in children(&space, "Pools") {
            let mut nic = Nic {
                name: text(&pool, "IfName").map(str::to_owned),
                ..Nic::default()
            };
            for address in children(&pool, "Addresses") {
                let in_use = flag(&address, "InUse");
                let result = push(&mut nic, text(&address, "Addr"), false, in_use, None);
                note(out, path, result);
            }
            out.nics.push(nic);
        }
    }
}
