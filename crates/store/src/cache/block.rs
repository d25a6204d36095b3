//! One metadata block: its current image and what transactions hold of it.

use super::Buf;
use crate::locks;
use nextent_ondisk::{BlockNo, Tid};
use nextent_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use nextent_sync::{Common, Mutex, OwnMutex, OwnMutexGuard, at_once};

/// How a block's checksum is filled in: once a commit, when its image is taken.
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

/// A reference to a block in memory, which stays there as long. Several cores may come to the same
/// block in each operation, as to the upper nodes of a tree.
pub type BlockRef = Common<MetaBlock>;

/// The journal's marks on a block, under the block's lock. `[cache.block]`
pub(crate) struct Marks {
    /// The newest image.
    pub(crate) data: Buf,
    /// Transaction that changed `data` in place and has not taken its image.
    pub(crate) dirty: Option<Tid>,
    /// Image of an older transaction, saved when a newer one changed `data`
    /// before the commit came for it.
    pub(crate) frozen: Option<(Tid, Buf)>,
    /// Newest committed image, while it is not written home.
    pub(crate) home: Option<(Tid, Buf)>,
    /// Transaction in which the block was allocated.
    pub(crate) created: Option<Tid>,
    /// Freed; not to be written again unless created anew.
    pub(crate) forgotten: bool,
    /// Last transaction whose commit listed this block.
    pub(crate) listed: Option<Tid>,
    pub(crate) seal: Seal,
}

/// A metadata block of the volume, unique for its number while in use. On lines of its own: blocks
/// that are next to each other in memory are different cores'.
#[repr(align(128))]
pub struct MetaBlock {
    no: BlockNo,
    pub(crate) marks: OwnMutex<Marks>,
    /// Serialises the first read. `[cache.load]`
    pub(crate) load: Mutex<()>,
    /// `data` is valid. Set once, under `[cache.block]`, with Release; read with Acquire. The
    /// thread that finds it false under `[cache.block]` is the one that may store `data`.
    pub(crate) loaded: AtomicBool,
    /// Transaction that has a credit for this block, plus one; 0 for none.
    /// Relaxed: only its own value matters.
    charged: AtomicU64,
    /// What users noted of the bytes since they were read, see [`mark`](Self::mark). Relaxed: set
    /// after a look at the bytes that anyone may repeat.
    noted: AtomicU32,
    /// Second chance of the cache's clock. Relaxed, a hint.
    pub(crate) referenced: AtomicBool,
}

/// Bytes that a block in memory takes beside its contents, about.
pub const BLOCK_OVERHEAD: usize = size_of::<MetaBlock>() + 192;

impl MetaBlock {
    pub(crate) fn new(no: BlockNo) -> Self {
        let marks = Marks {
            data: Buf::from(Vec::new()),
            dirty: None,
            frozen: None,
            home: None,
            created: None,
            forgotten: false,
            listed: None,
            seal: Seal::NONE,
        };
        Self {
            no,
            marks: OwnMutex::new(&locks::BLOCK, marks),
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

    /// Says how the checksum is filled in from now on.
    pub fn set_seal(&self, seal: Seal) {
        self.marks.lock().seal = seal;
    }

    /// Notes something of the bytes, one of 32 things, until the block is read or created anew:
    /// that they were checked as one kind of structure, say.
    pub fn mark(&self, bits: u32) {
        self.noted.fetch_or(bits, Ordering::Relaxed);
    }

    /// Whether all of `bits` were noted.
    pub fn is_marked(&self, bits: u32) -> bool {
        self.noted.load(Ordering::Relaxed) & bits == bits
    }

    /// Forgets what was noted.
    pub(crate) fn unmark(&self) {
        self.noted.store(0, Ordering::Relaxed);
    }

    /// Stores what a reader found on the device, unless the block was created meanwhile: creation
    /// does not wait for a read, and its contents are newer. Takes `[cache.block]`.
    pub(crate) fn fill(&self, bytes: Vec<u8>) {
        let mut marks = self.marks.lock();
        if self.loaded.load(Ordering::Relaxed) {
            return;
        }
        marks.data = Buf::from(bytes);
        self.loaded.store(true, Ordering::Release);
    }

    pub(crate) fn lock(&self) -> OwnMutexGuard<'_, Marks> {
        self.marks.lock()
    }

    /// Notes that `tid` has a credit for this block; true the first time.
    pub(crate) fn charge(&self, tid: Tid) -> bool {
        let mark = u64::from(tid.0) + 1;
        self.charged.load(Ordering::Relaxed) != mark
            && self.charged.swap(mark, Ordering::Relaxed) != mark
    }
}

impl Marks {
    /// Whether the image may be dropped and read again from the device.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_none() && self.frozen.is_none() && self.home.is_none()
    }

    /// Sets an older transaction's image aside before `tid` changes the block;
    /// true if the block is new in `tid`.
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
