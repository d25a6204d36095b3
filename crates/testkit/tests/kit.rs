//! Tests of this crate's own tools: the maker, the walk, the explorer, the runners.

use nextent_device::{BlockDevice, MemoryDevice, RecordingDevice};
use nextent_testkit::tree::{Compare, HostDir, Kind, diff, walk};
use nextent_testkit::{
    Access, CutInfo, Explorer, KernelMount, ModelFs, PosixFs, Skip, TreeMaker, Variant,
    append_with_promises, check_promises, e2fs, need,
};
use std::path::Path;

#[test]
fn the_same_seed_makes_the_same_tree() {
    let make = |seed| {
        let dir = tempfile::tempdir().unwrap();
        let made = TreeMaker { seed, files: 150, ..TreeMaker::default() }.make(dir.path()).unwrap();
        assert!(made.files > 500);
        walk(&HostDir::new(dir.path())).unwrap()
    };
    let how = Compare { times: false, ..Compare::default() };
    let (a, b, c) = (make(1), make(1), make(2));
    assert_eq!(diff(&a, &b, &how), Vec::<String>::new());
    assert!(!diff(&a, &c, &how).is_empty());
    for kind in [Kind::File, Kind::Dir, Kind::Symlink, Kind::Fifo] {
        assert!(a.entries.iter().any(|entry| entry.stat.kind == kind), "no {kind:?}");
    }
    assert!(a.entries.iter().any(|entry| entry.same_as.is_some()));
}

#[test]
fn a_difference_is_reported_by_path() {
    let (left, right) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for dir in [&left, &right] {
        std::fs::write(dir.path().join("same"), "x").unwrap();
    }
    std::fs::write(left.path().join("only"), "x").unwrap();
    std::fs::write(left.path().join("text"), "abc").unwrap();
    std::fs::write(right.path().join("text"), "abd").unwrap();
    let how = Compare { times: false, ..Compare::default() };
    let tree = |dir: &tempfile::TempDir| walk(&HostDir::new(dir.path())).unwrap();
    let lines = diff(&tree(&left), &tree(&right), &how);
    assert_eq!(lines, ["/only: only left", "/text: content differs"]);
    assert!(tree(&left).get("/only").is_some() && tree(&right).get("/only").is_none());
}

#[test]
fn the_explorer_finds_a_missing_flush() {
    // The second write promises the first; only a flush between them keeps the promise.
    let run = |flush_between: bool| {
        let device = RecordingDevice::new(MemoryDevice::new(1 << 16));
        for n in 1..20u8 {
            device.write_at(4096, &[n; 4096]).unwrap();
            if flush_between {
                device.flush().unwrap();
            }
            device.write_at(0, &[n]).unwrap();
            device.flush().unwrap();
            device.mark(n.into());
        }
        Explorer::default().explore(&device.recording(), |image, info| {
            let bytes = image.to_bytes();
            let promised = info.marks.last().copied().unwrap_or(0);
            if u64::from(bytes[0]) < promised {
                return Err(format!("{} was promised, {} found", promised, bytes[0]));
            }
            let data = &bytes[4096..8192];
            let bad = data.iter().any(|&byte| byte < bytes[0]);
            if bad { Err(format!("data older than {}", bytes[0])) } else { Ok(()) }
        })
    };
    let good = run(true);
    good.assert_none_failed();
    assert!(good.checked > 100 && good.checked == good.possible, "{good:?}");
    let bad = run(false);
    assert!(!bad.failures.is_empty());
    assert!(bad.failures.iter().any(|text| text.contains("older")));
}

#[test]
fn the_explorer_keeps_its_bound() {
    let device = RecordingDevice::new(MemoryDevice::new(1 << 20));
    for n in 0..500 {
        device.write_at(n * 512, &[1]).unwrap();
    }
    let recording = device.recording();
    let explorer = Explorer { most: 50, ..Explorer::default() };
    let report = explorer.explore(&recording, |_, _| Ok(()));
    assert_eq!(report.checked, 50);
    assert!(report.possible > 500);
    let again = |_| explorer.image(&recording, 500, Variant::Subset(9)).to_bytes();
    assert_eq!(again(0), again(1));
}

fn image_with_file(path: &Path) -> Result<(), Skip> {
    e2fs::mke2fs(path, 16 << 20, &["-t", "ext4"])?;
    let mount = KernelMount::new(path, Access::ReadWrite)?;
    std::fs::write(mount.join("hello"), "world").unwrap();
    mount.unmount();
    Ok(())
}

#[test]
fn the_runners_agree_on_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    need!(image_with_file(&path));
    need!(e2fs::e2fsck(&path)).assert_clean();
    need!(e2fs::e2fsck_recover(&path)).assert_clean();
    assert!(need!(e2fs::dumpe2fs(&path, true)).contains("Block size"));
    assert!(need!(e2fs::debugfs(&path, false, &["cat /hello"])).contains("world"));
    // A wrong link count is found and not repaired.
    need!(e2fs::debugfs(&path, true, &["set_inode_field /hello links_count 7"]));
    let report = need!(e2fs::e2fsck(&path));
    assert!(!report.is_clean() && report.text.contains("ref count"), "{report:?}");
    // Garbage is refused, not skipped.
    std::fs::write(&path, [7; 4096]).unwrap();
    assert!(need!(KernelMount::try_new(&path, Access::ReadOnly, "")).is_err());
}

#[test]
fn broken_promises_are_reported() {
    let device = RecordingDevice::new(MemoryDevice::new(4096));
    let fs = ModelFs::new(4096);
    append_with_promises(&fs, &device, 3, 5, 1000).unwrap();
    let marks: Vec<u64> = device.recording().marks_before(5).collect();
    let info = CutInfo { cut: 5, variant: Variant::Prefix, marks };
    check_promises(&fs, &info).unwrap();
    fs.truncate("/promise3", 4999).unwrap();
    assert!(check_promises(&fs, &info).unwrap_err().contains("4999 are there"));
    fs.truncate("/promise3", 6000).unwrap();
    assert!(check_promises(&fs, &info).unwrap_err().contains("byte 4999"));
}
