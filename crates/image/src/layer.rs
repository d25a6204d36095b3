//! Layers of container images: marks that remove names of lower layers (whiteouts), and the names
//! that a layer has made.
//!
//! | name | effect |
//! |---|---|
//! | `.wh.NAME` | removes NAME and all that is below it |
//! | `.wh..wh..opq` | removes all in its directory that this layer has not made |
//! | other names with `.wh..wh.` | none: files of AUFS |
//!
//! The format is that of the OCI image specification, layer.md. As in containerd, `.wh.NAME` also
//! removes what the same layer has made before it.

use super::{EntryError, Result, name};
use nextent::inodes::InodeNo;
use std::collections::{HashMap, HashSet};

const PREFIX: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const OF_AUFS: &[u8] = b".wh..wh.";

/// What a name in a layer stands for, if not for a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mark<'n> {
    /// This name is removed.
    Removed(&'n [u8]),
    /// Lower layers have nothing in this directory.
    Opaque,
    /// Nothing.
    Ignored,
}

impl<'n> Mark<'n> {
    /// # Errors
    /// The mark names no file.
    pub(super) fn of(entry: &'n [u8]) -> Result<Option<Self>> {
        let Some(rest) = entry.strip_prefix(PREFIX) else { return Ok(None) };
        if entry == OPAQUE {
            return Ok(Some(Self::Opaque));
        }
        if entry.starts_with(OF_AUFS) {
            return Ok(Some(Self::Ignored));
        }
        match name::check(rest) {
            Ok(()) => Ok(Some(Self::Removed(rest))),
            Err(_) => Err(EntryError::new("a whiteout without the name of a file; left out")),
        }
    }
}

/// The names that a layer has made.
///
/// All names in a directory that the layer has made are its own, so that only names in directories
/// of lower layers are stored.
#[derive(Debug, Default)]
pub(super) struct MadeNames {
    dirs: HashSet<InodeNo>,
    names: HashMap<InodeNo, HashSet<Box<[u8]>>>,
}

impl MadeNames {
    /// Adds the name `entry` in `dir`.
    pub(super) fn add(&mut self, dir: InodeNo, entry: &[u8]) {
        if !self.dirs.contains(&dir) {
            self.names.entry(dir).or_default().insert(entry.into());
        }
    }

    /// Adds a new directory.
    pub(super) fn add_dir(&mut self, dir: InodeNo) {
        self.dirs.insert(dir);
    }

    /// Whether the layer has made the name `entry` in `dir`.
    pub(super) fn has(&self, dir: InodeNo, entry: &[u8]) -> bool {
        self.dirs.contains(&dir) || self.names.get(&dir).is_some_and(|all| all.contains(entry))
    }

    /// A directory was removed, and its number may be reused.
    pub(super) fn remove_dir(&mut self, dir: InodeNo) {
        self.dirs.remove(&dir);
        self.names.remove(&dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_recognised() {
        let of = |name: &'static [u8]| Mark::of(name).unwrap();
        assert_eq!(of(b"file"), None);
        assert_eq!(of(b".white"), None);
        assert_eq!(of(b".wh.file"), Some(Mark::Removed(b"file")));
        assert_eq!(of(b".wh..hidden"), Some(Mark::Removed(b".hidden")));
        assert_eq!(of(b".wh..wh..opq"), Some(Mark::Opaque));
        assert_eq!(of(b".wh..wh.plnk"), Some(Mark::Ignored));
        for bad in [&b".wh."[..], b".wh..", b".wh..."] {
            assert!(Mark::of(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn names_in_new_directories_are_its_own() {
        let (old, new) = (InodeNo(12), InodeNo(13));
        let mut made = MadeNames::default();
        made.add(old, b"a");
        made.add_dir(new);
        assert!(made.has(old, b"a") && !made.has(old, b"b") && made.has(new, b"x"));
        made.remove_dir(new);
        made.remove_dir(old);
        assert!(!made.has(old, b"a") && !made.has(new, b"x"));
    }
}
