//! The shutdown call: every operation fails with EIO afterwards, and synced data survives.

use crate::support::*;
use nextent_testkit::{e2fs, need};
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// `EXT4_IOC_SHUTDOWN`.
const SHUTDOWN: u32 = 0x8004_587d;

#[allow(unsafe_code)]
fn shut_down(file: &File, mode: u32) -> std::io::Result<()> {
    // SAFETY: the call reads a number of 32 bits at the address, which lives until it returns.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), SHUTDOWN.into(), &raw const mode) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// The same by a thread of another user.
#[allow(unsafe_code)]
fn shut_down_as_user(file: &File, mode: u32) -> std::io::Result<()> {
    std::thread::scope(|scope| {
        let by_user = scope.spawn(|| {
            // SAFETY: changes the user of this thread only, which ends here.
            unsafe { libc::setfsuid(4242) };
            shut_down(file, mode)
        });
        by_user.join().unwrap()
    })
}

#[track_caller]
fn fails(what: &str, done: std::io::Result<()>) {
    let error = done.expect_err(what);
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{what}: {error}");
}

#[test]
fn every_operation_fails_after_a_shutdown_and_synced_data_survives() {
    for mode in [0, 1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let image = mkfs(dir.path(), "64m");
        let mut mount = need!(Mount::new(&image, "allow_other,commit=3600"));
        let synced = File::create_new(mount.join("synced")).unwrap();
        synced.write_all_at(&[7; 100_000], 0).unwrap();
        synced.sync_all().unwrap();
        std::fs::write(mount.join("later"), [8; 100_000]).unwrap();
        let root = File::open(mount.path()).unwrap();
        let refused = shut_down_as_user(&root, mode).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert_eq!(shut_down(&root, 3).unwrap_err().kind(), ErrorKind::InvalidInput);
        synced.write_all_at(&[7; 10], 0).unwrap();
        // The kernel has the contents now.
        let later = File::open(mount.join("later")).unwrap();
        let mut bytes = [0; 100];
        later.read_exact_at(&mut bytes, 50_000).unwrap();
        shut_down(&root, mode).unwrap();
        wait_until("reads fail", || {
            let read = later.read_exact_at(&mut bytes, 50_000);
            read.is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
        });
        fails("read", later.read_exact_at(&mut bytes, 0));
        fails("write", synced.write_all_at(&[9; 10], 0));
        fails("fsync", synced.sync_all());
        fails("create", File::create(mount.join("new")).map(|_| ()));
        fails("mkdir", std::fs::create_dir(mount.join("dir")));
        fails("rename", std::fs::rename(mount.join("synced"), mount.join("other")));
        fails("unlink", std::fs::remove_file(mount.join("synced")));
        fails(
            "readdir",
            std::fs::read_dir(mount.path()).and_then(|mut all| all.next().unwrap().map(|_| ())),
        );
        fails("again", shut_down(&root, mode));
        drop((synced, later, root));
        wait_until("unmounted", || run(&["umount", text(mount.path())]).status.success());
        assert!(mount.wait().success());
        let replayed = run(&["replay", text(&image)]);
        assert!(replayed.status.success(), "{replayed:?}");
        e2fs::assert_clean(&image);
        let held = |name: &str| run(&["cat", &format!("{}:/{name}", text(&image))]).stdout;
        assert_eq!(held("synced"), [7; 100_000]);
        if mode < 2 {
            assert_eq!(held("later"), [8; 100_000]);
        }
    }
}
