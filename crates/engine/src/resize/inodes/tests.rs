use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nextent_device::{BlockDevice, FileDevice, FileOptions};
use nextent_num::to_usize;
use nextent_ondisk::xattr::{self, Value, XattrEntry};
use nextent_ondisk::{InodeNo, htree};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{Skip, e2fs, need};

use super::{FreeNumbers, NewNumbers, Volume};
use crate::attr::DirEntry;
use crate::error::Error;
use crate::open::{OpenOptions, read_super, write_super};
use crate::ops::Inodes;
use crate::resize::commit::set_recovery;
use crate::resize::{ResizeOptions, resize};
use crate::{Cred, FileType};

const SIZE: u64 = 16 << 20;
/// Inodes of a group; there are 8 groups.
const PER_GROUP: u32 = 64;
/// Files that are removed again, whose inodes come first: those of groups 0 to 2, and some more.
const FILLERS: u32 = 200;

/// An image with free inodes in its first groups and used ones after them.
struct Image {
    dir: tempfile::TempDir,
    /// The tree before inodes moved.
    before: BTreeMap<String, Entry>,
}

/// What a name leads to.
#[derive(Debug)]
struct Entry {
    ino: InodeNo,
    kind: FileType,
    mode: u16,
    links: u32,
    contents: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first name of the same inode.
    first: String,
}

impl PartialEq for Entry {
    /// Compares everything but the number.
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.mode, self.links) == (other.kind, other.mode, other.links)
            && (&self.contents, &self.xattrs) == (&other.contents, &other.xattrs)
            && self.first == other.first
    }
}

impl Image {
    /// An image made by mke2fs with `args`, with a tree of files. `names` hard links make one
    /// directory large.
    fn make(args: &[&str], names: u32) -> Result<Self, Skip> {
        Self::make_with(args, names, &[])
    }

    /// As [`Self::make`], with more commands of debugfs, where `VALUE` is a file of 5000 bytes.
    fn make_with(args: &[&str], names: u32, more: &[&str]) -> Result<Self, Skip> {
        let dir = tempfile::tempdir().unwrap();
        let mut image = Self { dir, before: BTreeMap::new() };
        let fixed = ["-b", "1024", "-g", "2048", "-N", "512"];
        e2fs::mke2fs(&image.path(), SIZE, &[&fixed, args].concat())?;
        let mut script = vec!["mkdir fillers".to_owned(), "cd fillers".to_owned()];
        script.extend((0..FILLERS).map(|n| format!("mknod filler{n} p")));
        script.push("cd /".to_owned());
        image.add_files(&mut script, names);
        script.push("cd /".to_owned());
        let value = image.host_file("value", &[b'v'; 5000]);
        script.extend(more.iter().map(|line| line.replace("VALUE", &value)));
        script.extend((0..FILLERS).map(|n| format!("rm fillers/filler{n}")));
        image.debugfs(&script)?;
        // Directories of several blocks get an index.
        image.repair("-fyD")?;
        image.repair("-fy")?;
        image.before = image.tree();
        assert_eq!(image.before["/a/b/c/linked"].first, image.before["/d/linked"].first);
        assert_eq!(image.before["/large/file-0"].links, names + 1);
        assert_eq!(image.before["/a/fragmented"].contents.len(), 39 * 8192 + 1024);
        Ok(image)
    }

    /// Lets e2fsck complete what debugfs leaves undone.
    fn repair(&self, options: &str) -> Result<(), Skip> {
        let output = e2fs::run("e2fsck", [options.as_ref(), self.path().as_os_str()])?;
        assert!(output.status.code().is_some_and(|code| code < 4), "{output:?}");
        Ok(())
    }

    fn add_files(&self, script: &mut Vec<String>, names: u32) {
        let small = self.host_file("small", b"contents of a file");
        let block = [7; 1024];
        let fragmented = self.host_file("fragmented", b"");
        let file = std::fs::File::options().write(true).open(&fragmented).unwrap();
        for at in 0..40 {
            std::os::unix::fs::FileExt::write_at(&file, &block, at * 8192).unwrap();
        }
        let mut add = |line: String| script.push(line);
        for dir in ["a", "a/b", "a/b/c", "d", "large"] {
            add(format!("mkdir {dir}"));
            add(format!("cd {dir}"));
            for n in 0..12 {
                add(format!("write {small} file-{n}"));
            }
            add("cd /".into());
        }
        add(format!("write {fragmented} a/fragmented"));
        add("symlink d/fast a/b/c/file-1".into());
        add(format!("symlink d/slow {}", "../a/b/".repeat(30)));
        add("ln a/file-3 d/linked".into());
        add("ln a/file-3 a/b/c/linked".into());
        add("sif a/file-3 links_count 3".into());
        for _ in 0..names.div_ceil(20) {
            add("expand_dir large".into());
        }
        add("cd large".into());
        for n in 0..names {
            add(format!("ln file-0 another-name-of-the-file-{n}"));
        }
        add(format!("sif file-0 links_count {}", names + 1));
    }

    fn host_file(&self, name: &str, contents: &[u8]) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, contents).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn debugfs(&self, script: &[String]) -> Result<String, Skip> {
        let lines: Vec<_> = script.iter().map(String::as_str).collect();
        e2fs::debugfs(&self.path(), true, &lines)
    }

    fn volume(&self) -> Volume {
        let device = open(&self.path());
        let sb = read_super(&*device).unwrap();
        Volume::read(&device, sb, false).unwrap()
    }

    /// Everything that the volume holds.
    fn tree(&self) -> BTreeMap<String, Entry> {
        let options = OpenOptions::new().read_only(true);
        let volume = Inodes::open(open(&self.path()), &options).unwrap();
        let (mut tree, mut first) = (BTreeMap::new(), BTreeMap::new());
        let mut rest = vec![(String::new(), InodeNo(2))];
        while let Some((path, ino)) = rest.pop() {
            let first: &mut String = first.entry(ino).or_insert_with(|| path.clone());
            let entry = entry(&volume, ino, first.clone());
            if volume.getattr(ino).unwrap().kind == FileType::Directory {
                let mut names = BTreeMap::new();
                let each = &mut |entry: DirEntry<'_>| {
                    names.insert(String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino);
                    true
                };
                volume.readdir(ino, 0, each).unwrap();
                names.retain(|name, _| name != "." && name != "..");
                rest.extend(names.into_iter().map(|(name, ino)| (format!("{path}/{name}"), ino)));
            }
            tree.insert(path, entry);
        }
        volume.close().unwrap();
        tree
    }

    /// Lets `change` change the volume, then checks that it is sound and holds the same as before.
    fn change<T>(&self, change: impl FnOnce(&mut Volume) -> T) -> T {
        let mut volume = self.volume();
        let result = change(&mut volume);
        volume.commit().unwrap();
        // A resize does this at its end.
        volume.sb.state.set(volume.state);
        set_recovery(&mut volume.sb, false);
        write_super(&*volume.device, &mut volume.sb).unwrap();
        drop(volume);
        e2fs::assert_clean(&self.path());
        assert_eq!(self.tree(), self.before);
        result
    }

    /// Moves the inodes above `limit`.
    fn move_inodes(&self, limit: u32) {
        let (to_move, moved) = self.change(|volume| {
            let (to_move, free) = volume.inodes_to_move(limit).unwrap();
            assert!(to_move > 0 && to_move <= free, "{to_move} inodes, {free} free");
            let mut last = (0, 0);
            volume.move_inodes(limit, &mut |done, steps| last = (done, steps)).unwrap();
            assert_eq!(last, (to_move, to_move));
            (to_move, volume.moved_inodes)
        });
        assert_eq!(to_move, moved);
        assert_eq!(self.volume().inodes_to_move(limit).unwrap().0, 0);
    }

    /// Moves inodes to the last group.
    fn move_up(&self, inodes: &[u32]) {
        self.change(|volume| {
            let references = volume.find_references(10).unwrap();
            let (limit, group) = (volume.geo.inodes_count, volume.geo.group_count - 1);
            let mut free = FreeNumbers { limit, groups: vec![group], at: 0 };
            let mut numbers = NewNumbers::default();
            for ino in inodes.iter().copied().map(InodeNo) {
                volume.move_inode(ino, references.of(ino), &mut free, &mut numbers).unwrap();
            }
        });
    }

    /// Moves the inodes into half of the groups, then resizes the volume to two groups.
    fn shrink(&self) {
        self.move_inodes(4 * PER_GROUP);
        let (device, blocks) = (open(&self.path()), 1 + 2 * 2048);
        let resized = resize(&device, blocks, &ResizeOptions::default(), &|_| ()).unwrap();
        assert!(resized.blocks == blocks && resized.moved_inodes > 0, "{resized:?}");
        drop(device);
        let file = std::fs::File::options().write(true).open(self.path()).unwrap();
        file.set_len(blocks * 1024).unwrap();
        e2fs::assert_clean(&self.path());
        assert_eq!(self.tree(), self.before);
    }
}

fn open(path: &Path) -> Arc<dyn BlockDevice> {
    // A child process that another test forks has a copy of the lock for a moment.
    for _ in 0..200 {
        match FileDevice::open(path, &FileOptions::new()) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(20));
            }
            opened => return Arc::new(opened.unwrap()),
        }
    }
    panic!("{} stays locked", path.display());
}

fn entry(volume: &Inodes, ino: InodeNo, first: String) -> Entry {
    let attr = volume.getattr(ino).unwrap();
    let mut contents = vec![0; usize::try_from(attr.size).unwrap()];
    match attr.kind {
        FileType::Regular => {
            assert_eq!(volume.read(ino, 0, &mut contents).unwrap(), contents.len());
        }
        FileType::Symlink => contents = volume.readlink(ino).unwrap(),
        _ => contents.clear(),
    }
    let root = Cred::root();
    let value = |name: Vec<u8>| (name.clone(), volume.getxattr(&root, ino, &name).unwrap());
    let xattrs = volume.listxattr(&root, ino).unwrap().into_iter().map(value).collect();
    Entry { ino, kind: attr.kind, mode: attr.mode, links: attr.links, contents, xattrs, first }
}

/// The first inode with an attribute whose value is in an inode, and that inode.
fn first_value(volume: &mut Volume) -> (InodeNo, InodeNo) {
    for group in volume.geo.groups() {
        for ino in volume.used_inodes(group).unwrap() {
            let (inode, raw) = volume.inode(ino).unwrap();
            let area = inode.xattr_area(&volume.geo).unwrap_or_default();
            let block = match inode.file_acl.0 {
                0 => Vec::new(),
                _ => volume.attribute_block(inode.file_acl).unwrap(),
            };
            let inside = xattr::in_inode(&volume.geo, &raw[area]).unwrap();
            let outside = xattr::in_block(&volume.geo, &block).map(|(_, entries)| entries);
            for entry in inside.chain(outside.into_iter().flatten()) {
                if let Value::Inode(value, _) = entry.value {
                    return (ino, value);
                }
            }
        }
    }
    panic!("no value is in an inode");
}

#[test]
fn inodes_move_with_default_features() {
    let image = need!(Image::make(&["-t", "ext4"], 3000));
    let volume = image.volume();
    let dir = image.before["/large"].ino;
    let blocks = volume.directory_blocks(dir, &volume.inode(dir).unwrap().0).unwrap();
    let root = volume.block(blocks[0]).unwrap();
    assert_eq!(htree::root_info(&volume.geo, &root).unwrap().levels, 1, "{} blocks", blocks.len());
    drop(volume);
    image.shrink();
}

#[test]
fn inodes_move_on_ext2() {
    let image = need!(Image::make(&["-t", "ext2"], 300));
    image.shrink();
}

#[test]
fn small_inodes_move() {
    let image = need!(Image::make(&["-t", "ext4", "-I", "128"], 300));
    image.shrink();
}

/// Directories inside their inodes name their parent and, in two places, files.
#[test]
fn directories_in_their_inodes_move() {
    let more = ["mkdir e", "mkdir e/inside", "ln a/file-3 e/inside/linked", "symlink e/x target"];
    let args = ["-t", "ext4", "-O", "inline_data"];
    let mut image = need!(Image::make_with(&args, 300, &more));
    let file = image.before["/e/x"].ino;
    // e2fsprogs adds no entries in the second place.
    let mut volume = image.volume();
    let dir = image.before["/e/inside"].ino;
    let (mut inode, mut raw) = volume.inode(dir).unwrap();
    assert!(volume.is_inline(&inode));
    let mut record = [0; 40];
    record[..4].copy_from_slice(&file.0.to_le_bytes());
    record[4..8].copy_from_slice(&[40, 0, 6, 7]);
    record[8..14].copy_from_slice(b"second");
    let value = Value::Bytes(&record);
    let entry = XattrEntry { index: xattr::index::SYSTEM, name: b"data", value, hash: 0 };
    let area = inode.xattr_area(&volume.geo).unwrap();
    assert!(xattr::write_inode(&mut raw[area], &[entry]));
    inode.size = 100;
    inode.write(&volume.geo, &mut raw);
    volume.put_inode(dir, &raw).unwrap();
    let (mut inode, mut raw) = volume.inode(file).unwrap();
    inode.links = 2;
    inode.write(&volume.geo, &mut raw);
    volume.put_inode(file, &raw).unwrap();
    volume.commit().unwrap();
    drop(volume);
    e2fs::assert_clean(&image.path());
    image.before = image.tree();
    assert_eq!(image.before["/e/inside/second"].first, image.before["/e/x"].first);
    image.shrink();
}

/// The quota file and the orphan file are inodes that only the superblock names.
#[test]
fn inodes_that_the_superblock_names_move() {
    let features = "project,quota,orphan_file";
    let args = ["-t", "ext4", "-O", features, "-E", "quotatype=prjquota"];
    let image = need!(Image::make(&args, 10));
    let numbers = |volume: &Volume| {
        let sb = &volume.sb;
        [sb.orphan_file_inum.get(), sb.prj_quota_inum.get()]
    };
    let before = numbers(&image.volume());
    image.move_up(&[11, before[0], before[1]]);
    let moved = numbers(&image.volume());
    assert!(moved.iter().all(|ino| *ino > 7 * PER_GROUP), "{moved:?}");
    image.shrink();
    let after = numbers(&image.volume());
    assert!(after.iter().all(|ino| (11..2 * PER_GROUP).contains(ino)), "{after:?}");
}

/// Values of attributes in inodes, which entries in inodes and in blocks name. One of them is
/// of the kind that Lustre made: it names the file.
#[test]
fn inodes_that_hold_values_move() {
    for size in ["128", "256"] {
        let args = ["-t", "ext4", "-O", "ea_inode", "-I", size];
        let files = ["a/file-1", "a/b/file-2", "d/file-3", "a/b/c"];
        let more = files.map(|file| format!("ea_set -f VALUE {file} user.large"));
        let more = more.each_ref().map(String::as_str);
        let mut image = need!(Image::make_with(&args, 10, &more));
        let (file, held) = first_value(&mut image.volume());
        let mut script = vec![format!("sif <{file}> generation 7")];
        let parent = format!("@{file}");
        for (field, value) in [("generation", "7"), ("atime", "@1"), ("mtime", &parent)] {
            script.push(format!("sif <{held}> {field} {value}"));
        }
        need!(image.debugfs(&script));
        need!(image.repair("-fy"));
        assert_eq!(image.volume().inode(held).unwrap().0.mtime.seconds, i64::from(file.0));
        image.before = image.tree();
        assert_eq!(image.before["/a/file-1"].xattrs.len(), 1);
        let references = image.volume().find_references(2 * PER_GROUP).unwrap();
        let places = references.of(held);
        assert!(matches!(places, [place] if place.is_shared() == (size == "128")), "{places:?}");
        image.shrink();
        assert_ne!(first_value(&mut image.volume()).1, held);
    }
}

/// A group whose table was never written gets inodes last, and what its blocks held is gone.
#[test]
fn tables_that_were_not_initialised_take_inodes() {
    let args = ["-t", "ext4", "-E", "lazy_itable_init=1"];
    let image = need!(Image::make_with(&args, 10, &["symlink one target"]));
    need!(image.debugfs(&[
        "set_bg 1 flags 3".into(),
        format!("set_bg 1 itable_unused {PER_GROUP}"),
        "set_bg 1 checksum calc".into(),
    ]));
    spoil_table(&image.volume(), 1);
    e2fs::assert_clean(&image.path());
    image.move_inodes(2 * PER_GROUP);
    let volume = image.volume();
    assert_eq!(volume.descs[0].free_inodes, 0, "groups with inodes in use come first");
    let used = PER_GROUP - volume.descs[1].free_inodes;
    assert_eq!(volume.descs[1].itable_unused, PER_GROUP - used);
    check_zeroes(&volume, 1, used);
    drop(volume);
    // The rest of a block that has inodes may hold anything, too.
    image.move_up(&[11]);
    spoil_table(&image.volume(), 7);
    image.move_up(&[12]);
    check_zeroes(&image.volume(), 7, 2);
}

/// Writes bytes into the part of a group's table that was never used.
fn spoil_table(volume: &Volume, group: u32) {
    let geo = &volume.geo;
    let desc = &volume.descs[to_usize(group)];
    let size = u64::from(geo.inode_size);
    let used = u64::from(desc.inodes_touched(geo)) * size;
    let garbage = vec![0xff; usize::try_from(u64::from(PER_GROUP) * size - used).unwrap()];
    let at = desc.inode_table.0 << geo.block_bits;
    volume.device.write_at(at + used, &garbage).unwrap();
}

/// Checks that no bytes follow the `used` inodes of a group in the last one's block.
fn check_zeroes(volume: &Volume, group: u32, used: u32) {
    let (block, at) = volume.inode_place(InodeNo(group * PER_GROUP + used)).unwrap();
    let end = at + usize::from(volume.geo.inode_size);
    let bytes = volume.block(block).unwrap();
    assert!(bytes[at..end].iter().any(|byte| *byte != 0));
    assert!(end < bytes.len() && bytes[end..].iter().all(|byte| *byte == 0), "block {block}");
}

/// Each commit leaves a sound volume, also where the free numbers run out.
#[test]
fn too_few_numbers_leave_a_sound_volume() {
    let image = need!(Image::make(&["-t", "ext4"], 100));
    let mut volume = image.volume();
    volume.room = 40;
    let before = volume.inodes_to_move(PER_GROUP).unwrap();
    assert!(before.0 > before.1, "{before:?}");
    let mut each = |done, _| {
        if done % 4 == 0 {
            e2fs::assert_clean(&image.path());
        }
    };
    let result = volume.move_inodes(PER_GROUP, &mut each);
    assert!(matches!(result, Err(Error::NoInodes)), "{result:?}");
    drop(volume);
    e2fs::assert_clean(&image.path());
    assert_eq!(image.tree(), image.before);
    // What came after the last commit is not there.
    let after = image.volume().inodes_to_move(PER_GROUP).unwrap();
    assert!(after.0 < before.0 && after.0 > before.0 - before.1, "{after:?} of {before:?}");
}

#[test]
fn stable_numbers_are_kept() {
    let image = need!(Image::make(&["-t", "ext4", "-O", "stable_inodes"], 10));
    let mut volume = image.volume();
    let result = volume.inodes_to_move(2 * PER_GROUP);
    assert!(matches!(result, Err(Error::Unsupported(_))), "{result:?}");
    let result = volume.move_inodes(2 * PER_GROUP, &mut |_, _| ());
    assert!(matches!(result, Err(Error::Unsupported(_))), "{result:?}");
    assert_eq!(volume.inodes_to_move(7 * PER_GROUP).unwrap().0, 0);
}
