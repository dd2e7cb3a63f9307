//! What the reader of the demo sees: steps with the time, commands with their real output.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anstream::adapter::strip_str;
use serde::Serialize;

use super::{DemoError, DemoOptions, Outcome};
use crate::cmd::{self, CommandError};
use crate::error::LabError;
use crate::node::Place;
use crate::talk::Probe;

/// How long one command may take. A repair sleeps for some seconds between its looks at the node, and this machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command that ended.
pub(super) struct Ran {
    /// Its exit code.
    pub(super) code: i32,
    /// What it printed.
    pub(super) stdout: String,
}

pub(super) struct Show<'a> {
    out: &'a mut dyn Write,
    start: Instant,
    sexton: PathBuf,
    keep: Option<PathBuf>,
    colour: bool,
}

impl<'a> Show<'a> {
    pub(super) fn new(out: &'a mut dyn Write, options: &DemoOptions) -> Self {
        Self {
            out,
            start: Instant::now(),
            sexton: options.sexton.clone(),
            keep: options.keep.clone(),
            colour: options.colour,
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// One step of the story, with the seconds since the beginning.
    pub(super) fn step(&mut self, words: &str) -> Result<(), DemoError> {
        let seconds = self.start.elapsed().as_secs_f64();
        writeln!(self.out, "[{seconds:4.1} s] {words}")?;
        Ok(self.out.flush()?)
    }

    pub(super) fn note(&mut self, words: &str) -> Result<(), DemoError> {
        writeln!(self.out, "         {words}")?;
        Ok(self.out.flush()?)
    }

    /// How many were reached, and those that were not.
    pub(super) fn probes(&mut self, probes: &[Probe]) -> Result<(), DemoError> {
        let reached = probes.iter().filter(|probe| probe.answered).count();
        self.note(&format!(
            "{reached} of {} lead to the Pod that should answer",
            probes.len()
        ))?;
        for probe in probes.iter().filter(|probe| !probe.answered) {
            self.note(&format!("  {}", answer(probe)))?;
        }
        Ok(())
    }

    /// Runs `sexton` in the node, after showing the command line. `codes` are the exit codes that are no error.
    pub(super) fn sexton(
        &mut self,
        place: &Place,
        file: &str,
        words: &[OsString],
        codes: &[i32],
    ) -> Result<Ran, DemoError> {
        writeln!(self.out)?;
        self.step(&format!("$ sexton {}", cmd::shown(words)))?;
        let ran = self.run(place, words, codes)?;
        self.save(file, &strip_str(&ran.stdout).to_string())?;
        Ok(ran)
    }

    /// Runs it without showing anything, and gives what it printed.
    pub(super) fn quietly(
        &mut self,
        place: &Place,
        file: &str,
        words: &[OsString],
        codes: &[i32],
    ) -> Result<String, DemoError> {
        let ran = self.run(place, words, codes)?;
        self.save(file, &ran.stdout)?;
        Ok(ran.stdout)
    }

    fn run(&self, place: &Place, words: &[OsString], codes: &[i32]) -> Result<Ran, DemoError> {
        // It writes into a pipe here, whatever the reader's terminal can do.
        let colour = if self.colour {
            "CLICOLOR_FORCE=1"
        } else {
            "NO_COLOR=1"
        };
        let argv = [OsString::from("env"), colour.into(), self.sexton.clone().into()];
        let argv = place.enter(argv.iter().chain(words));
        match cmd::run_within(PATIENCE, &argv, b"", &place.environment()) {
            Ok(output) => Ok(Ran {
                code: 0,
                stdout: output.stdout,
            }),
            Err(CommandError::Failed {
                status,
                stdout,
                stderr,
                ..
            }) => match status.code() {
                Some(code) if codes.contains(&code) => Ok(Ran { code, stdout }),
                code => Err(DemoError::Sexton {
                    command: format!("sexton {}", cmd::shown(words)),
                    code: code.unwrap_or(-1),
                    stderr: strip_str(stderr.trim()).to_string(),
                }),
            },
            Err(other) => Err(LabError::from(other).into()),
        }
    }

    /// All that a command printed.
    pub(super) fn whole(&mut self, ran: &Ran) -> Result<(), DemoError> {
        self.lines(ran.stdout.lines().map(str::to_owned).collect(), ran.code)
    }

    /// What matters of it: headlines, one line a step or outcome. Details are indented by four or stand below a step.
    pub(super) fn digest(&mut self, ran: &Ran) -> Result<(), DemoError> {
        let lines = digest(&ran.stdout);
        let all = ran.stdout.lines().count();
        let shown = lines.len();
        self.lines(lines, ran.code)?;
        if shown < all {
            self.note(&format!("({shown} of {all} lines)"))?;
        }
        Ok(())
    }

    fn lines(&mut self, lines: Vec<String>, code: i32) -> Result<(), DemoError> {
        for line in lines {
            let indent = if line.is_empty() { "" } else { "  " };
            writeln!(self.out, "{indent}{line}")?;
        }
        writeln!(self.out, "  exit code {code}")?;
        Ok(())
    }

    /// Keeps a file, where that was asked for.
    pub(super) fn save(&self, name: &str, text: &str) -> Result<(), DemoError> {
        if let Some(dir) = &self.keep {
            std::fs::create_dir_all(dir).map_err(LabError::file("make", dir))?;
            crate::node::write(&dir.join(name), text)?;
        }
        Ok(())
    }

    pub(super) fn save_json(&self, name: &'static str, value: &impl Serialize) -> Result<(), DemoError> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|source| DemoError::Document { what: name, source })?;
        self.save(name, &text)
    }

    /// Keeps the files of a directory.
    pub(super) fn save_dir(&self, name: &str, dir: &Path) -> Result<(), DemoError> {
        let entries = std::fs::read_dir(dir).map_err(LabError::file("list", dir))?;
        for path in entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
        {
            let text = std::fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            self.save(&format!("{name}-{file}"), &text)?;
        }
        Ok(())
    }

    /// A table of two columns.
    pub(super) fn table(&mut self, rows: &[(&str, String)]) -> Result<(), DemoError> {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
        for (name, value) in rows {
            table.add_row([*name, value.as_str()]);
        }
        writeln!(self.out, "\n{table}")?;
        Ok(self.out.flush()?)
    }

    /// The summary, and where the files are.
    pub(super) fn end(&mut self, outcome: &Outcome) -> Result<(), DemoError> {
        write!(self.out, "\n{outcome}")?;
        if let Some(dir) = &self.keep {
            writeln!(
                self.out,
                "Every report, plan, journal and snapshot in full: {}",
                dir.display()
            )?;
        }
        Ok(self.out.flush()?)
    }
}

/// `8080/tcp at 172.20.0.11 (edge/proxy-1): connection refused`.
pub(super) fn answer(probe: &Probe) -> String {
    let target = &probe.target;
    format!(
        "{}:{}/{} of {}: {}",
        target.ip,
        target.port,
        target.protocol.lower(),
        target.pod,
        probe.instead.as_deref().unwrap_or("answered by the right Pod")
    )
}

/// The first line that begins so, without colours.
pub(super) fn find_line(ran: &Ran, start: &str) -> Option<String> {
    let plain = strip_str(&ran.stdout).to_string();
    let mut lines = plain.lines();
    lines.find_map(|line| line.strip_prefix(start)).map(str::to_owned)
}

fn digest(text: &str) -> Vec<String> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    let mut in_step = false;
    for line in text.lines() {
        let plain = strip_str(line).to_string();
        if plain.starts_with("step ") {
            in_step = true;
        } else if !plain.starts_with(' ') {
            in_step = false;
        } else if in_step || plain.starts_with("    ") {
            continue;
        }
        if plain.is_empty() {
            continue;
        }
        match lines.last_mut() {
            Some((last, count)) if *last == line => *count += 1,
            _ => lines.push((line.to_owned(), 1)),
        }
    }
    lines
        .into_iter()
        .map(|(line, count)| match count {
            1 => line,
            _ => format!("{line} ({count} times)"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::digest;

    #[test]
    fn a_digest_keeps_headlines_and_counts_what_repeats() {
        let text = "Repaired 2 of 2 findings.\n  done  a\n    -A X\n  done  a\n    -A Y\n\n\u{1b}[1mstep 1\u{1b}[0m b\n  why: c\nend\n";
        let shown = digest(text);
        assert_eq!(
            shown,
            [
                "Repaired 2 of 2 findings.",
                "  done  a (2 times)",
                "\u{1b}[1mstep 1\u{1b}[0m b",
                "end"
            ]
        );
    }
}
