//! `ls` and `tree`.

use super::each::go_on;
use crate::args::{Ls, Tree};
use crate::failure::{Failure, Result};
use crate::image::{Image, Purpose, at, cred};
use crate::location::Inside;
use crate::show;
use nextent::{Attr, FileType, InodeNo, Volume};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

/// Most levels in JSON: its readers, and we, nest as deep as the tree. A directory that contains
/// itself ends there too.
const JSON_DEPTH: usize = 100;

/// An entry of a directory.
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: InodeNo,
}

/// All entries but `.` and `..`, sorted by name.
pub(crate) fn entries(volume: &Volume, dir: InodeNo) -> nextent::Result<Vec<Entry>> {
    let mut all = Vec::new();
    volume.readdir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            all.push(Entry { name: entry.name.to_vec(), ino: entry.ino });
        }
        true
    })?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// `nextent ls`.
pub(crate) fn ls(args: &Ls) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let several = args.paths.paths.len() > 1;
    let mut listings = Vec::new();
    let done = go_on(args.paths.paths.iter().enumerate(), |(n, path)| {
        let inside = Inside::parse(path)?;
        let image = Image::of(&inside, Purpose::Look)?;
        let volume = &image.volume;
        // A link given with a slash behind it is followed; so says POSIX.
        let follow = !args.long || inside.path.ends_with(b"/");
        let attr = at("ls", &inside, volume.resolve(&cred(), &inside.path, follow))?;
        let mut rows = Vec::new();
        if attr.kind == FileType::Directory && !args.directory {
            for entry in at("ls", &inside, entries(volume, attr.ino))? {
                if args.all || !entry.name.starts_with(b".") {
                    let attr = at(
                        "ls",
                        &inside.join(&entry.name),
                        volume.getattr_listed(attr.ino, entry.ino),
                    )?;
                    rows.push((entry.name, attr));
                }
            }
        } else {
            rows.push((inside.path.clone(), attr));
        }
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
    });
    if args.json {
        writeln!(out, "{:#}", Value::Array(listings))?;
    }
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}

fn line(out: &mut impl Write, args: &Ls, volume: &Volume, name: &[u8], attr: &Attr) -> Result<()> {
    if args.inode {
        write!(out, "{:>8} ", attr.ino)?;
    }
    if !args.long {
        return Ok(writeln!(out, "{}", show::name(name))?);
    }
    let size = match attr.kind {
        FileType::CharDevice | FileType::BlockDevice => {
            format!("{}, {}", attr.device.major, attr.device.minor)
        }
        _ => attr.size.to_string(),
    };
    let (mode, time) = (show::mode(attr), show::minute(attr.mtime));
    let (links, uid, gid) = (attr.links, attr.uid, attr.gid);
    write!(out, "{mode} {links:>3} {uid:>5} {gid:>5} {size:>12} {time} {}", show::name(name))?;
    if attr.kind == FileType::Symlink {
        let target = volume.readlink(attr.ino).unwrap_or_else(|e| e.to_string().into_bytes());
        write!(out, " -> {}", show::name(&target))?;
    }
    Ok(writeln!(out)?)
}

/// What programs are told of an entry.
pub(crate) fn describe(volume: &Volume, name: &[u8], attr: &Attr) -> Result<Value> {
    let mut value = json!({
        "name": show::name(name),
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
            let target = volume.readlink(attr.ino).map_err(|e| {
                crate::failure::Failure::new(format!("readlink {}: {e}", show::name(name)))
            })?;
            value["target"] = show::name(&target).into();
        }
        FileType::CharDevice | FileType::BlockDevice => {
            value["device"] = json!([attr.device.major, attr.device.minor]);
        }
        _ => {}
    }
    Ok(value)
}

/// `nextent tree`.
pub(crate) fn tree(args: &Tree) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut all = Vec::new();
    let done = go_on(&args.paths.paths, |path| {
        let inside = Inside::parse(path)?;
        let image = Image::of(&inside, Purpose::Look)?;
        let attr = at("tree", &inside, image.volume.resolve(&cred(), &inside.path, true))?;
        let walk = Walk { volume: &image.volume, deepest: args.level.unwrap_or(usize::MAX) };
        if args.json {
            all.push(walk.json(&inside, inside.path.as_slice(), &attr, 0)?);
            return Ok(());
        }
        writeln!(out, "{inside}")?;
        let mut counts = (0, 0);
        let walked = match attr.kind {
            FileType::Directory => walk.text(&mut out, &inside, attr.ino, &mut counts),
            _ => Ok(()),
        };
        writeln!(out, "\n{} directories, {} files", counts.0, counts.1)?;
        walked
    });
    if args.json {
        writeln!(out, "{:#}", Value::Array(all))?;
    }
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}

struct Walk<'v> {
    volume: &'v Volume,
    deepest: usize,
}

/// A directory that a walk is in.
struct Level {
    dir: InodeNo,
    path: Inside,
    rest: std::iter::Peekable<std::vec::IntoIter<Entry>>,
}

impl Walk<'_> {
    /// Opens a level for the directory `dir`, which must not be one that the walk is in: a damaged
    /// image may have a directory below itself.
    fn enter(&self, path: Inside, dir: InodeNo, above: &mut HashSet<InodeNo>) -> Result<Level> {
        if !above.insert(dir) {
            return Err(Failure::new(format!("tree {path}: the directory contains itself")));
        }
        let rest = at("tree", &path, entries(self.volume, dir))?.into_iter().peekable();
        Ok(Level { dir, path, rest })
    }

    /// Writes a line for each entry, depth first. The levels are kept on the heap, as a tree may be
    /// deeper than the stack. Prints a failure and goes on behind it.
    fn text(
        &self,
        out: &mut impl Write,
        inside: &Inside,
        dir: InodeNo,
        counts: &mut (u64, u64),
    ) -> Result<()> {
        if self.deepest == 0 {
            return Ok(());
        }
        let mut above = HashSet::new();
        let mut levels = vec![self.enter(inside.clone(), dir, &mut above)?];
        // What goes before each line: four columns for each level above.
        let mut margin = String::new();
        let mut failed = None;
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.rest.next() else {
                above.remove(&level.dir);
                levels.pop();
                let len = margin.chars().count().saturating_sub(4);
                margin = margin.chars().take(len).collect();
                continue;
            };
            let last = level.rest.peek().is_none();
            let (branch, more) = if last {
                ("\u{2514}\u{2500}\u{2500} ", "    ")
            } else {
                ("\u{251c}\u{2500}\u{2500} ", "\u{2502}   ")
            };
            write!(out, "{margin}{branch}{}", show::name(&entry.name))?;
            let below = level.path.join(&entry.name);
            let attr = at("tree", &below, self.volume.getattr_listed(level.dir, entry.ino));
            let attr = match attr {
                Ok(attr) => attr,
                Err(failure) => {
                    writeln!(out)?;
                    failure.tell();
                    failed = Some(Failure::told(1));
                    continue;
                }
            };
            if attr.kind == FileType::Symlink
                && let Ok(target) = self.volume.readlink(attr.ino)
            {
                write!(out, " -> {}", show::name(&target))?;
            }
            writeln!(out)?;
            if attr.kind != FileType::Directory {
                counts.1 += 1;
                continue;
            }
            counts.0 += 1;
            if levels.len() >= self.deepest {
                continue;
            }
            match self.enter(below, attr.ino, &mut above) {
                Ok(level) => {
                    levels.push(level);
                    margin.push_str(more);
                }
                Err(failure) => {
                    failure.tell();
                    failed = Some(Failure::told(1));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn json(&self, inside: &Inside, name: &[u8], attr: &Attr, level: usize) -> Result<Value> {
        let mut value = describe(self.volume, name, attr)?;
        if level > JSON_DEPTH {
            let text = format!("tree {inside}: deeper than {JSON_DEPTH} levels; -L limits them");
            return Err(Failure::new(text));
        }
        if attr.kind == FileType::Directory && level < self.deepest {
            let mut children = Vec::new();
            for entry in at("tree", inside, entries(self.volume, attr.ino))? {
                let below = inside.join(&entry.name);
                let attr = at("tree", &below, self.volume.getattr_listed(attr.ino, entry.ino))?;
                children.push(self.json(&below, &entry.name, &attr, level + 1)?);
            }
            value["entries"] = children.into();
        }
        Ok(value)
    }
}
