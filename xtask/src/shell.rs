//! Runs commands in the root of the repository.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::stuck;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the repository's root").into()
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command in the root of the repository, with English messages.
pub(crate) fn command<I, S>(tool: &str, args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(tool);
    let path = std::env::var("PATH").unwrap_or_default();
    // A user's PATH may lack the directories of e2fsprogs.
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C.UTF-8");
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// The cargo that runs this task.
pub(crate) fn cargo<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), args)
}

/// Whether a tool can be started.
pub(crate) fn has(tool: &str) -> bool {
    let mut command = command(tool, ["-V"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// The result of a command whose output was printed and kept.
pub(crate) struct Finished {
    pub(crate) success: bool,
    /// Whether it was killed because it was stuck.
    pub(crate) stuck: bool,
    pub(crate) stdout: String,
}

/// Tests that print no line for so long are stuck. No test takes nearly as long.
const SILENCE: Duration = Duration::from_secs(720);

/// Runs a command and prints its output line by line.
pub(crate) fn shown(command: Command) -> Finished {
    // Never stuck.
    passed_on(command, Duration::MAX)
}

/// The same for tests. Stuck tests are killed, after printing what they wait for.
pub(crate) fn watched(command: Command) -> Finished {
    passed_on(command, SILENCE)
}

fn passed_on(mut command: Command, silence: Duration) -> Finished {
    let mut finished = Finished { success: false, stuck: false, stdout: String::new() };
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("{} could not be started: {error}", command.get_program().display());
            return finished;
        }
    };
    let stdout = child.stdout.take().expect("piped above");
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
        lines.try_for_each(|line| sender.send(line))
    });
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => {
                let text = String::from_utf8_lossy(&line) + "\n";
                let _ = std::io::stdout().write_all(text.as_bytes());
                finished.stdout.push_str(&text);
            }
            Err(RecvTimeoutError::Timeout) if !finished.stuck => {
                println!("stuck: nothing for {} s. Killed:", silence.as_secs());
                print!("{}", stuck::report(child.id()));
                stuck::kill(child.id());
                finished.stuck = true;
            }
            // Killed, but another process still has its output open.
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => {
                let _ = reader.join();
                break;
            }
        }
    }
    finished.success = child.wait().is_ok_and(|status| status.success()) && !finished.stuck;
    finished
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn sh(script: &str) -> Command {
        command("sh", ["-c", script])
    }

    #[test]
    fn output_is_kept_and_the_status_returned() {
        let finished = shown(sh("echo a; printf b"));
        assert!(finished.success && !finished.stuck && finished.stdout == "a\nb\n");
        assert!(!watched(sh("exit 3")).success);
    }

    #[test]
    fn a_stuck_command_is_killed_with_its_descendants() {
        let begun = Instant::now();
        let finished = passed_on(sh("echo a; sleep 300 & sleep 300"), Duration::from_secs(1));
        assert!(!finished.success && finished.stuck && finished.stdout == "a\n");
        assert!(begun.elapsed() < Duration::from_secs(100));
    }
}
