//! Encrypted directories and files without the key: what they show and refuse, as Linux does.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{Image, VolumeFs, VolumeTree, close, errno};
use nextent::inodes::{Access as Want, InodeNo, Inodes, ROOT_INO};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::Tid;
use nextent_ondisk::fast_commit::FastCommit;
use nextent_sync::{Arc, Duration};
use nextent_testkit::tree::{Compare, HostDir, Kind, Stat, Tree, TreeSource, assert_same, walk};
use nextent_testkit::{
    Access, HostFs, KernelMount, PosixFs, RenameFlags, Skip, XattrFlags, e2fs, need,
};

/// Feature sets of the images.
const KINDS: [&[&str]; 3] = [
    &["-t", "ext4", "-O", "encrypt"],
    &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "encrypt,^metadata_csum"],
    &["-t", "ext4", "-O", "encrypt,^dir_index,^extent,^64bit"],
];

/// `FS_IOC_ADD_ENCRYPTION_KEY`.
const ADD_KEY: libc::c_ulong = 0xc050_6617;
/// `FS_IOC_SET_ENCRYPTION_POLICY`.
const SET_POLICY: libc::c_ulong = 0x800c_6613;
/// Bytes of `fscrypt_add_key_arg` before the key, and where the key's identifier lies in it.
const KEY_AT: usize = 80;
const IDENTIFIER: std::ops::Range<usize> = 8..24;

fn ioctl(dir: &Path, number: libc::c_ulong, argument: &mut [u8]) -> io::Result<()> {
    let file = fs::File::open(dir)?;
    // SAFETY: both calls read and write within the argument, which is as long as they need: its
    // length is in it (ADD_KEY), or fixed by the version of the policy (SET_POLICY).
    let done = unsafe { libc::ioctl(file.as_raw_fd(), number as _, argument.as_mut_ptr()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes `dir`, an empty directory of the mount, encrypted.
fn encrypt(mount: &Path, dir: &Path) {
    let mut key = vec![0; KEY_AT];
    key[0] = 2; // named by an identifier that the kernel computes
    key[40] = 64; // bytes of the key
    key.extend((0..64).map(|n| n as u8));
    ioctl(mount, ADD_KEY, &mut key).expect("the kernel takes a key");
    // Version 2, AES-256-XTS for contents, AES-256-CTS for names, names padded to 4 bytes.
    let mut policy = vec![2, 1, 4, 0, 0, 0, 0, 0];
    policy.extend_from_slice(&key[IDENTIFIER]);
    ioctl(dir, SET_POLICY, &mut policy).expect("the kernel encrypts a directory");
}

/// An image with encrypted directories, that the kernel made.
fn image(args: &[&str]) -> Result<Image, Skip> {
    if !Path::new("/sys/fs/ext4/features/encryption").exists() {
        return Err(Skip::missing("encryption in the kernel"));
    }
    let image = Image::make(64 << 20, args)?;
    let mount = KernelMount::new(&image.path(), Access::ReadWrite)?;
    let at = |path: &str| mount.join(path);
    for dir in ["enc", "plain"] {
        fs::create_dir(at(dir)).unwrap();
    }
    fs::write(at("plain/file"), "plain").unwrap();
    encrypt(mount.path(), &at("enc"));
    for len in [1, 5, 16, 17, 100, 147, 148, 149, 150, 160, 161, 176, 177, 189, 254, 255] {
        fs::write(at("enc").join("n".repeat(len)), vec![7; len * 100]).unwrap();
        let end = "e".repeat(len - 1) + "x";
        fs::write(at("enc").join(&end), "").unwrap();
    }
    for dir in ["enc/sub", "enc/sub/deep", "enc/large", "enc/empty"] {
        fs::create_dir(at(dir)).unwrap();
    }
    for n in 0..600 {
        let long = if n % 3 == 0 { "l".repeat(200) } else { String::new() };
        fs::write(at(&format!("enc/large/{long}{n}")), "").unwrap();
    }
    for (n, len) in [1, 30, 40, 41, 60, 147, 148, 149, 300, 900].into_iter().enumerate() {
        symlink("t".repeat(len), at(&format!("enc/sub/link{n}"))).unwrap();
    }
    fs::hard_link(at("enc").join("n"), at("enc/sub/deep/hard")).unwrap();
    HostFs::new(mount.path()).mknod("/enc/fifo", libc::S_IFIFO | 0o600, (0, 0)).unwrap();
    mount.unmount();
    e2fs::assert_clean(&image.path());
    Ok(image)
}

/// A tree whose encrypted files have question marks as contents.
struct NoKey<S>(S);

fn lacks_key(error: &io::Error) -> bool {
    let ours = error.get_ref().and_then(|inner| inner.downcast_ref());
    error.raw_os_error() == Some(libc::ENOKEY) || matches!(ours, Some(Error::NoKey))
}

impl<S: TreeSource> TreeSource for NoKey<S> {
    type Node = S::Node;

    fn root(&self) -> io::Result<S::Node> {
        self.0.root()
    }

    fn children(&self, dir: &S::Node) -> io::Result<Vec<(Vec<u8>, S::Node)>> {
        self.0.children(dir)
    }

    fn stat(&self, node: &S::Node) -> io::Result<Stat> {
        self.0.stat(node)
    }

    fn read(&self, node: &S::Node, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match self.0.read(node, offset, buf) {
            Err(error) if lacks_key(&error) => {
                let left = self.0.stat(node)?.size.saturating_sub(offset) as usize;
                let len = left.min(buf.len());
                buf[..len].fill(b'?');
                Ok(len)
            }
            read => read,
        }
    }

    fn target(&self, node: &S::Node) -> io::Result<Vec<u8>> {
        self.0.target(node)
    }

    fn xattrs(&self, node: &S::Node) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        self.0.xattrs(node)
    }
}

/// What the kernel shows without the key.
fn shown_by_linux(image: &Image) -> Result<Tree, Skip> {
    let mount = KernelMount::new(&image.path(), Access::ReadOnly)?;
    let tree = walk(&NoKey(HostDir::new(mount.path()))).unwrap();
    mount.unmount();
    Ok(tree)
}

#[test]
fn names_and_targets_are_those_of_linux() {
    for args in KINDS {
        let image = need!(image(args));
        let theirs = need!(shown_by_linux(&image));
        let volume = common::open(&image.path(), &OpenOptions::new().read_only(true)).unwrap();
        let ours = walk(&NoKey(VolumeTree(&volume))).unwrap();
        assert_same(&theirs, &ours, &Compare::default());
        assert!(ours.entries.len() > 640, "{}", ours.entries.len());
        for entry in &ours.entries {
            let found = volume.resolve(&Cred::root(), &entry.path, false).unwrap();
            assert_eq!(u64::from(found.ino.0), entry.stat.ino, "{}", entry.path.escape_ascii());
            let mut other = entry.path.clone();
            *other.last_mut().unwrap() = b'/'; // a name that ends before its last character
            if entry.path.starts_with(b"/enc/") {
                let missing = volume.resolve(&Cred::root(), &other, false).unwrap_err();
                assert!(matches!(missing, Error::NotFound), "{missing}");
            }
        }
        close(&volume);
    }
}

/// The first path of `kind` in `/enc`, longest names first if `long`.
fn path_of(tree: &Tree, kind: Kind, long: bool) -> String {
    let mut paths: Vec<&[u8]> = tree
        .entries
        .iter()
        .filter(|entry| entry.stat.kind == kind && entry.path.starts_with(b"/enc/"))
        .map(|entry| &entry.path[..])
        .filter(|path| path.iter().filter(|byte| **byte == b'/').count() == 2)
        .collect();
    paths.sort_by_key(|path| (path.len(), *path));
    let path = if long { paths.last() } else { paths.first() };
    String::from_utf8(path.expect("there is one").to_vec()).unwrap()
}

/// Results of operations on encrypted files, and in encrypted directories.
fn operate(fs: &dyn PosixFs, tree: &Tree) -> Vec<(&'static str, Result<(), i32>)> {
    let (file, long) = (path_of(tree, Kind::File, false), path_of(tree, Kind::File, true));
    let dir = path_of(tree, Kind::Dir, false);
    let (file, long, dir) = (file.as_str(), long.as_str(), dir.as_str());
    let plain = "/plain/file";
    let rename = |from, to, flags| fs.rename(from, to, flags);
    let replace = RenameFlags::Replace;
    vec![
        ("read", fs.read(file, 0, 10).map(drop)),
        ("write", fs.write(file, 0, b"bytes")),
        ("truncate", fs.truncate(file, 0)),
        ("grow", fs.truncate(long, 1 << 20)),
        ("allocate", fs.allocate(file, 0, 4096, false)),
        ("punch", fs.punch(file, 0, 4096)),
        ("create", fs.create("/enc/new", 0o644)),
        ("create existing", fs.create(file, 0o644)),
        ("mkdir", fs.mkdir("/enc/new", 0o755)),
        ("mkdir existing", fs.mkdir(dir, 0o755)),
        ("mknod", fs.mknod("/enc/new", libc::S_IFIFO | 0o600, (0, 0))),
        ("symlink", fs.symlink("target", "/enc/new")),
        ("link in", fs.link(plain, "/enc/new")),
        ("link within", fs.link(file, "/enc/new")),
        ("rename out", rename(file, "/plain/moved", replace)),
        ("rename in", rename(plain, "/enc/new", replace)),
        ("rename over", rename(plain, file, replace)),
        ("rename within", rename(file, "/enc/new", replace)),
        ("rename within over", rename(file, long, replace)),
        ("rename missing", rename("/enc/missing", "/plain/moved", replace)),
        ("rename to itself", rename(file, file, replace)),
        ("link out", fs.link(file, "/plain/linked")),
        ("rename to a link of it", rename(file, "/plain/linked", replace)),
        ("chmod", fs.chmod(file, 0o600)),
        ("chown", fs.chown(long, 7, 8)),
        ("set an attribute", fs.set_xattr(file, "user.key", b"value", XattrFlags::Any)),
        ("unlink", fs.unlink(file)),
        ("unlink a long name", fs.unlink(long)),
        ("unlink again", fs.unlink(long)),
        ("unlink a directory", fs.unlink(dir)),
        ("unlink a linked file", fs.unlink("/plain/linked")),
    ]
}

/// Removes every entry below `/enc` that can be removed, in the order of `tree`, deepest first.
fn empty(fs: &dyn PosixFs, tree: &Tree) -> Vec<Result<(), i32>> {
    let inside = tree.entries.iter().rev().filter(|entry| entry.path.starts_with(b"/enc/"));
    inside
        .map(|entry| {
            let path = std::str::from_utf8(&entry.path).unwrap();
            if entry.stat.kind == Kind::Dir { fs.rmdir(path) } else { fs.unlink(path) }
        })
        .collect()
}

#[test]
fn operations_end_as_those_of_linux() {
    for args in KINDS {
        let image = need!(image(args));
        let tree = need!(shown_by_linux(&image));
        let copy = need!(Image::make(0x40_0000, &["-t", "ext4"]));
        fs::copy(image.path(), copy.path()).unwrap();

        let mount = need!(KernelMount::new(&copy.path(), Access::ReadWrite));
        let theirs = operate(&HostFs::new(mount.path()), &tree);
        let their_tree = walk(&NoKey(HostDir::new(mount.path()))).unwrap();
        let removed_there = empty(&HostFs::new(mount.path()), &their_tree);
        mount.unmount();

        let volume = image.open();
        assert_eq!(operate(&VolumeFs(&volume), &tree), theirs, "{args:?}");
        let our_tree = walk(&NoKey(VolumeTree(&volume))).unwrap();
        let how = Compare { times: false, ..Compare::default() };
        assert_same(&their_tree, &our_tree, &how);
        check_calls_by_number(&volume, &our_tree);
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());

        let volume = image.open();
        assert_eq!(empty(&VolumeFs(&volume), &our_tree), removed_there);
        VolumeFs(&volume).rmdir("/enc").unwrap();
        close(&volume);
        e2fs::assert_clean(&image.path());
    }
}

/// Calls that have no path.
fn check_calls_by_number(volume: &Inodes, tree: &Tree) {
    let root = Cred::root();
    let number = |path: &str| InodeNo(u32::try_from(tree.get(path).unwrap().stat.ino).unwrap());
    let (enc, file) = (number("/enc"), number(&path_of(tree, Kind::File, true)));
    let key = |error: Error| assert!(matches!(error, Error::NoKey), "{error}");
    key(volume.open_file(&root, file, Want::READ).unwrap_err());
    key(volume.read(file, 0, &mut [0; 8]).unwrap_err());
    key(volume.append(&root, file, b"more").unwrap_err());
    key(volume.tmpfile(&root, enc, 0o600).unwrap_err());
    key(volume.file(&root, file, Want::READ).map(drop).unwrap_err());
    volume.open_file(&root, enc, Want::READ).unwrap();
    volume.release(enc).unwrap();
}

/// Does not need the kernel: the names are plain text that only the flag says is encrypted.
#[test]
fn a_directory_that_the_flag_makes_encrypted() {
    let image = need!(Image::make(16 << 20, &["-t", "ext4", "-O", "encrypt"]));
    let volume = image.open();
    let (long, name) = ("l".repeat(200), "sixteen or more bytes");
    let fs = VolumeFs(&volume);
    fs.mkdir("/dir", 0o755).unwrap();
    for name in [name, &long] {
        fs.create(&format!("/dir/{name}"), 0o644).unwrap();
    }
    close(&volume);
    drop(volume);
    need!(e2fs::debugfs(&image.path(), true, &["sif /dir flags 0x80800"]));

    let volume = image.open();
    let tree = walk(&NoKey(VolumeTree(&volume))).unwrap();
    assert_eq!(tree.entries.len(), 4);
    let fs = VolumeFs(&volume);
    for plain in [name, &long] {
        assert_eq!(fs.unlink(&format!("/dir/{plain}")), Err(libc::ENOENT));
    }
    assert_eq!(fs.create("/dir/new", 0o644), Err(libc::ENOKEY));
    let dir = volume.lookup(&Cred::root(), ROOT_INO, b"dir").unwrap().ino;
    for entry in tree.entries.iter().filter(|entry| entry.path.starts_with(b"/dir/")) {
        let shown = &entry.path[5..];
        let found = volume.lookup(&Cred::root(), dir, shown).map_err(errno).unwrap();
        assert_eq!(u64::from(found.ino.0), entry.stat.ino);
        volume.unlink(&Cred::root(), dir, shown).unwrap();
    }
    fs.rmdir("/dir").unwrap();
    close(&volume);
    e2fs::assert_clean(&image.path());
}

/// Bytes of a record of the name `name` of `ino`: 3 creates the file, 4 adds, 5 removes the name.
fn name_record(tag: u16, parent: InodeNo, ino: InodeNo, name: &str) -> Vec<u8> {
    let len = u16::try_from(8 + name.len()).unwrap();
    let head = [tag.to_le_bytes(), len.to_le_bytes()].concat();
    let numbers = [parent.0.to_le_bytes(), ino.0.to_le_bytes()].concat();
    [&head[..], &numbers, name.as_bytes()].concat()
}

/// The image after a power cut, with a fast commit of only `record`, in place of the one that `cut`
/// has.
fn with_fast_commit(cut: &MemoryDevice, record: &[u8]) -> Arc<MemoryDevice> {
    let bytes = cut.to_bytes();
    // Begins with a head record: a tag, a length, features, a transaction.
    let is_head = |block: &&[u8]| block.starts_with(&[9, 0, 8, 0, 0, 0, 0, 0]);
    let old = bytes.chunks(4096).find(is_head).expect("a fast commit");
    let tid = Tid(u32::from_le_bytes(old[8..12].try_into().unwrap()));
    let mut commit = FastCommit::new(4096);
    commit.head(tid);
    commit.push(record);
    let at = bytes.chunks(4096).position(|block| is_head(&block)).unwrap() * 4096;
    let made = cut.snapshot();
    made.write_at(at as u64, &commit.finish(tid)).unwrap();
    Arc::new(made)
}

/// Linux before 6.2 wrote names of encrypted directories in plain text. Such records cannot be
/// replayed.
#[test]
fn fast_commits_of_names_in_encrypted_directories_are_refused() {
    let args = ["-t", "ext4", "-b", "4096", "-J", "size=8", "-O", "encrypt,fast_commit"];
    let image = need!(Image::make(64 << 20, &args));
    let volume = image.open();
    let fs = VolumeFs(&volume);
    let old = "sixteen or more bytes";
    for dir in ["/enc", "/plain"] {
        fs.mkdir(dir, 0o755).unwrap();
        fs.create(&format!("{dir}/{old}"), 0o644).unwrap();
    }
    fs.create("/file", 0o644).unwrap();
    close(&volume);
    drop(volume);
    need!(e2fs::debugfs(&image.path(), true, &["sif /enc flags 0x80800"]));

    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let fs = VolumeFs(&volume);
    let number = |path: &str| volume.resolve(&Cred::root(), path.as_bytes(), false).unwrap().ino;
    let (enc, plain, file) = (number("/enc"), number("/plain"), number("/file"));
    // The first fsync asks for fast commits from then on.
    for at in [0, 4096, 8192] {
        common::checkpoint_all(&volume);
        fs.write("/file", at, &[1; 4096]).unwrap();
        fs.fsync("/file").unwrap();
    }
    let cut = device.snapshot();
    close(&volume);

    let inside = number(&format!("/plain/{old}"));
    for (tag, name, ino) in [(3, "new", file), (4, "sixteen or more more", file), (5, old, inside)]
    {
        let device = with_fast_commit(&cut, &name_record(tag, plain, ino, name));
        let volume = Inodes::open(device.clone(), &options).unwrap();
        assert_eq!(volume.recovery().fast_commits, 3, "{tag}");
        let found = volume.lookup(&Cred::root(), plain, name.as_bytes());
        assert_eq!(found.is_ok(), tag != 5, "{tag}");
        drop(volume);

        let device = with_fast_commit(&cut, &name_record(tag, enc, ino, name));
        for read_only in [true, false] {
            let options = options.clone().read_only(read_only);
            let error = Inodes::open(device.clone(), &options).map(drop).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Unsupported(_)), "{tag}: {text}");
            assert!(text.contains("encrypted directory") && text.contains("e2fsck -fy"), "{text}");
        }
        device.save(&image.path()).unwrap();
        need!(e2fs::run("e2fsck", ["-fy", &image.path().to_string_lossy()]));
        e2fs::assert_clean(&image.path());
        close(&image.open());
    }
}
