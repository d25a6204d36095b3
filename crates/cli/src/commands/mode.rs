//! `chmod`, and walking trees for it and `chown`.

use super::each::each;
use super::list::entries;
use super::symbolic::Change;
use crate::args::Chmod;
use crate::failure::{Failure, Result};
use crate::image::{at, cred, umask};
use crate::location::Inside;
use nextent::{Attr, FileType, SetAttr, Volume};

/// `nextent chmod`.
pub(crate) fn chmod(args: &Chmod) -> Result<()> {
    let change = Change::parse(&args.mode)
        .ok_or_else(|| Failure::usage(format!("chmod: `{}` is not a mode", args.mode)))?;
    let umask = umask();
    each(&args.paths.paths, |volume, inside| {
        let attr = at("chmod", inside, volume.resolve(&cred(), &inside.path, true))?;
        walk(volume, inside, attr, args.recursive, &mut |inside, attr| {
            if attr.kind == FileType::Symlink {
                return Ok(());
            }
            let mode = change.apply(attr.mode, attr.kind == FileType::Directory, umask);
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            at("chmod", inside, volume.setattr(&cred(), attr.ino, &set)).map(drop)
        })
    })
}

/// Calls `each` for an inode and, if asked, for all below it.
pub(super) fn walk(
    volume: &Volume,
    inside: &Inside,
    attr: Attr,
    recursive: bool,
    each: &mut dyn FnMut(&Inside, &Attr) -> Result<()>,
) -> Result<()> {
    let mut todo = vec![(inside.clone(), attr)];
    while let Some((inside, attr)) = todo.pop() {
        if recursive && attr.kind == FileType::Directory {
            for entry in at("list", &inside, entries(volume, attr.ino))? {
                let below = inside.join(&entry.name);
                let attr = at("stat", &below, volume.getattr_listed(attr.ino, entry.ino))?;
                todo.push((below, attr));
            }
        }
        each(&inside, &attr)?;
    }
    Ok(())
}
