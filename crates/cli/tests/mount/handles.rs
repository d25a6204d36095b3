//! Files that are named by handle (`name_to_handle_at`), as the kernel's NFS server names them.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, need};
use std::process::Command;

#[test]
fn handles_outlive_the_kernels_inodes() {
    let found = Command::new("python3").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        return Skip::missing("python3").note();
    }
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "16m");
    for step in ["save", "open", "gone"] {
        // In a new mount the kernel knows no inode.
        let mount = need!(Mount::new(&image, ""));
        let script = ["-c", include_str!("handles.py"), step, text(mount.path())];
        let saved = dir.path().join("handles");
        let ran = Command::new("python3").args(script).arg(saved).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{step}: {said}");
        mount.unmount();
        e2fs::assert_clean(&image);
    }
}
