//! Decides which names of files with several names are kept.
//!
//! Two names that are one file in the source must be one file in the image, and the reverse, as far
//! as they are below the two directories. So a file of the source claims at most one inode of the
//! image, and an inode has at most one claim:
//!
//! 1. A file claims the first inode of its names, in the order of paths, that has its contents and
//!    no claim yet.
//! 2. A name whose inode its file has claimed is kept.
//! 3. Each other name is made anew: as a further name of the claimed inode; without a claim, of a
//!    new file.
//!
//! Where the names of one file lead to several inodes, or the names of one inode to several files,
//! equal lengths and times prove too little: `b` may have become a name of `a`, which has the
//! length and time of the old `b`. So such files are read.

use super::plan::{Change, LinkedName, Plan, What};
use crate::transfer::FileId;
use nextent::inodes::InodeNo;
use std::collections::{HashMap, HashSet};

/// The inodes that files of the source have claimed.
pub(super) type Claims = HashMap<FileId, InodeNo>;

/// Adds to `plan` the changes of its names. Returns the inodes that may get further names. `differ`
/// reads the two files of a name.
pub(super) fn resolve(plan: &mut Plan, differ: impl Fn(&LinkedName) -> bool) -> Claims {
    let mut names = std::mem::take(&mut plan.names);
    read_regrouped(&mut names, differ);
    let claims = claim(&names);
    // A file with several names gets its attributes once.
    let mut set = HashSet::new();
    for name in names {
        let LinkedName { trail, node, dir, id, ino, kind, differs } = name;
        let kept = claims.get(&id) == Some(&ino) && !differs.is_other_file();
        let what = match kept {
            true if !differs.is_any() || !set.insert(ino) => continue,
            true => What::Set { ino, differs },
            false => What::Make { dir, old: Some(kind), differs },
        };
        plan.changes.push(Change { trail, node, what });
    }
    claims
}

/// Reads the files of names that are not grouped in the same way in both trees.
fn read_regrouped(names: &mut [LinkedName], differ: impl Fn(&LinkedName) -> bool) {
    let (mut inodes, mut files) = (HashMap::new(), HashMap::new());
    for name in &*names {
        inodes.entry(name.id).or_insert_with(HashSet::new).insert(name.ino);
        files.entry(name.ino).or_insert_with(HashSet::new).insert(name.id);
    }
    let mut read = HashMap::new();
    for name in names {
        let regrouped = inodes[&name.id].len() > 1 || files[&name.ino].len() > 1;
        if regrouped && !name.differs.is_other_file() {
            let pair = (name.id, name.ino);
            name.differs.contents = *read.entry(pair).or_insert_with(|| differ(name));
        }
    }
}

fn claim(names: &[LinkedName]) -> Claims {
    let (mut claims, mut taken) = (Claims::new(), HashSet::new());
    for name in names.iter().filter(|name| !name.differs.is_other_file()) {
        if !claims.contains_key(&name.id) && taken.insert(name.ino) {
            claims.insert(name.id, name.ino);
        }
    }
    claims
}
