//! What a volume gets after it was filled: the entries of a device table, and the attributes of
//! `lost+found`, which no source need have.
//!
//! Names are looked up one component at a time, and links are not followed: a line of a table
//! cannot reach another file than the one it names. A directory that gets an entry keeps its times.

use super::Attributes;
use super::device_table::{DeviceTable, TableLine};
use super::list_file::{AttributesError, shown};
use crate::apply::{apply_without_times, set_xattrs};
use crate::entry::{FileId, Kind, Meta};
use crate::image_sink::{ImageDir, make_dir, make_special};
use crate::names::find;
use crate::tar_path::split;
use crate::{BuildError, EntryError, Result};
use nextent::inodes::{Attr, Inodes, ROOT_INO, SetAttr, SetTime, XattrMode};
use nextent::{Cred, Error, FileType};
use nextent_num::to_u64;

/// The directory that every new volume has.
const LOST_FOUND: &[u8] = b"lost+found";
/// Linux removes it when the owner changes; an image that is built keeps it.
const CAPABILITY: &[u8] = b"security.capability";

impl Attributes {
    /// Whether [`finish`](Self::finish) has anything to do.
    pub(crate) fn needs_finish(&self) -> bool {
        self.table.is_some() || self.needs_path()
    }

    /// The most blocks and inodes that [`finish`](Self::finish) adds. Each line may add a directory
    /// and a block to its parent, which holds at least three names. A label may need a block.
    pub(crate) fn most_added(&self) -> (u64, u64) {
        let label = u64::from(self.needs_path());
        let lines = self.table.iter().flat_map(|table| &table.lines);
        let counts = lines.map(|line| to_u64(line.entries().count()));
        counts.fold((label, 0), |(blocks, inodes), count| {
            (blocks + 2 + count / 3 + label * count, inodes + count)
        })
    }

    /// Changes the filled `volume`.
    pub(crate) fn finish(&self, volume: &Inodes) -> std::result::Result<(), BuildError> {
        let it = Finishing { attributes: self, volume, cred: Cred::root() };
        if self.needs_path() {
            it.lost_found().map_err(BuildError::LostFound)?;
        }
        if let Some(table) = &self.table {
            it.table(table)?;
        }
        Ok(())
    }
}

struct Finishing<'a> {
    attributes: &'a Attributes,
    volume: &'a Inodes,
    cred: Cred,
}

impl Finishing<'_> {
    fn lost_found(&self) -> Result<()> {
        let root = ImageDir(ROOT_INO);
        let Some(attr) = find(self.volume, &self.cred, root, LOST_FOUND)? else { return Ok(()) };
        if attr.kind != FileType::Directory {
            return Ok(());
        }
        let mut meta = meta(Kind::Dir, attr.mode, attr.uid, attr.gid);
        self.attributes.apply_by_path(b"/lost+found", &mut meta);
        let set = SetAttr {
            mode: (meta.mode != attr.mode).then_some(meta.mode),
            uid: (meta.uid != attr.uid).then_some(meta.uid),
            gid: (meta.gid != attr.gid).then_some(meta.gid),
            ..SetAttr::default()
        };
        if set != SetAttr::default() {
            self.volume.setattr(&self.cred, attr.ino, &set)?;
        }
        set_xattrs(self.volume, &self.cred, attr.ino, &meta)
    }

    fn table(&self, table: &DeviceTable) -> std::result::Result<(), AttributesError> {
        for line in &table.lines {
            for (path, kind) in line.entries() {
                self.entry(line, &path, kind).map_err(|error| AttributesError::Line {
                    path: table.path.clone(),
                    line: line.line,
                    text: format!("{}: {error}", shown(&path)),
                })?;
            }
        }
        Ok(())
    }

    /// Changes or makes the entry at `path`.
    fn entry(&self, line: &TableLine, path: &[u8], kind: Option<Kind>) -> Result<()> {
        let inside = &path[1..];
        if inside.is_empty() {
            return self.change(line, kind.as_ref(), &self.volume.getattr(ROOT_INO)?);
        }
        let (above, name) = split(inside);
        let dir = self.directory(above)?;
        match find(self.volume, &self.cred, dir, name)? {
            Some(old) => self.change(line, kind.as_ref(), &old),
            None => match kind {
                Some(kind) => self.make(line, dir, (path, name), kind),
                None => Err(EntryError::new(format!(
                    "does not exist, and a table makes no {}",
                    type_name(line.kind)
                ))),
            },
        }
    }

    /// The directory at `path`.
    fn directory(&self, path: &[u8]) -> Result<ImageDir> {
        let mut dir = ImageDir(ROOT_INO);
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            dir = match find(self.volume, &self.cred, dir, name)? {
                Some(found) if found.kind == FileType::Directory => ImageDir(found.ino),
                Some(found) => {
                    let text =
                        format!("'{}' in its path is a {}", shown(name), type_name(found.kind));
                    return Err(EntryError::new(text));
                }
                None => {
                    let text = format!("there is no directory '{}'", shown(name));
                    return Err(EntryError::new(text));
                }
            };
        }
        Ok(dir)
    }

    /// Sets mode and owner of the existing file `old`.
    fn change(&self, line: &TableLine, kind: Option<&Kind>, old: &Attr) -> Result<()> {
        if old.kind != line.kind {
            let text = format!("exists as a {}", type_name(old.kind));
            return Err(EntryError::new(text));
        }
        if let Some(Kind::Char(device) | Kind::Block(device)) = kind
            && old.device != *device
        {
            let text = format!("exists as the device {}:{}", old.device.major, old.device.minor);
            return Err(EntryError::new(text));
        }
        let capability = match self.volume.getxattr(&self.cred, old.ino, CAPABILITY) {
            Ok(value) => Some(value),
            Err(Error::NoData | Error::NotSupported) => None,
            Err(error) => return Err(error.into()),
        };
        let set = SetAttr {
            mode: (old.kind != FileType::Symlink).then_some(line.mode),
            uid: Some(line.uid),
            gid: Some(line.gid),
            ..SetAttr::default()
        };
        self.volume.setattr(&self.cred, old.ino, &set)?;
        if let Some(value) = capability {
            let (volume, how) = (self.volume, XattrMode::Either);
            volume.setxattr(&self.cred, old.ino, CAPABILITY, &value, how)?;
        }
        Ok(())
    }

    /// Makes a file of `kind`.
    fn make(
        &self,
        line: &TableLine,
        dir: ImageDir,
        (path, name): (&[u8], &[u8]),
        kind: Kind,
    ) -> Result<()> {
        let times = self.volume.getattr(dir.0)?;
        let mut meta = meta(kind, line.mode, line.uid, line.gid);
        self.attributes.label(path, &mut meta);
        let place = (dir.0, name);
        let ino = match meta.kind {
            Kind::Dir => make_dir(self.volume, &self.cred, place, meta.mode & 0o777, |_| false)?.0,
            _ => make_special(self.volume, &self.cred, place, &meta, meta.mode)?.ino,
        };
        apply_without_times(self.volume, &self.cred, ino, &meta)?;
        let set = SetAttr {
            atime: Some(SetTime::At(times.atime)),
            mtime: Some(SetTime::At(times.mtime)),
            ..SetAttr::default()
        };
        self.volume.setattr(&self.cred, dir.0, &set)?;
        Ok(())
    }
}

/// Attributes of an entry without contents.
pub(super) fn meta(kind: Kind, mode: u16, uid: u32, gid: u32) -> Meta {
    Meta {
        id: FileId::default(),
        kind,
        mode,
        uid,
        gid,
        links: 1,
        size: 0,
        allocated: 0,
        atime: Default::default(),
        mtime: Default::default(),
        xattrs: Vec::new(),
        stream: false,
    }
}

/// The name of a type in messages.
fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
    }
}
