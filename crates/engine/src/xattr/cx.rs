//! What the verbs need, and where an inode's attributes are.

use nextent_ondisk::{BlockNo, Corrupt, Geometry, InodeNo, Structure, xattr};
use nextent_store::{BlockRef, Seal, Store};

use super::share::ShareCache;
use crate::map::{Privilege, Space};
use crate::{Error, Result};

/// Reads values that are inodes (feature `ea_inode`).
pub(crate) trait ValueReader {
    /// The `size` bytes of inode `ino`.
    ///
    /// # Errors
    /// What reading says.
    fn read_value(&self, ino: InodeNo, size: u32) -> Result<Vec<u8>>;
}

/// The surroundings of one inode's attributes.
#[derive(Clone, Copy)]
pub(crate) struct XattrCx<'a> {
    /// Where blocks are read and changed.
    pub(crate) store: &'a Store,
    /// Where blocks are allocated and freed.
    pub(crate) space: &'a dyn Space,
    /// Blocks that may be shared; one for the volume.
    pub(crate) shares: &'a ShareCache,
    /// The volume's numbers.
    pub(crate) geometry: &'a Geometry,
    /// The inode.
    pub(crate) ino: InodeNo,
    /// Where a new block should lie.
    pub(crate) goal: Option<BlockNo>,
    /// How deep into the reserves a new block may go.
    pub(crate) privilege: Privilege,
    /// Reads values elsewhere.
    pub(crate) values: &'a dyn ValueReader,
}

/// An inode's attributes: its spare bytes, and its block.
pub(crate) struct AttrStorage<'a> {
    /// The bytes that [`nextent_ondisk::Inode::xattr_area`] says; empty if there are none.
    pub(crate) area: &'a mut [u8],
    /// The block, or 0.
    pub(crate) block: &'a mut BlockNo,
}

impl XattrCx<'_> {
    /// How the commit fills in the checksum of a block of attributes.
    pub(super) fn seal(&self) -> Seal {
        if self.geometry.features.metadata_csum() {
            Seal { f: xattr::seal, seed: self.geometry.csum_seed }
        } else {
            Seal::NONE
        }
    }

    /// Reads a block of attributes and checks its sum when it comes from the device.
    pub(super) fn block(&self, no: BlockNo) -> Result<BlockRef> {
        if !self.geometry.holds(no) {
            let error = Corrupt::field(Structure::Inode, "block of attributes", no.get());
            return Err(error.at_inode(self.ino).into());
        }
        self.store.read(no, |bytes| {
            if self.geometry.features.metadata_csum() {
                xattr::verify(self.geometry.csum_seed, no, bytes)
                    .map_err(|e| self.place(e, Some(no)))?;
            }
            Ok(())
        })
    }

    /// As [`block`](Self::block), to be changed.
    pub(super) fn block_to_change(&self, no: BlockNo) -> Result<BlockRef> {
        let block = self.block(no)?;
        block.set_seal(self.seal());
        Ok(block)
    }

    /// Names the inode, and the block if it is one, in an error.
    pub(super) fn place(&self, error: Corrupt, block: Option<BlockNo>) -> Error {
        let error = error.at_inode(self.ino);
        block.map_or(error.clone(), |no| error.at_block(no)).into()
    }
}
