//! A directory of the host with everything that is known of its entries without opening them.

use super::host_source::{HostSource, attributes};
use super::{Kind, Meta, Result, Source, Trouble};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, statat};
use std::ffi::{CString, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An entry of a directory.
pub(super) struct Found {
    pub(super) name: Vec<u8>,
    pub(super) meta: Result<Meta>,
    /// Where the data of a file with holes is; others have data everywhere.
    pub(super) holes: Option<Result<Vec<Range<u64>>>>,
}

/// How directories and files are opened: never through a link that came meanwhile.
pub(super) const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// The entries of `dir` by name.
///
/// Attributes are asked for by name in the open directory, so that the host walks the path once.
pub(super) fn list(source: &HostSource, path: &Path) -> Result<Vec<Found>> {
    let dir = openat(CWD, path, OPEN.union(OFlags::DIRECTORY), Mode::empty())?;
    let mut names: Vec<CString> = Vec::new();
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    names.sort_unstable();
    // A directory that changes while it is read may show a name twice.
    names.dedup();
    let look = |name: CString| {
        let full = path.join(OsStr::from_bytes(name.to_bytes()));
        let stat = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW);
        let meta = stat
            .map_err(Trouble::from)
            .and_then(|stat| attributes(source, (&dir, &name), &full, &stat));
        let holes = match &meta {
            Ok(meta) if meta.kind == Kind::File && meta.allocated < meta.size => {
                let open = source.open(&full);
                Some(open.and_then(|file| source.data(&file, meta)))
            }
            _ => None,
        };
        Found { name: name.into_bytes(), meta, holes }
    };
    Ok(names.into_iter().map(look).collect())
}
