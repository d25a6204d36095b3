//! Objects that a commit renders into their blocks.

use crate::Result;
use crate::cache::BlockRef;
use nextent_ondisk::Tid;
use nextent_sync::Arc;

/// An object in memory that is authoritative for parts of one or more blocks.
///
/// An operation changes the object under the object's own state lock. Before its first change in a
/// transaction it calls [`Handle::join`] for each block and [`Handle::dirty`] once. If the object
/// is still dirty in an older transaction, the operation first saves the older state in the object.
///
/// [`Handle::join`]: super::Handle::join
/// [`Handle::dirty`]: super::Handle::dirty
pub trait Dirty: Send + Sync {
    /// Writes the state as of the end of `tid`: the saved one if there is one, else the present
    /// one.
    ///
    /// The committer calls this while no handle of `tid` is left and handles of the next
    /// transaction run; it must not wait for any of them. Objects of one phase may be rendered at
    /// the same time, each once. Objects that write into one block write to disjoint bytes.
    ///
    /// # Errors
    ///
    /// Any error aborts the journal.
    fn render(&self, tid: Tid, out: &mut RenderSink) -> Result<()>;

    /// `tid` is durable. Called once for each `dirty`, in no order.
    fn committed(&self, _tid: Tid) {}
}

/// When an object is rendered within a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// After all objects that handles marked dirty: objects that sum those up.
    Group,
    /// After all groups.
    Super,
}

impl Phase {
    const fn index(self) -> usize {
        match self {
            Self::Group => 0,
            Self::Super => 1,
        }
    }
}

/// Collects the blocks that a commit renders.
pub struct RenderSink {
    tid: Tid,
    /// A block is in one sink of the commit only. Until its image is taken, only renderers change
    /// it.
    blocks: Vec<BlockRef>,
    later: [Vec<Arc<dyn Dirty>>; 2],
}

impl RenderSink {
    pub(super) fn new(tid: Tid) -> Self {
        Self { tid, blocks: Vec::new(), later: [Vec::new(), Vec::new()] }
    }

    /// Changes a rendered block's buffer for this commit.
    ///
    /// The block was joined in this transaction, or is within the overhead of every transaction, as
    /// the superblock is. A handle never changes it in place; where a damaged image has a block in
    /// both roles, the block gets both changes.
    pub fn patch<R>(&mut self, block: &BlockRef, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut marks = block.lock();
        let done = f(marks.data.make_mut());
        if marks.listed != Some(self.tid) {
            marks.listed = Some(self.tid);
            drop(marks);
            self.blocks.push(block.clone());
        }
        done
    }

    /// Renders `obj` in a later phase of this commit, and calls its `committed`. Each object is
    /// passed once in a commit.
    pub fn later(&mut self, phase: Phase, obj: Arc<dyn Dirty>) {
        self.later[phase.index()].push(obj);
    }

    /// The transaction being rendered.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    pub(super) fn take_later(&mut self, phase: Phase) -> Vec<Arc<dyn Dirty>> {
        std::mem::take(&mut self.later[phase.index()])
    }

    /// Takes over the blocks and objects that another sink of the commit collected.
    pub(super) fn absorb(&mut self, other: RenderSink) {
        self.blocks.extend(other.blocks);
        for (own, more) in self.later.iter_mut().zip(other.later) {
            own.extend(more);
        }
    }

    /// The rendered blocks, each once.
    pub(super) fn into_blocks(self) -> Vec<BlockRef> {
        self.blocks
    }
}
