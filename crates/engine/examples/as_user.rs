//! Acts as several users on one volume.

mod support;

use nextent::{Cred, Error, Permissions};

fn main() -> support::Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    // A new volume acts as the superuser.
    let volume = support::new_image(&image, 16 << 20)?;
    volume.create_dir_all("/home/ann")?;
    volume.chown("/home/ann", Some(1000), Some(1000))?;
    volume.set_permissions("/home/ann", Permissions::from_mode(0o750))?;

    let ann = volume.as_user(Cred::user(1000, 1000, vec![], 0o027));
    ann.write("/home/ann/notes", "for the group")?;
    let diary = nextent::FileOptions::new().write(true).create_new(true).mode(0o600);
    diary.open(&ann, "/home/ann/diary")?.write_at(b"for me", 0)?;

    let colleague = volume.as_user(Cred::user(1001, 1001, vec![1000], 0o022));
    println!("the group reads: {}", colleague.read_to_string("/home/ann/notes")?);
    assert!(matches!(colleague.read("/home/ann/diary"), Err(Error::Access)));
    assert!(matches!(colleague.write("/home/ann/new", ""), Err(Error::Access)));

    let stranger = volume.as_user(Cred::user(1002, 1002, vec![], 0o022));
    match stranger.read_dir("/home/ann") {
        Err(error @ Error::Access) => println!("a stranger: {error}"),
        other => return Err(format!("a stranger lists the directory: {other:?}").into()),
    }
    volume.close()?;
    drop((volume, ann, colleague, stranger));
    support::check(&image)
}
