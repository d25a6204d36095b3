//! Calls that read without locks: permission checks of a user without rights, calls by stale inode
//! numbers, and listings of removed directories.

use nextent::inodes::{Access, InodeNo, Inodes, NewNode, SetAttr, XattrMode};
use nextent::{Cred, Error};
use nextent_ondisk::acl::{Acl, AclEntry, Tag};

use crate::plan::THREADS;
use crate::worker::{Done, Worker};

const LIST: &[u8] = b"system.posix_acl_access";
/// The user without rights.
const USER: u32 = 1000;
/// Bytes of a name such that three names fill a block.
const LONG: usize = 250;

fn user() -> Cred {
    Cred::user(USER, USER, Vec::new(), 0)
}

/// The rights that a watched file grants to the user, whatever its list.
fn others(file: usize) -> u16 {
    if file == 1 { 4 } else { 0 }
}

/// An access list for a watched file of a thread: a small one, which fits in the inode, or a large
/// one, in a block that several threads' files may share.
fn list(thread: usize, file: usize, which: u64) -> Vec<u8> {
    let mut entries = vec![(Tag::UserObj, 6), (Tag::User(USER), others(file))];
    if which & 1 != 0 {
        let first = 2000 + if which & 2 != 0 { 100 * thread as u32 } else { 0 };
        entries.extend((0..14).map(|n| (Tag::User(first + n), 6)));
    }
    entries.extend([(Tag::GroupObj, 4), (Tag::Mask, 6), (Tag::Other, others(file))]);
    let entries = entries.into_iter().map(|(tag, perm)| AclEntry { tag, perm }).collect();
    Acl { entries }.to_xattr()
}

/// Makes the watched files.
pub(crate) fn watched(volume: &Inodes, shared: InodeNo) -> Result<[[InodeNo; 2]; THREADS], String> {
    let mut all = [[InodeNo(0); 2]; THREADS];
    for (thread, files) in all.iter_mut().enumerate() {
        for (file, ino) in files.iter_mut().enumerate() {
            let (name, mode) = (format!("watched{thread}{file}"), 0o660 | others(file));
            let made = volume.mknod(&Cred::root(), shared, name.as_bytes(), NewNode::Regular, mode);
            *ino = made.map_err(|error| format!("a watched file: {error}"))?.ino;
        }
    }
    Ok(all)
}

impl Worker<'_> {
    fn watched(&self, file: usize) -> InodeNo {
        self.shared_state.watched[self.thread][file]
    }

    pub(crate) fn set_list(&mut self, file: usize, which: u64) -> Done {
        let (ino, value) = (self.watched(file), list(self.thread, file, which));
        self.volume().setxattr(&Cred::root(), ino, LIST, &value, XattrMode::Either)
    }

    pub(crate) fn remove_list(&mut self, file: usize) -> Done {
        self.volume().removexattr(&Cred::root(), self.watched(file), LIST)
    }

    pub(crate) fn set_mode(&mut self, file: usize, which: u64) -> Done {
        let bits = [0o660, 0o640][which as usize % 2] | others(file);
        let set = SetAttr { mode: Some(bits), ..SetAttr::default() };
        self.volume().setattr(&Cred::root(), self.watched(file), &set).map(drop)
    }

    /// Checks several times whether the user may read a watched file.
    pub(crate) fn check_rights(&mut self, thread: usize, file: usize) -> Done {
        let ino = self.shared_state.watched[thread][file];
        for _ in 0..4 {
            let may = match self.volume().access(&user(), ino, Access::READ) {
                Ok(()) => true,
                Err(Error::Access) => false,
                Err(error) => return Err(error),
            };
            if may != (file == 1) {
                let text = format!("the user may read file {file} of thread {thread}: {may}");
                self.record.wrong.push(text);
            }
        }
        Ok(())
    }

    /// A call by an inode number, whatever inode has it: it must return and report no damage.
    pub(crate) fn by_number(&mut self, near: u64, number: u64, what: u64) -> Done {
        let (volume, shared_state) = (self.volume(), self.shared_state);
        // New inodes of a directory have the next numbers.
        let dirs = [
            shared_state.own_dirs[0],
            shared_state.own_dirs[1],
            shared_state.own_dirs[2],
            shared_state.shared,
        ];
        let ino = match dirs.get(near as usize) {
            Some(dir) => InodeNo(dir.0 + 1 + number as u32 % 12),
            None => InodeNo(number as u32),
        };
        let done = match what {
            0 => volume.getattr(ino).map(drop),
            1 => volume.readdir(ino, 0, &mut |_| true),
            2 => volume.lookup(&Cred::root(), ino, b"none").map(drop),
            3 => volume.access(&user(), ino, Access::READ),
            4 => volume.listxattr(&Cred::root(), ino).map(drop),
            _ => volume.pin(ino).map(|_| self.pinned.push(ino)),
        };
        match done {
            Err(Error::NotFound | Error::NotDir | Error::Access) => Ok(()),
            done => done,
        }
    }

    /// Looks up and pins as a FUSE server does: the name may change before the inode is pinned.
    pub(crate) fn enter(&mut self, name: u64) -> Done {
        let (volume, name) = (self.volume(), format!("n{name}"));
        for _ in 0..4 {
            let found = volume.lookup(&Cred::root(), self.shared_state.shared, name.as_bytes());
            match found.and_then(|attr| volume.pin(attr.ino)) {
                Ok(attr) => volume.unpin(attr.ino, 1)?,
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes a directory with an index, removes its names and then itself while open, and lists it.
    pub(crate) fn remove_open_dir(&mut self) -> Done {
        let (volume, root, number) = (self.volume(), Cred::root(), self.next_number());
        let name = format!("h{number}").into_bytes();
        let dir = volume.mkdir(&root, self.own, &name, 0o755)?.ino;
        let names: Vec<Vec<u8>> = (0..4).map(|n| vec![b'a' + n; LONG]).collect();
        let first = volume.mknod(&root, dir, &names[0], NewNode::Fifo, 0o600)?.ino;
        for name in &names[1..] {
            volume.link(&root, first, dir, name)?;
        }
        for name in &names {
            volume.unlink(&root, dir, name)?;
        }
        volume.open_file(&root, dir, Access::READ)?;
        self.open.push(dir);
        volume.rmdir(&root, self.own, &name)?;
        self.removed.push(dir);
        self.list_removed();
        Ok(())
    }

    /// Checks that removed directories list nothing.
    pub(crate) fn list_removed(&mut self) {
        for dir in &self.removed {
            let mut names = 0;
            let listed = self.shared_state.volume.readdir(*dir, 0, &mut |_| {
                names += 1;
                true
            });
            if listed.is_err() || names > 0 {
                let text = format!("directory {dir}, which was removed: {names} names, {listed:?}");
                self.record.wrong.push(text);
            }
        }
    }
}
