//! The model's files as plain values, and changes of a file's bytes.

use super::Errno;
use crate::tree::Kind;
use std::collections::BTreeMap;

/// The number of a file of the model.
pub(super) type Id = usize;

/// The contents of a node.
#[derive(Clone, Debug)]
pub(super) enum Body {
    File(Vec<u8>),
    Dir { parent: Id, names: BTreeMap<String, Id> },
    Symlink(String),
    Special(Kind, (u32, u32)),
}

/// One file.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) body: Body,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u64,
    pub(super) mtime: (i64, u32),
    pub(super) xattrs: BTreeMap<String, Vec<u8>>,
}

impl Node {
    pub(super) fn new(body: Body, mode: u32) -> Self {
        let links = if matches!(body, Body::Dir { .. }) { 2 } else { 1 };
        let xattrs = BTreeMap::new();
        Self { body, mode: mode & 0o7777, uid: 0, gid: 0, links, mtime: (0, 0), xattrs }
    }

    pub(super) fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Dir { .. } => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir { .. })
    }

    /// The names of a directory.
    pub(super) fn names(&self) -> Result<&BTreeMap<String, Id>, Errno> {
        match &self.body {
            Body::Dir { names, .. } => Ok(names),
            _ => Err(libc::ENOTDIR),
        }
    }

    /// The names of a directory, for changes.
    pub(super) fn names_mut(&mut self) -> Result<&mut BTreeMap<String, Id>, Errno> {
        match &mut self.body {
            Body::Dir { names, .. } => Ok(names),
            _ => Err(libc::ENOTDIR),
        }
    }

    /// A regular file's bytes.
    pub(super) fn bytes(&self) -> Result<&Vec<u8>, Errno> {
        match &self.body {
            Body::File(bytes) => Ok(bytes),
            Body::Dir { .. } => Err(libc::EISDIR),
            Body::Symlink(_) => Err(libc::ELOOP),
            Body::Special(..) => Err(libc::EINVAL),
        }
    }

    /// A regular file's bytes, for changes.
    pub(super) fn bytes_mut(&mut self) -> Result<&mut Vec<u8>, Errno> {
        self.bytes()?;
        match &mut self.body {
            Body::File(bytes) => Ok(bytes),
            _ => Err(libc::EINVAL),
        }
    }
}

/// Writes at `offset`; zeros fill a gap after the old end.
pub(super) fn write(bytes: &mut Vec<u8>, offset: u64, new: &[u8]) {
    if new.is_empty() {
        return;
    }
    let end = offset as usize + new.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset as usize..end].copy_from_slice(new);
}

/// Zeros the part of a range that is within the file.
pub(super) fn clear(bytes: &mut [u8], offset: u64, len: u64) {
    let end = bytes.len().min((offset + len) as usize);
    if (offset as usize) < end {
        bytes[offset as usize..end].fill(0);
    }
}

/// Grows the file to `end` if it is shorter.
pub(super) fn grow(bytes: &mut Vec<u8>, end: u64) {
    if bytes.len() < end as usize {
        bytes.resize(end as usize, 0);
    }
}

/// Removes a range of whole blocks.
pub(super) fn collapse(
    bytes: &mut Vec<u8>,
    block: u64,
    offset: u64,
    len: u64,
) -> Result<(), Errno> {
    if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
        return Err(libc::EINVAL);
    }
    if offset + len >= bytes.len() as u64 {
        return Err(libc::EINVAL);
    }
    bytes.drain(offset as usize..(offset + len) as usize);
    Ok(())
}

/// Inserts whole blocks of zeros.
pub(super) fn insert(bytes: &mut Vec<u8>, block: u64, offset: u64, len: u64) -> Result<(), Errno> {
    if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
        return Err(libc::EINVAL);
    }
    if offset >= bytes.len() as u64 {
        return Err(libc::EINVAL);
    }
    let at = offset as usize;
    bytes.splice(at..at, std::iter::repeat_n(0, len as usize));
    Ok(())
}
