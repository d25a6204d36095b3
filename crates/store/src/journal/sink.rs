//! Objects that are written into their blocks once a commit.

use crate::Result;
use crate::cache::BlockRef;
use nextent_ondisk::Tid;
use nextent_sync::Arc;

/// An object in memory that is the truth about part of one or more blocks.
///
/// An operation changes the object under the object's own state lock. Before
/// its first change in a transaction it calls [`Handle::join`] for each block
/// and [`Handle::dirty`] once; if the object is still dirty in an older
/// transaction, it first saves that state in the object.
///
/// [`Handle::join`]: super::Handle::join
/// [`Handle::dirty`]: super::Handle::dirty
pub trait Dirty: Send + Sync {
    /// Writes the state as of the end of `tid`: the saved one if there is one,
    /// else the present one. Called by the commit, with no handle of `tid` left
    /// and those of the next transaction running; must not wait for any of them.
    /// Objects of one phase may be rendered at the same time, each once; two that
    /// write into one block keep to their own bytes.
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
    /// After all objects that were marked dirty: what sums them up.
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
    /// Each block in one sink of the commit; its buffer is changed only by renderers until it is
    /// taken.
    blocks: Vec<BlockRef>,
    later: [Vec<Arc<dyn Dirty>>; 2],
}

impl RenderSink {
    pub(super) fn new(tid: Tid) -> Self {
        Self { tid, blocks: Vec::new(), later: [Vec::new(), Vec::new()] }
    }

    /// Changes a rendered block's buffer for this commit.
    ///
    /// The block must have been joined in this transaction (or be within the
    /// overhead every transaction has, as the superblock is), and never be
    /// changed in place through a handle; where a damaged image has it both
    /// ways, the block gets both changes.
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

    /// Renders `obj` in a later phase of this commit. The object sees to it
    /// that it is passed once; its `committed` is called as well.
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

    /// Takes over what another part of the commit collected.
    pub(super) fn absorb(&mut self, other: RenderSink) {
        self.blocks.extend(other.blocks);
        for (own, more) in self.later.iter_mut().zip(other.later) {
            own.extend(more);
        }
    }

    /// The rendered blocks, each once whichever part listed it.
    pub(super) fn into_blocks(self) -> Vec<BlockRef> {
        self.blocks
    }
}
