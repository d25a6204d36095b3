//! Behind: this program once more in front, in a session of its own, which says when it is
//! mounted; until then its errors and exit code are ours.

use super::FAILED;
use crate::failure::{Context, Failure, Result};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};

/// The word of a mounted server.
const MOUNTED: &[u8] = b"mounted\n";

/// Starts the server; back when it is mounted or has failed.
pub(super) fn run() -> Result<ExitCode> {
    let failed = |error: std::io::Error| Failure::new(error.to_string()).with_code(FAILED);
    let program = std::env::current_exe().map_err(failed)?;
    let mut server = Command::new(program)
        .arg("mount")
        .args(crate::names::arguments().into_iter().skip(2))
        .args(["-f", "--tell-when-mounted"])
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
    // It has said why.
    Ok(ExitCode::from(code.unwrap_or(FAILED)))
}

/// Says that the mount is there and lets go of terminal, directory and streams of the caller.
pub(super) fn leave() -> Result<()> {
    let leaving = || "leaving the terminal".to_owned();
    // Fails only for the leader of a session, who has one of its own then.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").context(leaving)?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").context(leaving)?;
    let mut stdout = std::io::stdout();
    stdout.write_all(MOUNTED).and_then(|()| stdout.flush()).context(leaving)?;
    rustix::stdio::dup2_stderr(&null).context(leaving)?;
    // Last: the caller goes on when this closes.
    rustix::stdio::dup2_stdout(&null).context(leaving)?;
    Ok(())
}
