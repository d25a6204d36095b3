//! A new volume filled before it is written: [`Filling`].
//!
//! It needs no journal, cache or allocator: the caller knows all names of a directory before the
//! first block is rendered, and all of a file before the inode is. Inode numbers and blocks are
//! allocated in the order of the calls, first free first, and each block of the volume is rendered
//! and written once. So the volume depends only on the plan and the calls, not on the threads that
//! write the bytes of files ([`FillBytes`]).
//!
//! | file | job |
//! |---|---|
//! | `add` | inodes: numbers, fields, blocks; undone when space runs out |
//! | `directory` | opening and closing directories: their blocks |
//! | `attributes` | fields and extended attributes, blocks of which are shared |
//! | `bytes` | files' bytes, from any thread |
//!
//! Invariants: a call that fails has changed nothing, so an image is valid whatever was left out.
//! Until [`Filling::finish`] the device holds no file system.

mod add;
mod attributes;
mod bytes;
mod directory;

pub use add::{Added, Contents};
pub use attributes::NewAttrs;
pub use bytes::FillBytes;
pub use directory::OpenDir;

use std::collections::BTreeMap;
use std::fmt;

use nextent_device::BlockDevice;
use nextent_ondisk::numbers::ROOT_INO;
use nextent_ondisk::{BlockNo, Inode, InodeNo};

use self::attributes::SharedBlocks;
use super::error::MkfsError;
use super::fit::Needs;
use super::plan::Plan;
use super::tables::Tables;
use super::write::Out;
use crate::dir::IndexInfo;
use crate::error::Result;

/// An unfinished inode.
struct Record {
    inode: Inode,
    /// The attributes inside it.
    tail: Vec<u8>,
}

/// A directory that is not written.
struct Pending {
    record: Record,
    parent: InodeNo,
    blocks: Vec<BlockNo>,
}

/// A file that may get more names.
struct Named {
    record: Record,
    /// Names it has in all, if all of them come.
    names: u64,
}

/// A new volume that is being filled. One thread makes names and allocates; any threads write the
/// bytes of files ([`FillBytes`]).
pub struct Filling<'d> {
    plan: Plan,
    out: Out<'d>,
    tables: Tables,
    tables_zeroed: bool,
    /// Where the search for a free block starts.
    goal: u64,
    index: Option<IndexInfo>,
    pending: BTreeMap<InodeNo, Pending>,
    named: BTreeMap<InodeNo, Named>,
    shared: SharedBlocks,
    /// A file has several extents.
    split: bool,
    /// Only counts: inodes and directories are not rendered.
    pub(super) measures: bool,
    /// Rendered and not written.
    rendered: Vec<(BlockNo, Vec<u8>)>,
}

impl fmt::Debug for Filling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filling").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl<'d> Filling<'d> {
    /// Clears the device for the volume that `plan` describes.
    ///
    /// # Errors
    ///
    /// An error of the device, or one that is smaller than the plan.
    pub fn new(
        mut plan: Plan,
        device: &'d dyn BlockDevice,
    ) -> std::result::Result<Self, MkfsError> {
        let out = Out::new(device, plan.geometry.block_bits);
        let tables_zeroed = plan.begin(&out)?;
        let mut tables = Tables::new(&plan.geometry);
        let mut pending = BTreeMap::new();
        for (ino, blocks) in std::mem::take(&mut plan.directories) {
            plan.blocks.retain(|(block, _)| !blocks.contains(block));
            let at = plan.inodes.iter().position(|(other, _)| *other == ino);
            let Some(at) = at else { continue };
            let (_, inode) = plan.inodes.remove(at);
            let record = Record { inode, tail: Vec::new() };
            pending.insert(ino, Pending { record, parent: ROOT_INO, blocks });
        }
        let made = |ino: InodeNo| pending.contains_key(&ino);
        plan.put_inodes(&out, &mut tables, &made)?;
        let (index, goal) = (IndexInfo::of(&plan.sb), plan.geometry.first_data_block.0);
        let (named, shared, rendered) = (BTreeMap::new(), SharedBlocks::default(), Vec::new());
        Ok(Self {
            plan,
            out,
            tables,
            tables_zeroed,
            goal,
            index,
            pending,
            named,
            shared,
            split: false,
            measures: false,
            rendered,
        })
    }

    /// The volume's root, empty but for `lost+found`.
    #[must_use]
    pub fn root(&self) -> InodeNo {
        ROOT_INO
    }

    /// Writes files' bytes, from any thread.
    #[must_use]
    pub fn bytes(&self) -> FillBytes<'d> {
        FillBytes::new(self.out.clone(), self.plan.geometry.block_size)
    }

    /// Takes the metadata blocks rendered so far: offsets in bytes, and contents. The caller writes
    /// them with [`FillBytes::write_blocks`]; blocks that are not taken are written at the end.
    /// Taking them now and then bounds memory, and the allocating thread need not wait for the
    /// device.
    #[must_use]
    pub fn take_rendered(&mut self) -> Vec<(u64, Vec<u8>)> {
        let bits = self.plan.geometry.block_bits;
        let rendered = std::mem::take(&mut self.rendered).into_iter();
        rendered.map(|(block, bytes)| (block.0 << bits, bytes)).collect()
    }

    /// The blocks and inodes of what was added so far.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let (plan, geometry) = (&self.plan, &self.plan.geometry);
        let (first, end) = (geometry.first_data_block.0, geometry.blocks_count);
        // The superblock has the counts of the empty volume.
        let free = end - first - plan.space.count_in(first, end);
        let free_inodes = geometry.inodes_count - plan.highest_inode;
        Needs {
            blocks: plan.sb.free_blocks_count() - free,
            inodes: u64::from(plan.sb.free_inodes_count.get() - free_inodes),
            split: self.split,
        }
    }

    /// Writes all that is not written; directories that were not opened are empty. All bytes must
    /// have been written before. Returns the plan with the counts of what is free now.
    ///
    /// # Errors
    ///
    /// An error of the device.
    pub fn finish(mut self) -> Result<Plan> {
        while let Some((&ino, _)) = self.pending.first_key_value() {
            let dir = self.open_dir(ino, Vec::new())?;
            self.close_dir(dir)?;
        }
        for (ino, named) in std::mem::take(&mut self.named) {
            self.put(ino, &named.record)?;
        }
        self.rendered.extend(self.shared.drain(&self.plan.geometry));
        for (block, bytes) in std::mem::take(&mut self.rendered) {
            self.out.put("writing a file's blocks", block, &bytes)?;
        }
        self.plan.count_free();
        self.plan.end(&self.out, &mut self.tables, self.tables_zeroed)?;
        Ok(self.plan)
    }

    /// Hands a final inode to its table.
    fn put(&mut self, ino: InodeNo, record: &Record) -> Result<()> {
        if self.measures {
            return Ok(());
        }
        let places = (&self.plan.geometry, self.plan.places.as_slice());
        let full = self.tables.put(places, ino, Some(&record.inode), &record.tail)?;
        self.rendered.extend(full);
        Ok(())
    }
}
