//! The calls that the model, the host and a volume implement.

use super::Errno;

/// How a rename treats an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameFlags {
    /// Replaces it.
    Replace,
    /// Fails with `EEXIST`.
    NoReplace,
    /// Exchanges the two.
    Exchange,
}

/// Whether an attribute must exist before it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrFlags {
    /// Either way.
    Any,
    /// It must not: `EEXIST`.
    Create,
    /// It must: `ENODATA`.
    Replace,
}

/// A file system by path, as root with a umask of 0.
///
/// Paths are absolute, `/a/b`, without dots. Symbolic links are followed except at the end: there a
/// call for a file's data fails with `ELOOP`, and for a device or fifo with `EINVAL`. All errors
/// are errno numbers.
#[allow(missing_docs)]
pub trait PosixFs {
    fn create(&self, path: &str, mode: u32) -> Result<(), Errno>;
    fn mkdir(&self, path: &str, mode: u32) -> Result<(), Errno>;
    /// `mode` includes the type: fifo, socket, character or block device.
    fn mknod(&self, path: &str, mode: u32, rdev: (u32, u32)) -> Result<(), Errno>;
    fn symlink(&self, target: &str, path: &str) -> Result<(), Errno>;
    fn link(&self, from: &str, to: &str) -> Result<(), Errno>;
    fn unlink(&self, path: &str) -> Result<(), Errno>;
    fn rmdir(&self, path: &str) -> Result<(), Errno>;
    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<(), Errno>;
    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<(), Errno>;
    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, Errno>;
    fn truncate(&self, path: &str, size: u64) -> Result<(), Errno>;
    /// Allocates; the file grows unless `keep_size`.
    fn allocate(&self, path: &str, offset: u64, len: u64, keep_size: bool) -> Result<(), Errno>;
    fn punch(&self, path: &str, offset: u64, len: u64) -> Result<(), Errno>;
    fn zero(&self, path: &str, offset: u64, len: u64, keep_size: bool) -> Result<(), Errno>;
    fn collapse(&self, path: &str, offset: u64, len: u64) -> Result<(), Errno>;
    fn insert(&self, path: &str, offset: u64, len: u64) -> Result<(), Errno>;
    fn chmod(&self, path: &str, mode: u32) -> Result<(), Errno>;
    fn chown(&self, path: &str, uid: u32, gid: u32) -> Result<(), Errno>;
    /// Sets the modification time, seconds and nanoseconds.
    fn utimes(&self, path: &str, mtime: (i64, u32)) -> Result<(), Errno>;
    fn set_xattr(&self, path: &str, name: &str, value: &[u8], how: XattrFlags)
    -> Result<(), Errno>;
    fn remove_xattr(&self, path: &str, name: &str) -> Result<(), Errno>;
    fn get_xattr(&self, path: &str, name: &str) -> Result<Vec<u8>, Errno>;
    fn fsync(&self, path: &str) -> Result<(), Errno>;
}
