//! `chmod`.

use super::each::each;
use super::symbolic::Change;
use super::walk::all;
use crate::args::Chmod;
use crate::failure::{Failure, Result};
use crate::image::{at, cred, umask};
use crate::scope::Scope;
use nextent::FileType;
use nextent::inodes::SetAttr;

/// `nextent chmod`.
pub(crate) fn chmod(args: &Chmod, scope: Scope<'_>) -> Result<()> {
    let change = Change::parse(&args.mode)
        .ok_or_else(|| Failure::usage(format!("chmod: `{}` is not a mode", args.mode)))?;
    let umask = umask();
    each(scope, &args.paths.paths, |volume, inside| {
        let attr = at("chmod", inside, volume.resolve(&cred(), &inside.path, true))?;
        all(volume, "chmod", (inside, attr), args.recursive, &mut |inside, attr| {
            if attr.kind == FileType::Symlink {
                return Ok(());
            }
            let mode = change.apply(attr.mode, attr.kind == FileType::Directory, umask);
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            at("chmod", inside, volume.setattr(&cred(), attr.ino, &set)).map(drop)
        })
    })
}
