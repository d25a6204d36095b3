//! Cached lookups: no change leaves a stale name in the cache.

mod common;

use common::{Image, KINDS};
use nextent::inodes::{InodeNo, Inodes, NewNode, ROOT_INO, RenameMode, SetAttr};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::MemoryDevice;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, thread};
use nextent_testkit::{Skip, e2fs, need};

struct Fixture {
    image: Image,
    device: Arc<MemoryDevice>,
    volume: Inodes,
    root: Cred,
}

impl Fixture {
    fn new() -> Result<Self, Skip> {
        let image = Image::make(16 << 20, KINDS[0].1)?;
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
        Ok(Self { image, device, volume, root: Cred::root() })
    }

    fn file(&self, dir: InodeNo, name: &[u8]) -> InodeNo {
        self.volume.mknod(&self.root, dir, name, NewNode::Regular, 0o644).unwrap().ino
    }

    /// Looks up the name twice; the second lookup finds it in the cache.
    fn find(&self, dir: InodeNo, name: &[u8]) -> Result<InodeNo, Error> {
        let first = self.volume.lookup(&self.root, dir, name).map(|attr| attr.ino);
        let second = self.volume.lookup(&self.root, dir, name).map(|attr| attr.ino);
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        second
    }

    fn rename(&self, from: (InodeNo, &[u8]), to: (InodeNo, &[u8]), mode: RenameMode) {
        self.volume.rename(&self.root, from, to, mode).unwrap();
    }

    fn end(self) {
        let Self { image, device, volume, .. } = self;
        volume.close().unwrap();
        drop(volume);
        device.save(&image.path()).unwrap();
        e2fs::assert_clean(&image.path());
    }
}

fn missing(found: Result<InodeNo, Error>) -> bool {
    matches!(found, Err(Error::NotFound))
}

#[test]
fn lookups_follow_every_change_of_a_name() {
    let f = need!(Fixture::new());
    assert!(missing(f.find(ROOT_INO, b"a")));
    let a = f.file(ROOT_INO, b"a");
    assert_eq!(f.find(ROOT_INO, b"a").unwrap(), a);
    let b = f.file(ROOT_INO, b"b");
    assert_eq!(f.find(ROOT_INO, b"b").unwrap(), b);
    f.rename((ROOT_INO, b"a"), (ROOT_INO, b"b"), RenameMode::Exchange);
    assert_eq!(f.find(ROOT_INO, b"a").unwrap(), b);
    assert_eq!(f.find(ROOT_INO, b"b").unwrap(), a);
    f.rename((ROOT_INO, b"a"), (ROOT_INO, b"b"), RenameMode::Replace);
    assert!(missing(f.find(ROOT_INO, b"a")));
    assert_eq!(f.find(ROOT_INO, b"b").unwrap(), b);
    f.volume.link(&f.root, b, ROOT_INO, b"a").unwrap();
    assert_eq!(f.find(ROOT_INO, b"a").unwrap(), b);
    assert_eq!(f.volume.lookup(&f.root, ROOT_INO, b"b").unwrap().links, 2);
    f.volume.unlink(&f.root, ROOT_INO, b"b").unwrap();
    assert!(missing(f.find(ROOT_INO, b"b")));
    assert_eq!(f.volume.lookup(&f.root, ROOT_INO, b"a").unwrap().links, 1);
    f.end();
}

#[test]
fn cached_names_of_a_moved_or_removed_directory_are_valid() {
    let f = need!(Fixture::new());
    let dir = |name: &[u8]| f.volume.mkdir(&f.root, ROOT_INO, name, 0o755).unwrap().ino;
    let (one, two) = (dir(b"one"), dir(b"two"));
    let inner = f.volume.mkdir(&f.root, one, b"inner", 0o755).unwrap().ino;
    assert_eq!(f.find(inner, b"..").unwrap(), one);
    let resolve = |path: &[u8]| f.volume.resolve(&f.root, path, true).map(|attr| attr.ino);
    assert_eq!(resolve(b"/one/inner").unwrap(), inner);
    f.rename((one, b"inner"), (two, b"inner"), RenameMode::Replace);
    assert_eq!(f.find(inner, b"..").unwrap(), two);
    assert!(missing(resolve(b"/one/inner")));
    assert_eq!(resolve(b"/two/inner/../../two/inner/").unwrap(), inner);
    assert!(missing(f.find(inner, b"x")));
    f.volume.rmdir(&f.root, two, b"inner").unwrap();
    assert!(missing(resolve(b"/two/inner")));
    assert!(f.find(inner, b"..").is_err());
    // Another directory reuses the number, then a file.
    let again = f.volume.mkdir(&f.root, one, b"again", 0o755).unwrap().ino;
    assert_eq!(again, inner);
    let x = f.file(again, b"x");
    assert_eq!(f.find(again, b"x").unwrap(), x);
    f.volume.unlink(&f.root, again, b"x").unwrap();
    f.volume.rmdir(&f.root, one, b"again").unwrap();
    let mut file = f.file(one, b"file");
    while file != inner && file.0 < inner.0 + 8 {
        file = f.file(one, format!("file{}", file.0).as_bytes());
    }
    assert_eq!(file, inner);
    assert!(matches!(f.find(inner, b"x"), Err(Error::NotDir)));
    f.end();
}

#[test]
fn lookups_check_current_permissions() {
    let f = need!(Fixture::new());
    let user = Cred::user(1000, 1000, Vec::new(), 0);
    let dir = f.volume.mkdir(&f.root, ROOT_INO, b"dir", 0o755).unwrap().ino;
    let file = f.file(dir, b"file");
    let look = || f.volume.lookup(&user, dir, b"file").map(|attr| attr.ino);
    let chmod = |mode| {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        f.volume.setattr(&f.root, dir, &set).unwrap();
    };
    for _ in 0..2 {
        assert_eq!(look().unwrap(), file);
        assert_eq!(look().unwrap(), file);
        chmod(0o700);
        assert!(matches!(look(), Err(Error::Access)));
        assert_eq!(f.find(dir, b"file").unwrap(), file);
        assert!(matches!(look(), Err(Error::Access)));
        chmod(0o701);
    }
    // Others may search, the group may not, and the user is in the group.
    let set = SetAttr { gid: Some(1000), ..SetAttr::default() };
    f.volume.setattr(&f.root, dir, &set).unwrap();
    assert!(matches!(look(), Err(Error::Access)));
    let set = SetAttr { uid: Some(1000), ..SetAttr::default() };
    f.volume.setattr(&f.root, dir, &set).unwrap();
    chmod(0o100);
    assert_eq!(look().unwrap(), file);
    f.end();
}

#[test]
fn concurrent_lookups_return_no_stale_names() {
    let f = need!(Fixture::new());
    let (a, b) = (f.file(ROOT_INO, b"a"), f.file(ROOT_INO, b"b"));
    let stays = f.file(ROOT_INO, b"stays");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let look = |name: &[u8]| f.volume.lookup(&f.root, ROOT_INO, name);
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(look(b"stays").unwrap().ino, stays);
                    // Another thread exchanges these names, so both always exist.
                    assert!([a, b].contains(&look(b"a").unwrap().ino));
                    // Another thread makes and removes this name; a found inode has a link.
                    if let Ok(found) = look(b"blinks") {
                        assert_eq!(found.links, 1);
                    }
                }
            });
        }
        for _ in 0..2000 {
            f.rename((ROOT_INO, b"a"), (ROOT_INO, b"b"), RenameMode::Exchange);
            let blinks = f.file(ROOT_INO, b"blinks");
            let found = f.volume.lookup(&f.root, ROOT_INO, b"blinks").unwrap();
            assert_eq!(found.ino, blinks);
            f.volume.unlink(&f.root, ROOT_INO, b"blinks").unwrap();
            assert!(f.volume.lookup(&f.root, ROOT_INO, b"blinks").is_err());
        }
        done.store(true, Ordering::Relaxed);
    });
    f.end();
}
