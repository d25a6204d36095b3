//! `mknod`, `mkdir`, and creating files.

use nextent_ondisk::inode::device;
use nextent_ondisk::{InodeNo, RoCompat};
use nextent_store::Handle;
use nextent_sync::Arc;
use nextent_sync::atomic::Ordering;

use super::{check_name, touch_dir};
use crate::error::{Error, Result};
use crate::inode::create::{NewInode, create};
use crate::inode::entries::Names;
use crate::inode::{Change, Inode, attributes, credits, truncate};
use crate::ops::Inodes;
use crate::{Attr, Cred, FileType, NewNode};

/// Links of a directory above which its count is no longer kept.
pub(crate) const LINK_MAX: u16 = 65000;

/// The kind of inode to create.
pub(super) struct NodeSpec {
    pub(super) kind: FileType,
    /// Permission bits as requested, before the umask.
    pub(super) mode: u16,
    /// Opens that it begins with.
    pub(super) opens: u32,
}

/// A step that completes a new inode, given the directory, the handle and the inode.
type FinishNode<'f> = dyn Fn(&Arc<Inode>, &Handle<'_>, &Arc<Inode>) -> Result<()> + 'f;

impl Inodes {
    /// Creates an empty file, a pipe, a socket or a device node. The umask applies unless the
    /// directory has a default access list.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Access`], [`Error::NoSpace`], [`Error::NoInodes`],
    /// [`Error::DirectoryFull`], [`Error::Perm`] for device nodes of unprivileged users,
    /// [`Error::NoKey`] in an encrypted directory.
    pub fn mknod(
        &self,
        cred: &Cred,
        parent: InodeNo,
        name: &[u8],
        node: NewNode,
        mode: u16,
    ) -> Result<Attr> {
        let (kind, device) = match node {
            NewNode::Regular => (FileType::Regular, None),
            NewNode::Fifo => (FileType::Fifo, None),
            NewNode::Socket => (FileType::Socket, None),
            NewNode::CharDevice(number) => (FileType::CharDevice, Some(number)),
            NewNode::BlockDevice(number) => (FileType::BlockDevice, Some(number)),
        };
        if device.is_some() && !cred.privileged {
            return Err(Error::Perm);
        }
        self.make(cred, parent, name, NodeSpec { kind, mode, opens: 0 }, |_, h, inode| {
            if let Some(number) = device {
                let area = device::encode(number.major, number.minor);
                inode.change(h, Change::Life, |state| state.disk.block = area);
            }
            Ok(())
        })
        .map(|inode| super::attr(&self.fs, &inode))
    }

    /// Creates and opens a regular file, as one step.
    ///
    /// # Errors
    /// As [`mknod`](Self::mknod).
    pub fn create(&self, cred: &Cred, parent: InodeNo, name: &[u8], mode: u16) -> Result<Attr> {
        let inode = self.create_opened(cred, parent, name, mode)?;
        Ok(super::attr(&self.fs, &inode))
    }

    /// As [`create`](Self::create), but returns the inode.
    pub(crate) fn create_opened(
        &self,
        cred: &Cred,
        parent: InodeNo,
        name: &[u8],
        mode: u16,
    ) -> Result<Arc<Inode>> {
        let spec = NodeSpec { kind: FileType::Regular, mode, opens: 1 };
        self.make(cred, parent, name, spec, |_, _, _| Ok(()))
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As [`mknod`](Self::mknod), and [`Error::TooManyLinks`].
    pub fn mkdir(&self, cred: &Cred, parent: InodeNo, name: &[u8], mode: u16) -> Result<Attr> {
        let spec = NodeSpec { kind: FileType::Directory, mode, opens: 0 };
        self.make(cred, parent, name, spec, |dir, h, inode| {
            Names::of(&self.fs, inode).init(h, dir.ino)
        })
        .map(|inode| super::attr(&self.fs, &inode))
    }

    /// Creates an inode, completes it with `finish` (called once per attempt) and names it.
    pub(super) fn make(
        &self,
        cred: &Cred,
        parent: InodeNo,
        name: &[u8],
        spec: NodeSpec,
        finish: impl Fn(&Arc<Inode>, &Handle<'_>, &Arc<Inode>) -> Result<()>,
    ) -> Result<Arc<Inode>> {
        self.fs.check_writable()?;
        check_name(name).map_err(|error| match error {
            Error::Invalid if matches!(name, b"." | b"..") => Error::Exists,
            error => error,
        })?;
        self.attempt(|| {
            let dir = self.directory(parent)?;
            let _guard = self.lock_directory(&dir)?;
            let names = Names::of(&self.fs, &dir);
            self.check_new_name(cred, &dir, &names, name)?;
            names.check_key()?;
            if spec.kind == FileType::Directory {
                self.check_room_for_subdirectory(&dir)?;
            }
            let inode = self.make_in(cred, (&dir, &names), name, &spec, &finish)?;
            if let Err(error) = self.sync_entries_if_flagged(&dir) {
                if spec.opens > 0 {
                    // The caller gets an error and no file, so it will not release the open.
                    self.release_inode(&inode)?;
                }
                return Err(error);
            }
            Ok(inode)
        })
    }

    fn make_in(
        &self,
        cred: &Cred,
        (dir, names): (&Arc<Inode>, &Names<'_>),
        name: &[u8],
        spec: &NodeSpec,
        finish: &FinishNode<'_>,
    ) -> Result<Arc<Inode>> {
        let fs = &self.fs;
        let NodeSpec { kind, mode, opens } = *spec;
        let inherited = attributes::inherit(fs, dir, kind, mode, cred.umask)?;
        let h = fs.start(credits::create(names.insert_credits()))?;
        let links = if kind == FileType::Directory { 2 } else { 1 };
        let new = NewInode { cred, kind, mode: inherited.mode, links, name };
        let inode = create(fs, &h, dir, &new)?;
        let done = attributes::set_inherited(fs, &h, &inode, &inherited)
            .and_then(|()| finish(dir, &h, &inode))
            .and_then(|()| names.insert(&h, name, inode.ino, kind));
        if let Err(error) = done {
            self.drop_new(h, &inode)?;
            return Err(error);
        }
        // Callers that know the number from an earlier file may open and release it meanwhile.
        inode.opens.fetch_add(opens, Ordering::SeqCst);
        inode.finish_creation();
        if kind == FileType::Directory {
            self.add_subdirectory(&h, dir);
        }
        touch_dir(fs, &h, dir);
        Ok(inode)
    }

    /// Frees an inode that was created under `h` and got no name.
    pub(super) fn drop_new(&self, h: Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        self.fs.orphans.add(&self.fs, &h, inode);
        inode.change(&h, Change::Names, |state| state.disk.links = 0);
        inode.finish_creation();
        drop(h);
        truncate::reap(&self.fs, inode)
    }

    /// Whether `dir` may have another subdirectory.
    pub(super) fn check_room_for_subdirectory(&self, dir: &Inode) -> Result<()> {
        let links = dir.with(|state| state.disk.links);
        if links >= LINK_MAX && !self.fs.geometry.features.has(RoCompat::DIR_NLINK) {
            return Err(Error::TooManyLinks);
        }
        Ok(())
    }

    /// Counts another `..` that refers to `dir`; past the limit the count stays 1.
    pub(super) fn add_subdirectory(&self, h: &Handle<'_>, dir: &Arc<Inode>) {
        dir.change(h, Change::Entries, |state| {
            let links = state.disk.links;
            let many = links == 1 || links >= LINK_MAX - 1;
            let allowed = self.fs.geometry.features.has(RoCompat::DIR_NLINK);
            state.disk.links = if many && allowed { 1 } else { links + 1 };
        });
    }

    /// Counts one `..` fewer.
    pub(super) fn remove_subdirectory(&self, h: &Handle<'_>, dir: &Arc<Inode>) {
        dir.change(h, Change::Entries, |state| {
            if state.disk.links > 2 {
                state.disk.links -= 1;
            }
        });
    }
}
