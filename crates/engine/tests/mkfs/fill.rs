//! Volumes that mkfs fills: every shape of directory, map and attribute. e2fsck checks them, and
//! the kernel reads and writes them.

use std::fs;
use std::ops::Range;
use std::path::Path;

use nextent::inodes::{InodeNo, NewNode};
use nextent::mkfs::{Contents, Filling, NewAttrs, Plan};
use nextent::{DiskTime, Error};
use nextent_device::{FileDevice, FileOptions};
use nextent_ondisk::{BlockNo, GroupNo};
use nextent_testkit::{Access, KernelMount, Skip, e2fs, need};

use crate::args;

const LAYOUTS: &[&str] = &[
    "400m -b 4096",
    "400m -b 1024",
    "400m -b 1024 -t ext3",
    "400m -b 2048 -t ext2 -O ^dir_index",
    "400m -b 4096 -O extents,uninit_bg,^metadata_csum,^64bit,meta_bg,^resize_inode",
    "400m -b 1024 -I 128 -O ^flex_bg",
    "400m -b 1024 -g 1024 -O orphan_file",
];

fn attrs(xattrs: &[(Vec<u8>, Vec<u8>)], names: u64) -> NewAttrs<'_> {
    let time = DiskTime::new(1_000_000_000, 0);
    NewAttrs { mode: 0o640, uid: 7, gid: 70_000, atime: time, mtime: time, names, xattrs }
}

fn device(path: &Path, size: u64) -> FileDevice {
    let _ = fs::remove_file(path);
    FileDevice::open(path, &FileOptions::new().create(true).size(size)).expect("a new file")
}

fn names(count: usize, what: &str) -> Vec<Vec<u8>> {
    let pad = "x".repeat(20);
    (0..count).map(|n| format!("{what}-{pad}-{n:06}").into_bytes()).collect()
}

fn fifo() -> Contents<'static> {
    Contents::Node(NewNode::Fifo)
}

/// Ranges of the file `holes`: single blocks far apart, ends within blocks.
fn holes() -> (u64, Vec<Range<u64>>) {
    let mut data = vec![0..700, 70_000..75_001];
    data.extend((1..1000).map(|n| n * 200_000..n * 200_000 + 5));
    (300_000_000, data)
}

fn add_file(filling: &mut Filling<'_>, dir: InodeNo, size: u64, data: &[Range<u64>]) {
    let mut open = filling.open_dir(dir, names(1, "file")).expect("room");
    for beyond in [size..size + 1, 1 << 44..(1 << 44) + 1] {
        let file = Contents::File { size, data: &[beyond] };
        let refused = filling.add(&mut open, 0, &attrs(&[], 1), file);
        assert!(matches!(refused, Err(Error::Invalid)), "block numbers are not truncated");
    }
    let file = Contents::File { size, data };
    let added = filling.add(&mut open, 0, &attrs(&[], 1), file).expect("room");
    for range in data {
        let bytes = vec![b'd'; (range.end - range.start) as usize];
        filling.bytes().write(&added.runs, size, range.start, &bytes).expect("a place");
    }
    filling.close_dir(open).expect("written");
}

/// One directory of each kind in the root, named after it.
fn fill(filling: &mut Filling<'_>) -> Result<(), Error> {
    let kinds = ["many", "lots", "few", "holes", "large", "shared", "named"];
    let mut all: Vec<Vec<u8>> = kinds.iter().map(|kind| kind.as_bytes().to_vec()).collect();
    all.extend([b"lost+found".to_vec(), b"never".to_vec(), b"link".to_vec(), b"far".to_vec()]);
    let mut root = filling.open_dir(filling.root(), all)?;
    let mut dirs = Vec::new();
    for at in 0..kinds.len() {
        dirs.push(filling.add_dir(&mut root, at, &attrs(&[], 1))?.ino);
    }
    let at = kinds.len();
    assert_eq!(filling.add_dir(&mut root, at, &attrs(&[], 1))?.ino, InodeNo(11));
    assert!(matches!(filling.add(&mut root, at, &attrs(&[], 1), fifo()), Err(Error::Exists)));
    filling.add(&mut root, at + 2, &attrs(&[], 1), Contents::Symlink(b"few"))?;
    let far = "far/".repeat(200);
    filling.add(&mut root, at + 3, &attrs(&[], 1), Contents::Symlink(far.as_bytes()))?;
    filling.close_dir(root)?;

    for (dir, count) in [(dirs[0], 9000), (dirs[1], 300), (dirs[2], 5)] {
        let mut open = filling.open_dir(dir, names(count, "name"))?;
        for at in (0..count).filter(|at| at % 7 != 3) {
            filling.add(&mut open, at, &attrs(&[], 1), fifo())?;
        }
        filling.close_dir(open)?;
    }
    let (size, data) = holes();
    add_file(filling, dirs[3], size, &data);
    add_file(filling, dirs[4], 70_000_001, std::slice::from_ref(&(0..70_000_001)));

    let large = vec![(b"user.large".to_vec(), vec![b'v'; 700])];
    let mut open = filling.open_dir(dirs[5], names(1100, "same"))?;
    for at in 0..1100 {
        let added =
            filling.add(&mut open, at, &attrs(&large, 1), Contents::File { size: 0, data: &[] })?;
        assert!(added.refused.is_empty());
    }
    filling.close_dir(open)?;

    let mut open = filling.open_dir(dirs[6], names(4, "one"))?;
    let ino = filling.add(&mut open, 0, &attrs(&[], 3), fifo())?.ino;
    filling.link(&mut open, 1, ino)?;
    filling.link(&mut open, 2, ino)?;
    assert!(filling.link(&mut open, 3, ino).is_err(), "a link beyond the link count");
    filling.close_dir(open)
}

fn check_by_kernel(path: &Path, line: &str) -> Result<(), Skip> {
    let mount = KernelMount::new(path, Access::ReadWrite)?;
    let count = |dir: &str| fs::read_dir(mount.join(dir)).expect("a directory").count();
    assert_eq!(count("many"), (0..9000).filter(|at| at % 7 != 3).count(), "{line}");
    let (size, data) = holes();
    let mut want = vec![0; size as usize];
    for range in data {
        want[range.start as usize..range.end as usize].fill(b'd');
    }
    let name = |dir: &str| format!("{dir}/{}", String::from_utf8_lossy(&names(1, "file")[0]));
    assert!(fs::read(mount.join(name("holes"))).expect("readable") == want, "{line}");
    let large = fs::read(mount.join(name("large"))).expect("readable");
    assert!(large.len() == 70_000_001 && large.iter().all(|byte| *byte == b'd'), "{line}");
    assert_eq!(fs::read_link(mount.join("far")).expect("a link").as_os_str().len(), 800);
    // The index finds the names and takes new ones.
    for dir in ["many", "lots", "few"] {
        for name in names(300, "name").into_iter().chain(names(3000, "more")).enumerate() {
            let (at, name) = name;
            let path = mount.join(format!("{dir}/{}", String::from_utf8_lossy(&name)));
            let there = at < 300 && at % 7 != 3 && (dir != "few" || at < 5);
            assert_eq!(path.symlink_metadata().is_ok(), there, "{line}: {dir} {at}");
            if !there {
                fs::write(&path, b"new").expect("room for another");
            }
        }
    }
    mount.unmount();
    let report = e2fs::e2fsck(path)?;
    assert!(report.is_clean(), "{line}: {}", report.text);
    Ok(())
}

#[test]
fn every_shape_in_every_layout() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("image");
    for line in LAYOUTS {
        let args::MkfsCase { size, options, .. } = args::parse(line);
        let device = device(&path, size);
        let plan = Plan::new(&options, size).expect(line);
        let before = plan.superblock().free_blocks_count();
        let mut filling = Filling::new(plan, &device).expect(line);
        fill(&mut filling).unwrap_or_else(|error| panic!("{line}: {error}"));
        let plan = filling.finish().expect(line);
        assert!(plan.superblock().free_blocks_count() < before);
        drop(device);
        let report = need!(e2fs::e2fsck(&path));
        assert!(report.is_clean(), "{line}: {}", report.text);
        need!(check_by_kernel(&path, line));
    }
}

/// After the first file that does not fit, the files before it are complete.
#[test]
fn a_full_volume_is_valid() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("image");
    let large = vec![(b"user.large".to_vec(), vec![b'v'; 700])];
    for (n, line) in ["6m -b 1024", "2m -b 1024 -t ext2", "20m -b 4096"].iter().enumerate() {
        let args::MkfsCase { size, options, .. } = args::parse(line);
        let device = device(&path, size);
        let mut filling =
            Filling::new(Plan::new(&options, size).expect(line), &device).expect(line);
        let mut root = filling.open_dir(filling.root(), names(400, "dir")).expect(line);
        let mut dirs = Vec::new();
        let mut ended = 0;
        for at in 0..400 {
            let attrs = attrs(&large, 1);
            let data = [0..30_000 + n as u64 * 5000, 200_000..201_000, 900_000..999_999];
            let added = match at % 3 {
                0 => filling.add_dir(&mut root, at, &attrs).map(|added| dirs.push(added.ino)),
                1 => filling.add(&mut root, at, &attrs, fifo()).map(drop),
                _ => {
                    let file = Contents::File { size: 1_000_000, data: &data };
                    filling.add(&mut root, at, &attrs, file).map(drop)
                }
            };
            match added {
                Ok(()) => {}
                Err(error) if error.is_full_volume() => ended += 1,
                Err(error) => panic!("{line}: {error}"),
            }
        }
        assert!(ended > 0, "{line}: it is not full");
        filling.close_dir(root).expect(line);
        for dir in dirs {
            if let Ok(open) = filling.open_dir(dir, names(3000, "name")) {
                filling.close_dir(open).expect(line);
            }
        }
        filling.finish().expect(line);
        drop(device);
        let report = need!(e2fs::e2fsck(&path));
        assert!(report.is_clean(), "{line}: {}", report.text);
    }
}

/// Layouts with a group's bitmaps and tables inside or outside of the group.
const METADATA_LAYOUTS: &[&str] = &[
    "20m -b 1024 -g 1024 -N 1280 -G 1 -E packed_meta_blocks=1",
    "20m -b 1024 -g 1024 -N 1280 -G 1",
    "20m -b 1024 -g 1024 -N 1280 -G 4",
    "20m -b 1024 -g 1024 -N 1280 -O ^flex_bg",
];

/// A group may have as many data blocks as the size of its bitmaps and table, which are in another
/// group. Its bitmap must be initialised, because the kernel reads the data blocks from it.
#[test]
fn data_as_large_as_a_groups_metadata() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("image");
    for line in METADATA_LAYOUTS {
        let args::MkfsCase { size, options, .. } = args::parse(line);
        let device = device(&path, size);
        let plan = Plan::new(&options, size).expect(line);
        let geometry = plan.geometry().clone();
        let mut filling = Filling::new(plan, &device).expect(line);
        let mut open = filling.open_dir(filling.root(), names(20, "part")).expect(line);
        let (mut lengths, mut end) = (Vec::new(), 0);
        for at in 0..20 {
            // Every file but the first ends where `own` blocks of the next group are in use.
            let own = 2 + u64::from(geometry.inode_table_blocks);
            let group = geometry.group_of(BlockNo(end)).map_or(0, |group| group.0);
            let stop = geometry.group_first_block(GroupNo(group + 1)).0 + own;
            let blocks = if end == 0 { 1 } else { stop - end };
            if group + 2 >= geometry.group_count {
                break;
            }
            let len = blocks << geometry.block_bits;
            let data = 0..len;
            let contents = Contents::File { size: len, data: std::slice::from_ref(&data) };
            let added = filling.add(&mut open, at, &attrs(&[], 1), contents).expect(line);
            filling.bytes().write(&added.runs, len, 0, &vec![b'd'; len as usize]).expect(line);
            let last = added.runs.last().expect("blocks");
            end = (last.device + last.len) >> geometry.block_bits;
            lengths.push(len);
        }
        assert!(lengths.len() > 5, "{line}");
        filling.close_dir(open).expect(line);
        filling.finish().expect(line);
        drop(device);
        let report = need!(e2fs::e2fsck(&path));
        assert!(report.is_clean(), "{line}: {}", report.text);
        need!(fill_by_kernel(&path, line, &lengths));
    }
}

/// The kernel fills the volume; earlier files must not change.
fn fill_by_kernel(path: &Path, line: &str, lengths: &[u64]) -> Result<(), Skip> {
    let mount = KernelMount::new(path, Access::ReadWrite)?;
    for at in 0..200 {
        if fs::write(mount.join(format!("new{at}")), vec![b'n'; 200_000]).is_err() {
            break;
        }
    }
    mount.unmount();
    let mount = KernelMount::new(path, Access::ReadWrite)?;
    for (name, len) in names(20, "part").iter().zip(lengths) {
        let bytes = fs::read(mount.join(String::from_utf8_lossy(name).as_ref())).expect("a file");
        let whole = bytes.len() as u64 == *len && bytes.iter().all(|byte| *byte == b'd');
        assert!(whole, "{line}: the kernel wrote over a file");
    }
    mount.unmount();
    let report = e2fs::e2fsck(path)?;
    assert!(report.is_clean(), "{line}: {}", report.text);
    Ok(())
}
