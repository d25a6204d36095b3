//! The block allocators of ext3 and ext4.
//!
//! Invariants, whatever the design: those of the seam
//! ([`BlockAllocator`](nextent::lab_seams::alloc::BlockAllocator)); and the same locks are taken
//! around the same data on the same path as in the original. The one exception is the original's
//! own: as many threads as check the reserve of 2003 at once may pass the check.
//!
//! What is not historical is kept off the hot path. Bitmaps reach the journal by `Dirty`, as those
//! of the regions do, so an operation only notes its first change of a group in a transaction.
//!
//! | module | one job |
//! |---|---|
//! | `front` | the seam's verbs on blocks, cut into groups |
//! | `place` | blocks to groups and clusters and back |
//! | `space` | how much is free, and who may take it |
//! | `ext3`, `bits` | the designs that search bitmaps, and their groups |
//! | `mballoc`, `take` | the designs with a buddy for each group: what they share; their verbs |
//! | `group`, `chunks` | a group's state and the hashed locks; its buddy |
//! | `scan`, `orders`, `goal` | which group; groups by order; where large files go on |
//! | `freed`, `prealloc` | what waits for a commit; what is set aside for files |

mod bits;
mod chunks;
mod ext3;
mod freed;
mod front;
mod goal;
mod group;
mod locks;
mod mballoc;
mod orders;
mod place;
mod prealloc;
mod scan;
mod space;
mod take;

use crate::design::Design;
use nextent::lab_seams::alloc::{
    BlockAllocator, BlockKind, Groups, MakeAllocator, Privilege, Result, Window, buddy::Run,
};
use nextent_ondisk::{GroupNo, InodeNo};
use nextent_store::Handle;
use nextent_sync::Arc;
use place::Place;

/// Makes the allocator of a design.
#[derive(Debug)]
pub(crate) struct Maker(pub(crate) Design);

impl MakeAllocator for Maker {
    fn make(&self, groups: &Arc<Groups>, free: u64, root: u64) -> Arc<dyn BlockAllocator> {
        Arc::new(front::Front::new(groups, &self.0, free, root))
    }
}

/// What is wanted, in clusters.
struct Wish<'w> {
    want: u32,
    min: u32,
    goal: Option<Place>,
    kind: BlockKind,
    privilege: Privilege,
    ino: InodeNo,
    /// The growing file that asks.
    file: Option<&'w mut Window>,
}

/// What was found: a group, and clusters in it.
type Found = (GroupNo, Run);

/// A family of designs: everything about clusters in groups. Ranges given to it lie in one group.
trait Allocator: Send + Sync {
    /// Takes `min` to `want` clusters; nothing if there is no room.
    fn take(&self, h: &Handle<'_>, wish: Wish<'_>) -> Result<Option<Found>>;

    /// Gives back what is set aside for a file.
    fn release(&self, file: &mut Window);

    /// Frees clusters, or names the first that is free already; nothing is freed then.
    fn free(&self, h: &Handle<'_>, group: GroupNo, run: Run) -> Result<Result<(), u32>>;

    /// Puts clusters in use, free or not; says how many were free.
    fn mark_used(&self, h: &Handle<'_>, group: GroupNo, run: Run) -> Result<u32>;

    /// Whether none of the clusters is in use.
    fn is_free(&self, group: GroupNo, run: Run) -> Result<bool>;

    /// Whether freed clusters wait for a commit.
    fn has_pending(&self) -> bool;

    /// The counts of free clusters.
    fn space(&self) -> &space::Space;

    /// Sets the next free run of at least `min` clusters in `[from, to)` aside for trimming. One
    /// trim a group at a time; nothing for the second.
    fn start_trim(&self, group: GroupNo, from: u32, to: u32, min: u32) -> Result<Option<Run>>;

    /// Gives back what [`Self::start_trim`] set aside.
    fn end_trim(&self, group: GroupNo);
}
