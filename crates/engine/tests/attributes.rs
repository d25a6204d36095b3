//! Extended attributes and access lists on images of every kind, by the engine and by Linux.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Image, KINDS, VolumeTree, close, open};
use nextent::inodes::{Access, InodeNo, Inodes, NewNode, ROOT_INO, SetAttr, XattrMode};
use nextent::{Cred, Error, OpenOptions};
use nextent_ondisk::acl::{Acl, AclEntry, Tag};
use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{KernelMount, Skip, e2fs, need};

fn list(entries: &[(Tag, u16)]) -> Vec<u8> {
    let entries = entries.iter().map(|&(tag, perm)| AclEntry { tag, perm }).collect();
    Acl { entries }.to_xattr()
}

fn example() -> Vec<u8> {
    list(&[
        (Tag::UserObj, 7),
        (Tag::User(1000), 6),
        (Tag::GroupObj, 4),
        (Tag::Group(50), 7),
        (Tag::Mask, 7),
        (Tag::Other, 0),
    ])
}

fn set(volume: &Inodes, ino: InodeNo, name: &str, value: &[u8]) {
    let root = Cred::root();
    volume.setxattr(&root, ino, name.as_bytes(), value, XattrMode::Either).unwrap();
}

fn file(volume: &Inodes, parent: InodeNo, name: &str) -> InodeNo {
    let made = volume.mknod(&Cred::root(), parent, name.as_bytes(), NewNode::Regular, 0o666);
    made.unwrap().ino
}

/// Makes files with attributes of all sizes, many of them equal, and directories whose default
/// lists new files inherit.
fn fill(volume: &Inodes) {
    let root = Cred::root();
    let dir = volume.mkdir(&root, ROOT_INO, b"attributes", 0o755).unwrap().ino;
    for n in 0..40u32 {
        let ino = file(volume, dir, &format!("file{n}"));
        set(volume, ino, "user.small", b"1");
        set(volume, ino, "user.empty", b"");
        set(volume, ino, "security.label", &[b's'; 60]);
        if n % 2 == 0 {
            set(volume, ino, "trusted.large", &vec![b'l'; 200 + (n as usize % 3)]);
        }
        if n % 5 == 0 {
            volume.removexattr(&root, ino, b"security.label").unwrap();
        }
        if n % 7 == 0 {
            volume.unlink(&root, dir, format!("file{n}").as_bytes()).unwrap();
        }
    }
    let lists = volume.mkdir(&root, ROOT_INO, b"lists", 0o750).unwrap().ino;
    set(volume, lists, "system.posix_acl_default", &example());
    set(volume, lists, "system.posix_acl_access", &example());
    let below = volume.mkdir(&root, lists, b"below", 0o777).unwrap().ino;
    let deep = file(volume, below, "deep");
    assert_eq!(volume.getattr(deep).unwrap().mode, 0o660, "mask and others limit the mode");
    volume.setattr(&root, deep, &SetAttr { mode: Some(0o640), ..SetAttr::default() }).unwrap();
    volume.symlink(&root, lists, b"link", b"below").unwrap();
}

fn kernel_sees_the_same(image: &Image) -> Result<(), Skip> {
    let volume = image.open();
    let ours = walk(&VolumeTree(&volume)).unwrap();
    close(&volume);
    drop(volume);
    let mount = KernelMount::new(&image.path(), nextent_testkit::Access::ReadOnly)?;
    let theirs = walk(&HostDir::new(mount.path())).unwrap();
    mount.unmount();
    assert_same(&ours, &theirs, &Compare::default());
    assert!(ours.entries.iter().filter(|entry| !entry.xattrs.is_empty()).count() > 30);
    Ok(())
}

fn run(program: &str, args: &[&str], at: &Path) {
    let done = Command::new(program).args(args).arg(at).status();
    assert!(done.is_ok_and(|status| status.success()), "{program} {args:?}");
}

/// Linux changes attributes, some of which are in shared blocks.
fn kernel_changes(image: &Image) -> Result<(), Skip> {
    if Command::new("setfattr").arg("--version").output().is_err() {
        return Err(Skip::missing("setfattr"));
    }
    let mount = KernelMount::new(&image.path(), nextent_testkit::Access::ReadWrite)?;
    for n in [1, 2, 3, 4, 6, 8] {
        let path = mount.join(format!("attributes/file{n}"));
        run("setfattr", &["-n", "user.kernel", "-v", &"k".repeat(100 + n % 2)], &path);
    }
    run("setfattr", &["-x", "trusted.large"], &mount.join("attributes/file10"));
    run("setfacl", &["-m", "u:7:rw"], &mount.join("lists/below/deep"));
    mount.unmount();
    e2fs::assert_clean(&image.path());
    Ok(())
}

fn change_again(image: &Image) {
    let root = Cred::root();
    let volume = image.open();
    for n in (1..40).filter(|n| n % 7 != 0) {
        let path = format!("/attributes/file{n}");
        let ino = volume.resolve(&root, path.as_bytes(), true).unwrap().ino;
        set(&volume, ino, "user.small", &[b'2'; 90]);
        if n % 3 == 0 {
            volume
                .unlink(
                    &root,
                    volume.resolve(&root, b"/attributes", true).unwrap().ino,
                    format!("file{n}").as_bytes(),
                )
                .unwrap();
        }
    }
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}

#[test]
fn linux_and_e2fsck_agree() {
    for (kind, args) in KINDS {
        eprintln!("kind {kind}");
        let image = need!(Image::make(64 << 20, args));
        let volume = image.open();
        fill(&volume);
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
        need!(kernel_sees_the_same(&image));
        need!(kernel_changes(&image));
        need!(kernel_sees_the_same(&image));
        change_again(&image);
    }
}

/// An access list set by an owner outside of the file's group clears set-group-id, as chmod does.
#[test]
fn an_owner_outside_the_group_clears_set_group_id_by_a_list() {
    let image = need!(Image::make(16 << 20, &["-t", "ext4"]));
    let volume = image.open();
    let root = Cred::root();
    let outsider = Cred::user(1000, 1000, vec![7], 0);
    let member = Cred::user(1000, 1000, vec![50], 0);
    let minimal = list(&[(Tag::UserObj, 7), (Tag::GroupObj, 5), (Tag::Other, 1)]);
    let access = "system.posix_acl_access";
    let (extended, default) = (example(), "system.posix_acl_default");
    let cases = [
        (&root, access, Some(&extended), 0o2770),
        (&member, access, Some(&extended), 0o2770),
        (&outsider, access, Some(&extended), 0o0770),
        (&outsider, access, Some(&minimal), 0o0751),
        (&member, access, Some(&minimal), 0o2751),
        // Linux does not change the mode when a list is removed or a default list is set.
        (&outsider, access, None, 0o2755),
        (&outsider, default, Some(&extended), 0o2755),
    ];
    for (n, (cred, attribute, value, mode)) in cases.into_iter().enumerate() {
        let name = format!("dir{n}");
        let dir = volume.mkdir(&root, ROOT_INO, name.as_bytes(), 0o755).unwrap().ino;
        let owner = SetAttr { uid: Some(1000), gid: Some(50), ..SetAttr::default() };
        volume.setattr(&root, dir, &owner).unwrap();
        let bits = SetAttr { mode: Some(0o2755), ..SetAttr::default() };
        volume.setattr(&root, dir, &bits).unwrap();
        let name = attribute.as_bytes();
        let done = match value {
            Some(value) => volume.setxattr(cred, dir, name, value, XattrMode::Either),
            None => volume.removexattr(cred, dir, name),
        };
        done.unwrap();
        assert_eq!(volume.getattr(dir).unwrap().mode, mode, "case {n}");
    }
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}

#[test]
fn calls_return_the_results_of_linux() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4"]));
    let volume = image.open();
    let root = Cred::root();
    let ino = file(&volume, ROOT_INO, "file");
    let set =
        |name: &str, value: &[u8], mode| volume.setxattr(&root, ino, name.as_bytes(), value, mode);
    assert!(matches!(set("user.a", b"1", XattrMode::Replace), Err(Error::NoData)));
    set("user.a", b"1", XattrMode::Create).unwrap();
    assert!(matches!(set("user.a", b"1", XattrMode::Create), Err(Error::Exists)));
    set("user.a", b"22", XattrMode::Replace).unwrap();
    assert_eq!(volume.getxattr(&root, ino, b"user.a").unwrap(), b"22");
    assert_eq!(volume.listxattr(&root, ino).unwrap(), [b"user.a"]);
    assert!(matches!(set("user.a", &[0; 5000], XattrMode::Either), Err(Error::AttributesFull)));
    assert!(matches!(set("unknown.a", b"", XattrMode::Either), Err(Error::NotSupported)));
    assert!(matches!(volume.removexattr(&root, ino, b"user.b"), Err(Error::NoData)));
    volume.removexattr(&root, ino, b"user.a").unwrap();
    assert!(volume.listxattr(&root, ino).unwrap().is_empty());
    let default = set("system.posix_acl_default", &example(), XattrMode::Either);
    assert!(matches!(default, Err(Error::Access)), "not a directory");
    let bad = set("system.posix_acl_access", &example()[..20], XattrMode::Either);
    assert!(matches!(bad, Err(Error::Invalid)));
}

#[test]
fn lists_grant_and_refuse() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4"]));
    let volume = image.open();
    let root = Cred::root();
    let ino = file(&volume, ROOT_INO, "file");
    set(&volume, ino, "system.posix_acl_access", &example());
    assert_eq!(volume.getattr(ino).unwrap().mode, 0o770, "the mask is the group's bits");
    let may = |uid, gid, want| volume.access(&Cred::user(uid, gid, vec![], 0), ino, want).is_ok();
    assert!(may(1000, 1, Access::READ_WRITE));
    assert!(!may(1000, 1, Access::EXECUTE));
    assert!(may(2000, 50, Access::EXECUTE));
    assert!(may(2000, 0, Access::READ));
    assert!(!may(2000, 0, Access::WRITE));
    assert!(!may(2000, 99, Access::READ));
    volume.setattr(&root, ino, &SetAttr { mode: Some(0o740), ..SetAttr::default() }).unwrap();
    assert!(!may(1000, 1, Access::WRITE), "chmod changed the mask");
    let minimal = list(&[(Tag::UserObj, 6), (Tag::GroupObj, 4), (Tag::Other, 4)]);
    set(&volume, ino, "system.posix_acl_access", &minimal);
    assert_eq!(volume.getattr(ino).unwrap().mode, 0o644);
    assert!(volume.listxattr(&root, ino).unwrap().is_empty(), "the mode is equivalent to the list");
}

#[test]
fn values_in_ea_inodes_are_read() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4", "-O", "ea_inode"]));
    if Command::new("setfattr").arg("--version").output().is_err() {
        return Skip::missing("setfattr").note();
    }
    let mount = need!(KernelMount::new(&image.path(), nextent_testkit::Access::ReadWrite));
    let path = mount.join("file");
    std::fs::write(&path, b"").unwrap();
    run("setfattr", &["-n", "user.large", "-v", &"large ".repeat(3000)], &path);
    run("setfattr", &["-n", "user.small", "-v", "small"], &path);
    mount.unmount();
    let options = OpenOptions::new().read_only(true);
    let volume = open(&image.path(), &options).unwrap();
    let root = Cred::root();
    let ino = volume.lookup(&root, ROOT_INO, b"file").unwrap().ino;
    assert_eq!(
        volume.getxattr(&root, ino, b"user.large").unwrap(),
        "large ".repeat(3000).as_bytes()
    );
    assert_eq!(volume.getxattr(&root, ino, b"user.small").unwrap(), b"small");
}
