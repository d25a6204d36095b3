//! The sources that `-d` and `--oci` name.

use crate::faked;
use nextent_image::Contents;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Opens the sources, before anything is written; none if none is named. Several are layers in
/// order, those of the container's image first.
pub(super) fn open(
    paths: &[PathBuf],
    image: Option<&OsStr>,
) -> Result<Option<Contents<'static>>, String> {
    if paths.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err("-d - reads standard input, which can be read once".to_owned());
    }
    let mut all = Vec::new();
    if let Some(image) = image {
        let (path, name) = split(image);
        all.push(Contents::oci(path, name).map_err(|error| error.to_string())?);
    }
    for path in paths {
        all.push(one(path)?);
    }
    let is_plain = image.is_none() && all.len() == 1;
    Ok(match all.len() {
        0 => None,
        _ if is_plain => all.pop(),
        _ => Some(Contents::layers(all)),
    })
}

fn one(path: &Path) -> Result<Contents<'static>, String> {
    if path.as_os_str() == "-" {
        return Ok(Contents::tar(std::io::stdin().lock(), "standard input"));
    }
    if path.is_dir() {
        faked::check()?;
    }
    Contents::open(path).map_err(|error| error.to_string())
}

/// The path of a layout, and the name after its last colon, unless all of it is a path.
fn split(image: &OsStr) -> (&Path, Option<&str>) {
    let whole = Path::new(image);
    let bytes = image.as_bytes();
    if !whole.exists() {
        let colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':');
        for (at, _) in colons {
            // Names of images have colons, too.
            let path = Path::new(OsStr::from_bytes(&bytes[..at]));
            if let Ok(name) = std::str::from_utf8(&bytes[at + 1..])
                && path.exists()
            {
                return (path, Some(name));
            }
        }
    }
    (whole, None)
}
