//! Removes entries of the image and all below them.

use crate::listing::{ListedEntry, sorted};
use crate::trail::Trail;
use nextent::inodes::{InodeNo, Inodes};
use nextent::{Cred, Error, FileType};
use nextent_sync::Arc;

/// A directory that is being emptied.
struct Level {
    parent: InodeNo,
    ino: InodeNo,
    trail: Arc<Trail>,
    name: Vec<u8>,
    rest: Vec<ListedEntry>,
}

/// Removes the entry `name` of the directory `parent`, which is `ino`, and all below it; in a dry
/// run only names it. Calls `gone` for each entry, a directory after its entries. Keeps its own
/// stack: a tree may be deeper than a thread's.
///
/// # Errors
/// The entry that could not be removed. What was removed before stays removed.
pub(super) fn remove_tree(
    volume: &Inodes,
    cred: &Cred,
    (parent, name, ino): (InodeNo, &[u8], InodeNo),
    trail: &Arc<Trail>,
    dry: bool,
    gone: &mut dyn FnMut(&Arc<Trail>, FileType),
) -> Result<(), (Arc<Trail>, Error)> {
    let mut levels: Vec<Level> = Vec::new();
    let mut next = Some((parent, name.to_vec(), ino, Arc::clone(trail)));
    loop {
        if let Some((parent, name, ino, trail)) = next.take() {
            let failed = |error| (Arc::clone(&trail), error);
            let kind = volume.getattr_listed(parent, ino).map_err(failed)?.kind;
            if kind == FileType::Directory {
                // In a damaged image a directory may contain itself.
                if levels.iter().any(|level| level.ino == ino) {
                    return Err((trail, Error::Loop));
                }
                let rest = sorted(volume, ino).map_err(failed)?;
                levels.push(Level { parent, ino, trail, name, rest });
            } else {
                if !dry {
                    volume.unlink(cred, parent, &name).map_err(failed)?;
                }
                gone(&trail, kind);
            }
        }
        let Some(level) = levels.last_mut() else { return Ok(()) };
        match level.rest.pop() {
            Some(entry) => {
                let trail = Trail::below(&level.trail, &entry.name);
                next = Some((level.ino, entry.name, entry.ino, trail));
            }
            None => {
                let Level { parent, trail, name, .. } = levels.pop().expect("it was the last");
                if !dry {
                    let removed = volume.rmdir(cred, parent, &name);
                    removed.map_err(|error| (Arc::clone(&trail), error))?;
                }
                gone(&trail, FileType::Directory);
            }
        }
    }
}
