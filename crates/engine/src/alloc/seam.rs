//! The seam of the block allocator: the interface for replacement allocators.
//!
//! - A build without the feature `lab` has no replacement. [`Replacement::get`] is then a constant,
//!   so operations of [`BlockAlloc`](super::BlockAlloc) contain no test for one. The other types of
//!   this module have no size.
//! - A replacement keeps the invariants of the [module](super).
//! - It accesses the groups' bitmaps and descriptors through [`Groups`], as the regions do.
//! - All numbers are clusters, except in [`BlockRequest`] and [`BlockRun`].

use super::error::Result;
use super::groups::Groups;
use super::request::{BlockKind, BlockRequest, BlockRun, Privilege};
use super::window::Window;
use nextent_ondisk::BlockNo;
use nextent_store::Handle;
use nextent_sync::Arc;
use std::fmt;

/// An allocator that replaces the leased regions. Each method implements the one of the same name
/// of [`BlockAlloc`](super::BlockAlloc).
pub trait BlockAllocator: Send + Sync {
    /// Allocates contiguous blocks.
    ///
    /// # Errors
    /// As [`BlockAlloc::allocate`](super::BlockAlloc::allocate).
    fn allocate(&self, h: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun>;

    /// Allocates contiguous blocks for a growing file.
    ///
    /// # Errors
    /// As [`BlockAlloc::allocate`](super::BlockAlloc::allocate).
    fn allocate_growing(
        &self,
        h: &Handle<'_>,
        request: &BlockRequest,
        window: &mut Window,
    ) -> Result<BlockRun>;

    /// Releases the blocks reserved for a file.
    fn release(&self, window: &mut Window);

    /// Frees blocks that are in use.
    ///
    /// # Errors
    /// As [`BlockAlloc::free`](super::BlockAlloc::free).
    fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()>;

    /// Marks blocks as in use. Returns how many clusters were free.
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

    /// Clusters available to `privilege`.
    fn available(&self, privilege: Privilege) -> u64;

    /// Whether an allocation that failed with `NoSpace` may succeed after a commit.
    fn has_pending(&self) -> bool;

    /// Discards free runs of at least `min` clusters from block `first` to `last`. Returns the
    /// number of blocks discarded.
    ///
    /// # Errors
    /// As [`BlockAlloc::trim`](super::BlockAlloc::trim).
    fn trim(&self, first: BlockNo, last: BlockNo, min: u32) -> Result<u64>;
}

/// Makes the replacement allocator for each volume that is opened.
#[cfg(feature = "lab")]
pub trait MakeAllocator: fmt::Debug + Send + Sync {
    /// The allocator over `groups`, with `free` clusters, of which `root` are root's reserve.
    fn make(&self, groups: &Arc<Groups>, free: u64, root: u64) -> Arc<dyn BlockAllocator>;
}

/// The factory of replacement allocators, if there is one.
#[derive(Clone, Debug, Default)]
pub struct AllocatorChoice(#[cfg(feature = "lab")] Option<Arc<dyn MakeAllocator>>);

/// The replacement allocator of a volume, if there is one.
#[derive(Default)]
pub(crate) struct Replacement(#[cfg(feature = "lab")] Option<Arc<dyn BlockAllocator>>);

/// Data of a replacement allocator for one growing file. The lock of the file's [`Window`] guards
/// it.
#[derive(Default)]
pub struct ReplacementState(#[cfg(feature = "lab")] Option<Box<dyn std::any::Any + Send + Sync>>);

impl fmt::Debug for ReplacementState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplacementState")
    }
}

#[cfg(feature = "lab")]
impl AllocatorChoice {
    /// Volumes use the allocators that `make` makes.
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

    /// The data, if there is any.
    pub fn get<T: 'static>(&mut self) -> Option<&mut T> {
        self.0.as_mut().and_then(|kept| kept.downcast_mut())
    }

    /// The data, created if there is none.
    ///
    /// # Panics
    /// If the data has another type.
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
