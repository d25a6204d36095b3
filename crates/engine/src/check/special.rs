//! Pass 1: inodes that the superblock names: bad blocks, growth of the descriptor table, journal,
//! quota, orphan file; and the other reserved numbers.

use nextent_num::{low_half, to_u64, to_usize};
use nextent_ondisk::inode::flags;
use nextent_ondisk::jbd2::{JournalFeatures, JournalSuperblock};
use nextent_ondisk::{
    BlockNo, Compat, FileType, Incompat, Inode, InodeNo, RoCompat, indirect, numbers, orphan,
};
use numbers::BOOT_LOADER_INO;

/// The fewest blocks of a log that has an area for fast commits beside it.
const JOURNAL_MIN_BLOCKS: u32 = 1024;

use super::claims::{Clash, Taken};
use super::contents::{self, Usage};
use super::image::Image;
use super::inode::Pass1;
use super::inodes::{Mark, is, kind};
use super::orphans;
use super::report::Problem;
use super::walk::{self, Go, Part, Visitor};

/// The number the superblock gives for a use of its own, with the feature that makes it count.
fn named(image: &Image) -> [(InodeNo, bool); 5] {
    let (sb, features) = (&image.sb, &image.geo.features);
    let quota = features.has(RoCompat::QUOTA);
    [
        (InodeNo(sb.journal_inum.get()), features.has(Compat::HAS_JOURNAL)),
        (InodeNo(sb.orphan_file_inum.get()), features.has(Compat::ORPHAN_FILE)),
        (InodeNo(sb.usr_quota_inum.get()), quota),
        (InodeNo(sb.grp_quota_inum.get()), quota),
        (InodeNo(sb.prj_quota_inum.get()), quota && features.has(RoCompat::PROJECT)),
    ]
}

/// Whether an inode has no name because the superblock names it.
pub(super) fn is_hidden(image: &Image, ino: InodeNo) -> bool {
    named(image).iter().any(|(number, on)| *on && *number == ino)
}

/// Checks a reserved or hidden inode and takes its blocks.
pub(super) fn check(pass: &Pass1<'_>, ino: InodeNo, inode: &Inode, raw: &[u8]) -> Mark {
    let image = pass.image;
    let reserved = image.geo.is_reserved_inode(ino);
    let flags = if reserved { is::RESERVED | is::HIDDEN } else { is::HIDDEN };
    let mut mark = Mark { kind: kind::BAD, flags, links: inode.links };
    let push = |text: &str| {
        image.push(Problem::error(1, "reserved-inode", text).at_inode(ino));
    };
    let file_type = inode.file_type();
    if inode.has_flag(flags::CASEFOLD) && file_type != Some(FileType::Directory) {
        push("its flags say: case folding, but is no directory");
    }
    if ino == numbers::BAD_BLOCKS_INO {
        bad_blocks(pass, ino, inode);
        return mark;
    }
    if inode.has_flag(flags::INDEX) && file_type != Some(FileType::Directory) {
        push("its flags say: a hash index, but is no directory");
    }
    if is_hidden(image, ino) {
        mark.kind = file_type.map_or(kind::BAD, FileType::entry_code);
        // e2fsck takes quota files for used whatever they count.
        let counted = !reserved || ino.0 == image.sb.journal_inum.get();
        if file_type != Some(FileType::Regular) || (counted && inode.links == 0) {
            push("a file that the superblock names is not a regular file in use");
            return mark;
        }
        mark.flags |= hidden(pass, ino, inode, raw);
        return mark;
    }
    // e2fsck checks the attributes of these only where they are on the volume.
    let looked_at = ino != numbers::JOURNAL_INO && image.geo.holds(inode.file_acl);
    let taken = match looked_at {
        true => pass.attrs.check(pass, ino, inode, raw).clusters,
        false => 0,
    };
    if ino == numbers::RESIZE_INO && image.geo.features.has(Compat::RESIZE_INODE) {
        resize(pass, ino, inode, taken);
        return mark;
    }
    let no_extents = !image.geo.features.has(Incompat::EXTENTS);
    if ino == numbers::JOURNAL_INO && inode.has_flag(flags::EXTENTS) && no_extents {
        push("its flags say: extents without the feature");
    }
    let unused = [numbers::JOURNAL_INO, numbers::USER_QUOTA_INO, numbers::GROUP_QUOTA_INO];
    let mapped = indirect::pointer(&inode.block, 0).0 != 0;
    if unused.contains(&ino) {
        if inode.links > 0 || mapped || low_half(inode.blocks) != 0 {
            push("in use, but its feature is off");
        }
        return mark;
    }
    if ino == numbers::RESIZE_INO && !indirect::is_empty(&inode.block) {
        push("reserves blocks, but its feature is off");
    }
    let bad_mode = match ino {
        BOOT_LOADER_INO => file_type == Some(FileType::Directory),
        _ => inode.mode != 0,
    };
    if bad_mode {
        push("a reserved inode has a mode that it cannot have");
    } else if file_type == Some(FileType::Regular) {
        mark.flags |= contents::check(pass, ino, inode, FileType::Regular, raw, taken);
    } else if inode.mode == 0 && inode.blocks != 0 || raw[0x6c..0x70].iter().any(|byte| *byte != 0)
    {
        push("a reserved inode without blocks has a size or a block count");
    }
    mark
}

/// Checks a file that the superblock names; returns its marks.
fn hidden(pass: &Pass1<'_>, ino: InodeNo, inode: &Inode, raw: &[u8]) -> u8 {
    let image = pass.image;
    if !inode.has_flag(flags::CASEFOLD) {
        pass.flags(ino, inode, FileType::Regular);
    }
    if inode.flags & (flags::INLINE_DATA | flags::ENCRYPT) != 0 {
        let text = "a file that the superblock names is encrypted or has inline data";
        image.push(Problem::error(1, "reserved-inode", text).at_inode(ino));
        return is::DAMAGED;
    }
    let attrs = pass.attrs.check(pass, ino, inode, raw).clusters;
    let marks = contents::check(pass, ino, inode, FileType::Regular, raw, attrs);
    if ino.0 == image.sb.journal_inum.get() {
        journal(image, ino, inode);
    } else if ino.0 == image.sb.orphan_file_inum.get() {
        orphan_file(image, ino, inode);
    }
    marks
}

/// The list of bad blocks. Those in a superblock or descriptors have copies elsewhere.
fn bad_blocks(pass: &Pass1<'_>, ino: InodeNo, inode: &Inode) {
    // e2fsck reads only the lower halves of numbers that got upper halves later.
    let low = |number: u32| number & u32::from(u16::MAX) != 0;
    let used = inode.mode != 0 || low(inode.uid) || low(inode.gid) || inode.links != 0;
    if inode.flags & (flags::EXTENTS | flags::INLINE_DATA) != 0
        || used
        || low_half(inode.file_acl.0) != 0
    {
        let text = "the list of bad blocks has fields or flags that it cannot have";
        pass.image.push(Problem::error(1, "reserved-inode", text).at_inode(ino));
        return;
    }
    walk::walk(pass.image, 1, ino, inode, &mut BadBlocks(pass));
}

/// Takes the blocks of the list of bad ones.
struct BadBlocks<'a>(&'a Pass1<'a>);

impl Visitor for BadBlocks<'_> {
    fn part(&mut self, part: Part) -> Go {
        let (start, len) = match part {
            Part::Node(block) => (block, 1),
            Part::Run(run) => (run.start, run.len.into()),
        };
        let Self(pass) = self;
        let metadata = (start.0..start.0 + len).map(BlockNo).find(|block| {
            let head =
                pass.image.geo.group_of(*block).map(|group| pass.image.geo.head_blocks(group));
            let outside_head = head.is_none_or(|head| !head.contains(&block.0));
            let node = matches!(part, Part::Node(_));
            let primary = pass.is_primary(*block);
            (outside_head || node || primary) && pass.claims.metadata_in(*block, 1).is_some()
        });
        if let Some(block) = metadata {
            let text = "the file system's metadata lies on a bad block";
            self.wrong(Problem::error(1, "bad-block", text).at_block(block));
        }
        self.0.claims.bad(start, len);
        Go::On
    }

    fn wrong(&mut self, problem: Problem) {
        self.0.image.push(problem);
    }
}

/// Checks the first block of the journal; replay checks the rest.
fn journal(image: &Image, ino: InodeNo, inode: &Inode) {
    let runs = walk::runs(image, 1, ino, inode);
    let push = |problem: Problem| image.push(problem.at_inode(ino));
    let mut next = 0;
    for run in &runs.runs {
        if u64::from(run.block.0) != next || run.unwritten {
            push(Problem::error(1, "journal", "the journal has holes"));
            return;
        }
        next = run.end();
    }
    // mke2fs of 2008 and before mapped one block past the size, and contents::check allows that.
    let blocks = (inode.size >> image.geo.block_bits).min(next);
    if inode.size > next << image.geo.block_bits {
        let text = format!("the journal has size {}, but {next} blocks", inode.size);
        push(Problem::error(1, "journal", text));
    }
    let Some(first) = runs.runs.first() else {
        push(Problem::error(1, "journal", "the journal has no blocks"));
        return;
    };
    let Some(bytes) = image.block(1, first.start) else { return };
    match JournalSuperblock::parse(&bytes, image.geo.block_size, blocks) {
        Err(error) => {
            push(Problem::corrupt(1, "journal", &error).at_block(first.start));
        }
        Ok(sb) => {
            for text in journal_fields(&sb) {
                push(Problem::error(1, "journal", text).at_block(first.start));
            }
            if sb.errno() != 0 {
                let text = format!("the journal was stopped by error {}", sb.errno());
                push(Problem::error(1, "journal-aborted", text));
            }
        }
    }
}

/// Problems of those fields of the journal's superblock that recovery does not need.
fn journal_fields(sb: &JournalSuperblock) -> Vec<String> {
    let features = sb.features();
    let unknown = features.incompat & !JournalFeatures::INCOMPAT_KNOWN;
    let mut wrong = Vec::new();
    if unknown != 0 {
        wrong.push(format!("the journal has unknown incompatible features {unknown:#x}"));
    }
    if features.ro_compat != 0 {
        let found = features.ro_compat;
        wrong.push(format!("the journal has unknown read-only features {found:#x}"));
    }
    if sb.version() > 1 && sb.users() > 1 {
        wrong.push(format!("the journal has {} users, should have one", sb.users()));
    }
    let left = sb.log_end().unwrap_or(0);
    if features.has(JournalFeatures::FAST_COMMIT) && left < JOURNAL_MIN_BLOCKS {
        wrong.push(format!("the journal has {left} blocks beside its area for fast commits"));
    }
    wrong
}

/// Blocks of the orphan file; orphans in it need the flag that says so.
fn orphan_file(image: &Image, ino: InodeNo, inode: &Inode) {
    let geo = &image.geo;
    let seed = inode.csum_seed(geo, ino);
    let expected = image.unclean || geo.features.has(RoCompat::ORPHAN_PRESENT);
    let most = orphan::MAX_BLOCKS;
    if inode.size >> geo.block_bits > most {
        let text = format!("the orphan file has size {}, at most {most} blocks", inode.size);
        image.push(Problem::error(1, "orphan-file", text).at_inode(ino));
    } else if inode.size != whole(&walk::runs(image, 1, ino, inode)) << geo.block_bits {
        let text = format!("the orphan file of size {} has holes, or blocks past it", inode.size);
        image.push(Problem::error(1, "orphan-file", text).at_inode(ino));
    }
    for no in orphans::blocks_of_file(image, 1, ino, inode) {
        let Some(block) = image.block(1, no) else { continue };
        let mut result = orphan::check(geo, &block);
        if result.is_ok() && geo.features.metadata_csum() {
            result = orphan::verify(seed, no, &block);
        }
        if let Err(error) = result {
            let problem = Problem::corrupt(1, "orphan-file", &error);
            image.push(problem.at_inode(ino).at_block(no));
        } else if !expected && orphan::orphans(&block).next().is_some() {
            let text = "holds orphans, but the volume says that there are none";
            let problem = Problem::error(1, "orphan-file", text);
            image.push(problem.at_inode(ino).at_block(no));
        }
    }
}

/// The blocks of a file without holes; 0 if it has any.
fn whole(runs: &walk::Runs) -> u64 {
    let mut next = 0;
    for run in &runs.runs {
        if u64::from(run.block.0) != next || run.unwritten {
            return 0;
        }
        next = run.end();
    }
    next
}

/// The inode that keeps blocks for growth: a tree whose leaves are the reserved blocks of each
/// backup group, found through those of group 0.
fn resize(pass: &Pass1<'_>, ino: InodeNo, inode: &Inode, attrs: u64) {
    let (image, geo) = (pass.image, &pass.image.geo);
    let push = |text: String| {
        image.push(Problem::error(1, "resize-inode", text).at_inode(ino));
    };
    if inode.file_type() != Some(FileType::Regular) || inode.links == 0 {
        push("is not a regular file in use".into());
        return;
    }
    let limit = indirect::max_blocks(geo).saturating_mul(geo.block_size.into());
    if inode.size > limit {
        push(format!("size is {}, more than its block map can hold", inode.size));
    }
    let top = indirect::pointer(&inode.block, indirect::DOUBLE);
    let others = (0..15).filter(|slot| *slot != indirect::DOUBLE);
    let stray = others.map(|slot| indirect::pointer(&inode.block, slot)).any(|p| p.0 != 0);
    let other = inode.flags & (flags::EXTENTS | flags::INLINE_DATA) != 0;
    if stray || other || (top.0 == 0 && geo.reserved_gdt_blocks > 0) {
        push("its block map is not the one that reserves descriptor blocks".into());
        return;
    }
    if top.0 == 0 {
        return;
    }
    let mut usage = Usage::new(pass, ino, inode, FileType::Regular);
    if !geo.holds_run(top, 1) {
        push(format!("indirect block {top} lies outside the volume"));
        return;
    }
    if let Some(clash) = pass.claims.file(&mut Taken::default(), top, 1)
        && matches!(clash, Clash::Metadata(_))
    {
        push(format!("indirect block {top} is metadata"));
        return;
    }
    let (count, last) = match resize_leaves(image, top) {
        Ok(found) => found,
        Err(text) => return push(text),
    };
    let per_block = u64::from(geo.block_size / 4);
    let last =
        last.map_or(0, |last| (u64::from(indirect::DIRECT) + per_block + last) << geo.block_bits);
    if inode.size < last {
        let end = last + u64::from(geo.block_size);
        push(format!("size is {}, blocks reach to {end}", inode.size));
    }
    usage.taken.clusters = 1 + count + attrs;
    contents::block_count(pass, inode, &usage, &|_, text| push(text));
}

/// Checks each reserved block of group 0 against those of the backups; how many there are, and the
/// place of the last of the backups' in the tree.
fn resize_leaves(image: &Image, top: BlockNo) -> Result<(u64, Option<u64>), String> {
    let geo = &image.geo;
    let read = |no| image.block(1, no).ok_or_else(|| format!("block {no} cannot be read"));
    let bytes = read(top)?;
    let slots = indirect::count(&bytes);
    let first = geo.super_location().0.0 + 1 + u64::from(geo.contiguous_gdt_blocks());
    let reserved = u64::from(geo.reserved_gdt_blocks);
    let slot_of = |no: u64| to_usize((no - geo.super_location().0.0 - 1) % to_u64(slots));
    let mut expected = vec![0; slots];
    for no in first..first + reserved {
        expected[slot_of(no)] = no;
    }
    // How far the groups with backups lie behind group 0. With clusters and blocks of 1 KiB this
    // leads past the reserved block by one, in e2fsprogs as in Linux.
    let backups = geo.groups().skip(1).filter(|group| geo.super_block_of(*group).is_some());
    let backups = backups.map(|group| u64::from(group.0) * u64::from(geo.blocks_per_group));
    let backups: Vec<_> = backups.take(slots).collect();
    let (mut count, mut last) = (0, None);
    for (slot, no) in expected.iter().enumerate() {
        let found = indirect::pointer(&bytes, slot).0;
        if found != *no {
            return Err(format!("entry {slot} of block {top} is {found}, should be {no}"));
        }
        if *no != 0 {
            let leaves = resize_leaf(BlockNo(*no), &read(BlockNo(*no))?, &backups)?;
            count += 1 + leaves;
            let place = leaves.checked_sub(1).map(|leaf| to_u64(slot * slots) + leaf);
            last = place.or(last);
        }
    }
    Ok((count, last))
}

fn resize_leaf(no: BlockNo, bytes: &[u8], backups: &[u64]) -> Result<u64, String> {
    let mut backups = backups.iter().map(|shift| no.0 + shift);
    let mut count = 0;
    for slot in 0..indirect::count(bytes) {
        let (found, should) = (indirect::pointer(bytes, slot).0, backups.next().unwrap_or(0));
        if found != should {
            return Err(format!("entry {slot} of block {no} is {found}, should be {should}"));
        }
        count += u64::from(should != 0);
    }
    Ok(count)
}
