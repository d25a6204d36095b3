//! Walks over the block map of one inode, extents or indirect, that any bytes may come to.
//!
//! A walk keeps its own stack, looks at a node once, and ends when its visitor says so: what it
//! reads is bounded by the volume.

use nextent_num::{must_fit, to_u64, to_usize};
use nextent_sync::HashSet;

use nextent_ondisk::extent::{self, Expected, Extent, Node};
use nextent_ondisk::inode::flags;
use nextent_ondisk::{BlockNo, FileBlock, Geometry, Inode, InodeNo, indirect};

use super::image::Image;
use super::report::Problem;

/// A part of a block map.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// Blocks of the file.
    Run(Extent),
    /// A block of the map itself.
    Node(BlockNo),
}

/// How a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Go {
    On,
    /// Not into this node.
    Past,
    Stop,
}

/// Sees the parts of a map and what is wrong with it.
pub(super) trait Visitor {
    fn part(&mut self, part: Part) -> Go;
    fn wrong(&mut self, problem: Problem);
}

/// Walks the map of `ino`. Nothing of a damaged node is passed on.
pub(super) fn walk(image: &Image, pass: u8, ino: InodeNo, inode: &Inode, to: &mut dyn Visitor) {
    let seen = HashSet::default();
    let seed = inode.csum_seed(&image.geo, ino);
    let mut walk = Walk { image, pass, ino, seed, to, seen };
    if inode.has_flag(flags::EXTENTS) {
        walk.extents(inode);
    } else {
        walk.indirect(inode);
    }
}

struct Walk<'a> {
    image: &'a Image,
    pass: u8,
    ino: InodeNo,
    seed: u32,
    to: &'a mut dyn Visitor,
    /// Nodes met on this walk: a map that leads to one twice is damaged.
    seen: HashSet<BlockNo>,
}

/// A node of an extent tree that is being walked.
struct Level {
    bytes: Vec<u8>,
    next: usize,
    end: u64,
}

impl Walk<'_> {
    fn geo(&self) -> &Geometry {
        &self.image.geo
    }

    fn wrong(&mut self, code: &'static str, block: Option<BlockNo>, text: String) {
        let problem = Problem::error(self.pass, code, text).at_inode(self.ino);
        self.to.wrong(block.map_or(problem.clone(), |block| problem.at_block(block)));
    }

    fn corrupt(&mut self, error: &nextent_ondisk::Corrupt, block: Option<BlockNo>) {
        let problem = Problem::corrupt(self.pass, "block-map", error).at_inode(self.ino);
        self.to.wrong(block.map_or(problem.clone(), |block| problem.at_block(block)));
    }

    /// Tells the visitor of a node; whether to go in. Sets `stop` when the walk is over.
    fn enter(&mut self, block: BlockNo, stop: &mut bool) -> bool {
        if !self.seen.insert(block) {
            self.wrong("map-loop", Some(block), "occurs twice in the file's block map".into());
            return false;
        }
        match self.to.part(Part::Node(block)) {
            Go::On => true,
            Go::Past => false,
            Go::Stop => {
                *stop = true;
                false
            }
        }
    }

    fn extents(&mut self, inode: &Inode) {
        let root = inode.block.to_vec();
        if let Err(error) = self.check_node(&root, &Expected::ROOT, None) {
            return self.corrupt(&error, None);
        }
        let mut stack = vec![Level { bytes: root, next: 0, end: extent::END_OF_FILE_BLOCKS }];
        let mut stop = false;
        while let Some(level) = stack.last_mut() {
            // Every level on the stack was checked, header and entries.
            let node = Node::new(&level.bytes).expect("nodes on the stack were checked");
            if node.depth() == 0 {
                let run = node.extents().collect::<Vec<_>>();
                stack.pop();
                if run.into_iter().any(|run| self.to.part(Part::Run(run)) == Go::Stop) {
                    return;
                }
                continue;
            }
            if level.next >= node.len() {
                stack.pop();
                continue;
            }
            let (at, len, depth) = (level.next, node.len(), node.depth() - 1);
            let index = node.index(at);
            let end = if at + 1 < len { u64::from(node.key(at + 1).0) } else { level.end };
            level.next += 1;
            let expected = Expected { depth: Some(depth), range: u64::from(index.block.0)..end };
            if let Some(bytes) = self.child(index.child, index.block, &expected, &mut stop) {
                stack.push(Level { bytes, next: 0, end });
            }
            if stop {
                return;
            }
        }
    }

    fn child(
        &mut self,
        no: BlockNo,
        key: FileBlock,
        expected: &Expected,
        stop: &mut bool,
    ) -> Option<Vec<u8>> {
        if !self.enter(no, stop) {
            return None;
        }
        let bytes = self.image.block(self.pass, no)?;
        if let Err(error) = self.check_node(&bytes, expected, Some(key)) {
            self.corrupt(&error, Some(no));
            return None;
        }
        if self.geo().features.metadata_csum()
            && let Err(error) = extent::verify(self.seed, &bytes)
        {
            self.corrupt(&error, Some(no));
        }
        Some(bytes)
    }

    /// What the format says of a node, and what every writer of it keeps besides: room that is
    /// used, and a first key that its parent repeats.
    fn check_node(
        &self,
        bytes: &[u8],
        expected: &Expected,
        key: Option<FileBlock>,
    ) -> Result<(), nextent_ondisk::Corrupt> {
        let bad = |name, value: u64| {
            Err(nextent_ondisk::Corrupt::field(nextent_ondisk::Structure::ExtentNode, name, value))
        };
        let header = extent::check(self.geo(), bytes, expected)?;
        if header.max + 2 < extent::capacity(bytes.len()) {
            return bad("eh_max", header.max.into());
        }
        let Some(key) = key else { return Ok(()) };
        let node = Node::new(bytes)?;
        if node.is_empty() {
            return bad("eh_entries", 0);
        }
        if node.key(0) != key {
            return bad("first block (not what the index says)", node.key(0).0.into());
        }
        Ok(())
    }

    fn indirect(&mut self, inode: &Inode) {
        let per_block = u64::from(self.geo().block_size / 4);
        let direct = u64::from(indirect::DIRECT);
        let root = inode.block.to_vec();
        if self.pointers(&root, 0, 0..to_usize(indirect::DIRECT), None) {
            return;
        }
        let mut at = direct;
        let mut reach = per_block;
        for (level, slot) in
            [indirect::SINGLE, indirect::DOUBLE, indirect::TRIPLE].iter().enumerate()
        {
            let pointer = indirect::pointer(&root, *slot);
            if pointer.0 != 0 && self.tree(pointer, must_fit(level), at) {
                return;
            }
            at += reach;
            reach *= per_block;
        }
    }

    /// Walks the tree below one pointer, `level` levels above its last; true to stop.
    fn tree(&mut self, root: BlockNo, level: u32, at: u64) -> bool {
        let bits = self.geo().block_bits - 2;
        let mut stack = vec![(Vec::new(), root, level, at, 0usize)];
        let mut stop = false;
        while let Some((bytes, no, level, at, next)) = stack.last_mut() {
            let (no, level, at, next_at) = (*no, *level, *at, *next);
            if bytes.is_empty() {
                match self.indirect_block(no, &mut stop) {
                    Some(read) => *bytes = read,
                    None if stop => return true,
                    None => {
                        stack.pop();
                        continue;
                    }
                }
            }
            if level == 0 {
                let bytes = std::mem::take(bytes);
                stack.pop();
                if self.pointers(&bytes, at, 0..indirect::count(&bytes), Some(no)) {
                    return true;
                }
                continue;
            }
            let found = (next_at..indirect::count(bytes))
                .map(|slot| (slot, indirect::pointer(bytes, slot)))
                .find(|(_, pointer)| pointer.0 != 0);
            let Some((slot, pointer)) = found else {
                stack.pop();
                continue;
            };
            *next = slot + 1;
            let child_at = at + ((to_u64(slot)) << (bits * level));
            stack.push((Vec::new(), pointer, level - 1, child_at, 0));
        }
        false
    }

    fn indirect_block(&mut self, no: BlockNo, stop: &mut bool) -> Option<Vec<u8>> {
        if !self.geo().holds_run(no, 1) {
            let text = format!("indirect block {no} lies outside the volume");
            self.wrong("block-range", None, text);
            return None;
        }
        if !self.enter(no, stop) {
            return None;
        }
        self.image.block(self.pass, no)
    }

    /// Passes on the runs that a row of data pointers makes; true to stop.
    fn pointers(
        &mut self,
        bytes: &[u8],
        at: u64,
        slots: std::ops::Range<usize>,
        home: Option<BlockNo>,
    ) -> bool {
        let mut run: Option<Extent> = None;
        for slot in slots {
            let block = indirect::pointer(bytes, slot);
            let file_block = at + to_u64(slot);
            if block.0 == 0 {
                continue;
            }
            if !self.geo().holds_run(block, 1) || file_block >= extent::END_OF_FILE_BLOCKS {
                let text = format!("file block {file_block} is block {block}, which cannot be");
                self.wrong("block-range", home, text);
                continue;
            }
            match &mut run {
                Some(run)
                    if run.end() == file_block && run.start.0 + u64::from(run.len) == block.0 =>
                {
                    run.len += 1;
                }
                _ => {
                    let block = FileBlock(must_fit(file_block));
                    let start = indirect::pointer(bytes, slot);
                    let new = Extent { block, len: 1, start, unwritten: false };
                    if let Some(done) = run.replace(new)
                        && self.to.part(Part::Run(done)) == Go::Stop
                    {
                        return true;
                    }
                }
            }
        }
        run.is_some_and(|run| self.to.part(Part::Run(run)) == Go::Stop)
    }
}

/// Collects the runs of a file, in the order of the file; damaged parts are left out, and what goes
/// beyond the number of blocks that the volume has.
pub(super) struct Runs {
    pub(super) runs: Vec<Extent>,
    pub(super) damaged: bool,
    /// Blocks that may still be mapped. A map with more maps some of them twice.
    left: u64,
}

impl Visitor for Runs {
    fn part(&mut self, part: Part) -> Go {
        let Part::Run(run) = part else { return Go::On };
        let Some(left) = self.left.checked_sub(run.len.into()) else {
            self.damaged = true;
            return Go::Stop;
        };
        self.left = left;
        self.runs.push(run);
        Go::On
    }

    fn wrong(&mut self, _: Problem) {
        self.damaged = true;
    }
}

/// The runs of a file that shares no blocks; what is wrong with its map was said by pass 1.
pub(super) fn runs(image: &Image, pass: u8, ino: InodeNo, inode: &Inode) -> Runs {
    let mut runs = Runs { runs: Vec::new(), damaged: false, left: image.geo.blocks_count };
    walk(image, pass, ino, inode, &mut runs);
    runs
}
