//! `rm`.

use super::each::each;
use super::list::entries;
use crate::args::Rm;
use crate::failure::{Failure, Result};
use crate::image::{at, cred};
use crate::location::Inside;
use nextent::{Error, FileType, InodeNo, Volume};

/// `nextent rm`.
pub(crate) fn rm(args: &Rm) -> Result<()> {
    each(&args.paths.paths, |volume, inside| {
        let attr = match volume.resolve(&cred(), &inside.path, false) {
            Err(Error::NotFound | Error::NotDir) if args.force => return Ok(()),
            found => at("rm", inside, found)?,
        };
        if attr.ino == nextent::ROOT_INO {
            return Err(Failure::new(format!("rm {inside}: is the root directory")));
        }
        let (parent, name) = at("rm", inside, volume.resolve_parent(&cred(), &inside.path))?;
        if attr.kind != FileType::Directory {
            return at("rm", inside, volume.unlink(&cred(), parent, name));
        }
        if !args.recursive {
            return Err(Failure::new(format!("rm {inside}: is a directory; -r removes it")));
        }
        empty(volume, inside, attr.ino)?;
        at("rm", inside, volume.rmdir(&cred(), parent, name))
    })
}

/// Removes all that is in a directory. Depth is bounded by the image's own, and
/// kept on the heap.
fn empty(volume: &Volume, inside: &Inside, dir: InodeNo) -> Result<()> {
    let mut open = vec![(inside.clone(), dir, at("rm", inside, entries(volume, dir))?)];
    while let Some((path, dir, rest)) = open.last_mut() {
        let Some(entry) = rest.pop() else {
            open.pop();
            if let Some((path, parent, rest)) = open.last_mut()
                && let Some(done) = rest.pop()
            {
                let below = path.join(&done.name);
                at("rm", &below, volume.rmdir(&cred(), *parent, &done.name))?;
            }
            continue;
        };
        let below = path.join(&entry.name);
        let attr = at("rm", &below, volume.getattr_listed(*dir, entry.ino))?;
        if attr.kind == FileType::Directory {
            let inner = at("rm", &below, entries(volume, entry.ino))?;
            // Stays in the list until what is in it is gone.
            let ino = entry.ino;
            rest.push(entry);
            open.push((below, ino, inner));
        } else {
            at("rm", &below, volume.unlink(&cred(), *dir, &entry.name))?;
        }
    }
    Ok(())
}
