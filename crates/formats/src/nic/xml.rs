//! `<Interfaces><Interface MacAddress=".." IsPrimary="true"><IPSubnet Prefix=".."><IPAddress Address=".." IsPrimary="true"/>`,
//! as the wire server answers `?comp=nmagent&type=getinterfaceinfov1` (azure-container-networking, `ipam/azure.go`).

use quick_xml::{
    XmlVersion,
    events::{BytesStart, Event},
    reader::Reader,
};

use super::{Nic, NicAddress, NicOutput, NicSource, canonical_mac};
use crate::addr::parse_ip;

pub(super) fn parse(bytes: &[u8], path: &str, out: &mut NicOutput) {
    let text = String::from_utf8_lossy(bytes);
    let line = |position: u64| {
        let end = usize::try_from(position).unwrap_or(usize::MAX).min(text.len());
        1 + memchr::memchr_iter(b'\n', text.as_bytes().get(..end).unwrap_or_default()).count()
    };
    let mut reader = Reader::from_str(&text);
    let mut depth = 0_usize;
    loop {
        let event = reader.read_event();
        let at = line(reader.buffer_position());
        match event {
            Ok(Event::Start(tag)) => {
                depth += 1;
                element(&tag, path, at, out);
            }
            Ok(Event::Empty(tag)) => element(&tag, path, at, out),
            Ok(Event::End(_)) => depth = depth.saturating_sub(1),
            Ok(Event::Eof) => {
                if out.source.is_none() {
                    out.fail(
                        path,
                        1,
                        "expected XML with <Interfaces>, found other XML".to_owned(),
                    );
                } else if depth > 0 {
                    out.fail(path, at, "the XML is cut off".to_owned());
                }
                return;
            }
            Ok(_) => {}
            Err(err) => {
                let why = format!("not the XML that was expected: {err}");
                return out.fail(path, line(reader.error_position()), why);
            }
        }
    }
}

fn element(tag: &BytesStart<'_>, path: &str, line: usize, out: &mut NicOutput) {
    let attribute = |name: &str| {
        let found = tag
            .attributes()
            .flatten()
            .find(|attribute| attribute.key.as_ref().eq_ignore_ascii_case(name))?;
        let value = found.normalized_value(XmlVersion::Implicit1_0).ok()?;
        Some(value.trim().to_owned())
    };
    let primary = || attribute("IsPrimary").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    match tag.local_name().as_ref() {
        "Interfaces" => out.source = Some(NicSource::NmAgent),
        "Interface" => out.nics.push(Nic {
            mac: attribute("MacAddress").as_deref().and_then(canonical_mac),
            primary: primary(),
            ..Nic::default()
        }),
        "IPAddress" => {
            let said = attribute("Address").unwrap_or_default();
            match (parse_ip(&said), out.nics.last_mut()) {
                (Some(address), Some(nic)) => nic.addresses.push(NicAddress {
                    address,
                    primary: primary(),
                    in_use: None,
                    name: None,
                }),
                (None, _) => out.problem(path, line, format!("expected an address, found {said:?}")),
                (Some(_), None) => out.problem(path, line, "an address outside of an interface".to_owned()),
            }
        }
        _ => {}
    }
}
