//! Requests about attributes, extended attributes, and the volume.

use nextent::DiskTime;
use nextent::inodes::{Attr, SetTime};
use nextent_num::{must_fit, to_usize};

use super::call::{Call, text};
use super::layout::{
    AttrBody, AttrOut, GetXattrIn, GetXattrOut, IoctlIn, IoctlOut, SetAttrIn, SetXattrIn,
    StatFsOut, StatxOut, StatxTime,
};
use crate::Server;
use crate::errno::{Errno, Result};
use crate::server::SHUTDOWN;
use crate::server::{Change, SettingXattr, Validity, encode_device};

/// Bits for the fields of a change that are valid.
mod set {
    pub(super) const MODE: u32 = 1;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const MTIME: u32 = 1 << 5;
    pub(super) const ATIME_NOW: u32 = 1 << 7;
    pub(super) const MTIME_NOW: u32 = 1 << 8;
    pub(super) const CTIME: u32 = 1 << 10;
    pub(super) const KILL_SET_ID: u32 = 1 << 11;
}

/// A new access control list removes the set-group bit.
const KILL_SET_GROUP: u32 = 1;

/// Attributes in the protocol's structure.
pub(super) fn body(server: &Server, attr: &Attr) -> AttrBody {
    AttrBody {
        ino: u64::from(attr.ino.0),
        size: attr.size,
        blocks: attr.sectors,
        atime: attr.atime.seconds.cast_unsigned(),
        mtime: attr.mtime.seconds.cast_unsigned(),
        ctime: attr.ctime.seconds.cast_unsigned(),
        atime_nanos: attr.atime.nanos,
        mtime_nanos: attr.mtime.nanos,
        ctime_nanos: attr.ctime.nanos,
        mode: u32::from(attr.kind.mode_bits() | attr.mode),
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        device: encode_device(attr.device),
        block_size: server.volume.geometry().block_size,
        flags: 0,
    }
}

/// The attributes of `stat(2)`, and the birth time if the volume stores it.
fn statx(server: &Server, attr: &Attr) -> StatxOut {
    const BASIC: u32 = 0x7ff;
    const BIRTH: u32 = 0x800;
    let time = |at: DiskTime| StatxTime { seconds: at.seconds, nanos: at.nanos, padding: 0 };
    let Validity { seconds: valid, nanos: valid_nanos } = server.attr_validity(attr);
    StatxOut {
        valid,
        valid_nanos,
        mask: BASIC | if attr.crtime.is_some() { BIRTH } else { 0 },
        block_size: server.volume.geometry().block_size,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        mode: attr.kind.mode_bits() | attr.mode,
        ino: u64::from(attr.ino.0),
        size: attr.size,
        blocks: attr.sectors,
        atime: time(attr.atime),
        btime: attr.crtime.map(time).unwrap_or_default(),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        device_major: attr.device.major,
        device_minor: attr.device.minor,
        ..StatxOut::default()
    }
}

fn change(arg: &SetAttrIn) -> Change {
    let has = |bit| arg.valid & bit != 0;
    let at = |seconds: u64, nanos| DiskTime::new(seconds.cast_signed(), nanos);
    let time = |bit, now, seconds, nanos| {
        has(bit).then(|| if has(now) { SetTime::Now } else { SetTime::At(at(seconds, nanos)) })
    };
    Change {
        mode: has(set::MODE).then_some(arg.mode),
        uid: has(set::UID).then_some(arg.uid),
        gid: has(set::GID).then_some(arg.gid),
        size: has(set::SIZE).then_some(arg.size),
        atime: time(set::ATIME, set::ATIME_NOW, arg.atime, arg.atime_nanos),
        mtime: time(set::MTIME, set::MTIME_NOW, arg.mtime, arg.mtime_nanos),
        ctime: has(set::CTIME).then(|| at(arg.ctime, arg.ctime_nanos)),
        kill_set_id: has(set::KILL_SET_ID),
    }
}

impl Call<'_> {
    fn attributes(&mut self, attr: &Attr) -> Result<usize> {
        let Validity { seconds: valid, nanos: valid_nanos } = self.server.attr_validity(attr);
        let attr = body(self.server, attr);
        self.put(&AttrOut { valid, valid_nanos, attr, padding: 0 })
    }

    pub(super) fn getattr(&mut self) -> Result<usize> {
        let attr = self.server.getattr(self.node)?;
        self.attributes(&attr)
    }

    pub(super) fn statx(&mut self) -> Result<usize> {
        let attr = self.server.getattr(self.node)?;
        let answer = statx(self.server, &attr);
        self.put(&answer)
    }

    pub(super) fn setattr(&mut self) -> Result<usize> {
        let arg: SetAttrIn = self.arg()?;
        let attr = self.server.setattr(self.who, self.node, &change(&arg))?;
        self.attributes(&attr)
    }

    pub(super) fn readlink(&mut self) -> Result<usize> {
        let target = self.server.readlink(self.node)?;
        self.put_bytes(&target)
    }

    pub(super) fn statfs(&mut self) -> Result<usize> {
        let s = self.server.statfs()?;
        self.put(&StatFsOut {
            blocks: s.blocks,
            blocks_free: s.blocks_free,
            blocks_available: s.blocks_available,
            files: s.files,
            files_free: s.files_free,
            block_size: s.block_size,
            name_max: s.name_max,
            fragment_size: s.block_size,
            ..StatFsOut::default()
        })
    }

    pub(super) fn setxattr(&mut self) -> Result<usize> {
        let arg: SetXattrIn = self.arg()?;
        let (name, value) = text(self.rest()?)?;
        let value = value.get(..to_usize(arg.size)).ok_or(Errno(libc::EINVAL))?;
        let how = SettingXattr {
            flags: arg.flags.cast_signed(),
            kill_set_group: arg.set_flags & KILL_SET_GROUP != 0,
        };
        self.server.setxattr(self.who, self.node, name, value, how).map(|()| 0)
    }

    pub(super) fn getxattr(&mut self) -> Result<usize> {
        let value = self.server.getxattr(self.who, self.node, self.name()?)?;
        self.sized(&value)
    }

    pub(super) fn listxattr(&mut self) -> Result<usize> {
        let list = self.server.listxattr(self.who, self.node)?;
        self.sized(&list)
    }

    /// Answers with a value, or with its size if the request has room for 0 bytes.
    ///
    /// # Errors
    /// ERANGE if the value is longer than the room.
    fn sized(&mut self, value: &[u8]) -> Result<usize> {
        let room = to_usize(self.arg::<GetXattrIn>()?.size);
        if room == 0 {
            return self.put(&GetXattrOut { size: must_fit(value.len()), padding: 0 });
        }
        if value.len() > room {
            return Err(Errno(libc::ERANGE));
        }
        self.put_bytes(value)
    }

    pub(super) fn removexattr(&mut self) -> Result<usize> {
        self.server.removexattr(self.who, self.node, self.name()?).map(|()| 0)
    }

    pub(super) fn ioctl(&mut self) -> Result<usize> {
        let arg: IoctlIn = self.arg()?;
        if arg.call == SHUTDOWN {
            self.server.shut_down(self.who, self.pid, arg.argument)?;
            return self.put_bytes(zerocopy::IntoBytes::as_bytes(&IoctlOut::default()));
        }
        let input = self.rest()?.get(..to_usize(arg.in_size)).ok_or(Errno(libc::EINVAL))?;
        let mut output = self.server.ioctl(self.who, self.node, arg.call, input)?;
        output.truncate(to_usize(arg.out_size));
        let mut answer = zerocopy::IntoBytes::as_bytes(&IoctlOut::default()).to_vec();
        answer.append(&mut output);
        self.put_bytes(&answer)
    }
}
