//! Pass 2: the entries of every directory.

use nextent_num::{to_u64, to_usize};
use nextent_sync::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use nextent_ondisk::dirent::{self, DirEntry, Entries};
use nextent_ondisk::extent::Extent;
use nextent_ondisk::inode::flags;
use nextent_ondisk::{BlockNo, FileBlock, FileType, Incompat, Inode, InodeNo, numbers};
use nextent_sync::atomic::Ordering;

use super::contents::inline_rest;
use super::htree::{self, Index, Use};
use super::image::{Image, READ};
use super::inodes::{Inodes, is, kind};
use super::names::Names;
use super::report::Problem;
use super::walk;

/// The fewest bytes of an encrypted name.
const ENCRYPTED_NAME: usize = 16;

/// Flag of the character set: the volume refuses names that are not valid text.
const STRICT: u16 = 1;

/// Checks every directory, and calls `done` after each group of inodes.
pub(super) fn check(image: &Image, inodes: &Inodes, names: &Names, done: &(dyn Fn() + Sync)) {
    // One work item for each directory, so that a large one does not delay the others of its group.
    let dirs = inodes.groups().flat_map(|(number, group)| {
        group.dirs().map(move |(index, _)| image.geo.inode_at(number, index))
    });
    nextent_sync::parallel_for(image.workers, dirs, |ino| {
        if inodes.mark(ino).flags & is::DAMAGED == 0
            && let Some((inode, raw)) = image.inode(2, ino)
        {
            Directory::new(image, inodes, names, ino, &inode).check(&raw);
        }
        done();
    });
}

/// What kind of block entries come from, for their checksum.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    Leaf,
    Index,
}

struct Directory<'a> {
    image: &'a Image,
    inodes: &'a Inodes,
    names: &'a Names,
    ino: InodeNo,
    inode: &'a Inode,
    seed: u32,
    /// Hashes of the names found.
    seen: HashSet<u64>,
    /// Entries found, including `.`, `..` and unused ones.
    position: usize,
    /// The index has names whose hashes cannot be computed here.
    unhashed: bool,
    /// Names are text that is compared without regard to case.
    strict: bool,
    /// Names that differ might be the same to a volume that ignores the case of more than ASCII.
    uncompared: bool,
}

impl<'a> Directory<'a> {
    fn new(
        image: &'a Image,
        inodes: &'a Inodes,
        names: &'a Names,
        ino: InodeNo,
        inode: &'a Inode,
    ) -> Self {
        let seed = inode.csum_seed(&image.geo, ino);
        let seen = HashSet::default();
        let folds = inode.has_flag(flags::CASEFOLD) && !inode.has_flag(flags::ENCRYPT);
        let strict = folds && image.sb.encoding_flags.get() & STRICT != 0;
        let (unhashed, uncompared) = (false, false);
        let position = 0;
        Self {
            image,
            inodes,
            names,
            ino,
            inode,
            seed,
            seen,
            position,
            unhashed,
            strict,
            uncompared,
        }
    }

    fn push(&self, code: &'static str, block: Option<BlockNo>, text: String) {
        let problem = Problem::error(2, code, text).at_inode(self.ino);
        self.image.push(match block {
            Some(block) => problem.at_block(block),
            None => problem,
        });
    }

    fn check(mut self, raw: &[u8]) {
        let features = &self.image.geo.features;
        if self.inode.has_flag(flags::INLINE_DATA) && features.has(Incompat::INLINE_DATA) {
            return self.inline(raw);
        }
        let runs = walk::runs(self.image, 2, self.ino, self.inode);
        let blocks = self.inode.size >> self.image.geo.block_bits;
        let end = runs.runs.iter().map(Extent::end).max().unwrap_or(0);
        if runs.damaged || end == 0 {
            if end == 0 {
                self.push("directory-empty", None, "a directory without blocks".into());
            }
            return;
        }
        // Pass 1 has reported a disagreement; a hole costs nothing here.
        let blocks = blocks.min(end);
        if runs.runs.iter().map(|run| u64::from(run.len)).sum::<u64>() < blocks {
            self.push("directory-hole", None, "a directory with holes".into());
            return;
        }
        let index = self.index(&runs.runs, u32::try_from(blocks).unwrap_or(u32::MAX));
        for run in &runs.runs {
            self.run(run, blocks, index.as_ref());
        }
        if self.position < 2 {
            self.push("dots", None, "no entries . and ..".into());
        }
        self.left_out();
    }

    /// Notes what was not checked of the names.
    fn left_out(&self) {
        if self.unhashed {
            let note =
                Problem::not_checked(2, "hashes of names that ignore the case of more than ASCII");
            self.image.push(note.at_inode(self.ino));
        }
        if self.uncompared && self.seen.len() > 1 {
            let note = Problem::not_checked(2, "names that differ in the case of more than ASCII");
            self.image.push(note.at_inode(self.ino));
        }
    }

    fn index(&self, runs: &[Extent], blocks: u32) -> Option<Index> {
        if !self.inode.has_flag(flags::INDEX) {
            return None;
        }
        let read = |at: FileBlock| {
            let place = runs.partition_point(|run| run.end() <= u64::from(at.0));
            let run = runs.get(place).filter(|run| run.block <= at)?;
            let no = BlockNo(run.start.0 + u64::from(at.0 - run.block.0));
            self.image.block(2, no)
        };
        htree::index(self.image, self.ino, self.seed, blocks, &read)
    }

    fn run(&mut self, run: &Extent, blocks: u64, index: Option<&Index>) {
        let geo = &self.image.geo;
        let len = u64::from(run.len).min(blocks.saturating_sub(u64::from(run.block.0)));
        let step = (READ / geo.block_len()).max(1);
        for first in (0..len).step_by(step) {
            let count = to_u64(step).min(len - first);
            let mut bytes = vec![0; to_usize(count) * geo.block_len()];
            let start = BlockNo(run.start.0 + first);
            if !self.image.read(2, start, &mut bytes) {
                continue;
            }
            for (n, block) in bytes.chunks_exact(geo.block_len()).enumerate() {
                let at = u64::from(run.block.0) + first + to_u64(n);
                self.block(to_usize(at), BlockNo(start.0 + to_u64(n)), block, index);
            }
        }
    }

    fn block(&mut self, at: usize, no: BlockNo, block: &[u8], index: Option<&Index>) {
        let found = index.map(|index| index.uses.get(at).copied().unwrap_or(Use::Stray));
        let sum = match found {
            // The index walk has compared these.
            Some(Use::Root | Use::Node) => Sum::Index,
            _ => Sum::Leaf,
        };
        let geo = &self.image.geo;
        if sum == Sum::Leaf
            && geo.features.metadata_csum()
            && let Err(error) = dirent::verify(self.seed, block)
        {
            let problem = Problem::corrupt(2, "directory-checksum", &error);
            self.image.push(problem.at_inode(self.ino).at_block(no));
        }
        if at == 0 {
            self.dots_end(no, block);
        }
        let image = self.image;
        let folds = self.inode.has_flag(flags::CASEFOLD);
        let encrypted = self.inode.has_flag(flags::ENCRYPT);
        let mut unhashed = false;
        self.entries(Some(no), block, dirent::entries(&image.geo, block), |name| {
            let Some((index, found)) = index.zip(found) else { return true };
            match folds {
                false => index.admits(found, name),
                true if name.is_ascii() && !encrypted => {
                    index.admits(found, &name.to_ascii_lowercase())
                }
                true => {
                    unhashed = true;
                    true
                }
            }
        });
        self.unhashed |= unhashed;
    }

    /// The names `.` and `..` end with a zero, for readers that take them as text.
    fn dots_end(&self, no: BlockNo, block: &[u8]) {
        for (position, end) in [(0, 9), (1, 22)] {
            if block[end] != 0 {
                let text = format!("entry {position} is not followed by a zero");
                self.push("dots", Some(no), text);
            }
        }
    }

    fn entries(
        &mut self,
        no: Option<BlockNo>,
        bytes: &[u8],
        entries: Entries<'_>,
        mut admits: impl FnMut(&[u8]) -> bool,
    ) {
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let problem = Problem::corrupt(2, "directory-entry", &error);
                    let problem = problem.at_inode(self.ino);
                    self.image.push(match no {
                        Some(no) => problem.at_block(no),
                        None => problem,
                    });
                    return;
                }
            };
            let position = self.position;
            self.position += 1;
            let typed = self.image.geo.features.has(Incompat::FILETYPE);
            if !typed && entry.is_used() && bytes[entry.offset + 7] != 0 {
                let text =
                    format!("entry {} has a file type without the feature", show(entry.name));
                self.push("file-type", no, text);
            }
            if position < 2 {
                self.dot(position, no, &entry);
                continue;
            }
            if !entry.is_used() {
                continue;
            }
            if !admits(entry.name) {
                let text = format!("entry {} does not belong there by its hash", show(entry.name));
                self.push("index-order", no, text);
            }
            self.entry(no, &entry);
        }
    }

    /// The first two entries.
    fn dot(&self, position: usize, no: Option<BlockNo>, entry: &DirEntry<'_>) {
        let name: &[u8] = if position == 0 { b"." } else { b".." };
        if entry.name != name || !entry.is_used() {
            let text =
                format!("entry {position} is {}, should be {}", show(entry.name), show(name));
            self.push("dots", no, text);
            return;
        }
        if position == 0 && (entry.ino != self.ino || entry.rec_len != dirent::MIN_RECORD) {
            self.push("dots", no, format!("entry . leads to inode {}", entry.ino));
        }
        self.typed(no, entry, kind::DIRECTORY);
        self.inodes.count(if position == 0 { self.ino } else { entry.ino });
        if position == 1 {
            self.dotdot(entry.ino);
        }
    }

    fn dotdot(&self, parent: InodeNo) {
        if let Some(place) = self.inodes.place(self.ino) {
            place.dotdot.store(parent.0, Ordering::Relaxed);
        }
    }

    fn typed(&self, no: Option<BlockNo>, entry: &DirEntry<'_>, code: u8) {
        let known = FileType::of_entry(code).is_some();
        if self.image.geo.features.has(Incompat::FILETYPE) && known && entry.type_code != code {
            let (name, stored) = (show(entry.name), entry.type_code);
            let text = format!("entry {name} has file type {stored}, its inode {code}");
            if stored != 0 {
                return self.push("file-type", no, text);
            }
            // Not known is allowed.
            self.image.push(Problem::note(2, "file-type", text).at_inode(self.ino));
        }
    }

    fn entry(&mut self, no: Option<BlockNo>, entry: &DirEntry<'_>) {
        let name = show(entry.name);
        let say = |what: String| self.push("entry", no, format!("entry {name} {what}"));
        if entry.is_dot() {
            return say("occurs twice".into());
        }
        if !entry.has_plain_name() && !self.inode.has_flag(flags::ENCRYPT) {
            say("has a name with a slash or a zero".into());
        }
        let mark = self.inodes.mark(entry.ino);
        if entry.ino == numbers::ROOT_INO {
            return say("leads to the root".into());
        }
        if self.image.geo.is_reserved_inode(entry.ino) || mark.flags & is::HIDDEN != 0 {
            return say(format!("leads to the reserved inode {}", entry.ino));
        }
        if !mark.in_use() {
            return say(format!("leads to inode {}, which is not in use", entry.ino));
        }
        let encrypted = self.inode.has_flag(flags::ENCRYPT);
        if encrypted && entry.name.len() < ENCRYPTED_NAME {
            say("is too short for an encrypted name".into());
        }
        let hides = matches!(
            FileType::of_entry(mark.kind),
            Some(FileType::Regular | FileType::Directory | FileType::Symlink)
        );
        if encrypted && hides && mark.flags & is::ENCRYPTED == 0 {
            say(format!("of an encrypted directory leads to inode {}, which is not", entry.ino));
        }
        if mark.flags & is::EA_INODE != 0 {
            say(format!("leads to inode {}, which holds an attribute's value", entry.ino));
        }
        let (mode_is_bad, code) = (mark.kind == kind::BAD, mark.kind);
        if mode_is_bad {
            say(format!("leads to inode {}, which is damaged", entry.ino));
        }
        if self.strict && std::str::from_utf8(entry.name).is_err() {
            say("is no UTF-8".into());
        }
        self.uncompared |= self.strict && !entry.name.is_ascii();
        if !self.is_new(entry.name) {
            self.push("entry-twice", no, format!("entry {name} occurs twice"));
        }
        self.typed(no, entry, code);
        self.inodes.count(entry.ino);
        self.names.note(entry.ino, self.ino, entry.name);
        if code == kind::DIRECTORY {
            self.adopt(no, entry, &name);
        }
    }

    /// Adds a name, in the form in which two must differ; false if it was there already.
    fn is_new(&mut self, name: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        match self.strict {
            true => name.to_ascii_lowercase().hash(&mut hasher),
            false => name.hash(&mut hasher),
        }
        self.seen.insert(hasher.finish())
    }

    /// Records that this directory is the parent of another.
    fn adopt(&self, no: Option<BlockNo>, entry: &DirEntry<'_>, name: &str) {
        let Some(place) = self.inodes.place(entry.ino) else { return };
        let order = Ordering::Relaxed;
        if place.parent.compare_exchange(0, self.ino.0, order, order).is_err() {
            let text = format!("entry {name} leads to directory {}, which has a name", entry.ino);
            self.push("directory-link", no, text);
        }
    }

    /// A directory inside its inode: the parent's number, entries, more entries.
    fn inline(mut self, raw: &[u8]) {
        let parent = dirent::inline_parent(&self.inode.block).unwrap_or_default();
        self.inodes.count(self.ino);
        self.inodes.count(parent);
        self.dotdot(parent);
        self.position = 2;
        let image = self.image;
        let first = &self.inode.block[4..];
        self.entries(None, first, Entries::over(&image.geo, first), |_| true);
        if let Some(more) = inline_rest(image, self.inode, raw).filter(|more| !more.is_empty()) {
            self.entries(None, more, Entries::over(&image.geo, more), |_| true);
        }
        self.left_out();
    }
}

/// A name in quotes, anything unprintable escaped.
pub(super) fn show(name: &[u8]) -> String {
    format!("'{}'", name.escape_ascii())
}
