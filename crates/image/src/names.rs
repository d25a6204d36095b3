//! Looks up and removes names of a volume.

use super::image_sink::ImageDir;
use super::listing::sorted;
use super::{EntryError, Result};
use nextent::inodes::{Attr, InodeNo, Inodes};
use nextent::{Cred, Error, FileType};

/// The file `name` in `parent`, if there is one.
pub(super) fn find(
    volume: &Inodes,
    cred: &Cred,
    parent: ImageDir,
    name: &[u8],
) -> Result<Option<Attr>> {
    match volume.lookup(cred, parent.0, name) {
        Ok(attr) => Ok(Some(attr)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The directory that `target` leads to from `parent`; an absolute path starts at the image's root.
pub(super) fn follow(
    volume: &Inodes,
    cred: &Cred,
    parent: ImageDir,
    target: &[u8],
) -> Result<ImageDir> {
    let shown = target.escape_ascii();
    match volume.resolve_from(cred, parent.0, target, true) {
        Ok(attr) if attr.kind == FileType::Directory => Ok(ImageDir(attr.ino)),
        Ok(_) => {
            Err(EntryError::new(format!("lies below a link to {shown}, which is no directory")))
        }
        Err(error) => Err(EntryError::from(error).mild().at(&format!("below a link to {shown}"))),
    }
}

/// Removes `name`, which is of `kind`.
pub(super) fn remove(
    volume: &Inodes,
    cred: &Cred,
    parent: ImageDir,
    name: &[u8],
    kind: FileType,
) -> Result<()> {
    match kind {
        FileType::Directory => match volume.rmdir(cred, parent.0, name) {
            Err(Error::NotEmpty) => {
                Err(EntryError::new("cannot replace a directory that is not empty"))
            }
            done => Ok(done?),
        },
        _ => Ok(volume.unlink(cred, parent.0, name)?),
    }
}

/// Removes `entry` of `parent` and all that is below it; `removed` gets each directory. Keeps its
/// own stack: a tree may be deeper than a thread's.
///
/// # Errors
/// What was removed before the error stays removed.
pub(super) fn remove_tree(
    volume: &Inodes,
    cred: &Cred,
    (parent, entry): (ImageDir, &[u8]),
    removed: &mut dyn FnMut(InodeNo),
) -> Result<()> {
    let found = volume.lookup(cred, parent.0, entry)?;
    if found.kind != FileType::Directory {
        return Ok(volume.unlink(cred, parent.0, entry)?);
    }
    let mut levels = vec![(parent.0, entry.to_vec(), found.ino, sorted(volume, found.ino)?)];
    while let Some((above, name, dir, entries)) = levels.last_mut() {
        let Some(entry) = entries.pop() else {
            volume.rmdir(cred, *above, name)?;
            removed(*dir);
            levels.pop();
            continue;
        };
        let dir = *dir;
        match volume.lookup(cred, dir, &entry.name)?.kind {
            FileType::Directory => {
                let below = sorted(volume, entry.ino)?;
                levels.push((dir, entry.name, entry.ino, below));
            }
            _ => volume.unlink(cred, dir, &entry.name)?,
        }
    }
    Ok(())
}
