//! The entries of a tree, and the walk that collects them.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hasher;
use std::io;
use std::ops::Range;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
}

impl Kind {
    /// The kind in the upper bits of a mode.
    pub fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & libc::S_IFMT {
            libc::S_IFREG => Self::File,
            libc::S_IFDIR => Self::Dir,
            libc::S_IFLNK => Self::Symlink,
            libc::S_IFCHR => Self::CharDevice,
            libc::S_IFBLK => Self::BlockDevice,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            _ => return None,
        })
    }
}

/// The attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// A number that hard links of one file share.
    pub ino: u64,
    /// Type.
    pub kind: Kind,
    /// Permissions with set-id and sticky bits: the low 12 bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of links.
    pub nlink: u64,
    /// Length in bytes.
    pub size: u64,
    /// Modification time, seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Device number (major, minor) of device nodes.
    pub rdev: (u32, u32),
}

/// One file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path from the root, `/` for the root itself.
    pub path: Vec<u8>,
    /// The attributes.
    pub stat: Stat,
    /// The first path of the same file, if this is a further hard link.
    pub same_as: Option<Vec<u8>>,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Extended attributes, including ACLs in the format of system calls.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// A hash of a regular file's bytes.
    pub content: Option<u64>,
    /// Data ranges of a regular file, if the source reports holes.
    pub data: Option<Vec<Range<u64>>>,
}

/// A tree, in the order of its paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The files, the root first.
    pub entries: Vec<Entry>,
}

impl Tree {
    /// The entry of `path`.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| entry.path.as_slice().cmp(path.as_bytes()));
        Some(&self.entries[at.ok()?])
    }
}

/// A source of trees.
pub trait TreeSource {
    /// Identifies a file: an inode number or a path.
    type Node: Clone;

    /// The top directory.
    fn root(&self) -> io::Result<Self::Node>;
    /// The entries of a directory, without `.` and `..`, in any order.
    fn children(&self, dir: &Self::Node) -> io::Result<Vec<(Vec<u8>, Self::Node)>>;
    /// Type, owner, times and so on.
    fn stat(&self, node: &Self::Node) -> io::Result<Stat>;
    /// Reads from `offset`; zero bytes mean the end.
    fn read(&self, node: &Self::Node, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// The target of a symbolic link.
    fn target(&self, node: &Self::Node) -> io::Result<Vec<u8>>;
    /// All extended attributes.
    fn xattrs(&self, node: &Self::Node) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>>;
    /// Ranges that are not holes, if known.
    fn data(&self, _: &Self::Node, _size: u64) -> io::Result<Option<Vec<Range<u64>>>> {
        Ok(None)
    }
}

/// Collects the whole tree of `source`, without a top-level `lost+found`.
///
/// # Errors
/// The first error of the source, with the path that met it.
pub fn walk<S: TreeSource>(source: &S) -> io::Result<Tree> {
    let mut first: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut entries = Vec::new();
    let mut waiting = vec![(b"/".to_vec(), source.root()?)];
    let mut found = Vec::new();
    while let Some((path, node)) = waiting.pop() {
        let at = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.escape_ascii()))
        };
        let entry = collect(source, &node, path.clone()).map_err(at)?;
        if entry.stat.kind == Kind::Dir {
            let top = path == b"/";
            for (name, child) in source.children(&node).map_err(at)? {
                if !(top && name == b"lost+found") {
                    let lead: &[u8] = if top { b"" } else { &path };
                    waiting.push(([lead, b"/", &name].concat(), child));
                }
            }
        }
        found.push(entry);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    for mut entry in found {
        if entry.stat.kind != Kind::Dir {
            entry.same_as = first.get(&entry.stat.ino).cloned();
            first.entry(entry.stat.ino).or_insert_with(|| entry.path.clone());
        }
        entries.push(entry);
    }
    Ok(Tree { entries })
}

fn collect<S: TreeSource>(source: &S, node: &S::Node, path: Vec<u8>) -> io::Result<Entry> {
    let stat = source.stat(node)?;
    let file = stat.kind == Kind::File;
    let link = stat.kind == Kind::Symlink;
    Ok(Entry {
        path,
        stat,
        same_as: None,
        target: if link { Some(source.target(node)?) } else { None },
        xattrs: source.xattrs(node)?,
        content: if file { Some(hash(source, node, stat.size)?) } else { None },
        data: if file { source.data(node, stat.size)? } else { None },
    })
}

/// Hashes a file's bytes with their offsets, skipping runs of zeros.
///
/// Holes are read like data, since a kernel may not know its holes (ext3 files that were just
/// written). Only in files too large for that, reported holes are skipped.
fn hash<S: TreeSource>(source: &S, node: &S::Node, size: u64) -> io::Result<u64> {
    const STEP: u64 = 256 * 1024;
    const READ_WHOLE: u64 = 64 << 20;
    let known = if size > READ_WHOLE { source.data(node, size)? } else { None };
    let whole = 0..size;
    let ranges = known.unwrap_or_else(|| vec![whole]);
    let mut hasher = std::hash::DefaultHasher::new();
    let mut buf = vec![0; STEP as usize];
    let mut next = 0;
    for range in ranges {
        // Steps are aligned, so that the hash does not depend on holes.
        let mut at = (range.start / STEP * STEP).max(next);
        while at < range.end.min(size) {
            let want = STEP.min(size - at) as usize;
            fill(source, node, at, &mut buf[..want])?;
            if buf[..want].iter().any(|&byte| byte != 0) {
                hasher.write_u64(at);
                hasher.write(&buf[..want]);
            }
            at += STEP;
        }
        next = at.max(next);
    }
    Ok(hasher.finish())
}

fn fill<S: TreeSource>(source: &S, node: &S::Node, at: u64, buf: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let n = source.read(node, at + done as u64, &mut buf[done..])?;
        if n == 0 {
            let end = at + done as u64;
            return Err(io::Error::other(format!("reads end at {end}, before the file's size")));
        }
        done += n;
    }
    Ok(())
}
