//! Steps of `cargo xtask test` that run beside its other steps, in a process of their own.
//!
//! A process, because everything that it and its children print must be kept together: it goes to a
//! file, and is printed when the process has ended. Its results come back in another file.

use crate::shell::command;
use crate::stuck;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Child;
use tempfile::NamedTempFile;

/// The running process. Dropping it kills the process.
pub(crate) struct Beside {
    child: Child,
    output: File,
    report: NamedTempFile,
}

impl Beside {
    /// Starts `program` with `args`, the path of the file for its results, and `skips`.
    pub(crate) fn start(program: &Path, args: &[&str], skips: &Path) -> Result<Self, String> {
        let named = |error: std::io::Error| format!("{}: {error}", program.display());
        let report = NamedTempFile::new().map_err(named)?;
        let output = tempfile::tempfile().map_err(named)?;
        let mut command = command(&program.display().to_string(), args);
        command.arg(report.path()).arg(skips);
        command.stdout(output.try_clone().map_err(named)?);
        command.stderr(output.try_clone().map_err(named)?);
        Ok(Self { child: command.spawn().map_err(named)?, output, report })
    }

    /// Waits for the process and prints its output; its results.
    ///
    /// # Errors
    ///
    /// The process has left no results.
    pub(crate) fn finish(mut self) -> Result<serde_json::Value, String> {
        let status = self.child.wait().map_err(|error| error.to_string())?;
        let mut output = Vec::new();
        let read = self.output.seek(SeekFrom::Start(0));
        let _ = read.and_then(|_| self.output.read_to_end(&mut output));
        print!("{}", String::from_utf8_lossy(&output));
        let report = std::fs::read(self.report.path()).map_err(|error| error.to_string())?;
        serde_json::from_slice(&report).map_err(|error| format!("{status}: no results: {error}"))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            stuck::kill(self.child.id());
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first argument after the script is its `$0`.
    fn sh(script: &str) -> Result<serde_json::Value, String> {
        Beside::start("sh".as_ref(), &["-c", script], "skips".as_ref())?.finish()
    }

    #[test]
    fn results_come_back() {
        let found = sh("echo noise; echo \"[1, \\\"$1\\\"]\" > \"$0\"");
        assert_eq!(found, Ok(serde_json::json!([1, "skips"])));
    }

    #[test]
    fn a_process_without_results_is_an_error() {
        let found = sh("exit 3").expect_err("it has no results");
        assert!(found.starts_with("exit status: 3: no results"), "{found}");
    }

    #[test]
    fn a_dropped_process_is_killed() {
        let started = Beside::start("sh".as_ref(), &["-c", "sleep 300"], "skips".as_ref());
        let process = started.expect("sh can be started").child.id();
        assert!(!Path::new(&format!("/proc/{process}")).exists());
    }
}
