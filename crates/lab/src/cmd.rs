//! Running the real tools.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long one tool may run before it is ended.
const TOOL_DEADLINE: Duration = Duration::from_secs(30);

/// A tool that did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The program could not be started.
    #[error("cannot run `{command}`")]
    Start {
        /// The command line.
        command: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The program ran and failed.
    #[error("`{command}` failed ({status}): {}", stderr.trim())]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to standard output.
        stdout: String,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// The program did not end in time and was killed.
    #[error("`{command}` did not end within {} s", deadline.as_secs())]
    Deadline {
        /// The command line.
        command: String,
        /// How long was waited.
        deadline: Duration,
    },
}

/// What a program printed. It succeeded, else there is a [`CommandError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Standard output; bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A command line as a person would type it, for messages.
pub(crate) fn shown(argv: &[OsString]) -> String {
    let words: Vec<String> = argv
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join(" ")
}

/// Words of a command line.
pub(crate) fn words<I, S>(argv: I) -> Vec<OsString>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    argv.into_iter().map(|word| word.as_ref().to_owned()).collect()
}

/// Runs a program to its end, giving it `stdin`.
///
/// # Errors
///
/// [`CommandError`] when it cannot be started, fails, or takes longer than 30 s.
pub(crate) fn run(argv: &[OsString], stdin: &[u8]) -> Result<Output, CommandError> {
    run_with(argv, stdin, &[])
}

/// [`run`] with further environment variables.
pub(crate) fn run_with(
    argv: &[OsString],
    stdin: &[u8],
    env: &[(&str, OsString)],
) -> Result<Output, CommandError> {
    run_within(TOOL_DEADLINE, argv, stdin, env)
}

/// [`run_with`] and a deadline of its own.
pub(crate) fn run_within(
    deadline: Duration,
    argv: &[OsString],
    stdin: &[u8],
    env: &[(&str, OsString)],
) -> Result<Output, CommandError> {
    let start = |source| CommandError::Start {
        command: shown(argv),
        source,
    };
    let (program, args) = argv
        .split_first()
        .ok_or_else(|| start(std::io::ErrorKind::InvalidInput.into()))?;
    let mut child = Command::new(program)
        .args(args)
        .envs(env.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    // Each pipe gets a thread, so that a full pipe never stops the tool.
    let input = child.stdin.take();
    let stdin = stdin.to_vec();
    let writer = std::thread::spawn(move || {
        if let Some(mut input) = input {
            // A tool that ends without reading everything tells so by its status.
            let _ = input.write_all(&stdin);
        }
    });
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = wait(&mut child, deadline).map_err(start)?;
    let Some(status) = status else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(CommandError::Deadline {
            command: shown(argv),
            deadline,
        });
    };
    let _ = writer.join();
    let stdout = stdout.join().unwrap_or_default();
    let stderr = stderr.join().unwrap_or_default();
    if status.success() {
        Ok(Output { stdout, stderr })
    } else {
        Err(CommandError::Failed {
            command: shown(argv),
            status,
            stdout,
            stderr,
        })
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a child; none when it still runs after `deadline`.
pub(crate) fn wait(child: &mut Child, deadline: Duration) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_input_and_environment_reach_both_sides() {
        let argv = words(["sh", "-c", "cat; echo $LAB_WORD >&2"]);
        let out = run_with(&argv, b"in", &[("LAB_WORD", "err".into())]).unwrap();
        assert_eq!(
            out,
            Output {
                stdout: "in".into(),
                stderr: "err\n".into()
            }
        );
    }

    #[test]
    fn a_failure_shows_command_and_stderr() {
        let failed = run(&words(["sh", "-c", "echo no such table >&2; exit 3"]), b"")
            .unwrap_err()
            .to_string();
        assert!(failed.contains("sh -c echo no such table"), "{failed}");
        assert!(
            failed.contains("exit status: 3") && failed.ends_with("no such table"),
            "{failed}"
        );
    }

    #[test]
    fn a_missing_tool_is_named() {
        let missing = run(&words(["no-such-tool-of-the-lab"]), b"").unwrap_err();
        assert!(matches!(missing, CommandError::Start { .. }), "{missing:?}");
        assert!(
            missing.to_string().contains("no-such-tool-of-the-lab"),
            "{missing}"
        );
    }
}
