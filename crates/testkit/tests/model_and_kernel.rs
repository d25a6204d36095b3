//! The model and the kernel's ext4 have the same results and the same trees.

use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{
    Access, HostFs, KernelMount, ModelFs, PosixFs, RenameFlags, Skip, e2fs, need, ops, run_apart,
    run_together, same_result,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn mounted(dir: &Path, block_size: u64) -> Result<KernelMount, Skip> {
    let image = dir.join("image");
    e2fs::mke2fs(&image, 64 << 20, &["-t", "ext4", "-b", &block_size.to_string()])?;
    KernelMount::new(&image, Access::ReadWrite)
}

fn compare(block_size: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mount = need!(mounted(dir.path(), block_size));
    std::fs::remove_dir(mount.join("lost+found")).unwrap();
    let how = Compare { times: false, root: false, ..Compare::default() };
    let case = std::cell::Cell::new(0);
    let config = Config { cases: 60, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&ops(120), |sequence| {
        case.set(case.get() + 1);
        let host = mount.join(format!("case{}", case.get()));
        std::fs::create_dir(&host).unwrap();
        let (model, kernel) = (ModelFs::new(block_size), HostFs::new(&host));
        for op in &sequence {
            same_result(op, &model, &kernel).map_err(TestCaseError::fail)?;
        }
        assert_same(&walk(&model).unwrap(), &walk(&HostDir::new(&host)).unwrap(), &how);
        std::fs::remove_dir_all(&host).unwrap();
        Ok(())
    });
    if let Err(error) = result {
        panic!("model | kernel: {error}");
    }
    mount.unmount();
    e2fs::assert_clean(&dir.path().join("image"));
}

#[test]
fn the_model_matches_the_kernel_with_blocks_of_4_kib() {
    compare(4096);
}

#[test]
fn the_model_matches_the_kernel_with_blocks_of_1_kib() {
    compare(1024);
}

#[test]
fn the_model_matches_the_kernel_with_sixteen_threads() {
    let dir = tempfile::tempdir().unwrap();
    let mount = need!(mounted(dir.path(), 4096));
    let how = Compare { times: false, root: false, ..Compare::default() };
    let kernel = HostFs::new(mount.path());
    let models = run_apart(&kernel, 4096, 16, 150, 7).unwrap_or_else(|text| panic!("{text}"));
    for (n, model) in models.iter().enumerate() {
        let host = HostDir::new(mount.join(format!("t{n}")));
        assert_same(&walk(model).unwrap(), &walk(&host).unwrap(), &how);
    }
    run_together(&kernel, 16, 150, 99).unwrap_or_else(|text| panic!("{text}"));
    mount.unmount();
    e2fs::assert_clean(&dir.path().join("image"));
}

/// A regression test: `write` checked the kind of a name and opened the name afterwards. If a fifo
/// took the name in between, the call failed with "illegal seek", which no file system had
/// returned.
#[test]
fn only_regular_files_are_opened_if_names_change() {
    let dir = tempfile::tempdir().unwrap();
    let host = HostFs::new(dir.path());
    host.create("/a", 0o644).unwrap();
    host.mknod("/b", libc::S_IFIFO | 0o640, (0, 0)).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                host.rename("/a", "/b", RenameFlags::Exchange).unwrap();
            }
        });
        let (mut written, mut refused) = (0, 0);
        while written < 1000 || refused < 1000 {
            match host.write("/a", 100, b"words").and_then(|()| host.fsync("/a")) {
                Ok(()) => written += 1,
                Err(errno) if errno == libc::EINVAL => refused += 1,
                Err(errno) => {
                    ended.store(true, Relaxed);
                    panic!("{}", std::io::Error::from_raw_os_error(errno));
                }
            }
        }
        ended.store(true, Relaxed);
    });
}
