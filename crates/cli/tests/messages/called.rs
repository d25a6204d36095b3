//! Runs the program by the name of another tool.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().expect("no signal ended it");
        Self { code, out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// A directory with links to the program, one for each name.
pub(crate) fn links() -> PathBuf {
    const NAMES: [&str; 14] = [
        "mke2fs",
        "mkfs.ext2",
        "mkfs.ext3",
        "mkfs.ext4",
        "dumpe2fs",
        "resize2fs",
        "tune2fs",
        "e2label",
        "e2mmpstatus",
        "e2fsck",
        "fsck.ext4",
        "fuse2fs",
        "fuse4fs",
        "nextent",
    ];
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("links");
    std::fs::create_dir_all(&dir).expect("cargo made its parent");
    for name in NAMES {
        // Another test may have made it.
        let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_nextent"), dir.join(name));
    }
    dir
}

/// Runs the program as `name`.
pub(crate) fn called<S: AsRef<OsStr>>(name: &str, args: &[S]) -> Said {
    called_with(name, args, &[])
}

/// Runs the program as `name` with more environment variables.
pub(crate) fn called_with<S: AsRef<OsStr>>(name: &str, args: &[S], env: &[(&str, &str)]) -> Said {
    let mut command = Command::new(links().join(name));
    command.env("LC_ALL", "C").envs(env.iter().copied()).args(args).stdin(Stdio::null());
    Said::of(&command.output().expect("it was built"))
}
