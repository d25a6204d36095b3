//! Pass 1: extended attributes, in inodes and in blocks that inodes share.

use nextent_sync::HashMap;

use nextent_ondisk::xattr::{self, Entries, Value, index};
use nextent_ondisk::{BlockNo, Compat, Inode, InodeNo};
use nextent_sync::Mutex;

use super::claims::{Clash, Taken};
use super::image::Image;
use super::inode::Pass1;
use super::inodes::Inodes;
use super::locks;
use super::report::Problem;

/// A block of attributes: references seen and stored.
struct Shared {
    seen: u32,
    stored: u32,
}

/// The attribute blocks met so far, and the inodes that hold values.
pub(super) struct Attributes {
    blocks: Mutex<HashMap<BlockNo, Shared>>,
    foreign: Mutex<Vec<InodeNo>>,
}

impl Attributes {
    pub(super) fn new() -> Self {
        Self {
            blocks: Mutex::new(&locks::FOUND, HashMap::default()),
            foreign: Mutex::new(&locks::FOUND, Vec::new()),
        }
    }

    /// Checks the attributes of `ino`; the clusters that they take.
    pub(super) fn check(&self, pass: &Pass1<'_>, ino: InodeNo, inode: &Inode, raw: &[u8]) -> u64 {
        if let Some(area) = inode.xattr_area(&pass.image.geo) {
            match xattr::in_inode(&pass.image.geo, &raw[area]) {
                Ok(entries) => self.entries(pass, ino, None, entries),
                Err(error) => {
                    pass.image.push(Problem::corrupt(1, "xattr", &error).at_inode(ino));
                }
            }
        }
        self.block(pass, ino, inode)
    }

    fn block(&self, pass: &Pass1<'_>, ino: InodeNo, inode: &Inode) -> u64 {
        let (image, no) = (pass.image, inode.file_acl);
        if no.0 == 0 {
            return 0;
        }
        let push = |text: &str| {
            image.push(Problem::error(1, "xattr-block", text).at_inode(ino).at_block(no));
        };
        if !image.geo.features.has(Compat::EXT_ATTR) {
            push("has a block of attributes, which the volume's features exclude");
            return 0;
        }
        if !image.geo.holds_run(no, 1) {
            push("its block of attributes lies outside the volume");
            return 0;
        }
        if let Some(shared) = self.blocks.lock().get_mut(&no) {
            shared.seen += 1;
            return 1;
        }
        let Some(bytes) = image.block(1, no) else { return 0 };
        let header = match xattr::in_block(&image.geo, &bytes) {
            Ok((header, entries)) => {
                self.entries(pass, ino, Some(no), entries);
                header
            }
            Err(error) => {
                let problem = Problem::corrupt(1, "xattr-block", &error);
                image.push(problem.at_inode(ino).at_block(no));
                return 0;
            }
        };
        if image.geo.features.metadata_csum()
            && let Err(error) = xattr::verify(image.geo.csum_seed, no, &bytes)
        {
            image.push(Problem::corrupt(1, "xattr-block", &error).at_inode(ino));
        }
        let new = match self.blocks.lock().entry(no) {
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                entry.get_mut().seen += 1;
                false
            }
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(Shared { seen: 1, stored: header.refcount });
                true
            }
        };
        if new {
            match pass.claims.file(&mut Taken::default(), no, 1) {
                Some(Clash::Metadata(_)) => push("its block of attributes is metadata"),
                Some(Clash::File(_)) | None => {}
            }
        }
        1
    }

    /// Hashes, overlaps, and values in inodes.
    fn entries(
        &self,
        pass: &Pass1<'_>,
        ino: InodeNo,
        block: Option<BlockNo>,
        entries: Entries<'_>,
    ) {
        let push = |text: String| {
            let problem = Problem::error(1, "xattr", text).at_inode(ino);
            pass.image.push(match block {
                Some(block) => problem.at_block(block),
                None => problem,
            });
        };
        let mut places = Vec::new();
        for entry in entries {
            let whole = [index::POSIX_ACL_ACCESS, index::POSIX_ACL_DEFAULT, index::RICHACL];
            if block.is_some() && entry.name.is_empty() && !whole.contains(&entry.index) {
                push(format!("an attribute with prefix {} has no name", entry.index));
            }
            match entry.value {
                Value::Inode(value, _) => self.foreign.lock().push(value),
                Value::Bytes(bytes) => {
                    let hash = xattr::entry_hash(entry.name, bytes);
                    // Some kernels took bytes of a name as signed.
                    let plain = entry.name.is_ascii();
                    if plain && entry.hash != hash && (entry.hash != 0 || block.is_some()) {
                        let stored = entry.hash;
                        push(format!("an attribute's hash is {stored:#x}, should be {hash:#x}"));
                    }
                    if !bytes.is_empty() {
                        let at = bytes.as_ptr().addr();
                        places.push((at, at + xattr::padded(bytes.len())));
                    }
                }
            }
        }
        places.sort_unstable();
        if places.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            push("two attributes share a value's bytes".into());
        }
    }

    /// Compares the references of all blocks.
    pub(super) fn finish(&self, image: &Image) {
        for (no, shared) in self.blocks.lock().iter() {
            if shared.seen != shared.stored {
                let (stored, seen) = (shared.stored, shared.seen);
                let text = format!("attributes are shared by {seen} inodes, not {stored}");
                image.push(Problem::error(1, "xattr-refcount", text).at_block(*no));
            }
        }
    }

    /// Counts the references to inodes that hold values as names of them.
    pub(super) fn count_foreign(&self, inodes: &Inodes) {
        for ino in self.foreign.lock().iter() {
            inodes.count(*ino);
        }
    }
}
