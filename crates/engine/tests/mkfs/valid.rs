//! Made volumes are valid: e2fsck finds no problem, and the kernel mounts and writes them. The same
//! options give the same bytes. Impossible options give an error of one line.

use std::path::Path;

use nextent::mkfs::{self, MkfsError, MkfsOptions, Plan};
use nextent_device::{BlockDevice, FileDevice, FileOptions, MemoryDevice};
use nextent_sync::{Duration, Instant};
use nextent_testkit::{Access, KernelMount, Skip, e2fs, need};

use crate::args;

/// Layouts that mke2fs makes differently, or cannot make.
const CHECKED: &[&str] = &[
    "100k",
    "300m -g 256",
    "3t",
    "10g -b 1024 -O ^sparse_super,^resize_inode",
    "50g -O sparse_super2,^sparse_super",
    "300m -b 16384 -i 16384",
    "8g -b 65536 -I 1024",
    "40m -b 2048 -t ext3",
    "40m -O extents,uninit_bg,^metadata_csum,^64bit,meta_bg,^resize_inode",
    "40m -O orphan_file -b 1024 -I 512",
    "40m -O mmp -E mmp_update_interval=300",
];

/// Layouts to mount: small, one for each combination that the kernel reads differently.
const MOUNTED: &[&str] = &[
    "64m",
    "64m -t ext2",
    "64m -t ext3",
    "64m -b 2048 -O ^flex_bg",
    "300m -b 4096 -O meta_bg,^resize_inode",
    "64m -O uninit_bg,^metadata_csum",
    "64m -O ^64bit,sparse_super2",
    "64m -O ^has_journal -I 1024",
    "64m -O orphan_file,metadata_csum_seed -b 4096",
    "64m -O fast_commit -I 128",
    "64m -O mmp,orphan_file",
    "64m -O mmp,^metadata_csum -b 4096 -E mmp_update_interval=1",
    "200m -N 100000 -E lazy_itable_init=0",
];

#[test]
fn e2fsck_finds_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("image");
    for line in CHECKED {
        let made = args::make(&path, &args::parse(line));
        assert!(made.is_ok(), "{line}: {:?}", made.err());
        let report = need!(e2fs::e2fsck(&path));
        assert!(report.is_clean(), "{line}: {}", report.text);
    }
}

fn use_by_kernel(path: &Path, line: &str) -> Result<(), Skip> {
    let mount = KernelMount::new(path, Access::ReadWrite)?;
    for at in 0..40 {
        let sub = mount.join(format!("d{at}"));
        std::fs::create_dir(&sub).expect("a directory");
        std::fs::write(sub.join("file"), vec![at; 5000 * usize::from(at)]).expect("a file");
    }
    for at in 0..20 {
        std::fs::remove_dir_all(mount.join(format!("d{at}"))).expect("removed");
    }
    mount.unmount();
    let report = e2fs::e2fsck(path)?;
    assert!(report.is_clean(), "{line}: {}", report.text);
    Ok(())
}

#[test]
fn the_kernel_mounts_and_writes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("image");
    for line in MOUNTED {
        args::make(&path, &args::parse(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
        need!(use_by_kernel(&path, line));
    }
}

#[test]
fn old_contents_of_the_device_do_not_matter() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("image");
    for line in ["16m -t ext2", "16m -t ext3", "16m", "16m -O orphan_file -b 4096"] {
        let mut case = args::parse(line);
        std::fs::write(&path, vec![0xa5; case.size as usize]).expect("a file");
        let device = FileDevice::open(&path, &FileOptions::default()).expect("it opens");
        case.options.extended.discard = false;
        mkfs::make(&device, &case.options).expect("it is made");
        drop(device);
        let report = need!(e2fs::e2fsck(&path));
        assert!(report.is_clean(), "{line}: {}", report.text);
        need!(use_by_kernel(&path, line));
    }
}

fn bytes_of(options: &MkfsOptions) -> Vec<u8> {
    let device = MemoryDevice::new(12 << 20);
    mkfs::make(&device, options).expect("it is made");
    let mut bytes = vec![0; 12 << 20];
    device.read_at(0, &mut bytes).expect("a read");
    bytes
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let mut options = args::parse("12m").options;
    let first = bytes_of(&options);
    assert!(first == bytes_of(&options));
    options.uuid = None;
    assert!(first != bytes_of(&options));
}

#[test]
fn sixteen_tebibytes_are_made_quickly() {
    let device = MemoryDevice::new(16 << 40);
    let case = args::parse("16t");
    let start = Instant::now();
    let plan = mkfs::make(&device, &case.options).expect("it is made");
    assert_eq!(plan.geometry().group_count, 131_072);
    // The limit has a margin for debug builds on busy machines.
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn impossible_options_are_refused() {
    let refused = |line: &str| {
        let case = args::parse(line);
        match Plan::new(&case.options, case.size) {
            Ok(_) => panic!("{line} was accepted"),
            Err(error) => error,
        }
    };
    for (line, feature) in [
        ("64m -O bigalloc", "bigalloc"),
        ("64m -O quota", "quota"),
        ("64m -O project", "project"),
        ("64m -O encrypt", "encrypt"),
        ("64m -O casefold", "casefold"),
        ("64m -O inline_data", "inline_data"),
        ("64m -O ea_inode", "ea_inode"),
        ("64m -O journal_dev", "journal_dev"),
    ] {
        let error = refused(line);
        assert!(matches!(&error, MkfsError::Unsupported(name) if name == feature), "{error}");
    }
    for line in [
        "64m -O nonsense",
        "64m -O mmp -E mmp_update_interval=301",
        "64m -E mmp_update_interval=5",
        "64m -b 3000",
        "64m -I 100",
        "64m -I 2048",
        "8g -b 65536 -I 65536 -i 1048576",
        "64m -g 1001",
        "64m -g 9000",
        "64m -G 3",
        "64m -m 60",
        "64m -i 100",
        "64m -N 10000000",
        "64m -J 1000",
        "64m -O meta_bg",
        "64m -t ext2 -O 64bit",
        "64m -E resize=1000",
        "64m -E num_backup_sb=3",
        "64m -t ext3 -G 16",
        "1k",
        "30k",
        "32t -O ^64bit",
        "20m -r 0 -J 1",
        "20m -r 0 -G 4",
        "20m -r 0 -E resize=100000000",
        "20m -O meta_bg,^resize_inode -E resize=100000000",
        "20m -t ext2 -O ^sparse_super,^resize_inode -E resize=100000000",
        "0k",
    ] {
        let text = refused(line).to_string();
        assert!(!text.contains('\n') && !text.is_empty(), "{line}: {text}");
    }
}

/// The journal's location and the size of its fast-commit area do not request a journal.
#[test]
fn only_a_size_requests_a_journal() {
    for (line, journal) in [
        ("64m -t ext2", false),
        ("64m -O ^has_journal", false),
        ("64m -t ext2 -J 4", true),
        ("64m -O ^has_journal -J 4", true),
    ] {
        let mut case = args::parse(line);
        case.options.journal.location = Some(5000);
        case.options.journal.fast_commit_size = Some(256 << 10);
        let plan = Plan::new(&case.options, case.size).expect(line);
        let has = plan.superblock().features().has(nextent_ondisk::Compat::HAS_JOURNAL);
        assert_eq!(has, journal, "{line}");
    }
}
