//! An empty handle, to measure the journal's share of an operation.

use nextent_ondisk::InodeNo;
use nextent_store::BlockRef;
use nextent_sync::hint;

use crate::error::Result;
use crate::inode::entries;
use crate::ops::Inodes;

/// A block of metadata that only the probe's handles change.
/// 2165!#[allow(missing_debug_implementations)] // only for measurements
#[allow(missing_debug_implementations)] // for measuring
pub struct HandleProbe<'v> {
    volume: &'v Inodes,
    block: BlockRef,
}

impl Inodes {
    /// A probe that changes the first block of the directory `dir`. For uncontended measurements no
    /// other operation should use that directory.
    ///
    /// # Errors
    /// [`Error::NotDir`](crate::Error::NotDir), [`Error::Io`](crate::Error::Io),
    /// [`Error::Corrupt`](crate::Error::Corrupt); [`Error::Unsupported`](crate::Error::Unsupported)
    /// if the directory has inline data.
    pub fn handle_probe(&self, dir: InodeNo) -> Result<HandleProbe<'_>> {
        let inode = self.directory(dir)?;
        let _shared = inode.rw.read();
        Ok(HandleProbe { volume: self, block: entries::first_block(&self.fs, &inode)? })
    }
}

impl HandleProbe<'_> {
    /// Starts and stops a handle of `credits`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), [`Error::Aborted`](crate::Error::Aborted).
    #[inline]
    pub fn pass(&self, credits: u32) -> Result<()> {
        self.volume.fs.check_writable()?;
        Ok(self.volume.fs.store.with_handle(credits, |h| {
            hint::black_box(h);
        })?)
    }

    /// Starts a handle of `credits`, rewrites the block with the same contents, and stops it.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    #[inline]
    pub fn touch(&self, credits: u32) -> Result<()> {
        self.volume.fs.check_writable()?;
        let touch = |bytes: &mut [u8]| bytes[0] = hint::black_box(bytes[0]);
        Ok(self.volume.fs.store.with_handle(credits, |h| h.update(&self.block, touch))?)
    }
}
