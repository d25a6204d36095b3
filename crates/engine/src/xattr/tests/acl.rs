//! Access lists.

use nextent_ondisk::acl::{Acl, AclEntry, Tag};
use nextent_ondisk::xattr;

use super::fixture::{FakeInode, Fixture};
use crate::xattr::acl::{
    access_list, after_chmod, default_list, granted, inherit, set_access, set_default,
};
use crate::{Cred, Error};

fn acl(entries: &[(Tag, u16)]) -> Acl {
    Acl { entries: entries.iter().map(|&(tag, perm)| AclEntry { tag, perm }).collect() }
}

fn example() -> Acl {
    acl(&[
        (Tag::UserObj, 6),
        (Tag::User(1000), 7),
        (Tag::User(1001), 0),
        (Tag::GroupObj, 4),
        (Tag::Group(50), 3),
        (Tag::Group(51), 5),
        (Tag::Mask, 6),
        (Tag::Other, 1),
    ])
}

#[test]
fn who_gets_what() {
    let list = example();
    let get = |uid, gid, groups: &[u32], want| {
        granted(&list, &Cred::user(uid, gid, groups.to_vec(), 0), (500, 40), want)
    };
    assert_eq!(get(500, 50, &[], 4), 6, "the owner, whatever the mask");
    assert_eq!(get(1000, 40, &[], 4), 6, "a named user, masked");
    assert_eq!(get(1001, 40, &[50, 51], 4), 0, "a named user, though a group grants more");
    assert_eq!(get(1002, 40, &[], 4), 4, "the owning group");
    assert_eq!(get(1002, 50, &[], 2), 2, "a named group, masked");
    assert_eq!(get(1002, 40, &[50], 2), 2, "any group that grants it");
    assert_eq!(get(1002, 40, &[50], 6) & 6, 0, "two groups do not add up");
    assert_eq!(get(1002, 51, &[], 1), 0, "the mask takes it");
    assert_eq!(get(1002, 99, &[], 1), 1, "others");
}

#[test]
fn mode_and_list_agree() {
    let list = example();
    assert_eq!(list.mode_bits(), 0o661);
    let changed = after_chmod(&list, 0o4750);
    assert_eq!(changed.mode_bits(), 0o750);
    assert_eq!(changed.perm_of(Tag::GroupObj), Some(4), "the mask changes, not the group");
    let minimal = acl(&[(Tag::UserObj, 6), (Tag::GroupObj, 4), (Tag::Other, 0)]);
    assert_eq!(after_chmod(&minimal, 0o751).mode_bits(), 0o751);
}

#[test]
fn new_files_inherit() {
    let made = inherit(&example(), 0o100_644);
    assert_eq!(made.mode, 0o100_640);
    let list = made.access.unwrap();
    assert!(list.is_valid());
    assert_eq!(list.mode_bits(), 0o640);
    assert_eq!(list.perm_of(Tag::User(1000)), Some(7), "named entries stay, the mask cuts");
    let minimal = acl(&[(Tag::UserObj, 7), (Tag::GroupObj, 5), (Tag::Other, 0)]);
    let made = inherit(&minimal, 0o042_777);
    assert_eq!((made.mode, made.access), (0o042_750, None));
}

#[test]
fn lists_are_stored_and_programs_see_the_other_form() {
    let f = Fixture::new(1024, true);
    let mut inode = FakeInode::new(96);
    let list = example();
    let short = acl(&[(Tag::UserObj, 6), (Tag::GroupObj, 4), (Tag::Other, 4)]);
    f.put(&mut inode, "system.posix_acl_access", &list.to_xattr()).unwrap();
    assert_eq!(f.get(&inode, "system.posix_acl_access").unwrap(), list.to_xattr());
    assert_eq!(access_list(&f.cx(), &inode.area, inode.block).unwrap(), Some(list.clone()));
    let stored = xattr::in_inode(&f.geometry, &inode.area).unwrap().next().unwrap();
    assert_eq!(stored.value, xattr::Value::Bytes(&list.to_disk()));

    f.change(&mut inode, |cx, h, storage| set_default(cx, h, storage, Some(&list))).unwrap();
    assert_eq!(default_list(&f.cx(), &inode.area, inode.block).unwrap(), Some(list));
    f.change(&mut inode, |cx, h, storage| set_access(cx, h, storage, Some(&short))).unwrap();
    assert_eq!(access_list(&f.cx(), &inode.area, inode.block).unwrap(), None, "the mode says it");
    f.change(&mut inode, |cx, h, storage| set_access(cx, h, storage, None)).unwrap();
    f.change(&mut inode, |cx, h, storage| set_default(cx, h, storage, None)).unwrap();
    assert!(matches!(f.get(&inode, "system.posix_acl_default"), Err(Error::NoData)));

    let unordered = acl(&[(Tag::Other, 4), (Tag::GroupObj, 4), (Tag::UserObj, 6)]);
    for bad in [unordered.to_xattr(), vec![], vec![1, 2, 3], short.to_disk()] {
        let refused = f.put(&mut inode, "system.posix_acl_access", &bad);
        assert!(matches!(refused, Err(Error::Invalid)));
    }
}
