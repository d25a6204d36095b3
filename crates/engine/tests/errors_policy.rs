//! The effect of `errors=` when a call finds damage. The record in the superblock is on the device
//! when the call returns, and has the kind and the place of the damage.

mod common;

use common::{Image, VolumeFs};
use nextent::inodes::{InodeNo, Inodes, ROOT_INO};
use nextent::{Cred, Error, ErrorPolicy, OpenOptions};
use nextent_device::{BlockDevice, Fault, FaultDevice, MemoryDevice, OpKind, Rule};
use nextent_ondisk::superblock::{error_code, state};
use nextent_ondisk::{BlockNo, Superblock};
use nextent_sync::Arc;
use nextent_testkit::{PosixFs, Skip, e2fs, need};

const BLOCK: u64 = 1024;
const ARGS: &[&str] = &["-t", "ext4", "-b", "1024"];

fn on_device(device: &MemoryDevice) -> Superblock {
    // The log may have the newer superblock, so recover a snapshot, as after a crash.
    let copy = Arc::new(device.snapshot());
    drop(Inodes::open(copy.clone(), &OpenOptions::default()).unwrap());
    let mut sb = [0; 1024];
    copy.read_at(1024, &mut sb).unwrap();
    Superblock::read(&sb).unwrap()
}

/// A volume with a directory, and the directory's inode and first block.
struct BaseVolume {
    device: MemoryDevice,
    dir: (InodeNo, BlockNo),
}

fn base() -> Result<BaseVolume, Skip> {
    let image = Image::make(16 << 20, ARGS)?;
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let fs = VolumeFs(&volume);
    fs.mkdir("/dir", 0o755).unwrap();
    fs.create("/dir/inside", 0o644).unwrap();
    let ino = volume.resolve(&Cred::root(), b"/dir", false).unwrap().ino;
    let block = BlockNo(volume.fiemap(ino, 0, BLOCK, 1).unwrap()[0].physical / BLOCK);
    volume.close().unwrap();
    drop(volume);
    Ok(BaseVolume { device: device.snapshot(), dir: (ino, block) })
}

fn options(policy: ErrorPolicy) -> OpenOptions {
    OpenOptions::new().errors(policy)
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).trim_end_matches('\0').to_owned()
}

/// Opens with `policy` and looks up a name in the directory, whose block is damaged or cannot be
/// read.
fn find_damage(
    base: &BaseVolume,
    policy: ErrorPolicy,
    unreadable: bool,
) -> (Arc<FaultDevice<MemoryDevice>>, Inodes) {
    let copy = base.device.snapshot();
    let at = base.dir.1.0 * BLOCK;
    if !unreadable {
        copy.write_at(at + 4, &[3]).unwrap();
    }
    let device = Arc::new(FaultDevice::new(copy, 1));
    let volume = Inodes::open(device.clone(), &options(policy)).unwrap();
    if unreadable {
        device.add(Rule::on(OpKind::Read, Fault::Error(5)).within(at..at + BLOCK));
    }
    let found = volume.lookup(&Cred::root(), base.dir.0, b"inside");
    match found {
        Err(Error::Io(_)) if unreadable => {}
        Err(Error::Corrupt(_)) if !unreadable => {}
        other => panic!("{other:?}"),
    }
    (device, volume)
}

fn check_note(base: &BaseVolume, device: &MemoryDevice, unreadable: bool) {
    let sb = on_device(device);
    assert!(sb.state.get() & state::ERROR != 0);
    assert!(sb.error_count.get() >= 1);
    assert!(sb.first_error_at() > 0 && sb.last_error_at() >= sb.first_error_at());
    assert_eq!(sb.last_error_block.get(), base.dir.1.0);
    assert_eq!(sb.first_error_block.get(), base.dir.1.0);
    if unreadable {
        assert_eq!(sb.last_error_errcode, error_code::EIO);
        assert_eq!(text(&sb.last_error_func), "read");
    } else {
        assert_eq!(sb.last_error_ino.get(), base.dir.0.0);
        assert_eq!(sb.last_error_errcode, error_code::EFSBADCRC);
        assert_eq!(text(&sb.last_error_func), "directory block");
    }
}

#[test]
fn errors_continue() {
    let base = need!(base());
    for unreadable in [false, true] {
        let (device, volume) = find_damage(&base, ErrorPolicy::Continue, unreadable);
        check_note(&base, device.inner(), unreadable);
        assert!(!volume.is_read_only());
        VolumeFs(&volume).create("/more", 0o600).unwrap();
        // Repeated errors only increment the count.
        for _ in 0..3 {
            let _ = volume.lookup(&Cred::root(), base.dir.0, b"inside").unwrap_err();
        }
        volume.close().unwrap();
        assert_eq!(on_device(device.inner()).error_count.get(), 4);
    }
}

#[test]
fn errors_read_only() {
    let base = need!(base());
    for unreadable in [false, true] {
        let (device, volume) = find_damage(&base, ErrorPolicy::ReadOnly, unreadable);
        check_note(&base, device.inner(), unreadable);
        assert!(volume.is_read_only());
        let made = volume.mkdir(&Cred::root(), ROOT_INO, b"more", 0o755);
        assert!(matches!(made, Err(Error::ReadOnly)), "{made:?}");
        assert!(volume.lookup(&Cred::root(), ROOT_INO, b"dir").is_ok());
        volume.close().unwrap();
        check_note(&base, device.inner(), unreadable);
    }
}

#[test]
fn errors_abort() {
    let base = need!(base());
    for unreadable in [false, true] {
        let (device, volume) = find_damage(&base, ErrorPolicy::Abort, unreadable);
        check_note(&base, device.inner(), unreadable);
        assert!(volume.is_read_only());
        let block = base.dir.1.to_string();
        for change in
            [volume.mkdir(&Cred::root(), ROOT_INO, b"more", 0o755).map(drop), volume.sync()]
        {
            let Err(error @ Error::Aborted(_)) = change else { panic!("{change:?}") };
            assert!(error.to_string().contains(&block), "{error}");
        }
        assert!(matches!(volume.close(), Err(Error::Aborted(_))));
        check_note(&base, device.inner(), unreadable);
    }
}

/// A group with a damaged bitmap is not used, and the superblock records the damage.
#[test]
fn damaged_bitmaps() {
    let image = need!(Image::make(16 << 20, ARGS));
    let text = need!(e2fs::dumpe2fs(&image.path(), false));
    let bitmap: u64 = {
        let rest = text.split("Inode bitmap at ").nth(1).unwrap();
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    device.write_at(bitmap * BLOCK + 7, &[0x55]).unwrap();
    let volume = Inodes::open(device.clone(), &options(ErrorPolicy::Continue)).unwrap();
    VolumeFs(&volume).create("/elsewhere", 0o600).unwrap();
    let sb = on_device(&device);
    assert!(sb.error_count.get() > 0 && sb.state.get() & state::ERROR != 0);
    assert_eq!(sb.first_error_errcode, error_code::EFSBADCRC);
}

/// An error of file data does not mark the volume as damaged.
#[test]
fn data_errors_are_no_damage_of_the_volume() {
    let base = need!(base());
    let device = Arc::new(FaultDevice::new(base.device.snapshot(), 1));
    let volume = Inodes::open(device.clone(), &options(ErrorPolicy::ReadOnly)).unwrap();
    let fs = VolumeFs(&volume);
    fs.create("/file", 0o644).unwrap();
    fs.write("/file", 0, &[1; 5000]).unwrap();
    fs.fsync("/file").unwrap();
    let ino = volume.resolve(&Cred::root(), b"/file", false).unwrap().ino;
    let at = volume.fiemap(ino, 0, BLOCK, 1).unwrap()[0].physical;
    device.add(Rule::always(Fault::Error(5)).within(at..at + BLOCK));
    assert!(matches!(volume.read(ino, 0, &mut [0; 100]), Err(Error::Io(_))));
    assert!(matches!(volume.write(&Cred::root(), ino, 0, &[2; 100]), Err(Error::Io(_))));
    assert!(!volume.is_read_only());
    device.clear();
    volume.close().unwrap();
    assert_eq!(on_device(device.inner()).error_count.get(), 0);
}

#[test]
fn an_observer_learns_of_damage_also_on_a_read_only_volume() {
    let base = need!(base());
    for read_only in [false, true] {
        let copy = Arc::new(base.device.snapshot());
        copy.write_at(base.dir.1.0 * BLOCK + 4, &[3]).unwrap();
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let list = Arc::clone(&seen);
        let observe = move |error: &Error| list.lock().unwrap().push(error.to_string());
        let how = options(ErrorPolicy::Continue).read_only(read_only).on_damage(observe);
        let volume = Inodes::open(copy, &how).unwrap();
        // A missing name is no damage.
        volume.lookup(&Cred::root(), ROOT_INO, b"missing").unwrap_err();
        assert!(seen.lock().unwrap().is_empty());
        let error = volume.lookup(&Cred::root(), base.dir.0, b"inside").unwrap_err();
        assert_eq!(*seen.lock().unwrap(), [error.to_string()]);
        volume.close().unwrap();
    }
}
