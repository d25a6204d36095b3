//! Reads a file of an image without changing the image: `read_file IMAGE PATH`.
//!
//! Without arguments it makes a small image and reads that.

mod support;

use std::io::Write;
use std::path::PathBuf;

use nextent::OpenOptions;

fn main() -> support::Result<()> {
    let dir = tempfile::tempdir()?;
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (image, path) = match (args.next(), args.next()) {
        (Some(image), Some(path)) => (image, path),
        _ => {
            let image = dir.path().join("disk.img");
            let volume = support::new_image(&image, 16 << 20)?;
            volume.create_dir("/etc")?;
            volume.write("/etc/motd", "read from an image\n")?;
            volume.close()?;
            (image, PathBuf::from("/etc/motd"))
        }
    };
    // Read-only: a journal that needs recovery is replayed into memory.
    let volume = OpenOptions::new().read_only(true).open(&image)?;
    std::io::stdout().write_all(&volume.read(&path)?)?;
    drop(volume);
    support::check(&image)
}
