//! After pass 4: compares the counts of quota files with the usage of users, groups and projects.
//!
//! A quota file is a tree of blocks of 1 KiB: block 0 is a header, block 1 the root. Each byte of
//! an owner's number, highest first, selects one of 256 children; the fourth leads to a block of
//! entries, which several numbers share. The inodes that the superblock names, and those that hold
//! values of attributes, have no owner; a value counts for each file that has the attribute.
//!
//! Source: the kernel's `Documentation/filesystems/quota.rst` and the layout of its format
//! "vfsv1".

use nextent_num::to_u64;
use nextent_ondisk::extent::Extent;
use nextent_ondisk::{Inode, InodeNo, RoCompat};
use nextent_sync::{HashMap, HashSet, Mutex};

use super::image::Image;
use super::locks;
use super::report::Problem;
use super::walk;

const BLOCK: usize = 1024;
const ROOT_BLOCK: u32 = 1;
/// Levels of pointers above the entries.
const DEPTH: u32 = 4;
const VERSION: u32 = 1;
/// The header of a block of entries, and the bytes of an entry.
const ENTRIES_AT: usize = 16;
const ENTRY: usize = 72;

/// A kind of owner: its name, and the magic number of its quota file.
const KINDS: [(&str, u32); 3] =
    [("user", 0xd9c0_1f11), ("group", 0xd9c0_1927), ("project", 0xd9c0_3f14)];

/// The usage of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    inodes: u64,
    bytes: u64,
}

type Owners = HashMap<u32, Usage>;

/// The usage of all owners.
pub(super) struct Quotas {
    used: Mutex<[Owners; 3]>,
    on: bool,
}

impl Quotas {
    pub(super) fn new(image: &Image) -> Self {
        let used = Mutex::new(&locks::FOUND, [(); 3].map(|()| Owners::default()));
        Self { used, on: image.geo.features.has(RoCompat::QUOTA) }
    }

    /// Counts a file, `values` of whose attributes are inodes of their own.
    pub(super) fn add(&self, image: &Image, inode: &Inode, values: u64) {
        if !self.on {
            return;
        }
        let bytes = inode.sectors(&image.geo).saturating_mul(512);
        let mut used = self.used.lock();
        let owners = [inode.uid, inode.gid, inode.project];
        for (kind, owner) in used.iter_mut().zip(owners) {
            let usage = kind.entry(owner).or_default();
            usage.inodes += 1 + values;
            usage.bytes = usage.bytes.saturating_add(bytes);
        }
    }

    /// Compares the quota files.
    pub(super) fn check(&self, image: &Image) {
        if !self.on {
            return;
        }
        let sb = &image.sb;
        let files = [&sb.usr_quota_inum, &sb.grp_quota_inum, &sb.prj_quota_inum];
        let used = std::mem::take(&mut *self.used.lock());
        for ((kind, ino), used) in KINDS.iter().zip(files).zip(used.iter()) {
            let ino = InodeNo(ino.get());
            if ino.0 != 0 {
                file(image, *kind, ino, used);
            }
        }
    }
}

/// Compares one quota file with the usage.
fn file(image: &Image, (what, magic): (&str, u32), ino: InodeNo, used: &Owners) {
    let push = |text: String| image.push(Problem::error(5, "quota", text).at_inode(ino));
    let Some((inode, _)) = image.inode(5, ino) else {
        return push(format!("the {what} quota file cannot be read"));
    };
    let runs = walk::runs(image, 5, ino, &inode);
    if runs.damaged {
        // Pass 1 has reported it.
        return;
    }
    let file = File { image, runs: runs.runs, blocks: inode.size.div_ceil(to_u64(BLOCK)) };
    let counted = match entries(&file, magic) {
        Ok(counted) => counted,
        Err(text) => return push(format!("the {what} quota file is damaged: {text}")),
    };
    for (owner, has) in used {
        let Some(counted) = counted.get(owner) else {
            push(format!("no entry for {what} {owner}, which has {} inodes", has.inodes));
            continue;
        };
        difference(what, *owner, *counted, *has).into_iter().for_each(push);
    }
    for (owner, counted) in &counted {
        if !used.contains_key(owner) {
            difference(what, *owner, *counted, Usage::default()).into_iter().for_each(push);
        }
    }
}

fn difference(what: &str, owner: u32, counted: Usage, has: Usage) -> Option<String> {
    let (counts, should) = ([counted.inodes, counted.bytes], [has.inodes, has.bytes]);
    (counted != has).then(|| {
        let [inodes, bytes] = counts;
        let [all, whole] = should;
        format!("{what} {owner} has {inodes} inodes and {bytes} bytes, should be {all} and {whole}")
    })
}

struct File<'a> {
    image: &'a Image,
    runs: Vec<Extent>,
    /// Blocks of 1 KiB.
    blocks: u64,
}

impl File<'_> {
    /// Block `no` of the tree.
    fn read(&self, no: u32) -> Result<Vec<u8>, String> {
        let bits = self.image.geo.block_bits - 10;
        let at = u64::from(no) >> bits;
        let place = self.runs.partition_point(|run| run.end() <= at);
        let run = self.runs.get(place).filter(|run| u64::from(run.block.0) <= at);
        let Some(run) = run.filter(|_| u64::from(no) < self.blocks) else {
            return Err(format!("its block {no} is missing"));
        };
        let block = run.start.0 + (at - u64::from(run.block.0));
        let part = u64::from(no) & ((1 << bits) - 1);
        let mut bytes = vec![0; BLOCK];
        let at = (block << self.image.geo.block_bits) + part * to_u64(BLOCK);
        let read = self.image.device.read_at(at, &mut bytes);
        read.map_err(|error| format!("block {block} cannot be read: {error}"))?;
        Ok(bytes)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// All entries of a quota file; each block is read once.
fn entries(file: &File<'_>, magic: u32) -> Result<Owners, String> {
    let head = file.read(0)?;
    if word(&head, 0) != magic || word(&head, 4) != VERSION {
        let (found, version) = (word(&head, 0), word(&head, 4));
        return Err(format!("its magic number is {found:#x}, its version {version}"));
    }
    let mut found = Owners::default();
    let mut seen = HashSet::default();
    let mut stack = vec![(ROOT_BLOCK, 0)];
    while let Some((no, depth)) = stack.pop() {
        if !seen.insert(no) {
            if depth < DEPTH {
                return Err(format!("its tree leads to block {no} twice"));
            }
            continue;
        }
        let bytes = file.read(no)?;
        if depth < DEPTH {
            let children = (0..BLOCK).step_by(4).map(|at| word(&bytes, at));
            stack.extend(children.filter(|child| *child != 0).map(|child| (child, depth + 1)));
            continue;
        }
        for entry in bytes[ENTRIES_AT..].chunks_exact(ENTRY) {
            if entry.iter().any(|byte| *byte != 0) {
                let usage = Usage { inodes: long(entry, 24), bytes: long(entry, 48) };
                found.insert(word(entry, 0), usage);
            }
        }
    }
    Ok(found)
}
