//! Requests that read and write contents of files.

use super::call::Call;
use super::layout::{
    BmapIn, BmapOut, CopyIn, FallocateIn, FsyncIn, LseekIn, LseekOut, ReadIn, WriteIn, WriteOut,
};
use crate::errno::{Errno, Result};
use crate::server::{Reading, Writing};
use nextent_num::{must_fit, to_usize};

/// The data comes from the kernel's cache.
const FROM_CACHE: u32 = 1;
/// Remove set-id bits, also for a privileged writer.
const KILL_SET_ID: u32 = 1 << 2;
/// `fdatasync(2)`.
const DATA_ONLY: u32 = 1;

fn is_direct(flags: u32) -> bool {
    flags & libc::O_DIRECT.cast_unsigned() != 0
}

impl Call<'_> {
    /// Reads straight into the answer.
    pub(super) fn read(&mut self) -> Result<usize> {
        let arg: ReadIn = self.arg()?;
        let room = self.body.get_mut(..to_usize(arg.size)).ok_or(Errno(libc::EINVAL))?;
        let how = Reading {
            direct: is_direct(arg.flags),
            keep_access_time: arg.flags & libc::O_NOATIME.cast_unsigned() != 0,
        };
        self.server.read(self.node, arg.offset, room, how)
    }

    pub(super) fn write(&mut self) -> Result<usize> {
        let arg: WriteIn = self.arg()?;
        let data = self.rest()?.get(..to_usize(arg.size)).ok_or(Errno(libc::EINVAL))?;
        let how = Writing {
            strip: arg.write_flags & KILL_SET_ID != 0,
            direct: is_direct(arg.flags),
            cached: arg.write_flags & FROM_CACHE != 0,
        };
        let done = self.server.write(self.who, self.node, (arg.offset, data), how)?;
        self.put(&WriteOut { size: must_fit(done), padding: 0 })
    }

    pub(super) fn fsync(&mut self) -> Result<usize> {
        let arg: FsyncIn = self.arg()?;
        self.server.fsync(self.node, arg.flags & DATA_ONLY != 0).map(|()| 0)
    }

    pub(super) fn fallocate(&mut self) -> Result<usize> {
        let arg: FallocateIn = self.arg()?;
        let range = (arg.offset, arg.length);
        self.server.fallocate(self.who, self.node, range, arg.mode.cast_signed()).map(|()| 0)
    }

    pub(super) fn lseek(&mut self) -> Result<usize> {
        let arg: LseekIn = self.arg()?;
        let at = self.server.seek(self.node, arg.offset.cast_signed(), arg.whence.cast_signed())?;
        self.put(&LseekOut { offset: at.cast_unsigned() })
    }

    pub(super) fn bmap(&mut self) -> Result<usize> {
        let arg: BmapIn = self.arg()?;
        let block = self.server.device_block(self.node, arg.block, arg.block_size)?;
        self.put(&BmapOut { block })
    }

    pub(super) fn copy_file_range(&mut self) -> Result<usize> {
        let arg: CopyIn = self.arg()?;
        let (from, to) = ((self.node, arg.offset), (arg.node_out, arg.offset_out));
        let copied = self.server.copy(self.who, from, to, arg.len)?;
        // The server copies less than 4 GiB at once.
        self.put(&WriteOut { size: must_fit(copied), padding: 0 })
    }
}
