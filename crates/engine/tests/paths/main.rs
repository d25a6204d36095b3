//! The path API of a volume. The same steps run on a volume and, by `std::fs`, on a directory of
//! the host; results and error numbers must be equal.

#[path = "../common/mod.rs"]
mod common;
mod permissions;
mod steps;
mod table;
mod threads;

use std::io;
use std::path::Path;

use common::{Image, close};
use nextent::{Cred, Volume};
use nextent_testkit::{e2fs, need};

use steps::Step;

/// The umask of this process, which the host applies to new files.
fn umask() -> u16 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u16::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

/// Closes the volume and checks the image by e2fsck.
#[track_caller]
fn finish(volume: Volume, image: &Path) {
    close(volume.inodes());
    drop(volume);
    e2fs::assert_clean(image);
}

#[test]
fn steps_have_the_results_of_the_host() {
    for args in [&["-t", "ext4"][..], &["-t", "ext2", "-b", "1024", "-r", "0"]] {
        let image = need!(Image::make(32 << 20, args));
        let volume = Volume::from(image.open());
        let volume = volume.as_user(Cred { umask: umask(), ..Cred::root() });
        volume.remove_dir("/lost+found").unwrap();
        let host = tempfile::tempdir().unwrap();
        let mut wrong = Vec::new();
        for (number, step) in table::STEPS.iter().enumerate() {
            let (ours, theirs) = (step.on_volume(&volume), step.on_host(host.path()));
            if ours != theirs {
                wrong.push(format!("step {number} {step:?}: {ours:?}, the host {theirs:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let list = Step::Tree("/");
        assert_eq!(list.on_volume(&volume), list.on_host(host.path()));
        finish(volume, &image.path());
    }
}

/// The image stays locked while a volume has it open, and is clean after the last handle.
#[test]
fn images_open_by_path_and_close_with_the_last_handle() {
    let image = need!(Image::make(16 << 20, &["-t", "ext4"]));
    let volume = Volume::open(image.path()).unwrap();
    let file = volume.create_file("/kept").unwrap();
    assert!(matches!(Volume::open(image.path()), Err(nextent::Error::OpenDevice(_))));
    drop(volume);
    assert_eq!(file.write_at(b"open", 0).unwrap(), 4);
    drop(file);
    e2fs::assert_clean(&image.path());
    let volume = nextent::OpenOptions::new().read_only(true).open(image.path()).unwrap();
    assert_eq!(volume.read_to_string("/kept").unwrap(), "open");
    assert!(matches!(volume.write("/new", ""), Err(nextent::Error::ReadOnly)));
    let missing = Volume::open(image.path().join("missing")).unwrap_err();
    assert_eq!(io::Error::from(missing).kind(), io::ErrorKind::NotADirectory);
}

/// An absolute symbolic link starts at the root of the volume, and `..` stops there.
#[test]
fn no_path_leaves_the_volume() {
    let image = need!(Image::make(16 << 20, &["-t", "ext4"]));
    let volume = Volume::from(image.open());
    volume.create_dir_all("/a/b").unwrap();
    volume.write("/etc", "here").unwrap();
    volume.symlink("/etc", "/a/absolute").unwrap();
    volume.symlink("../../../../etc", "/a/b/upwards").unwrap();
    for path in ["/a/absolute", "a/absolute", "/a/b/upwards", "/../../etc", "../etc"] {
        assert_eq!(volume.read_to_string(path).unwrap(), "here", "{path}");
        assert_eq!(volume.canonicalize(path).unwrap(), Path::new("/etc"), "{path}");
    }
    assert_eq!(volume.canonicalize("/a/b/../..").unwrap(), Path::new("/"));
    finish(volume, &image.path());
}

/// A tree deeper than a thread's stack, with a directory of many entries, is removed.
#[test]
fn deep_trees_and_wide_directories_are_removed() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4", "-N", "8000"]));
    let volume = Volume::from(image.open());
    let free = volume.statfs().unwrap().files_free;
    let dir = "/d/".repeat(600);
    volume.create_dir_all(&dir).unwrap();
    for n in 0..1000 {
        volume.write(format!("/d/{n}"), "x").unwrap();
    }
    assert_eq!(volume.read_dir("/d").unwrap().count(), 1001);
    assert!(volume.read_dir("/d").unwrap().all(|entry| entry.is_ok()));
    volume.symlink("/d", "/link").unwrap();
    volume.remove_dir_all("/link").unwrap();
    assert!(volume.exists("/d/999").unwrap());
    volume.remove_dir_all("/d").unwrap();
    assert!(!volume.exists("/d").unwrap());
    volume.sync().unwrap();
    assert_eq!(volume.statfs().unwrap().files_free, free);
    finish(volume, &image.path());
}

/// Calls without a counterpart in std.
#[test]
fn nodes_owners_times_and_extended_attributes() {
    use nextent::{DeviceNo, FileTimes, NewNode, Permissions};
    let image = need!(Image::make(16 << 20, &["-t", "ext4"]));
    let volume = Volume::from(image.open());
    let tty = NewNode::CharDevice(DeviceNo { major: 5, minor: 1 });
    volume.create_node("/console", tty, Permissions::from_mode(0o600)).unwrap();
    let found = volume.metadata("/console").unwrap();
    assert_eq!((found.mode(), found.rdev()), (0o020_600, DeviceNo { major: 5, minor: 1 }));
    assert!(matches!(volume.open_file("/console"), Err(nextent::Error::NotSupported)));
    volume.symlink("console", "/link").unwrap();
    volume.lchown("/link", Some(7), None).unwrap();
    volume.chown("/link", Some(5), Some(6)).unwrap();
    let owner = |path: &str| {
        let found = volume.symlink_metadata(path).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!((owner("/link"), owner("/console")), ((7, 0), (5, 6)));
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
    volume.set_times("/console", FileTimes::new().set_modified(time)).unwrap();
    assert_eq!(volume.metadata("/console").unwrap().modified(), time);
    volume.write("/file", "").unwrap();
    assert_eq!(volume.get_xattr("/file", "user.key").unwrap(), None);
    volume.set_xattr("/file", "user.key", b"value").unwrap();
    assert_eq!(volume.get_xattr("/file", "user.key").unwrap().unwrap(), b"value");
    assert_eq!(volume.list_xattrs("/file").unwrap(), ["user.key"]);
    volume.remove_xattr("/file", "user.key").unwrap();
    assert!(matches!(volume.remove_xattr("/file", "user.key"), Err(nextent::Error::NoData)));
    finish(volume, &image.path());
}
