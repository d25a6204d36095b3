//! Side effects of changes: writes clear capabilities and set-id bits, and the flags `sync` and
//! `dirsync` make changes durable at once.

mod common;

use common::{Image, KINDS, VolumeFs, close};
use nextent::inodes::{
    FallocateMode, InodeNo, Inodes, NewNode, ROOT_INO, RenameMode, SetAttr, XattrMode,
};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{Fault, FaultDevice, MemoryDevice, OpKind, RecordingDevice, Rule};
use nextent_ondisk::inode::flags;
use nextent_sync::{Arc, Duration};
use nextent_testkit::{PosixFs, e2fs, need};

const CAPABILITY: &[u8] = b"security.capability";

fn file(volume: &Inodes, name: &str, mode: u16, owner: (u32, u32)) -> InodeNo {
    let root = Cred::root();
    let node = NewNode::Regular;
    let ino = volume.mknod(&root, ROOT_INO, name.as_bytes(), node, 0o666).unwrap().ino;
    volume.write(&root, ino, 0, &[1; 10_000]).unwrap();
    let set = SetAttr { uid: Some(owner.0), gid: Some(owner.1), ..SetAttr::default() };
    volume.setattr(&root, ino, &set).unwrap();
    volume.setattr(&root, ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
    ino
}

fn size(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..SetAttr::default() }
}

/// A name and a change.
type NamedChange = (&'static str, fn(&Inodes, &Cred, InodeNo) -> Result<(), Error>);

const CONTENT_CHANGES: &[NamedChange] = &[
    ("overwrite", |v, cred, ino| v.write(cred, ino, 100, b"new").map(drop)),
    ("write past the end", |v, cred, ino| v.write(cred, ino, 50_000, b"new").map(drop)),
    ("append", |v, cred, ino| v.append(cred, ino, &[3; 5000]).map(drop)),
    ("allocate", |v, cred, ino| v.fallocate(cred, ino, FallocateMode::Allocate, 10_000, 90_000)),
    ("punch", |v, cred, ino| v.fallocate(cred, ino, FallocateMode::PunchHole, 0, 4096)),
    ("cut", |v, cred, ino| v.setattr(cred, ino, &size(3)).map(drop)),
    ("lengthen", |v, cred, ino| v.setattr(cred, ino, &size(30_000)).map(drop)),
];

#[test]
fn changes_of_contents_or_owner_remove_capabilities() {
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let volume = image.open();
    let (root, user) = (Cred::root(), Cred::user(1000, 1000, vec![], 0));
    let chown: NamedChange = ("chown", |v, _, ino| {
        let set = SetAttr { uid: Some(7), ..SetAttr::default() };
        v.setattr(&Cred::root(), ino, &set).map(drop)
    });
    for (n, cred) in [&root, &user].into_iter().enumerate() {
        for (what, change) in CONTENT_CHANGES.iter().chain([&chown]) {
            let ino = file(&volume, &format!("{what}{n}"), 0o755, (1000, 1000));
            let set = |value: &[u8]| {
                volume.setxattr(&root, ino, CAPABILITY, value, XattrMode::Either).unwrap();
            };
            volume.setxattr(&root, ino, b"user.other", b"stays", XattrMode::Either).unwrap();
            for _ in 0..2 {
                set(&[1; 20]);
                change(&volume, cred, ino).unwrap();
                let gone = volume.getxattr(&root, ino, CAPABILITY);
                assert!(matches!(gone, Err(Error::NoData)), "{what}: {gone:?}");
                assert_eq!(volume.getxattr(&root, ino, b"user.other").unwrap(), b"stays");
            }
            // A change of the mode and a read keep it.
            set(&[2; 20]);
            let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
            volume.setattr(&root, ino, &mode).unwrap();
            volume.read(ino, 0, &mut [0; 10]).unwrap();
            assert_eq!(volume.getxattr(&root, ino, CAPABILITY).unwrap(), [2; 20]);
        }
    }
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}

#[test]
fn unprivileged_writes_clear_set_id_bits() {
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let volume = image.open();
    let member = Cred::user(1000, 1000, vec![], 0);
    let stranger = Cred::user(2000, 2000, vec![], 0);
    // The mode before, and after a write by root, by a member of the group, by another user.
    let table = [
        (0o6777, [0o6777, 0o0777, 0o0777]),
        (0o4777, [0o4777, 0o0777, 0o0777]),
        (0o2777, [0o2777, 0o0777, 0o0777]),
        (0o2767, [0o2767, 0o2767, 0o0767]),
        (0o6767, [0o6767, 0o2767, 0o0767]),
        (0o1666, [0o1666, 0o1666, 0o1666]),
    ];
    for (before, after) in table {
        for (cred, wanted) in [&Cred::root(), &member, &stranger].into_iter().zip(after) {
            for (what, change) in CONTENT_CHANGES {
                let name = format!("{before:o}-{}-{what}", cred.uid);
                let ino = file(&volume, &name, before, (1000, 1000));
                change(&volume, cred, ino).unwrap();
                let mode = volume.getattr(ino).unwrap().mode;
                assert_eq!(mode, wanted, "{name}: {mode:o}, not {wanted:o}");
            }
        }
    }
    close(&volume);
}

/// The volume after a crash now.
fn crashed(device: &Arc<RecordingDevice<MemoryDevice>>) -> Inodes {
    let left = Arc::new(device.image_at(device.events()));
    Inodes::open(left, &OpenOptions::default()).unwrap()
}

fn recorded(
    args: &[&str],
) -> Result<(Arc<RecordingDevice<MemoryDevice>>, Inodes), nextent_testkit::Skip> {
    let image = Image::make(32 << 20, args)?;
    let device = Arc::new(RecordingDevice::new(MemoryDevice::load(&image.path()).unwrap()));
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    Ok((device, volume))
}

fn set_flags(volume: &Inodes, ino: InodeNo, bits: u32) {
    let old = volume.getattr(ino).unwrap().flags;
    let set = SetAttr { flags: Some(old | bits), ..SetAttr::default() };
    volume.setattr(&Cred::root(), ino, &set).unwrap();
}

#[test]
fn changes_of_sync_files_are_durable() {
    for args in [KINDS[1].1, KINDS[9].1] {
        let (device, volume) = need!(recorded(args));
        let ino = file(&volume, "file", 0o644, (0, 0));
        volume.sync().unwrap();
        set_flags(&volume, ino, flags::SYNC);
        let root = Cred::root();
        for (what, change) in CONTENT_CHANGES {
            match change(&volume, &root, ino) {
                Err(Error::NotSupported) => continue,
                done => done.unwrap(),
            }
            let mut now = vec![0; 200_000];
            let mut then = now.clone();
            let len = volume.read(ino, 0, &mut now).unwrap();
            let left = crashed(&device);
            assert_eq!(left.read(ino, 0, &mut then).unwrap(), len, "{what}");
            assert!(now == then, "{what}");
            assert_eq!(left.getattr(ino).unwrap(), volume.getattr(ino).unwrap(), "{what}");
        }
        volume.setxattr(&root, ino, b"user.x", b"1", XattrMode::Create).unwrap();
        assert_eq!(crashed(&device).getxattr(&root, ino, b"user.x").unwrap(), b"1");
        close(&volume);
    }
}

#[test]
fn names_in_dirsync_directories_are_durable() {
    for bits in [flags::DIRSYNC, flags::SYNC] {
        let (device, volume) = need!(recorded(KINDS[1].1));
        let (root, fs) = (Cred::root(), VolumeFs(&volume));
        fs.mkdir("/dir", 0o755).unwrap();
        volume.sync().unwrap();
        let dir = volume.resolve(&root, b"/dir", false).unwrap().ino;
        set_flags(&volume, dir, bits);
        let names = |volume: &Inodes| {
            let mut names = Vec::new();
            volume
                .readdir(dir, 0, &mut |entry| {
                    names.push(entry.name.to_vec());
                    true
                })
                .unwrap();
            names.sort();
            names
        };
        let check = |what: &str| assert_eq!(names(&crashed(&device)), names(&volume), "{what}");
        fs.create("/dir/file", 0o644).unwrap();
        check("create");
        fs.mkdir("/dir/sub", 0o755).unwrap();
        check("mkdir");
        fs.symlink("target", "/dir/symlink").unwrap();
        check("symlink");
        fs.link("/dir/file", "/dir/link").unwrap();
        check("link");
        volume.rename(&root, (dir, b"file"), (ROOT_INO, b"out"), RenameMode::Replace).unwrap();
        check("rename out");
        volume.rename(&root, (ROOT_INO, b"out"), (dir, b"in"), RenameMode::Replace).unwrap();
        check("rename in");
        fs.unlink("/dir/link").unwrap();
        check("unlink");
        fs.rmdir("/dir/sub").unwrap();
        check("rmdir");
        close(&volume);
    }
}

/// If the sync of a create fails, the caller gets no open file, so the file must not stay pinned.
#[test]
fn a_create_whose_sync_fails_leaves_no_open_file() {
    let image = need!(Image::make(16 << 20, KINDS[0].1));
    let device = FaultDevice::new(MemoryDevice::load(&image.path()).unwrap(), 1);
    let device = Arc::new(device);
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let root = Cred::root();
    let dir = volume.mkdir(&root, ROOT_INO, b"dir", 0o755).unwrap().ino;
    set_flags(&volume, dir, flags::DIRSYNC);
    device.add(Rule::on(OpKind::Flush, Fault::Error(libc::EIO)).times(1));
    let done = volume.create(&root, dir, b"file", 0o644);
    assert!(matches!(done, Err(Error::Aborted(_))), "{done:?}");
    let made = volume.lookup(&root, dir, b"file").unwrap().ino;
    assert!(matches!(volume.release(made), Err(Error::Invalid)));
    drop(volume);
    image_recovers(&image, device.inner());
}

fn image_recovers(image: &Image, device: &MemoryDevice) {
    device.save(&image.path()).unwrap();
    let volume = image.open();
    volume.close().unwrap();
    drop(volume);
    e2fs::assert_clean(&image.path());
}
