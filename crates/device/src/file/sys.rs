//! The system calls of a file device.
//!
//! Calls that only Linux has return "not done" on other systems; the caller then uses plain writes.

#![allow(unsafe_code)]

use super::device_number;
use nextent_num::to_u64;
#[cfg(target_os = "linux")]
use nextent_num::to_usize;
use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Buffers in one `pwritev`; every POSIX system of today accepts that many.
const MAX_BUFFERS: usize = 1024;

/// The length of a regular file or block device, in bytes.
pub(super) fn length(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// Writes all of `bufs` at `at`, in as many calls as the system needs.
pub(super) fn write_all_vectored(file: &File, at: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
    let mut at = at;
    let mut next = 0;
    while next < bufs.len() {
        let batch = &bufs[next..bufs.len().min(next + MAX_BUFFERS)];
        let mut written = match rustix::io::pwritev(file, batch, at) {
            Ok(written) => written,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        at += to_u64(written);
        let before = next;
        while next < bufs.len() && written >= bufs[next].len() {
            written -= bufs[next].len();
            next += 1;
        }
        if written > 0 {
            let rest = &bufs[next][written..];
            file.write_all_at(rest, at)?;
            at += to_u64(rest.len());
            next += 1;
        }
        if next == before {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// Takes the lock against other writers; `false` if another user holds it.
pub(super) fn try_lock(file: &File, exclusive: bool) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Releases the locks of [`try_lock`] and [`try_lock_range`].
pub(super) fn unlock(file: &File) -> io::Result<()> {
    unlock_ranges(file);
    Ok(rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock)?)
}

/// Makes the descriptor of `old` refer to the open file of `new`.
#[cfg(target_os = "linux")]
pub(super) fn replace(old: &File, new: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: both descriptors are open. The number of `old` stays open, as its owner expects.
    let rc = unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn replace(_: &File, _: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The result of an attempt to lock bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeLock {
    Held,
    Refused,
    /// The system or the file system has no such locks, or the file is not open for that access.
    Impossible,
}

/// Whether the file is on NFS, where the kernel makes `flock` a lock of all bytes.
pub(super) fn is_on_nfs(file: &File) -> bool {
    #[cfg(target_os = "linux")]
    return rustix::fs::fstatfs(file)
        .is_ok_and(|found| found.f_type == rustix::fs::NFS_SUPER_MAGIC);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        false
    }
}

/// Whether a block device is marked read only. Some can be opened for writing nevertheless.
pub(super) fn refuses_writes(device: u64) -> bool {
    let (major, minor) = (device_number::major(device), device_number::minor(device));
    let said = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    said.is_ok_and(|said| said.trim() == "1")
}

/// The open flag of direct transfers.
pub(super) fn direct_flag(direct: bool) -> i32 {
    #[cfg(target_os = "linux")]
    if direct {
        return libc::O_DIRECT;
    }
    let _ = direct;
    0
}

/// Whether the file is open with `O_DIRECT`.
pub(super) fn is_direct(file: &File) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::fs::fcntl_getfl(file)?.contains(rustix::fs::OFlags::DIRECT));
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        Ok(false)
    }
}

/// Whether the file is a block device.
pub(super) fn is_block_device(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt;
    Ok(file.metadata()?.file_type().is_block_device())
}

/// The bytes of a logical sector of a block device.
pub(super) fn sector_size(file: &File) -> Option<u64> {
    #[cfg(target_os = "linux")]
    return rustix::fs::ioctl_blksszget(file).ok().map(u64::from);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

/// The alignment, in bytes, of direct transfers, as the system reports it. The default of 4096
/// suits every file system.
pub(super) fn direct_unit(file: &File, block_device: bool) -> usize {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags, ioctl_blksszget, statx};
        if block_device && let Ok(sector) = ioctl_blksszget(file) {
            return to_usize(sector).clamp(512, 64 * 1024).next_power_of_two();
        }
        if let Ok(found) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            && found.stx_mask & StatxFlags::DIOALIGN.bits() != 0
        {
            let unit = to_usize(found.stx_dio_offset_align.max(found.stx_dio_mem_align));
            if unit > 0 {
                return unit.clamp(512, 64 * 1024).next_power_of_two();
            }
        }
    }
    let _ = (file, block_device);
    4096
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use nextent_num::must_fit;
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    use rustix::ioctl::{NoArg, Opcode, Setter, ioctl, opcode};
    use std::os::fd::AsRawFd;

    // <linux/fs.h>: _IO(0x12, 119) and _IO(0x12, 127).
    const BLKDISCARD: libc::Ioctl = 0x1277;
    const BLKZEROOUT: libc::Ioctl = 0x127f;

    /// Calls an ioctl with a byte range as its argument; `false` if it is unsupported.
    fn range_ioctl(file: &File, request: libc::Ioctl, at: u64, len: u64) -> io::Result<bool> {
        let range = [at, len];
        // SAFETY: the descriptor is open during the call, and both requests read exactly two u64
        // from the pointer, which is valid that long.
        let rc = unsafe { libc::ioctl(file.as_raw_fd(), request, range.as_ptr()) };
        if rc == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL) => Ok(false),
            _ => Err(error),
        }
    }

    fn try_fallocate(file: &File, how: FallocateFlags, at: u64, len: u64) -> io::Result<bool> {
        loop {
            match fallocate(file, how, at, len) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn punch(file: &File, at: u64, len: u64) -> io::Result<bool> {
        try_fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len)
    }

    /// Unmaps the range; `false` if the host cannot.
    pub(in super::super) fn unmap(
        file: &File,
        block_device: bool,
        at: u64,
        len: u64,
    ) -> io::Result<bool> {
        if block_device { range_ioctl(file, BLKDISCARD, at, len) } else { punch(file, at, len) }
    }

    /// Makes the range zeros without writing them; `false` if the host cannot.
    ///
    /// It first tries to punch a hole, which keeps the image sparse. Zeroing a range would allocate
    /// it.
    pub(in super::super) fn zero(
        file: &File,
        block_device: bool,
        at: u64,
        len: u64,
    ) -> io::Result<bool> {
        if block_device {
            return range_ioctl(file, BLKZEROOUT, at, len);
        }
        let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        Ok(punch(file, at, len)? || try_fallocate(file, keep, at, len)?)
    }

    /// A lock of bytes, for `fcntl`.
    fn record_lock(kind: libc::c_int, bytes: &Range<u64>) -> Option<libc::flock> {
        // SAFETY: all fields are integers, for which zero is valid.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = must_fit(kind);
        lock.l_start = bytes.start.try_into().ok()?;
        lock.l_len = bytes.end.checked_sub(bytes.start)?.try_into().ok()?;
        Some(lock)
    }

    /// Locks bytes for this open file, which may not be open elsewhere under the same descriptor.
    pub(in super::super) fn try_lock_range(
        file: &File,
        exclusive: bool,
        bytes: &Range<u64>,
    ) -> io::Result<RangeLock> {
        let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
        let Some(lock) = record_lock(kind, bytes) else { return Ok(RangeLock::Impossible) };
        loop {
            // SAFETY: the descriptor is open during the call, which reads one `flock`.
            let rc = unsafe {
                libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, std::ptr::from_ref(&lock))
            };
            if rc == 0 {
                return Ok(RangeLock::Held);
            }
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::EAGAIN | libc::EACCES) => Ok(RangeLock::Refused),
                Some(libc::EINVAL | libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS)
                | Some(libc::EBADF) => Ok(RangeLock::Impossible),
                _ => Err(error),
            };
        }
    }

    /// Releases all locks of bytes of this open file.
    pub(in super::super) fn unlock_ranges(file: &File) {
        let Some(lock) = record_lock(libc::F_UNLCK, &(0..0)) else { return };
        // It fails where there are no such locks.
        // SAFETY: the descriptor is open during the call, which reads one `flock`.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, std::ptr::from_ref(&lock)) };
    }

    /// Whether another process has record locks (of `fcntl`, of either kind) on these bytes.
    pub(in super::super) fn has_record_locks(file: &File, bytes: &Range<u64>) -> bool {
        let Some(mut lock) = record_lock(libc::F_WRLCK, bytes) else { return false };
        // SAFETY: the descriptor is open during the call, which reads and writes one `flock`.
        let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        // Some file systems have no record locks.
        rc == 0 && i32::from(lock.l_type) != libc::F_UNLCK
    }

    /// The backing file of a loop device: device, inode and, if it is a block device, that device's
    /// number.
    pub(in super::super) fn loop_backing(device: &File) -> Option<(u64, u64, u64)> {
        // <linux/loop.h>: the ioctl fills a `loop_info64` of 232 bytes.
        const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
        let mut status = [0u64; 29];
        // SAFETY: the descriptor is open during the call, which writes at most these bytes.
        let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, status.as_mut_ptr()) };
        (rc == 0).then_some((status[0], status[1], status[2]))
    }

    /// The block size, in bytes, of a block device's cache.
    pub(in super::super) fn cache_block_size(device: &File) -> Option<u32> {
        // <linux/fs.h>: _IOR(0x12, 112, size_t), although it writes an int.
        const BLKBSZGET: libc::Ioctl = 0x8008_1270;
        let mut size = [0u32; 2];
        // SAFETY: the descriptor is open during the call, which writes at most a size_t.
        let rc = unsafe { libc::ioctl(device.as_raw_fd(), BLKBSZGET, size.as_mut_ptr()) };
        (rc == 0 && size[0] > 0).then_some(size[0])
    }

    /// Grows the ext file system with the open directory `dir` to `blocks`.
    pub(in super::super) fn grow_mounted(dir: &File, blocks: u64) -> io::Result<()> {
        // EXT4_IOC_RESIZE_FS.
        const RESIZE_FS: Opcode = opcode::write::<u64>(b'f', 16);
        // SAFETY: the kernel reads a u64 from the argument, and changes no memory of the process.
        unsafe { ioctl(dir, Setter::<RESIZE_FS, u64>::new(blocks)) }?;
        Ok(())
    }

    /// Writes the kernel's cache of a block device, and empties it.
    pub(in super::super) fn drop_cache(device: &File) -> io::Result<()> {
        // <linux/fs.h>: _IO(0x12, 97).
        const BLKFLSBUF: Opcode = opcode::none(0x12, 97);
        // SAFETY: the call has no argument, and changes no memory of the process.
        unsafe { ioctl(device, NoArg::<BLKFLSBUF>::new()) }?;
        Ok(())
    }

    /// The first data range in `at..end`.
    pub(in super::super) fn next_data(
        file: &File,
        at: u64,
        end: u64,
    ) -> io::Result<Option<Range<u64>>> {
        use rustix::fs::{SeekFrom, seek};
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL) => at,
            Err(error) => return Err(error.into()),
        };
        if start >= end {
            return Ok(None);
        }
        let stop = match seek(file, SeekFrom::Hole(start)) {
            Ok(stop) => stop.min(end),
            Err(_) => end,
        };
        // The file may have changed between the two calls.
        Ok(Some(start..stop.max(start + 1)))
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::{
    cache_block_size, drop_cache, grow_mounted, has_record_locks, loop_backing, next_data,
    try_lock_range, unlock_ranges, unmap, zero,
};

#[cfg(not(target_os = "linux"))]
mod other {
    use super::*;

    pub(in super::super) fn unmap(_: &File, _: bool, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    pub(in super::super) fn zero(_: &File, _: bool, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    pub(in super::super) fn try_lock_range(
        _: &File,
        _: bool,
        _: &Range<u64>,
    ) -> io::Result<RangeLock> {
        Ok(RangeLock::Impossible)
    }

    pub(in super::super) fn unlock_ranges(_: &File) {}

    pub(in super::super) fn has_record_locks(_: &File, _: &Range<u64>) -> bool {
        false
    }

    pub(in super::super) fn loop_backing(_: &File) -> Option<(u64, u64, u64)> {
        None
    }

    pub(in super::super) fn cache_block_size(_: &File) -> Option<u32> {
        None
    }

    pub(in super::super) fn grow_mounted(_: &File, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn drop_cache(_: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn next_data(
        _: &File,
        at: u64,
        end: u64,
    ) -> io::Result<Option<Range<u64>>> {
        Ok((at < end).then_some(at..end))
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use other::{
    cache_block_size, drop_cache, grow_mounted, has_record_locks, loop_backing, next_data,
    try_lock_range, unlock_ranges, unmap, zero,
};
