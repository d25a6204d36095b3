//! `rm`.

use super::each::each;
use super::walk::{Visit, When, walk};
use crate::args::Rm;
use crate::failure::{Failure, Result};
use crate::image::{at, cred};
use crate::scope::Scope;
use nextent::inodes::{Attr, Inodes};
use nextent::{Error, FileType};

/// What `path` names. A link in a circle with a slash behind it is no directory, as with rm(1).
fn resolve(volume: &Inodes, path: &[u8]) -> nextent::Result<Attr> {
    let found = volume.resolve(&cred(), path, false);
    if matches!(found, Err(Error::Loop)) && path.ends_with(b"/") {
        let (parent, name) = volume.resolve_parent(&cred(), path)?;
        volume.lookup(&cred(), parent, name)?;
        return Err(Error::NotDir);
    }
    found
}

/// `nextent rm`.
pub(crate) fn rm(args: &Rm, scope: Scope<'_>) -> Result<()> {
    each(scope, &args.paths.paths, |volume, inside| {
        let attr = match resolve(volume, &inside.path) {
            Err(Error::NotFound | Error::NotDir) if args.force => return Ok(()),
            found => at("rm", inside, found)?,
        };
        if attr.ino == nextent::inodes::ROOT_INO {
            return Err(Failure::new(format!("rm {inside}: is the root directory")));
        }
        let (parent, name) = at("rm", inside, volume.resolve_parent(&cred(), &inside.path))?;
        if matches!(name, b"." | b"..") {
            return Err(Failure::new(format!("rm {inside}: `.` and `..` cannot be removed")));
        }
        if attr.kind != FileType::Directory {
            return at("rm", inside, volume.unlink(&cred(), parent, name));
        }
        if args.dir && !args.recursive {
            return at("rm", inside, volume.rmdir(&cred(), parent, name));
        }
        if !args.recursive {
            return Err(Failure::new(format!("rm {inside}: is a directory; use -r")));
        }
        walk(volume, "rm", (inside, attr), &mut |visit: &Visit<'_>| {
            let (dir, name) = visit.entry.unwrap_or((parent, name));
            let removed = match visit.when {
                When::Before => return Ok(()),
                When::After => volume.rmdir(&cred(), dir, name),
                When::Once => volume.unlink(&cred(), dir, name),
            };
            match removed {
                // A link with a slash after it: its directory was emptied, the link stays.
                Err(Error::NotDir) if args.force && visit.entry.is_none() => Ok(()),
                removed => at("rm", visit.path, removed),
            }
        })
    })
}
