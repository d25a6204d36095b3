//! Random changes of bytes in metadata: the check and e2fsck must agree.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nextent_ondisk::extent::Node;
use nextent_ondisk::group_desc::GroupDesc;
use nextent_ondisk::inode::{self, flags};
use nextent_ondisk::{BlockNo, FileType, Geometry, GroupNo, Inode, InodeNo, Superblock};
use nextent_testkit::{Rng, TreeMaker, e2fs, need};

use super::support::{TestImage, lines, ours};

/// A metadata structure of the image: name and location.
struct DamageTarget {
    name: String,
    at: u64,
    len: u64,
    /// For an inode: half of the trials correct its checksum.
    inode: Option<InodeNo>,
}

struct BaseImage {
    file: File,
    geo: Geometry,
    targets: Vec<DamageTarget>,
}

impl BaseImage {
    fn open(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut bytes = vec![0; 1024];
        file.read_exact_at(&mut bytes, 1024).unwrap();
        let sb = Superblock::read(&bytes).unwrap();
        let geo = sb.check(u64::MAX).unwrap();
        let mut base = Self { file, geo, targets: Vec::new() };
        base.find();
        base
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn add(&mut self, name: impl Into<String>, at: u64, len: u64) {
        self.targets.push(DamageTarget { name: name.into(), at, len, inode: None });
    }

    fn find(&mut self) {
        self.add("superblock", 1024, 0x290);
        for group in (0..self.geo.group_count.min(3)).map(GroupNo) {
            let (block, at) = self.geo.desc_location(group);
            let place = (block.0 << self.geo.block_bits) + at as u64;
            let size = usize::from(self.geo.desc_size);
            self.add(format!("descriptor {group}"), place, size as u64);
            let desc = GroupDesc::read(&self.read(place, size)).unwrap();
            let byte = |block: BlockNo| block.0 << self.geo.block_bits;
            let (blocks, inodes) = (byte(desc.block_bitmap), byte(desc.inode_bitmap));
            let table = byte(desc.inode_table);
            self.add(format!("block bitmap {group}"), blocks, self.geo.block_size.into());
            self.add(format!("inode bitmap {group}"), inodes, self.geo.block_size.into());
            for index in 0..desc.inodes_touched(&self.geo).min(200) {
                self.inode(self.geo.inode_at(group, index), table, index);
            }
        }
    }

    fn inode(&mut self, ino: InodeNo, table: u64, index: u32) {
        let size = self.geo.inode_size;
        let at = table + u64::from(index) * u64::from(size);
        let bytes = self.read(at, size.into());
        if bytes.iter().all(|byte| *byte == 0) {
            return;
        }
        let inode = Inode::read(&self.geo, &bytes).unwrap();
        let name = format!("inode {ino} ({:?})", inode.file_type());
        self.targets.push(DamageTarget { name, at, len: size.into(), inode: Some(ino) });
        let bits = self.geo.block_bits;
        if inode.file_acl.0 != 0 {
            self.add(format!("attributes of {ino}"), inode.file_acl.0 << bits, 128);
        }
        if !inode.has_flag(flags::EXTENTS) {
            let first = nextent_ondisk::indirect::pointer(&inode.block, 0);
            if inode.file_type() == Some(FileType::Directory) && first.0 != 0 {
                self.add(format!("directory {ino}"), first.0 << bits, self.geo.block_size.into());
            }
            let single = nextent_ondisk::indirect::pointer(&inode.block, 12);
            if inode.file_type() == Some(FileType::Regular) && single.0 != 0 {
                self.add(format!("indirect of {ino}"), single.0 << bits, 64);
            }
            return;
        }
        let Ok(node) = Node::new(&inode.block) else { return };
        if node.depth() > 0 {
            let child = node.index(0).child.0 << bits;
            self.add(format!("extent node of {ino}"), child, self.geo.block_size.into());
        } else if inode.file_type() == Some(FileType::Directory) {
            for run in node.extents() {
                for n in 0..run.len.min(4) {
                    let at = (run.start.0 + u64::from(n)) << bits;
                    self.add(format!("directory {ino}"), at, self.geo.block_size.into());
                }
            }
        }
    }

    /// Changes a few bytes of one structure. Returns the bytes to restore, and a description.
    fn damage(&self, rng: &mut Rng) -> ((u64, Vec<u8>), String) {
        // The first targets are few, and more important than the many similar inodes.
        let few = self.targets.len().min(12) as u64;
        let range = if rng.percent(40) { few } else { self.targets.len() as u64 };
        let target = &self.targets[rng.below(range) as usize];
        let before = self.read(target.at, target.len as usize);
        let mut after = before.clone();
        let mut what = target.name.clone();
        // Most structures have their fields at the start.
        let reach = if rng.percent(60) { target.len.min(160) } else { target.len };
        for _ in 0..1 + rng.below(2) {
            let at = rng.below(reach) as usize;
            let new = match rng.below(4) {
                0 => after[at] ^ (1 << rng.below(8)),
                1 => 0,
                2 => after[at].wrapping_add(1),
                _ => rng.below(256) as u8,
            };
            what += &format!(", byte {at:#x}: {:#x} to {new:#x}", after[at]);
            after[at] = new;
        }
        if let Some(ino) = target.inode.filter(|_| rng.percent(70)) {
            inode::seal(&self.geo, ino, &mut after);
            what += ", sealed";
        } else if target.name == "superblock" && rng.percent(70) {
            let mut bytes = self.read(1024, 1024);
            bytes[..after.len()].copy_from_slice(&after);
            let mut sb = Superblock::read(&bytes).unwrap_or_else(|_| Superblock::empty());
            sb.seal();
            let seal = self.read(1024 + 0x3fc, 4);
            drop(seal);
            what += ", sealed";
            let all = self.read(1024, 1024);
            if sb.bytes()[0x38..0x3a] == bytes[0x38..0x3a] {
                self.file.write_all_at(sb.bytes(), 1024).unwrap();
            }
            return ((1024, all), what);
        }
        self.file.write_all_at(&after, target.at).unwrap();
        ((target.at, before), what)
    }
}

/// Damage that the check reports, but e2fsck -n does not count, or ignores by design.
fn excused(theirs: &e2fs::Report, what: &str) -> bool {
    // Printed, but not counted: wrong descriptor checksums ("IGNORED", though Linux refuses to
    // mount), extent roots without entries ("Optimize?", though Linux refuses to read them).
    let said = ["IGNORED", "Optimize? no", "Fix? no", "Recreate? no"];
    let passed_over = theirs.is_clean() && said.iter().any(|word| theirs.text.contains(word));
    // e2fsck reads the features in a superblock of revision 0; in the format there are none.
    let revision = what.starts_with("superblock") && what.contains("byte 0x4c");
    // e2fsck takes the bits of fixed metadata as set, without the bitmap.
    let metadata = theirs.is_clean() && what.starts_with("block bitmap");
    // e2fsck -n does not follow the chain of orphans. A value's padding is part of its hash.
    let chain = (0xe8..0xec).any(|at| what.contains(&format!("byte {at:#x}:")));
    let orphans = theirs.is_clean() && what.starts_with("superblock") && chain;
    let padding = theirs.is_clean() && what.starts_with("attributes");
    // e2fsck reports an attribute block past the end only for inodes with names.
    let journal = theirs.is_clean() && what.starts_with("inode 8 ");
    // e2fsck accepts movable metadata on a bad block.
    let bad_block = theirs.is_clean() && what.starts_with("inode 1 ");
    let small = padding || journal || bad_block;
    passed_over || revision || metadata || orphans || small
}

/// Runs trials on one image. Returns the number of agreements, and a text for each disagreement.
fn trials(made: &TestImage, seed: u64, count: u64) -> (u64, Vec<String>) {
    let base = BaseImage::open(&made.path());
    let mut rng = Rng::new(seed);
    let (mut dirty, mut wrong) = (0, Vec::new());
    for trial in 0..count {
        let ((at, before), what) = base.damage(&mut rng);
        let theirs = e2fs::e2fsck(&made.path()).unwrap();
        let report = ours(&made.path());
        base.file.write_all_at(&before, at).unwrap();
        let clean = report.as_ref().is_ok_and(|report| report.is_clean());
        dirty += u64::from(!theirs.is_clean());
        if clean != theirs.is_clean() && !excused(&theirs, &what) {
            let said: String = theirs.text.lines().skip(1).map(|l| format!("    {l}\n")).collect();
            let text = lines(&report);
            let code = theirs.code;
            wrong
                .push(format!("seed {seed} trial {trial}: {what}\n{text}  e2fsck {code}:\n{said}"));
        }
    }
    (dirty, wrong)
}

const SETS: [&str; 10] = [
    "-t ext4 -b 1024",
    "-t ext4 -O ^metadata_csum -b 1024 -N 512",
    "-t ext2 -b 1024 -N 512",
    "-t ext3 -O dir_index -N 512",
    "-t ext4 -O orphan_file,metadata_csum_seed -N 512",
    "-t ext4 -O ^metadata_csum,uninit_bg,^64bit -I 128",
    "-t ext4 -b 1024 -O quota,project,ea_inode -N 512",
    "-t ext2 -b 1024 -o hurd -N 512",
    "-t ext4 -O inline_data,^64bit -N 512",
    "-t ext3 -b 1024 -o lites -I 128 -N 512",
];

#[test]
fn the_check_agrees_with_e2fsck() {
    let count = std::env::var("NEXTENT_TRIALS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let first = std::env::var("NEXTENT_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let (mut all, mut dirty, mut wrong) = (0, 0, Vec::new());
    for (set, args) in SETS.iter().enumerate() {
        let spec = TreeMaker {
            seed: first,
            files: 60,
            longest: 60_000,
            big_dir: 120,
            depth: 6,
            ..TreeMaker::default()
        };
        let made = need!(TestImage::filled(24 << 20, args, &spec));
        need!(e2fs::e2fsck(&made.path())).assert_clean();
        let (bad, lines) = trials(&made, first * 100 + set as u64, count);
        all += count;
        dirty += bad;
        wrong.extend(lines.into_iter().map(|line| format!("{args}: {line}")));
    }
    let agreed = all - wrong.len() as u64;
    eprintln!("{agreed} of {all} agree, {dirty} of them damaged for e2fsck");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
