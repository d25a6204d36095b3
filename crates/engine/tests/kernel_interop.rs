//! The kernel and the engine change an image in turns. Each must find the state of the model.

mod common;
#[path = "kernel_interop/mmp.rs"]
mod mmp;

use common::{Image, KINDS, VolumeFs, VolumeTree, close};
use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{
    Access, HostFs, KernelMount, ModelFs, Op, TreeMaker, e2fs, need, perform, same_result,
    sample_ops,
};

/// The model has no clock, and another owner of the root.
fn without_times() -> Compare {
    Compare { times: false, root: false, ..Compare::default() }
}

/// Operations that need extents.
fn needs_extents(op: &Op) -> bool {
    matches!(op, Op::Collapse { .. } | Op::Insert { .. } | Op::Allocate { .. } | Op::Zero { .. })
}

fn run_turns(kind: &str, args: &[&str]) {
    let image = need!(Image::make(64 << 20, args));
    let extents = !kind.starts_with("ext3") && !kind.starts_with("ext2");
    let block_size = u64::from(image.open().geometry().block_size);
    let model = ModelFs::new(block_size);
    for turn in 0..6 {
        let ops = sample_ops(50 + turn, 300);
        let ops = ops.iter().filter(|op| extents || !needs_extents(op));
        if turn % 2 == 0 {
            let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
            let host = HostFs::new(mount.path());
            for op in ops {
                same_result(op, &model, &host).unwrap_or_else(|text| panic!("kernel: {text}"));
            }
            mount.unmount();
        } else {
            let volume = image.open();
            for op in ops {
                same_result(op, &model, &VolumeFs(&volume))
                    .unwrap_or_else(|text| panic!("{kind}, turn {turn}: {text}"));
            }
            close(&volume);
        }
        e2fs::assert_clean(&image.path());
        let volume = image.open();
        let tree = walk(&VolumeTree(&volume)).unwrap();
        assert_same(&walk(&model).unwrap(), &tree, &without_times());
        close(&volume);
    }
}

#[test]
fn turns_with_the_kernel() {
    for (kind, args) in KINDS {
        eprintln!("kind {kind}");
        run_turns(kind, args);
    }
}

/// The engine reads a tree with files of every kind as the kernel wrote it.
#[test]
fn trees_of_the_kernel_are_read() {
    for (kind, args) in KINDS {
        eprintln!("kind {kind}");
        let image = need!(Image::make(256 << 20, args));
        let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
        TreeMaker { seed: 3, files: 400, ..TreeMaker::default() }.make(mount.path()).unwrap();
        mount.unmount();
        // Mount again: the kernel's inode cache has times that small inodes cannot store.
        let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
        let kernel = walk(&HostDir::new(mount.path())).unwrap();
        mount.unmount();
        let volume = image.open();
        let how = Compare { dir_sizes: true, ..Compare::default() };
        assert_same(&kernel, &walk(&VolumeTree(&volume)).unwrap(), &how);
        close(&volume);
    }
}

/// The next open recovers a volume that was dropped without a close.
#[test]
fn dropped_without_closing() {
    let image = need!(Image::make(64 << 20, KINDS[0].1));
    for seed in 0..5 {
        let volume = image.open();
        for op in sample_ops(seed, 200) {
            let _ = perform(&op, &VolumeFs(&volume));
        }
        volume.sync().unwrap();
        let before = walk(&VolumeTree(&volume)).unwrap();
        drop(volume);
        let volume = image.open();
        let after = walk(&VolumeTree(&volume)).unwrap();
        assert_same(&before, &after, &Compare::default());
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
    }
}
