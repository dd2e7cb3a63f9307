//! Lists of the API, as JSON and as YAML.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::{
    kube::{self, Kind},
    text,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let hint = [None, Some(Kind::Pod), Some(Kind::Service), Some(Kind::EndpointSlice), Some(Kind::Node)];
    let hint = hint[usize::from(*first) % hint.len()];
    let mut items = 0;
    let outcome = kube::read_json(text::open(rest), hint, &mut |_| items += 1);
    assert_eq!(outcome.kinds.iter().map(|(_, count)| count).sum::<u64>(), items);
    kube::read_yaml(text::open(rest), hint, &mut |_| ());
});
