//! Runs the tools of e2fsprogs.
//!
//! Each function returns [`Skip`] if its tool is not installed, and panics with the tool's output
//! if the tool fails at something that a test needs.

use crate::Skip;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The result of e2fsck.
#[derive(Clone, Debug)]
pub struct Report {
    /// The exit code: 0 clean, 1 repaired, 4 errors remain, 8 the check failed.
    pub code: i32,
    /// The output.
    pub text: String,
}

impl Report {
    /// Whether e2fsck found no errors.
    pub fn is_clean(&self) -> bool {
        self.code == 0
    }

    /// Panics with e2fsck's output unless it found no errors.
    ///
    /// # Panics
    /// If e2fsck found errors.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "e2fsck found errors (exit {}):\n{}", self.code, self.text);
    }
}

/// Runs a tool with its standard input closed.
///
/// # Errors
/// [`Skip`] if the tool is not installed.
pub fn run<I, S>(tool: &str, args: I) -> Result<Output, Skip>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(tool);
    // A user's PATH may lack the directories of system tools.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    match command.args(args).stdin(Stdio::null()).output() {
        Ok(output) => Ok(output),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Skip::missing(tool)),
        Err(error) => panic!("{tool} could not be started: {error}"),
    }
}

fn text(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{}{err}", String::from_utf8_lossy(&output.stdout))
}

fn fsck(path: &Path, flags: &[&str]) -> Result<Report, Skip> {
    let args = flags.iter().map(OsStr::new).chain([path.as_os_str()]);
    let output = run("e2fsck", args)?;
    Ok(Report { code: output.status.code().unwrap_or(8), text: text(&output) })
}

/// Runs `e2fsck -fn`, which checks everything and changes nothing.
///
/// # Errors
/// [`Skip`] if e2fsck is not installed.
pub fn e2fsck(path: &Path) -> Result<Report, Skip> {
    fsck(path, &["-f", "-n"])
}

/// Lets e2fsck recover as at boot (journal and orphans only), then checks everything with `-fn`.
///
/// A torn superblock has a wrong checksum. Linux and `e2fsck -p` refuse it, also one that Linux has
/// torn, and advise to start e2fsck from a backup. So this does that.
///
/// # Errors
/// [`Skip`] if e2fsck is not installed.
pub fn e2fsck_recover(path: &Path) -> Result<Report, Skip> {
    let mut recovery = fsck(path, &["-p"])?;
    if recovery.code == 8 && recovery.text.contains("Superblock checksum does not match") {
        recovery = fsck(path, &["-f", "-y"])?;
    }
    if recovery.code > 1 {
        return Ok(recovery);
    }
    let mut report = e2fsck(path)?;
    report.text = format!("{}{}", recovery.text, report.text);
    Ok(report)
}

/// Checks that `path` is clean; notes a skip if e2fsck is not installed.
///
/// # Panics
/// If e2fsck finds errors.
#[track_caller]
pub fn assert_clean(path: &Path) {
    match e2fsck(path) {
        Ok(report) => report.assert_clean(),
        Err(skip) => skip.note(),
    }
}

/// Makes a file system in a new sparse file of `size` bytes.
///
/// # Errors
/// [`Skip`] if mke2fs is not installed.
///
/// # Panics
/// If mke2fs fails.
#[track_caller]
pub fn mke2fs(path: &Path, size: u64, args: &[&str]) -> Result<(), Skip> {
    let file = std::fs::File::create(path).expect("the test's directory can be written");
    file.set_len(size).expect("a sparse file takes no space");
    drop(file);
    let fixed = ["-q", "-F"].into_iter().map(OsStr::new);
    let args = fixed.chain(args.iter().map(OsStr::new)).chain([path.as_os_str()]);
    let output = run("mke2fs", args)?;
    assert!(output.status.success(), "mke2fs failed:\n{}", text(&output));
    Ok(())
}

/// Runs debugfs commands and returns their output.
///
/// # Errors
/// [`Skip`] if debugfs is not installed.
pub fn debugfs(path: &Path, writable: bool, commands: &[&str]) -> Result<String, Skip> {
    let script = tempfile::NamedTempFile::new().expect("the temporary directory can be written");
    std::fs::write(script.path(), commands.join("\n") + "\n").expect("as above");
    let mut args = vec![OsStr::new("-f"), script.path().as_os_str()];
    if writable {
        args.push(OsStr::new("-w"));
    }
    args.push(path.as_os_str());
    Ok(text(&run("debugfs", args)?))
}

/// The output of `dumpe2fs` for the whole image, or for its superblock only.
///
/// # Errors
/// [`Skip`] if dumpe2fs is not installed.
///
/// # Panics
/// If dumpe2fs fails.
#[track_caller]
pub fn dumpe2fs(path: &Path, superblock_only: bool) -> Result<String, Skip> {
    let mut args = vec![path.as_os_str()];
    if superblock_only {
        args.insert(0, OsStr::new("-h"));
    }
    let output = run("dumpe2fs", args)?;
    assert!(output.status.success(), "dumpe2fs failed:\n{}", text(&output));
    Ok(text(&output))
}
