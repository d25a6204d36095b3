//! The model: nodes in a map, names in ordered maps, bytes in vectors.

use super::node::{self, Body, Id, Node};
use super::{Errno, PosixFs, RenameFlags, XattrFlags};
use crate::tree::Kind;
use nextent_sync::{LockClass, Mutex};
use std::collections::BTreeMap;

static MODEL: LockClass = LockClass::new("testkit.model", 1);

const ROOT: Id = 0;
const NAME_MAX: usize = 255;
const MAX_FOLLOWED: usize = 40;

type Done = Result<(), Errno>;

/// A file system in memory, the oracle for the result of each call.
pub struct ModelFs {
    block: u64,
    /// `[model]`
    state: Mutex<ModelState>,
}

pub(super) struct ModelState {
    pub(super) nodes: BTreeMap<Id, Node>,
    next: Id,
}

impl ModelFs {
    /// An empty file system; collapse and insert need multiples of `block_size`.
    pub fn new(block_size: u64) -> Self {
        let root = Body::Dir { parent: ROOT, names: BTreeMap::new() };
        let nodes = BTreeMap::from([(ROOT, Node::new(root, 0o755))]);
        Self { block: block_size, state: Mutex::new(&MODEL, ModelState { nodes, next: 1 }) }
    }

    pub(super) fn with<R>(&self, act: impl FnOnce(&mut ModelState) -> R) -> R {
        act(&mut self.state.lock())
    }

    /// Runs `act` on the node at `path`.
    fn on<R>(
        &self,
        path: &str,
        act: impl FnOnce(&mut Node) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.with(|state| {
            let id = state.find(path)?;
            act(state.node(id))
        })
    }

    /// Runs `act` on the bytes of the regular file at `path`.
    fn on_bytes<R>(
        &self,
        path: &str,
        act: impl FnOnce(&mut Vec<u8>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.on(path, |node| act(node.bytes_mut()?))
    }
}

impl ModelState {
    fn node(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("names hold ids of living nodes only")
    }

    fn get(&self, id: Id) -> &Node {
        &self.nodes[&id]
    }

    /// The parent directory of a path, and the last name.
    fn parent<'p>(&self, path: &'p str) -> Result<(Id, &'p str), Errno> {
        let (dir, name) = path.rsplit_once('/').ok_or(libc::EINVAL)?;
        let dir = self.walk(ROOT, dir, &mut 0)?;
        self.get(dir).names()?;
        Ok((dir, name))
    }

    /// The node with a name in a directory, if there is one.
    fn lookup(&self, dir: Id, name: &str) -> Result<Option<Id>, Errno> {
        let names = self.get(dir).names()?;
        if name.len() > NAME_MAX {
            return Err(libc::ENAMETOOLONG);
        }
        Ok(names.get(name).copied())
    }

    /// Resolves a path, following symbolic links.
    fn walk(&self, from: Id, path: &str, followed: &mut usize) -> Result<Id, Errno> {
        let mut at = from;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let next = self.lookup(at, name)?.ok_or(libc::ENOENT)?;
            at = match &self.get(next).body {
                Body::Symlink(target) => {
                    *followed += 1;
                    if *followed > MAX_FOLLOWED {
                        return Err(libc::ELOOP);
                    }
                    self.walk(at, target, followed)?
                }
                _ => next,
            };
        }
        Ok(at)
    }

    /// The node at `path`; a symbolic link at its end is not followed.
    fn find(&self, path: &str) -> Result<Id, Errno> {
        if path == "/" {
            return Ok(ROOT);
        }
        let (dir, name) = self.parent(path)?;
        self.lookup(dir, name)?.ok_or(libc::ENOENT)
    }

    fn add(&mut self, path: &str, mut make: impl FnMut(Id) -> Node) -> Done {
        let (dir, name) = self.parent(path)?;
        if self.lookup(dir, name)?.is_some() {
            return Err(libc::EEXIST);
        }
        let mut node = make(dir);
        if self.get(dir).mode & 0o2000 != 0 {
            node.gid = self.get(dir).gid;
            node.mode |= if node.is_dir() { 0o2000 } else { 0 };
        }
        let id = self.next;
        self.next += 1;
        self.node(dir).links += u64::from(node.is_dir());
        self.nodes.insert(id, node);
        self.node(dir).names_mut()?.insert(name.into(), id);
        Ok(())
    }

    /// Removes a name, and the node with its last link.
    fn remove(&mut self, dir: Id, name: &str) -> Done {
        let id = self.node(dir).names_mut()?.remove(name).ok_or(libc::ENOENT)?;
        if self.get(id).is_dir() {
            self.node(dir).links -= 1;
            self.nodes.remove(&id);
            return Ok(());
        }
        self.node(id).links -= 1;
        if self.get(id).links == 0 {
            self.nodes.remove(&id);
        }
        Ok(())
    }

    /// Whether `above` is `id` or an ancestor of it.
    fn is_above(&self, above: Id, mut id: Id) -> bool {
        loop {
            if id == above {
                return true;
            }
            match self.get(id).body {
                Body::Dir { parent, .. } if id != ROOT => id = parent,
                _ => return false,
            }
        }
    }

    fn check_replace(&self, source: Id, target: Id) -> Done {
        match (self.get(source).is_dir(), self.get(target).is_dir()) {
            (true, false) => Err(libc::ENOTDIR),
            (false, true) => Err(libc::EISDIR),
            (true, true) if !self.get(target).names()?.is_empty() => Err(libc::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Gives `id` a name; updates its parent and link counts.
    fn place(&mut self, dir: Id, name: &str, id: Id) -> Done {
        self.node(dir).names_mut()?.insert(name.into(), id);
        if let Body::Dir { parent, .. } = &mut self.node(id).body {
            *parent = dir;
            self.node(dir).links += 1;
        }
        Ok(())
    }

    /// Removes a name of `id`, but keeps the node.
    fn displace(&mut self, dir: Id, name: &str, id: Id) -> Done {
        self.node(dir).names_mut()?.remove(name);
        if self.get(id).is_dir() {
            self.node(dir).links -= 1;
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str, flags: RenameFlags) -> Done {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let source = self.lookup(from_dir, from_name)?.ok_or(libc::ENOENT)?;
        let target = self.lookup(to_dir, to_name)?;
        match (flags, target) {
            (RenameFlags::NoReplace, Some(_)) => return Err(libc::EEXIST),
            (RenameFlags::Exchange, None) => return Err(libc::ENOENT),
            _ => {}
        }
        if self.get(source).is_dir() && self.is_above(source, to_dir) {
            return Err(libc::EINVAL);
        }
        let Some(target) = target else {
            self.displace(from_dir, from_name, source)?;
            return self.place(to_dir, to_name, source);
        };
        if self.get(target).is_dir() && self.is_above(target, from_dir) {
            let exchange = flags == RenameFlags::Exchange;
            return Err(if exchange { libc::EINVAL } else { libc::ENOTEMPTY });
        }
        if source == target {
            return Ok(());
        }
        if flags == RenameFlags::Exchange {
            self.displace(from_dir, from_name, source)?;
            self.displace(to_dir, to_name, target)?;
            self.place(from_dir, from_name, target)?;
            return self.place(to_dir, to_name, source);
        }
        self.check_replace(source, target)?;
        self.remove(to_dir, to_name)?;
        self.displace(from_dir, from_name, source)?;
        self.place(to_dir, to_name, source)
    }
}

/// Refuses attributes that symbolic links and special files cannot have.
fn check_xattr(node: &Node, name: &str) -> Done {
    let user = name.starts_with("user.");
    let may = matches!(node.kind(), Kind::File | Kind::Dir);
    if user && !may { Err(libc::EPERM) } else { Ok(()) }
}

impl PosixFs for ModelFs {
    fn create(&self, path: &str, mode: u32) -> Done {
        self.with(|state| state.add(path, |_| Node::new(Body::File(Vec::new()), mode)))
    }

    fn mkdir(&self, path: &str, mode: u32) -> Done {
        self.with(|state| {
            state.add(path, |parent| {
                // mkdir uses permissions and the sticky bit, but no set-id bits.
                Node::new(Body::Dir { parent, names: BTreeMap::new() }, mode & 0o1777)
            })
        })
    }

    fn mknod(&self, path: &str, mode: u32, rdev: (u32, u32)) -> Done {
        let kind = Kind::of_mode(mode).ok_or(libc::EINVAL)?;
        self.with(|state| state.add(path, |_| Node::new(Body::Special(kind, rdev), mode)))
    }

    fn symlink(&self, target: &str, path: &str) -> Done {
        if target.is_empty() {
            return Err(libc::ENOENT);
        }
        self.with(|state| state.add(path, |_| Node::new(Body::Symlink(target.into()), 0o777)))
    }

    fn link(&self, from: &str, to: &str) -> Done {
        self.with(|state| {
            let id = state.find(from)?;
            let (dir, name) = state.parent(to)?;
            if state.lookup(dir, name)?.is_some() {
                return Err(libc::EEXIST);
            }
            if state.get(id).is_dir() {
                return Err(libc::EPERM);
            }
            state.node(id).links += 1;
            state.node(dir).names_mut()?.insert(name.into(), id);
            Ok(())
        })
    }

    fn unlink(&self, path: &str) -> Done {
        self.with(|state| {
            let id = state.find(path)?;
            if state.get(id).is_dir() {
                return Err(libc::EISDIR);
            }
            let (dir, name) = state.parent(path)?;
            state.remove(dir, name)
        })
    }

    fn rmdir(&self, path: &str) -> Done {
        self.with(|state| {
            let id = state.find(path)?;
            if !state.get(id).names()?.is_empty() {
                return Err(libc::ENOTEMPTY);
            }
            let (dir, name) = state.parent(path)?;
            state.remove(dir, name)
        })
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done {
        self.with(|state| state.rename(from, to, flags))
    }

    fn write(&self, path: &str, offset: u64, new: &[u8]) -> Done {
        self.on_bytes(path, |bytes| {
            node::write(bytes, offset, new);
            Ok(())
        })
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        self.on_bytes(path, |bytes| {
            let start = bytes.len().min(offset as usize);
            Ok(bytes[start..bytes.len().min(start + len)].to_vec())
        })
    }

    fn truncate(&self, path: &str, size: u64) -> Done {
        self.on_bytes(path, |bytes| {
            bytes.resize(size as usize, 0);
            Ok(())
        })
    }

    fn allocate(&self, path: &str, offset: u64, len: u64, keep_size: bool) -> Done {
        self.on_bytes(path, |bytes| match len {
            0 => Err(libc::EINVAL),
            _ if keep_size => Ok(()),
            _ => {
                node::grow(bytes, offset + len);
                Ok(())
            }
        })
    }

    fn punch(&self, path: &str, offset: u64, len: u64) -> Done {
        self.zero(path, offset, len, true)
    }

    fn zero(&self, path: &str, offset: u64, len: u64, keep_size: bool) -> Done {
        self.on_bytes(path, |bytes| {
            if len == 0 {
                return Err(libc::EINVAL);
            }
            if !keep_size {
                node::grow(bytes, offset + len);
            }
            node::clear(bytes, offset, len);
            Ok(())
        })
    }

    fn collapse(&self, path: &str, offset: u64, len: u64) -> Done {
        self.on_bytes(path, |bytes| match len {
            0 => Err(libc::EINVAL),
            _ => node::collapse(bytes, self.block, offset, len),
        })
    }

    fn insert(&self, path: &str, offset: u64, len: u64) -> Done {
        self.on_bytes(path, |bytes| match len {
            0 => Err(libc::EINVAL),
            _ => node::insert(bytes, self.block, offset, len),
        })
    }

    fn chmod(&self, path: &str, mode: u32) -> Done {
        self.on(path, |node| match node.kind() {
            Kind::Symlink => Err(libc::EOPNOTSUPP),
            _ => {
                node.mode = mode & 0o7777;
                Ok(())
            }
        })
    }

    fn chown(&self, path: &str, uid: u32, gid: u32) -> Done {
        self.on(path, |node| {
            (node.uid, node.gid) = (uid, gid);
            // A new owner must not inherit set-id rights.
            if node.kind() != Kind::Dir {
                node.mode &= if node.mode & 0o010 != 0 { !0o6000 } else { !0o4000 };
            }
            Ok(())
        })
    }

    fn utimes(&self, path: &str, mtime: (i64, u32)) -> Done {
        self.on(path, |node| {
            node.mtime = mtime;
            Ok(())
        })
    }

    fn set_xattr(&self, path: &str, name: &str, value: &[u8], how: XattrFlags) -> Done {
        self.on(path, |node| {
            check_xattr(node, name)?;
            match (how, node.xattrs.contains_key(name)) {
                (XattrFlags::Create, true) => return Err(libc::EEXIST),
                (XattrFlags::Replace, false) => return Err(libc::ENODATA),
                _ => node.xattrs.insert(name.into(), value.into()),
            };
            Ok(())
        })
    }

    fn remove_xattr(&self, path: &str, name: &str) -> Done {
        self.on(path, |node| {
            check_xattr(node, name)?;
            node.xattrs.remove(name).map(|_| ()).ok_or(libc::ENODATA)
        })
    }

    fn get_xattr(&self, path: &str, name: &str) -> Result<Vec<u8>, Errno> {
        self.on(path, |node| {
            // Reading an attribute that the file cannot have finds none.
            node.xattrs.get(name).cloned().ok_or(libc::ENODATA)
        })
    }

    fn fsync(&self, path: &str) -> Done {
        self.on(path, |node| match node.kind() {
            Kind::Dir => Ok(()),
            _ => node.bytes().map(|_| ()),
        })
    }
}
