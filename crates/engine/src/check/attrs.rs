//! Pass 1: extended attributes, in inodes and in blocks that inodes share.
//!
//! A value may be an inode of its own, which several attributes share. Each file with such an
//! attribute includes the value's clusters in its block count, as if it did not share them. So does
//! the inode that holds the value. The attributes of a shared block are one reference to the value.

use nextent_sync::HashMap;

use nextent_ondisk::inode::flags;
use nextent_ondisk::xattr::{self, Entries, Value, XattrEntry, index};
use nextent_ondisk::{BlockNo, Compat, FileType, Inode, InodeNo};
use nextent_sync::Mutex;

use super::claims::{Clash, Taken};
use super::image::Image;
use super::inode::Pass1;
use super::inodes::Inodes;
use super::locks;
use super::report::Problem;

/// The space that attributes occupy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taking {
    /// Clusters.
    pub(super) clusters: u64,
    /// Values that are inodes of their own.
    pub(super) values: u64,
    /// One of the attributes describes the encryption of the file.
    pub(super) context: bool,
}

/// A block of attributes: references found and stored, and the space of its attributes.
struct Shared {
    seen: u32,
    stored: u32,
    takes: Taking,
}

/// The sums over one list of attributes.
#[derive(Default)]
struct Judged {
    problems: Vec<Problem>,
    /// The inodes that hold values.
    values: Vec<InodeNo>,
    /// The space of these values.
    takes: Taking,
}

/// The attribute blocks found so far, and the inodes that hold values.
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

    /// Checks the attributes of `ino`; returns their space.
    pub(super) fn check(
        &self,
        pass: &Pass1<'_>,
        ino: InodeNo,
        inode: &Inode,
        raw: &[u8],
    ) -> Taking {
        let mut takes = self.block(pass, ino, inode);
        if let Some(area) = inode.xattr_area(&pass.image.geo) {
            match xattr::in_inode(&pass.image.geo, &raw[area]) {
                Ok(entries) => {
                    let judged = judge(pass.image, (ino, inode), None, entries);
                    takes.clusters += judged.takes.clusters;
                    takes.values += judged.takes.values;
                    takes.context |= judged.takes.context;
                    self.publish(pass.image, judged);
                }
                Err(error) => {
                    pass.image.push(Problem::corrupt(1, "xattr", &error).at_inode(ino));
                }
            }
        }
        takes
    }

    fn publish(&self, image: &Image, judged: Judged) {
        for problem in judged.problems {
            image.push(problem);
        }
        self.foreign.lock().extend(judged.values);
    }

    fn block(&self, pass: &Pass1<'_>, ino: InodeNo, inode: &Inode) -> Taking {
        let (image, no) = (pass.image, inode.file_acl);
        if no.0 == 0 {
            return Taking::default();
        }
        let push = |text: &str| {
            image.push(Problem::error(1, "xattr-block", text).at_inode(ino).at_block(no));
        };
        if !image.geo.features.has(Compat::EXT_ATTR) {
            push("has a block of attributes, which the volume's features exclude");
            return Taking::default();
        }
        if !image.geo.holds_run(no, 1) {
            push("its block of attributes lies outside the volume");
            return Taking::default();
        }
        if let Some(shared) = self.blocks.lock().get_mut(&no) {
            shared.seen += 1;
            return shared.takes;
        }
        let Some(bytes) = image.block(1, no) else { return Taking::default() };
        let (header, judged) = match xattr::in_block(&image.geo, &bytes) {
            Ok((header, entries)) => (header, judge(image, (ino, inode), Some(no), entries)),
            Err(error) => {
                let problem = Problem::corrupt(1, "xattr-block", &error);
                image.push(problem.at_inode(ino).at_block(no));
                return Taking::default();
            }
        };
        if image.geo.features.metadata_csum()
            && let Err(error) = xattr::verify(image.geo.csum_seed, no, &bytes)
        {
            image.push(Problem::corrupt(1, "xattr-block", &error).at_inode(ino));
        }
        let takes = Taking { clusters: 1 + judged.takes.clusters, ..judged.takes };
        let new = match self.blocks.lock().entry(no) {
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                entry.get_mut().seen += 1;
                false
            }
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(Shared { seen: 1, stored: header.refcount, takes });
                true
            }
        };
        if new {
            self.publish(image, judged);
            match pass.claims.file(&mut Taken::default(), no, 1) {
                Some(Clash::Metadata(_)) => push("its block of attributes is metadata"),
                Some(Clash::File(_)) | None => {}
            }
        }
        takes
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

/// Hashes, overlaps, and values in inodes, of the attributes of one inode or block.
fn judge(
    image: &Image,
    (ino, inode): (InodeNo, &Inode),
    block: Option<BlockNo>,
    entries: Entries<'_>,
) -> Judged {
    let mut judged = Judged::default();
    let problem = |text: String| {
        let problem = Problem::error(1, "xattr", text).at_inode(ino);
        match block {
            Some(block) => problem.at_block(block),
            None => problem,
        }
    };
    let mut places = Vec::new();
    for entry in entries {
        let whole = [index::POSIX_ACL_ACCESS, index::POSIX_ACL_DEFAULT, index::RICHACL];
        if block.is_some() && entry.name.is_empty() && !whole.contains(&entry.index) {
            let text = format!("an attribute with prefix {} has no name", entry.index);
            judged.problems.push(problem(text));
        }
        match entry.value {
            Value::Inode(value, size) => {
                let said = foreign(image, (ino, inode), &entry, (value, size), &mut judged);
                judged.problems.extend(said.map(problem));
            }
            Value::Bytes(bytes) => {
                let context = entry.index == index::ENCRYPTION && entry.name == b"c";
                judged.takes.context |= context && is_context(bytes);
                let hashes = [xattr::entry_hash, xattr::signed_entry_hash];
                let hashes = hashes.map(|hash| hash(entry.name, bytes));
                if entry.hash != 0 || block.is_some() {
                    judged.problems.extend(wrong_hash(&entry, hashes).map(problem));
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
        judged.problems.push(problem("two attributes share a value's bytes".into()));
    }
    judged
}

/// Whether an attribute describes the encryption of a file, in one of the two forms.
fn is_context(bytes: &[u8]) -> bool {
    matches!((bytes.first(), bytes.len()), (Some(1), 28) | (Some(2), 40))
}

/// The problem of an entry whose hash should be the first of `hashes`. Some kernels hashed the
/// bytes of a name as signed, which gives the second.
fn wrong_hash(entry: &XattrEntry<'_>, hashes: [u32; 2]) -> Option<String> {
    let (stored, [hash, _]) = (entry.hash, hashes);
    let wrong = !hashes.contains(&stored);
    wrong.then(|| format!("an attribute's hash is {stored:#x}, should be {hash:#x}"))
}

/// Checks the inode that holds the value of `entry`, an attribute of `ino`; returns the problem.
fn foreign(
    image: &Image,
    (ino, inode): (InodeNo, &Inode),
    entry: &XattrEntry<'_>,
    (value, size): (InodeNo, u32),
    judged: &mut Judged,
) -> Option<String> {
    let geo = &image.geo;
    if value < geo.first_inode || value.0 > geo.inodes_count {
        return Some(format!("a value lies in inode {value}, which cannot be"));
    }
    let Some((held, _)) = image.inode(1, value) else {
        return Some(format!("a value lies in inode {value}, which cannot be read"));
    };
    judged.values.push(value);
    let hashes = [xattr::foreign_entry_hash, xattr::signed_foreign_entry_hash];
    let hashes = hashes.map(|hash| hash(entry.name, held.atime.to_words().0));
    let wrong = wrong_hash(entry, hashes);
    // Lustre made such inodes for a single file and counted their blocks only there.
    let lustre = held.mtime.to_words().0 == ino.0 && held.generation == inode.generation;
    if wrong.is_some() && !lustre {
        return wrong;
    }
    if wrong.is_none() {
        judged.takes.clusters += geo.clusters(u64::from(size).div_ceil(geo.block_size.into()));
        judged.takes.values += 1;
    }
    if !held.has_flag(flags::EA_INODE) || held.file_type() != Some(FileType::Regular) {
        return Some(format!("a value lies in inode {value}, which is not one that holds values"));
    }
    let has = held.size;
    (has != u64::from(size))
        .then(|| format!("a value of {size} bytes lies in inode {value}, which has {has}"))
}
