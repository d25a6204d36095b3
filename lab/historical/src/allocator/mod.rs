//! The block allocators of ext3 and ext4.
//!
//! Invariants of all designs:
//!
//! - those of the seam ([`BlockAllocator`](nextent::lab_seams::alloc::BlockAllocator)), except that
//!   concurrent threads may exceed the reserve of 2003, as in the original;
//! - each path takes the locks of the original around the same data.
//!
//! Other code is not on the hot path. Bitmaps reach the journal by `Dirty`, as those of regions do,
//! so an operation only records its first change of a group in a transaction.
//!
//! | module | contents |
//! |---|---|
//! | `adapter` | the seam's operations on blocks, divided into groups |
//! | `group_pos` | conversion between blocks and clusters of groups |
//! | `space` | counts of free clusters, and claims |
//! | `ext3`, `bits` | the designs that search bitmaps, and their groups |
//! | `mballoc`, `mballoc_ops` | the designs with a buddy for each group: shared state; operations |
//! | `group`, `chunks` | a group's state and the hashed locks; its buddy |
//! | `scan`, `orders`, `goal` | the search; groups by order; the goal of large files |
//! | `freed`, `prealloc` | freed runs that wait for a commit; preallocation for files |

mod adapter;
mod bits;
mod chunks;
mod ext3;
mod freed;
mod goal;
mod group;
mod group_pos;
mod locks;
mod mballoc;
mod mballoc_ops;
mod orders;
mod prealloc;
mod scan;
mod space;

use crate::design::Design;
use group_pos::GroupPos;
use nextent::lab_seams::alloc::{
    BlockAllocator, BlockKind, Groups, MakeAllocator, Privilege, Result, Window, buddy::Run,
};
use nextent_ondisk::{GroupNo, InodeNo};
use nextent_store::Handle;
use nextent_sync::Arc;

/// Makes the allocator of a design.
#[derive(Debug)]
pub(crate) struct Maker(pub(crate) Design);

impl MakeAllocator for Maker {
    fn make(&self, groups: &Arc<Groups>, free: u64, root: u64) -> Arc<dyn BlockAllocator> {
        Arc::new(adapter::Adapter::new(groups, &self.0, free, root))
    }
}

/// A request, in clusters.
struct ClusterRequest<'w> {
    want: u32,
    min: u32,
    goal: Option<GroupPos>,
    kind: BlockKind,
    privilege: Privilege,
    ino: InodeNo,
    /// The growing file that requests them.
    file: Option<&'w mut Window>,
}

/// Allocated clusters: a group, and a run in it.
type Found = (GroupNo, Run);

/// An allocator of clusters in groups. Each range is within one group.
trait Allocator: Send + Sync {
    /// Allocates `min` to `want` clusters. `None` if there is no space.
    fn take(&self, h: &Handle<'_>, request: ClusterRequest<'_>) -> Result<Option<Found>>;

    /// Releases the preallocation of a file.
    fn release(&self, file: &mut Window);

    /// Frees clusters. If one is free already, returns the first such and frees none.
    fn free(&self, h: &Handle<'_>, group: GroupNo, run: Run) -> Result<Result<(), u32>>;

    /// Marks clusters as used, free or not. Returns how many were free.
    fn mark_used(&self, h: &Handle<'_>, group: GroupNo, run: Run) -> Result<u32>;

    /// Whether none of the clusters is in use.
    fn is_free(&self, group: GroupNo, run: Run) -> Result<bool>;

    /// Whether freed clusters wait for a commit.
    fn has_pending(&self) -> bool;

    /// The counts of free clusters.
    fn space(&self) -> &space::Space;

    /// Reserves the next free run of at least `min` clusters in `[from, to)` for a trim. `None`
    /// while another trim of the group runs.
    fn start_trim(&self, group: GroupNo, from: u32, to: u32, min: u32) -> Result<Option<Run>>;

    /// Releases the run that [`Self::start_trim`] reserved.
    fn end_trim(&self, group: GroupNo);
}
