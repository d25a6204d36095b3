//! Blocks that several inodes use.

use nextent_sync::{LockClass, Mutex, thread};

use super::fixture::{FakeInode, Fixture, name};
use crate::Error;
use crate::xattr::{XattrName, drop_all};

#[test]
fn equal_attributes_share_a_block_until_one_changes() {
    let f = Fixture::new(4096, true);
    let mut inodes = [FakeInode::new(0), FakeInode::new(0), FakeInode::new(0)];
    for inode in &mut inodes {
        f.put(inode, "user.a", b"same").unwrap();
        f.put(inode, "user.b", b"same too").unwrap();
    }
    assert_eq!(inodes[0].block, inodes[2].block);
    assert_eq!(f.refcount(inodes[0].block), 3);
    f.check_references(&inodes);
    f.put(&mut inodes[1], "user.a", b"other").unwrap();
    assert_ne!(inodes[0].block, inodes[1].block);
    f.check_references(&inodes);
    assert_eq!(f.get(&inodes[0], "user.a").unwrap(), b"same");
    assert_eq!(f.get(&inodes[1], "user.a").unwrap(), b"other");
    f.put(&mut inodes[1], "user.a", b"same").unwrap();
    assert_eq!(inodes[0].block, inodes[1].block, "joined again");
    f.check_references(&inodes);
}

#[test]
fn a_block_is_shared_1024_times_only() {
    let f = Fixture::new(1024, false);
    let mut inodes: Vec<_> = (0..1030).map(|_| FakeInode::new(0)).collect();
    for inode in &mut inodes {
        f.put(inode, "user.a", b"same").unwrap();
    }
    assert_eq!(f.space.used().len(), 2);
    assert_eq!(f.refcount(inodes[0].block), 1024);
    assert_eq!(f.refcount(inodes[1029].block), 6);
    f.check_references(&inodes);
}

#[test]
fn without_space_nothing_changes() {
    let mut f = Fixture::new(1024, true);
    f.space.limit = 1;
    let mut inodes = [FakeInode::new(0), FakeInode::new(0)];
    f.put(&mut inodes[0], "user.a", b"same").unwrap();
    f.put(&mut inodes[1], "user.a", b"same").unwrap();
    assert!(matches!(f.put(&mut inodes[1], "user.a", b"new"), Err(Error::NoSpace)));
    assert!(matches!(f.put(&mut inodes[1], "user.b", b"new"), Err(Error::NoSpace)));
    assert!(matches!(f.put(&mut inodes[1], "user.b", &[0; 1024]), Err(Error::AttributesFull)));
    assert_eq!(f.get(&inodes[1], "user.a").unwrap(), b"same");
    f.check_references(&inodes);
    f.remove(&mut inodes[0], "user.a").unwrap();
    f.put(&mut inodes[1], "user.a", b"new").unwrap();
    f.check_references(&inodes);
}

#[test]
fn many_threads_share_change_and_free() {
    static RESULT: LockClass = LockClass::new("test.result", 10);
    let f = Fixture::new(1024, true);
    let done = Mutex::new(&RESULT, Vec::new());
    thread::scope(|scope| {
        for seed in 0..8u64 {
            let (f, done) = (&f, &done);
            scope.spawn(move || {
                let mut rng = nextent_testkit::Rng::new(seed);
                let mut inodes: Vec<_> = (0..6).map(|_| FakeInode::new(0)).collect();
                for _ in 0..300 {
                    let inode = rng.below(6) as usize;
                    let value = [b'0' + rng.below(3) as u8; 9];
                    match rng.below(8) {
                        0 => f.change(&mut inodes[inode], drop_all).unwrap(),
                        _ => f.put(&mut inodes[inode], "user.a", &value).unwrap(),
                    }
                }
                done.lock().extend(inodes);
            });
        }
    });
    f.check_references(&done.into_inner());
}

#[test]
fn names_of_users() {
    let long = format!("user.{}", "x".repeat(251));
    assert!(matches!(XattrName::new(long.as_bytes()), Err(Error::Range)));
    assert!(XattrName::new(&long.as_bytes()[..255]).is_ok());
    for bad in ["system.data", "other.a", "user.", "system.anything"] {
        assert!(matches!(XattrName::new(bad.as_bytes()), Err(Error::NotSupported)), "{bad}");
    }
    assert_eq!(name("system.posix_acl_access"), XattrName::ACL_ACCESS);
}
