//! The blocks of inodes.

use nextent_ondisk::extent::Extent;
use nextent_ondisk::inode::{flags, translator};
use nextent_ondisk::{
    BlockNo, Compat, FileType, GroupNo, Incompat, Inode, bitmap, indirect, numbers,
};

use super::{BlockUse, FileLayout, Scan, count, power};
use crate::check::report::Problem;
use crate::check::walk::{self, Go, Part, Visitor};
use crate::check::{contents, special};

impl Scan<'_> {
    /// Claims the blocks of every inode in use.
    pub(super) fn owners(&self) {
        self.each_group(|group, desc| {
            let Some(desc) = desc else { return };
            let bits = self.inode_bits(&desc);
            let mut layout = FileLayout::new();
            let unread = self.image.each_inode(1, &desc, |index, raw| {
                let marked = bits.as_ref().is_none_or(|bits| bitmap::test(bits, index));
                if marked && raw.iter().any(|byte| *byte != 0) {
                    self.inode(group, index, raw, bits.is_some(), &mut layout);
                }
            });
            count(&self.damaged_inodes, unread);
            self.files.lock().merge(&layout);
        });
    }

    /// Claims the blocks of one inode. `marked`: the inode bitmap has it in use.
    fn inode(&self, group: GroupNo, index: u32, raw: &[u8], marked: bool, layout: &mut FileLayout) {
        let geo = &self.image.geo;
        let ino = geo.inode_at(group, index);
        let Ok(inode) = Inode::read(geo, raw) else {
            return count(&self.damaged_inodes, 1u32);
        };
        if ino == numbers::BAD_BLOCKS_INO || (inode.links == 0 && !marked) {
            return;
        }
        if ino == numbers::RESIZE_INO {
            return self.resize_inode(&inode);
        }
        let hidden = special::is_hidden(self.image, ino);
        let reserved = geo.is_reserved_inode(ino) && ino != numbers::ROOT_INO;
        let Some(file_type) = inode.file_type() else {
            return count(&self.damaged_inodes, u64::from(!hidden && !reserved));
        };
        let value = inode.has_flag(flags::EA_INODE) && geo.features.has(Incompat::EA_INODE);
        let of = match file_type {
            _ if hidden && ino.0 == self.image.sb.journal_inum.get() => BlockUse::Journal,
            _ if hidden || reserved => BlockUse::Special,
            _ if value => BlockUse::Attributes,
            FileType::Directory => BlockUse::Directories,
            _ => BlockUse::Files,
        };
        for block in [inode.file_acl, translator(geo, raw)] {
            self.attribute_block(block);
        }
        let mut owner = Owner::new(self, of);
        if contents::is_mapped(file_type, &inode) {
            walk::walk(self.image, 1, ino, &inode, &mut owner);
        }
        owner.end_extent();
        count(&self.damaged_inodes, u64::from(owner.damaged));
        match (of, file_type) {
            (BlockUse::Directories, _) => layout.directories += 1,
            (BlockUse::Files, FileType::Regular) => layout.add_file(&owner),
            (BlockUse::Files, _) => layout.others += 1,
            _ => {}
        }
    }

    /// The inode that reserves blocks for descriptors. They lie behind each superblock and are
    /// claimed as such, so only the block that lists them is left.
    fn resize_inode(&self, inode: &Inode) {
        let geo = &self.image.geo;
        let list = indirect::pointer(&inode.block, indirect::DOUBLE);
        if geo.features.has(Compat::RESIZE_INODE) && geo.holds_run(list, 1) {
            self.claim(list, 1, BlockUse::DescriptorGrowth);
        }
    }

    fn attribute_block(&self, block: BlockNo) {
        if !self.image.geo.holds_run(block, 1) {
            return;
        }
        let from = block.0 - self.image.geo.first_data_block.0;
        let mut first = true;
        self.attributes.insert(from..from + 1, &mut |_| first = false);
        if first {
            self.claim(block, 1, BlockUse::Attributes);
        }
    }
}

impl FileLayout {
    fn add_file(&mut self, file: &Owner<'_, '_>) {
        self.files += 1;
        if file.extents == 0 {
            return;
        }
        self.with_blocks += 1;
        self.fragmented += u64::from(file.extents > 1);
        self.extents += file.extents;
        self.most_extents = self.most_extents.max(file.extents);
        self.extents_of_files[power(file.extents)] += 1;
        for (sum, more) in self.lengths.iter_mut().zip(file.lengths) {
            (sum.0, sum.1) = (sum.0 + more.0, sum.1 + more.1);
        }
    }
}

/// Claims the parts of one map.
struct Owner<'a, 'b> {
    scan: &'a Scan<'b>,
    of: BlockUse,
    mapped: u64,
    /// The block after the last, and the length of the extent that ends there.
    next: u64,
    length: u64,
    extents: u64,
    lengths: [(u64, u64); super::LENGTHS],
    damaged: bool,
}

impl<'a, 'b> Owner<'a, 'b> {
    fn new(scan: &'a Scan<'b>, of: BlockUse) -> Self {
        let lengths = [(0, 0); super::LENGTHS];
        Self { scan, of, mapped: 0, next: 0, length: 0, extents: 0, lengths, damaged: false }
    }

    fn run(&mut self, run: &Extent) -> Go {
        let len = u64::from(run.len);
        self.mapped += len;
        if self.mapped > self.scan.image.geo.blocks_count {
            self.damaged = true;
            return Go::Stop;
        }
        let of = match self.of {
            BlockUse::Files if run.unwritten => BlockUse::Unwritten,
            of => of,
        };
        self.scan.claim(run.start, len, of);
        if self.next != run.start.0 {
            self.end_extent();
        }
        self.length += len;
        self.next = run.start.0 + len;
        Go::On
    }

    fn end_extent(&mut self) {
        if self.length > 0 {
            let place = &mut self.lengths[power(self.length)];
            (place.0, place.1) = (place.0 + 1, place.1 + self.length);
            self.extents += 1;
            self.length = 0;
        }
    }
}

impl Visitor for Owner<'_, '_> {
    fn part(&mut self, part: Part) -> Go {
        let of = match self.of {
            own @ (BlockUse::Journal | BlockUse::Special | BlockUse::Attributes) => own,
            _ => BlockUse::Maps,
        };
        match part {
            Part::Run(run) => self.run(&run),
            // Several owners of one node could make a walk of any length.
            Part::Node(block) if self.scan.claim(block, 1, of) => Go::On,
            Part::Node(_) => Go::Past,
        }
    }

    fn wrong(&mut self, _: Problem) {
        self.damaged = true;
    }
}
