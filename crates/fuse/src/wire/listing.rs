//! Requests that list directories.

use nextent_num::{must_fit, to_usize};
use zerocopy::IntoBytes;

use super::call::Call;
use super::layout::{Dirent, EntryOut, ReadIn};
use crate::errno::{Errno, Result};
use crate::node::node;
use crate::server::Listing;
use nextent::FileType;

/// An answer that grows by entries, each a multiple of eight bytes long.
struct Page<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Page<'_> {
    /// Adds an entry behind `front`; false if there is no room for it.
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

/// The kind as directories say it: the mode's upper bits.
fn kind(kind: FileType) -> u32 {
    u32::from(kind.mode_bits()) >> 12
}

fn dirent(entry: &Listing, ino: u64, of: FileType) -> Dirent {
    Dirent { ino, next: entry.next, name_len: must_fit(entry.name.len()), kind: kind(of) }
}

/// The answer to a listing that put `len` bytes into the page and then came to `end`. An error
/// after some entries is not told: the kernel would never know of the nodes that were counted for
/// it, and nobody would forget them. It asks again from the last entry, and then gets the error.
fn whole(len: usize, end: Result<()>) -> Result<usize> {
    match end {
        Err(error) if len == 0 => Err(error),
        _ => Ok(len),
    }
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
        let listed = server.list(self.node, from, &mut |entry| {
            let told = dirent(entry, u64::from(entry.ino.0), server.kind(entry));
            page.add(&[], &told, &entry.name)
        });
        whole(page.len, listed)
    }

    pub(super) fn readdirplus(&mut self) -> Result<usize> {
        let (from, size) = self.page()?;
        // The page is taken out, since `entry` needs the call.
        let body = std::mem::take(&mut self.body);
        let mut page = Page { room: &mut body[..size], len: 0 };
        let listed = self.server.list(self.node, from, &mut |entry| {
            if entry.is_dots() {
                // The kernel shows these and enters neither.
                let told = dirent(entry, u64::from(entry.ino.0), FileType::Directory);
                return page.add(EntryOut::default().as_bytes(), &told, &entry.name);
            }
            let attr = match self.server.enter_entry(self.who, self.node, entry) {
                Ok(Some(attr)) => attr,
                Ok(None) => return true,
                Err(_) => {
                    // A node of 0 says that there is a name and nothing is known of it: it is
                    // listed, and a lookup of it says what is wrong.
                    let told = dirent(entry, u64::from(entry.ino.0), self.server.kind(entry));
                    return page.add(EntryOut::default().as_bytes(), &told, &entry.name);
                }
            };
            let told = dirent(entry, u64::from(attr.ino.0), attr.kind);
            let added = page.add(self.entry(&attr).as_bytes(), &told, &entry.name);
            if !added {
                self.server.forget(node(attr.ino), 1);
            }
            added
        });
        let len = page.len;
        self.body = body;
        whole(len, listed)
    }
}
