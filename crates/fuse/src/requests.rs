//! Each request of the protocol as a call of the library.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use nextent::{Access, Attr, Cred, DirEntry, Error, InodeNo, Result, SeekKind, SetAttr, XattrMode};

use crate::convert::{self, LIFETIME, Wanted, cred, number};
use crate::errno::{errno, errno_of_sync};
use crate::server::{Server, done, open_flags};

/// Largest write that the kernel sends at once.
const MAX_WRITE: u32 = 1 << 20;
/// Bytes that a copy inside the volume moves at a time.
const COPY: usize = 1 << 20;

/// Reads and changes of the flags of lsattr(1), as the kernel passes them on.
const GET_FLAGS: [u32; 2] = [0x8008_6601, 0x8004_6601];
const SET_FLAGS: [u32; 2] = [0x4008_6602, 0x4004_6602];

/// What makes a mount fast, each if the kernel has it.
const WANTED: [InitFlags; 11] = [
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_WRITEBACK_CACHE,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_HAS_IOCTL_DIR,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];

impl Server {
    fn remove(&self, request: &Request, at: (INodeNo, &OsStr), directory: bool) -> Result<()> {
        let (cred, parent) = (cred(request, 0), number(at.0));
        match directory {
            true => self.volume.rmdir(&cred, parent, at.1.as_bytes()),
            false => self.volume.unlink(&cred, parent, at.1.as_bytes()),
        }
    }

    fn open_as(&self, ino: INodeNo, flags: OpenFlags, cred: &Cred) -> Result<()> {
        let want = match flags.acc_mode() {
            OpenAccMode::O_RDONLY => Access::READ,
            OpenAccMode::O_WRONLY => Access::WRITE,
            OpenAccMode::O_RDWR => Access::READ_WRITE,
        };
        self.volume.open_file(cred, number(ino), want)
    }

    fn make_file(&self, cred: &Cred, parent: InodeNo, name: &[u8], mode: u32) -> Result<Attr> {
        self.volume.create(cred, parent, name, mode as u16 & 0o7777)
    }

    fn copy(&self, cred: &Cred, from: (INodeNo, u64), to: (INodeNo, u64), len: u64) -> Result<u64> {
        let mut buf = vec![0; COPY.min(usize::try_from(len).unwrap_or(COPY))];
        let mut copied = 0;
        while copied < len {
            let most = (len - copied).min(buf.len() as u64) as usize;
            let read = self.volume.read(number(from.0), from.1 + copied, &mut buf[..most]);
            let written = read.and_then(|read| match read {
                0 => Ok(0),
                read => self.volume.write(cred, number(to.0), to.1 + copied, &buf[..read]),
            });
            match written {
                Ok(0) => break,
                Ok(written) => copied += written as u64,
                // What was copied is told first; who asks for the rest hears of the error.
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }

    fn flags(
        &self,
        request: &Request,
        ino: INodeNo,
        cmd: u32,
        given: &[u8],
    ) -> Result<Option<u32>> {
        if GET_FLAGS.contains(&cmd) {
            return self.volume.getattr(number(ino)).map(|attr| Some(attr.flags));
        }
        if !SET_FLAGS.contains(&cmd) {
            return Err(Error::NotSupported);
        }
        let word = given.first_chunk().ok_or(Error::Invalid)?;
        let set = SetAttr { flags: Some(u32::from_ne_bytes(*word)), ..SetAttr::default() };
        self.volume.setattr(&convert::unchecked(request), number(ino), &set)?;
        Ok(None)
    }

    fn list(
        &self,
        ino: INodeNo,
        after: u64,
        mut add: impl FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.volume.readdir(number(ino), after, &mut |entry| add(&entry))
    }
}

/// Answers a request for an attribute's value or for the list of names, which first asks how long
/// it is.
fn answer_xattr(reply: ReplyXattr, size: u32, found: Result<Vec<u8>>) {
    match found {
        Err(error) => reply.error(errno(&error)),
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            // What the kernel does not have is done without.
            let _ = config.add_capabilities(flag);
        }
        if self.lists {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.volume.lookup(&cred(request, 0), number(parent), name.as_bytes());
        self.entry_or_none(reply, found);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attributes(reply, self.volume.getattr(number(ino)));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Wanted { mode, uid, gid, size, atime, mtime, ctime };
        let set = wanted.set();
        self.attributes(reply, self.volume.setattr(&cred(request, 0), number(ino), &set));
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.volume.readlink(number(ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(node) = convert::new_node(mode, rdev) else {
            return reply.error(Errno::EINVAL);
        };
        let (cred, parent) = (cred(request, umask), number(parent));
        let mode = mode as u16 & 0o7777;
        self.entry(reply, self.volume.mknod(&cred, parent, name.as_bytes(), node, mode));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (cred, mode) = (cred(request, umask), mode as u16 & 0o7777);
        self.entry(reply, self.volume.mkdir(&cred, number(parent), name.as_bytes(), mode));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.remove(request, (parent, name), false));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.remove(request, (parent, name), true));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let (cred, parent) = (cred(request, 0), number(parent));
        self.entry(reply, self.volume.symlink(&cred, parent, name.as_bytes(), target));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = convert::rename_mode(flags) else {
            return reply.error(Errno::EINVAL);
        };
        let from = (number(parent), name.as_bytes());
        let to = (number(newparent), newname.as_bytes());
        done(reply, self.volume.rename(&cred(request, 0), from, to, mode));
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (cred, ino) = (cred(request, 0), number(ino));
        self.entry(reply, self.volume.link(&cred, ino, number(newparent), newname.as_bytes()));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_as(ino, flags, &cred(request, 0)) {
            Ok(()) => reply.opened(FileHandle(0), open_flags()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let cred = cred(request, umask);
        self.created(reply, self.make_file(&cred, number(parent), name.as_bytes(), mode));
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buf = vec![0; size as usize];
        match self.volume.read(number(ino), offset, &mut buf) {
            Ok(read) => reply.data(&buf[..read]),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Who writes loses set-id bits if the kernel says so; pages that it writes back, whose
        // writer it does not know, never do.
        let loses = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let cred = match loses {
            true => Cred { privileged: false, ..convert::unchecked(request) },
            false => cred(request, 0),
        };
        match self.volume.write(&cred, number(ino), offset, data) {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing promises nothing; the kernel has written its pages.
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        done(reply, self.volume.release(number(ino)));
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let synced = match datasync {
            true => self.volume.fdatasync(number(ino)),
            false => self.volume.fsync(number(ino)),
        };
        match synced {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno_of_sync(&error)),
        }
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.volume.open_file(&cred(request, 0), number(ino), Access::READ) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.list(ino, offset, |entry| {
            let kind = entry.kind.map_or(fuser::FileType::RegularFile, convert::kind);
            let name = OsStr::from_bytes(entry.name);
            !reply.add(INodeNo(u64::from(entry.ino.0)), entry.next, kind, name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        // Attributes are asked for after the directory is let go.
        let mut found = Vec::new();
        let listed = self.list(ino, offset, |entry| {
            found.push((entry.ino, entry.next, entry.name.to_vec()));
            found.len() < 128
        });
        if let Err(error) = listed {
            return reply.error(errno(&error));
        }
        for (ino, next, name) in found {
            // Whoever went meanwhile is left out.
            let Ok(attr) = self.volume.getattr(ino) else { continue };
            let shown = self.named(&attr);
            let name = OsStr::from_bytes(&name);
            let generation = convert::generation(&attr);
            if reply.add(shown.ino, next, name, &LIFETIME, &shown, generation) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        done(reply, self.volume.release(number(ino)));
    }

    fn fsyncdir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(request, ino, fh, datasync, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.volume.statfs() {
            Ok(s) => reply.statfs(
                s.blocks,
                s.blocks_free,
                s.blocks_available,
                s.files,
                s.files_free,
                s.block_size,
                s.name_max,
                s.block_size,
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => XattrMode::Either,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let (cred, ino) = (cred(request, 0), number(ino));
        done(reply, self.volume.setxattr(&cred, ino, name.as_bytes(), value, mode));
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let found = self.volume.getxattr(&cred(request, 0), number(ino), name.as_bytes());
        answer_xattr(reply, size, found);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.volume.listxattr(&cred(request, 0), number(ino));
        let list = names.map(|names| {
            names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect::<Vec<u8>>()
        });
        answer_xattr(reply, size, list);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.volume.removexattr(&cred(request, 0), number(ino), name.as_bytes()));
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel has decided, or it would not ask.
        reply.ok();
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        match self.flags(request, ino, cmd, in_data) {
            Ok(None) => reply.ioctl(0, &[]),
            Ok(Some(flags)) => {
                let word = u64::from(flags).to_ne_bytes();
                reply.ioctl(0, &word[..word.len().min(out_size as usize)]);
            }
            // What an unknown request of this kind is answered with everywhere.
            Err(Error::NotSupported) => reply.error(Errno::ENOTTY),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = convert::fallocate_mode(mode) else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        let cred = cred(request, 0);
        done(reply, self.volume.fallocate(&cred, number(ino), mode, offset, length));
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let what = match whence {
            libc::SEEK_DATA => SeekKind::Data,
            libc::SEEK_HOLE => SeekKind::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.volume.seek(number(ino), offset, what) {
            Ok(found) => reply.offset(found as i64),
            Err(Error::NoData) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        ino_in: INodeNo,
        _: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _: FileHandle,
        offset_out: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let len = len.min(u64::from(u32::MAX >> 1));
        let (from, to) = ((ino_in, offset_in), (ino_out, offset_out));
        match self.copy(&cred(request, 0), from, to, len) {
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }
}
