//! A user's view of a volume enforces the mode bits.

use nextent::{Access, Cred, Error, FileOptions, NewNode, Permissions, Volume};
use nextent_testkit::need;

use super::{Image, finish};

#[test]
fn a_view_enforces_the_mode_bits() {
    let image = need!(Image::make(16 << 20, &["-t", "ext4"]));
    let volume = Volume::from(image.open());
    let set =
        |path: &str, mode| volume.set_permissions(path, Permissions::from_mode(mode)).unwrap();
    volume.create_dir_all("/home/ann").unwrap();
    volume.chown("/home/ann", Some(1000), Some(1000)).unwrap();
    set("/home/ann", 0o750);
    volume.write("/root-only", "secret").unwrap();
    set("/root-only", 0o600);
    volume.create_dir("/tmp").unwrap();
    set("/tmp", 0o1777);

    let ann = volume.as_user(Cred::user(1000, 1000, vec![], 0o077));
    let group = volume.as_user(Cred::user(1001, 1001, vec![1000], 0o022));
    let other = volume.as_user(Cred::user(1002, 1002, vec![], 0o022));

    ann.write("/home/ann/diary", "entry").unwrap();
    let diary = volume.metadata("/home/ann/diary").unwrap();
    assert_eq!((diary.uid(), diary.gid(), diary.mode()), (1000, 1000, 0o100_600));
    assert!(matches!(ann.read("/root-only"), Err(Error::Access)));
    assert!(matches!(ann.write("/new", ""), Err(Error::Access)));
    assert!(matches!(ann.chown("/home/ann", Some(0), None), Err(Error::Perm)));
    assert!(ann.as_user(Cred::user(5, 5, vec![], 0)).read_dir("/home/ann").is_err());

    assert_eq!(group.read_dir("/home/ann").unwrap().count(), 1);
    assert!(matches!(group.read("/home/ann/diary"), Err(Error::Access)));
    assert!(matches!(group.write("/home/ann/new", ""), Err(Error::Access)));
    assert!(matches!(group.remove_file("/home/ann/diary"), Err(Error::Access)));
    assert!(matches!(other.metadata("/home/ann/diary"), Err(Error::Access)));
    assert!(matches!(other.exists("/home/ann/diary"), Err(Error::Access)));
    assert!(matches!(other.canonicalize("/home/ann/diary"), Err(Error::Access)));
    assert!(matches!(other.remove_dir_all("/home/ann"), Err(Error::Access)));

    // In a sticky directory only its owner may rename a file.
    ann.write("/tmp/hers", "").unwrap();
    assert!(matches!(other.remove_file("/tmp/hers"), Err(Error::Perm)));
    assert!(matches!(other.rename("/tmp/hers", "/tmp/mine"), Err(Error::Perm)));
    let tty = NewNode::Fifo;
    other.create_node("/tmp/pipe", tty, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(volume.metadata("/tmp/pipe").unwrap().mode(), 0o010_644);
    assert!(matches!(other.access("/tmp/hers", Access::WRITE), Err(Error::Access)));

    // An open file keeps the access mode of its open, after the bits change.
    let file = FileOptions::new().write(true).create_new(true).mode(0o400).open(&ann, "/tmp/own");
    let file = file.unwrap();
    assert_eq!(file.write_at(b"still", 0).unwrap(), 5);
    assert!(matches!(file.read_at(&mut [0; 5], 0), Err(Error::BadDescriptor)));
    assert!(matches!(ann.write("/tmp/own", ""), Err(Error::Access)));
    drop((file, ann, group, other));
    finish(volume, &image.path());
}
