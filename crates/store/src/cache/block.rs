//! One metadata block: its current image and the images that transactions hold.

use super::Buf;
use crate::locks;
use nextent_ondisk::{BlockNo, Tid};
use nextent_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use nextent_sync::{Arc, BiasedMutex, BiasedMutexGuard, Mutex, at_once};

/// How a block's checksum is filled in, when a commit takes the block's image.
#[derive(Clone, Copy)]
pub struct Seal {
    /// Writes the checksum into `block`.
    pub f: fn(seed: u32, no: BlockNo, block: &mut [u8]),
    /// Passed to `f`; the checksum's starting value.
    pub seed: u32,
}

impl Seal {
    /// For blocks without a checksum of their own.
    pub const NONE: Seal = Seal { f: |_, _, _| {}, seed: 0 };
}

/// A reference that keeps a block in memory. Several cores may use the same block in each
/// operation, such as the upper nodes of a tree.
pub type BlockRef = Arc<MetaBlock>;

/// The journal's marks on a block, under the block's lock. `[cache.block]`
pub(crate) struct BlockMarks {
    /// The newest image.
    pub(crate) data: Buf,
    /// Transaction that changed `data` in place and has not taken its image.
    pub(crate) dirty: Option<Tid>,
    /// Image of an older transaction, saved when a newer one changed `data` before the commit took
    /// it.
    pub(crate) frozen: Option<(Tid, Buf)>,
    /// Newest committed image, until it is written in place.
    pub(crate) to_checkpoint: Option<(Tid, Buf)>,
    /// Transaction in which the block was allocated.
    pub(crate) created: Option<Tid>,
    /// Freed: no checkpoint writes it unless it is created anew.
    pub(crate) forgotten: bool,
    /// Last transaction whose commit listed this block.
    pub(crate) listed: Option<Tid>,
    pub(crate) seal: Seal,
}

/// A metadata block of the volume, unique for its number while in use. Aligned to cache lines:
/// different cores use blocks that are adjacent in memory.
#[repr(align(128))]
pub struct MetaBlock {
    no: BlockNo,
    pub(crate) marks: BiasedMutex<BlockMarks>,
    /// Serialises the first read. `[cache.load]`
    pub(crate) load: Mutex<()>,
    /// `data` is valid. Set once, under `[cache.block]`, with Release; read with Acquire. The
    /// thread that finds it false under `[cache.block]` may store `data`.
    pub(crate) loaded: AtomicBool,
    /// Transaction that has a credit for this block, plus one; 0 for none. Relaxed: it publishes no
    /// data.
    charged: AtomicU64,
    /// Facts about the bytes, noted since the read, see [`mark`](Self::mark). Relaxed: a thread
    /// that misses one checks the bytes again.
    noted: AtomicU32,
    /// Second chance of the cache's clock. Relaxed, a hint.
    pub(crate) referenced: AtomicBool,
}

/// Approximate bytes that a block in memory takes beside its contents.
pub const BLOCK_OVERHEAD: usize = size_of::<MetaBlock>() + 192;

impl MetaBlock {
    pub(crate) fn new(no: BlockNo) -> Self {
        let marks = BlockMarks {
            data: Buf::from(Vec::new()),
            dirty: None,
            frozen: None,
            to_checkpoint: None,
            created: None,
            forgotten: false,
            listed: None,
            seal: Seal::NONE,
        };
        Self {
            no,
            marks: BiasedMutex::new(&locks::BLOCK, marks),
            load: Mutex::new(&locks::LOAD, ()),
            loaded: AtomicBool::new(false),
            charged: AtomicU64::new(0),
            noted: AtomicU32::new(0),
            referenced: AtomicBool::new(true),
        }
    }

    /// The block's number.
    pub fn number(&self) -> BlockNo {
        self.no
    }

    /// The newest image. Takes `[cache.block]` for a moment; never waits for I/O.
    pub fn image(&self) -> Buf {
        let marks = self.marks.lock();
        let image = marks.data.clone();
        at_once();
        image
    }

    /// Sets how the checksum is filled in from now on.
    pub fn set_seal(&self, seal: Seal) {
        self.marks.lock().seal = seal;
    }

    /// Notes facts about the bytes, one per bit, until the block is read or created anew: for
    /// example that they were checked as one kind of structure.
    pub fn mark(&self, bits: u32) {
        self.noted.fetch_or(bits, Ordering::Relaxed);
    }

    /// Whether all of `bits` were noted.
    pub fn is_marked(&self, bits: u32) -> bool {
        self.noted.load(Ordering::Relaxed) & bits == bits
    }

    /// Clears all notes.
    pub(crate) fn unmark(&self) {
        self.noted.store(0, Ordering::Relaxed);
    }

    /// Stores the bytes that a reader got from the device, unless the block was created meanwhile:
    /// creation does not wait for a read, and its contents are newer. Takes `[cache.block]`.
    pub(crate) fn fill(&self, bytes: Vec<u8>) {
        let mut marks = self.marks.lock();
        if self.loaded.load(Ordering::Relaxed) {
            return;
        }
        marks.data = Buf::from(bytes);
        self.loaded.store(true, Ordering::Release);
    }

    pub(crate) fn lock(&self) -> BiasedMutexGuard<'_, BlockMarks> {
        self.marks.lock()
    }

    /// Notes that `tid` has a credit for this block; true the first time.
    pub(crate) fn charge(&self, tid: Tid) -> bool {
        let mark = u64::from(tid.0) + 1;
        self.charged.load(Ordering::Relaxed) != mark
            && self.charged.swap(mark, Ordering::Relaxed) != mark
    }
}

impl BlockMarks {
    /// Whether the device has the newest image.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_none() && self.frozen.is_none() && self.to_checkpoint.is_none()
    }

    /// Saves an older transaction's image before `tid` changes the block; true if this is the
    /// block's first change in `tid`.
    pub(crate) fn begin_change(&mut self, tid: Tid) -> bool {
        match self.dirty {
            Some(owner) if owner == tid => return false,
            Some(owner) => {
                debug_assert!(self.frozen.is_none(), "at most one commit at a time");
                self.frozen = Some((owner, self.data.clone()));
            }
            None => {}
        }
        self.dirty = Some(tid);
        true
    }

    /// Takes the sealed image that belongs to `tid`, if there is one.
    pub(crate) fn take_image(&mut self, no: BlockNo, tid: Tid) -> Option<Buf> {
        if let Some((_, mut image)) = self.frozen.take_if(|(owner, _)| *owner == tid) {
            (self.seal.f)(self.seal.seed, no, image.make_mut());
            return Some(image);
        }
        if self.dirty != Some(tid) {
            return None;
        }
        self.dirty = None;
        (self.seal.f)(self.seal.seed, no, self.data.make_mut());
        Some(self.data.clone())
    }
}
