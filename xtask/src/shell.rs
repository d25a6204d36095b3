//! Running commands, in the repository's root.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the repository's root").into()
}

/// A command in the repository's root, quiet in its language.
pub(crate) fn command<I, S>(tool: &str, args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(tool);
    let path = std::env::var("PATH").unwrap_or_default();
    // e2fsprogs live where a user's PATH may not look.
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C.UTF-8");
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// Cargo, the one that runs this task.
pub(crate) fn cargo<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), args)
}

/// Whether a tool answers at all.
pub(crate) fn has(tool: &str) -> bool {
    let mut command = command(tool, ["-V"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// What came of a command whose output was shown and kept.
pub(crate) struct Finished {
    pub(crate) success: bool,
    pub(crate) stdout: String,
}

/// Runs a command to its end, passing its output on line by line.
pub(crate) fn shown(mut command: Command) -> Finished {
    let mut finished = Finished { success: false, stdout: String::new() };
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("{} could not be started: {error}", command.get_program().display());
            return finished;
        }
    };
    let stdout = child.stdout.take().expect("piped above");
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        let _ = std::io::stdout().write_all(text.as_bytes());
        finished.stdout.push_str(&text);
        line.clear();
    }
    finished.success = child.wait().is_ok_and(|status| status.success());
    finished
}
