//! Pass 1: compares the map of an inode with its type, size and block count.

use nextent_num::to_u64;
use nextent_ondisk::extent::Extent;
use nextent_ondisk::inode::{BLOCK_AREA, BLOCK_AREA_AT, flags, translator};
use nextent_ondisk::{
    BlockNo, FileType, Incompat, Inode, InodeNo, RoCompat, indirect, numbers, xattr,
};

use super::claims::{Clash, Taken};
use super::image::Image;
use super::inode::Pass1;
use super::inodes::is;
use super::report::Problem;
use super::special;
use super::walk::{self, Go, Part, Visitor};

/// Takes the blocks of a map and collects what size and counts must agree with.
pub(super) struct Usage<'a> {
    pass: &'a Pass1<'a>,
    ino: InodeNo,
    directory: bool,
    /// Whether other files may share the blocks.
    may_share: bool,
    pub(super) taken: Taken,
    /// Blocks mapped, and the one after the last: of all, and of those written.
    pub(super) mapped: u64,
    pub(super) end: u64,
    pub(super) written_end: u64,
    /// The map has reported problems.
    pub(super) damaged: bool,
    shared: bool,
    /// The block after the last one of the map so far.
    next_start: Option<u64>,
    fragmented: bool,
    /// The blocks of pointers lie among the blocks that they map.
    indirect: bool,
}

impl<'a> Usage<'a> {
    pub(super) fn new(
        pass: &'a Pass1<'a>,
        ino: InodeNo,
        inode: &Inode,
        file_type: FileType,
    ) -> Self {
        Self {
            pass,
            ino,
            directory: file_type == FileType::Directory,
            may_share: may_share(pass.image, ino, file_type),
            taken: Taken::default(),
            mapped: 0,
            end: 0,
            written_end: 0,
            damaged: false,
            shared: false,
            next_start: None,
            fragmented: false,
            indirect: !inode.has_flag(flags::EXTENTS),
        }
    }

    /// Takes a run; returns whether it was free.
    fn take(&mut self, start: BlockNo, len: u64) -> bool {
        match self.pass.claims.file(&mut self.taken, start, len) {
            None => true,
            Some(Clash::Metadata(block)) => {
                let text = "its block map holds a block of the file system's metadata";
                let problem = Problem::error(1, "claims-metadata", text);
                self.wrong(problem.at_inode(self.ino).at_block(block));
                false
            }
            Some(Clash::File(_)) => {
                self.shared |= !self.may_share;
                false
            }
        }
    }
}

impl Visitor for Usage<'_> {
    fn part(&mut self, part: Part) -> Go {
        match part {
            Part::Node(block) => {
                if self.indirect {
                    self.follow(block, 1);
                }
                if self.take(block, 1) { Go::On } else { Go::Past }
            }
            Part::Run(run) => self.run(&run),
        }
    }

    fn wrong(&mut self, problem: Problem) {
        self.damaged = true;
        self.pass.image.push(problem);
    }
}

impl Usage<'_> {
    fn run(&mut self, run: &Extent) -> Go {
        self.take(run.start, u64::from(run.len));
        self.mapped += u64::from(run.len);
        if !self.may_share && self.mapped > self.pass.image.geo.blocks_count {
            let text = "its block map holds more blocks than the volume has";
            self.wrong(Problem::error(1, "map-too-large", text).at_inode(self.ino));
            return Go::Stop;
        }
        self.end = self.end.max(run.end());
        if !run.unwritten {
            self.written_end = self.written_end.max(run.end());
        } else if self.directory {
            let problem = Problem::error(1, "directory-unwritten", "a block is marked unwritten");
            self.wrong(problem.at_inode(self.ino).at_block(run.start));
        }
        self.follow(run.start, run.len.into());
        Go::On
    }

    /// Notes whether the next blocks of the map follow the last ones.
    fn follow(&mut self, start: BlockNo, len: u64) {
        self.fragmented |= self.next_start.is_some_and(|next| next != start.0);
        self.next_start = Some(start.0 + len);
    }

    /// Whether the inode counts as fragmented: as for e2fsck, not if it is so large that it cannot
    /// lie within a group.
    fn is_fragmented(&self) -> bool {
        self.fragmented && self.taken.clusters < self.pass.image.geo.blocks_per_group.into()
    }

    /// Takes the block of a translator, which only volumes of the Hurd have.
    fn translator(&mut self, raw: &[u8]) {
        let geo = &self.pass.image.geo;
        let no = translator(geo, raw);
        if no.0 == 0 {
            return;
        }
        if geo.holds_run(no, 1) {
            self.take(no, 1);
        } else {
            let text = format!("its translator's block {no} lies outside the volume");
            self.wrong(Problem::error(1, "translator", text).at_inode(self.ino));
        }
    }

    /// The resulting marks.
    fn marks(&self) -> u8 {
        let mut marks = 0;
        if self.damaged || self.shared {
            marks |= is::DAMAGED;
        }
        if self.is_fragmented() {
            marks |= is::FRAGMENTED;
        }
        marks
    }
}

/// Whether other files may share the blocks of `ino`: it is a regular file with a name, and the
/// volume has the feature. So no directory maps more blocks than the volume has.
pub(super) fn may_share(image: &Image, ino: InodeNo, file_type: FileType) -> bool {
    image.geo.features.has(RoCompat::SHARED_BLOCKS)
        && file_type == FileType::Regular
        && !special::is_hidden(image, ino)
}

/// Checks the contents of `ino` and returns its marks. `attrs` are the clusters of its attributes.
pub(super) fn check(
    pass: &Pass1<'_>,
    ino: InodeNo,
    inode: &Inode,
    file_type: FileType,
    raw: &[u8],
    attrs: u64,
) -> u8 {
    let mut usage = Usage::new(pass, ino, inode, file_type);
    usage.taken.clusters = attrs;
    let push = |code, text: String| {
        pass.image.push(Problem::error(1, code, text).at_inode(ino));
    };
    if inode.has_flag(flags::INLINE_DATA) && pass.image.geo.features.has(Incompat::INLINE_DATA) {
        inline(pass, inode, raw, &push);
        block_count(pass, inode, &usage, &push);
        return usage.marks();
    }
    if is_mapped(file_type, inode) {
        usage.translator(raw);
    }
    match file_type {
        FileType::Regular | FileType::Directory => {
            walk::walk(pass.image, 1, ino, inode, &mut usage);
            if !usage.damaged {
                size(pass, ino, inode, &usage, &push);
            }
        }
        FileType::Symlink if set(raw, 0x6c, 4) => {
            push("symlink", "the high half of a link's size is not zero".into());
        }
        FileType::Symlink if is_fast(inode) => fast_symlink(inode, &push),
        FileType::Symlink => {
            walk::walk(pass.image, 1, ino, inode, &mut usage);
            slow_symlink(pass, ino, inode, &usage, &push);
        }
        FileType::CharDevice | FileType::BlockDevice | FileType::Fifo | FileType::Socket => {
            if inode.size != 0 || set(raw, 0x6c, 4) {
                push("size", format!("a {file_type} has size {}", inode.size));
            }
            if set(raw, BLOCK_AREA_AT + 16, BLOCK_AREA - 16) {
                let text = format!("a {file_type} has bytes behind its device number");
                pass.image.push(Problem::note(1, "special-file", text).at_inode(ino));
            }
        }
    }
    if !usage.damaged && !usage.shared {
        block_count(pass, inode, &usage, &push);
    }
    usage.marks()
}

type Push<'a> = &'a dyn Fn(&'static str, String);

fn set(raw: &[u8], at: usize, len: usize) -> bool {
    raw[at..at + len].iter().any(|byte| *byte != 0)
}

/// Whether a link's target lies in the block area: all that are short enough, but encrypted and
/// mapped ones.
fn is_fast(inode: &Inode) -> bool {
    inode.size < to_u64(BLOCK_AREA) && !inode.has_flag(flags::EXTENTS)
}

/// Whether the block area of such an inode is a block map.
pub(super) fn is_mapped(file_type: FileType, inode: &Inode) -> bool {
    !inode.has_flag(flags::INLINE_DATA)
        && match file_type {
            FileType::Regular | FileType::Directory => true,
            FileType::Symlink => !is_fast(inode),
            _ => false,
        }
}

fn fast_symlink(inode: &Inode, push: Push<'_>) {
    let len = inode.block.iter().position(|byte| *byte == 0).unwrap_or(BLOCK_AREA);
    let encrypted = inode.has_flag(flags::ENCRYPT);
    if inode.size == 0 || (!encrypted && to_u64(len) != inode.size) {
        push("symlink", format!("a target of {len} bytes, but size {}", inode.size));
    }
}

fn slow_symlink(pass: &Pass1<'_>, ino: InodeNo, inode: &Inode, usage: &Usage<'_>, push: Push<'_>) {
    let block_size = u64::from(pass.image.geo.block_size);
    if usage.damaged {
        return;
    }
    if inode.size == 0 || inode.size >= block_size || usage.mapped != 1 || usage.end != 1 {
        let blocks = usage.mapped;
        push("symlink", format!("a symbolic link of {} bytes in {blocks} blocks", inode.size));
        return;
    }
    let runs = walk::runs(pass.image, 1, ino, inode).runs;
    let Some(bytes) = runs.first().and_then(|run| pass.image.block(1, run.start)) else { return };
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    if !inode.has_flag(flags::ENCRYPT) && to_u64(len) != inode.size {
        push("symlink", format!("a target of {len} bytes, but size {}", inode.size));
    }
}

/// The size of what lies in the inode. mke2fs leaves files that are all hole with any size that a
/// map of pointers can have.
fn inline(pass: &Pass1<'_>, inode: &Inode, raw: &[u8], push: Push<'_>) {
    let geo = &pass.image.geo;
    let most = indirect::max_blocks(geo).saturating_mul(geo.block_size.into());
    if inode.size > most {
        push("size", format!("inline data, but size {}", inode.size));
    }
    let Some(data) = inline_rest(pass.image, inode, raw) else {
        push("inline-data", "inline data, but no attribute system.data".into());
        return;
    };
    let room = BLOCK_AREA + data.len();
    if inode.file_type() == Some(FileType::Directory) && inode.size > to_u64(room) {
        push("size", format!("inline data of {room} bytes, but size {}", inode.size));
    }
}

/// The part of inline data that lies in the attribute `system.data`.
pub(super) fn inline_rest<'a>(
    image: &super::image::Image,
    inode: &Inode,
    raw: &'a [u8],
) -> Option<&'a [u8]> {
    let area = inode.xattr_area(&image.geo)?;
    let entries = xattr::in_inode(&image.geo, &raw[area]).ok()?;
    match entries.find(xattr::index::SYSTEM, b"data")?.value {
        xattr::Value::Bytes(bytes) => Some(bytes),
        xattr::Value::Inode(..) => None,
    }
}

/// The size against the blocks mapped.
fn size(pass: &Pass1<'_>, ino: InodeNo, inode: &Inode, usage: &Usage<'_>, push: Push<'_>) {
    let geo = &pass.image.geo;
    let block_size = u64::from(geo.block_size);
    let orphan = pass.orphans.contains(&ino);
    if inode.file_type() == Some(FileType::Directory) {
        let blocks = inode.size / block_size;
        let ahead = u64::from(pass.image.sb.prealloc_dir_blocks);
        let spare = usage.end.checked_sub(blocks);
        if !inode.size.is_multiple_of(block_size) || spare.is_none_or(|spare| spare > ahead) {
            let text = format!("a directory of {} blocks has size {}", usage.end, inode.size);
            push("size", text);
        }
        return;
    }
    let limit = match inode.has_flag(flags::EXTENTS) {
        true => geo.max_extent_size(),
        false => indirect::max_blocks(geo).saturating_mul(block_size),
    };
    let last = usage.written_end.saturating_sub(1).saturating_mul(block_size);
    let beyond = usage.written_end > 0 && inode.size < last;
    let free = inode.has_flag(flags::VERITY) || orphan || ino == numbers::BAD_BLOCKS_INO;
    if inode.size > limit || (beyond && !free) {
        let text = format!("size is {}, blocks reach to {}", inode.size, last + block_size);
        push("size", text);
    }
}

/// The block count against the clusters taken.
pub(super) fn block_count(pass: &Pass1<'_>, inode: &Inode, usage: &Usage<'_>, push: Push<'_>) {
    let geo = &pass.image.geo;
    // The Hurd may count the block of a translator or not: e2fsck accepts both.
    if geo.is_hurd() {
        return;
    }
    let sectors = (usage.taken.clusters << geo.cluster_bits) << (geo.block_bits - 9);
    if inode.sectors(geo) != sectors {
        let stored = inode.sectors(geo);
        push("block-count", format!("the block count is {stored}, should be {sectors}"));
    }
}
