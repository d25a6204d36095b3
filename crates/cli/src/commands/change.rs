//! `mkdir`, `mv` and `truncate`.

use super::each::{each, go_on};
use crate::args::{Mkdir, Mv, Truncate};
use crate::failure::{Failure, Result};
use crate::image::{Image, at, cred};
use crate::location::Inside;
use nextent::{Error, FileType, RenameMode, SetAttr, Volume};

const DIR_MODE: u16 = 0o755;
const FILE_MODE: u16 = 0o644;

/// `nextent mkdir`.
pub(crate) fn mkdir(args: &Mkdir) -> Result<()> {
    let mode = args.mode.unwrap_or(DIR_MODE);
    each(&args.paths.paths, |volume, inside| {
        if args.parents {
            return make_all(volume, inside, mode);
        }
        let made = volume
            .resolve_parent(&cred(), &inside.path)
            .and_then(|(parent, name)| volume.mkdir(&cred(), parent, name, mode));
        at("mkdir", inside, made).map(drop)
    })
}

/// Makes a directory and those above it.
pub(crate) fn make_all(volume: &Volume, inside: &Inside, mode: u16) -> Result<()> {
    let mut dir = nextent::ROOT_INO;
    for name in inside.path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        let found = match volume.lookup(&cred(), dir, name) {
            Err(Error::NotFound) => volume.mkdir(&cred(), dir, name, mode),
            found => found,
        };
        let mut attr = at("mkdir", inside, found)?;
        if attr.kind == FileType::Symlink {
            // From here on the way is the link's.
            attr = at("mkdir", inside, volume.resolve_from(&cred(), dir, name, true))?;
        }
        if attr.kind != FileType::Directory {
            return at("mkdir", inside, Err(Error::NotDir));
        }
        dir = attr.ino;
    }
    Ok(())
}

/// `nextent mv`.
pub(crate) fn mv(args: &Mv) -> Result<()> {
    let mut paths: Vec<Inside> =
        args.paths.iter().map(|p| Inside::parse(p)).collect::<Result<_>>()?;
    let target = paths.pop().expect("clap asks for two paths at least");
    if let Some(other) = paths.iter().find(|p| !p.same_image(&target.image)) {
        return Err(Failure::usage(format!("mv {other}: is in another image; use cp and rm")));
    }
    let mode = match (args.no_clobber, args.exchange) {
        (true, _) => RenameMode::NoReplace,
        (_, true) => RenameMode::Exchange,
        _ => RenameMode::Replace,
    };
    let several = paths.len() > 1;
    Image::change(&target, |volume| {
        let into = match volume.resolve(&cred(), &target.path, true) {
            Ok(attr) if attr.kind == FileType::Directory && !args.exchange => Some(attr.ino),
            Ok(_) | Err(Error::NotFound) if several => {
                return Err(Failure::new(format!("mv {target}: is not a directory")));
            }
            _ => None,
        };
        go_on(&paths, |path| {
            let moved = volume.resolve_parent(&cred(), &path.path).and_then(|from| {
                let to = match into {
                    Some(dir) => (dir, from.1),
                    None => volume.resolve_parent(&cred(), &target.path)?,
                };
                volume.rename(&cred(), from, to, mode)
            });
            at("mv", path, moved)
        })
    })
}

/// `nextent truncate`.
pub(crate) fn truncate(args: &Truncate) -> Result<()> {
    each(&args.paths.paths, |volume, inside| {
        let found = match volume.resolve(&cred(), &inside.path, true) {
            Err(Error::NotFound) if args.no_create => return Ok(()),
            Err(Error::NotFound) => create(volume, inside),
            found => found,
        };
        let attr = at("truncate", inside, found)?;
        let Some(size) = args.size.of(attr.size) else {
            return at("truncate", inside, Err(Error::TooBig));
        };
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        at("truncate", inside, volume.setattr(&cred(), attr.ino, &set)).map(drop)
    })
}

/// A new empty file.
pub(crate) fn create(volume: &Volume, inside: &Inside) -> nextent::Result<nextent::Attr> {
    let (parent, name) = volume.resolve_parent(&cred(), &inside.path)?;
    let attr = volume.create(&cred(), parent, name, FILE_MODE)?;
    volume.release(attr.ino)?;
    Ok(attr)
}
