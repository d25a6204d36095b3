//! Runs a command within bounds of time and memory.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The most memory of a command, in KiB.
pub(crate) const MEMORY: u64 = 160 << 10;
/// The longest run time of a command: generous, for a debug build on a busy machine.
const TIME: Duration = Duration::from_secs(100);

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    /// Its messages, up to 100,000 bytes.
    pub(crate) said: String,
    /// Its highest memory use, in KiB.
    pub(crate) peak: u64,
}

/// The highest memory use of a running process, in KiB.
fn peak_of(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Runs the command in `dir` and discards its output.
///
/// # Panics
/// If the command runs for too long, uses too much memory, panics or is killed.
#[track_caller]
pub(crate) fn nextent<S: AsRef<OsStr>>(dir: &Path, args: &[S]) -> Ended {
    let shown: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
    let shown = shown.join(" ");
    let said = dir.join("said");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nextent"));
    command.args(args).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(&said).expect("the directory can be written"));
    let begun = Instant::now();
    let mut child = command.spawn().expect("the command was built");
    let mut peak = 0;
    let status = loop {
        peak = peak.max(peak_of(child.id()).unwrap_or(0));
        if let Some(status) = child.try_wait().expect("it is a child of this process") {
            break status;
        }
        if begun.elapsed() > TIME || peak > 8 * MEMORY {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{shown}: still runs after {:?}, with {peak} KiB", begun.elapsed());
        }
        std::thread::sleep(Duration::from_millis(3));
    };
    let mut said = std::fs::read(&said).expect("it was made above");
    said.truncate(100_000);
    let said = String::from_utf8_lossy(&said).into_owned();
    println!("{shown}: {status}, {peak} KiB, {:?}", begun.elapsed());
    let code = status.code().unwrap_or_else(|| panic!("{shown}: {status}: {said}"));
    assert!(code != 101 && !said.contains("panicked"), "{shown}: {said}");
    assert!(peak <= MEMORY, "{shown}: had {peak} KiB");
    Ended { code, said, peak }
}

/// As [`nextent`], for a command that must succeed and print no message.
#[track_caller]
pub(crate) fn works<S: AsRef<OsStr>>(dir: &Path, args: &[S]) -> Ended {
    let ended = nextent(dir, args);
    assert!(ended.code == 0 && ended.said.is_empty(), "exit {}: {}", ended.code, ended.said);
    ended
}
