//! The places that name inodes: entries of directories, and attributes whose values are inodes.
//!
//! One scan of the volume finds the places that name inodes which get other numbers. A place is
//! changed when its inode moves; by then the directory that it belongs to may have moved too.

use std::ops::Range;

use nextent_ondisk::dirent::{self, Entries};
use nextent_ondisk::inode::{BLOCK_AREA, BLOCK_AREA_AT, Inode, flags};
use nextent_ondisk::xattr::{self, Value};
use nextent_ondisk::{BlockNo, Corrupt, DiskTime, FileType, GroupNo, Incompat, InodeNo, Structure};
use nextent_sync::{HashMap, HashSet};

use super::volume::Volume;
use crate::dir::{DirInfo, check_block, seal_of};
use crate::error::Result;

/// Bytes of the parent's number at the start of a directory's inline data.
const PARENT: usize = 4;

/// The new numbers of inodes that moved, by the old ones.
#[derive(Debug, Default)]
pub(super) struct NewNumbers(HashMap<u32, u32>);

impl NewNumbers {
    /// Notes that an inode moved.
    pub(super) fn add(&mut self, from: InodeNo, to: InodeNo) {
        self.0.insert(from.0, to.0);
    }

    fn current(&self, old: u32) -> InodeNo {
        InodeNo(self.0.get(&old).copied().unwrap_or(old))
    }
}

/// A place that names an inode, perhaps several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference {
    /// The inode's old number.
    target: u32,
    /// The old number of the inode that the place belongs to; 0 for a block of attributes, which
    /// several inodes may share.
    owner: u32,
    /// The block; 0 for the bytes of the owner.
    block: u64,
}

impl Reference {
    /// Whether the place is a block of attributes.
    #[cfg(test)]
    pub(super) fn is_shared(&self) -> bool {
        self.owner == 0
    }
}

/// All places that name inodes with numbers above a limit, by these numbers. The blocks of a
/// directory that moves are not places of its own number: they get new checksums with it.
#[derive(Debug, Default)]
pub(super) struct References(Vec<Reference>);

impl References {
    /// The places that name an inode.
    pub(super) fn of(&self, ino: InodeNo) -> &[Reference] {
        let start = self.0.partition_point(|place| place.target < ino.0);
        let len = self.0[start..].partition_point(|place| place.target == ino.0);
        &self.0[start..start + len]
    }
}

/// The state of a scan.
struct Scan {
    limit: u32,
    found: Vec<Reference>,
    /// Blocks of attributes that were scanned.
    shared: HashSet<BlockNo>,
}

impl Scan {
    fn add(&mut self, target: InodeNo, owner: InodeNo, block: BlockNo) {
        let place = Reference { target: target.0, owner: owner.0, block: block.0 };
        if target.0 > self.limit && self.found.last() != Some(&place) {
            self.found.push(place);
        }
    }

    fn values(&mut self, entries: xattr::Entries<'_>, owner: InodeNo, block: BlockNo) {
        for entry in entries {
            if let Value::Inode(value, _) = entry.value {
                self.add(value, owner, block);
            }
        }
    }
}

impl Volume {
    /// Finds the places that name inodes above `limit`.
    pub(super) fn find_references(&mut self, limit: u32) -> Result<References> {
        let mut scan = Scan { limit, found: Vec::new(), shared: HashSet::default() };
        for group in self.geo.groups() {
            self.scan_group(group, &mut scan)?;
        }
        let mut found = scan.found;
        found.sort_unstable();
        found.dedup();
        Ok(References(found))
    }

    fn scan_group(&mut self, group: GroupNo, scan: &mut Scan) -> Result<()> {
        let attributes = self.geo.features.has(Incompat::EA_INODE);
        for ino in self.used_inodes(group)? {
            let (inode, raw) = self.inode(ino)?;
            if inode.file_type() == Some(FileType::Directory) {
                self.scan_directory(ino, &inode, &raw, scan)?;
            }
            if attributes {
                self.scan_attributes(ino, &inode, &raw, scan)?;
            }
        }
        Ok(())
    }

    fn scan_directory(
        &self,
        ino: InodeNo,
        inode: &Inode,
        raw: &[u8],
        scan: &mut Scan,
    ) -> Result<()> {
        let none = BlockNo(0);
        if self.is_inline(inode) {
            scan.add(dirent::inline_parent(&inode.block).unwrap_or_default(), ino, none);
            for records in self.inline_records(inode, raw)? {
                for entry in Entries::over(&self.geo, &raw[records]) {
                    scan.add(entry.map_err(|error| error.at_inode(ino))?.ino, ino, none);
                }
            }
            return Ok(());
        }
        let info = self.directory(ino, inode);
        for block in self.directory_blocks(ino, inode)? {
            let bytes = self.block(block)?;
            check_block(info, &bytes).map_err(|error| error.at_block(block))?;
            for entry in dirent::entries(&self.geo, &bytes) {
                let entry = entry.map_err(|error| error.at_inode(ino).at_block(block))?;
                if entry.ino != ino {
                    scan.add(entry.ino, ino, block);
                }
            }
        }
        Ok(())
    }

    fn scan_attributes(
        &self,
        ino: InodeNo,
        inode: &Inode,
        raw: &[u8],
        scan: &mut Scan,
    ) -> Result<()> {
        if let Some(area) = inode.xattr_area(&self.geo) {
            let entries = xattr::in_inode(&self.geo, &raw[area]);
            scan.values(entries.map_err(|error| error.at_inode(ino))?, ino, BlockNo(0));
        }
        let block = inode.file_acl;
        if block.0 != 0 && scan.shared.insert(block) {
            let bytes = self.attribute_block(block)?;
            scan.values(xattr::in_block(&self.geo, &bytes)?.1, InodeNo(0), block);
        }
        Ok(())
    }

    /// Reads a block of attributes.
    pub(super) fn attribute_block(&self, block: BlockNo) -> Result<Vec<u8>> {
        let bytes = self.block(block)?;
        if self.geo.features.metadata_csum() {
            xattr::verify(self.geo.csum_seed, block, &bytes)?;
        }
        Ok(bytes)
    }

    /// What the blocks of a directory depend on.
    fn directory(&self, ino: InodeNo, inode: &Inode) -> DirInfo<'_> {
        let seed = inode.csum_seed(&self.geo, ino);
        DirInfo { ino, geometry: &self.geo, seed, index: None }
    }

    /// Whether an inode holds its contents itself.
    pub(super) fn is_inline(&self, inode: &Inode) -> bool {
        self.geo.features.has(Incompat::INLINE_DATA) && inode.has_flag(flags::INLINE_DATA)
    }

    /// The blocks of a directory that is not in its inode, in order.
    pub(super) fn directory_blocks(&self, ino: InodeNo, inode: &Inode) -> Result<Vec<BlockNo>> {
        let end = inode.size >> self.geo.block_bits;
        let mut blocks = Vec::new();
        for extent in self.read_map(ino, inode)?.extents {
            let len = end.saturating_sub(extent.block.0.into()).min(extent.len.into());
            if extent.unwritten || !self.geo.holds_run(extent.start, extent.len.into()) {
                let error =
                    Corrupt::field(Structure::ExtentNode, "directory block", extent.start.0);
                return Err(error.at_inode(ino).into());
            }
            blocks.extend((extent.start.0..extent.start.0 + len).map(BlockNo));
        }
        Ok(blocks)
    }

    /// Where the records of a directory lie in the bytes of its inode.
    fn inline_records(&self, inode: &Inode, raw: &[u8]) -> Result<Vec<Range<usize>>> {
        let mut places = Vec::with_capacity(2);
        places.push(BLOCK_AREA_AT + PARENT..BLOCK_AREA_AT + BLOCK_AREA);
        let Some(area) = inode.xattr_area(&self.geo) else { return Ok(places) };
        let entries = xattr::in_inode(&self.geo, &raw[area])?;
        if let Some(more) = entries.find(xattr::index::SYSTEM, b"data")
            && let Value::Bytes(bytes) = more.value
            && !bytes.is_empty()
        {
            let start = bytes.as_ptr().addr() - raw.as_ptr().addr();
            places.push(start..start + bytes.len());
        }
        Ok(places)
    }

    /// Stores the new number of an inode in a place that names it.
    pub(super) fn renumber(
        &mut self,
        place: &Reference,
        to: InodeNo,
        numbers: &NewNumbers,
    ) -> Result<()> {
        let from = InodeNo(place.target);
        let block = BlockNo(place.block);
        let found = match (place.owner, block) {
            (0, _) => self.renumber_attributes(block, from, to)?,
            (owner, BlockNo(0)) => self.renumber_inode(numbers.current(owner), from, to)?,
            (owner, _) => {
                let owner = numbers.current(owner);
                let (inode, _) = self.inode(owner)?;
                self.renumber_block((owner, &inode), block, from, to)?
            }
        };
        debug_assert!(found > 0, "{place:?} names the inode");
        Ok(())
    }

    fn renumber_attributes(&mut self, block: BlockNo, from: InodeNo, to: InodeNo) -> Result<usize> {
        let mut bytes = self.attribute_block(block)?;
        let found = xattr::renumber_in_block(&self.geo, &mut bytes, from, to)?;
        self.put_attributes(block, bytes);
        Ok(found)
    }

    fn renumber_inode(&mut self, owner: InodeNo, from: InodeNo, to: InodeNo) -> Result<usize> {
        let (inode, mut raw) = self.inode(owner)?;
        let mut found = 0;
        if inode.file_type() == Some(FileType::Directory) && self.is_inline(&inode) {
            let area = BLOCK_AREA_AT..BLOCK_AREA_AT + BLOCK_AREA;
            if dirent::inline_parent(&raw[area.clone()]) == Some(from) {
                dirent::set_inline_parent(&mut raw[area], to);
                found += 1;
            }
            for records in self.inline_records(&inode, &raw)? {
                found += dirent::renumber_inline(&self.geo, &mut raw[records], from, to)?;
            }
        }
        if let Some(area) = inode.xattr_area(&self.geo) {
            found += xattr::renumber_in_inode(&self.geo, &mut raw[area], from, to)?;
        }
        self.put_inode(owner, &raw)?;
        Ok(found)
    }

    /// Replaces a number in a block of a directory, which gets a checksum for the directory's
    /// number `owner`.
    pub(super) fn renumber_block(
        &mut self,
        (owner, inode): (InodeNo, &Inode),
        block: BlockNo,
        from: InodeNo,
        to: InodeNo,
    ) -> Result<usize> {
        let mut bytes = self.block(block)?;
        let found = dirent::renumber(&self.geo, &mut bytes, from, to)
            .map_err(|error| error.at_inode(owner).at_block(block))?;
        let seal = seal_of(self.directory(owner, inode));
        (seal.f)(seal.seed, block, &mut bytes);
        self.put(block, bytes);
        Ok(found)
    }

    /// Changes the number of a file in the inodes that hold the values of its attributes. Only
    /// those that Lustre made name the file: in the time of their last change.
    pub(super) fn renumber_in_values(
        &mut self,
        (inode, raw): (&Inode, &[u8]),
        from: InodeNo,
        to: InodeNo,
    ) -> Result<()> {
        if !self.geo.features.has(Incompat::EA_INODE) {
            return Ok(());
        }
        let mut scan = Scan { limit: 0, found: Vec::new(), shared: HashSet::default() };
        self.scan_attributes(to, inode, raw, &mut scan)?;
        for value in scan.found {
            let value = InodeNo(value.target);
            let (mut held, mut bytes) = self.inode(value)?;
            let (parent, extra) = held.mtime.to_words();
            if parent == from.0 && held.generation == inode.generation {
                held.mtime = DiskTime::from_words(to.0, extra);
                held.write(&self.geo, &mut bytes);
                self.put_inode(value, &bytes)?;
            }
        }
        Ok(())
    }
}
