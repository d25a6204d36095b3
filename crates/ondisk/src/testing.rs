//! For tests: images made by e2fsprogs, and what its tools say about them.
//!
//! Tests that need a tool return early, with a word, where the tool is missing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::extent::Node;
use crate::{BlockNo, Geometry, GroupDesc, GroupNo, Inode, InodeNo, Superblock};

/// A temporary image, removed at the end.
pub(crate) struct Image {
    dir: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn run(command: &mut Command) -> Option<String> {
    match command.output() {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => {
            eprintln!("skipped: {:?} is not installed", command.get_program());
            None
        }
    }
}

impl Image {
    /// `mke2fs ARGS file SIZE`; a `%` in an argument stands for the temporary directory.
    pub(crate) fn make(args: &str, size: &str) -> Option<Image> {
        Self::make_from(args, size, |_| {})
    }

    /// The same, where `fill` first puts files into the directory `%/tree`.
    pub(crate) fn make_from(args: &str, size: &str, fill: impl Fn(&Path)) -> Option<Image> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nextent-ondisk-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(dir.join("tree")).unwrap();
        let mut image = Image { dir, bytes: Vec::new() };
        fill(&image.dir.join("tree"));
        let here = image.dir.to_str().unwrap().to_owned();
        let mut command = Command::new("mke2fs");
        command.arg("-qF").args(args.split_whitespace().map(|arg| arg.replace('%', &here)));
        run(command.arg(image.path()).arg(size))?;
        image.bytes = std::fs::read(image.path()).unwrap();
        Some(image)
    }

    /// An image as the kernel left it in the middle: made, mounted, `work` done in its root, and
    /// copied before it is unmounted. `None` where mounting is not possible.
    pub(crate) fn interrupted(args: &str, size: &str, work: impl Fn(&Path)) -> Option<Image> {
        let mut image = Self::make(args, size)?;
        let place = image.dir.join("mounted");
        std::fs::create_dir(&place).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop"]).arg(image.path()).arg(&place);
        if !mount.output().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: cannot mount a loop device");
            return None;
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&place)));
        image.bytes = std::fs::read(image.path()).unwrap();
        run(Command::new("umount").arg(&place));
        done.unwrap();
        Some(image)
    }

    /// Reads the image again, as it is since it was unmounted.
    pub(crate) fn reload(&mut self) {
        self.bytes = std::fs::read(self.path()).unwrap();
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// What `debugfs -R request` prints.
    pub(crate) fn debugfs(&self, request: &str) -> Option<String> {
        run(Command::new("debugfs").arg("-R").arg(request).arg(self.path()))
    }

    /// What `debugfs` prints for many requests; it repeats each before its answer.
    pub(crate) fn debugfs_all(&self, requests: &[String]) -> Option<String> {
        let script = self.dir.join("requests");
        std::fs::write(&script, requests.join("\n")).unwrap();
        run(Command::new("debugfs").arg("-f").arg(script).arg(self.path()))
    }

    /// `debugfs -w -R request`, then the image is read again.
    pub(crate) fn debugfs_write(&mut self, request: &str) -> Option<String> {
        let out = run(Command::new("debugfs").args(["-w", "-R"]).arg(request).arg(self.path()));
        self.bytes = std::fs::read(self.path()).unwrap();
        out
    }

    /// Lets `e2fsck -fyD` build directory indexes; whether that worked.
    pub(crate) fn reindex(&mut self) -> bool {
        let done = Command::new("e2fsck").arg("-fyD").arg(self.path()).output();
        self.bytes = std::fs::read(self.path()).unwrap();
        done.is_ok_and(|output| output.status.code().is_some_and(|code| code < 4))
    }

    /// What `dumpe2fs` prints.
    pub(crate) fn dumpe2fs(&self) -> Option<String> {
        run(Command::new("dumpe2fs").arg(self.path()))
    }

    /// What `dumpe2fs -h` prints, or `None` when it refuses the image.
    pub(crate) fn dumpe2fs_header(&self) -> Option<String> {
        let output = Command::new("dumpe2fs").arg("-h").arg(self.path()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.contains("Filesystem features").then_some(text)
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
        let out = self.debugfs(&format!("stat {path}")).unwrap();
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
