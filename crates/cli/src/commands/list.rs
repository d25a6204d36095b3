//! `ls`.

use super::each::go_on;
use crate::args::Ls;
use crate::failure::Result;
use crate::image::{at, cred};
use crate::location::Inside;
use crate::scope::Scope;
use crate::show;
use nextent::FileType;
use nextent::inodes::{Attr, Inodes};
use nextent_image::sorted;
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};

/// `nextent ls`.
pub(crate) fn ls(args: &Ls, scope: Scope<'_>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let several = args.paths.paths.len() > 1;
    let mut listings = Vec::new();
    let done = go_on(args.paths.paths.iter().enumerate(), |(n, path)| {
        let inside = scope.inside(path)?;
        scope.read(&inside, |volume| {
            let rows = rows(args, volume, &inside)?;
            if args.json {
                let mut list = Vec::new();
                for (name, attr) in &rows {
                    list.push(describe(volume, name, attr)?);
                }
                listings.push(json!({"path": inside.to_string(), "entries": list}));
                return Ok(());
            }
            if several {
                writeln!(out, "{}{inside}:", if n > 0 { "\n" } else { "" })?;
            }
            rows.iter().try_for_each(|(name, attr)| line(&mut out, args, volume, name, attr))
        })
    });
    if args.json {
        writeln!(out, "{:#}", Value::Array(listings))?;
    }
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}

/// The files that are listed for one argument, and their shown names.
fn rows(args: &Ls, volume: &Inodes, inside: &Inside) -> Result<Vec<(String, Attr)>> {
    // POSIX: a link with a slash after it is followed.
    let follow = !args.long || inside.path.ends_with(b"/");
    let attr = at("ls", inside, volume.resolve(&cred(), &inside.path, follow))?;
    if attr.kind != FileType::Directory || args.directory {
        return Ok(vec![(show::name(&inside.path), attr)]);
    }
    let mut rows = Vec::new();
    for entry in at("ls", inside, sorted(volume, attr.ino))? {
        if args.all || !entry.name.starts_with(b".") {
            let found = volume.getattr_listed(attr.ino, entry.ino);
            let attr = at("ls", &inside.join(&entry.name), found)?;
            rows.push((show::component(&entry.name), attr));
        }
    }
    Ok(rows)
}

fn line(out: &mut impl Write, args: &Ls, volume: &Inodes, name: &str, attr: &Attr) -> Result<()> {
    if args.inode {
        write!(out, "{:>8} ", attr.ino)?;
    }
    if !args.long {
        return Ok(writeln!(out, "{name}")?);
    }
    let size = match attr.kind {
        FileType::CharDevice | FileType::BlockDevice => {
            format!("{}, {}", attr.device.major, attr.device.minor)
        }
        _ => attr.size.to_string(),
    };
    let (mode, time) = (show::mode(attr), show::minute(attr.mtime));
    let (links, uid, gid) = (attr.links, attr.uid, attr.gid);
    write!(out, "{mode} {links:>3} {uid:>5} {gid:>5} {size:>12} {time} {name}")?;
    if attr.kind == FileType::Symlink {
        let target = volume.readlink(attr.ino).unwrap_or_else(|e| e.to_string().into_bytes());
        write!(out, " -> {}", show::name(&target))?;
    }
    Ok(writeln!(out)?)
}

/// An entry as JSON.
pub(crate) fn describe(volume: &Inodes, name: &str, attr: &Attr) -> Result<Value> {
    let mut value = json!({
        "name": name,
        "inode": attr.ino.0,
        "generation": attr.generation,
        "type": show::kind(attr.kind),
        "mode": format!("{:04o}", attr.mode),
        "links": attr.links,
        "uid": attr.uid,
        "gid": attr.gid,
        "project": attr.project,
        "size": attr.size,
        "sectors": attr.sectors,
        "flags": attr.flags,
        "atime": show::decimal(attr.atime),
        "mtime": show::decimal(attr.mtime),
        "ctime": show::decimal(attr.ctime),
        "crtime": attr.crtime.map(show::decimal),
    });
    match attr.kind {
        FileType::Symlink => {
            let target = volume
                .readlink(attr.ino)
                .map_err(|e| crate::failure::Failure::new(format!("readlink {name}: {e}")))?;
            value["target"] = show::name(&target).into();
        }
        FileType::CharDevice | FileType::BlockDevice => {
            value["device"] = json!([attr.device.major, attr.device.minor]);
        }
        _ => {}
    }
    Ok(value)
}
