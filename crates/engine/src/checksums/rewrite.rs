//! Computes the checksums of single blocks anew.

use nextent_ondisk::group_desc::{self, flags as group_flags};
use nextent_ondisk::inode::{self as format, Inode, flags};
use nextent_ondisk::xattr::{self, Value};
use nextent_ondisk::{
    BlockNo, Geometry, GroupDesc, GroupNo, Incompat, InodeNo, bitmap, dirent, extent, htree, orphan,
};

use super::images::Images;
use crate::check::{Checksummed, InodeMetadata};
use crate::error::{Error, Result};

/// A volume whose checksums get another seed.
pub(super) struct Rewrite<'v> {
    /// The volume as it is.
    pub(super) metadata: &'v InodeMetadata,
    /// The geometry with the new seed.
    pub(super) new: &'v Geometry,
}

impl Rewrite<'_> {
    fn old(&self) -> &Geometry {
        self.metadata.geometry()
    }

    /// Changes the checksums of bitmaps and descriptors.
    pub(super) fn descriptors(&self, images: &mut Images<'_>) -> Result<()> {
        let size = usize::from(self.new.desc_size);
        for index in 0..self.new.gdt_blocks() {
            let no = self.new.gdt_block(index);
            let mut bytes = self.metadata.block(no)?;
            let first = index * self.new.descs_per_block;
            let groups = (first..self.new.group_count).map(GroupNo);
            for (group, raw) in groups.zip(bytes.chunks_exact_mut(size)) {
                if self.new.features.metadata_csum() {
                    let mut desc = GroupDesc::read(raw)?;
                    self.bitmaps(group, &mut desc)?;
                    desc.write(raw);
                }
                group_desc::seal(self.new, group, raw);
            }
            images.put_early(no, bytes)?;
        }
        Ok(())
    }

    /// Changes the checksums of bitmaps. A bitmap that is not initialized need not have one.
    fn bitmaps(&self, group: GroupNo, desc: &mut GroupDesc) -> Result<()> {
        let (old, new) = (self.old(), self.new);
        let blocks = self.metadata.block(desc.block_bitmap)?;
        match bitmap::verify_block_bitmap(old, group, desc, &blocks) {
            Ok(()) => desc.block_bitmap_csum = bitmap::block_checksum(new, &blocks),
            Err(_) if desc.has_flag(&old.features, group_flags::BLOCK_UNINIT) => {}
            Err(error) => return Err(error.into()),
        }
        let inodes = self.metadata.block(desc.inode_bitmap)?;
        match bitmap::verify_inode_bitmap(old, group, desc, &inodes) {
            Ok(()) => desc.inode_bitmap_csum = bitmap::inode_checksum(new, &inodes),
            Err(_) if desc.has_flag(&old.features, group_flags::INODE_UNINIT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Changes the checksums in one block.
    pub(super) fn block(
        &self,
        no: BlockNo,
        kind: Checksummed,
        mut bytes: Vec<u8>,
        images: &mut Images<'_>,
    ) -> Result<()> {
        let seed = |ino, generation| format::csum_seed(self.new, ino, generation);
        let has_sums = self.new.features.metadata_csum();
        let journal = InodeNo(self.metadata.superblock().journal_inum.get());
        let mut is_early = false;
        match kind {
            Checksummed::Inodes(first, count) => {
                is_early = (first.0..first.0 + count).contains(&journal.0);
                self.inodes(first, count, &mut bytes)?;
            }
            Checksummed::Attributes => {
                self.hashes(&mut bytes, None)?;
                if has_sums {
                    xattr::seal(self.new.csum_seed, no, &mut bytes);
                }
            }
            Checksummed::ExtentNode(ino, generation) if has_sums => {
                if ino == journal {
                    let text = "new checksums where the map of the journal has nodes of its own";
                    return Err(Error::unsupported(text));
                }
                extent::seal(seed(ino, generation), no, &mut bytes);
            }
            Checksummed::Directory(ino, generation) if has_sums => {
                let seed = seed(ino, generation);
                match dirent::has_tail(&bytes) {
                    true => dirent::seal(seed, no, &mut bytes),
                    false => htree::seal(seed, no, &mut bytes),
                }
            }
            Checksummed::OrphanFile(ino, generation) if has_sums => {
                orphan::seal(seed(ino, generation), no, &mut bytes);
            }
            _ => return Ok(()),
        }
        match is_early {
            true => images.put_early(no, bytes),
            false => images.put(no, bytes),
        }
    }

    /// Changes the checksums of the first `count` inodes of a block.
    fn inodes(&self, first: InodeNo, count: u32, bytes: &mut [u8]) -> Result<()> {
        let raws = bytes.chunks_exact_mut(usize::from(self.new.inode_size));
        for (ino, raw) in (first.0..first.0 + count).map(InodeNo).zip(raws) {
            if raw.iter().all(|byte| *byte == 0) {
                continue;
            }
            if self.new.features.has(Incompat::EA_INODE) {
                self.values(ino, raw)?;
            }
            format::seal(self.new, ino, raw);
        }
        Ok(())
    }

    /// Changes the hash of the value that an inode holds, and those of the attributes in it.
    fn values(&self, ino: InodeNo, raw: &mut [u8]) -> Result<()> {
        let Ok(inode) = Inode::read(self.new, raw) else { return Ok(()) };
        if inode.links == 0 {
            return Ok(());
        }
        if inode.has_flag(flags::EA_INODE)
            && let Some((_, hash)) = self.value_hashes(ino, &inode)?
        {
            format::set_value_hash(raw, hash);
        }
        match inode.xattr_area(self.new) {
            Some(area) => self.hashes(&mut raw[area], Some(ino)),
            None => Ok(()),
        }
    }

    /// The old and the new hash of the value in an inode. None if its hash is not computed from
    /// the seed, as Lustre's are not.
    fn value_hashes(&self, ino: InodeNo, inode: &Inode) -> Result<Option<(u32, u32)>> {
        let value = self.metadata.value(ino, inode)?;
        let old = xattr::value_hash(self.old(), &value);
        let new = xattr::value_hash(self.new, &value);
        Ok((old == format::value_hash(inode)).then_some((old, new)))
    }

    /// Changes the hashes of attributes whose values are inodes of their own, in the area of an
    /// inode or in a block.
    fn hashes(&self, area: &mut [u8], ino: Option<InodeNo>) -> Result<()> {
        if !self.new.features.has(Incompat::EA_INODE) {
            return Ok(());
        }
        let entries: Vec<_> = match ino {
            Some(_) => xattr::in_inode(self.new, area)?.collect(),
            None => xattr::in_block(self.new, area)?.1.collect(),
        };
        let mut new = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let Value::Inode(value, _) = entry.value else { continue };
            let inode = self.metadata.inode(value)?;
            let Some((before, after)) = self.value_hashes(value, &inode)? else { continue };
            let signed = |hash| xattr::signed_foreign_entry_hash(entry.name, hash);
            let hash = match signed(before) == entry.hash {
                true => signed(after),
                false => xattr::foreign_entry_hash(entry.name, after),
            };
            new.push((at, hash));
        }
        xattr::set_hashes(area, ino.is_some(), &new);
        Ok(())
    }
}
