//! Trees through the mount, compared with the kernel's mount of the image.

use crate::support::*;
use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{Access, KernelMount, TreeMaker, e2fs, need};
use std::path::Path;
use std::process::Command;

fn same(left: &Path, right: &Path) {
    let how = Compare { root: false, ..Compare::default() };
    let (left, right) = (walk(&HostDir::new(left)).unwrap(), walk(&HostDir::new(right)).unwrap());
    assert_same(&left, &right, &how);
}

/// Copies a directory by `tar`, and the sockets that it leaves out.
fn tar(from: &Path, to: &Path) {
    let script = "tar -C \"$0\" --xattrs --acls --sparse -cf - . 2>/dev/null | \
        tar -C \"$1\" --xattrs --acls --xattrs-include='*' -xpf - && cp -a -u \"$0\"/. \"$1\"";
    let output = Command::new("sh").args(["-c", script]).args([from, to]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
}

#[test]
fn several_processes_untar_and_the_kernel_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "300m");
    let mount = need!(Mount::new(&image, "allow_other"));
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    TreeMaker { seed: 3, files: 300, ..TreeMaker::default() }.make(&source).unwrap();
    let tops: Vec<_> = (0..4).map(|n| mount.join(&format!("t{n}"))).collect();
    std::thread::scope(|scope| {
        for top in &tops {
            let source = &source;
            scope.spawn(move || {
                std::fs::create_dir(top).unwrap();
                tar(source, top);
            });
        }
    });
    for top in &tops {
        same(&source, top);
    }
    std::fs::remove_dir_all(&tops[1]).unwrap();
    mount.unmount();
    e2fs::assert_clean(&image);
    // The kernel had the files in memory above; here they come from the image.
    let again = Mount::new(&image, "ro").unwrap();
    same(&source, &again.join("t0"));
    same(&source, &again.join("t3"));
    again.unmount();
    let kernel = need!(KernelMount::new(&image, Access::ReadOnly));
    same(&source, &kernel.join("t2"));
    assert!(!kernel.join("t1").exists());
    kernel.unmount();
}

#[test]
fn a_tree_made_by_the_kernel_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let _offered = need!(can_mount());
    let image = mkfs(dir.path(), "100m");
    let kernel = need!(KernelMount::new(&image, Access::ReadWrite));
    TreeMaker { seed: 4, files: 200, ..TreeMaker::default() }.make(kernel.path()).unwrap();
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    tar(kernel.path(), &copy);
    kernel.unmount();
    let mount = need!(Mount::new(&image, "ro"));
    same(&copy, mount.path());
    mount.unmount();
}
