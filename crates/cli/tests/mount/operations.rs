//! Every operation: random sequences on the mount and on the model, and cases that these do not
//! reach.

use crate::support::*;
use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{
    Access, HostFs, KernelMount, ModelFs, Op, e2fs, need, ops, run_together, same_result,
    sample_ops,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::process::Command;

fn how() -> Compare {
    Compare { times: false, root: false, ..Compare::default() }
}

#[test]
fn the_mount_behaves_like_the_model() {
    need!(with_each(&["", "direct_io"], "100m", |mount, _| follows_the_model(mount)));
}

fn follows_the_model(mount: &Mount) {
    let case = std::cell::Cell::new(0);
    let config = Config { cases: 25, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&ops(80), |sequence| {
        case.set(case.get() + 1);
        let host = mount.join(&format!("case{}", case.get()));
        std::fs::create_dir(&host).unwrap();
        let (model, served) = (ModelFs::new(4096), HostFs::new(&host));
        for op in sequence.iter().filter(|op| passes(op)) {
            same_result(op, &model, &served).map_err(TestCaseError::fail)?;
        }
        assert_same(&walk(&model).unwrap(), &walk(&HostDir::new(&host)).unwrap(), &how());
        std::fs::remove_dir_all(&host).unwrap();
        Ok(())
    });
    if let Err(error) = result {
        panic!("model | mount: {error}");
    }
}

/// Whether the kernel passes the operation to a FUSE server.
fn passes(op: &Op) -> bool {
    !matches!(op, Op::Collapse { .. } | Op::Insert { .. })
}

#[test]
fn eight_threads_work_in_own_and_shared_directories() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "200m");
    let mount = need!(Mount::new(&image, ""));
    let apart = |n: u64| {
        let host = mount.join(&format!("t{n}"));
        std::fs::create_dir(&host).unwrap();
        let (model, served) = (ModelFs::new(4096), HostFs::new(&host));
        for op in sample_ops(7 + n, 100).iter().filter(|op| passes(op)) {
            same_result(op, &model, &served).unwrap_or_else(|text| panic!("{text}"));
        }
        walk(&model).unwrap()
    };
    let models: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn({
                    let apart = &apart;
                    move || apart(n)
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let compare = |top: &std::path::Path| {
        for (n, model) in models.iter().enumerate() {
            let host = HostDir::new(top.join(format!("t{n}")));
            assert_same(model, &walk(&host).unwrap(), &how());
        }
    };
    compare(mount.path());
    let served = HostFs::new(mount.path());
    run_together(&served, 8, 100, 99).unwrap_or_else(|text| panic!("{text}"));
    mount.unmount();
    e2fs::assert_clean(&image);
    let again = Mount::new(&image, "ro").unwrap();
    compare(again.path());
    again.unmount();
}

#[test]
fn files_without_names_live_while_they_are_open() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let free = || {
        let stat = rustix::fs::statvfs(mount.path()).unwrap();
        (stat.f_bfree, stat.f_ffree)
    };
    // Before counting: the directory's first block, and files that the kernel releases late.
    std::fs::write(mount.join("other"), "").unwrap();
    let before = free();
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(mount.join("gone"));
    let file = open.unwrap();
    file.write_at(&[5; 1 << 20], 0).unwrap();
    std::fs::rename(mount.join("other"), mount.join("gone")).unwrap();
    for n in 0..50 {
        std::fs::write(mount.join(&format!("new{n}")), "not yours").unwrap();
    }
    file.write_at(&[6; 10], 1 << 20).unwrap();
    file.sync_all().unwrap();
    let mut held = vec![0; 1 << 20];
    file.read_exact_at(&mut held, 0).unwrap();
    assert!(held.iter().all(|byte| *byte == 5));
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let inside = mount.join("inside");
    std::fs::create_dir(&inside).unwrap();
    let directory = File::open(&inside).unwrap();
    std::fs::remove_dir(&inside).unwrap();
    assert_eq!(directory.metadata().unwrap().nlink(), 0);
    drop((file, directory));
    for n in 0..50 {
        std::fs::remove_file(mount.join(&format!("new{n}"))).unwrap();
    }
    // `other` has replaced `gone`, so the number of files is the same. Releases come late.
    wait_until("space is free again", || {
        rustix::fs::sync();
        free() == before
    });
    let last = File::create(mount.join("last")).unwrap();
    std::fs::remove_file(mount.join("last")).unwrap();
    last.write_at(b"text", 0).unwrap();
    // Detached: files without names are freed at the end, too.
    assert!(Command::new("umount").arg("-l").arg(mount.path()).status().unwrap().success());
    drop(last);
    let mut mount = mount;
    assert!(mount.wait().success());
    e2fs::assert_clean(&image);
}

#[test]
fn cases_that_sequences_do_not_reach() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, "allow_other"));
    assert_eq!(std::fs::metadata(mount.path()).unwrap().ino(), 2);
    let (a, b) = (mount.join("a"), mount.join("b"));
    let open = |path| {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
    };
    let file = open(&a);
    file.write_at(b"far", 1 << 20).unwrap();
    // Data that the kernel may not have sent yet must not be reported as a hole.
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    assert!(data <= 1 << 20);
    let (mut from, mut to, other) = ((1 << 20) - 4096, 0, open(&b));
    let copied =
        rustix::fs::copy_file_range(&file, Some(&mut from), &other, Some(&mut to), 8192).unwrap();
    assert_eq!((copied, other.metadata().unwrap().len()), (4099, 4099));
    let mut three = [0; 3];
    other.read_exact_at(&mut three, 4096).unwrap();
    assert_eq!(&three, b"far");
    // Past the page cache, and through it.
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&b);
    let direct = direct.unwrap();
    direct.write_at(&[9; 8192], 4096).unwrap();
    other.read_exact_at(&mut three, 8000).unwrap();
    assert_eq!(three, [9; 3]);
    // Times of 1901 and 2446 and between.
    for seconds in [-2_000_000_000, -1, 15_000_000_000] {
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 999_999_999 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&other, &times).unwrap();
        let meta = other.metadata().unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (seconds, 999_999_999));
    }
    // Inode flags.
    let run = |tool: &str, args: &[&str]| {
        let output = Command::new(tool).args(args).arg(&a).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert!(run("chattr", &["+i"]).0);
    assert!(run("lsattr", &[]).1.starts_with("----i"));
    assert_eq!(std::fs::write(&a, "").unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert!(run("chattr", &["-i"]).0);
    // The kernel checks groups and access lists.
    std::fs::write(mount.join("theirs"), "x").unwrap();
    rustix::fs::chmod(mount.join("theirs"), 0o640.into()).unwrap();
    let as_user = |more: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "4242", "--regid", "4242"]).args(more).arg("cat");
        command.arg(mount.join("theirs")).output().unwrap().status.success()
    };
    rustix::fs::chmod(mount.path(), 0o755.into()).unwrap();
    assert!(!as_user(&["--clear-groups"]));
    assert!(as_user(&["--groups", "0"]));
    drop((file, other, direct));
    mount.unmount();
    e2fs::assert_clean(&image);
}

/// The kernel allows files up to the largest signed number, so the server checks the limits.
#[test]
fn ranges_beyond_the_largest_size_are_refused() {
    use rustix::fs::FallocateFlags as How;
    use rustix::io::Errno;

    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let path = mount.join("file");
    std::fs::write(&path, [7; 16384]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let limit = 0xffff_ffff_u64 << 12;
    let punch = How::PUNCH_HOLE | How::KEEP_SIZE;
    for how in [punch, How::KEEP_SIZE, How::ZERO_RANGE, How::empty()] {
        for (offset, len) in [(limit + 4096, 4096), (limit + 4101, 100), (limit - 100, 4296)] {
            let refused = rustix::fs::fallocate(&file, how, offset, len);
            assert_eq!(refused, Err(Errno::FBIG), "{how:?} {offset:#x} {len}");
        }
    }
    assert_eq!(file.set_len(limit + 1).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    file.set_len(limit).unwrap();
    file.set_len(16384).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [7; 16384]);
    drop(file);
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn changing_contents_removes_set_id_bits() {
    let options = ["allow_other", "allow_other,direct_io"];
    need!(with_each(&options, "64m", |mount, _| rights_go(mount)));
}

fn rights_go(mount: &Mount) {
    rustix::fs::chmod(mount.path(), 0o755.into()).unwrap();
    let path = mount.join("tool");
    let mode = || std::fs::metadata(&path).unwrap().mode() & 0o7777;
    // User, command, and the mode after it, which was 6755.
    let rows = [
        ("0", "echo x >> \"$0\"", 0o6755),
        ("0", "truncate -s 3 \"$0\"", 0o6755),
        ("4242", "echo x >> \"$0\"", 0o755),
        ("4242", "echo x 1<> \"$0\"", 0o755),
        ("4242", "truncate -s 3 \"$0\"", 0o755),
        ("4242", ": > \"$0\"", 0o755),
        ("4242", "fallocate -l 9000 \"$0\"", 0o755),
        ("0", "chown 4242 \"$0\"", 0o755),
    ];
    for (uid, script, left) in rows {
        std::fs::write(&path, "text").unwrap();
        std::os::unix::fs::chown(&path, Some(4242), Some(4242)).unwrap();
        rustix::fs::chmod(&path, 0o6755.into()).unwrap();
        assert_eq!(mode(), 0o6755);
        let value = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let name = "security.capability";
        rustix::fs::setxattr(&path, name, &value, rustix::fs::XattrFlags::empty()).unwrap();
        let who = ["--reuid", uid, "--regid", uid, "--clear-groups", "sh", "-c", script];
        let done = Command::new("setpriv").args(who).arg(&path).output().unwrap();
        assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
        rustix::fs::sync();
        assert_eq!(mode(), left, "{uid}: {script}");
        let mut none = [0; 64];
        let error = rustix::fs::getxattr(&path, name, &mut none[..]).unwrap_err();
        assert_eq!(error, rustix::io::Errno::NODATA, "{uid}: {script}");
    }
}

#[test]
fn removed_files_free_their_space_soon() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let path = mount.join("file");
    let mut late = 0;
    for _ in 0..200 {
        let file = File::create(&path).unwrap();
        // More than half of the space. The kernel sends closes and forgets without waiting.
        wait_until("room", || {
            let done = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 32 << 20);
            late += usize::from(done.is_err());
            done.is_ok()
        });
        drop(file);
        std::fs::remove_file(&path).unwrap();
    }
    println!("{late} tries of 200 came before there was room");
    mount.unmount();
    e2fs::assert_clean(&image);
}

/// While a process changes its program, readers of its `/proc` files wait until it has closed its
/// files. The answering thread must not be such a reader.
#[test]
fn a_client_that_changes_its_program_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let create = |n| std::fs::File::create(mount.join(&format!("file{n}"))).unwrap();
    let files: Vec<_> = (0..100).map(create).collect();
    const ROUNDS: u8 = 40;
    // Not a scoped thread: if it hangs, it does so until the server is killed.
    let client = std::thread::spawn(move || {
        for round in 1..=ROUNDS {
            // The kernel sends the remaining data when the files are closed.
            files.iter().for_each(|file| file.write_all_at(&[round; 4096], 0).unwrap());
            assert!(Command::new("true").status().unwrap().success());
        }
    });
    wait_until("a client's end", || client.is_finished());
    client.join().unwrap();
    mount.unmount();
    e2fs::assert_clean(&image);
    let kernel = need!(KernelMount::new(&image, Access::ReadOnly));
    for n in 0..100 {
        assert!(std::fs::read(kernel.join(format!("file{n}"))).unwrap() == [ROUNDS; 4096], "{n}");
    }
    kernel.unmount();
}
