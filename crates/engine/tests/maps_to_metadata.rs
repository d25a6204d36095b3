//! Files whose maps point to metadata blocks of the volume. Every operation on them fails with an
//! error that names the inode, and does not change those blocks.

mod common;

use common::{Image, VolumeFs};
use nextent::inodes::{FallocateMode, InodeNo, Inodes, ROOT_INO, SetAttr};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_sync::Arc;
use nextent_testkit::{PosixFs, XattrFlags, e2fs, need};

const BLOCK: u64 = 1024;
/// The offset of all accesses to the large file: beyond its first node or table.
const AT: u64 = 25 * BLOCK;

fn open(device: &MemoryDevice) -> Inodes {
    let options = OpenOptions::new().errors(nextent::ErrorPolicy::Continue);
    Inodes::open(Arc::new(device.snapshot()), &options).unwrap()
}

fn ino_of(volume: &Inodes, path: &str) -> InodeNo {
    volume.resolve(&Cred::root(), path.as_bytes(), false).unwrap().ino
}

/// An image with `/small`, whose map is in its inode, and `/large`, which has a leaf or a table.
fn base(args: &[&str]) -> Result<(MemoryDevice, Image), nextent_testkit::Skip> {
    let image = Image::make(16 << 20, args)?;
    let device = MemoryDevice::load(&image.path()).unwrap();
    let shared = Arc::new(device);
    let volume = Inodes::open(shared.clone(), &OpenOptions::default()).unwrap();
    let fs = VolumeFs(&volume);
    for name in ["/small", "/large", "/value"] {
        fs.create(name, 0o644).unwrap();
    }
    fs.write("/small", 0, &[1; 3000]).unwrap();
    for n in 0..30 {
        fs.write("/large", n * 5 * BLOCK, &[2; 900]).unwrap();
    }
    fs.set_xattr("/value", "user.large", &[7; 400], XattrFlags::Any).unwrap();
    volume.close().unwrap();
    drop(volume);
    Ok((shared.snapshot(), image))
}

/// Metadata blocks of the volume, with a name for each.
fn metadata_blocks(path: &std::path::Path, journal: bool) -> Vec<(&'static str, u64)> {
    let text = e2fs::dumpe2fs(path, false).unwrap();
    let number = |label: &str| -> u64 {
        let rest = text.split(label).nth(1).unwrap();
        let digits = rest.chars().skip_while(|c| !c.is_ascii_digit());
        digits.take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    let mut own = vec![
        ("superblock", 1),
        ("descriptors", 2),
        ("reserved descriptors", number("Reserved GDT blocks at")),
        ("block bitmap", number("Block bitmap at")),
        ("inode bitmap", number("Inode bitmap at")),
        ("inode table", number("Inode table at")),
        ("backup superblock", 8193),
        ("outside", 1 << 30),
    ];
    if journal {
        let found = e2fs::debugfs(path, false, &["bmap <8> 20"]).unwrap();
        let number = found.lines().find_map(|line| line.trim().parse().ok());
        own.push(("journal", number.unwrap()));
    }
    own
}

/// A name and a call that uses the file's blocks. Each runs on a newly opened image.
type Attempt = (&'static str, fn(&Inodes, InodeNo) -> Result<(), Error>);
const ATTEMPTS: &[Attempt] = &[
    ("read", |v, ino| v.read(ino, AT, &mut [0; 100]).map(drop)),
    ("write", |v, ino| v.write(&Cred::root(), ino, AT, &[9; 100]).map(drop)),
    ("append", |v, ino| v.append(&Cred::root(), ino, &[9; 5000]).map(drop)),
    ("allocate", |v, ino| v.fallocate(&Cred::root(), ino, FallocateMode::Allocate, AT, 4096)),
    ("punch", |v, ino| v.fallocate(&Cred::root(), ino, FallocateMode::PunchHole, AT, 4096)),
    ("truncate", |v, ino| {
        v.setattr(&Cred::root(), ino, &SetAttr { size: Some(0), ..SetAttr::default() }).map(drop)
    }),
    ("fiemap", |v, ino| v.fiemap(ino, 0, u64::MAX / 2, 100).map(drop)),
];

/// Tries all calls on `image`, in which the map of `path` points to `block`.
fn refuse_all(image: &MemoryDevice, path: &str, ino: InodeNo, (what, block): (&str, u64)) {
    for (verb, attempt) in ATTEMPTS {
        let volume = open(image);
        let error = match attempt(&volume, ino) {
            Err(error @ Error::Corrupt(_)) => error.to_string(),
            Err(Error::NotSupported) if *verb == "allocate" => continue,
            other => panic!("{verb} of {path}, which points to the {what}: {other:?}"),
        };
        for wanted in [format!("inode {ino}"), block.to_string()] {
            assert!(error.contains(&wanted), "{verb}, {what}: no {wanted} in {error}");
        }
    }
    // An unlink with the invalid map leaks blocks, but frees none of the volume's.
    let device = Arc::new(image.snapshot());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let _ = volume.unlink(&Cred::root(), ROOT_INO, path.trim_start_matches('/').as_bytes());
    let _ = volume.sync();
    drop(volume);
    let bytes = |device: &MemoryDevice| {
        let mut bytes = vec![0; 1024];
        device.read_at(block * BLOCK, &mut bytes).map(|()| bytes).ok()
    };
    if !["superblock", "journal", "descriptors", "block bitmap", "inode table"].contains(&what) {
        assert!(bytes(&device) == bytes(image), "the {what} changed");
    }
}

/// The image with a word of the file's block area set.
fn with_root_word(
    image: &Image,
    device: &MemoryDevice,
    name: &str,
    set: (&str, u64),
) -> MemoryDevice {
    let path = image.path();
    device.save(&path).unwrap();
    let command = format!("sif {name} block[{}] {}", set.0, set.1);
    e2fs::debugfs(&path, true, &[&command]).unwrap();
    MemoryDevice::load(&path).unwrap()
}

#[test]
fn maps_in_inodes() {
    for (args, word) in [
        (&["-t", "ext4", "-b", "1024"][..], "5"),
        (&["-t", "ext3", "-b", "1024"][..], "0"),
        (&["-t", "ext2", "-b", "1024", "-I", "128"][..], "1"),
    ] {
        let (device, image) = need!(base(args));
        let ino = ino_of(&open(&device), "/small");
        for own in metadata_blocks(&image.path(), args[1] != "ext2") {
            let bad = with_root_word(&image, &device, "/small", (word, own.1));
            refuse_all(&bad, "/small", ino, own);
        }
    }
}

#[test]
fn maps_with_invalid_nodes_and_tables() {
    for (args, word) in
        [(&["-t", "ext4", "-b", "1024"][..], "4"), (&["-t", "ext3", "-b", "1024"][..], "IND")]
    {
        let (device, image) = need!(base(args));
        let ino = ino_of(&open(&device), "/large");
        for own in metadata_blocks(&image.path(), true) {
            let bad = with_root_word(&image, &device, "/large", (word, own.1));
            refuse_all(&bad, "/large", ino, own);
        }
    }
}

/// An invalid entry in a node or a table, away from the accessed offset.
#[test]
fn entries_in_nodes_and_tables() {
    for args in [
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"][..],
        &["-t", "ext3", "-b", "1024"][..],
    ] {
        let (device, image) = need!(base(args));
        device.save(&image.path()).unwrap();
        let ino = ino_of(&open(&device), "/large");
        let dump = e2fs::debugfs(&image.path(), false, &["stat /large"]).unwrap();
        let label = if args[1] == "ext4" { "(ETB0):" } else { "(IND):" };
        let rest = dump.split(label).nth(1).unwrap();
        let node: u64 =
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
        for own in metadata_blocks(&image.path(), true) {
            let bad = device.snapshot();
            let place = if args[1] == "ext4" { 12 + 12 * 20 + 8 } else { 4 * 90 };
            bad.write_at(node * BLOCK + place, &(own.1 as u32).to_le_bytes()).unwrap();
            refuse_all(&bad, "/large", ino, own);
        }
    }
}

#[test]
fn attribute_blocks() {
    let (device, image) = need!(base(&["-t", "ext4", "-b", "1024"]));
    let ino = ino_of(&open(&device), "/value");
    for (what, block) in metadata_blocks(&image.path(), true) {
        device.save(&image.path()).unwrap();
        let command = format!("sif /value file_acl {block}");
        e2fs::debugfs(&image.path(), true, &[&command]).unwrap();
        let volume = open(&MemoryDevice::load(&image.path()).unwrap());
        let got = volume.getxattr(&Cred::root(), ino, b"user.large");
        assert!(matches!(got, Err(Error::Corrupt(_))), "{what}: {got:?}");
    }
}

/// Callers may neither read nor change the journal's inode and the other reserved inodes.
#[test]
fn no_number_leads_to_a_reserved_inode() {
    let (device, _image) = need!(base(&["-t", "ext4", "-b", "1024"]));
    let volume = open(&device);
    let root = Cred::root();
    for ino in [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, u32::MAX].map(InodeNo) {
        let missing = |found: nextent::Result<()>| matches!(found, Err(Error::NotFound));
        assert!(missing(volume.getattr(ino).map(drop)), "{ino}");
        assert!(missing(volume.pin(ino).map(drop)), "{ino}");
        assert!(missing(volume.fiemap(ino, 0, u64::MAX / 2, 100).map(drop)), "{ino}");
        assert!(missing(volume.write(&root, ino, 0, &[1; 10]).map(drop)), "{ino}");
        assert!(missing(volume.link(&root, ino, ROOT_INO, b"name").map(drop)), "{ino}");
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        assert!(missing(volume.setattr(&root, ino, &set).map(drop)), "{ino}");
    }
}

/// A journal whose map points to other metadata would overwrite it.
#[test]
fn a_journal_on_metadata_blocks() {
    let args = &["-t", "ext4", "-b", "1024"];
    let (device, image) = need!(base(args));
    for (what, block) in metadata_blocks(&image.path(), false) {
        let bad = with_root_word(&image, &device, "<8>", ("5", block));
        let before = bad.to_bytes();
        let device = Arc::new(bad);
        let opened = Inodes::open(device.clone(), &OpenOptions::default());
        assert!(matches!(opened, Err(Error::Corrupt(_))), "{what}: {:?}", opened.err());
        // The open may write the superblock and the blocks of the supposed log.
        let after = device.to_bytes();
        let at = (block * BLOCK) as usize;
        if what.contains("bitmap") || what.contains("table") {
            assert!(before[at..at + 1024] == after[at..at + 1024], "the {what} changed");
        }
    }
}
