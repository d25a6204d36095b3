//! Attributes that the kernel has cached, after changes: `stat(2)` shows what the server would
//! answer now.

use crate::support::*;
use nextent_testkit::need;
use rustix::fs::{AtFlags, CWD, RenameFlags, StatxFlags, XattrFlags};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// The attributes of a file, with names, for a comparison; from the server if `forced`.
fn stat(path: &Path, forced: bool) -> Option<String> {
    let sync = if forced { AtFlags::STATX_FORCE_SYNC } else { AtFlags::empty() };
    let how = AtFlags::SYMLINK_NOFOLLOW | sync;
    let found = rustix::fs::statx(CWD, path, how, StatxFlags::BASIC_STATS);
    let s = match found {
        Ok(found) => found,
        Err(rustix::io::Errno::NOENT) => return None,
        Err(error) => panic!("{error}"),
    };
    let time = |of: rustix::fs::StatxTimestamp| format!("{}.{:09}", of.tv_sec, of.tv_nsec);
    Some(format!(
        "mode {:o} links {} uid {} gid {} size {} blocks {} atime {} mtime {} ctime {}",
        s.stx_mode,
        s.stx_nlink,
        s.stx_uid,
        s.stx_gid,
        s.stx_size,
        s.stx_blocks,
        time(s.stx_atime),
        time(s.stx_mtime),
        time(s.stx_ctime)
    ))
}

fn ran(program: &str, args: &[&str], path: &Path) {
    let output = Command::new(program).args(args).arg(path).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// A change in a directory that contains `file`, `other`, `link` and the directories `a` and `b`.
type Change = (&'static str, fn(&Path));

const CHANGES: [Change; 24] = [
    ("chattr", |at| ran("chattr", &["+A"], &at.join("file"))),
    ("chattr of a directory", |at| ran("chattr", &["+A"], &at.join("a"))),
    ("append", |at| open(&at.join("file")).write_all_at(&[1; 5000], 8000).unwrap()),
    ("overwrite", |at| open(&at.join("file")).write_all_at(&[1; 5], 0).unwrap()),
    ("direct write", |at| {
        let mut how = OpenOptions::new();
        let file = how.write(true).custom_flags(libc::O_DIRECT).open(at.join("file")).unwrap();
        let room = vec![0; 3 * 4096];
        let from = room.as_ptr().align_offset(4096);
        file.write_all_at(&room[from..from + 4096], 1 << 20).unwrap();
    }),
    ("truncate", |at| open(&at.join("file")).set_len(10).unwrap()),
    ("fallocate", |at| {
        let how = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(open(&at.join("file")), how, 0, 1 << 20).unwrap();
    }),
    ("punch", |at| {
        let how = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(open(&at.join("file")), how, 0, 4096).unwrap();
    }),
    ("copy_file_range", |at| {
        let (from, to) = (open(&at.join("other")), open(&at.join("file")));
        rustix::fs::copy_file_range(from, Some(&mut 0), to, Some(&mut 9000), 9).unwrap();
    }),
    ("chmod", |at| rustix::fs::chmod(at.join("file"), 0o600.into()).unwrap()),
    ("chmod of a descriptor", |at| {
        rustix::fs::fchmod(open(&at.join("file")), 0o600.into()).unwrap();
    }),
    ("chown", |at| std::os::unix::fs::chown(at.join("file"), Some(4), Some(5)).unwrap()),
    ("setxattr", |at| {
        rustix::fs::setxattr(at.join("file"), "user.x", b"v", XattrFlags::empty()).unwrap();
    }),
    ("removexattr", |at| {
        rustix::fs::setxattr(at.join("file"), "user.x", b"v", XattrFlags::empty()).unwrap();
        stat(&at.join("file"), true);
        rustix::fs::removexattr(at.join("file"), "user.x").unwrap();
    }),
    ("link", |at| std::fs::hard_link(at.join("file"), at.join("a/new")).unwrap()),
    ("unlink of a link", |at| std::fs::remove_file(at.join("link")).unwrap()),
    ("create", |at| drop(File::create(at.join("a/new")).unwrap())),
    ("mkdir", |at| std::fs::create_dir(at.join("a/new")).unwrap()),
    ("rename", |at| std::fs::rename(at.join("file"), at.join("renamed")).unwrap()),
    ("rename over a link", |at| std::fs::rename(at.join("other"), at.join("link")).unwrap()),
    ("rename to a directory", |at| std::fs::rename(at.join("b"), at.join("a/b")).unwrap()),
    ("exchange", |at| {
        let (file, dir) = (at.join("file"), at.join("a/c"));
        rustix::fs::renameat_with(CWD, file, CWD, dir, RenameFlags::EXCHANGE).unwrap();
    }),
    ("read", |at| drop(std::fs::read(at.join("file")).unwrap())),
    ("list", |at| assert!(std::fs::read_dir(at.join("a")).unwrap().count() > 0)),
];

const WATCHED: [&str; 10] =
    [".", "file", "other", "link", "renamed", "a", "a/b", "a/c", "a/new", "b"];

#[test]
fn stat_shows_every_change() {
    need!(with_each(&["", "direct_io"], "64m", |mount, options| {
        for (n, (what, change)) in CHANGES.iter().enumerate() {
            let top = mount.join(&format!("top{n}"));
            for dir in ["", "a", "b", "a/c"] {
                std::fs::create_dir(top.join(dir)).unwrap();
            }
            std::fs::write(top.join("file"), [7; 9000]).unwrap();
            std::fs::write(top.join("other"), [8; 900]).unwrap();
            std::fs::hard_link(top.join("file"), top.join("link")).unwrap();
            let all = |forced| WATCHED.map(|path| (path, stat(&top.join(path), forced)));
            let before = all(true);
            // The clock of timestamps advances in steps.
            std::thread::sleep(std::time::Duration::from_millis(20));
            change(&top);
            let after = all(false);
            assert_ne!(after, before, "{options}: {what} changes nothing");
            assert_eq!(after, all(true), "{options}: {what}");
        }
    }));
}

/// The birth time of a file; none if the server gives none.
fn birth(path: &Path) -> Option<(i64, u32)> {
    let how = AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(CWD, path, how, StatxFlags::ALL).unwrap();
    let has = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    has.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

#[test]
fn birth_times_stay() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let paths = ["file", "dir", "link"];
    std::fs::write(mount.join("file"), "text").unwrap();
    std::fs::create_dir(mount.join("dir")).unwrap();
    std::os::unix::fs::symlink("file", mount.join("link")).unwrap();
    let all = |mount: &Mount| paths.map(|path| birth(&mount.join(path)));
    let born = all(&mount);
    assert!(born.iter().all(Option::is_some), "{born:?}");
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(mount.join("file"), "more").unwrap();
    std::fs::write(mount.join("dir/new"), "").unwrap();
    assert!(birth(&mount.join("dir/new")) > born[0]);
    assert_eq!(all(&mount), born);
    // The other attributes of the answer are those of stat(2).
    for path in paths {
        let path = mount.join(path);
        let before = stat(&path, true);
        birth(&path);
        assert_eq!(stat(&path, false), before);
    }
    mount.unmount();
    let mount = Mount::new(&image, "ro").unwrap();
    assert_eq!(all(&mount), born);
    mount.unmount();
    nextent_testkit::e2fs::assert_clean(&image);
}

/// Files that are opened without a name (`O_TMPFILE`).
#[test]
fn a_file_without_a_name_can_get_one() {
    use rustix::fs::{Mode, OFlags};
    need!(with_each(&["", "direct_io"], "64m", |mount, _| {
        let open = |more| {
            let how = OFlags::TMPFILE | OFlags::RDWR | more;
            File::from(rustix::fs::open(mount.path(), how, Mode::from(0o640)).unwrap())
        };
        let link = |file: &File, name: &str| {
            use std::os::fd::AsRawFd;
            let from = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(CWD, from, CWD, mount.join(name), AtFlags::SYMLINK_FOLLOW)
        };
        let file = open(OFlags::empty());
        file.write_all_at(b"text", 0).unwrap();
        assert_eq!(link(&file, "named"), Ok(()));
        drop(file);
        assert_eq!(std::fs::read(mount.join("named")).unwrap(), b"text");
        assert_eq!(std::fs::metadata(mount.join("named")).unwrap().permissions().mode(), 0o100_640);
        // O_EXCL forbids names.
        assert_eq!(link(&open(OFlags::EXCL), "other"), Err(rustix::io::Errno::NOENT));
        open(OFlags::empty()).write_all_at(&[1; 100_000], 0).unwrap();
        assert_eq!(std::fs::read_dir(mount.path()).unwrap().count(), 2);
    }));
}
