//! `mkdir`, `mv` and `truncate`.

use super::each::{each, go_on};
use super::symbolic::Change;
use crate::args::{Mkdir, Mv, Truncate};
use crate::failure::{Failure, Result};
use crate::image::{at, creator, cred, umask};
use crate::location::Inside;
use crate::scope::Scope;
use crate::show;
use std::collections::HashSet;

use nextent::inodes::{Attr, InodeNo, Inodes, RenameMode, SetAttr};
use nextent::{Cred, Error, FileType};

/// Modes before the umask applies.
const DIR_MODE: u16 = 0o777;
const FILE_MODE: u16 = 0o666;
const SET_GROUP_ID: u16 = 0o2000;
/// Permissions that mkdir(1) -p needs in the parent directories.
const WRITE_AND_SEARCH: u16 = 0o300;

/// `nextent mkdir`.
pub(crate) fn mkdir(args: &Mkdir, scope: Scope<'_>) -> Result<()> {
    let mode = match &args.mode {
        None => None,
        Some(text) => {
            let change = Change::parse(text).ok_or_else(|| {
                Failure::usage(format!("mkdir: `{}` is not a mode", show::line(text)))
            })?;
            Some(change.apply(DIR_MODE, true, umask()))
        }
    };
    each(scope, &args.paths.paths, |volume, inside| {
        if args.parents {
            return make_all(volume, inside, mode);
        }
        let made = volume
            .resolve_parent(&cred(), &inside.path)
            .and_then(|(parent, name)| make_dir(volume, (parent, name), mode));
        at("mkdir", inside, made).map(drop)
    })
}

/// Makes one directory with exactly `mode`, or by the umask.
fn make_dir(
    volume: &Inodes,
    (parent, name): (InodeNo, &[u8]),
    mode: Option<u16>,
) -> nextent::Result<Attr> {
    let Some(mode) = mode else {
        return volume.mkdir(&creator(), parent, name, DIR_MODE);
    };
    let attr = volume.mkdir(&cred(), parent, name, mode)?;
    // An explicit mode overrides a default access list, but an inherited set-group-id bit stays.
    let set = SetAttr { mode: Some(mode | attr.mode & SET_GROUP_ID), ..SetAttr::default() };
    volume.setattr(&cred(), attr.ino, &set)
}

/// Makes a directory and its missing parents, whose modes are the umask's plus write and search.
fn make_all(volume: &Inodes, inside: &Inside, mode: Option<u16>) -> Result<()> {
    let mut dir = nextent::inodes::ROOT_INO;
    let names = inside.path.split(|b| *b == b'/').filter(|name| !name.is_empty());
    let mut names = names.peekable();
    let above = Cred { umask: umask() & !WRITE_AND_SEARCH, ..cred() };
    while let Some(name) = names.next() {
        let found = match volume.lookup(&cred(), dir, name) {
            Err(Error::NotFound) if names.peek().is_some() => {
                volume.mkdir(&above, dir, name, DIR_MODE)
            }
            Err(Error::NotFound) => make_dir(volume, (dir, name), mode),
            found => found,
        };
        let mut attr = at("mkdir", inside, found)?;
        if attr.kind == FileType::Symlink {
            // The path goes on behind the link.
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
pub(crate) fn mv(args: &Mv, scope: Scope<'_>) -> Result<()> {
    let mut paths: Vec<Inside> =
        args.paths.iter().map(|p| scope.inside(p)).collect::<Result<_>>()?;
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
    scope.change(&target, |volume| {
        let into = match volume.resolve(&cred(), &target.path, true) {
            Ok(attr) if attr.kind == FileType::Directory && !args.exchange => Some(attr.ino),
            _ if several => {
                return Err(Failure::new(format!("mv {target}: is not a directory")));
            }
            _ => None,
        };
        let mut moved = HashSet::new();
        go_on(&paths, |path| {
            let (dir, name) = at("mv", path, volume.resolve_parent(&cred(), &path.path))?;
            // As with coreutils, an empty directory may still be replaced by another directory.
            let is_dir =
                || volume.lookup(&cred(), dir, name).is_ok_and(|it| it.kind == FileType::Directory);
            if moved.contains(name) && !is_dir() {
                return Err(Failure::new(format!("mv {path}: would replace what was just moved")));
            }
            match at("mv", path, rename(volume, path, (into, &target), mode))? {
                true => moved.insert(name.to_vec()),
                false => {
                    return Err(Failure::new(format!("mv {path}: the target is the same file")));
                }
            };
            Ok(())
        })
    })
}

/// Moves one file into the directory `into`, or to `target`. False if the target is the same file,
/// or another name of it.
fn rename(
    volume: &Inodes,
    path: &Inside,
    (into, target): (Option<InodeNo>, &Inside),
    mode: RenameMode,
) -> nextent::Result<bool> {
    let from = volume.resolve_parent(&cred(), &path.path)?;
    let attr = volume.lookup(&cred(), from.0, from.1)?;
    let is_dir = attr.kind == FileType::Directory;
    if path.path.ends_with(b"/") && !is_dir {
        return Err(Error::NotDir);
    }
    let to = match into {
        Some(dir) => (dir, from.1),
        None if target.path.ends_with(b"/") && !is_dir => return Err(Error::NotDir),
        None => volume.resolve_parent(&cred(), &target.path)?,
    };
    // What the link leads to would be lost, unless it has another name than the target.
    let onto_end = || -> nextent::Result<bool> {
        if attr.kind != FileType::Symlink {
            return Ok(false);
        }
        let Ok(old) = volume.lookup(&cred(), to.0, to.1) else { return Ok(false) };
        let Ok(end) = volume.resolve_from(&cred(), from.0, from.1, true) else { return Ok(false) };
        Ok(end.ino == old.ino && (old.links < 2 || leads_to(volume, from, to)?))
    };
    if mode != RenameMode::Replace || !same(volume, from, to)? && !onto_end()? {
        return volume.rename(&cred(), from, to, mode).map(|()| true);
    }
    Ok(false)
}

/// Whether the link `from` leads to the name `to`, not to another name of the same file.
fn leads_to(
    volume: &Inodes,
    from: (InodeNo, &[u8]),
    to: (InodeNo, &[u8]),
) -> nextent::Result<bool> {
    let end = super::cp::link_end(volume, from.0, from.1, false)?;
    Ok(end.is_some_and(|end| end.is(to)))
}

/// Whether two names have the same inode.
fn same(volume: &Inodes, from: (InodeNo, &[u8]), to: (InodeNo, &[u8])) -> nextent::Result<bool> {
    let find = |(dir, name)| match volume.lookup(&cred(), dir, name) {
        Err(Error::NotFound) => Ok(None),
        found => found.map(|attr| Some(attr.ino)),
    };
    Ok(find(from)?.is_some_and(|ino| find(to).is_ok_and(|other| other == Some(ino))))
}

/// `nextent truncate`.
pub(crate) fn truncate(args: &Truncate, scope: Scope<'_>) -> Result<()> {
    each(scope, &args.paths.paths, |volume, inside| {
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

/// The most symbolic links that are followed in a row, as in Linux.
const LINKS_MAX: usize = 40;

/// Makes an empty file; for a dangling link, its target, as open(2) does.
pub(crate) fn create(volume: &Inodes, inside: &Inside) -> nextent::Result<nextent::inodes::Attr> {
    let (mut base, mut path) = (nextent::inodes::ROOT_INO, inside.path.clone());
    for _ in 0..LINKS_MAX {
        if path.ends_with(b"/") {
            return Err(Error::IsDir);
        }
        let (parent, name) = volume.resolve_parent_from(&cred(), base, &path)?;
        let found = match volume.lookup(&cred(), parent, name) {
            Err(Error::NotFound) => {
                let attr = volume.create(&creator(), parent, name, FILE_MODE)?;
                volume.release(attr.ino)?;
                return Ok(attr);
            }
            found => found?,
        };
        if found.kind != FileType::Symlink {
            return Ok(found);
        }
        (base, path) = (parent, volume.readlink(found.ino)?);
    }
    Err(Error::Loop)
}
