//! The places of the sockets over which a mount's server reports its state and takes orders.
//!
//! A socket lies in a directory of the mount's owner that no other user may enter, and is named by
//! the mount's device number and its kind. So a process that can connect is the owner or root, and
//! the owner of the directory is the user whose server answers.

use nextent_fuse::Mounted;
use rustix::net::sockopt::socket_peercred;
use std::fs::{DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
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

/// The kind of the socket that reports the state.
pub(crate) const STATUS: &str = "status";

fn file_name((major, minor): (u64, u64), kind: &str) -> String {
    format!("{major}:{minor}.{kind}")
}

/// Whether only `owner` may enter the directory. A symbolic link is none.
fn is_private(found: &Metadata, owner: u32) -> bool {
    found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0
}

/// Where the sockets of this kind may be that `owner` made for the mount with this device number.
fn candidates(owner: u32, device: (u64, u64), kind: &str) -> Vec<PathBuf> {
    let private =
        |dir: &PathBuf| std::fs::symlink_metadata(dir).is_ok_and(|found| is_private(&found, owner));
    let name = file_name(device, kind);
    directories(owner).into_iter().filter(private).map(|dir| dir.join(&name)).collect()
}

/// Connects to the server of a mount.
pub(crate) fn connect(mounted: &Mounted, kind: &str) -> std::io::Result<UnixStream> {
    let places = candidates(mounted.owner, mounted.device, kind);
    let Some(stream) = places.iter().find_map(|place| UnixStream::connect(place).ok()) else {
        let text = "its server does not report: it has ended, belongs to another user, or found \
            no directory for its socket";
        return Err(std::io::Error::other(text));
    };
    if socket_peercred(&stream)?.uid.as_raw() != mounted.owner {
        return Err(std::io::Error::other("another user's process answers for its server"));
    }
    Ok(stream)
}

/// Where this process may make the socket of this kind of the mount with this device number.
pub(crate) fn place(device: (u64, u64), kind: &str) -> std::io::Result<PathBuf> {
    let owner = rustix::process::geteuid().as_raw();
    let mut failure = ErrorKind::NotFound.into();
    for dir in directories(owner) {
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => failure = error,
            _ => match std::fs::symlink_metadata(&dir) {
                Ok(found) if is_private(&found, owner) => {
                    return Ok(dir.join(file_name(device, kind)));
                }
                Ok(_) => failure = ErrorKind::PermissionDenied.into(),
                Err(error) => failure = error,
            },
        }
    }
    Err(failure)
}
