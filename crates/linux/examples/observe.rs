//! Reads the node that it runs on and prints each source with its time: `cargo run -p sexton-linux --example observe`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::Instant;

use sexton_linux::{ApiAccess, Kinds, LinuxNode, LinuxOptions};

fn main() {
    let kernel = std::env::args().any(|argument| argument == "--kernel");
    let kinds = if kernel { Kinds::KERNEL } else { Kinds::ALL };
    let options = LinuxOptions {
        api: if kernel { ApiAccess::Off } else { ApiAccess::Infer },
        ..LinuxOptions::default()
    };
    let mut node = LinuxNode::open(options).unwrap();
    for _ in 0..5 {
        let start = Instant::now();
        let state = node.observe_only(kinds);
        println!("all {:9.3} ms", start.elapsed().as_secs_f64() * 1000.0);
        for report in state.source_reports() {
            println!(
                "  {:9.3} ms {:>8} {:40} {:?}",
                report.took_ms, report.items, report.name, report.completeness
            );
        }
    }
}
