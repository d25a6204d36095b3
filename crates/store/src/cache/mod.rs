//! Metadata blocks in memory.
//!
//! Promise: while anyone holds a `BlockRef`, or the block has a change
//! that is not home, there is exactly one `MetaBlock` for its number, and its
//! image is newer than or equal to the device's.
//!
//! The journal alone sets the marks that say which transaction an image
//! belongs to; the cache only obeys them when it looks for room.

mod block;
mod buf;
mod shard;

pub use block::BLOCK_OVERHEAD;
pub(crate) use block::Marks;
pub use block::{BlockRef, MetaBlock, Seal};
pub use buf::Buf;
pub(crate) use shard::Cache;
