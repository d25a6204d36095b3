//! Lookups, opens, and operations that change names.

use nextent::inodes::{Access, Attr, InodeNo, NewNode, RenameMode};
use nextent::{DeviceNo, FileType};
use nextent_num::must_fit;

use super::{Caller, Server};
use crate::errno::{Errno, Result, of_node};
use crate::node::inode;

/// The most lookups of a name that means another file before the server has pinned the first. Each
/// needs another request that replaces the file meanwhile.
const LOOKUPS: u32 = 100;

/// The flag of an inode that holds the value of an extended attribute: it is no file.
const HOLDS_VALUE: u32 = 0x20_0000;

impl Server {
    /// Looks up `name` and pins its node for the kernel; none without such a name.
    /// `.` is the node itself, of any kind: the kernel looks a number of a handle up so.
    pub(crate) fn lookup(&self, who: Caller, dir: u64, name: &[u8]) -> Result<Option<Attr>> {
        if name == b"." {
            return self.enter_by_number(dir);
        }
        let (dir, cred) = (inode(dir)?, who.named(0));
        for _ in 0..LOOKUPS {
            let found = match self.volume.lookup(&cred, dir, name) {
                Ok(found) => found,
                Err(nextent::Error::NotFound) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if let Some(entered) = self.enter(&found)? {
                return Ok(Some(entered));
            }
        }
        Err(Errno(libc::ESTALE))
    }

    /// Pins a node for the kernel, which has its number from a handle; none if the number is no
    /// file's or the file has no names. The kernel compares the generation.
    fn enter_by_number(&self, node: u64) -> Result<Option<Attr>> {
        let found = match self.volume.getattr(inode(node)?) {
            Ok(found) => found,
            Err(nextent::Error::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if found.links == 0 || found.flags & HOLDS_VALUE != 0 {
            return Ok(None);
        }
        self.enter(&found)
    }

    /// Makes a file that is neither a directory nor a symbolic link.
    pub(crate) fn mknod(
        &self,
        who: Caller,
        (dir, name): (u64, &[u8]),
        (mode, umask): (u32, u32),
        device: u32,
    ) -> Result<Attr> {
        let numbers = decode_device(device);
        let node = match u16::try_from(mode).ok().and_then(FileType::of_mode) {
            Some(FileType::Regular) => NewNode::Regular,
            Some(FileType::Fifo) => NewNode::Fifo,
            Some(FileType::Socket) => NewNode::Socket,
            Some(FileType::CharDevice) => NewNode::CharDevice(numbers),
            Some(FileType::BlockDevice) => NewNode::BlockDevice(numbers),
            _ => return Err(Errno(libc::EINVAL)),
        };
        let bits = permissions(mode);
        let made = self.volume.mknod(&who.named(umask), inode(dir)?, name, node, bits)?;
        self.enter_new(&made)
    }

    pub(crate) fn mkdir(
        &self,
        who: Caller,
        (dir, name): (u64, &[u8]),
        (mode, umask): (u32, u32),
    ) -> Result<Attr> {
        let bits = permissions(mode);
        let made = self.volume.mkdir(&who.named(umask), inode(dir)?, name, bits)?;
        self.enter_new(&made)
    }

    pub(crate) fn symlink(
        &self,
        who: Caller,
        (dir, name): (u64, &[u8]),
        target: &[u8],
    ) -> Result<Attr> {
        let made = self.volume.symlink(&who.named(0), inode(dir)?, name, target)?;
        self.enter_new(&made)
    }

    /// Makes a regular file and opens it.
    pub(crate) fn create(
        &self,
        who: Caller,
        (dir, name): (u64, &[u8]),
        (mode, umask, flags): (u32, u32, i32),
    ) -> Result<Attr> {
        let bits = permissions(mode);
        let made = self.volume.create(&who.named(umask), inode(dir)?, name, bits)?;
        self.opened(&made, flags)
    }

    /// Makes a regular file without a name and opens it.
    pub(crate) fn tmpfile(
        &self,
        who: Caller,
        dir: u64,
        (mode, umask, flags): (u32, u32, i32),
    ) -> Result<Attr> {
        let bits = permissions(mode);
        let made = self.volume.tmpfile(&who.named(umask), inode(dir)?, bits)?;
        self.opened(&made, flags)
    }

    /// [`enter_new`](Self::enter_new) for a new file that is open with `flags`.
    fn opened(&self, made: &Attr, flags: i32) -> Result<Attr> {
        let attr = self.enter_new(made)?;
        self.mappable.opened(crate::node::node(attr.ino), flags);
        Ok(attr)
    }

    pub(crate) fn link(&self, who: Caller, node: u64, (dir, name): (u64, &[u8])) -> Result<Attr> {
        let linked = self.volume.link(&who.named(0), inode(node)?, inode(dir)?, name)?;
        self.enter_new(&linked)
    }

    pub(crate) fn unlink(&self, who: Caller, dir: u64, name: &[u8]) -> Result<()> {
        Ok(self.volume.unlink(&who.named(0), inode(dir)?, name)?)
    }

    pub(crate) fn rmdir(&self, who: Caller, dir: u64, name: &[u8]) -> Result<()> {
        Ok(self.volume.rmdir(&who.named(0), inode(dir)?, name)?)
    }

    pub(crate) fn rename(
        &self,
        who: Caller,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<()> {
        let whiteout = flags & libc::RENAME_WHITEOUT != 0;
        let mode = match flags & !libc::RENAME_WHITEOUT {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let (from, to) = ((inode(from.0)?, from.1), (inode(to.0)?, to.1));
        let cred = who.named(0);
        match whiteout {
            false => Ok(self.volume.rename(&cred, from, to, mode)?),
            true => Ok(self.volume.rename_leaving_whiteout(&cred, from, to, mode)?),
        }
    }

    /// Opens a file: counts the open, and refuses it where the file's flags forbid it.
    pub(crate) fn open(&self, who: Caller, node: u64, flags: i32) -> Result<()> {
        let want = match flags & libc::O_ACCMODE {
            libc::O_WRONLY => Access::WRITE,
            libc::O_RDWR => Access::READ_WRITE,
            _ => Access::READ,
        };
        let ino = inode(node)?;
        self.check_append(ino, want, flags)?;
        self.volume.open_file(&who.named(0), ino, want).map_err(of_node)?;
        self.mappable.opened(node, flags);
        let cached = !self.is_uncached(flags);
        if want.read && cached && flags & libc::O_NOATIME == 0 && self.touch(ino) {
            self.forget_attributes(node);
        }
        Ok(())
    }

    /// Refuses an open of an append-only file that would not append. A write does not say whether
    /// it appends.
    fn check_append(&self, ino: InodeNo, want: Access, flags: i32) -> Result<()> {
        let bad = want.write
            && (flags & libc::O_APPEND == 0 || flags & libc::O_TRUNC != 0)
            && self.volume.is_append_only(ino).map_err(of_node)?;
        if bad { Err(Errno(libc::EPERM)) } else { Ok(()) }
    }

    /// Ends an open with `flags`.
    pub(crate) fn release(&self, node: u64, flags: i32) -> Result<()> {
        self.mappable.released(node, flags);
        self.volume.release(inode(node)?).map_err(of_node)
    }
}

fn permissions(mode: u32) -> u16 {
    must_fit(mode & 0o7777)
}

/// Decodes the protocol's device number.
fn decode_device(device: u32) -> DeviceNo {
    DeviceNo { major: device >> 8 & 0xfff, minor: device & 0xff | device >> 12 & 0xf_ff00 }
}

/// The reverse of [`decode_device`].
pub(crate) fn encode_device(device: DeviceNo) -> u32 {
    device.minor & 0xff | (device.major & 0xfff) << 8 | (device.minor & 0xf_ff00) << 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_come_back() {
        for (major, minor) in [(0, 0), (1, 3), (8, 17), (259, 65537), (4095, 0xf_ffff)] {
            let device = DeviceNo { major, minor };
            assert_eq!(decode_device(encode_device(device)), device);
        }
        assert_eq!(encode_device(DeviceNo { major: 1, minor: 3 }), 0x103);
    }
}
