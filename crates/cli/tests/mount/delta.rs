//! Mounts of overlays that share a base.

use crate::support::*;
use nextent_testkit::{e2fs, need};
use std::fs;
use std::path::Path;

#[test]
fn overlays_of_one_base_are_mounted_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let base = mkfs(dir.path(), "32m");
    let before = fs::read(&base).unwrap();
    let delta = |n: usize| dir.path().join(format!("{n}.delta"));
    let of = |base: &Path, n: usize| format!("overlay:{}+{}", text(base), text(&delta(n)));
    let mount = |n: usize, options: &str| Mount::new(Path::new(&of(&base, n)), options);
    let mut mounts = Vec::new();
    for n in 0..3 {
        mounts.push(need!(mount(n, "")));
    }
    std::thread::scope(|scope| {
        for (n, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                for file in 0..50 {
                    fs::write(mount.join(&format!("f{file}")), vec![n as u8; 3000]).unwrap();
                }
                fs::File::open(mount.join("f7")).unwrap().sync_all().unwrap();
            });
        }
    });
    // While they are open, the base has no writer.
    let refused = run(&["mkdir", &format!("{}:/dir", text(&base))]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("image: in use"), "{refused:?}");
    remount(&mounts[0], "ro").unwrap();
    assert!(fs::write(mounts[0].join("refused"), "text").is_err());
    remount(&mounts[0], "rw").unwrap();
    fs::write(mounts[0].join("written"), "text").unwrap();
    // A killed server loses nothing that was synced.
    mounts.pop().unwrap().kill();
    mounts.into_iter().for_each(Mount::unmount);
    let again = need!(mount(2, ""));
    assert_eq!(fs::read(again.join("f7")).unwrap(), vec![2; 3000]);
    again.unmount();
    assert!(fs::read(&base).unwrap() == before, "the base has changed");
    for n in 0..3 {
        let copy = dir.path().join("copy");
        fs::copy(&base, &copy).unwrap();
        let committed = run(&["commit-overlay", "-q", &of(&copy, n)]);
        assert!(committed.status.success(), "{}", String::from_utf8_lossy(&committed.stderr));
        e2fs::assert_clean(&copy);
        assert_eq!(run(&["cat", &format!("{}:/f7", text(&copy))]).stdout, vec![n as u8; 3000]);
    }
}

/// Without a delta a read-only mount shows the base, and cannot become writable.
#[test]
fn a_read_only_mount_makes_no_delta() {
    let dir = tempfile::tempdir().unwrap();
    let base = mkfs(dir.path(), "32m");
    let delta = dir.path().join("delta");
    let overlay = format!("overlay:{}+{}", text(&base), text(&delta));
    let mount = need!(Mount::new(Path::new(&overlay), "ro"));
    assert!(mount.join("lost+found").is_dir());
    let refused = try_remount(&mount, "rw").unwrap_err();
    assert!(refused.contains("its delta does not exist"), "{refused}");
    mount.unmount();
    assert!(!delta.exists());
    // A delta that exists is opened for writing by the remount.
    assert!(run(&["mkdir", &format!("{overlay}:/dir")]).status.success());
    let mount = need!(Mount::new(Path::new(&overlay), "ro"));
    remount(&mount, "rw").unwrap();
    fs::write(mount.join("dir/file"), "text").unwrap();
    mount.unmount();
    assert_eq!(run(&["cat", &format!("{overlay}:/dir/file")]).stdout, b"text");
    assert!(run(&["commit-overlay", "-q", &overlay]).status.success());
    e2fs::assert_clean(&base);
}
