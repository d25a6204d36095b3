//! Lists a tree with all attributes, as lines for comparison.

use super::exceptions;
use rustix::fs::{lgetxattr, llistxattr};
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The most differences that are shown of a tree.
const SHOWN: usize = 5;

/// The optional parts of a listing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look<'a> {
    /// Times in this range are those of the run, and shown as such only.
    pub(super) now: &'a RangeInclusive<i64>,
    pub(super) access_times: bool,
}

/// One line for each path of the tree at `top`.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn list(top: &Path, look: Look<'_>) -> io::Result<BTreeMap<String, String>> {
    let mut lines = BTreeMap::new();
    // Each inode is named by its first path.
    let mut first: BTreeMap<(u64, u64), String> = BTreeMap::new();
    let mut todo = vec![top.to_owned()];
    let mut found = Vec::new();
    while let Some(path) = todo.pop() {
        let meta = path.symlink_metadata()?;
        if meta.is_dir() {
            let below = fs::read_dir(&path)?.map(|entry| Ok(entry?.path()));
            let below = below.collect::<io::Result<Vec<_>>>()?;
            // This program does not copy an empty one: each file system has its own.
            if below.is_empty() && path.ends_with("lost+found") {
                continue;
            }
            todo.extend(below);
        }
        found.push((path, meta));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    for (path, meta) in found {
        let name = path.strip_prefix(top).expect("it lies below");
        let name = format!("./{}", name.as_os_str().as_bytes().escape_ascii());
        let mut line = describe(&path, &meta, look)?;
        if !meta.is_dir() {
            let same = first.entry((meta.dev(), meta.ino())).or_insert_with(|| name.clone());
            if *same != name {
                line += &format!(" is {same}");
            }
        }
        lines.insert(name, line);
    }
    Ok(lines)
}

fn describe(path: &PathBuf, meta: &Metadata, look: Look<'_>) -> io::Result<String> {
    let kind = meta.file_type();
    let rdev = format!("{:x}", meta.rdev());
    let kind = match () {
        () if kind.is_dir() => "dir".to_owned(),
        () if kind.is_file() => format!("file {} {:016x}", meta.size(), hash(path)?),
        () if kind.is_symlink() => {
            format!("link {}", fs::read_link(path)?.as_os_str().as_bytes().escape_ascii())
        }
        () if kind.is_fifo() => "fifo".to_owned(),
        () if kind.is_socket() => "socket".to_owned(),
        () if kind.is_char_device() => format!("char {rdev}"),
        () => format!("block {rdev}"),
    };
    let time = |seconds, nanos| match look.now.contains(&seconds) {
        true => "now".to_owned(),
        false => format!("{seconds}.{nanos:09}"),
    };
    let mut line = format!(
        "{kind} mode={:o} owner={}:{} mtime={}",
        meta.mode() & 0o7777,
        meta.uid(),
        meta.gid(),
        time(meta.mtime(), meta.mtime_nsec()),
    );
    if !meta.is_dir() {
        line += &format!(" links={}", meta.nlink());
    }
    if look.access_times {
        line += &format!(" atime={}", time(meta.atime(), meta.atime_nsec()));
    }
    for (name, value) in xattrs(path)? {
        line += &format!(" {name}={}", value.escape_ascii());
    }
    Ok(line)
}

fn xattrs(path: &PathBuf) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut names = vec![0; 65_536];
    let len = llistxattr(path, &mut names[..])?;
    let mut all = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65_536];
        let len = lgetxattr(path, name, &mut value[..])?;
        value.truncate(len);
        all.insert(name.escape_ascii().to_string(), value);
    }
    Ok(all)
}

fn hash(path: &Path) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    let (mut file, mut buf) = (fs::File::open(path)?, vec![0; 1 << 20]);
    loop {
        // Fill the buffer, so that the sum does not depend on the length of reads.
        let mut got = 0;
        while got < buf.len() {
            match file.read(&mut buf[got..])? {
                0 => break,
                more => got += more,
            }
        }
        hasher.write(&buf[..got]);
        if got < buf.len() {
            return Ok(hasher.finish());
        }
    }
}

/// The first lines in which two trees differ. `preserves`: a command kept attributes.
pub(super) fn differences(
    theirs: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
    preserves: bool,
) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    let differs = names.into_iter().filter(|name| match (theirs.get(*name), ours.get(*name)) {
        (Some(theirs), Some(ours)) if preserves => {
            theirs != ours && !exceptions::of_lines(theirs, ours)
        }
        (Some(theirs), Some(ours)) => theirs != ours && !exceptions::of_new_dirs(theirs, ours),
        (theirs, ours) => theirs != ours,
    });
    let show = |name: &String| {
        let text = |side: Option<&String>| side.map_or("missing", String::as_str).to_owned();
        let (theirs, ours) = (text(theirs.get(name)), text(ours.get(name)));
        format!("  {name}\n    theirs: {theirs}\n    ours:   {ours}")
    };
    differs.map(show).take(SHOWN).collect()
}
