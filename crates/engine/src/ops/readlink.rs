//! `readlink(2)`.

use nextent_num::to_usize;
use nextent_ondisk::inode::{BLOCK_AREA, flags};
use nextent_ondisk::{Corrupt, FileBlock, InodeNo, Structure, fscrypt};

use crate::FileType;
use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::map::{self, Mapping};
use crate::ops::Inodes;

impl Inodes {
    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other kinds of files.
    pub fn readlink(&self, ino: InodeNo) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let _guard = inode.rw.read();
        super::still_in_use(&inode)?;
        if inode.file_type() != Some(FileType::Symlink) {
            return Err(Error::Invalid);
        }
        self.shown_target(&inode).map_err(|error| self.fs.report_error(error))
    }

    /// The target as Linux shows it without the key, if it is encrypted.
    fn shown_target(&self, inode: &Inode) -> Result<Vec<u8>> {
        let target = self.target(inode)?;
        if !inode.snapshot().has_any(flags::ENCRYPT) {
            return Ok(target);
        }
        let shown = fscrypt::no_key_target(&target).map_err(|error| error.at_inode(inode.ino))?;
        Ok(shown.into_bytes())
    }

    fn target(&self, inode: &Inode) -> Result<Vec<u8>> {
        let (size, area, mapped) =
            inode.with(|state| (state.disk.size, state.disk.block, state.has_map()));
        let bad = || Corrupt::field(Structure::Symlink, "i_size", size).at_inode(inode.ino);
        if !mapped {
            let mut target = vec![0; usize::try_from(size).map_err(|_| bad())?.min(4096)];
            if target.len() <= BLOCK_AREA {
                let len = target.len();
                target.copy_from_slice(&area[..len]);
            } else {
                crate::inode::attributes::read_inline(&self.fs, inode, 0, &mut target)?;
            }
            return Ok(target);
        }
        if size == 0 || size > self.fs.block_size() {
            return Err(bad().into());
        }
        let cx = self.fs.map_cx(inode, Privilege::User);
        match map::lookup(&cx, &inode.map.read(), FileBlock(0), 1)? {
            Mapping::Written { start, .. } => {
                let block = self.fs.store.read::<Error>(start, |_| Ok(()))?;
                Ok(block.image()[..to_usize(size)].to_vec())
            }
            _ => Err(Error::Corrupt(crate::Cause::new(bad()))),
        }
    }
}
