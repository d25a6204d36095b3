//! Fast commits that the kernel wrote before a power cut, replayed here.

mod common;

use common::{Image, VolumeFs, VolumeTree};
use nextent::{OpenOptions, Volume};
use nextent_device::MemoryDevice;
use nextent_sync::Arc;
use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{Access, KernelMount, PosixFs, e2fs, need};
use std::fs::File;
use std::io::Write;

/// Writes below `root` and syncs each file by itself, which makes fast commits.
fn work(root: &std::path::Path) {
    let sync = |path: &std::path::Path| File::open(path).unwrap().sync_all().unwrap();
    for n in 0..6u8 {
        let path = root.join(format!("file{n}"));
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![n + 1; 3000 * (usize::from(n) + 1) * 5]).unwrap();
        file.sync_all().unwrap();
    }
    std::fs::hard_link(root.join("file1"), root.join("link1")).unwrap();
    sync(&root.join("link1"));
    std::fs::remove_file(root.join("file2")).unwrap();
    sync(&root.join("file3"));
    std::fs::create_dir(root.join("dir")).unwrap();
    let inside = root.join("dir/inside");
    File::create(&inside).unwrap().write_all(&[9; 9000]).unwrap();
    sync(&inside);
    let cut = File::options().write(true).open(root.join("file4")).unwrap();
    cut.set_len(5000).unwrap();
    cut.sync_all().unwrap();
}

#[test]
fn what_the_kernel_synced_is_there() {
    let image = need!(Image::make(128 << 20, &["-t", "ext4", "-O", "fast_commit"]));
    let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
    work(mount.path());
    let wanted = walk(&HostDir::new(mount.path())).unwrap();
    // The image as it is while mounted is what a power cut would leave.
    let cut = MemoryDevice::load(&image.path()).unwrap();
    mount.unmount();
    let how = Compare { times: false, root: false, ..Compare::default() };
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let volume = Volume::open(Arc::new(cut.snapshot()), &read_only).unwrap();
    eprintln!("{:?}", volume.recovery());
    assert_same(&wanted, &walk(&VolumeTree(&volume)).unwrap(), &how);
    assert!(VolumeFs(&volume).create("/x", 0o600).is_err());
    drop(volume);
    let device = Arc::new(cut);
    let volume = Volume::open(device.clone(), &OpenOptions::default()).unwrap();
    assert!(!volume.recovery().is_nothing());
    assert_same(&wanted, &walk(&VolumeTree(&volume)).unwrap(), &how);
    volume.close().unwrap();
    let path = image.path().with_extension("ours");
    device.save(&path).unwrap();
    e2fs::assert_clean(&path);
}
