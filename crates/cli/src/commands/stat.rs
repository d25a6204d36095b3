//! `stat`.

use super::each::go_on;
use super::list::describe;
use crate::args::Stat;
use crate::failure::{Result, say};
use crate::image::{at, cred};
use crate::location::Inside;
use crate::scope::Scope;
use crate::show;
use nextent::FileType;
use nextent::inodes::{Attr, Inodes};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;

/// The most extents that are shown of one file.
const EXTENTS: usize = 64;

/// `nextent stat`.
pub(crate) fn run(args: &Stat, scope: Scope<'_>) -> Result<()> {
    let mut all = Vec::new();
    go_on(&args.paths.paths, |path| {
        let inside = scope.inside(path)?;
        scope.read(&inside, |volume| {
            let attr = at("stat", &inside, volume.resolve(&cred(), &inside.path, false))?;
            if args.json {
                all.push(json(volume, &inside, &attr)?);
            } else {
                write!(std::io::stdout(), "{}", text(volume, &inside, &attr)?)?;
            }
            Ok(())
        })
    })?;
    if args.json {
        say!("{:#}", Value::Array(all));
    }
    Ok(())
}

fn json(volume: &Inodes, inside: &Inside, attr: &Attr) -> Result<Value> {
    let mut value = describe(volume, &show::name(&inside.path), attr)?;
    value["xattrs"] = xattrs(volume, inside, attr)?.into();
    value["extents"] = extents(volume, inside, attr)?
        .iter()
        .map(|e| json!({"offset": e.logical, "physical": e.physical, "len": e.len}))
        .collect();
    Ok(value)
}

fn xattrs(volume: &Inodes, inside: &Inside, attr: &Attr) -> Result<Vec<String>> {
    let names = at("listxattr", inside, volume.listxattr(&cred(), attr.ino))?;
    Ok(names.iter().map(|name| show::name(name)).collect())
}

fn extents(
    volume: &Inodes,
    inside: &Inside,
    attr: &Attr,
) -> Result<Vec<nextent::inodes::FileExtent>> {
    if !matches!(attr.kind, FileType::Regular | FileType::Directory) {
        return Ok(Vec::new());
    }
    at("fiemap", inside, volume.fiemap(attr.ino, 0, u64::MAX, EXTENTS))
}

fn text(volume: &Inodes, inside: &Inside, attr: &Attr) -> Result<String> {
    let mut s = String::new();
    let mut put = |line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(s, "{line}");
    };
    put(format!("  File: {}", show::name(&inside.path)));
    let kind = show::kind(attr.kind);
    put(format!("  Size: {:<12} Sectors: {:<10} {kind}", attr.size, attr.sectors));
    let (ino, links, generation) = (attr.ino, attr.links, attr.generation);
    put(format!(" Inode: {ino:<12} Links: {links:<10} Generation: {generation}"));
    let mode = show::mode(attr);
    put(format!("Access: ({:04o}/{mode})  Uid: {}  Gid: {}", attr.mode, attr.uid, attr.gid));
    if matches!(attr.kind, FileType::CharDevice | FileType::BlockDevice) {
        put(format!("Device: {}, {}", attr.device.major, attr.device.minor));
    }
    if attr.flags != 0 || attr.project != 0 {
        put(format!(" Flags: {:#x}  Project: {}", attr.flags, attr.project));
    }
    put(format!("Access: {}", show::full(attr.atime)));
    put(format!("Modify: {}", show::full(attr.mtime)));
    put(format!("Change: {}", show::full(attr.ctime)));
    if let Some(birth) = attr.crtime {
        put(format!(" Birth: {}", show::full(birth)));
    }
    if attr.kind == FileType::Symlink {
        let target = at("readlink", inside, volume.readlink(attr.ino))?;
        put(format!("Target: {}", show::name(&target)));
    }
    for name in xattrs(volume, inside, attr)? {
        put(format!(" Xattr: {name}"));
    }
    for extent in extents(volume, inside, attr)? {
        put(format!("Extent: {} +{} at {:?}", extent.logical, extent.len, extent.physical));
    }
    Ok(s)
}
