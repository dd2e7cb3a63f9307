//! `crictl pods`, `crictl ps` and `crictl inspectp`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::crictl;

fuzz_target!(|bytes: &[u8]| {
    let (mut listed, _) = crictl::read_pods("f", bytes);
    let _ = crictl::read_containers("f", bytes);
    let (inspected, _) = crictl::read_inspectp("f", bytes);
    crictl::merge(&mut listed, inspected);
});
