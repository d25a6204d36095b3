//! Runs commands until a deadline or a signal.

use crate::stuck;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(20);
/// The lines of a failed command that are reported.
const LINES: usize = 20;

/// The bound on the time of all commands. After SIGINT, SIGTERM or SIGHUP commands fail, so that
/// the caller unmounts everything.
pub(super) struct Steps {
    deadline: Instant,
    signalled: Arc<AtomicBool>,
    log: PathBuf,
}

impl Steps {
    /// Commands may take `limit` together; `log` takes the output of one command.
    pub(super) fn new(limit: Duration, log: &Path) -> Result<Self, String> {
        let signalled = Arc::new(AtomicBool::new(false));
        for signal in [
            rustix::process::Signal::INT,
            rustix::process::Signal::TERM,
            rustix::process::Signal::HUP,
        ] {
            let flag = Arc::clone(&signalled);
            signal_hook::flag::register(signal.as_raw(), flag)
                .map_err(|error| error.to_string())?;
        }
        Ok(Self { deadline: Instant::now() + limit, signalled, log: log.into() })
    }

    /// Runs a command to its end.
    pub(super) fn run(&self, what: &str, mut command: Command) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{what}: {error}");
        let log = File::create(&self.log).map_err(failed)?;
        command.stderr(log.try_clone().map_err(failed)?).stdout(log);
        let mut child = command.spawn().map_err(failed)?;
        let mut status = None;
        let waited = self.wait_until(what, || {
            status = child.try_wait().map_err(failed)?;
            Ok(status.is_some())
        });
        if let Err(text) = waited {
            print!("{}", stuck::report(child.id()));
            stuck::kill(child.id());
            let _ = child.wait();
            return Err(text);
        }
        match status {
            Some(status) if status.success() => Ok(()),
            status => {
                let said = std::fs::read(&self.log).unwrap_or_default();
                let said = String::from_utf8_lossy(&said);
                let lines: Vec<_> = said.lines().collect();
                let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
                let status = status.map_or_else(String::new, |status| status.to_string());
                Err(format!("{what}: {status}:\n{last}"))
            }
        }
    }

    /// Waits until `done`, a signal, or the deadline.
    pub(super) fn wait_until(
        &self,
        what: &str,
        mut done: impl FnMut() -> Result<bool, String>,
    ) -> Result<(), String> {
        while !done()? {
            if self.signalled.load(Ordering::Relaxed) {
                return Err(format!("{what}: stopped by a signal"));
            }
            if Instant::now() >= self.deadline {
                return Err(format!("{what}: out of time"));
            }
            sleep(PERIOD);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_at_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let sh = |script: &str| crate::shell::command("sh", ["-c", script]);
        let steps = Steps::new(Duration::from_secs(3600), &dir.path().join("log")).unwrap();
        assert_eq!(steps.run("true", sh("true")), Ok(()));
        let failed = steps.run("a step", sh("echo first; echo last >&2; exit 3")).unwrap_err();
        assert!(failed.contains("a step: exit status: 3") && failed.ends_with("first\nlast"));
        let steps = Steps::new(Duration::ZERO, &dir.path().join("log")).unwrap();
        let failed = steps.run("a sleep", sh("sleep 600 & sleep 600")).unwrap_err();
        assert_eq!(failed, "a sleep: out of time");
    }
}
