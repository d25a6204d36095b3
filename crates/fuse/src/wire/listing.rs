//! Requests that list directories.

use nextent_num::{must_fit, to_usize};
use zerocopy::IntoBytes;

use super::call::Call;
use super::layout::{Dirent, EntryOut, ReadIn};
use crate::errno::{Errno, Result};
use crate::server::{Handed, Listing, Named};
use nextent::FileType;

/// An answer that grows by entries. Each takes a multiple of eight bytes.
struct Page<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Page<'_> {
    /// Adds `front` and an entry; false if there is no room for them.
    fn add(&mut self, front: &[u8], entry: &Dirent, name: &[u8]) -> bool {
        let whole = front.len() + size_of::<Dirent>() + name.len();
        let Some(room) = self.room.get_mut(self.len..self.len + whole.next_multiple_of(8)) else {
            return false;
        };
        room[..front.len()].copy_from_slice(front);
        let (head, tail) = room[front.len()..].split_at_mut(size_of::<Dirent>());
        head.copy_from_slice(entry.as_bytes());
        tail[..name.len()].copy_from_slice(name);
        tail[name.len()..].fill(0);
        self.len += room.len();
        true
    }
}

/// The kind as directories store it: the upper bits of the mode.
fn kind(kind: FileType) -> u32 {
    u32::from(kind.mode_bits()) >> 12
}

fn dirent(entry: &Listing, ino: u64, of: FileType) -> Dirent {
    Dirent { ino, next: entry.next, name_len: must_fit(entry.name.len()), kind: kind(of) }
}

impl Call<'_> {
    fn page(&mut self) -> Result<(u64, usize)> {
        let arg: ReadIn = self.arg()?;
        let size = to_usize(arg.size);
        if size > self.body.len() { Err(Errno(libc::EINVAL)) } else { Ok((arg.offset, size)) }
    }

    pub(super) fn readdir(&mut self) -> Result<usize> {
        let (from, size) = self.page()?;
        let (server, mut page) = (self.server, Page { room: &mut self.body[..size], len: 0 });
        server.list(self.node, from, &mut |entry| {
            let record = dirent(entry, u64::from(entry.ino.0), server.kind(entry));
            Handed::added(page.add(&[], &record, &entry.name))
        })?;
        Ok(page.len)
    }

    pub(super) fn readdirplus(&mut self) -> Result<usize> {
        let (from, size) = self.page()?;
        // The page is taken out, since `entry` needs the call.
        let body = std::mem::take(&mut self.body);
        let mut page = Page { room: &mut body[..size], len: 0 };
        let listed = self.server.list_entered(self.who, self.node, from, &mut |entry, named| {
            // Node 0 gives the kernel a name without a node: it does not count the node.
            let (ino, kind, front) = match named {
                Named::Entered(attr) => (attr.ino, attr.kind, self.entry(attr)),
                Named::Dots => (entry.ino, FileType::Directory, EntryOut::default()),
                Named::Damaged(kind) => (entry.ino, kind, EntryOut::default()),
            };
            page.add(front.as_bytes(), &dirent(entry, u64::from(ino.0), kind), &entry.name)
        });
        let len = page.len;
        self.body = body;
        listed.map(|()| len)
    }
}
