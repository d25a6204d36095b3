//! `umount.fuse.nextent`, the helper by which umount(8) returns only when all data is durable.
//!
//! The kernel ends a FUSE mount without waiting for its server. The server then closes the image
//! and holds the image's lock until it has.

use crate::failure::{Context, Failure, Result};
use crate::show;
use nextent_device::{FileDevice, FileOptions};
use nextent_fuse::Mounted;
use nextent_sync::{Duration, now, sleep};
use rustix::mount::{UnmountFlags, unmount};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code of umount(8) for a failure.
const FAILED: u8 = 32;

/// The longest time for a server to close an image.
const PATIENCE: Duration = Duration::from_secs(600);

/// Unmounts the directory among `words` and waits for its server.
pub(crate) fn run(words: &[OsString]) -> Result<ExitCode> {
    let is_flag = |word: &&OsString| word.as_encoded_bytes().starts_with(b"-");
    let flags: Vec<_> = words.iter().filter(is_flag).collect();
    let has = |letter| flags.iter().any(|word| word.as_encoded_bytes().contains(&letter));
    let mut how = UnmountFlags::empty();
    how.set(UnmountFlags::DETACH, has(b'l'));
    how.set(UnmountFlags::FORCE, has(b'f'));
    let Some(place) = words.iter().find(|word| !is_flag(word)) else {
        return Err(Failure::new("which directory?").with_code(super::USAGE));
    };
    unmount_at(Path::new(place), how).map_err(|failure| failure.with_code(FAILED))?;
    Ok(ExitCode::SUCCESS)
}

fn unmount_at(place: &Path, how: UnmountFlags) -> Result<()> {
    let source = source_of(place)?;
    let lazy = how.contains(UnmountFlags::DETACH);
    unmount(place, how).context(|| format!("{}: unmount", show::path(place)))?;
    if let (false, Some(source)) = (lazy, source) {
        wait(&source)?;
    }
    Ok(())
}

/// Waits until the server has released the lock of `image`.
fn wait(image: &Path) -> Result<()> {
    let start = now();
    loop {
        match FileDevice::open(image, &FileOptions::new().read_only(true)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Other errors are not about the lock, so the server has released it.
            _ => return Ok(()),
        }
        if start.elapsed() > PATIENCE {
            return Err(Failure::new(format!("{}: still in use by its server", show::path(image))));
        }
        sleep(Duration::from_millis(10));
    }
}

/// The image that is mounted at `place`, if it is one of this program's.
fn source_of(place: &Path) -> Result<Option<PathBuf>> {
    let place = place.canonicalize().context(|| show::path(place))?;
    Ok(Mounted::at(&place).map(|mounted| mounted.source))
}
