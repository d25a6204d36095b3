//! The seam of the block allocator: what a replacement allocator does instead of the leased
//! regions.
//!
//! A build without the feature `lab` has no replacement. [`Replacement::get`] is a constant there,
//! so that no verb of [`BlockAlloc`](super::BlockAlloc) compares anything, and the other types of
//! this file have no size.
//!
//! A replacement keeps the promises of the [module](super): no block twice, none before its release
//! is durable, and the disk says what is in use at the end of each transaction. It reaches the
//! groups' bitmaps and descriptors by [`Groups`], as the regions do. All numbers are clusters,
//! except in requests and runs of blocks.

use super::error::Result;
use super::groups::Groups;
use super::request::{BlockKind, BlockRequest, BlockRun, Privilege};
use super::window::Window;
use nextent_ondisk::BlockNo;
use nextent_store::Handle;
use nextent_sync::Arc;
use std::fmt;

/// An allocator that replaces the leased regions; each verb is one of
/// [`BlockAlloc`](super::BlockAlloc).
pub trait BlockAllocator: Send + Sync {
    /// Takes contiguous blocks.
    ///
    /// # Errors
    /// As [`BlockAlloc::allocate`](super::BlockAlloc::allocate).
    fn allocate(&self, h: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun>;

    /// Takes contiguous blocks for a file that grows.
    ///
    /// # Errors
    /// As [`BlockAlloc::allocate`](super::BlockAlloc::allocate).
    fn allocate_growing(
        &self,
        h: &Handle<'_>,
        request: &BlockRequest,
        window: &mut Window,
    ) -> Result<BlockRun>;

    /// Gives back what is set aside for a file.
    fn release(&self, window: &mut Window);

    /// Frees blocks that are in use.
    ///
    /// # Errors
    /// As [`BlockAlloc::free`](super::BlockAlloc::free).
    fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()>;

    /// Puts blocks in use, free or not; how many clusters were free.
    ///
    /// # Errors
    /// As [`BlockAlloc::mark_used`](super::BlockAlloc::mark_used).
    fn mark_used(&self, h: &Handle<'_>, start: BlockNo, len: u32) -> Result<u32>;

    /// Whether none of the blocks is in use.
    ///
    /// # Errors
    /// As [`BlockAlloc::is_free`](super::BlockAlloc::is_free).
    #[cfg(any(test, feature = "lab"))]
    fn is_free(&self, start: BlockNo, len: u32) -> Result<bool>;

    /// Free clusters.
    fn free_clusters(&self) -> u64;

    /// Clusters that `privilege` may still take.
    fn available(&self, privilege: Privilege) -> u64;

    /// Whether a commit may bring space, or has brought some since the caller found none.
    fn has_pending(&self) -> bool;

    /// Discards free runs of at least `min` clusters from block `first` to `last`; how many blocks
    /// those were.
    ///
    /// # Errors
    /// As [`BlockAlloc::trim`](super::BlockAlloc::trim).
    fn trim(&self, first: BlockNo, last: BlockNo, min: u32) -> Result<u64>;
}

/// Makes the replacement allocator of each volume that is opened.
#[cfg(feature = "lab")]
pub trait MakeAllocator: fmt::Debug + Send + Sync {
    /// The allocator over `groups`, of whose `free` clusters `root` are root's share.
    fn make(&self, groups: &Arc<Groups>, free: u64, root: u64) -> Arc<dyn BlockAllocator>;
}

/// How a volume gets its replacement, if it is to have one.
#[derive(Clone, Debug, Default)]
pub struct AllocatorChoice(#[cfg(feature = "lab")] Option<Arc<dyn MakeAllocator>>);

/// The replacement of a volume, if it has one.
#[derive(Default)]
pub(crate) struct Replacement(#[cfg(feature = "lab")] Option<Arc<dyn BlockAllocator>>);

/// What a replacement keeps for one growing file; guarded as the file's [`Window`] is.
#[derive(Default)]
pub struct ReplacementState(#[cfg(feature = "lab")] Option<Box<dyn std::any::Any + Send + Sync>>);

impl fmt::Debug for ReplacementState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplacementState")
    }
}

#[cfg(feature = "lab")]
impl AllocatorChoice {
    /// Volumes get what `make` makes.
    #[must_use]
    pub fn replaced(make: Arc<dyn MakeAllocator>) -> Self {
        Self(Some(make))
    }

    pub(super) fn make(&self, groups: &Arc<Groups>, free: u64, root: u64) -> Replacement {
        Replacement(self.0.as_ref().map(|make| make.make(groups, free, root)))
    }
}

#[cfg(feature = "lab")]
impl Replacement {
    #[inline]
    pub(crate) fn get(&self) -> Option<&dyn BlockAllocator> {
        self.0.as_deref()
    }
}

#[cfg(feature = "lab")]
impl ReplacementState {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// What is kept for the file, if anything is.
    pub fn get<T: 'static>(&mut self) -> Option<&mut T> {
        self.0.as_mut().and_then(|kept| kept.downcast_mut())
    }

    /// What is kept for the file, from now on.
    ///
    /// # Panics
    /// If something of another type is kept.
    pub fn get_or_default<T: Default + Send + Sync + 'static>(&mut self) -> &mut T {
        let kept = self.0.get_or_insert_with(|| Box::<T>::default());
        kept.downcast_mut().expect("a volume has one allocator")
    }
}

#[cfg(not(feature = "lab"))]
impl AllocatorChoice {
    pub(super) fn make(&self, _: &Arc<Groups>, _: u64, _: u64) -> Replacement {
        Replacement()
    }
}

#[cfg(not(feature = "lab"))]
impl Replacement {
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&dyn BlockAllocator> {
        None
    }
}

#[cfg(not(feature = "lab"))]
impl ReplacementState {
    pub(super) const fn new() -> Self {
        Self()
    }
}
