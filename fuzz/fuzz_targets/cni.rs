//! host-local leases, cached CNI results and configuration.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::cni;

fuzz_target!(|bytes: &[u8]| {
    let _ = cni::read_lease("cni/networks/podnet/10.88.0.2", bytes, None);
    let _ = cni::read_cache("cni/results/podnet-abc-eth0", bytes, None);
    let _ = cni::read_config("cni/net.d/10-podnet.conflist", bytes);
});
