//! Saying that a test cannot run on this machine.
//!
//! A test that cannot run must not look as if it had passed. It says so on standard error and, where `script/test` set
//! `SEXTON_SKIP_FILE`, in that file, whose lines `script/test` counts and lists at its end.

use std::fmt::Display;
use std::io::Write as _;

/// Records that the calling test cannot run here: `return sexton_lab::skip!("not root")`.
///
/// Takes what [`format!`] takes. The test's name is that of the function around the call.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        fn here() {}
        $crate::skip::record(std::any::type_name_of_val(&here), format_args!($($reason)+))
    }};
}

/// Writes the line `SKIP <test>: <reason>`; `here` is the type name of a function inside the test.
///
/// # Panics
///
/// If the file cannot be written: a skip that nobody sees would pass for a test that ran.
#[allow(clippy::panic, clippy::print_stderr)] // Test support: a panic here fails the test, which is the point.
pub fn record(here: &str, reason: impl Display) {
    let line = line(here, reason);
    eprint!("{line}");
    if let Some(file) = std::env::var_os("SEXTON_SKIP_FILE") {
        // One write in append mode: tests run side by side, in processes of their own.
        let written = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&file)
            .and_then(|mut f| f.write_all(line.as_bytes()));
        if let Err(error) = written {
            panic!("cannot write {}: {error}", file.display());
        }
    }
}

fn line(here: &str, reason: impl Display) -> String {
    let test = here.trim_end_matches("::here").replace("::{{closure}}", "");
    let reason = reason
        .to_string()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    format!("SKIP {test}: {reason}\n")
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn names_the_test_and_stays_on_one_line() {
        let name = "live_api::pages::{{closure}}::here";
        assert_eq!(
            line(name, "no server:\n  not built"),
            "SKIP live_api::pages: no server: not built\n"
        );
    }
}
