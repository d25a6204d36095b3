//! A step of the table, on a volume and on the host.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nextent::{FileOptions, Permissions, Volume};

/// The result of a step: text to compare, or an error number.
pub(crate) type Outcome = Result<String, i32>;

/// Options of an open: the letters `rwatcn` for read, write, append, truncate, create and
/// create_new.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMode(pub(crate) &'static str);

impl OpenMode {
    fn has(self, letter: char) -> bool {
        self.0.contains(letter)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Write(&'static str, &'static str),
    Read(&'static str),
    /// Opens, writes and reads what the options allow.
    Open(&'static str, OpenMode),
    ReadDir(&'static str),
    Metadata(&'static str),
    SymlinkMetadata(&'static str),
    Exists(&'static str),
    CreateDir(&'static str),
    CreateDirAll(&'static str),
    RemoveFile(&'static str),
    RemoveDir(&'static str),
    RemoveDirAll(&'static str),
    Rename(&'static str, &'static str),
    HardLink(&'static str, &'static str),
    Symlink(&'static str, &'static str),
    ReadLink(&'static str),
    Chmod(&'static str, u32),
    Copy(&'static str, &'static str),
    Canonicalize(&'static str),
    /// All files path_below a directory.
    Tree(&'static str),
}

fn number(error: &io::Error) -> i32 {
    // The standard library itself refuses some arguments, without an error number.
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::InvalidData => libc::EILSEQ,
        _ => -1,
    })
}

/// A regular file's type, permission bits, length and link count. For other files only type and
/// bits, because the rest depends on the file system.
fn metadata_text(dir: bool, link: bool, mode: u32, len: u64, names: u64) -> String {
    match (dir, link) {
        (false, false) => format!("file {mode:o} {len} {names}"),
        (true, _) => format!("directory {mode:o}"),
        (_, true) => format!("link {len}"),
    }
}

/// Writes and reads an open file.
fn exercise(mut file: impl Read + Write + Seek) -> io::Result<String> {
    let mut text = String::new();
    for part in ["one", "two"] {
        match file.write(part.as_bytes()) {
            Ok(len) => text += &format!("wrote {len}, "),
            Err(error) => text += &format!("error {}, ", number(&error)),
        }
    }
    text += &format!("at {}, ", file.stream_position()?);
    text += &format!(
        "end {}, ",
        file.seek(SeekFrom::End(-1)).map_or_else(|e| -number(&e) as i64, |at| at as i64)
    );
    file.seek(SeekFrom::Start(1))?;
    let mut bytes = Vec::new();
    match file.read_to_end(&mut bytes) {
        Ok(_) => text += &String::from_utf8_lossy(&bytes),
        Err(error) => text += &format!("error {}", number(&error)),
    }
    Ok(text)
}

impl Step {
    pub(crate) fn on_volume(&self, volume: &Volume) -> Outcome {
        self.ours(volume).map_err(|error| number(&error))
    }

    pub(crate) fn on_host(&self, root: &Path) -> Outcome {
        self.theirs(root).map_err(|error| number(&error))
    }

    fn ours(&self, v: &Volume) -> io::Result<String> {
        let none = |()| String::new();
        let metadata = |found: nextent::Metadata| {
            let mode = found.permissions().mode();
            metadata_text(found.is_dir(), found.is_symlink(), mode, found.len(), found.nlink())
        };
        Ok(match *self {
            Self::Write(path, text) => none(v.write(path, text)?),
            Self::Read(path) => v.read_to_string(path)?,
            Self::Open(path, how) => {
                let file = FileOptions::new()
                    .read(how.has('r'))
                    .write(how.has('w'))
                    .append(how.has('a'))
                    .truncate(how.has('t'))
                    .create(how.has('c'))
                    .create_new(how.has('n'))
                    .open(v, path)?;
                exercise(&file)?
            }
            Self::ReadDir(path) => {
                let name = |entry: nextent::Result<nextent::DirEntry>| {
                    let entry = entry?;
                    let kind = entry.file_type()?;
                    Ok(format!("{:?} {} {}", entry.file_name(), kind.is_dir(), kind.is_symlink()))
                };
                sorted(v.read_dir(path)?.map(name).collect::<nextent::Result<_>>()?)
            }
            Self::Metadata(path) => metadata(v.metadata(path)?),
            Self::SymlinkMetadata(path) => metadata(v.symlink_metadata(path)?),
            Self::Exists(path) => v.exists(path)?.to_string(),
            Self::CreateDir(path) => none(v.create_dir(path)?),
            Self::CreateDirAll(path) => none(v.create_dir_all(path)?),
            Self::RemoveFile(path) => none(v.remove_file(path)?),
            Self::RemoveDir(path) => none(v.remove_dir(path)?),
            Self::RemoveDirAll(path) => none(v.remove_dir_all(path)?),
            Self::Rename(from, to) => none(v.rename(from, to)?),
            Self::HardLink(from, to) => none(v.hard_link(from, to)?),
            Self::Symlink(target, path) => none(v.symlink(target, path)?),
            Self::ReadLink(path) => v.read_link(path)?.display().to_string(),
            Self::Chmod(path, mode) => none(v.set_permissions(path, Permissions::from_mode(mode))?),
            Self::Copy(from, to) => v.copy(from, to)?.to_string(),
            Self::Canonicalize(path) => v.canonicalize(path)?.display().to_string(),
            Self::Tree(path) => {
                let mut lines = Vec::new();
                our_tree(v, Path::new(path), &mut lines)?;
                sorted(lines)
            }
        })
    }

    fn theirs(&self, root: &Path) -> io::Result<String> {
        let none = |()| String::new();
        let at = |path: &str| PathBuf::from(format!("{}{path}", root.display()));
        let metadata = |found: fs::Metadata| {
            let mode = found.permissions().mode() & 0o7777;
            metadata_text(found.is_dir(), found.is_symlink(), mode, found.len(), found.nlink())
        };
        Ok(match *self {
            Self::Write(path, text) => none(fs::write(at(path), text)?),
            Self::Read(path) => fs::read_to_string(at(path))?,
            Self::Open(path, how) => {
                let file = fs::OpenOptions::new()
                    .read(how.has('r'))
                    .write(how.has('w'))
                    .append(how.has('a'))
                    .truncate(how.has('t'))
                    .create(how.has('c'))
                    .create_new(how.has('n'))
                    .open(at(path))?;
                exercise(&file)?
            }
            Self::ReadDir(path) => {
                let name = |entry: io::Result<fs::DirEntry>| {
                    let entry = entry?;
                    let kind = entry.file_type()?;
                    Ok(format!("{:?} {} {}", entry.file_name(), kind.is_dir(), kind.is_symlink()))
                };
                sorted(fs::read_dir(at(path))?.map(name).collect::<io::Result<_>>()?)
            }
            Self::Metadata(path) => metadata(fs::metadata(at(path))?),
            Self::SymlinkMetadata(path) => metadata(fs::symlink_metadata(at(path))?),
            Self::Exists(path) => fs::exists(at(path))?.to_string(),
            Self::CreateDir(path) => none(fs::create_dir(at(path))?),
            Self::CreateDirAll(path) => none(fs::create_dir_all(at(path))?),
            Self::RemoveFile(path) => none(fs::remove_file(at(path))?),
            Self::RemoveDir(path) => none(fs::remove_dir(at(path))?),
            Self::RemoveDirAll(path) => none(fs::remove_dir_all(at(path))?),
            Self::Rename(from, to) => none(fs::rename(at(from), at(to))?),
            Self::HardLink(from, to) => none(fs::hard_link(at(from), at(to))?),
            Self::Symlink(target, path) => none(std::os::unix::fs::symlink(target, at(path))?),
            Self::ReadLink(path) => fs::read_link(at(path))?.display().to_string(),
            Self::Chmod(path, mode) => {
                none(fs::set_permissions(at(path), fs::Permissions::from_mode(mode))?)
            }
            Self::Copy(from, to) => fs::copy(at(from), at(to))?.to_string(),
            Self::Canonicalize(path) => path_below(root, &fs::canonicalize(at(path))?),
            Self::Tree(path) => {
                let mut lines = Vec::new();
                their_tree(root, &at(path), &mut lines)?;
                sorted(lines)
            }
        })
    }
}

fn sorted(mut lines: Vec<String>) -> String {
    lines.sort();
    lines.join("\n")
}

/// The path in the volume for a path of the host.
fn path_below(root: &Path, path: &Path) -> String {
    let root = fs::canonicalize(root).expect("the directory exists");
    let path = path.strip_prefix(root).expect("a path in the directory");
    Path::new("/").join(path).display().to_string()
}

fn our_tree(volume: &Volume, dir: &Path, lines: &mut Vec<String>) -> nextent::Result<()> {
    for entry in volume.read_dir(dir)? {
        let path = entry?.path();
        let found = volume.symlink_metadata(&path)?;
        let mode = found.permissions().mode();
        let text =
            metadata_text(found.is_dir(), found.is_symlink(), mode, found.len(), found.nlink());
        lines.push(format!("{} {text}", path.display()));
        if found.is_dir() {
            our_tree(volume, &path, lines)?;
        }
    }
    Ok(())
}

fn their_tree(root: &Path, dir: &Path, lines: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let found = fs::symlink_metadata(&path)?;
        let mode = found.permissions().mode() & 0o7777;
        let text =
            metadata_text(found.is_dir(), found.is_symlink(), mode, found.len(), found.nlink());
        let name = path.strip_prefix(root).expect("a path in the directory");
        lines.push(format!("{} {text}", Path::new("/").join(name).display()));
        if found.is_dir() {
            their_tree(root, &path, lines)?;
        }
    }
    Ok(())
}
