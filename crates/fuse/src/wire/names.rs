//! Requests that look names up or change them.

use nextent::inodes::Attr;

use super::attributes::body;
use super::call::Call;
use super::layout::{
    CreateIn, EntryOut, LinkIn, MkDirIn, MkNodIn, Opcode, OpenIn, OpenOut, ReleaseIn, Rename2In,
    RenameIn,
};
use crate::errno::{Errno, Result};
use crate::node::node;

/// Flags of an opened file in the answer.
const DIRECT_IO: u32 = 1;
const KEEP_CACHE: u32 = 1 << 1;
const CACHE_DIRECTORY: u32 = 1 << 3;
const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

impl Call<'_> {
    /// The entry of a name in the answer.
    pub(super) fn entry(&self, attr: &Attr) -> EntryOut {
        let valid = self.server.attr_validity(attr);
        EntryOut {
            node: node(attr.ino),
            generation: u64::from(attr.generation),
            entry_valid: self.server.admission().validity(),
            attr_valid: valid.seconds,
            attr_valid_nanos: valid.nanos,
            attr: body(self.server, attr),
            ..EntryOut::default()
        }
    }

    pub(super) fn lookup(&mut self) -> Result<usize> {
        let found = self.server.lookup(self.who, self.node, self.name()?)?;
        // The kernel caches a negative entry as long as others.
        let entry_valid = self.server.admission().validity();
        let nothing = EntryOut { entry_valid, ..EntryOut::default() };
        let entry = found.map_or(nothing, |attr| self.entry(&attr));
        self.put(&entry)
    }

    fn made(&mut self, attr: &Attr) -> Result<usize> {
        let entry = self.entry(attr);
        self.put(&entry)
    }

    pub(super) fn mknod(&mut self) -> Result<usize> {
        let arg: MkNodIn = self.arg()?;
        let (at, mode) = ((self.node, self.name()?), (arg.mode, arg.umask));
        let attr = self.server.mknod(self.who, at, mode, arg.device)?;
        self.made(&attr)
    }

    pub(super) fn mkdir(&mut self) -> Result<usize> {
        let arg: MkDirIn = self.arg()?;
        let at = (self.node, self.name()?);
        let attr = self.server.mkdir(self.who, at, (arg.mode, arg.umask))?;
        self.made(&attr)
    }

    pub(super) fn symlink(&mut self) -> Result<usize> {
        let (name, target) = self.two_names()?;
        let attr = self.server.symlink(self.who, (self.node, name), target)?;
        self.made(&attr)
    }

    pub(super) fn link(&mut self) -> Result<usize> {
        let arg: LinkIn = self.arg()?;
        let attr = self.server.link(self.who, arg.node, (self.node, self.name()?))?;
        self.made(&attr)
    }

    pub(super) fn create(&mut self) -> Result<usize> {
        let arg: CreateIn = self.arg()?;
        let at = (self.node, self.name()?);
        let attr =
            self.server.create(self.who, at, (arg.mode, arg.umask, arg.flags.cast_signed()))?;
        self.created(&attr, arg.flags)
    }

    pub(super) fn tmpfile(&mut self) -> Result<usize> {
        let arg: CreateIn = self.arg()?;
        let how = (arg.mode, arg.umask, arg.flags.cast_signed());
        let attr = self.server.tmpfile(self.who, self.node, how)?;
        self.created(&attr, arg.flags)
    }

    fn created(&mut self, attr: &Attr, flags: u32) -> Result<usize> {
        let entry = self.entry(attr);
        let len = self.put(&entry)?;
        let opened = self.opened(flags);
        let behind = self.body.get_mut(len..).ok_or(Errno(libc::ERANGE))?;
        zerocopy::IntoBytes::write_to_prefix(&opened, behind).map_err(|_| Errno(libc::ERANGE))?;
        Ok(len + size_of::<OpenOut>())
    }

    pub(super) fn unlink(&mut self) -> Result<usize> {
        self.server.unlink(self.who, self.node, self.name()?).map(|()| 0)
    }

    pub(super) fn rmdir(&mut self) -> Result<usize> {
        self.server.rmdir(self.who, self.node, self.name()?).map(|()| 0)
    }

    pub(super) fn rename(&mut self, opcode: Opcode) -> Result<usize> {
        let (to, flags) = if opcode == Opcode::Rename2 {
            let arg: Rename2In = self.arg()?;
            (arg.to, arg.flags)
        } else {
            (self.arg::<RenameIn>()?.to, 0)
        };
        let (from, name) = self.two_names()?;
        self.server.rename(self.who, (self.node, from), (to, name), flags).map(|()| 0)
    }

    pub(super) fn open(&mut self) -> Result<usize> {
        let arg: OpenIn = self.arg()?;
        self.server.open(self.who, self.node, arg.flags.cast_signed())?;
        self.put(&self.opened(arg.flags))
    }

    /// The kernel may cache the entries of the directory, unless the server must see each listing.
    pub(super) fn opendir(&mut self) -> Result<usize> {
        let caches = !self.server.sees_reads();
        let flags = if caches { KEEP_CACHE | CACHE_DIRECTORY } else { 0 };
        self.put(&OpenOut { flags, ..OpenOut::default() })
    }

    /// How the kernel is to cache a file opened with `flags`.
    fn opened(&self, flags: u32) -> OpenOut {
        let flags = match self.server.is_uncached(flags.cast_signed()) {
            true => DIRECT_IO | PARALLEL_DIRECT_WRITES,
            false => KEEP_CACHE,
        };
        OpenOut { flags, ..OpenOut::default() }
    }

    pub(super) fn release(&mut self) -> Result<usize> {
        let arg: ReleaseIn = self.arg()?;
        self.server.release(self.node, arg.flags.cast_signed()).map(|()| 0)
    }
}
