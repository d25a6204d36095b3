//! Images and e2fsprogs' answers about them, for tests.
//!
//! A fixture in `tests/images` has an image and the answers of debugfs and dumpe2fs, in the order
//! in which its test asks for them. Tests replay fixtures, so they need no tool and no mount. With
//! `NEXTENT_RECORD=1` in the environment they run the tools instead and write the fixtures;
//! `tests/images/README.md` describes both.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::extent::Node;
use crate::{BlockNo, Geometry, GroupDesc, GroupNo, Inode, InodeNo, Superblock};

mod tape;

use tape::Tape;

/// An image, from a fixture or from mke2fs.
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    tape: RefCell<Tape>,
    /// While a fixture is recorded: the directory of the image.
    dir: Option<tempfile::TempDir>,
}

/// Whether fixtures are recorded instead of replayed.
pub(crate) fn recording() -> bool {
    std::env::var_os("NEXTENT_RECORD").is_some()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Image {
    /// The fixture `name`: the image of `mke2fs ARGS file SIZE`.
    pub(crate) fn make(name: &str, args: &str, size: &str) -> Image {
        Self::make_from(name, args, size, |_| {})
    }

    /// As [`Self::make`], where `fill` first writes files into the directory that the argument
    /// `%/tree` names.
    pub(crate) fn make_from(name: &str, args: &str, size: &str, fill: impl Fn(&Path)) -> Image {
        let mut image = Self::open(name, &format!("mke2fs {args} {size}"));
        if let Some(dir) = &image.dir {
            std::fs::create_dir(dir.path().join("tree")).unwrap();
            fill(&dir.path().join("tree"));
            let here = dir.path().to_str().unwrap().to_owned();
            let mut command = Command::new("mke2fs");
            command.arg("-qF").args(args.split_whitespace().map(|arg| arg.replace('%', &here)));
            run(command.arg(image.path()).arg(size));
        }
        image.reload();
        image
    }

    /// As [`Self::make`], then mounted by the kernel, changed by `work`, and copied while mounted.
    pub(crate) fn interrupted(name: &str, args: &str, size: &str, work: impl Fn(&Path)) -> Image {
        let mut image = Self::open(name, &format!("mke2fs {args} {size}; mount"));
        if let Some(dir) = &image.dir {
            let mounted = dir.path().join("mounted");
            std::fs::create_dir(&mounted).unwrap();
            let args = ["-qF"].into_iter().chain(args.split_whitespace());
            run(Command::new("mke2fs").args(args).arg(image.path()).arg(size));
            run(Command::new("mount").args(["-o", "loop"]).arg(image.path()).arg(&mounted));
            work(&mounted);
            image.reload();
            run(Command::new("umount").arg(&mounted));
        } else {
            image.reload();
        }
        image
    }

    fn open(name: &str, command: &str) -> Image {
        let (tape, dir) = match recording() {
            true => (Tape::create(name, command), Some(tempfile::tempdir().unwrap())),
            false => (Tape::open(name, command), None),
        };
        Image { bytes: Vec::new(), tape: RefCell::new(tape), dir }
    }

    /// Reads the image file again.
    pub(crate) fn reload(&mut self) {
        let file = self.dir.as_ref().map(|_| std::fs::read(self.path()).unwrap());
        self.bytes = self.tape.get_mut().image(file);
    }

    fn path(&self) -> PathBuf {
        self.dir.as_ref().expect("only a recording has files").path().join("image")
    }

    /// The answer of a tool: from the fixture, or from `ask`.
    fn answer(&self, ask: impl FnOnce(&Path) -> String) -> String {
        let answer = self.dir.as_ref().map(|_| ask(&self.path()));
        self.tape.borrow_mut().text(answer)
    }

    /// Writes [`Self::bytes`] to the image file, for a tool.
    pub(crate) fn write_back(&self) {
        if self.dir.is_some() {
            std::fs::write(self.path(), &self.bytes).unwrap();
        }
    }

    /// The path of a file with these bytes, for a request to debugfs.
    pub(crate) fn file_with(&self, bytes: &[u8]) -> String {
        let Some(dir) = &self.dir else { return String::new() };
        let path = dir.path().join("value");
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    /// The output of `debugfs -R request`.
    pub(crate) fn debugfs(&self, request: &str) -> String {
        self.answer(|path| run(Command::new("debugfs").arg("-R").arg(request).arg(path)))
    }

    /// The output of debugfs for many requests. It repeats each request before its answer.
    pub(crate) fn debugfs_all(&self, requests: &[String]) -> String {
        self.answer(|path| {
            let script = path.with_file_name("requests");
            std::fs::write(&script, requests.join("\n")).unwrap();
            run(Command::new("debugfs").arg("-f").arg(script).arg(path))
        })
    }

    /// Changes the image by requests to `debugfs -w`.
    pub(crate) fn debugfs_write(&mut self, requests: &[&str]) {
        if self.dir.is_some() {
            for request in requests {
                run(Command::new("debugfs").args(["-w", "-R"]).arg(request).arg(self.path()));
            }
        }
        self.reload();
    }

    /// Has `e2fsck -fyD` build directory indexes.
    pub(crate) fn reindex(&mut self) {
        if self.dir.is_some() {
            let done = Command::new("e2fsck").arg("-fyD").arg(self.path()).output().unwrap();
            assert!(done.status.code().is_some_and(|code| code < 4), "{done:?}");
        }
        self.reload();
    }

    /// The output of dumpe2fs.
    pub(crate) fn dumpe2fs(&self) -> String {
        self.answer(|path| run(Command::new("dumpe2fs").arg(path)))
    }

    /// The output of `dumpe2fs -h`; empty if it refuses the image.
    pub(crate) fn dumpe2fs_header(&self) -> String {
        self.answer(|path| {
            let output = Command::new("dumpe2fs").arg("-h").arg(path).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if text.contains("Filesystem features") { text } else { String::new() }
        })
    }

    pub(crate) fn superblock(&self) -> Superblock {
        Superblock::read(&self.bytes[1024..]).unwrap()
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.superblock().check(self.bytes.len() as u64).unwrap()
    }

    pub(crate) fn block(&self, block: BlockNo) -> &[u8] {
        let size = self.geometry().block_len();
        &self.bytes[block.0 as usize * size..][..size]
    }

    pub(crate) fn desc_bytes(&self, group: GroupNo) -> &[u8] {
        let geometry = self.geometry();
        let (block, offset) = geometry.desc_location(group);
        &self.block(block)[offset..][..usize::from(geometry.desc_size)]
    }

    pub(crate) fn desc(&self, group: GroupNo) -> GroupDesc {
        GroupDesc::read(self.desc_bytes(group)).unwrap()
    }

    /// The inode at a path, as debugfs finds it.
    pub(crate) fn inode_called(&self, path: &str) -> InodeNo {
        let out = self.debugfs(&format!("stat {path}"));
        let number = out.split("Inode:").nth(1).and_then(|rest| rest.split_whitespace().next());
        InodeNo(number.expect("the file exists").parse().unwrap())
    }

    /// All blocks of a file that maps them by extents, in order.
    pub(crate) fn file_blocks(&self, ino: InodeNo) -> Vec<BlockNo> {
        let inode = Inode::read(&self.geometry(), self.inode_bytes(ino)).unwrap();
        let mut nodes = vec![inode.block.to_vec()];
        let mut blocks = Vec::new();
        while let Some(bytes) = nodes.pop() {
            let node = Node::new(&bytes).unwrap();
            if node.depth() == 0 {
                for extent in node.extents() {
                    let run = extent.start.0..extent.start.0 + u64::from(extent.len);
                    blocks.extend(run.map(BlockNo));
                }
            } else {
                nodes.extend(node.indexes().rev().map(|index| self.block(index.child).to_vec()));
            }
        }
        blocks
    }

    pub(crate) fn inode_bytes(&self, ino: InodeNo) -> &[u8] {
        let geometry = self.geometry();
        let place = geometry.inode_location(ino).unwrap();
        let block = self.desc(place.group).inode_table.0 + u64::from(place.table_block);
        &self.block(BlockNo(block))[place.offset..][..usize::from(geometry.inode_size)]
    }
}

/// A geometry of 4 KiB blocks and 256-byte inodes without any feature.
pub(crate) fn small_geometry() -> Geometry {
    let mut sb = Superblock::empty();
    sb.log_block_size.set(2);
    sb.log_cluster_size.set(2);
    sb.blocks_per_group.set(32768);
    sb.clusters_per_group.set(32768);
    sb.inodes_per_group.set(8192);
    sb.set_blocks_count(100_000);
    sb.inodes_count.set(4 * 8192);
    sb.first_ino.set(11);
    sb.inode_size.set(256);
    sb.check(u64::MAX).unwrap()
}
