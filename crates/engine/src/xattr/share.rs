//! Blocks of attributes that several inodes use.
//!
//! | what                               | lock            |
//! |------------------------------------|-----------------|
//! | the lists of known blocks          | `[xattr.share]` |
//! | a block's reference count          | `[xattr.share]` of its hash |
//! | a block's attributes, count 1 and not listed | its inode, held exclusively |
//!
//! A block is listed under the hash of its attributes once it was written or found equal here. To
//! change or free a block its owner first takes it off the list, under the lock, if no other inode
//! uses it. So a listed block keeps its attributes, and every listed block is in use.
//! The lock is held across reading a candidate; a commit never takes it.

use nextent_num::to_usize;
use nextent_sync::HashMap;
use std::collections::VecDeque;

use nextent_ondisk::{BlockNo, xattr};
use nextent_store::{BlockRef, Handle, MetaBlock};
use nextent_sync::{CachePadded, Mutex, MutexGuard};

use super::cx::XattrCx;
use super::locks;
use crate::Result;
use crate::map::BlockKind;

/// Locks; by the hash's low bits.
const SHARDS: usize = 64;
/// Hashes remembered under each.
const PER_SHARD: usize = 512;
/// Blocks remembered of one hash: many only when all but the last are fully shared.
const PER_HASH: usize = 8;

/// The blocks that inodes may share, by hash. Bounded; what it forgets is only not shared again.
pub(crate) struct ShareCache {
    shards: Box<[CachePadded<Mutex<Known>>]>,
}

#[derive(Default)]
struct Known {
    blocks: HashMap<u32, Vec<BlockNo>>,
    order: VecDeque<u32>,
}

impl Known {
    fn add(&mut self, hash: u32, no: BlockNo) {
        if hash == 0 {
            return;
        }
        if !self.blocks.contains_key(&hash) {
            self.order.push_back(hash);
            if self.order.len() > PER_SHARD
                && let Some(oldest) = self.order.pop_front()
            {
                self.blocks.remove(&oldest);
            }
        }
        let list = self.blocks.entry(hash).or_default();
        if !list.contains(&no) {
            list.push(no);
            if list.len() > PER_HASH {
                list.remove(0);
            }
        }
    }

    fn remove(&mut self, hash: u32, no: BlockNo) {
        let Some(list) = self.blocks.get_mut(&hash) else { return };
        list.retain(|other| *other != no);
        if list.is_empty() {
            self.blocks.remove(&hash);
            self.order.retain(|other| *other != hash);
        }
    }
}

impl ShareCache {
    /// Knows nothing yet.
    pub(crate) fn new() -> Self {
        let shard = || CachePadded::new(Mutex::new(&locks::SHARE, Known::default()));
        Self { shards: (0..SHARDS).map(|_| shard()).collect() }
    }

    fn lock(&self, hash: u32) -> MutexGuard<'_, Known> {
        self.shards[to_usize(hash) % SHARDS].lock()
    }
}

/// Finds a known block with the bytes of `wanted` and takes a reference to it.
pub(super) fn join(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    wanted: &[u8],
    hash: u32,
) -> Result<Option<BlockNo>> {
    if hash == 0 {
        return Ok(None);
    }
    let known = cx.shares.lock(hash);
    for &no in known.blocks.get(&hash).into_iter().flatten() {
        let block = cx.block_to_change(no)?;
        let count = match same(cx, &block, wanted) {
            Some(count) if count < xattr::MAX_REFCOUNT => count,
            _ => continue,
        };
        h.update(&block, |bytes| xattr::set_refcount(bytes, count + 1));
        return Ok(Some(no));
    }
    Ok(None)
}

/// The references to `block` if it holds the same attributes as `wanted`.
fn same(cx: &XattrCx<'_>, block: &MetaBlock, wanted: &[u8]) -> Option<u32> {
    let image = block.image();
    let (header, mine) = xattr::in_block(cx.geometry, &image).ok()?;
    let (_, theirs) = xattr::in_block(cx.geometry, wanted).ok()?;
    mine.eq(theirs).then_some(header.refcount)
}

/// Lists a block of this inode for sharing.
pub(super) fn publish(cx: &XattrCx<'_>, hash: u32, no: BlockNo) {
    if hash != 0 {
        cx.shares.lock(hash).add(hash, no);
    }
}

/// The inode's block for changing in place: off the list, if no other inode uses it.
pub(super) fn claim(cx: &XattrCx<'_>, no: BlockNo) -> Result<Option<BlockRef>> {
    let block = cx.block_to_change(no)?;
    let header = header(cx, &block, no)?;
    let mut known = cx.shares.lock(header.hash);
    if self::header(cx, &block, no)?.refcount != 1 {
        return Ok(None);
    }
    known.remove(header.hash, no);
    Ok(Some(block))
}

/// Gives up the inode's reference to a block; the last one frees it.
pub(super) fn release(cx: &XattrCx<'_>, h: &Handle<'_>, no: BlockNo) -> Result<()> {
    let block = cx.block_to_change(no)?;
    let hash = header(cx, &block, no)?.hash;
    let mut known = cx.shares.lock(hash);
    let count = header(cx, &block, no)?.refcount;
    if count > 1 {
        h.update(&block, |bytes| xattr::set_refcount(bytes, count - 1));
        return Ok(());
    }
    known.remove(hash, no);
    drop(known);
    cx.space.free(h, no, 1, BlockKind::Metadata)
}

fn header(cx: &XattrCx<'_>, block: &MetaBlock, no: BlockNo) -> Result<xattr::Header> {
    let image = block.image();
    let (header, _) = xattr::in_block(cx.geometry, &image).map_err(|e| cx.place(e, Some(no)))?;
    Ok(header)
}
