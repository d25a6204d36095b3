//! Metadata blocks in memory.
//!
//! Invariant: while a `BlockRef` exists, or the block has a change that is not in place, there is
//! exactly one `MetaBlock` for its number, and its image is at least as new as the device's.
//!
//! Only the journal sets the marks that say which transaction an image belongs to. The cache reads
//! them to find blocks that it may drop.
//!
//! Lock ranks: `[cache.load]` 490, `[cache.shard]` 500, in it `[cache.block]` 510.

mod block;
mod buf;
mod shard;

pub use block::BLOCK_OVERHEAD;
pub(crate) use block::BlockMarks;
pub use block::{BlockRef, MetaBlock, Seal};
pub use buf::Buf;
pub(crate) use shard::Cache;
