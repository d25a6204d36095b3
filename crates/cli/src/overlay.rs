//! Copy-on-write images as arguments name them: `overlay:BASE+DELTA`.
//!
//! BASE is an image, perhaps a part of one, and DELTA is a file. Both may have a `+` in their
//! names: DELTA begins after the last `+` before which there is the name of an existing file or the
//! address of an export. If there is none, it begins after the last `+`.

use crate::disk::{self, Disk};
use crate::target::{ImageSpec, Place};
use nextent_device::{
    BlockDevice, DeltaError, DeltaFile, DevicePart, FileOptions, OpenError, is_unused_delta,
};
use nextent_ondisk::PartitionTable;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How the argument begins.
const PREFIX: &[u8] = b"overlay:";

/// The text of an argument that is not one.
const FORM: &str = "an overlay is overlay:BASE+DELTA";

/// A copy-on-write image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OverlaySpec {
    /// What is read: a file, a block device, an export or another overlay.
    pub(crate) base: OsString,
    /// The file of what was written.
    pub(crate) delta: PathBuf,
}

/// Whether an argument begins as an overlay does.
pub(crate) fn is_overlay(text: &OsStr) -> bool {
    text.as_bytes().starts_with(PREFIX)
}

/// Where in an argument the colon before a path inside the image may be: behind the colons of
/// overlays, and of an address.
pub(crate) fn path_may_begin(bytes: &[u8]) -> usize {
    let mut at = 0;
    while bytes[at..].starts_with(PREFIX) {
        at += PREFIX.len();
    }
    let is_address = disk::is_address(OsStr::from_bytes(&bytes[at..]));
    let scheme = bytes[at..].windows(3).position(|three| three == b"://");
    at + scheme.filter(|_| is_address).map_or(0, |length| length + 3)
}

impl OverlaySpec {
    /// Parses `overlay:BASE+DELTA`, without a part or a path.
    ///
    /// # Errors
    /// A name is missing.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes().strip_prefix(PREFIX).ok_or(FORM)?;
        // The one in `nbd+unix://` is none.
        let first = path_may_begin(text.as_bytes()).saturating_sub(PREFIX.len());
        let splits = (first..bytes.len()).rev().filter(|at| bytes[*at] == b'+');
        let splits: Vec<usize> = splits.filter(|at| *at > 0 && at + 1 < bytes.len()).collect();
        let exists = |at: &&usize| is_image(OsStr::from_bytes(&bytes[..**at]));
        let at = splits.iter().find(exists).or(splits.first()).ok_or(FORM)?;
        let base = OsStr::from_bytes(&bytes[..*at]).to_owned();
        Ok(Self { base, delta: OsStr::from_bytes(&bytes[at + 1..]).into() })
    }

    /// The argument.
    pub(crate) fn text(&self) -> OsString {
        let mut text = OsString::from("overlay:");
        text.push(&self.base);
        text.push("+");
        text.push(&self.delta);
        text
    }

    /// The same with absolute paths.
    pub(crate) fn absolute(&self) -> io::Result<Self> {
        let base = match () {
            () if disk::is_address(&self.base) => self.base.clone(),
            () if is_overlay(&self.base) => {
                Self::parse(&self.base).map_err(io::Error::other)?.absolute()?.text()
            }
            () => std::path::absolute(&self.base)?.into(),
        };
        Ok(Self { base, delta: std::path::absolute(&self.delta)? })
    }

    /// Opens the base; a server is used as `place` says.
    pub(crate) fn open_base(&self, how: &FileOptions, place: &Place) -> Opened {
        let fail = |why: String| OpenError::Io {
            path: PathBuf::from(&self.base),
            source: io::Error::other(why),
        };
        let spec = ImageSpec::parse(&self.base).map_err(fail)?;
        let base = spec.resolve().map_err(|error| fail(error.to_string()))?;
        Place { reconnect: place.reconnect, timeout: place.timeout, ..base }.open(how.clone())
    }

    /// Opens the bytes of `place`. The base is opened for reading. A reader of an overlay whose
    /// delta does not exist reads the base.
    pub(crate) fn open(&self, place: &Place, how: &FileOptions) -> Opened {
        let base = self.open_base(&how.clone().read_only(true), place)?;
        let fail = |source| OpenError::Io { path: self.text().into(), source };
        if how.is_read_only() && is_unused_delta(&self.delta) {
            let part = part(base, place).map_err(fail)?;
            return Ok(Disk::Base(Box::new(part)));
        }
        let delta = DeltaFile::open_file(base, &self.delta, how, samples)?;
        if !how.is_read_only() && delta.is_committing() {
            let source = DeltaError::Committing.into();
            return Err(OpenError::Io { path: self.delta.clone(), source });
        }
        let part = part(delta, place).map_err(fail)?;
        Ok(Disk::Overlay(Box::new(part)))
    }
}

type Opened = Result<Disk, OpenError>;

/// Whether there is an image of that name.
fn is_image(text: &OsStr) -> bool {
    disk::is_address(text) || is_overlay(text) || std::fs::metadata(text).is_ok()
}

fn part<D: BlockDevice>(device: D, place: &Place) -> io::Result<DevicePart<D>> {
    let end = match place.size {
        Some(size) => place.offset.saturating_add(size),
        None => device.size().max(place.offset),
    };
    DevicePart::new(device, place.offset..end)
}

/// The offsets of the bytes that identify a base: its first ones, and those of each partition. They
/// include the superblock of an ext file system, which each writer changes.
pub(crate) fn samples(base: &Disk) -> Vec<u64> {
    let read = &mut |at, buf: &mut [u8]| base.read_at(at, buf).is_ok();
    let table = PartitionTable::read(base.size(), base.sector_size(), read);
    let partitions = table.map(|table| table.partitions).unwrap_or_default();
    let usable = partitions.iter().filter(|part| part.fault.is_none());
    std::iter::once(0).chain(usable.map(|part| part.offset)).collect()
}

/// Whether an image, or the base of an overlay, is an export of a server.
pub(crate) fn has_server(image: &OsStr) -> bool {
    match OverlaySpec::parse(image) {
        Ok(spec) => has_server(&spec.base),
        Err(_) => disk::is_address(image),
    }
}

/// The file that holds the bytes of an image which `path` names: for an overlay its delta.
pub(crate) fn host_file(path: &Path) -> PathBuf {
    match OverlaySpec::parse(path.as_os_str()) {
        Ok(spec) if is_overlay(path.as_os_str()) => spec.delta,
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Option<(String, String)> {
        let spec = OverlaySpec::parse(OsStr::new(text)).ok()?;
        Some((spec.base.into_string().unwrap(), spec.delta.to_str().unwrap().to_owned()))
    }

    #[test]
    fn the_last_plus_divides_unless_the_base_says_another() {
        let both = |base: &str, delta: &str| Some((base.to_owned(), delta.to_owned()));
        assert_eq!(split("overlay:b.img+d"), both("b.img", "d"));
        assert_eq!(split("overlay:b+c.img+x/d"), both("b+c.img", "x/d"));
        let url = "nbd+unix:///e?socket=/s";
        assert_eq!(split(&format!("overlay:{url}+/d")), both(url, "/d"));
        assert_eq!(split("overlay:nbd://h:7/e+d"), both("nbd://h:7/e", "d"));
        assert_eq!(split("overlay:overlay:b+c+d"), both("overlay:b+c", "d"));
        for wrong in ["overlay:b", "overlay:", "overlay:+d", "overlay:b+", "b+d"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
        assert_eq!(split(&format!("overlay:{url}")), None);
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("b"), "").unwrap();
        let text = format!("overlay:{}+c+1.delta", at("b"));
        assert_eq!(split(&text), both(&at("b"), "c+1.delta"));
        std::fs::write(at("b+c"), "").unwrap();
        assert_eq!(split(&text), both(&at("b+c"), "1.delta"));
        assert_eq!(OverlaySpec::parse(OsStr::new(&text)).unwrap().text(), *text);
    }

    #[test]
    fn a_path_begins_behind_all_colons_of_the_image() {
        for (text, rest) in [
            ("overlay:/b+/d:/p", "/b+/d:/p"),
            ("overlay:nbd://h/e+d:/p", "h/e+d:/p"),
            ("overlay:overlay:nbd+unix:///e+c+d:/p", "/e+c+d:/p"),
            ("nbd://h/e:/p", "h/e:/p"),
            ("b:/p", "b:/p"),
        ] {
            assert_eq!(&text[path_may_begin(text.as_bytes())..], rest);
        }
    }

    #[test]
    fn the_server_of_a_base_is_found() {
        let has = |text: &str| has_server(OsStr::new(text));
        assert!(has("nbd://h/e") && has("overlay:overlay:nbd+unix:///e?socket=/s+c+d"));
        assert!(!has("b") && !has("overlay:b+nbd://h") && !has("overlay:b"));
    }

    #[test]
    fn paths_become_absolute() {
        let absolute = |text: &str| {
            let spec = OverlaySpec::parse(OsStr::new(text)).unwrap().absolute().unwrap();
            spec.text().into_string().unwrap()
        };
        let here = std::env::current_dir().unwrap().to_str().unwrap().to_owned();
        assert_eq!(absolute("overlay:b+d"), format!("overlay:{here}/b+{here}/d"));
        assert_eq!(absolute("overlay:nbd://h/e+/d"), "overlay:nbd://h/e+/d");
        let chain = absolute("overlay:overlay:b+c+d");
        assert_eq!(chain, format!("overlay:overlay:{here}/b+{here}/c+{here}/d"));
    }
}
