//! `ln`.

use crate::args::Ln;
use crate::failure::{Failure, Result};
use crate::image::{at, cred};
use crate::location::Inside;
use crate::scope::Scope;
use nextent::inodes::{InodeNo, Inodes};
use nextent::{Error, FileType};
use std::os::unix::ffi::OsStrExt;

/// `nextent ln`.
pub(crate) fn ln(args: &Ln, scope: Scope<'_>) -> Result<()> {
    let link = scope.inside(&args.link)?;
    if args.symbolic {
        return scope.change(&link, |volume| {
            let text = args.target.as_bytes();
            let base = last_name(text);
            let (parent, name) = place(volume, &link, base)?;
            at("ln", &link, volume.symlink(&cred(), parent, &name, text)).map(drop)
        });
    }
    let target = scope.inside(&args.target)?;
    if !target.same_image(&link.image) {
        return Err(Failure::usage(format!("ln {link}: {target} is in another image")));
    }
    scope.change(&link, |volume| {
        let attr = at("ln", &target, volume.resolve(&cred(), &target.path, false))?;
        let base = last_name(&target.path);
        let (parent, name) = place(volume, &link, base)?;
        at("ln", &link, volume.link(&cred(), attr.ino, parent, &name)).map(drop)
    })
}

/// The last name of a path, without slashes after it.
fn last_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    path[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Directory and name of the new link: in `link` if that is a directory, else `link` itself.
fn place(volume: &Inodes, link: &Inside, base: &[u8]) -> Result<(InodeNo, Vec<u8>)> {
    match volume.resolve(&cred(), &link.path, true) {
        Ok(attr) if attr.kind == FileType::Directory => Ok((attr.ino, base.to_vec())),
        // A path with a slash at its end names a directory, and a link is none.
        _ if link.path.ends_with(b"/") => at("ln", link, Err(Error::NotDir)),
        _ => {
            let parent = volume.resolve_parent(&cred(), &link.path);
            at("ln", link, parent).map(|(dir, name)| (dir, name.to_vec()))
        }
    }
}
