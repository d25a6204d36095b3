//! The places of the sockets over which a mount's server reports its state and takes orders.
//!
//! A socket lies in a directory of the mount's owner that no other user may enter, and is named by
//! the mount's device number and its kind. So a process that can connect is the owner or root, and
//! the owner of the directory is the user whose server answers.

use nextent_fuse::Mounted;
use nextent_sync::{Duration, now, sleep};
use rustix::fs::FlockOperation;
use rustix::net::sockopt::socket_peercred;
use std::fs::{DirBuilder, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
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

/// How long to wait for a server that has just mounted and is about to make its sockets.
const START: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(10);

/// Connects to the server of a mount.
pub(crate) fn connect(mounted: &Mounted, kind: &str) -> std::io::Result<UnixStream> {
    let find = || {
        let places = candidates(mounted.owner, mounted.device, kind);
        places.iter().find_map(|place| UnixStream::connect(place).ok())
    };
    let begun = now();
    let mut found = find();
    while found.is_none() && begun.elapsed() < START {
        sleep(PERIOD);
        found = find();
    }
    let Some(stream) = found else {
        let text = "its server does not report: it has ended, belongs to another user, or found \
            no directory for its socket";
        return Err(std::io::Error::other(text));
    };
    if socket_peercred(&stream)?.uid.as_raw() != mounted.owner {
        return Err(std::io::Error::other("another user's process answers for its server"));
    }
    Ok(stream)
}

/// The file of a bound socket, which is removed when this is dropped.
pub(crate) struct SocketFile {
    place: PathBuf,
    /// The device and the number of the file, which no other file gets while the socket is bound.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Ok(_lock) = lock_directory(&self.place) else { return };
        // The kernel reuses the number of a mount that has ended, also before its server ends.
        if identity(&self.place).is_ok_and(|found| found == self.identity) {
            let _ = std::fs::remove_file(&self.place);
        }
    }
}

/// Makes the socket of this kind of the mount with this device number. Replaces the socket of an
/// earlier mount with that number, whose server was killed or is ending.
pub(crate) fn bind(device: (u64, u64), kind: &str) -> std::io::Result<(SocketFile, UnixListener)> {
    let place = place(device, kind)?;
    let _lock = lock_directory(&place)?;
    let _ = std::fs::remove_file(&place);
    let listener = UnixListener::bind(&place)?;
    let identity = identity(&place)?;
    Ok((SocketFile { place, identity }, listener))
}

/// Locks the directory of `place` until the returned file is closed, so that no other server makes
/// or removes a socket there.
fn lock_directory(place: &Path) -> std::io::Result<File> {
    let dir = File::open(place.parent().unwrap_or(Path::new("/")))?;
    rustix::fs::flock(&dir, FlockOperation::LockExclusive)?;
    Ok(dir)
}

fn identity(place: &Path) -> std::io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(place)?;
    Ok((found.dev(), found.ino()))
}

/// Where this process may make the socket of this kind of the mount with this device number.
fn place(device: (u64, u64), kind: &str) -> std::io::Result<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a mount is reused before its server ends, so two servers use one name.
    #[test]
    fn an_ending_server_keeps_the_socket_of_a_later_mount() {
        let device = (u64::from(std::process::id()), 1 << 40);
        let (first, _listener) = bind(device, "test").unwrap();
        let place = first.place.clone();
        let (second, listener) = bind(device, "test").unwrap();
        drop(first);
        UnixStream::connect(&place).unwrap();
        drop(listener);
        drop(second);
        assert!(!place.exists());
    }
}
