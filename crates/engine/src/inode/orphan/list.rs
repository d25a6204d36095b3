//! The old orphan list: the superblock contains the head, and an inode's deletion time the next
//! inode.

use nextent_store::Handle;
use nextent_sync::{Arc, Mutex};

use super::super::change::Change;
use super::super::fs::Fs;
use super::super::locks;
use super::super::object::{Inode, Orphan};

/// The list's members, the head last. `[orphan.list]`
pub(super) struct OrphanList {
    members: Mutex<Vec<Arc<Inode>>>,
}

impl OrphanList {
    pub(super) fn new() -> Self {
        Self { members: Mutex::new(&locks::ORPHAN_LIST, Vec::new()) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.lock().is_empty()
    }

    /// Adds `inode` as the head.
    pub(super) fn add(&self, fs: &Fs, h: &Handle<'_>, inode: &Arc<Inode>) {
        let mut members = self.members.lock();
        let next = members.last().map_or(0, |head| head.ino.0);
        fs.sup.change(h, |sb| sb.last_orphan.set(inode.ino.0));
        inode.change(h, Change::Orphan, |state| {
            state.disk.dtime = next;
            state.orphan = Orphan::Listed;
        });
        members.push(Arc::clone(inode));
    }

    /// Removes `inode`.
    pub(super) fn remove(&self, fs: &Fs, h: &Handle<'_>, inode: &Arc<Inode>) {
        let mut members = self.members.lock();
        let Some(at) = members.iter().rposition(|member| member.ino == inode.ino) else { return };
        let next = at.checked_sub(1).map_or(0, |below| members[below].ino.0);
        match members.get(at + 1) {
            Some(above) => above.change(h, Change::Orphan, |state| state.disk.dtime = next),
            None => fs.sup.change(h, |sb| sb.last_orphan.set(next)),
        }
        inode.change(h, Change::Orphan, |state| {
            state.disk.dtime = 0;
            state.orphan = Orphan::No;
        });
        members.remove(at);
    }

    /// Takes over the list found at open, its head first.
    pub(super) fn adopt(&self, mut list: Vec<Arc<Inode>>) {
        list.reverse();
        *self.members.lock() = list;
    }
}
