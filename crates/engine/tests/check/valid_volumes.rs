//! Valid volumes that Linux and old programs made: the check finds no problem.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, chown};
use std::path::Path;

use nextent_testkit::{Access, KernelMount, TreeMaker, e2fs, need};

use super::support::{TestImage, lines, ours};

/// Sets an attribute. Returns false if the file system has no space for it.
fn set(path: &Path, name: &str, len: usize, fill: u8) -> bool {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let name = CString::new(name).unwrap();
    let value = vec![fill; len];
    // SAFETY: the strings end with a zero, and the value has `len` bytes.
    let done = unsafe {
        libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    done == 0
}

/// Checks that the volume is clean for e2fsck and for the check.
#[track_caller]
fn assert_valid(path: &Path, what: &str) {
    let theirs = e2fs::e2fsck(path).unwrap();
    assert!(theirs.is_clean(), "{what}: e2fsck:\n{}", theirs.text);
    let report = ours(path);
    let clean = report.as_ref().is_ok_and(|report| report.is_clean() && report.is_whole());
    assert!(clean, "{what}:\n{}", lines(&report));
}

/// Values in `ea_inode` inodes. Some are shared, some are in shared attribute blocks.
#[test]
fn values_in_inodes() {
    for args in [
        "-t ext4 -b 1024 -O ea_inode",
        "-t ext4 -b 4096 -O ea_inode,quota,project",
        "-t ext4 -b 1024 -O ea_inode,^metadata_csum -I 128",
        "-t ext4 -b 4096 -O ea_inode,bigalloc -C 16384",
        "-t ext4 -b 1024 -O ea_inode,inline_data,^huge_file",
    ] {
        let made = need!(TestImage::empty(64 << 20, args));
        let mount = match need!(KernelMount::try_new(&made.path(), Access::ReadWrite, "")) {
            Ok(mount) => mount,
            // The kernel lacks a feature.
            Err(_) => continue,
        };
        for n in 0..24_u8 {
            let path = mount.path().join(format!("file-{n}"));
            match n % 6 {
                5 => std::fs::create_dir(&path).unwrap(),
                _ => std::fs::write(&path, vec![n; usize::from(n) * 100]).unwrap(),
            }
            // Equal values in several files, and different ones.
            set(&path, "user.shared", 30_000, n % 2);
            set(&path, "user.own", 5000 + usize::from(n), n);
            set(&path, "user.short", 300, n % 3);
            set(&path, "user.gr\u{f6}\u{df}e", 90, n);
            chown(&path, Some(u32::from(n % 4) * 1000), Some(u32::from(n % 3) * 70_000)).unwrap();
        }
        for n in [3, 9, 10] {
            std::fs::remove_file(mount.path().join(format!("file-{n}"))).unwrap();
        }
        assert!(set(&mount.path().join("file-1"), "user.shared", 20, 9));
        mount.unmount();
        assert_valid(&made.path(), args);
    }
}

/// The check compares the reference count of a value's inode.
#[test]
fn references_to_values() {
    let made = need!(TestImage::empty(32 << 20, "-t ext4 -b 1024 -O ea_inode -N 64"));
    let mount = need!(KernelMount::new(&made.path(), Access::ReadWrite));
    for name in ["a", "b"] {
        let path = mount.path().join(name);
        std::fs::write(&path, name).unwrap();
        assert!(set(&path, "user.shared", 30_000, 1));
    }
    mount.unmount();
    assert_valid(&made.path(), "two references");
    let sound = std::fs::read(made.path()).unwrap();
    let holder = (12..20).find(|ino| {
        let stat = e2fs::debugfs(&made.path(), false, &[&format!("stat <{ino}>")]);
        stat.is_ok_and(|text| text.contains("Flags: 0x280000"))
    });
    let holder = holder.expect("an inode that holds the value");
    for change in [
        format!("sif <{holder}> version 7"),
        format!("sif <{holder}> atime_lo 99"),
        format!("sif <{holder}> links_count 2"),
        format!("sif <{holder}> flags 0x80000"),
        format!("sif <{holder}> size 100"),
        "sif /a blocks 2".to_owned(),
        "ln a again".to_owned(),
    ] {
        std::fs::write(made.path(), &sound).unwrap();
        need!(e2fs::debugfs(&made.path(), true, &[&change]));
        let theirs = e2fs::e2fsck(&made.path()).unwrap();
        if change.contains("atime") && theirs.is_clean() {
            continue;
        }
        assert!(!theirs.is_clean(), "{change}: e2fsck:\n{}", theirs.text);
        let report = ours(&made.path());
        assert!(report.is_ok_and(|report| !report.is_clean()), "{change}");
    }
}

/// Many owner numbers, whose entries fill the trees of the quota files that e2fsck writes.
#[test]
fn quota_files_with_many_owners() {
    for args in ["-t ext4 -b 1024 -O quota,project", "-t ext4 -b 4096 -O quota"] {
        let spec = TreeMaker { files: 150, big_dir: 100, ..TreeMaker::default() };
        let made = need!(TestImage::filled(64 << 20, args, &spec));
        let set = |n: u32| {
            let (uid, gid) = (n.wrapping_mul(n) << (n % 17), 5 * (n % 40));
            [format!("sif <{n}> uid {uid}"), format!("sif <{n}> gid {gid}")]
        };
        let owners: Vec<String> = (20..200).flat_map(set).collect();
        let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
        need!(e2fs::debugfs(&made.path(), true, &owners));
        assert!(!e2fs::e2fsck(&made.path()).unwrap().is_clean());
        assert!(ours(&made.path()).is_ok_and(|report| !report.is_clean()), "{args}");
        need!(e2fs::run("e2fsck", ["-fy", made.path().to_str().unwrap()]));
        assert_valid(&made.path(), args);
        // Linux refuses a quota file with a damaged header.
        need!(e2fs::debugfs(&made.path(), true, &["zap_block -f <3> -o 0 -l 1 -p 0 0"]));
        assert!(ours(&made.path()).is_ok_and(|report| !report.is_clean()), "{args}");
    }
}

/// mke2fs of 2008 and before mapped one block of the journal past its size.
#[test]
fn journals_of_2008() {
    for args in ["-t ext3 -O ^resize_inode -b 1024 -J size=2", "-t ext3 -b 4096 -J size=4"] {
        let made = need!(TestImage::empty(32 << 20, args));
        let blocks: u64 = if args.contains("1024") { 2048 } else { 1024 };
        let block_size = if args.contains("1024") { 1024 } else { 4096 };
        let size = (blocks - 1) * block_size;
        let commands = [format!("sif <8> size {size}"), "bmap <8> 0".to_owned()];
        let said = need!(e2fs::debugfs(&made.path(), true, &commands.each_ref().map(|c| &c[..])));
        let first = said.lines().rev().find_map(|line| line.trim().parse::<u64>().ok());
        let length = u32::try_from(blocks - 1).unwrap().to_be_bytes();
        let file = std::fs::File::options().write(true).open(made.path()).unwrap();
        file.write_all_at(&length, first.unwrap() * block_size + 16).unwrap();
        drop(file);
        assert_valid(&made.path(), args);
        // One more block past the size is damage.
        need!(e2fs::debugfs(&made.path(), true, &[&format!("sif <8> size {}", size - block_size)]));
        assert!(!e2fs::e2fsck(&made.path()).unwrap().is_clean(), "{args}");
        assert!(ours(&made.path()).is_ok_and(|report| !report.is_clean()), "{args}");
    }
}
