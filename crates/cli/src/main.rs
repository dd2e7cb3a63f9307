//! `sexton`: sees, proves and repairs the network state that dead Pods leave on a Kubernetes node.
#![forbid(unsafe_code)]
// A program has no callers: what is public here is public among its own modules.
#![allow(unreachable_pub)]

mod args;
mod commands;
mod journal;
mod output;
mod recording;
mod source;

use std::process::ExitCode;

use clap::Parser as _;
use owo_colors::OwoColorize as _;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Audit(args) => commands::audit::run(args),
        Command::Plan(args) => commands::plan::run(args),
        Command::Repair(args) => commands::repair::run(args),
        Command::Undo(args) => commands::undo::run(args),
        Command::Collect(args) => commands::collect::run(args),
        Command::Trace(args) => commands::trace::run(args),
        Command::Loop { act } => commands::loops::run(act),
        Command::Explain(args) => commands::explain::run(args),
        Command::Completions { shell } => commands::completions(*shell),
        Command::Man { dir } => commands::man(dir),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        // A reader that went away (`| head`) has what it wanted.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let direct = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let by_json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        direct.or(by_json) == Some(std::io::ErrorKind::BrokenPipe)
    })
}

/// The whole chain, one cause a line.
fn complain(error: &anyhow::Error) {
    use std::io::Write as _;
    let mut err = anstream::stderr();
    let _ = writeln!(err, "{} {error}", "error:".red().bold());
    for cause in error.chain().skip(1) {
        let _ = writeln!(err, "  because {cause}");
    }
}
