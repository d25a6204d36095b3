//! Fields and extended attributes of what is added.

use std::collections::BTreeMap;

use nextent_ondisk::inode::mode;
use nextent_ondisk::{BlockNo, Compat, DiskTime, Geometry, Inode, InodeNo, xattr};

use super::super::error::MkfsError;
use super::super::files::new_inode;
use super::super::plan::Plan;
use super::super::room::{Room, What};
use crate::FileType;
use crate::error::Error;
use crate::inode::create::generation;
use crate::xattr::{Laid, lay_out};

/// Attribute blocks that are kept in memory for sharing.
const REMEMBERED: usize = 1024;

/// What a new file has besides its contents.
#[derive(Clone, Copy, Debug)]
pub struct NewAttrs<'a> {
    /// Permission bits (`07777`).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: DiskTime,
    /// Last change of the data.
    pub mtime: DiskTime,
    /// Names that the file may get in all; with more than one it stays open for [`link`].
    ///
    /// [`link`]: super::Filling::link
    pub names: u64,
    /// Extended attributes, full names and values in the form of Linux's calls.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

impl NewAttrs<'_> {
    /// A new inode with these fields.
    pub(super) fn inode(&self, plan: &Plan, ino: InodeNo, kind: FileType) -> Inode {
        let (geometry, clock) = (&plan.geometry, plan.clock);
        let mut inode = new_inode(geometry, clock, kind.mode_bits());
        inode.generation = generation(geometry, ino, 0, clock.seconds);
        self.set(&mut inode);
        inode
    }

    /// Sets the fields.
    pub(super) fn set(&self, inode: &mut Inode) {
        let wide = inode.has_wide_times();
        inode.mode = inode.mode & mode::TYPE | self.mode & mode::PERMISSIONS;
        (inode.uid, inode.gid) = (self.uid, self.gid);
        inode.atime = self.atime.clamped(wide);
        inode.mtime = self.mtime.clamped(wide);
    }

    /// Lays out the extended attributes: what goes to the inode's end, and the block.
    pub(super) fn lay_out(&self, plan: &mut Plan, inode: &Inode) -> (Vec<u8>, Laid) {
        let area = inode.xattr_area(&plan.geometry).unwrap_or_default();
        let (mut tail, kind) = (vec![0; area.len()], inode.file_type());
        if self.xattrs.is_empty() {
            return (Vec::new(), Laid { block: None, refused: Vec::new() });
        }
        if !plan.geometry.features.has(Compat::EXT_ATTR) {
            // The first revision has no way to say that there are attributes.
            if plan.sb.rev_level.get() == 0 {
                let all = 0..self.xattrs.len();
                let refused = all.map(|at| (at, Error::NotSupported)).collect();
                return (Vec::new(), Laid { block: None, refused });
            }
            plan.set_feature(Compat::EXT_ATTR);
        }
        let kind = kind.unwrap_or(FileType::Regular);
        let laid = lay_out(&plan.geometry, kind, self.xattrs, &mut tail);
        (tail, laid)
    }
}

struct Shared {
    block: BlockNo,
    bytes: Vec<u8>,
    count: u32,
}

/// Blocks of attributes that are not written, by hash: more inodes may come to use them.
#[derive(Default)]
pub(super) struct SharedBlocks {
    known: BTreeMap<u32, Shared>,
}

impl SharedBlocks {
    /// Gives `inode` a block of attributes: one that is known, or a new one. Blocks that no more
    /// inodes will use go to the blocks of `room`.
    pub(super) fn give(
        &mut self,
        room: &mut Room<'_>,
        goal: u64,
        (bytes, hash): (Vec<u8>, u32),
        inode: &mut Inode,
    ) -> std::result::Result<(), MkfsError> {
        let geometry = room.geometry;
        let sectors = inode.sectors(geometry) + u64::from(geometry.block_size / 512);
        let known = self.known.get_mut(&hash);
        let known = known.filter(|known| known.bytes == bytes && known.count < xattr::MAX_REFCOUNT);
        inode.file_acl = match known {
            Some(known) => {
                known.count += 1;
                known.block
            }
            None => {
                let block = room.take_block(room.next(goal), What::Block("attributes"))?;
                let shared = Shared { block, bytes, count: 1 };
                let left = match hash {
                    0 => Some(shared),
                    _ => self.known.insert(hash, shared),
                };
                let more = (self.known.len() > REMEMBERED).then(|| self.known.pop_first());
                let more = more.flatten().map(|(_, shared)| shared);
                let done = left.into_iter().chain(more).map(|shared| shared.render(geometry));
                room.blocks.extend(done);
                block
            }
        };
        Ok(inode.set_sectors(geometry, sectors)?)
    }

    /// All attribute blocks that are not written yet.
    pub(super) fn drain(&mut self, geometry: &Geometry) -> Vec<(BlockNo, Vec<u8>)> {
        let known = std::mem::take(&mut self.known);
        known.into_values().map(|shared| shared.render(geometry)).collect()
    }
}

impl Shared {
    fn render(mut self, geometry: &Geometry) -> (BlockNo, Vec<u8>) {
        xattr::set_refcount(&mut self.bytes, self.count);
        if geometry.features.metadata_csum() {
            xattr::seal(geometry.csum_seed, self.block, &mut self.bytes);
        }
        (self.block, self.bytes)
    }
}
