//! `ipvsadm -Ln` and `-Sn`: what was read is read again after printing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::{ipvs, text};

fuzz_target!(|bytes: &[u8]| {
    let (mut services, _) = ipvs::parse(text::open(bytes), "f");
    // `-Sn` tells no connections.
    let servers = services.iter_mut().flat_map(|service| &mut service.servers);
    servers.for_each(|server| server.connections = None);
    let printed = ipvs::print(&services);
    let (again, problems) = ipvs::parse(printed.as_bytes(), "f");
    assert_eq!((&again, problems.len()), (&services, 0), "{printed}");
});
