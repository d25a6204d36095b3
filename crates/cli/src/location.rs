//! Paths on the host and inside images: `IMAGE:/path` or `IMAGE@PART:/path`.

use crate::disk;
use crate::failure::{Failure, Result};
use crate::overlay;
use crate::show;
use crate::target::ImageSpec;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A path on the host or inside an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A host path.
    Host(PathBuf),
    /// A path inside an image.
    Image(Inside),
}

/// A path inside an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    /// The image: a file or device, or a part of it.
    pub(crate) image: ImageSpec,
    /// The path, from the root, with its leading slash.
    pub(crate) path: Vec<u8>,
}

impl Location {
    /// Splits at the first `:/`, unless the whole argument is the path of an existing host file.
    /// The address of an export, or an overlay, without a path is its root directory.
    pub(crate) fn parse(arg: &OsStr) -> Result<Self> {
        let bytes = arg.as_bytes();
        // The address of an export has a `:/` itself, and an overlay may have one.
        let is_address = disk::is_address(arg) || overlay::is_overlay(arg);
        let from = overlay::path_may_begin(bytes);
        let at = bytes[from..].windows(2).position(|pair| pair == b":/").map(|at| from + at);
        let image = |text| ImageSpec::parse(OsStr::from_bytes(text)).map_err(Failure::usage);
        match at {
            Some(at) if at > 0 && std::fs::symlink_metadata(arg).is_err() => {
                let image = image(&bytes[..at])?;
                Ok(Self::Image(Inside { image, path: bytes[at + 1..].to_vec() }))
            }
            None if is_address => Ok(Self::Image(Inside::root(&image(bytes)?))),
            _ => Ok(Self::Host(PathBuf::from(arg))),
        }
    }
}

impl Inside {
    /// Parses an argument that must name a path inside an image.
    pub(crate) fn parse(arg: &OsStr) -> Result<Self> {
        match Location::parse(arg)? {
            Location::Image(inside) => Ok(inside),
            Location::Host(path) => {
                let shown = show::path(&path);
                Err(Failure::usage(format!("{shown}: give a path inside an image, {shown}:/PATH")))
            }
        }
    }

    /// The root directory of an image.
    pub(crate) fn root(image: &ImageSpec) -> Self {
        Self { image: image.clone(), path: b"/".to_vec() }
    }

    /// The path of the entry `name` of this directory.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut below = self.clone();
        below.push(name);
        below
    }

    /// Goes to the entry `name` of this directory.
    pub(crate) fn push(&mut self, name: &[u8]) {
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
    }

    /// Whether `image` is the same image, by any path.
    pub(crate) fn same_image(&self, image: &ImageSpec) -> bool {
        self.image.is_same(image)
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", show::path(&self.image), show::name(&self.path))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(path) => f.write_str(&show::path(path)),
            Self::Image(inside) => inside.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_host_paths() {
        let parse = |s: &str| Location::parse(OsStr::new(s));
        let inside = |image: &str, path: &str| {
            Location::Image(Inside {
                image: ImageSpec::parse(OsStr::new(image)).unwrap(),
                path: path.into(),
            })
        };
        assert_eq!(parse("a.img@2:/b").unwrap(), inside("a.img@2", "/b"));
        assert_eq!(parse("a.img:/b/c").unwrap(), inside("a.img", "/b/c"));
        assert_eq!(parse("x/a.img:/").unwrap(), inside("x/a.img", "/"));
        assert_eq!(parse("a:b").unwrap(), Location::Host("a:b".into()));
        assert_eq!(parse(":/b").unwrap(), Location::Host(":/b".into()));
        assert_eq!(parse("nbd://host/x:/b").unwrap(), inside("nbd://host/x", "/b"));
        assert_eq!(parse("nbd://host/x@2:/b").unwrap(), inside("nbd://host/x@2", "/b"));
        assert_eq!(parse("overlay:b+d@2:/p").unwrap(), inside("overlay:b+d@2", "/p"));
        assert_eq!(parse("overlay:/b+/d:/g++/x").unwrap(), inside("overlay:/b+/d", "/g++/x"));
        let of_export = "overlay:nbd+unix:///e?socket=/s+/d";
        assert_eq!(parse(&format!("{of_export}:/p")).unwrap(), inside(of_export, "/p"));
        assert_eq!(parse(of_export).unwrap(), inside(of_export, "/"));
        // No path of the host.
        assert_eq!(parse("nbd://host:7/x").unwrap(), inside("nbd://host:7/x", "/"));
        assert!(parse("nbd+unix:///x:/b").is_err());
        assert!(Inside::parse(OsStr::new("plain")).is_err());
    }
}
