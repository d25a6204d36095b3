//! The operations, and the kind of commit that makes each durable at the next fsync.

use super::common::VolumeFs;
use nextent::inodes::{Access, FallocateMode, InodeNo, Inodes, SetAttr, SetTime, Wait};
use nextent::{Cred, DiskTime, FileType};
use nextent_testkit::{PosixFs, RenameFlags, XattrFlags};
use std::cell::Cell;

use Durable::{ByFastCommit, ByFullCommit};

/// The commit that makes the operation durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// The records have it: extents and the inode's bytes.
    ByFastCommit,
    /// The records cannot have it.
    ByFullCommit,
}

/// A test of one operation.
pub(crate) struct OperationCase {
    pub(crate) name: &'static str,
    /// Makes the state before the operation, which is then made durable.
    pub(crate) prepare: fn(&TestVolume<'_>),
    pub(crate) run: fn(&TestVolume<'_>),
    /// The file to sync afterwards; empty for the open file.
    pub(crate) sync: &'static str,
    pub(crate) durable: Durable,
}

/// The volume and the file that an operation holds open.
pub(crate) struct TestVolume<'v> {
    pub(crate) volume: &'v Inodes,
    pub(crate) fs: VolumeFs<'v>,
    /// The open file.
    pub(crate) held: Cell<Option<InodeNo>>,
}

const IN_INODE: &str = "user.in";
const IN_BLOCK: &str = "user.out";
const ACL: &str = "system.posix_acl_access";

impl<'v> TestVolume<'v> {
    pub(crate) fn new(volume: &'v Inodes) -> Self {
        Self { volume, fs: VolumeFs(volume), held: Cell::new(None) }
    }

    /// Makes files with data, and with an attribute if inodes have space for it. `/a` also has an
    /// attribute in a block.
    pub(crate) fn prepare(&self) {
        let fs = &self.fs;
        fs.mkdir("/d", 0o755).unwrap();
        for name in ["/f", "/e", "/d/g", "/a"] {
            fs.create(name, 0o644).unwrap();
            fs.write(name, 0, &[1; 12_288]).unwrap();
            if self.volume.geometry().inode_size > 128 || name == "/a" {
                fs.set_xattr(name, IN_INODE, b"in", XattrFlags::Any).unwrap();
            }
        }
        fs.set_xattr("/a", IN_BLOCK, &[1; 600], XattrFlags::Any).unwrap();
    }

    pub(crate) fn ino(&self, path: &str) -> InodeNo {
        self.volume.resolve(&Cred::root(), path.as_bytes(), false).unwrap().ino
    }

    pub(crate) fn size(&self, path: &str) -> u64 {
        self.volume.resolve(&Cred::root(), path.as_bytes(), false).unwrap().size
    }

    pub(crate) fn is_file(&self, path: &str) -> bool {
        let found = self.volume.resolve(&Cred::root(), path.as_bytes(), false);
        found.is_ok_and(|attr| attr.kind == FileType::Regular)
    }

    pub(crate) fn set(&self, path: &str, set: SetAttr) {
        self.volume.setattr(&Cred::root(), self.ino(path), &set).unwrap();
    }

    fn hold(&self, ino: InodeNo) {
        self.volume.open_file(&Cred::root(), ino, Access::READ).unwrap();
        self.held.set(Some(ino));
    }

    pub(crate) fn close_held(&self) {
        if let Some(ino) = self.held.take() {
            self.volume.release(ino).unwrap();
        }
    }

    /// Writes whole sectors directly.
    fn direct(&self, path: &str, offset: u64, len: usize) {
        let ino = self.ino(path);
        let data = vec![9; len];
        let done = self.volume.write_direct(&Cred::root(), ino, offset, &data, Wait::Allowed);
        assert_eq!(done.unwrap(), len);
    }
}

fn nothing(_: &TestVolume<'_>) {}

/// An access list that gives `perm` to a user.
fn acl(perm: u16) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    let users = (1000..1060).map(|id| (2, perm, id));
    let owner = [(1, 6, u32::MAX)];
    let others = [(4, 4, u32::MAX), (16, 7, u32::MAX), (32, 4, u32::MAX)];
    for (tag, perm, id) in owner.into_iter().chain(users).chain(others) {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(perm));
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn with_acl(test: &TestVolume<'_>) {
    test.fs.set_xattr("/e", ACL, &acl(4), XattrFlags::Any).unwrap();
}

/// Replaces the blocks of `/e` by unwritten ones.
fn unwritten(test: &TestVolume<'_>) {
    test.fs.unlink("/e").unwrap();
    test.fs.create("/e", 0o644).unwrap();
    test.fs.allocate("/e", 0, 16_384, false).unwrap();
}

macro_rules! cases {
    ($($name:literal, $prepare:expr, $run:expr => $sync:literal, $durable:ident;)*) => {
        &[$(OperationCase {
            name: $name, prepare: $prepare, run: $run, sync: $sync, durable: $durable,
        }),*]
    };
}

/// All operations.
pub(crate) const CASES: &[OperationCase] = cases! {
    // Growth and overwrites: the records have all extents, the size and the times.
    "append", nothing, |w| w.fs.write("/f", w.size("/f"), &[2; 5000]).unwrap()
        => "/f", ByFastCommit;
    "write beyond a hole", nothing, |w| w.fs.write("/f", 200_000, &[2; 5000]).unwrap()
        => "/f", ByFastCommit;
    "direct append", nothing, |w| w.direct("/f", w.size("/f"), 8192) => "/f", ByFastCommit;
    "direct write into a hole", |w| w.fs.truncate("/e", 65_536).unwrap(),
        |w| w.direct("/e", 32_768, 4096) => "/e", ByFastCommit;
    "completed direct writes", unwritten, |w| {
        (0..4).for_each(|n| w.direct("/e", n * 4096, 4096));
    } => "/e", ByFastCommit;
    "longer", nothing, |w| w.fs.truncate("/f", 100_000).unwrap() => "/f", ByFastCommit;
    "times", nothing, |w| w.fs.utimes("/f", (1_000_000_000, 5)).unwrap() => "/f", ByFastCommit;
    "all times", nothing, |w| {
        let time = |seconds| DiskTime::new(seconds, 77);
        w.set("/f", SetAttr {
            atime: Some(SetTime::At(time(1_100_000_000))),
            ctime: Some(time(1_200_000_000)),
            crtime: Some(time(900_000_000)),
            ..SetAttr::default()
        });
    } => "/f", ByFastCommit;
    "read time", nothing, |w| w.volume.touch_atime(w.ino("/f")).unwrap() => "/f", ByFastCommit;

    // A file with an attribute block: e2fsck does not count that block when it replays.
    "append to a file with attributes", nothing,
        |w| w.fs.write("/a", w.size("/a"), &[2; 5000]).unwrap() => "/a", ByFullCommit;

    // Unwritten extents and more than four extents: records cannot have them.
    "some completed direct writes", unwritten, |w| w.direct("/e", 4096, 4096)
        => "/e", ByFullCommit;
    "allocate", nothing, |w| w.fs.allocate("/f", w.size("/f"), 30_000, false).unwrap()
        => "/f", ByFullCommit;
    "allocate past the end", nothing, |w| w.fs.allocate("/f", 100_000, 30_000, true).unwrap()
        => "/f", ByFullCommit;
    "zero", nothing, |w| w.fs.zero("/f", 4096, 4096, true).unwrap() => "/f", ByFullCommit;
    "many extents", nothing, |w| {
        (10..20).for_each(|n| w.fs.write("/f", n * 20_000, &[n as u8; 4096]).unwrap());
    } => "/f", ByFullCommit;

    // Removed or moved blocks: records only add extents.
    "shorter", nothing, |w| w.fs.truncate("/f", 4096).unwrap() => "/f", ByFullCommit;
    "empty", nothing, |w| w.fs.truncate("/f", 0).unwrap() => "/f", ByFullCommit;
    "shorter, then longer", nothing, |w| {
        w.fs.truncate("/f", 4096).unwrap();
        w.fs.truncate("/f", 12_288).unwrap();
    } => "/f", ByFullCommit;
    "shorter, then written again", nothing, |w| {
        w.fs.truncate("/f", 4096).unwrap();
        w.fs.write("/f", 4096, &[3; 8192]).unwrap();
    } => "/f", ByFullCommit;
    "punch", nothing, |w| w.fs.punch("/f", 4096, 4096).unwrap() => "/f", ByFullCommit;
    "punch, then write", nothing, |w| {
        w.fs.punch("/f", 4096, 4096).unwrap();
        w.fs.write("/f", 4096, &[3; 4096]).unwrap();
    } => "/f", ByFullCommit;
    "zero, then write", nothing, |w| {
        w.fs.zero("/f", 4096, 4096, true).unwrap();
        w.fs.write("/f", 4096, &[3; 4096]).unwrap();
    } => "/f", ByFastCommit;
    "collapse", nothing, |w| w.fs.collapse("/f", 4096, 4096).unwrap() => "/f", ByFullCommit;
    "insert", nothing, |w| w.fs.insert("/f", 4096, 4096).unwrap() => "/f", ByFullCommit;
    "collapse, then insert", nothing, |w| {
        w.fs.collapse("/f", 4096, 4096).unwrap();
        w.fs.insert("/f", 4096, 4096).unwrap();
    } => "/f", ByFullCommit;

    // The first large file sets a feature in the superblock, which no record has.
    "the first large file", nothing, |w| w.fs.truncate("/f", 3 << 30).unwrap()
        => "/f", ByFullCommit;

    // Fields that require a full commit.
    "mode", nothing, |w| w.fs.chmod("/f", 0o600).unwrap() => "/f", ByFullCommit;
    "mode and back", nothing, |w| {
        w.fs.chmod("/f", 0o600).unwrap();
        w.fs.chmod("/f", 0o644).unwrap();
    } => "/f", ByFullCommit;
    "owner", nothing, |w| w.fs.chown("/f", 5, 6).unwrap() => "/f", ByFullCommit;
    "flags", nothing, |w| {
        let flags = w.volume.getattr(w.ino("/f")).unwrap().flags | 0x80;
        w.set("/f", SetAttr { flags: Some(flags), ..SetAttr::default() });
    } => "/f", ByFullCommit;
    "a write that clears set-id bits", |w| w.fs.chmod("/f", 0o6777).unwrap(), |w| {
        let user = Cred::user(1000, 1000, Vec::new(), 0);
        w.volume.write(&user, w.ino("/f"), 0, &[4; 100]).unwrap();
    } => "/f", ByFullCommit;

    // Attributes: the inode's bytes have none of those in a block.
    "attribute in the inode", nothing, |w| {
        w.fs.set_xattr("/a", IN_INODE, b"IN", XattrFlags::Replace).unwrap();
    } => "/a", ByFullCommit;
    "attribute in the block", nothing, |w| {
        w.fs.set_xattr("/a", IN_BLOCK, &[2; 600], XattrFlags::Replace).unwrap();
    } => "/a", ByFullCommit;
    "attribute in the block, and a write", nothing, |w| {
        w.fs.set_xattr("/a", IN_BLOCK, &[2; 600], XattrFlags::Replace).unwrap();
        w.fs.write("/a", w.size("/a"), &[2; 5000]).unwrap();
    } => "/a", ByFullCommit;
    "attribute in the block, and back", nothing, |w| {
        w.fs.set_xattr("/a", IN_BLOCK, &[2; 600], XattrFlags::Replace).unwrap();
        w.fs.set_xattr("/a", IN_BLOCK, &[1; 600], XattrFlags::Replace).unwrap();
    } => "/a", ByFullCommit;
    "another attribute in the block", nothing, |w| {
        w.fs.set_xattr("/a", "user.more", &[2; 200], XattrFlags::Create).unwrap();
    } => "/a", ByFullCommit;
    "attribute removed from the block", |w| {
        w.fs.set_xattr("/a", "user.more", &[2; 200], XattrFlags::Create).unwrap();
    }, |w| w.fs.remove_xattr("/a", "user.more").unwrap() => "/a", ByFullCommit;
    "the only attribute in the block removed", nothing, |w| {
        w.fs.remove_xattr("/a", IN_BLOCK).unwrap();
    } => "/a", ByFullCommit;
    "attribute removed from the inode", nothing, |w| {
        w.fs.remove_xattr("/a", IN_INODE).unwrap();
    } => "/a", ByFullCommit;
    "a block shared", nothing, |w| {
        w.fs.set_xattr("/e", IN_BLOCK, &[1; 600], XattrFlags::Create).unwrap();
    } => "/e", ByFullCommit;
    "a shared block left", |w| {
        w.fs.set_xattr("/e", IN_BLOCK, &[1; 600], XattrFlags::Create).unwrap();
    }, |w| w.fs.set_xattr("/a", IN_BLOCK, &[2; 600], XattrFlags::Any).unwrap()
        => "/a", ByFullCommit;
    "access list", nothing, with_acl => "/e", ByFullCommit;
    "access list in the block", with_acl, |w| {
        w.fs.set_xattr("/e", ACL, &acl(6), XattrFlags::Any).unwrap();
    } => "/e", ByFullCommit;
    "access list by chmod", with_acl, |w| w.fs.chmod("/e", 0o604).unwrap() => "/e", ByFullCommit;
    "access list removed", with_acl, |w| w.fs.remove_xattr("/e", ACL).unwrap()
        => "/e", ByFullCommit;
    "default list of a directory", nothing, |w| {
        w.fs.set_xattr("/d", "system.posix_acl_default", &acl(6), XattrFlags::Any).unwrap();
    } => "/d", ByFullCommit;
    "a write that removes a capability", |w| {
        let mut value = 0x0200_0001u32.to_le_bytes().to_vec();
        value.extend([0; 16]);
        w.fs.set_xattr("/e", "security.capability", &value, XattrFlags::Any).unwrap();
    }, |w| w.fs.write("/e", 0, &[4; 100]).unwrap() => "/e", ByFullCommit;

    // Names and the link count.
    "link", nothing, |w| w.fs.link("/f", "/final").unwrap() => "/final", ByFullCommit;
    "link, then unlink the old name", nothing, |w| {
        w.fs.link("/f", "/final").unwrap();
        w.fs.unlink("/f").unwrap();
    } => "/final", ByFullCommit;
    "link, unlink, and a write", nothing, |w| {
        w.fs.link("/f", "/d/final").unwrap();
        w.fs.unlink("/f").unwrap();
        w.fs.write("/d/final", 0, &[5; 5000]).unwrap();
    } => "/d/final", ByFullCommit;
    "link, then unlink that", nothing, |w| {
        w.fs.link("/f", "/final").unwrap();
        w.fs.unlink("/final").unwrap();
    } => "/f", ByFullCommit;
    "one name of two removed", |w| w.fs.link("/f", "/other").unwrap(),
        |w| w.fs.unlink("/other").unwrap() => "/f", ByFullCommit;
    "rename", nothing, |w| w.fs.rename("/f", "/x", RenameFlags::Replace).unwrap()
        => "/x", ByFullCommit;
    "rename into a directory", nothing, |w| {
        w.fs.rename("/f", "/d/x", RenameFlags::NoReplace).unwrap();
    } => "/d/x", ByFullCommit;
    "rename and back", nothing, |w| {
        w.fs.rename("/f", "/x", RenameFlags::Replace).unwrap();
        w.fs.rename("/x", "/f", RenameFlags::Replace).unwrap();
    } => "/f", ByFullCommit;
    "rename over a file", nothing, |w| w.fs.rename("/f", "/e", RenameFlags::Replace).unwrap()
        => "/e", ByFullCommit;
    "one name of two replaced", |w| w.fs.link("/f", "/other").unwrap(),
        |w| w.fs.rename("/e", "/other", RenameFlags::Replace).unwrap() => "/f", ByFullCommit;
    "exchange", nothing, |w| w.fs.rename("/f", "/e", RenameFlags::Exchange).unwrap()
        => "/e", ByFullCommit;
    "the other file of an exchange", nothing, |w| {
        w.fs.rename("/f", "/d/g", RenameFlags::Exchange).unwrap();
    } => "/f", ByFullCommit;
    "the file's directory renamed", nothing, |w| {
        w.fs.rename("/d", "/dir", RenameFlags::Replace).unwrap();
        w.fs.write("/dir/g", 0, &[5; 20_000]).unwrap();
    } => "/dir/g", ByFullCommit;
    "the file's directory exchanged", |w| w.fs.mkdir("/k", 0o700).unwrap(), |w| {
        w.fs.rename("/d", "/k", RenameFlags::Exchange).unwrap();
        w.fs.write("/k/g", 0, &[5; 20_000]).unwrap();
    } => "/k/g", ByFullCommit;
    "the last name removed", nothing, |w| {
        w.hold(w.ino("/e"));
        w.fs.unlink("/e").unwrap();
        w.volume.write(&Cred::root(), w.held.get().unwrap(), 0, &[5; 20_000]).unwrap();
    } => "", ByFullCommit;

    // New files, also with the number of a freed inode.
    "create", nothing, |w| w.fs.create("/new", 0o640).unwrap() => "/new", ByFullCommit;
    "create and write", nothing, |w| {
        w.fs.create("/new", 0o640).unwrap();
        w.fs.write("/new", 0, &[6; 9000]).unwrap();
    } => "/new", ByFullCommit;
    "the same name and number reused", nothing, |w| {
        let number = w.ino("/e");
        w.fs.unlink("/e").unwrap();
        w.fs.create("/e", 0o644).unwrap();
        w.fs.write("/e", 0, &[6; 9000]).unwrap();
        assert_eq!(w.ino("/e"), number);
    } => "/e", ByFullCommit;
    "a file replaced by a new one", nothing, |w| {
        w.fs.unlink("/f").unwrap();
        w.fs.create("/f", 0o644).unwrap();
        w.fs.write("/f", 0, &[6; 9000]).unwrap();
    } => "/f", ByFullCommit;
    "a new file inherits a list", |w| {
        w.fs.set_xattr("/d", "system.posix_acl_default", &acl(6), XattrFlags::Any).unwrap();
    }, |w| w.fs.create("/d/new", 0o640).unwrap() => "/d/new", ByFullCommit;
    "a file without a name gets one", nothing, |w| {
        let dir = w.ino("/d");
        let made = w.volume.tmpfile(&Cred::root(), dir, 0o600).unwrap();
        w.held.set(Some(made.ino));
        w.volume.append(&Cred::root(), made.ino, &[8; 9000]).unwrap();
        w.volume.link(&Cred::root(), made.ino, dir, b"tmp").unwrap();
    } => "/d/tmp", ByFullCommit;
    "a durable file without a name gets one", |w| {
        let made = w.volume.tmpfile(&Cred::root(), w.ino("/d"), 0o600).unwrap();
        w.held.set(Some(made.ino));
        w.volume.append(&Cred::root(), made.ino, &[8; 9000]).unwrap();
    }, |w| {
        let ino = w.held.get().unwrap();
        w.volume.link(&Cred::root(), ino, w.ino("/d"), b"tmp").unwrap();
        w.volume.append(&Cred::root(), ino, &[8; 9000]).unwrap();
    } => "/d/tmp", ByFullCommit;

    // Directories and special files: always a full commit.
    "directory of a new file", nothing, |w| w.fs.create("/d/new", 0o640).unwrap()
        => "/d", ByFullCommit;
    "directory of a removed file", nothing, |w| w.fs.unlink("/d/g").unwrap() => "/d", ByFullCommit;
    "mkdir", nothing, |w| w.fs.mkdir("/d/dir", 0o750).unwrap() => "/d/dir", ByFullCommit;
    "rmdir", |w| w.fs.mkdir("/d/dir", 0o750).unwrap(), |w| w.fs.rmdir("/d/dir").unwrap()
        => "/d", ByFullCommit;
    "short symlink", nothing, |w| w.fs.symlink("g", "/d/s").unwrap() => "/d", ByFullCommit;
    "long symlink", nothing, |w| w.fs.symlink(&"g".repeat(300), "/d/s").unwrap()
        => "/d", ByFullCommit;
    "device node", nothing, |w| w.fs.mknod("/d/null", libc::S_IFCHR | 0o666, (1, 3)).unwrap()
        => "/d", ByFullCommit;
    "fifo", nothing, |w| w.fs.mknod("/d/fifo", libc::S_IFIFO | 0o666, (0, 0)).unwrap()
        => "/d", ByFullCommit;

    // The records have the changes of all calls to the synced file.
    "an allocation by another call", nothing, |w| {
        let mode = FallocateMode::Allocate;
        w.volume.fallocate(&Cred::root(), w.ino("/f"), mode, w.size("/f"), 8192).unwrap();
        w.fs.write("/f", w.size("/f") - 8192, &[2; 8192]).unwrap();
    } => "/f", ByFastCommit;
};
