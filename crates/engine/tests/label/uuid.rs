//! Changing the UUID where it is the seed of checksums: on volumes with all that has a checksum,
//! and after a power cut at any write.

use super::common::{Image, VolumeFs, VolumeTree, close};
use nextent::{BlockDevice, MemoryDevice, OpenOptions, change_uuid, uuid_seeds_checksums};
use nextent_device::RecordingDevice;
use nextent_ondisk::superblock::SUPER_SIZE;
use nextent_ondisk::{Incompat, Superblock};
use nextent_sync::Arc;
use nextent_testkit::tree::{Compare, Tree, diff, walk};
use nextent_testkit::{
    Access, CutInfo, Explorer, KernelMount, PosixFs, Skip, XattrFlags, e2fs, need,
};
use std::ffi::OsStr;
use std::path::Path;

const NEW: [u8; 16] = *b"another UUID now";

/// Kinds of volumes whose checksums or hashes depend on the UUID.
const SEEDED: &[(&str, &[&str])] = &[
    ("ext4", &["-t", "ext4"]),
    ("orphan-file-mmp", &["-t", "ext4", "-b", "1024", "-O", "orphan_file,mmp"]),
    ("inode-128", &["-t", "ext4", "-b", "2048", "-I", "128"]),
    ("32-bit", &["-t", "ext4", "-b", "1024", "-O", "^64bit,^resize_inode,meta_bg"]),
    ("no-extents", &["-t", "ext4", "-b", "1024", "-O", "^extent,^64bit"]),
    ("quota", &["-t", "ext4", "-b", "1024", "-O", "quota,project,inline_data,large_dir"]),
    ("uninit", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"]),
    ("ea-inode", &["-t", "ext4", "-b", "1024", "-O", "ea_inode"]),
    ("ea-inode-no-sums", &["-t", "ext4", "-b", "1024", "-O", "ea_inode,^metadata_csum"]),
];

fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut bytes = [0; SUPER_SIZE];
    device.read_at(1024, &mut bytes).unwrap();
    Superblock::read(&bytes).unwrap()
}

/// Adds an indexed directory, a deep block map and attributes in a block.
fn fill(path: &Path) -> Result<(), Skip> {
    let volume = super::common::open(path, &OpenOptions::default()).unwrap();
    // This program only reads volumes with ea_inode and quota.
    if volume.is_read_only() {
        close(&volume);
        let with_values = volume.superblock().features().has(Incompat::EA_INODE);
        drop(volume);
        return if with_values { fill_with_values(path) } else { Ok(()) };
    }
    let files = VolumeFs(&volume);
    files.mkdir("/dir", 0o755).unwrap();
    for n in 0..120 {
        let name = format!("/dir/a name that is long enough to fill blocks {n}");
        files.create(&name, 0o644).unwrap();
    }
    files.create("/holes", 0o600).unwrap();
    for n in 0..400 {
        files.write("/holes", n * 8192, b"data").unwrap();
    }
    files.symlink(&"target/".repeat(30), "/slow link").unwrap();
    for path in ["/holes", "/dir"] {
        files.set_xattr(path, "user.large", &[7; 600], XattrFlags::Any).unwrap();
    }
    close(&volume);
    e2fs::assert_clean(path);
    Ok(())
}

/// Adds attributes whose values are inodes of their own.
fn fill_with_values(path: &Path) -> Result<(), Skip> {
    let value = path.with_extension("value");
    std::fs::write(&value, [9; 5000]).unwrap();
    let set = |file: &str, name: &str| format!("ea_set -f {} {file} {name}", value.display());
    let commands = [
        "mkdir /dir".to_owned(),
        "write /dev/null /holes".to_owned(),
        set("/holes", "user.value"),
        // Entries of these lie in the inode, and in a block.
        set("/dir", &format!("user.{}", "a".repeat(50))),
        set("/dir", &format!("user.{}", "b".repeat(50))),
    ];
    e2fs::debugfs(path, true, &commands.each_ref().map(String::as_str))?;
    // debugfs does not count the blocks of values.
    e2fs::run("e2fsck", [OsStr::new("-fy"), path.as_os_str()])?;
    let device = Arc::new(MemoryDevice::load(path).unwrap());
    let tree = tree(device).unwrap();
    let held = |path: &str| tree.get(path).unwrap().xattrs.len();
    assert_eq!((held("/holes"), held("/dir")), (1, 2));
    let said = e2fs::debugfs(path, false, &["stat /dir"])?;
    assert!(!said.contains("File ACL: 0"), "{said}");
    e2fs::assert_clean(path);
    Ok(())
}

fn tree(device: Arc<dyn BlockDevice>) -> Result<Tree, String> {
    let options = OpenOptions::new().read_only(true);
    let volume = nextent::inodes::Inodes::open(device, &options);
    let volume = volume.map_err(|error| error.to_string())?;
    walk(&VolumeTree(&volume)).map_err(|error| error.to_string())
}

#[test]
fn all_checksums_get_the_new_seed() {
    for (name, args) in SEEDED {
        let image = need!(Image::make(12 << 20, args));
        need!(fill(&image.path()));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let before = tree(device.clone()).unwrap();
        let old = superblock(&*device);
        assert!(uuid_seeds_checksums(&old), "{name}");
        let shared: Arc<dyn BlockDevice> = device.clone();
        change_uuid(&shared, NEW).unwrap_or_else(|error| panic!("{name}: {error}"));
        let new = superblock(&*device);
        assert_eq!(new.uuid, NEW);
        assert_eq!((new.mnt_count, new.state), (old.mnt_count, old.state), "{name}");
        assert_eq!(new.features(), old.features(), "{name}");
        device.save(&image.path()).unwrap();
        e2fs::assert_clean(&image.path());
        let path = image.path();
        let backup = ["-h", "-o", "superblock=8193", "-o", "blocksize=1024"];
        let backup = backup.iter().map(OsStr::new).chain([path.as_os_str()]);
        let text = need!(e2fs::run("dumpe2fs", backup));
        if args.contains(&"1024") {
            let text = String::from_utf8_lossy(&text.stdout).into_owned();
            assert!(text.contains("616e6f74-6865-7220-5555-4944206e6f77"), "{name}: {text}");
        }
        let after = tree(device).unwrap();
        assert_eq!(diff(&before, &after, &Compare::default()), Vec::<String>::new(), "{name}");
        // Few mounts, since each takes long; and some kernels have no quota.
        if ["ext4", "ea-inode"].contains(name)
            && let Ok(mount) = KernelMount::new(&image.path(), Access::ReadWrite)
        {
            std::fs::write(mount.path().join("dir/new"), "by the kernel").unwrap();
            mount.unmount();
            e2fs::assert_clean(&image.path());
        }
    }
}

/// Records the change of the UUID of a volume made with `args`, and checks images that a power cut
/// leaves: `e2fsck -p` makes it consistent, with the same tree and one of the two UUIDs.
fn cut(args: &[&str], most: usize) -> Result<(), Skip> {
    let image = Image::make(12 << 20, args)?;
    fill(&image.path())?;
    let device = Arc::new(RecordingDevice::new(MemoryDevice::load(&image.path()).unwrap()));
    let before = tree(Arc::new(device.image_at(0))).unwrap();
    let old = superblock(&*device).uuid;
    let shared: Arc<dyn BlockDevice> = device.clone();
    change_uuid(&shared, NEW).unwrap();
    drop(shared);
    let check = |image: MemoryDevice, _: &CutInfo| {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = dir.path().join("image");
        image.save(&path).map_err(|error| error.to_string())?;
        match e2fs::e2fsck_recover(&path) {
            Ok(report) if report.is_clean() => {}
            Ok(report) => return Err(report.text),
            Err(_) => return Err("e2fsck is missing".into()),
        }
        let repaired = MemoryDevice::load(&path).map_err(|error| error.to_string())?;
        let uuid = superblock(&repaired).uuid;
        if uuid != NEW && uuid != old {
            return Err(format!("the UUID is {uuid:x?}"));
        }
        let differences = diff(&before, &tree(Arc::new(repaired))?, &Compare::default());
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    };
    let explorer = Explorer { subsets: 1, most, ..Explorer::default() };
    let report = explorer.explore(&device.recording(), check);
    report.assert_none_failed();
    assert!(report.checked >= 10, "{report:?}");
    Ok(())
}

#[test]
fn the_log_completes_a_change_that_a_crash_ends() {
    for args in [
        &["-t", "ext4", "-b", "1024", "-O", "orphan_file", "-J", "size=4"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg", "-J", "size=4"],
    ] {
        need!(cut(args, 12));
    }
}

#[test]
fn a_volume_that_cannot_log_all_keeps_its_uuid() {
    let image = need!(Image::make(24 << 20, &["-t", "ext4", "-b", "1024", "-O", "^has_journal"]));
    need!(fill(&image.path()));
    assert_refused(&image, "without a journal");
    // A block for each inode, and a journal of 1024 blocks.
    let args = ["-t", "ext4", "-b", "1024", "-I", "1024", "-N", "2000", "-J", "size=1"];
    let image = need!(Image::make(24 << 20, &args));
    let made = (0..1100).map(|n| format!("write /dev/null {n}")).collect::<Vec<_>>();
    let made: Vec<_> = made.iter().map(String::as_str).collect();
    need!(e2fs::debugfs(&image.path(), true, &made));
    assert_refused(&image, "logged at once");
}

/// Checks that the UUID does not change, for this reason, and nothing else.
fn assert_refused(image: &Image, why: &str) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let before = std::fs::read(image.path()).unwrap();
    let error = change_uuid(&device, NEW).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
    let mut after = vec![0; before.len()];
    device.read_at(0, &mut after).unwrap();
    assert!(before == after, "nothing was written");
}

#[test]
fn a_damaged_volume_keeps_its_uuid() {
    let image = need!(Image::make(12 << 20, &["-t", "ext4", "-b", "1024"]));
    need!(fill(&image.path()));
    need!(e2fs::debugfs(&image.path(), true, &["sif /holes links_count 7"]));
    assert_refused(&image, "run e2fsck -f");
}
