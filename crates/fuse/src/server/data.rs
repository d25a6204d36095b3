//! Contents of files.

use nextent::inodes::{FallocateMode, SeekKind, Wait};
use nextent_num::{to_u64, to_usize};

use super::{Caller, Server};
use crate::errno::{Errno, Result, of_node, of_sync};
use crate::node::inode;

/// Bytes that a copy within the volume moves at once.
const COPY: usize = 1 << 20;
/// The most bytes that one request copies, so that its caller can be interrupted.
const MOST: u64 = 64 << 20;

/// The options of a read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// The file was opened with `O_DIRECT`.
    pub(crate) direct: bool,
    /// The file was opened with `O_NOATIME`.
    pub(crate) keep_access_time: bool,
}

/// The options of a write.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Writing {
    /// Remove set-id bits, also for a privileged writer.
    pub(crate) strip: bool,
    /// The file was opened with `O_DIRECT`, so several writers may share it.
    pub(crate) direct: bool,
    /// The data comes from the kernel's cache: write(2) has returned.
    pub(crate) cached: bool,
}

impl Server {
    /// Whether a transfer of a file opened with `O_DIRECT` is aligned.
    fn is_direct(&self, asked: bool, offset: u64, len: usize) -> bool {
        let unit = self.volume.direct_unit();
        asked && offset.is_multiple_of(unit) && to_u64(len).is_multiple_of(unit)
    }

    /// Fills `buf`, or less at the end of the file.
    pub(crate) fn read(
        &self,
        node: u64,
        offset: u64,
        buf: &mut [u8],
        how: Reading,
    ) -> Result<usize> {
        let ino = inode(node)?;
        let mut done = 0;
        while done < buf.len() {
            let (at, room) = (offset + to_u64(done), &mut buf[done..]);
            let read = match self.is_direct(how.direct, at, room.len()) {
                true => self.volume.read_direct(ino, at, room, Wait::Allowed),
                false => self.volume.read(ino, at, room),
            };
            match read.map_err(of_node)? {
                0 => break,
                n => done += n,
            }
        }
        if !how.keep_access_time {
            self.touch(ino);
        }
        Ok(done)
    }

    /// Writes all of `data`, or as much as there is space for. Data from the kernel's cache is
    /// written as a whole or refused, since the kernel takes a part for the whole.
    pub(crate) fn write(
        &self,
        who: Caller,
        node: u64,
        (offset, data): (u64, &[u8]),
        how: Writing,
    ) -> Result<usize> {
        let (ino, mut cred) = (inode(node)?, self.plain(who));
        cred.privileged &= !how.strip;
        let mut done = 0;
        while done < data.len() {
            let (at, rest) = (offset + to_u64(done), &data[done..]);
            let written = match self.is_direct(how.direct, at, rest.len()) {
                true => self.volume.write_direct(&cred, ino, at, rest, Wait::Allowed),
                false => self.volume.write(&cred, ino, at, rest),
            };
            match written {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if done == 0 || how.cached => return Err(of_node(error)),
                Err(_) => break,
            }
        }
        if how.cached && done < data.len() {
            return Err(Errno(libc::ENOSPC));
        }
        Ok(done)
    }

    /// Makes a file durable; with `data`, only as much as reading it needs.
    pub(crate) fn fsync(&self, node: u64, data: bool) -> Result<()> {
        let ino = inode(node)?;
        let done = if data { self.volume.fdatasync(ino) } else { self.volume.fsync(ino) };
        done.map_err(of_sync)
    }

    /// `fallocate(2)`, with its mode bits.
    pub(crate) fn fallocate(
        &self,
        who: Caller,
        node: u64,
        (offset, len): (u64, u64),
        bits: i32,
    ) -> Result<()> {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEP: i32 = ZERO | KEEP;
        let mode = match bits {
            0 => FallocateMode::Allocate,
            KEEP => FallocateMode::KeepSize,
            PUNCH => FallocateMode::PunchHole,
            ZERO => FallocateMode::ZeroRange { keep_size: false },
            ZERO_KEEP => FallocateMode::ZeroRange { keep_size: true },
            libc::FALLOC_FL_COLLAPSE_RANGE => FallocateMode::CollapseRange,
            libc::FALLOC_FL_INSERT_RANGE => FallocateMode::InsertRange,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        self.volume.fallocate(&self.plain(who), inode(node)?, mode, offset, len).map_err(of_node)
    }

    /// Finds data or a hole from an offset on. Of a file that may be mapped writable, the kernel's
    /// cache may have data where the volume has a hole, so the kernel writes its pages first. If it
    /// does not do so in time, everything is data.
    pub(crate) fn seek(&self, node: u64, offset: i64, whence: i32) -> Result<i64> {
        let what = match whence {
            libc::SEEK_DATA => SeekKind::Data,
            libc::SEEK_HOLE => SeekKind::Hole,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno(libc::ENXIO))?;
        if self.mappable.has(node) && !self.write_out(node) {
            return self.all_data(node, offset, what);
        }
        match self.volume.seek(inode(node)?, offset, what) {
            Ok(at) => i64::try_from(at).map_err(|_| Errno(libc::EOVERFLOW)),
            Err(nextent::Error::NoData) => Err(Errno(libc::ENXIO)),
            Err(error) => Err(of_node(error)),
        }
    }

    /// [`seek`](Self::seek) in a file without holes.
    fn all_data(&self, node: u64, offset: u64, what: SeekKind) -> Result<i64> {
        let size = self.getattr(node)?.size;
        if offset >= size {
            return Err(Errno(libc::ENXIO));
        }
        let at = if what == SeekKind::Data { offset } else { size };
        i64::try_from(at).map_err(|_| Errno(libc::EOVERFLOW))
    }

    /// Copies within the volume, between files or disjoint ranges of one. Returns the bytes copied,
    /// fewer at the end of the source.
    pub(crate) fn copy(
        &self,
        who: Caller,
        (from, mut at): (u64, u64),
        (to, mut out): (u64, u64),
        len: u64,
    ) -> Result<u64> {
        let len = len.min(MOST);
        let mut buf = vec![0; COPY.min(to_usize(len))];
        let mut copied = 0;
        while copied < len {
            let want = buf.len().min(to_usize(len - copied));
            let got = self.read(from, at, &mut buf[..want], Reading::default())?;
            if got == 0 {
                break;
            }
            let put = match self.write(who, to, (out, &buf[..got]), Writing::default()) {
                Ok(put) => put,
                Err(error) if copied == 0 => return Err(error),
                Err(_) => break,
            };
            copied += to_u64(put);
            at += to_u64(put);
            out += to_u64(put);
            if put < got {
                break;
            }
        }
        // The source's access time. The kernel knows that the target changed.
        self.forget_attributes(from);
        Ok(copied)
    }
}
