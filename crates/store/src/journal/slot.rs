//! What one slot holds of the running transaction.

use super::sink::Dirty;
use crate::cache::MetaBlock;
use crate::locks;
use nextent_ondisk::BlockNo;
use nextent_sync::atomic::{AtomicBool, AtomicI64, AtomicU32};
use nextent_sync::{Arc, Mutex};

/// A slot's pins, credits and lists. Touched by the slot's own thread, and by
/// the commit while no handle is inside.
pub(super) struct Slot {
    /// Handles of this slot inside the transaction. SeqCst, see the gate.
    pub(super) pins: AtomicU32,
    /// Credits leased from the transaction's budget. Relaxed: moves between the
    /// slot's handles; the commit reads it behind the drain.
    pub(super) credits: AtomicI64,
    /// Whether anything was changed. Relaxed; a hint for the commit's timer.
    pub(super) used: AtomicBool,
    /// `[journal.slot]`
    pub(super) lists: Mutex<Lists>,
}

/// Changes of one slot, or merged of all, in one transaction.
#[derive(Default)]
pub(super) struct Lists {
    /// Changed in place; may repeat a block that was freed and created again.
    pub(super) blocks: Vec<Arc<MetaBlock>>,
    /// To be rendered.
    pub(super) objects: Vec<Arc<dyn Dirty>>,
    /// Freed blocks that were in memory.
    pub(super) forgotten: Vec<Arc<MetaBlock>>,
    /// Freed blocks of which the log may hold older images.
    pub(super) revokes: Vec<BlockNo>,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            pins: AtomicU32::new(0),
            credits: AtomicI64::new(0),
            used: AtomicBool::new(false),
            lists: Mutex::new(&locks::SLOT, Lists::default()),
        }
    }
}

impl Lists {
    pub(super) fn append(&mut self, other: &mut Lists) {
        self.blocks.append(&mut other.blocks);
        self.objects.append(&mut other.objects);
        self.forgotten.append(&mut other.forgotten);
        self.revokes.append(&mut other.revokes);
    }
}
