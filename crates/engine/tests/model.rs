//! Random calls on a volume and on a model; then e2fsck and the kernel check the volume.

mod common;

use common::{Image, KINDS, VolumeFs, VolumeTree, close};
use nextent::OpenOptions;
use nextent::check::{CheckOptions, check};
use nextent::inodes::Inodes;
use nextent_device::MemoryDevice;
use nextent_sync::{Arc, OnceLock};
use nextent_testkit::tree::{Compare, HostDir, assert_same, diff, walk};
use nextent_testkit::{
    Access, KernelMount, ModelFs, Op, e2fs, need, ops, run_apart, run_together, same_result,
    sample_ops,
};
use proptest::prelude::*;

fn compare() -> Compare {
    // The model has no clock, and another owner of the root.
    Compare { times: false, root: false, ..Compare::default() }
}

/// Whether images of this kind do not support `op`, which the model does.
fn skips(kind: &str, op: &Op) -> bool {
    let extents = kind.starts_with("ext4") || kind == "upstream";
    match op {
        Op::Allocate { .. } | Op::Zero { .. } | Op::Collapse { .. } | Op::Insert { .. } => !extents,
        _ => false,
    }
}

/// Runs `count` calls on both, compares the trees, closes, and checks by e2fsck and the kernel.
fn compare_with_the_model(kind: &str, args: &[&str], seed: u64, count: usize) {
    let image = need!(Image::make(96 << 20, args));
    let volume = image.open();
    let block_size = u64::from(volume.geometry().block_size);
    let model = ModelFs::new(block_size);
    for (at, op) in sample_ops(seed, count).iter().enumerate() {
        if skips(kind, op) {
            continue;
        }
        if let Err(difference) = same_result(op, &model, &VolumeFs(&volume)) {
            panic!("{kind}, seed {seed}, call {at}, model | volume: {difference}");
        }
    }
    let tree = walk(&model).unwrap();
    let how = compare();
    assert_same(&tree, &walk(&VolumeTree(&volume)).unwrap(), &how);
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
    let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
    assert_same(&tree, &walk(&HostDir::new(mount.path())).unwrap(), &how);
    mount.unmount();
}

#[test]
fn every_kind_of_image_matches_the_model() {
    for (kind, args) in KINDS {
        eprintln!("kind {kind}");
        compare_with_the_model(kind, args, 1, 600);
    }
}

#[test]
fn the_default_kind_many_times() {
    for seed in 10..16 {
        compare_with_the_model("upstream", KINDS[1].1, seed, 1500);
    }
}

/// A small_image image in memory, made once.
fn small_image(at: usize) -> Option<&'static MemoryDevice> {
    static BASES: [OnceLock<Option<MemoryDevice>>; 2] = [const { OnceLock::new() }; 2];
    let make = || match Image::make(24 << 20, SMALL[at].1) {
        Ok(image) => MemoryDevice::load(&image.path()).ok(),
        Err(skip) => {
            skip.note();
            None
        }
    };
    BASES[at].get_or_init(make).as_ref()
}

const SMALL: [(&str, &[&str]); 2] = [
    ("ext4", &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]),
    ("ext3", &["-t", "ext3", "-b", "1024"]),
];

/// Compares arbitrary calls; proptest shrinks those that show a difference.
fn any_calls(at: usize, ops: &[Op]) -> Result<(), String> {
    let Some(base) = small_image(at) else { return Ok(()) };
    let device = Arc::new(base.snapshot());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let model = ModelFs::new(u64::from(volume.geometry().block_size));
    for op in ops.iter().filter(|op| !skips(SMALL[at].0, op)) {
        same_result(op, &model, &VolumeFs(&volume))?;
    }
    let differences =
        diff(&walk(&model).unwrap(), &walk(&VolumeTree(&volume)).unwrap(), &compare());
    if !differences.is_empty() {
        return Err(differences.join("\n"));
    }
    close(&volume);
    let mut options = CheckOptions::default();
    options.workers = 1;
    let report = check(device, &options, &|_| ());
    let report = report.map_err(|error| error.to_string())?;
    let lines: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    if report.is_clean() { Ok(()) } else { Err(lines.join("\n")) }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        max_shrink_iters: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_calls_on_ext4(ops in ops(80)) {
        any_calls(0, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_calls_on_ext3(ops in ops(80)) {
        any_calls(1, &ops).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn sixteen_threads_in_own_and_shared_directories() {
    for (kind, args) in [KINDS[1], KINDS[2], KINDS[9]] {
        eprintln!("kind {kind}");
        let image = need!(Image::make(256 << 20, args));
        let volume = image.open();
        let fs = VolumeFs(&volume);
        if !kind.starts_with("ext3") {
            let block_size = u64::from(volume.geometry().block_size);
            run_apart(&fs, block_size, 16, 200, 3).unwrap();
        }
        run_together(&fs, 16, 300, 4).unwrap();
        let tree = walk(&VolumeTree(&volume)).unwrap();
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
        let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
        assert_same(&tree, &walk(&HostDir::new(mount.path())).unwrap(), &compare());
        mount.unmount();
    }
}
