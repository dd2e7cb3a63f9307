//! Counters of Windows in every form: as many values as times, and a verdict on whatever comes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_formats::{
    counters::{self, Thresholds},
    text,
};

fuzz_target!(|bytes: &[u8]| {
    let counters = counters::parse(text::open(bytes), "f");
    for series in &counters.series {
        assert_eq!(series.values.len(), counters.times.len());
        assert!(series.values.iter().flatten().all(|value| value.is_finite()));
    }
    counters::suspect(&counters, &Thresholds::default());
});
