//! Runs a tool with a deadline and takes what it prints.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Where tools are looked for beside `PATH`: services often run without the administrator's directories.
const USUAL: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];

/// Why a tool did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("cannot run {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It did not end in time and was killed.
    #[error("{} did not end within {} ms", program.display(), deadline.as_millis())]
    Deadline {
        /// The program.
        program: PathBuf,
        /// How long was waited.
        deadline: Duration,
    },
    /// It ended badly.
    #[error("{} failed ({status}): {message}", program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it printed as errors, in one line.
        message: String,
    },
}

/// What a tool printed.
#[derive(Debug)]
pub(crate) struct Output {
    /// The process that it was.
    pub(crate) pid: u32,
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) stdout: Vec<u8>,
    /// Its errors, in one line.
    pub(crate) stderr: String,
}

/// Finds a program by its name.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(USUAL.iter().map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Runs a program to its end, with `input` on its standard input.
///
/// # Errors
///
/// [`CommandError::Start`] and [`CommandError::Deadline`]. How it ended is the caller's to judge.
pub(crate) fn run(
    program: &Path,
    arguments: &[&str],
    input: &[u8],
    deadline: Duration,
) -> Result<Output, CommandError> {
    let start = |source| CommandError::Start {
        program: program.to_path_buf(),
        source,
    };
    let late = || CommandError::Deadline {
        program: program.to_path_buf(),
        deadline,
    };
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(if input.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(start)?;
    let pid = child.id();
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let (sender, printed) = mpsc::channel();
    let (error_sender, complained) = mpsc::channel();
    thread::scope(|scope| {
        if let Some(mut stdin) = stdin {
            // A tool that has seen enough closes its end; how it ends tells whether that was well.
            scope.spawn(move || {
                let _ = std::io::Write::write_all(&mut stdin, input);
            });
        }
        scope.spawn(move || drop(sender.send(drain(stdout))));
        scope.spawn(move || drop(error_sender.send(drain(stderr))));
        let left = |started: Instant| deadline.saturating_sub(started.elapsed());
        let gathered = printed
            .recv_timeout(left(started))
            .and_then(|out| Ok((out, complained.recv_timeout(left(started))?)));
        let Ok((stdout, stderr)) = gathered else {
            // With whatever it has started: the reading threads end when nobody holds their pipes any more.
            if let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
            return Err(late());
        };
        // Its output is closed, so it ends now; a tool that closes its output and stays would be odd.
        let status = child.wait().map_err(start)?;
        let stderr = String::from_utf8_lossy(&stderr);
        Ok(Output {
            pid,
            status,
            stdout,
            stderr: stderr.lines().map(str::trim).collect::<Vec<_>>().join("; "),
        })
    })
}

fn drain(pipe: Option<impl Read>) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(mut pipe) = pipe {
        // What came before a broken pipe is still something.
        let _ = pipe.read_to_end(&mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_errors_and_status_are_taken() {
        let shell = find("sh").unwrap();
        let script = "cat; echo bad >&2; echo worse >&2; exit 3";
        let output = run(&shell, &["-c", script], b"in", Duration::from_secs(5)).unwrap();
        assert_eq!(output.stdout, b"in");
        assert_eq!(output.stderr, "bad; worse");
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn a_tool_that_does_not_end_is_killed() {
        let shell = find("sh").unwrap();
        // The second one leaves a child behind that holds its output.
        for script in ["exec sleep 60", "sleep 60 & sleep 60"] {
            let start = Instant::now();
            let error = run(&shell, &["-c", script], b"", Duration::from_millis(50)).unwrap_err();
            assert!(matches!(error, CommandError::Deadline { .. }), "{error}");
            assert!(start.elapsed() < Duration::from_secs(30), "{script}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert!(find("no-such-program-here").is_none());
        let error = run(Path::new("/no/such/program"), &[], b"", Duration::from_secs(1)).unwrap_err();
        assert!(matches!(error, CommandError::Start { .. }), "{error}");
    }
}
