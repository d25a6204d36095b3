//! What the examples share: a new image, and its check by e2fsck.

use std::error::Error;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use nextent::device::FileOptions;
use nextent::mkfs::{self, MkfsOptions};
use nextent::{FileDevice, OpenOptions, Volume};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Makes an image of `size` bytes at `path` and opens it.
#[allow(dead_code)] // not by all examples
pub(crate) fn new_image(path: &Path, size: u64) -> Result<Volume> {
    let device = FileDevice::open(path, &FileOptions::new().create(true).size(size))?;
    mkfs::make(&device, &MkfsOptions::default())?;
    Ok(OpenOptions::new().open_device(Arc::new(device))?)
}

/// Lets e2fsck check the image, where e2fsck is installed.
pub(crate) fn check(image: &Path) -> Result<()> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("e2fsck").args(["-f", "-n"]).arg(image).env("PATH", path).output();
    match output {
        Err(error) if error.kind() == ErrorKind::NotFound => println!("e2fsck is not installed"),
        Err(error) => return Err(error.into()),
        Ok(output) if output.status.success() => println!("e2fsck found nothing"),
        Ok(output) => return Err(String::from_utf8_lossy(&output.stdout).into()),
    }
    Ok(())
}
