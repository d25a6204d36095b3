//! Orphans that an open cannot free. They stay orphans, the volume opens for writing, and its
//! superblock records the damage. A later open that can frees them.

mod common;

use common::{Image, VolumeFs};
use nextent::Cred;
use nextent::inodes::{Access, Inodes, ROOT_INO};
use nextent::{ErrorPolicy, OpenOptions};
use nextent_device::{BlockDevice, Fault, FaultDevice, MemoryDevice, OpKind, Rule};
use nextent_ondisk::Superblock;
use nextent_ondisk::superblock::state;
use nextent_sync::{Arc, Duration};
use nextent_testkit::{PosixFs, Skip, e2fs, need};

const BLOCK: u64 = 1024;
const KINDS: [&str; 2] = ["^orphan_file", "orphan_file"];

fn options() -> OpenOptions {
    let errors = Some(ErrorPolicy::Continue);
    OpenOptions::new().commit_interval(Duration::ZERO).errors(errors)
}

/// A volume after a crash with three orphans, each with a node below its map's root, and the first
/// block of each.
fn crashed(features: &str) -> Result<(MemoryDevice, Vec<u64>), Skip> {
    let image = Image::make(16 << 20, &["-t", "ext4", "-b", "1024", "-O", features])?;
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Inodes::open(device.clone(), &options()).unwrap();
    let fs = VolumeFs(&volume);
    let mut first = Vec::new();
    for n in 0..3 {
        let path = format!("/gone{n}");
        fs.create(&path, 0o644).unwrap();
        for at in 0..40 {
            fs.write(&path, at * 2 * BLOCK, b"some").unwrap();
        }
        let ino = volume.resolve(&Cred::root(), path.as_bytes(), false).unwrap().ino;
        volume.sync().unwrap();
        first.push(volume.fiemap(ino, 0, BLOCK, 1).unwrap()[0].physical / BLOCK);
        volume.open_file(&Cred::root(), ino, Access::READ).unwrap();
        volume.unlink(&Cred::root(), ROOT_INO, &path.as_bytes()[1..]).unwrap();
    }
    volume.sync().unwrap();
    let crashed = device.snapshot();
    drop(volume);
    Ok((crashed, first))
}

/// The node whose first extent begins at `block`, in the volume after a recovery.
fn node_of(device: &MemoryDevice, block: u64) -> u64 {
    let copy = Arc::new(device.snapshot());
    drop(Inodes::open(copy.clone(), &options()).unwrap());
    let mut bytes = [0; BLOCK as usize];
    let found = (0..copy.size() / BLOCK).filter(|no| {
        copy.read_at(no * BLOCK, &mut bytes).unwrap();
        let start = u32::from_le_bytes(bytes[20..24].try_into().unwrap());
        bytes[..2] == [0x0a, 0xf3] && u64::from(start) == block
    });
    // The log has copies, but further away.
    found.min_by_key(|no| no.abs_diff(block)).expect("a node")
}

fn superblock(device: &impl BlockDevice) -> Superblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    Superblock::read(&bytes).unwrap()
}

fn assert_clean(device: &MemoryDevice) -> Result<(), Skip> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    device.save(&path).unwrap();
    e2fs::e2fsck(&path)?.assert_clean();
    Ok(())
}

/// Opens and closes. Returns the number of freed orphans.
fn open_and_close(device: Arc<dyn BlockDevice>) -> u32 {
    let volume = Inodes::open(device, &options()).expect("it opens for writing");
    let fs = VolumeFs(&volume);
    fs.create("/new", 0o644).expect("it can be written to");
    fs.unlink("/new").expect("it can be written to");
    let finished = volume.recovery().orphans;
    volume.close().unwrap();
    finished
}

#[test]
fn an_orphan_that_cannot_be_freed_is_kept() {
    for features in KINDS {
        let (device, first) = need!(crashed(features));
        let node = node_of(&device, first[1]);
        // Its node cannot be read.
        let faulty = Arc::new(FaultDevice::new(device, 1));
        let range = node * BLOCK..(node + 1) * BLOCK;
        faulty.add(Rule::on(OpKind::Read, Fault::Error(5)).within(range));
        assert_eq!(open_and_close(faulty.clone()), 2, "{features}");
        let left = faulty.inner().snapshot();
        assert!(superblock(&left).state.get() & state::ERROR != 0, "{features}");
        // Its node is damaged.
        let mut bytes = [0; BLOCK as usize];
        left.read_at(node * BLOCK, &mut bytes).unwrap();
        left.write_at(node * BLOCK, &[0; 8]).unwrap();
        let left = Arc::new(left);
        assert_eq!(open_and_close(left.clone()), 0, "{features}");
        // Its node is valid again.
        left.write_at(node * BLOCK, &bytes).unwrap();
        assert_eq!(open_and_close(left.clone()), 1, "{features}");
        need!(assert_clean(&left));
    }
}

/// The open ends the list before a reserved inode.
#[test]
fn a_list_ends_before_an_invalid_entry() {
    let (device, _) = need!(crashed("^orphan_file"));
    let faulty = Arc::new(FaultDevice::new(device, 1));
    assert_eq!(open_and_close(faulty.clone()), 3);
    let left = Arc::new(faulty.inner().snapshot());
    for astray in [5, 2, 1_000_000] {
        let mut sb = superblock(&*left);
        sb.last_orphan.set(astray);
        sb.seal();
        left.write_at(1024, sb.bytes()).unwrap();
        assert_eq!(open_and_close(left.clone()), 0, "{astray}");
        let sb = superblock(&*left);
        assert!(sb.last_orphan.get() == 0 && sb.state.get() & state::ERROR != 0, "{astray}");
    }
    need!(assert_clean(&left));
}
