//! The calls on the host's files that differ between systems.
//!
//! Linux can open a file as a mere place (`O_PATH`) and change it by that descriptor. Elsewhere the
//! file itself is opened, and special files other than symbolic links cannot be created.

use rustix::fs::{FileType, Gid, OFlags, Timestamps, Uid};
use std::os::fd::BorrowedFd;

#[cfg(target_os = "linux")]
pub(super) use linux::*;
#[cfg(not(target_os = "linux"))]
pub(super) use other::*;

/// The flags that open a place without access to its contents.
#[cfg(target_os = "linux")]
pub(super) const PLACE: OFlags = OFlags::PATH;
/// The flags that open a place; a fifo must not block and a symbolic link must not be followed.
#[cfg(target_os = "macos")]
pub(super) const PLACE: OFlags = OFlags::NONBLOCK.union(OFlags::from_bits_retain(O_SYMLINK));
/// The flags that open a place; a fifo must not block.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(super) const PLACE: OFlags = OFlags::NONBLOCK;

#[cfg(target_os = "macos")]
const O_SYMLINK: u32 = libc::O_SYMLINK.cast_unsigned();

/// Changes owner and group of an opened place.
pub(super) fn set_place_owner(fd: BorrowedFd<'_>, uid: Uid, gid: Gid) -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    return rustix::fs::chownat(fd, "", Some(uid), Some(gid), rustix::fs::AtFlags::EMPTY_PATH);
    #[cfg(not(target_os = "linux"))]
    return rustix::fs::fchown(fd, Some(uid), Some(gid));
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use rustix::fs::{AtFlags, Mode, RawDir, mknodat, utimensat};
    use std::cell::Cell;
    use std::ffi::OsStr;
    use std::mem::MaybeUninit;

    /// Bytes of entries that one call returns.
    const ENTRIES: usize = 32 << 10;

    /// Calls `each` with the name and type of each entry of `dir`.
    pub(in super::super) fn read_directory(
        dir: BorrowedFd<'_>,
        mut each: impl FnMut(&[u8], FileType),
    ) -> rustix::io::Result<()> {
        // Not from the allocator, which tidies its free lists whenever so much is freed.
        let mut space = [MaybeUninit::uninit(); ENTRIES];
        let mut entries = RawDir::new(dir, &mut space);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            each(entry.file_name().to_bytes(), entry.file_type());
        }
        Ok(())
    }

    /// Creates a device, fifo or socket.
    pub(in super::super) fn create_special(
        dir: BorrowedFd<'_>,
        name: &OsStr,
        kind: FileType,
        mode: Mode,
        (major, minor): (u32, u32),
    ) -> rustix::io::Result<()> {
        mknodat(dir, name, kind, mode, rustix::fs::makedev(major, minor))
    }

    /// Sets the times of an opened place.
    pub(in super::super) fn set_place_times(
        fd: BorrowedFd<'_>,
        times: &Timestamps,
    ) -> rustix::io::Result<()> {
        utimensat(fd, "", times, AtFlags::EMPTY_PATH)
    }

    /// Gives the calling thread a descriptor table of its own: with a shared one, opening and
    /// closing hundreds of thousands of files makes threads wait for each other. Open files stay
    /// open in both tables; the thread must close what it opens. If the host refuses, the table
    /// stays shared.
    pub(in super::super) fn own_descriptors() {
        let _ = nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES);
    }

    thread_local! {
        static OWN_DIRECTORY: Cell<bool> = const { Cell::new(false) };
    }

    /// Gives the calling thread a working directory of its own, for [`work_in`]. The thread must
    /// not use relative paths afterwards.
    pub(in super::super) fn own_directory() {
        OWN_DIRECTORY.set(nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).is_ok());
    }

    /// Makes `dir` the working directory of the calling thread, if that has one of its own. Calls
    /// that take a path and no directory then need only a name.
    pub(in super::super) fn work_in(dir: BorrowedFd<'_>) -> bool {
        OWN_DIRECTORY.get() && rustix::process::fchdir(dir).is_ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use super::*;
    use rustix::fs::{Dir, Mode, futimens};
    use rustix::io::Errno;
    use std::ffi::OsStr;

    pub(in super::super) fn read_directory(
        dir: BorrowedFd<'_>,
        mut each: impl FnMut(&[u8], FileType),
    ) -> rustix::io::Result<()> {
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            each(entry.file_name().to_bytes(), entry.file_type());
        }
        Ok(())
    }

    pub(in super::super) fn create_special(
        _: BorrowedFd<'_>,
        _: &OsStr,
        _: FileType,
        _: Mode,
        _: (u32, u32),
    ) -> rustix::io::Result<()> {
        Err(Errno::OPNOTSUPP)
    }

    pub(in super::super) fn set_place_times(
        fd: BorrowedFd<'_>,
        times: &Timestamps,
    ) -> rustix::io::Result<()> {
        futimens(fd, times)
    }

    pub(in super::super) fn own_descriptors() {}

    pub(in super::super) fn own_directory() {}

    pub(in super::super) fn work_in(_: BorrowedFd<'_>) -> bool {
        false
    }
}
