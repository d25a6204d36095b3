//! The interface to a directory's blocks, independent of the store, so that tests can use a vector.

use std::ops::Deref;

use nextent_ondisk::{BlockNo, Corrupt, FileBlock};

use super::DirError;
use super::layout::DirInfo;

/// Blocks to read.
pub(super) trait Pages {
    type Image: Deref<Target = [u8]>;
    type Error: From<DirError>;

    fn info(&self) -> DirInfo<'_>;
    /// Blocks in the directory.
    fn blocks(&self) -> u32;
    /// Whether the inode says that there is an index.
    fn is_indexed(&self) -> bool;
    /// A block as it is now.
    fn image(&self, n: FileBlock) -> Result<Self::Image, Self::Error>;
    /// Where the block lies, for the text of an error.
    fn number(&self, n: FileBlock) -> Option<BlockNo>;

    /// Names the inode and the block in an error about block `n`.
    fn at(&self, n: FileBlock, error: Corrupt) -> DirError {
        let error = error.at_inode(self.info().ino);
        DirError::Corrupt(match self.number(n) {
            Some(block) => error.at_block(block),
            None => error,
        })
    }
}

/// Blocks to change.
pub(super) trait PagesMut: Pages {
    /// Changes a block in place. `f` must not fail halfway.
    fn update<R>(&self, n: FileBlock, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, Self::Error>;
    /// Adds a zeroed block at the end.
    fn append(&self) -> Result<FileBlock, Self::Error>;
    /// Says in the inode that there is an index now.
    fn set_indexed(&self) -> Result<(), Self::Error>;
}
