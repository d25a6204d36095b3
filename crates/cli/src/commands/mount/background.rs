//! Mounts in the background.
//!
//! 1. The caller starts this program again, with `-f` and in its own session.
//! 2. The server mounts and writes a word to the caller's pipe; before that, its errors and exit
//!    code become the caller's.
//! 3. The caller exits and the server goes on.

use super::FAILED;
use crate::failure::{Context, Failure, Result};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};

/// What a server writes once it has mounted.
const MOUNTED: &[u8] = b"mounted\n";

/// Starts the server; returns once it has mounted or failed.
pub(super) fn run() -> Result<ExitCode> {
    let failed = |error: std::io::Error| Failure::new(error.to_string()).with_code(FAILED);
    let program = std::env::current_exe().map_err(failed)?;
    let mut server = Command::new(program)
        .arg("mount")
        // First, since the others may have only operands after "--".
        .args(["-f", "--notify-when-mounted"])
        .args(crate::names::arguments().into_iter().skip(2))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut said = Vec::new();
    if let Some(mut pipe) = server.stdout.take() {
        pipe.read_to_end(&mut said).map_err(failed)?;
    }
    if said == MOUNTED {
        return Ok(ExitCode::SUCCESS);
    }
    let status = server.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
    if code.is_none() {
        return Err(Failure::new(format!("the server ended: {status}")).with_code(FAILED));
    }
    // The server has printed why.
    Ok(ExitCode::from(code.unwrap_or(FAILED)))
}

/// Reports the mount to the caller, and leaves the caller's terminal, directory and streams. From
/// here on messages go to the system's log.
pub(super) fn leave() -> Result<()> {
    let leaving = || "leaving the terminal".to_owned();
    // Fails only for the leader of a session, which has its own session already.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").context(leaving)?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").context(leaving)?;
    let mut stdout = std::io::stdout();
    stdout.write_all(MOUNTED).and_then(|()| stdout.flush()).context(leaving)?;
    crate::log::use_system_log();
    rustix::stdio::dup2_stderr(&null).context(leaving)?;
    // Last, since the caller exits when this closes.
    rustix::stdio::dup2_stdout(&null).context(leaving)?;
    Ok(())
}
