//! Pass 1, second half: every inode in use, its block map and its attributes.

use nextent_num::to_usize;
use nextent_sync::{HashMap, HashSet};

use nextent_ondisk::inode::{self, flags};
use nextent_ondisk::superblock::creator;
use nextent_ondisk::{
    BlockNo, Compat, FileType, GroupDesc, GroupNo, Incompat, Inode, InodeNo, RoCompat, numbers,
};
use nextent_sync::Mutex;

use super::attrs::{Attributes, Taking};
use super::claims::Claims;
use super::contents;
use super::image::Image;
use super::inodes::{Group, Inodes, Mark, is, kind};
use super::locks;
use super::quota::Quotas;
use super::report::Problem;
use super::special;

/// The state of pass 1.
pub(super) struct Pass1<'a> {
    pub(super) image: &'a Image,
    pub(super) claims: &'a Claims,
    pub(super) attrs: Attributes,
    pub(super) orphans: &'a HashSet<InodeNo>,
    quotas: &'a Quotas,
    groups: Mutex<HashMap<u32, Group>>,
}

/// Runs the pass over all groups, and calls `done` after each.
pub(super) fn check(
    image: &Image,
    claims: &Claims,
    orphans: &HashSet<InodeNo>,
    quotas: &Quotas,
    done: &(dyn Fn() + Sync),
) -> Inodes {
    let pass = Pass1 {
        image,
        claims,
        attrs: Attributes::new(),
        orphans,
        quotas,
        groups: Mutex::new(&locks::FOUND, HashMap::default()),
    };
    image.each_desc(1, |group, desc, _| {
        if desc.check(&image.geo, group).is_ok() {
            pass.group(group, &desc);
        }
        done();
    });
    pass.attrs.finish(image);
    let inodes = Inodes::new(&image.geo, pass.groups.into_inner());
    pass.attrs.count_foreign(&inodes);
    inodes
}

impl Pass1<'_> {
    fn group(&self, group: GroupNo, desc: &GroupDesc) {
        let geo = &self.image.geo;
        let mut marks = Vec::new();
        self.reserved(group, &mut marks);
        self.image.each_inode(1, desc, |index, raw| {
            let mark = self.inode(geo.inode_at(group, index), raw);
            if mark.in_use() {
                put(&mut marks, index, mark);
            }
        });
        if !marks.is_empty() {
            let made = Group::new(marks);
            self.groups.lock().insert(group.0, made);
        }
    }

    /// Reserved inodes are in use whatever their contents.
    fn reserved(&self, group: GroupNo, marks: &mut Vec<Mark>) {
        let geo = &self.image.geo;
        let first = u64::from(group.0) * u64::from(geo.inodes_per_group);
        let count = u64::from(geo.first_inode.0 - 1).saturating_sub(first);
        let mark = Mark { kind: kind::BAD, flags: is::RESERVED | is::HIDDEN, links: 0 };
        marks.resize(to_usize(count.min(u64::from(geo.inodes_per_group))), mark);
    }

    fn push(&self, ino: InodeNo, code: &'static str, text: impl Into<String>) {
        self.image.push(Problem::error(1, code, text).at_inode(ino));
    }

    fn inode(&self, ino: InodeNo, raw: &[u8]) -> Mark {
        let geo = &self.image.geo;
        if raw.iter().all(|byte| *byte == 0) {
            return self.reserved_mark(ino);
        }
        if let Err(error) = inode::verify_always(geo, ino, raw) {
            self.image.push(Problem::corrupt(1, "inode-checksum", &error));
        }
        let reserved = geo.is_reserved_inode(ino) && ino != numbers::ROOT_INO;
        let special = reserved || special::is_hidden(self.image, ino);
        let (inode, sound) = match Inode::read(geo, raw) {
            Ok(inode) => (inode, true),
            Err(error) => {
                // Only the size of the second half can be refused; the first half tells the use.
                let mut bytes = raw.to_vec();
                bytes[inode::BASE_SIZE..inode::BASE_SIZE + 2].fill(0);
                let Ok(inode) = Inode::read(geo, &bytes) else { return Mark::default() };
                if inode.links > 0 && !special {
                    self.image.push(Problem::corrupt(1, "inode", &error.at_inode(ino)));
                }
                (inode, false)
            }
        };
        let orphan = self.orphans.contains(&ino);
        if special {
            if inode.dtime != 0 && inode.dtime < geo.inodes_count {
                self.push(ino, "dtime-low", "was part of a damaged list of orphans");
            }
            return special::check(self, ino, &inode, raw);
        }
        if inode.links == 0 && !orphan {
            self.unused(ino, &inode);
            return Mark::default();
        }
        if inode.dtime != 0 && !orphan {
            self.push(ino, "dtime-set", "in use, but has a time of deletion");
        }
        let mut mark = self.used(ino, &inode, raw, sound);
        if orphan {
            mark.flags |= is::ORPHAN;
        }
        mark
    }

    fn reserved_mark(&self, ino: InodeNo) -> Mark {
        if ino == numbers::ROOT_INO {
            self.push(ino, "root", "the root directory is not in use");
        }
        if !self.image.geo.is_reserved_inode(ino) {
            return Mark::default();
        }
        Mark { kind: kind::BAD, flags: is::RESERVED | is::HIDDEN, links: 0 }
    }

    fn unused(&self, ino: InodeNo, inode: &Inode) {
        if ino == numbers::ROOT_INO {
            self.push(ino, "root", "the root directory is not in use");
        } else if inode.dtime == 0 && inode.mode != 0 {
            self.push(ino, "dtime-zero", "deleted, but has no time of deletion");
        } else if inode.dtime != 0 && inode.dtime < self.image.geo.inodes_count {
            self.push(ino, "dtime-low", "was part of a damaged list of orphans");
        }
    }

    /// Checks an inode that is in use and takes its blocks.
    fn used(&self, ino: InodeNo, inode: &Inode, raw: &[u8], sound: bool) -> Mark {
        let mut mark = Mark { kind: kind::BAD, flags: 0, links: inode.links };
        let Some(file_type) = inode.file_type() else {
            self.push(ino, "mode", format!("mode {:#o} is no file's", inode.mode));
            return mark;
        };
        mark.kind = file_type.entry_code();
        if ino == numbers::ROOT_INO && file_type != FileType::Directory {
            self.push(ino, "root", "the root is not a directory");
        }
        if inode.has_flag(flags::EA_INODE) && self.image.geo.features.has(Incompat::EA_INODE) {
            mark.flags |= is::EA_INODE;
        }
        self.flags(ino, inode, file_type);
        self.fields(ino, inode, raw);
        let takes = match sound {
            true => self.attrs.check(self, ino, inode, raw),
            false => Taking::default(),
        };
        if inode.has_flag(flags::ENCRYPT) {
            mark.flags |= is::ENCRYPTED;
            if !takes.context {
                self.push(ino, "encryption", "encrypted, but no attribute says how");
            }
        }
        mark.flags |= contents::check(self, ino, inode, file_type, raw, takes.clusters);
        if mark.flags & is::EA_INODE == 0 {
            self.quotas.add(self.image, inode, takes.values);
        }
        mark
    }

    /// Whether a block holds the first copy of descriptors.
    pub(super) fn is_primary(&self, block: BlockNo) -> bool {
        let geo = &self.image.geo;
        let first = geo.super_location().0.0 + 1;
        (first..first + u64::from(geo.contiguous_gdt_blocks())).contains(&block.0)
    }

    /// Flags that need a feature or a type of file.
    pub(super) fn flags(&self, ino: InodeNo, inode: &Inode, file_type: FileType) {
        let has = |flag| inode.has_flag(flag);
        let features = &self.image.geo.features;
        let directory = file_type == FileType::Directory;
        let mapped = matches!(file_type, FileType::Regular | FileType::Directory);
        let wrong = [
            (
                has(flags::EXTENTS) && !features.has(Incompat::EXTENTS),
                "extents without the feature",
            ),
            (
                has(flags::INLINE_DATA) && !features.has(Incompat::INLINE_DATA),
                "inline data without the feature",
            ),
            (has(flags::EXTENTS) && has(flags::INLINE_DATA), "both extents and inline data"),
            (has(flags::INDEX) && !directory, "a hash index, but is no directory"),
            (
                has(flags::INDEX) && directory && !features.has(Compat::DIR_INDEX),
                "a hash index without the feature",
            ),
            (
                has(flags::INDEX) && has(flags::INLINE_DATA) && directory,
                "both a hash index and inline data",
            ),
            (
                has(flags::CASEFOLD) && (!directory || !features.has(Incompat::CASEFOLD)),
                "case folding without the feature, or is no directory",
            ),
            (
                has(flags::ENCRYPT) && !features.has(Incompat::ENCRYPT),
                "encrypted without the feature",
            ),
            (
                has(flags::IMAGIC) && !features.has(Compat::IMAGIC_INODES),
                "a magic inode without the feature",
            ),
            (
                !mapped && inode.flags & (flags::IMMUTABLE | flags::APPEND) != 0,
                "immutable or append-only set on a special file or link",
            ),
            (
                !mapped
                    && file_type != FileType::Symlink
                    && inode.flags & (flags::EXTENTS | flags::INLINE_DATA) != 0,
                "a block map, but is a special file",
            ),
        ];
        for (_, what) in wrong.iter().filter(|(wrong, _)| *wrong) {
            self.push(ino, "flags", format!("its flags say: {what}"));
        }
    }

    /// Fields that must be zero here.
    fn fields(&self, ino: InodeNo, inode: &Inode, raw: &[u8]) {
        let features = &self.image.geo.features;
        let set = |at: usize, len: usize| raw[at..at + len].iter().any(|byte| *byte != 0);
        if set(0x70, 4) {
            self.push(ino, "field", "the obsolete fragment address is not zero");
        }
        // Systems other than Linux and the Hurd may keep something else in the next two.
        let linux = self.image.geo.creator_os == creator::LINUX;
        if set(0x76, 2) && !features.has(Incompat::BIT64) && linux {
            self.push(ino, "field", "the high half of the attribute block is not zero");
        }
        let counted = linux || self.image.geo.is_hurd();
        if set(0x74, 2) && !features.has(RoCompat::HUGE_FILE) && counted {
            self.push(ino, "field", "the high half of the block count is not zero");
        }
        if inode.file_type() == Some(FileType::Directory)
            && set(0x6c, 4)
            && !features.has(Incompat::LARGEDIR)
        {
            self.push(ino, "size", "the high half of a directory's size is not zero");
        }
    }
}

/// Puts a mark at `index`, with free ones before it.
fn put(marks: &mut Vec<Mark>, index: u32, mark: Mark) {
    let at = to_usize(index);
    if marks.len() <= at {
        marks.resize(at + 1, Mark::default());
    }
    marks[at] = mark;
}
