//! Paths of the inodes that problems name.
//!
//! Only these inodes get a path, so the number of kept problems bounds the work. The name of a
//! directory is found by reading its parent; pass 2 records the names of other files.

use nextent_sync::{HashMap, HashSet};

use nextent_ondisk::{BlockNo, InodeNo, dirent, numbers};
use nextent_sync::Mutex;
use nextent_sync::atomic::Ordering;

use super::image::Image;
use super::inodes::Inodes;
use super::locks;
use super::walk;

/// Names of the inodes of interest: the directory and the name in it.
pub(super) struct Names {
    wanted: HashSet<InodeNo>,
    found: Mutex<HashMap<InodeNo, (InodeNo, Vec<u8>)>>,
}

/// The deepest path that is written out.
const DEPTH: usize = 64;

impl Names {
    pub(super) fn new(wanted: Vec<InodeNo>) -> Self {
        let found = Mutex::new(&locks::FOUND, HashMap::default());
        Self { wanted: wanted.into_iter().collect(), found }
    }

    /// Records the name of `ino` in `dir`, if a problem names `ino`.
    pub(super) fn note(&self, ino: InodeNo, dir: InodeNo, name: &[u8]) {
        if self.wanted.contains(&ino) {
            self.found.lock().entry(ino).or_insert_with(|| (dir, name.to_vec()));
        }
    }

    /// A path of `ino`, as far as one is known.
    pub(super) fn path(&self, image: &Image, inodes: &Inodes, ino: InodeNo) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = ino;
        while at != numbers::ROOT_INO {
            let known = self.found.lock().get(&at).cloned();
            let (dir, name) = match known {
                Some(found) => found,
                None => {
                    let parent = InodeNo(inodes.place(at)?.parent.load(Ordering::Relaxed));
                    let found = (parent, name_in(image, parent, at)?);
                    self.found.lock().insert(at, found.clone());
                    found
                }
            };
            parts.push(name.escape_ascii().to_string());
            if parts.len() > DEPTH {
                return None;
            }
            at = dir;
        }
        parts.push(String::new());
        parts.reverse();
        Some(if parts.len() == 1 { "/".into() } else { parts.join("/") })
    }
}

/// The name of `ino` in the directory `dir`.
fn name_in(image: &Image, dir: InodeNo, ino: InodeNo) -> Option<Vec<u8>> {
    let (inode, _) = image.inode(2, dir)?;
    for run in walk::runs(image, 2, dir, &inode).runs {
        for no in (run.start.0..run.start.0 + u64::from(run.len)).map(BlockNo) {
            let block = image.block(2, no)?;
            let mut entries = dirent::entries(&image.geo, &block).map_while(Result::ok);
            let own = entries.find(|entry| entry.ino == ino && !entry.is_dot());
            if let Some(entry) = own {
                return Some(entry.name.to_vec());
            }
        }
    }
    None
}
