//! The files of an image layout, in a directory or a tar file.

use super::{LayoutError, Result, damaged};
use crate::tar_path::clean;
use nextent_num::{to_u64, to_usize};
use nextent_sync::Arc;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of the buffer for reading.
const BUFFER: usize = 1 << 20;
/// The most files of an archive.
const MEMBERS_MAX: usize = 100_000;
/// The most links to follow.
const LINKS_MAX: usize = 8;

pub(super) enum Store {
    Directory(PathBuf),
    Archive { file: Arc<File>, members: HashMap<String, Member> },
}

/// A file of an archive.
pub(super) enum Member {
    /// Its bytes.
    File { start: u64, len: u64 },
    /// The name of another.
    Link(String),
}

impl Store {
    /// The files at `path`.
    pub(super) fn at(path: &Path) -> Result<Self> {
        let io = |source| LayoutError::Io { name: crate::escape::path(path), source };
        if std::fs::metadata(path).map_err(io)?.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        let file = File::open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            let text = "an archive of layers must be a file, not a stream";
            return Err(io(io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let members = members(&file).map_err(io)?;
        Ok(Self::Archive { file: Arc::new(file), members })
    }

    /// Whether there is a file of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::Directory(dir) => dir.join(name).is_file(),
            Self::Archive { .. } => self.resolve(name).is_ok(),
        }
    }

    /// The name of the file that a link of an archive leads to.
    pub(super) fn resolve(&self, name: &str) -> Result<String> {
        let missing = || damaged(name, "there is no such file");
        let clean_name = |name: &str| {
            let clean = clean(name.as_bytes()).ok()?;
            String::from_utf8(clean).ok()
        };
        let mut name = clean_name(name).ok_or_else(missing)?;
        let Self::Archive { members, .. } = self else { return Ok(name) };
        for _ in 0..LINKS_MAX {
            match members.get(&name).ok_or_else(missing)? {
                Member::File { .. } => return Ok(name),
                Member::Link(target) => name = target.clone(),
            }
        }
        Err(damaged(&name, "links lead in a circle"))
    }

    /// Opens a file for reading.
    pub(super) fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        match self {
            Self::Directory(dir) => {
                let file = File::open(dir.join(name))?;
                Ok(Box::new(BufReader::with_capacity(BUFFER, file)))
            }
            Self::Archive { file, members } => match members.get(name) {
                Some(Member::File { start, len }) => {
                    let part = Part { file: Arc::clone(file), at: *start, end: start + len };
                    Ok(Box::new(BufReader::with_capacity(BUFFER, part)))
                }
                _ => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }
}

/// The files of a tar archive, by name.
fn members(file: &File) -> io::Result<HashMap<String, Member>> {
    let mut members = HashMap::new();
    for entry in tar::Archive::new(file).entries_with_seek()? {
        let entry = entry?;
        if members.len() > MEMBERS_MAX {
            let text = "more files than an image has";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let name_of = |path: &[u8]| String::from_utf8(clean(path).ok()?).ok();
        let Some(name) = name_of(&entry.path_bytes()) else { continue };
        let kind = entry.header().entry_type();
        if kind.is_file() {
            let (start, len) = (entry.raw_file_position(), entry.size());
            members.insert(name, Member::File { start, len });
        } else if kind.is_symlink() || kind.is_hard_link() {
            let target = entry.link_name_bytes().unwrap_or_default();
            // The target of a symbolic link begins at the directory that has it.
            let (above, _) = crate::tar_path::split(name.as_bytes());
            let below = match kind.is_symlink() && !target.starts_with(b"/") {
                true => [above, b"/", &target].concat(),
                false => target.to_vec(),
            };
            members.extend(resolve_dots(&below).map(|target| (name, Member::Link(target))));
        }
    }
    Ok(members)
}

/// A path without `..`, which never leaves the archive.
fn resolve_dots(path: &[u8]) -> Option<String> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    String::from_utf8(parts.join(&b'/')).ok()
}

/// A part of a file.
struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = to_usize((self.end - self.at).min(to_u64(buf.len())));
        let read = self.file.read_at(&mut buf[..len], self.at)?;
        self.at += to_u64(read);
        Ok(read)
    }
}
