//! Volumes of many kinds, each grown and shrunk in several steps.

use std::fs;
use std::path::Path;

use nextent::inodes::ROOT_INO;
use nextent::{Cred, Error};
use nextent_device::MemoryDevice;
use nextent_ondisk::Incompat;
use nextent_sync::Arc;
use nextent_testkit::tree::{HostDir, Tree, walk};
use nextent_testkit::{Access, KernelMount, Skip, e2fs, need};

use super::common::close;
use super::contents::{Contents, compare_with_linux, full_tree};
use super::files::{DIRS, Fill};
use super::volume::{self, ImageFile, Numbers, Spec, by_resize2fs, make, minimum, resized, verify};

/// Small flex groups, so that directories, and with them inodes, spread over the volume.
const EXT4: &str = "-t ext4 -G 2";
/// Groups of 1 MiB. Two blocks of descriptors are reserved, with 16 (or 32) descriptors each.
const GROUPS: &str = "-b 1024 -g 1024 -N 3500 -E resize=40000";
/// The same with a small journal.
const JOURNAL: &str = "-b 1024 -g 1024 -N 3500 -E resize=40000 -J size=1";
/// The same without reserved descriptors.
const UNRESERVED: &str = "-b 1024 -g 1024 -N 3500 -J size=1";

/// A volume of 11 groups.
fn kind(name: &'static str, args: &[&str]) -> Spec {
    Spec {
        name,
        mib: 11,
        args: args.join(" "),
        tune: &[],
        debugfs: &[],
        linux: None,
        fill: Fill { seed: 1, names: 100, percent: 85 },
    }
}

/// A step: the new number of blocks as a function of the numbers at the start and now.
type Step = (&'static str, fn(&Numbers, &MemoryDevice) -> u64);

/// The size before each step is that of the step before.
const ALL: [Step; 12] = [
    ("one block more", |old, _| old.blocks + 1),
    ("a last group that is too small", |old, _| old.blocks + 10),
    ("half a group more", |old, _| old.blocks + old.group_blocks / 2),
    ("within the last group", |old, _| old.blocks + old.group_blocks / 2 + 100),
    ("a few groups more", |old, _| old.blocks + 3 * old.group_blocks + 300),
    ("more blocks of descriptors", |old, _| old.blocks + 24 * old.group_blocks),
    ("more than are reserved", |old, _| 70 * old.group_blocks + 400),
    ("a last group with metadata of others", |old, _| 32 * old.group_blocks + 500),
    ("back", |old, _| old.blocks),
    ("a group less", |old, _| old.blocks - old.group_blocks),
    ("half of the free space", |old, now| u64::midpoint(old.blocks, fewest(now))),
    ("the minimum", |_, now| fewest(now)),
];

/// Fewer steps, for kinds whose layout is like that of others.
const FEW: [Step; 3] = [ALL[6], ALL[9], ALL[11]];

/// Without those that make files' maps larger, which is not supported with quotas.
const QUOTA: [Step; 2] = [ALL[6], ALL[9]];
/// For volumes that a resize must claim for several seconds.
const ONE: [Step; 1] = [ALL[9]];

fn fewest(device: &MemoryDevice) -> u64 {
    minimum(device).unwrap_or_else(|error| panic!("minimum: {error}"))
}

/// Runs the steps on a volume of `spec`.
fn run(spec: &Spec, steps: &[Step]) -> Result<(), Skip> {
    let (name, base) = (spec.name, make(spec)?);
    let old = Numbers::read(&base).expect("a superblock");
    let before = Contents::read(&base).unwrap_or_else(|text| panic!("{name}: {text}"));
    let mut device = base.snapshot();
    for (n, (step, target)) in steps.iter().enumerate() {
        let blocks = target(&old, &device);
        let from = Numbers::read(&device).expect("a superblock");
        let what = format!("{name}: {step}: {} to {blocks} blocks", from.blocks);
        let new = resized(&device, blocks).unwrap_or_else(|error| panic!("{what}: {error}"));
        verify(&new, &before).unwrap_or_else(|text| panic!("{what}: {text}"));
        if n % 3 == 0 {
            let numbers = Numbers::read(&new).expect("a superblock");
            compare(&what, &numbers, by_resize2fs(&device, blocks)?);
        }
        device = new;
    }
    if steps.len() == 1 {
        return Ok(());
    }
    // And back, which is the first size again.
    let new = resized(&device, old.blocks).unwrap_or_else(|error| panic!("{name}: back: {error}"));
    verify(&new, &before).unwrap_or_else(|text| panic!("{name}: back: {text}"));
    assert_eq!(Numbers::read(&new).expect("a superblock").blocks, old.blocks, "{name}");
    if steps.len() < ALL.len() && spec.linux.is_none() {
        return Ok(());
    }
    let tree = full_tree(&base).unwrap_or_else(|text| panic!("{name}: {text}"));
    by_linux(name, &new, &tree)
}

/// Compares the counts with those of resize2fs, which rounds the reserved blocks.
fn compare(what: &str, ours: &Numbers, theirs: Option<Numbers>) {
    let Some(theirs) = theirs else { return };
    assert!(ours.reserved.abs_diff(theirs.reserved) <= 1, "{what}: {ours:?}, {theirs:?}");
    let theirs = Numbers { reserved: ours.reserved, ..theirs };
    assert_eq!(*ours, theirs, "{what}: ours and those of resize2fs");
}

/// Linux mounts the volume and shows the same tree.
fn by_linux(name: &str, device: &MemoryDevice, tree: &Tree) -> Result<(), Skip> {
    let file = ImageFile::of(device);
    // The kernel may lack a feature.
    let Ok(mount) = KernelMount::try_new(&file.path(), Access::ReadWrite, "")? else {
        return Ok(());
    };
    let theirs = walk(&HostDir::new(mount.path())).unwrap();
    compare_with_linux(tree, &theirs).unwrap_or_else(|text| panic!("{name}: {text}"));
    std::fs::write(mount.join("new"), vec![1; 100_000]).unwrap();
    mount.unmount();
    e2fs::assert_clean(&file.path());
    Ok(())
}

macro_rules! kinds {
    ($($name:ident: $steps:ident, $args:expr $(, $field:ident: $value:expr)*;)*) => {$(
        #[test]
        fn $name() {
            #[allow(unused_mut)]
            let mut spec = kind(stringify!($name), &$args);
            $(spec.$field = $value;)*
            need!(run(&spec, &$steps));
        }
    )*};
}

kinds! {
    ext4: ALL, ["-t ext4", JOURNAL], fill: Fill { seed: 7, names: 1200, percent: 90 };
    ext3: FEW, ["-t ext3", JOURNAL];
    ext2: ALL, ["-t ext2", GROUPS];
    revision_0: FEW, ["-t ext2 -r 0 -b 1024 -g 1024 -N 3500"];
    upstream: FEW, [EXT4, JOURNAL, "-O orphan_file,metadata_csum_seed,fast_commit"];
    without_resize_inode: FEW, ["-t ext4", UNRESERVED, "-O ^resize_inode"];
    without_flex_bg: ALL, ["-t ext4", JOURNAL, "-O ^flex_bg"];
    flex_groups_of_4: FEW, ["-t ext4", JOURNAL, "-G 4"];
    meta_bg: ALL, ["-t ext4", UNRESERVED, "-O meta_bg,^resize_inode"];
    sparse_super2: ALL, [EXT4, UNRESERVED, "-O sparse_super2,^resize_inode"];
    one_backup: FEW, [EXT4, UNRESERVED, "-O sparse_super2,^resize_inode -E num_backup_sb=1"];
    without_sparse_super: FEW, [EXT4, UNRESERVED, "-O ^sparse_super,^resize_inode"];
    descriptors_of_32_bytes: FEW, [EXT4, JOURNAL, "-O ^64bit"];
    uninit_bg: ALL, [EXT4, JOURNAL, "-O uninit_bg,^metadata_csum"];
    without_journal: FEW, [EXT4, GROUPS, "-O ^has_journal"];
    inodes_of_128_bytes: FEW, [EXT4, JOURNAL, "-I 128"];
    project: FEW, [EXT4, JOURNAL, "-O project"];
    raid: FEW, [EXT4, JOURNAL, "-E stride=4,stripe_width=12"];
    quota: QUOTA, [EXT4, JOURNAL], tune: &["-O quota,project -Q usrquota,grpquota,prjquota"];
    mmp: ONE, [EXT4, JOURNAL, "-O mmp -E mmp_update_interval=1"];
    encrypt: FEW, [EXT4, JOURNAL, "-O encrypt,verity"];
    casefold: FEW, [EXT4, JOURNAL],
        debugfs: &["feature casefold", "ssv encoding 1", "mkdir /fold",
            "sif /fold flags 0x40080000", "cd /fold", "write @/small Name", "mkdir Sub"];
    large_dir: FEW, [EXT4, JOURNAL], debugfs: &["feature large_dir"];
    inline_data: FEW, [EXT4, JOURNAL],
        debugfs: &["feature inline_data", "cd /d9", "write @/tiny tiny", "write @/small small",
            "mkdir inline", "cd inline", "write @/tiny tiny", "ea_set -f @/tiny tiny user.a"],
        linux: Some(inline_data_by_linux);
    ea_inode: FEW, [EXT4, JOURNAL],
        debugfs: &["feature ea_inode", "ea_set -f @/large /d0/plain user.large",
            "ea_set -f @/large /d9 user.large", "ea_set -f @/small /d3/plain user.small"],
        linux: Some(ea_inodes_by_linux);
    blocks_of_4k: FEW, [EXT4, "-b 4096 -g 256 -N 3500 -J size=4 -E resize=17000"], mib: 18;
    blocks_of_2k: ALL, ["-t ext4 -b 2048 -g 512 -N 3500 -J size=2 -O ^resize_inode,^flex_bg"],
        mib: 14;
}

fn inline_data_by_linux(root: &Path) {
    for n in 0..DIRS as u8 {
        let dir = root.join(format!("d{n}/inline-dir"));
        fs::create_dir(&dir).unwrap();
        for (name, len) in [("a", 10), ("b", 100), ("c", 150), ("d", 3000)] {
            fs::write(dir.join(name), vec![n; len]).unwrap();
        }
    }
}

fn ea_inodes_by_linux(root: &Path) {
    for n in 0..DIRS as u8 {
        let path = root.join(format!("d{n}/plain"));
        for (name, len, fill) in [("user.same", 5000, 1), ("user.own", 3000, n)] {
            let value = vec![fill; len];
            rustix::fs::setxattr(&path, name, &value, rustix::fs::XattrFlags::empty()).unwrap();
        }
    }
}

/// A volume of features that a resize refuses by name.
#[test]
fn unsupported_features_are_named() {
    for (feature, args) in [("bigalloc", "-t ext4 -O bigalloc -C 16384")] {
        let dir = volume::scratch();
        let path = dir.path().join("image");
        let args: Vec<&str> = args.split(' ').collect();
        need!(e2fs::mke2fs(&path, 16 << 20, &args));
        let device = MemoryDevice::load(&path).unwrap();
        let old = device.to_bytes();
        let blocks = Numbers::read(&device).unwrap().blocks;
        let device = Arc::new(volume::with_size(&device, 32 << 20));
        for blocks in [blocks * 3 / 2, blocks * 3 / 4] {
            let error = volume::resize(device.clone(), blocks).expect_err(feature);
            assert!(matches!(error, Error::Unsupported(_)), "{feature}: {error:?}");
            assert!(error.to_string().contains(feature), "{feature}: {error}");
        }
        let minimum = volume::minimum(&device).expect_err(feature);
        assert!(minimum.to_string().contains(feature), "{feature}: {minimum}");
        assert!(device.to_bytes()[..16 << 20] == old, "{feature}: the volume changed");
    }
}

/// Descriptors become wide or narrow, at the same size and at another.
#[test]
fn the_width_of_descriptors() {
    for args in [
        ["-t ext4", JOURNAL],
        ["-t ext4 -O ^64bit", JOURNAL],
        ["-t ext4 -O meta_bg,^resize_inode", UNRESERVED],
        ["-t ext4 -O ^64bit,^resize_inode,^flex_bg", UNRESERVED],
        ["-t ext4 -O uninit_bg,^metadata_csum", JOURNAL],
        ["-t ext4 -O sparse_super2,^resize_inode,^has_journal", "-b 1024 -g 1024 -N 3500"],
    ] {
        let mut device = need!(make(&kind("width", &args)));
        let before = Contents::read(&device).unwrap();
        let old = Numbers::read(&device).unwrap();
        for blocks in [old.blocks, old.blocks, 2 * old.blocks, old.blocks * 3 / 4] {
            let wide = !is_wide(&device);
            let what = format!("{args:?}: wide: {wide}, {blocks} blocks");
            let options = volume::with_width(wide);
            device = volume::resized_with(&device, blocks, &options)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            verify(&device, &before).unwrap_or_else(|text| panic!("{what}: {text}"));
            assert_eq!(is_wide(&device), wide, "{what}");
            assert!(Numbers::read(&device).unwrap().blocks.abs_diff(blocks) < 150, "{what}");
        }
    }
}

fn is_wide(device: &MemoryDevice) -> bool {
    let sb = volume::superblock(device).unwrap();
    assert_eq!(sb.features().has(Incompat::BIT64), sb.desc_size.get() == 64);
    sb.desc_size.get() == 64
}

/// A volume without a free block gets more descriptors than it has blocks for.
#[test]
fn a_full_volume() {
    for args in [
        ["-t ext4 -G 2", JOURNAL],
        ["-t ext4 -O ^resize_inode,^flex_bg", UNRESERVED],
        ["-t ext2", GROUPS],
    ] {
        let device = Arc::new(need!(make(&kind("full", &args))));
        let volume = volume::open(&device).unwrap();
        let root = Cred::root();
        let filler = volume.create_file(&root, ROOT_INO, b"filler", 0o644).unwrap();
        let full = (0..).find_map(|n| filler.write(n * 1024, &[7; 1024]).err());
        assert!(matches!(full, Some(Error::NoSpace)), "{args:?}: {full:?}");
        drop(filler);
        close(&volume);
        drop(volume);
        let before = Contents::read(&device).unwrap();
        let new = resized(&device, 70_000).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        verify(&new, &before).unwrap_or_else(|text| panic!("{args:?}: {text}"));
        assert!(Numbers::read(&new).unwrap().blocks > 69_000, "{args:?}");
    }
}

/// A volume that was not closed is recovered first: its log, and files without a name.
#[test]
fn a_volume_that_was_not_closed() {
    for (args, blocks) in [
        (["-t ext4", JOURNAL, ""], 20_000),
        (["-t ext4", JOURNAL, "-O orphan_file"], 12_000),
        (["-t ext3", JOURNAL, ""], 12_000),
    ] {
        let base = need!(make(&kind("not closed", &args)));
        let device = Arc::new(base);
        let volume = volume::open(&device).unwrap();
        let root = Cred::root();
        let removed = volume.resolve(&root, b"/d3/plain", false).unwrap().ino;
        volume.pin(removed).unwrap();
        for dir in ["/d3", "/d3/sub", "/d6/below", "/index", ""] {
            let names = ["plain", "hard", "hard3"].map(|name| format!("{dir}/{name}"));
            for name in names {
                let Ok((dir, name)) = volume.resolve_parent(&root, name.as_bytes()) else {
                    continue;
                };
                if volume.lookup(&root, dir, name).is_ok_and(|attr| attr.ino == removed) {
                    volume.unlink(&root, dir, name).unwrap();
                }
            }
        }
        volume.mkdir(&root, ROOT_INO, b"late", 0o755).unwrap();
        volume.sync().unwrap();
        let cut = device.snapshot();
        let recovered = Contents::read(&cut).unwrap();
        let new = resized(&cut, blocks).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        verify(&new, &recovered).unwrap_or_else(|text| panic!("{args:?}: {text}"));
    }
}

/// Bad blocks cannot move. A resize that moves nothing leaves them.
#[test]
fn bad_blocks_stay() {
    let dir = volume::scratch();
    let list = dir.path().join("list");
    fs::write(&list, "3000\n9000\n9001\n").unwrap();
    let args = format!("-l {}", list.display());
    let base = need!(make(&kind("bad blocks", &["-t ext4", JOURNAL, &args])));
    let before = Contents::read(&base).unwrap();
    let larger = resized(&base, 20_000).unwrap();
    verify(&larger, &before).unwrap();
    let error = resized(&base, 8000).expect_err("the bad blocks cannot move");
    assert!(error.to_string().contains("bad blocks"), "{error}");
}
