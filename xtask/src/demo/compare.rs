//! Compares two trees or two files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The result of a comparison.
#[derive(Default)]
pub(super) struct Found {
    /// Compared files of the left side.
    pub(super) files: usize,
    /// A line for each difference.
    pub(super) differences: Vec<String>,
}

/// Compares names, types, modes, link counts, times, targets and bytes.
pub(super) fn trees(left: &Path, right: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    dirs(left, right, &mut found)?;
    Ok(found)
}

fn names(dir: &Path) -> io::Result<BTreeSet<OsString>> {
    let all: io::Result<BTreeSet<OsString>> =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect();
    let mut all = all?;
    // Every ext4 image has its own.
    all.remove(&OsString::from("lost+found"));
    Ok(all)
}

fn dirs(left: &Path, right: &Path, found: &mut Found) -> io::Result<()> {
    let (a, b) = (names(left)?, names(right)?);
    for name in a.symmetric_difference(&b) {
        found.differences.push(format!("{}: on one side only", left.join(name).display()));
    }
    for name in a.intersection(&b) {
        let (a, b) = (left.join(name), right.join(name));
        found.files += 1;
        if let Some(what) = differs(&a, &b)? {
            found.differences.push(format!("{}: {what}", a.display()));
        } else if fs::symlink_metadata(&a)?.is_dir() {
            dirs(&a, &b, found)?;
        }
    }
    Ok(())
}

/// The first difference between two files, if there is one.
fn differs(left: &Path, right: &Path) -> io::Result<Option<&'static str>> {
    let (a, b) = (fs::symlink_metadata(left)?, fs::symlink_metadata(right)?);
    if a.mode() != b.mode() {
        return Ok(Some("type or mode"));
    }
    if (a.mtime(), a.mtime_nsec()) != (b.mtime(), b.mtime_nsec()) {
        return Ok(Some("time"));
    }
    if a.is_symlink() && fs::read_link(left)? != fs::read_link(right)? {
        return Ok(Some("target"));
    }
    if a.is_file() && (a.len() != b.len() || a.nlink() != b.nlink()) {
        return Ok(Some("length or links"));
    }
    if a.is_file() && !same_bytes(left, right)? {
        return Ok(Some("bytes"));
    }
    Ok(None)
}

pub(super) fn same_bytes(left: &Path, right: &Path) -> io::Result<bool> {
    let (mut a, mut b) = (File::open(left)?, File::open(right)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let read = a.read(&mut left)?;
        b.read_exact(&mut right[..read])?;
        if read == 0 {
            return Ok(true);
        }
        if left[..read] != right[..read] {
            return Ok(false);
        }
    }
}
