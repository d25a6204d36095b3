//! `tree`.
//!
//! The levels are on the heap, since a tree may be deeper than the stack. No directory is entered
//! twice: in a damaged image a directory may be below itself or have several names.

use super::each::go_on;
use super::list::describe;
use crate::args::Tree;
use crate::failure::{Failure, Result};
use crate::image::{Image, Purpose, at, cred};
use crate::location::Inside;
use crate::show;
use nextent::FileType;
use nextent::inodes::{Attr, InodeNo, Inodes};
use nextent_image::{ListedEntry, sorted};
use serde_json::Value;
use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

/// The most levels in JSON: its writer and its readers recurse.
const JSON_DEPTH: usize = 100;

/// `nextent tree`.
pub(crate) fn tree(args: &Tree) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut all = Vec::new();
    let done = go_on(&args.paths.paths, |path| {
        let inside = Inside::parse(path)?;
        let image = Image::of(&inside, Purpose::Read)?;
        let volume = &image.volume;
        let attr = at("tree", &inside, volume.resolve(&cred(), &inside.path, true))?;
        let deepest = args.level.unwrap_or(usize::MAX);
        let (path, entered) = (inside.clone(), HashSet::new());
        let mut walk =
            TreePrinter { volume, deepest, path, entered, counts: (0, 0), failed: false };
        if args.json {
            all.push(walk.json(&show::name(&inside.path), &attr, 0)?);
            return walk.end();
        }
        writeln!(out, "{inside}")?;
        let walked = match attr.kind {
            FileType::Directory => walk.text(&mut out, attr.ino),
            _ => Ok(()),
        };
        writeln!(out, "\n{} directories, {} files", walk.counts.0, walk.counts.1)?;
        walked.and_then(|()| walk.end())
    });
    if args.json {
        writeln!(out, "{:#}", Value::Array(all))?;
    }
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}

struct TreePrinter<'v> {
    volume: &'v Inodes,
    deepest: usize,
    /// The current path.
    path: Inside,
    entered: HashSet<InodeNo>,
    /// Directories and other files.
    counts: (u64, u64),
    failed: bool,
}

/// A directory that a walk is in.
struct TreeLevel {
    dir: InodeNo,
    rest: std::vec::IntoIter<ListedEntry>,
    /// Length of its path.
    len: usize,
    /// Bytes of the margin before the lines of its entries.
    margin: usize,
}

impl TreePrinter<'_> {
    /// The entries of the directory at the current path.
    ///
    /// # Errors
    /// The directory was entered before.
    fn enter(&mut self, dir: InodeNo) -> Result<Vec<ListedEntry>> {
        if !self.entered.insert(dir) {
            return Err(Failure::new(format!(
                "tree {}: this directory (inode {dir}) has another name or contains itself; not \
                 entered again",
                self.path
            )));
        }
        at("tree", &self.path, sorted(self.volume, dir))
    }

    /// Prints a failure; the walk goes on.
    fn fail(&mut self, failure: &Failure) {
        failure.print();
        self.failed = true;
    }

    fn end(&self) -> Result<()> {
        if self.failed { Err(Failure::reported(1)) } else { Ok(()) }
    }

    /// Writes a line for each entry below `top`, depth first.
    fn text(&mut self, out: &mut impl Write, top: InodeNo) -> Result<()> {
        if self.deepest == 0 {
            return Ok(());
        }
        // Before each line: four columns for each level above.
        let mut margin = String::new();
        let rest = self.enter(top)?.into_iter();
        let mut levels = vec![TreeLevel { dir: top, rest, len: self.path.path.len(), margin: 0 }];
        while let Some(level) = levels.last_mut() {
            self.path.path.truncate(level.len);
            margin.truncate(level.margin);
            let Some(entry) = level.rest.next() else {
                levels.pop();
                continue;
            };
            let (branch, more) = match level.rest.as_slice().is_empty() {
                true => ("\u{2514}\u{2500}\u{2500} ", "    "),
                false => ("\u{251c}\u{2500}\u{2500} ", "\u{2502}   "),
            };
            self.path.push(&entry.name);
            write!(out, "{margin}{branch}{}", show::component(&entry.name))?;
            let Some(attr) = self.line(out, level.dir, entry.ino)? else { continue };
            if attr.kind != FileType::Directory {
                self.counts.1 += 1;
                continue;
            }
            self.counts.0 += 1;
            if levels.len() >= self.deepest {
                continue;
            }
            match self.enter(attr.ino) {
                Ok(rest) => {
                    margin.push_str(more);
                    let (len, margin) = (self.path.path.len(), margin.len());
                    levels.push(TreeLevel { dir: attr.ino, rest: rest.into_iter(), len, margin });
                }
                Err(failure) => self.fail(&failure),
            }
        }
        Ok(())
    }

    /// Ends the line of an entry; its attributes, if they can be read.
    fn line(&mut self, out: &mut impl Write, dir: InodeNo, ino: InodeNo) -> Result<Option<Attr>> {
        match at("tree", &self.path, self.volume.getattr_listed(dir, ino)) {
            Ok(attr) => {
                if attr.kind == FileType::Symlink
                    && let Ok(target) = self.volume.readlink(attr.ino)
                {
                    write!(out, " -> {}", show::name(&target))?;
                }
                writeln!(out)?;
                Ok(Some(attr))
            }
            Err(failure) => {
                writeln!(out)?;
                self.fail(&failure);
                Ok(None)
            }
        }
    }

    /// The file at the current path and everything below it, as JSON. The depth is bounded, so this
    /// may recurse.
    fn json(&mut self, name: &str, attr: &Attr, level: usize) -> Result<Value> {
        let mut value = describe(self.volume, name, attr)?;
        if level > JSON_DEPTH {
            let text =
                format!("tree {}: deeper than {JSON_DEPTH} levels; -L limits them", self.path);
            return Err(Failure::new(text));
        }
        if attr.kind != FileType::Directory || level >= self.deepest {
            return Ok(value);
        }
        let mut children = Vec::new();
        match self.enter(attr.ino) {
            Ok(entries) => {
                let len = self.path.path.len();
                for entry in entries {
                    self.path.push(&entry.name);
                    let found = self.volume.getattr_listed(attr.ino, entry.ino);
                    match at("tree", &self.path, found) {
                        Ok(found) => children.push(self.json(
                            &show::component(&entry.name),
                            &found,
                            level + 1,
                        )?),
                        Err(failure) => self.fail(&failure),
                    }
                    self.path.path.truncate(len);
                }
            }
            Err(failure) => self.fail(&failure),
        }
        value["entries"] = children.into();
        Ok(value)
    }
}
