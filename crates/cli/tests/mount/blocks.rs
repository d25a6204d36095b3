//! Mounts of block devices: the kernel opens the device exclusively, forwards `sync(2)` and
//! `syncfs(2)`, and waits in `umount(2)` until the volume is closed.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, need};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

/// Whether the kernel forwards `sync(2)` to servers of block devices.
fn forwards_sync() -> Result<(), Skip> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (numbers.next(), numbers.next());
    match version {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (6, 18) => Ok(()),
        _ => Err(Skip::missing("FUSE_SYNCFS (Linux 6.18)")),
    }
}

fn works(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

#[test]
fn sync_is_forwarded() {
    need!(forwards_sync());
    for by in ["sync", "syncfs"] {
        let dir = tempfile::tempdir().unwrap();
        let image = mkfs(dir.path(), "32m");
        let device = need!(LoopDevice::attach(&image));
        // Only the call makes the file durable.
        let mount = need!(Mount::new(&device.0, "commit=3600"));
        std::fs::create_dir(mount.join("dir")).unwrap();
        std::fs::write(mount.join("dir/file"), "text").unwrap();
        match by {
            "sync" => works(&mut Command::new("sync")),
            _ => works(Command::new("sync").arg("-f").arg(mount.join("dir"))),
        }
        mount.kill();
        drop(device);
        need!(e2fs::e2fsck_recover(&image)).assert_clean();
        let cat = ["cat", &format!("{}:/dir/file", text(&image))].map(str::to_owned);
        let found = run(&cat.each_ref().map(String::as_str));
        assert_eq!(String::from_utf8_lossy(&found.stdout), "text", "{by}: {found:?}");
    }
}

/// umount(8) needs no helper, and the journal needs no replay.
#[test]
fn umount_waits_for_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "32m");
    let device = need!(LoopDevice::attach(&image));
    for round in 0..4 {
        let mount = need!(Mount::new(&device.0, "commit=3600"));
        for n in 0..50 {
            std::fs::write(mount.join(&format!("file-{round}-{n}")), vec![7; 100_000]).unwrap();
        }
        // The kernel has the device open exclusively.
        let claim = |path: &Path| {
            std::fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path).map(drop)
        };
        assert_eq!(claim(&device.0).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        works(Command::new("umount").args(["-i"]).arg(mount.path()));
        e2fs::assert_clean(&device.0);
        claim(&device.0).unwrap();
        let mut mount = mount;
        let status = mount.wait();
        assert!(status.success(), "{status}");
    }
    drop(device);
    e2fs::assert_clean(&image);
}

/// With `fsname` the mount shows that name, as for an image file.
#[test]
fn a_device_with_fsname_is_mounted_like_an_image_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "32m");
    let device = need!(LoopDevice::attach(&image));
    let mount = need!(Mount::new(&device.0, "fsname=that"));
    let table = std::fs::read_to_string("/proc/mounts").unwrap();
    let wanted = format!("that {} fuse.nextent ", text(mount.path()));
    assert!(table.contains(&wanted), "{table}");
    mount.unmount();
    let mount = need!(Mount::new(&device.0, "noatime"));
    let table = std::fs::read_to_string("/proc/mounts").unwrap();
    let wanted = format!("{} {} fuseblk.nextent ", text(&device.0), text(mount.path()));
    assert!(table.contains(&wanted), "{table}");
    mount.unmount();
    drop(device);
    e2fs::assert_clean(&image);
}
