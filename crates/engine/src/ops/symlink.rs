//! `symlink(2)`: short targets lie in the inode, long ones in a block.

use nextent_num::to_u64;
use nextent_ondisk::inode::{BLOCK_AREA, flags};
use nextent_ondisk::{Incompat, InodeNo};
use nextent_store::Handle;
use nextent_sync::Arc;

use super::create::NodeSpec;
use crate::error::{Error, Result};
use crate::inode::{Change, Inode, entries};
use crate::map::{MapKind, MapRoot};
use crate::ops::Inodes;
use crate::{Attr, Cred, FileType};

/// Whether a link may point to `target`.
pub(crate) fn check_target(target: &[u8], block_size: u64) -> Result<()> {
    match target {
        [] => Err(Error::NotFound),
        _ if to_u64(target.len()) >= block_size.min(4096) => Err(Error::NameTooLong),
        _ if target.contains(&0) => Err(Error::Invalid),
        _ => Ok(()),
    }
}

impl Inodes {
    /// Creates a symbolic link to `target`: any bytes but NUL, shorter than a block.
    ///
    /// # Errors
    /// [`Error::NameTooLong`], [`Error::NotFound`] for an empty target, and as
    /// [`mknod`](Self::mknod).
    pub fn symlink(
        &self,
        cred: &Cred,
        parent: InodeNo,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        check_target(target, self.fs.block_size())?;
        let unmasked = Cred { umask: 0, ..cred.clone() };
        let spec = NodeSpec { kind: FileType::Symlink, mode: 0o777, opens: 0 };
        self.make(&unmasked, parent, name, spec, |_, h, inode| {
            if target.len() < BLOCK_AREA {
                inode.change(h, Change::Life, |state| {
                    state.disk.block = [0; BLOCK_AREA];
                    state.disk.block[..target.len()].copy_from_slice(target);
                    state.disk.size = to_u64(target.len());
                });
                Ok(())
            } else {
                self.long_target(h, inode, target)
            }
        })
        .map(|inode| super::attr(&self.fs, &inode))
    }

    /// Stores a target in a block, which goes through the journal.
    fn long_target(&self, h: &Handle<'_>, inode: &Arc<Inode>, target: &[u8]) -> Result<()> {
        if self.fs.geometry.features.has(Incompat::EXTENTS) {
            let mut root = inode.map.write();
            *root = MapRoot::empty(MapKind::Extents);
            inode.change(h, Change::Life, |state| {
                state.disk.flags |= flags::EXTENTS;
                state.disk.block = *root.bytes();
            });
        }
        inode.change(h, Change::Life, |state| state.disk.size = to_u64(target.len()));
        let block = entries::new_block(&self.fs, h, inode)?;
        h.update(&block, |bytes| bytes[..target.len()].copy_from_slice(target));
        Ok(())
    }
}
