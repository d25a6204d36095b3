//! The orphan file: blocks of inode numbers, each used mostly by one slot.
//!
//! A block is a [`Dirty`] object. The commit compares it with the block's image and writes nothing
//! if an orphan was added and removed in the same transaction.

use nextent_num::{must_fit, to_usize};
use nextent_ondisk::orphan as format;
use nextent_ondisk::{Geometry, InodeNo, Tid};
use nextent_store::{BlockRef, Dirty, Handle, RenderSink};
use nextent_sync::{Arc, Mutex, current_slot};

use super::super::locks;
use super::super::object::Orphan;

struct OrphanBlockState {
    entries: Vec<u32>,
    free: usize,
    /// Where the search for a free entry begins.
    hint: usize,
    /// The entries in the block's image.
    on_disk: Vec<u32>,
    dirty: Option<Tid>,
    frozen: Option<Vec<u32>>,
}

/// One block of the orphan file. `[orphan.block]`
pub(crate) struct OrphanBlock {
    block: BlockRef,
    state: Mutex<OrphanBlockState>,
}

/// The orphan file.
pub(crate) struct OrphanFile {
    blocks: Vec<Arc<OrphanBlock>>,
}

impl OrphanFile {
    /// The file with the checked blocks `blocks`.
    pub(crate) fn new(geometry: &Geometry, blocks: Vec<BlockRef>) -> Self {
        let entry_count = format::per_block(geometry);
        let block = |block| OrphanBlock::new(block, entry_count);
        Self { blocks: blocks.into_iter().map(block).collect() }
    }

    /// All used entries, with their positions.
    pub(crate) fn entries(&self) -> Vec<(InodeNo, Orphan)> {
        let mut all = Vec::new();
        for (number, block) in self.blocks.iter().enumerate() {
            for (entry, ino) in block.state.lock().entries.iter().enumerate() {
                if *ino != 0 {
                    let place = Orphan::Filed { block: must_fit(number), entry: must_fit(entry) };
                    all.push((InodeNo(*ino), place));
                }
            }
        }
        all
    }

    /// Writes `ino` into a free entry, first in the block of the caller's slot. `None` if no block
    /// that it tries has one.
    pub(super) fn add(&self, h: &Handle<'_>, ino: InodeNo) -> Option<Orphan> {
        let count = self.blocks.len();
        let first = current_slot().index();
        (0..count.min(4)).find_map(|n| {
            let number = (first + n) % count;
            let entry = self.blocks[number].add(h, ino)?;
            Some(Orphan::Filed { block: must_fit(number), entry })
        })
    }

    /// Frees an entry.
    pub(crate) fn remove(&self, h: &Handle<'_>, block: u32, entry: u32) {
        if let Some(block) = self.blocks.get(to_usize(block)) {
            block.remove(h, to_usize(entry));
        }
    }
}

impl OrphanBlock {
    fn new(block: BlockRef, entry_count: usize) -> Arc<Self> {
        let mut entries = vec![0; entry_count];
        for (at, ino) in format::orphans(&block.image()) {
            entries[at] = ino.0;
        }
        let free = entries.iter().filter(|ino| **ino == 0).count();
        let on_disk = entries.clone();
        let state = OrphanBlockState { entries, free, hint: 0, on_disk, dirty: None, frozen: None };
        Arc::new(Self { block, state: Mutex::new(&locks::ORPHAN_BLOCK, state) })
    }

    fn prepare(self: &Arc<Self>, h: &Handle<'_>, state: &mut OrphanBlockState) {
        let tid = h.tid();
        if state.dirty != Some(tid) {
            if state.dirty.is_some() {
                state.frozen = Some(state.entries.clone());
            }
            state.dirty = Some(tid);
            h.join(&self.block);
            h.dirty(Arc::clone(self) as Arc<dyn Dirty>);
        }
    }

    fn add(self: &Arc<Self>, h: &Handle<'_>, ino: InodeNo) -> Option<u32> {
        let mut state = self.state.lock();
        if state.free == 0 {
            return None;
        }
        let count = state.entries.len();
        let hint = state.hint;
        let entry = (0..count).map(|n| (hint + n) % count).find(|n| state.entries[*n] == 0)?;
        self.prepare(h, &mut state);
        state.entries[entry] = ino.0;
        state.free -= 1;
        state.hint = (entry + 1) % count;
        Some(must_fit(entry))
    }

    fn remove(self: &Arc<Self>, h: &Handle<'_>, entry: usize) {
        let mut state = self.state.lock();
        if state.entries.get(entry).is_some_and(|ino| *ino != 0) {
            self.prepare(h, &mut state);
            state.entries[entry] = 0;
            state.free += 1;
            state.hint = entry;
        }
    }
}

impl Dirty for OrphanBlock {
    fn render(&self, tid: Tid, out: &mut RenderSink) -> nextent_store::Result<()> {
        let mut state = self.state.lock();
        let entries = match state.frozen.take() {
            Some(entries) => entries,
            None if state.dirty == Some(tid) => {
                state.dirty = None;
                state.entries.clone()
            }
            None => return Ok(()),
        };
        if entries == state.on_disk {
            return Ok(());
        }
        out.patch(&self.block, |block| {
            for (at, ino) in entries.iter().enumerate() {
                format::set(block, at, InodeNo(*ino));
            }
        });
        state.on_disk = entries;
        Ok(())
    }
}
