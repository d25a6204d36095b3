//! The place of the socket over which a mount's server reports its state.
//!
//! The socket lies in a directory of the mount's owner that no other user may enter, and is named
//! by the mount's device number. So a process that can connect is the owner or root, and the owner
//! of the directory is the user whose server answers.

use std::fs::{DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Directories for the sockets of the user `owner`, the best first.
fn directories(owner: u32) -> Vec<PathBuf> {
    let mut all = Vec::new();
    if owner == 0 {
        all.push("/run/nextent".into());
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute());
    if let (Some(dir), true) = (own, owner == rustix::process::geteuid().as_raw()) {
        all.push(Path::new(&dir).join("nextent"));
    }
    all.push(format!("/run/user/{owner}/nextent").into());
    all.push(format!("/tmp/nextent-{owner}").into());
    all
}

fn file_name((major, minor): (u64, u64)) -> String {
    format!("{major}:{minor}.status")
}

/// Whether only `owner` may enter the directory. A symbolic link is none.
fn is_private(found: &Metadata, owner: u32) -> bool {
    found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0
}

/// Where the sockets of the mount with this device number may be that `owner` made.
pub(crate) fn candidates(owner: u32, device: (u64, u64)) -> Vec<PathBuf> {
    let private =
        |dir: &PathBuf| std::fs::symlink_metadata(dir).is_ok_and(|found| is_private(&found, owner));
    let name = file_name(device);
    directories(owner).into_iter().filter(private).map(|dir| dir.join(&name)).collect()
}

/// Where this process may make the socket of the mount with this device number.
pub(crate) fn place(device: (u64, u64)) -> std::io::Result<PathBuf> {
    let owner = rustix::process::geteuid().as_raw();
    let mut failure = ErrorKind::NotFound.into();
    for dir in directories(owner) {
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => failure = error,
            _ => match std::fs::symlink_metadata(&dir) {
                Ok(found) if is_private(&found, owner) => return Ok(dir.join(file_name(device))),
                Ok(_) => failure = ErrorKind::PermissionDenied.into(),
                Err(error) => failure = error,
            },
        }
    }
    Err(failure)
}
