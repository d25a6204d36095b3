//! Finds the metadata of inodes that has checksums, for callers that compute these anew.
//!
//! The volume must be consistent: the walk trusts what it reads, and ends at the first damage.

use nextent_device::BlockDevice;
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::inode::flags;
use nextent_ondisk::{
    BlockNo, Compat, Corrupt, FileType, Geometry, GroupDesc, GroupNo, Inode, InodeNo, Structure,
    Superblock,
};
use nextent_sync::Arc;

use super::image::{Image, READ};
use super::walk::{self, Go, Part, Visitor};
use super::{CheckOptions, open, orphans};
use crate::error::{Error, Result};

/// What a block is, and so how its checksum is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checksummed {
    /// A block of an inode table; the number is that of its first inode. So many inodes may have
    /// been in use.
    Inodes(InodeNo, u32),
    /// A node of an extent tree.
    ExtentNode(InodeNo, Generation),
    /// A block of a directory.
    Directory(InodeNo, Generation),
    /// A block of the orphan file.
    OrphanFile(InodeNo, Generation),
    /// A block of extended attributes. Inodes share it, so it may come more than once.
    Attributes,
}

/// The generation of an inode.
pub(crate) type Generation = u32;

/// Receives each block.
type Each<'a> = &'a mut dyn FnMut(BlockNo, Checksummed, Vec<u8>) -> Result<()>;

/// The metadata of a volume.
pub(crate) struct InodeMetadata(Image);

impl InodeMetadata {
    /// The metadata of the volume on `device`, whose log is empty.
    pub(crate) fn of(device: &Arc<dyn BlockDevice>) -> Result<Self> {
        let options = CheckOptions { limit: 1, ..CheckOptions::default() };
        open::bare(Arc::clone(device), &options).map(Self)
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.0.geo
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        &self.0.sb
    }

    /// Calls `each` with every block.
    pub(crate) fn each(&self, each: Each<'_>) -> Result<()> {
        for group in self.0.geo.groups() {
            let desc = self.0.desc(1, group).ok_or_else(|| damaged(InodeNo(0)))?;
            desc.check(&self.0.geo, group)?;
            self.group(group, &desc, each)?;
        }
        Ok(())
    }

    /// One block's bytes.
    pub(crate) fn block(&self, no: BlockNo) -> Result<Vec<u8>> {
        self.0.block(1, no).ok_or_else(|| damaged(InodeNo(0)))
    }

    /// The contents of a value of an attribute that is an inode of its own.
    pub(crate) fn value(&self, ino: InodeNo, inode: &Inode) -> Result<Vec<u8>> {
        let geo = &self.0.geo;
        let mut value = Vec::new();
        for run in self.runs(ino, inode)? {
            value.resize(to_usize(u64::from(run.block.0)) << geo.block_bits, 0);
            for no in run.start.0..run.start.0 + u64::from(run.len) {
                value.extend(self.block(BlockNo(no))?);
            }
        }
        value.resize(to_usize(inode.size), 0);
        Ok(value)
    }

    /// An inode.
    pub(crate) fn inode(&self, ino: InodeNo) -> Result<Inode> {
        self.0.inode(1, ino).map(|(inode, _)| inode).ok_or_else(|| damaged(ino))
    }

    fn runs(&self, ino: InodeNo, inode: &Inode) -> Result<Vec<nextent_ondisk::extent::Extent>> {
        let runs = walk::runs(&self.0, 1, ino, inode);
        if runs.damaged { Err(damaged(ino)) } else { Ok(runs.runs) }
    }

    fn group(&self, group: GroupNo, desc: &GroupDesc, each: Each<'_>) -> Result<()> {
        let geo = &self.0.geo;
        let touched = desc.inodes_touched(geo);
        let blocks = touched.div_ceil(geo.inodes_per_block);
        let step: u32 = must_fit((READ / geo.block_len()).max(1));
        for first in (0..blocks).step_by(to_usize(step)) {
            let len = step.min(blocks - first);
            let start = BlockNo(desc.inode_table.0 + u64::from(first));
            if self.0.is_hole(start, len.into()) {
                continue;
            }
            let mut bytes = vec![0; to_usize(len) * geo.block_len()];
            if !self.0.read(1, start, &mut bytes) {
                return Err(damaged(InodeNo(0)));
            }
            for (at, block) in (first..).zip(bytes.chunks_exact(geo.block_len())) {
                let index = at * geo.inodes_per_block;
                let count = geo.inodes_per_block.min(touched - index);
                let no = BlockNo(desc.inode_table.0 + u64::from(at));
                let first = geo.inode_at(group, index);
                self.inodes(first, count, block, each)?;
                each(no, Checksummed::Inodes(first, count), block.to_vec())?;
            }
        }
        Ok(())
    }

    /// The blocks of the inodes in one block of a table.
    fn inodes(&self, first: InodeNo, count: u32, block: &[u8], each: Each<'_>) -> Result<()> {
        let raws = block.chunks_exact(usize::from(self.0.geo.inode_size));
        for (ino, raw) in (first.0..first.0 + count).map(InodeNo).zip(raws) {
            // The check found no inode in use that cannot be decoded.
            if let Ok(inode) = Inode::read(&self.0.geo, raw)
                && inode.links > 0
            {
                self.blocks(ino, &inode, each)?;
            }
        }
        Ok(())
    }

    /// The blocks of one inode.
    fn blocks(&self, ino: InodeNo, inode: &Inode, each: Each<'_>) -> Result<()> {
        let (image, geo) = (&self.0, &self.0.geo);
        if inode.file_acl.0 != 0 {
            each(inode.file_acl, Checksummed::Attributes, self.block(inode.file_acl)?)?;
        }
        if inode.has_flag(flags::INLINE_DATA) {
            return Ok(());
        }
        if inode.has_flag(flags::EXTENTS) {
            let mut nodes = Nodes { nodes: Vec::new(), damaged: false };
            walk::walk(image, 1, ino, inode, &mut nodes);
            if nodes.damaged {
                return Err(damaged(ino));
            }
            for no in nodes.nodes {
                each(no, Checksummed::ExtentNode(ino, inode.generation), self.block(no)?)?;
            }
        }
        let names_orphans =
            geo.features.has(Compat::ORPHAN_FILE) && ino.0 == image.sb.orphan_file_inum.get();
        if names_orphans {
            for no in orphans::blocks_of_file(image, 1, ino, inode) {
                each(no, Checksummed::OrphanFile(ino, inode.generation), self.block(no)?)?;
            }
        } else if inode.file_type() == Some(FileType::Directory) {
            let end = inode.size >> geo.block_bits;
            for run in self.runs(ino, inode)? {
                let len = end.saturating_sub(run.block.0.into()).min(run.len.into());
                for no in (run.start.0..run.start.0 + len).map(BlockNo) {
                    each(no, Checksummed::Directory(ino, inode.generation), self.block(no)?)?;
                }
            }
        }
        Ok(())
    }
}

/// The nodes of a block map.
struct Nodes {
    nodes: Vec<BlockNo>,
    damaged: bool,
}

impl Visitor for Nodes {
    fn part(&mut self, part: Part) -> Go {
        if let Part::Node(no) = part {
            self.nodes.push(no);
        }
        Go::On
    }

    fn wrong(&mut self, _: super::Problem) {
        self.damaged = true;
    }
}

/// The error of a volume that changed since it was checked, or that cannot be read.
fn damaged(ino: InodeNo) -> Error {
    let error = Corrupt::rule(Structure::Inode, "metadata cannot be read, or changed meanwhile");
    if ino.0 == 0 { error.into() } else { error.at_inode(ino).into() }
}
