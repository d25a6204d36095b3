//! What the kernel keeps of attributes, after changes of which no answer tells it.

use crate::support::*;
use nextent_testkit::{Access, KernelMount, e2fs, need};
use rustix::fs::FallocateFlags;
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

/// An unprivileged user.
const USER: u32 = 4242;

/// Runs `work` as [`USER`], without capabilities.
fn as_user<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let (user, group) =
        (rustix::process::Uid::from_raw(USER), rustix::process::Gid::from_raw(USER));
    std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            // Only this thread changes.
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
            work()
        });
        started.join().unwrap()
    })
}

fn writable(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

/// Changes of a file's contents that keep it a program; its first bytes are `program`.
type ContentsChange = (&'static str, fn(&Path, &[u8]));

const CONTENTS_CHANGES: [ContentsChange; 8] = [
    ("write", |path, program| writable(path).write_all_at(program, 0).unwrap()),
    ("short write", |path, program| writable(path).write_all_at(&program[..4], 0).unwrap()),
    ("direct write", |path, program| {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
        // Aligned memory.
        let mut room = vec![0; 3 * 4096];
        let from = room.as_ptr().align_offset(4096);
        room[from..from + 4096].copy_from_slice(&program[..4096]);
        file.write_all_at(&room[from..from + 4096], 0).unwrap();
    }),
    ("truncate", |path, program| writable(path).set_len(program.len() as u64 + 1).unwrap()),
    ("fallocate", |path, program| {
        let end = program.len() as u64;
        rustix::fs::fallocate(writable(path), FallocateFlags::empty(), end, 4096).unwrap();
    }),
    ("fallocate without growth", |path, _| {
        rustix::fs::fallocate(writable(path), FallocateFlags::KEEP_SIZE, 0, 4096).unwrap();
    }),
    ("copy_file_range", |path, _| {
        let from = File::open(path.with_file_name("source")).unwrap();
        let copied =
            rustix::fs::copy_file_range(from, Some(&mut 0), writable(path), Some(&mut 0), 9);
        assert_eq!(copied.unwrap(), 9);
    }),
    ("O_TRUNC", |path, program| std::fs::write(path, program).unwrap()),
];

#[test]
fn a_changed_program_runs_with_the_rights_of_its_caller() {
    let options = ["allow_other,suid", "allow_other,suid,direct_io"];
    need!(with_each(&options, "64m", |mount, options| {
        rustix::fs::chmod(mount.path(), 0o755.into()).unwrap();
        let program = std::fs::read("/usr/bin/id").unwrap();
        std::fs::write(mount.join("source"), &program).unwrap();
        for (n, (what, change)) in CONTENTS_CHANGES.iter().enumerate() {
            let path = mount.join(&format!("tool{n}"));
            std::fs::write(&path, &program).unwrap();
            rustix::fs::chmod(&path, 0o6777.into()).unwrap();
            let run = |question: &str| {
                let user = USER.to_string();
                let mut command = Command::new("setpriv");
                command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
                let output = command.arg(&path).arg(question).output().unwrap();
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            };
            let ids = || (run("-u"), run("-g"));
            assert_eq!(ids(), ("0".to_owned(), "0".to_owned()), "{options}: before {what}");
            as_user(|| change(&path, &program));
            let plain = USER.to_string();
            assert_eq!(ids(), (plain.clone(), plain), "{options}: after {what}");
        }
    }));
}

/// A change of the permissions by an owner that is no member of the file's group.
#[test]
fn only_members_keep_the_set_group_bit() {
    let acl = "setfacl -m u:1:r \"$0\"";
    if Command::new("setfacl").arg("--version").output().is_err() {
        need!(Err(nextent_testkit::Skip::missing("setfacl")));
    }
    need!(with_each(&["allow_other"], "64m", |mount, _| {
        rustix::fs::chmod(mount.path(), 0o755.into()).unwrap();
        // Caller, its group, command, and whether the bit stays.
        let rows = [
            ("4242", "4242", acl, false),
            ("4242", "77", acl, true),
            ("0", "0", acl, true),
            ("4242", "4242", "chmod 2750 \"$0\"", false),
            ("4242", "77", "chmod 2750 \"$0\"", true),
            ("4242", "4242", "setfattr -n user.x -v y \"$0\"", true),
        ];
        for (n, (user, group, script, stays)) in rows.into_iter().enumerate() {
            for path in [mount.join(&format!("file{n}")), mount.join(&format!("dir{n}"))] {
                if text(&path).contains("file") {
                    File::create(&path).unwrap();
                } else {
                    std::fs::create_dir(&path).unwrap();
                }
                std::os::unix::fs::chown(&path, Some(USER), Some(77)).unwrap();
                rustix::fs::chmod(&path, 0o2755.into()).unwrap();
                let who = ["--reuid", user, "--regid", group, "--clear-groups"];
                let mut command = Command::new("setpriv");
                let done = command.args(who).args(["sh", "-c", script]).arg(&path).output();
                let done = done.unwrap();
                let said = String::from_utf8_lossy(&done.stderr);
                assert!(done.status.success(), "{script}: {said}");
                let mode = std::fs::metadata(&path).unwrap().mode();
                assert_eq!(mode & 0o2000 != 0, stays, "{user}:{group} {script} {}", path.display());
            }
        }
    }));
}

/// Commands in a directory, and whether they succeed.
const FLAG_CHANGES: [(&str, bool); 17] = [
    ("touch file", true),
    ("mkdir dir", true),
    ("chattr +i file", true),
    ("chattr -p 0 file", true),
    ("chattr -p 7 file", false),
    ("chattr +A file", false),
    ("touch file", false),
    ("chattr -i file", true),
    ("chattr +a file", true),
    ("chattr -p 7 file", true),
    ("touch file", true),
    ("touch -d 2001-01-01 file", false),
    ("chattr -a file", true),
    ("chattr +x file", true),
    ("chattr +x dir", true),
    ("touch dir/file", true),
    ("mkdir dir/dir", true),
];

/// Runs [`FLAG_CHANGES`], with or without changes of projects; the flags and projects afterwards.
fn change_flags(root: &Path, projects: bool) -> String {
    let run = |command: &str| {
        let mut words = command.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(root).env("LC_ALL", "C").output().unwrap()
    };
    let changes = FLAG_CHANGES.iter().filter(|(command, _)| projects || !command.contains("-p 7"));
    for (number, (command, succeeds)) in changes.enumerate() {
        let output = run(command);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), *succeeds, "{number}: {command}: {errors}");
    }
    String::from_utf8(run("lsattr -pd file dir dir/file dir/dir").stdout).unwrap()
}

/// Compares without the feature `project`, with which kernels without quotas refuse images.
#[test]
fn flags_and_projects_change_as_in_linux() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    for (feature, projects) in [("project", true), ("^project", false)] {
        need!(e2fs::mke2fs(&image, 16 << 20, &["-F", "-t", "ext4", "-I", "256", "-O", feature]));
        let mount = need!(Mount::new(&image, ""));
        let ours = change_flags(mount.path(), projects);
        mount.unmount();
        e2fs::assert_clean(&image);
        assert_eq!(ours.trim_start().starts_with('7'), projects, "{ours}");
        assert_eq!(ours.matches('x').count(), 4, "{ours}");
        if !projects {
            std::fs::remove_file(&image).unwrap();
            need!(e2fs::mke2fs(&image, 16 << 20, &["-t", "ext4", "-I", "256", "-O", feature]));
            let mount = need!(KernelMount::new(&image, Access::ReadWrite));
            let expected = change_flags(mount.path(), projects);
            mount.unmount();
            assert_eq!(ours, expected);
        }
    }
}
