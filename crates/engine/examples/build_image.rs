//! Makes an image from a directory of the host: `build_image DIRECTORY IMAGE`.
//!
//! Without arguments it puts the sources of this crate into an image that it removes again. No
//! root rights are needed: owners are what the program says.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use nextent::{FileTimes, Permissions, Volume};

fn main() -> support::Result<()> {
    let dir = tempfile::tempdir()?;
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let source = args.next().unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let image = args.next().unwrap_or_else(|| dir.path().join("disk.img"));
    let volume = support::new_image(&image, 64 << 20)?;
    let files = copy_in(&source, &volume, Path::new("/"))?;
    let free = volume.statfs()?;
    println!("{files} files, {} of {} blocks are free", free.blocks_free, free.blocks);
    volume.close()?;
    drop(volume);
    support::check(&image)
}

/// Copies what is in the directory `from` of the host into the directory `to`; the number of files.
fn copy_in(from: &Path, volume: &Volume, to: &Path) -> support::Result<usize> {
    use std::os::unix::fs::PermissionsExt;
    let mut files = 0;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = entry.metadata()?;
        if metadata.is_symlink() {
            volume.symlink(fs::read_link(&source)?, &target)?;
            volume.lchown(&target, Some(0), Some(0))?;
            continue;
        } else if metadata.is_dir() {
            volume.create_dir(&target)?;
            files += copy_in(&source, volume, &target)?;
        } else {
            std::io::copy(&mut fs::File::open(&source)?, &mut volume.create_file(&target)?)?;
            files += 1;
        }
        let mode = metadata.permissions().mode();
        volume.set_permissions(&target, Permissions::from_mode(mode))?;
        volume.set_times(&target, FileTimes::new().set_modified(metadata.modified()?))?;
    }
    Ok(files)
}
