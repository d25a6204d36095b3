//! The crate `fuser`'s requests as calls of the server, its replies from their results.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use nextent::inodes::{Attr, SetTime};
use nextent::{DiskTime, FileType};
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_sync::Arc;

use crate::errno::Errno;
use crate::node::{damaged_node, node};
use crate::scheduling::{RequestScope, WorkerSlots};
use crate::server::{Caller, Change, Handed, Named, Server, Writing, encode_device};

/// How long the kernel may cache entries and attributes: only this server changes the volume.
const VALID_FOR: Duration = Duration::from_secs(24 * 60 * 60);

thread_local! {
    /// A thread's read buffer, kept since fresh memory costs more than reading into it.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What this mount asks of the kernel.
pub(crate) struct Wants {
    pub(crate) acl: bool,
}

/// Implements `fuser`'s trait by calls of the server.
pub(crate) struct Adapter {
    server: Arc<Server>,
    wants: Wants,
    slots: WorkerSlots,
}

impl Adapter {
    /// Threads that answer register in `slots` by themselves.
    pub(crate) fn new(server: Arc<Server>, wants: Wants, slots: WorkerSlots) -> Self {
        Self { server, wants, slots }
    }

    /// Begins a request, which ends when the result is dropped.
    fn begin_request(&self, request: &Request) -> Option<RequestScope> {
        self.slots.begin_request(request.pid())
    }

    fn open_flags(&self, flags: i32) -> FopenFlags {
        if self.server.is_uncached(flags) {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        }
    }
}

fn is_direct(flags: i32) -> bool {
    flags & libc::O_DIRECT != 0
}

fn who(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

impl From<Errno> for fuser::Errno {
    fn from(error: Errno) -> Self {
        Self::from_i32(error.0)
    }
}

fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::Symlink => fuser::FileType::Symlink,
    }
}

fn time(time: DiskTime) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let second = if time.seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    second + nanos
}

/// A time of a request. In the protocol nanoseconds count forwards, also before 1970; fuser 0.18
/// subtracts them from a time before 1970. This undoes that.
fn disk_time(time: SystemTime) -> DiskTime {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => DiskTime::new(seconds(since), since.subsec_nanos()),
        Err(before) => {
            let read = before.duration();
            DiskTime::new(-seconds(read), read.subsec_nanos())
        }
    }
}

/// Whole seconds; the disk holds fewer than `i64::MAX`.
fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(disk_time(time)),
    }
}

impl Adapter {
    fn attr(&self, attr: &Attr) -> FileAttr {
        FileAttr {
            ino: INodeNo(u64::from(attr.ino.0)),
            size: attr.size,
            blocks: attr.sectors,
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            crtime: time(attr.crtime.unwrap_or_default()),
            kind: kind(attr.kind),
            perm: attr.mode,
            nlink: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            rdev: encode_device(attr.device),
            blksize: self.server.volume.geometry().block_size,
            flags: 0,
        }
    }

    /// A negative entry: there is no such name.
    fn nothing(&self) -> FileAttr {
        let never = DiskTime::default();
        FileAttr {
            ino: INodeNo(0),
            size: 0,
            blocks: 0,
            atime: time(never),
            mtime: time(never),
            ctime: time(never),
            crtime: time(never),
            kind: fuser::FileType::RegularFile,
            perm: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 0,
            flags: 0,
        }
    }

    fn entry(&self, found: Result<Attr, Errno>, reply: ReplyEntry) {
        match found {
            Ok(attr) => {
                let generation = Generation(u64::from(attr.generation));
                let ino = INodeNo(node(attr.ino));
                reply.entry(&VALID_FOR, &FileAttr { ino, ..self.attr(&attr) }, generation);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn attributes(&self, found: Result<Attr, Errno>, reply: ReplyAttr) {
        match found {
            Ok(attr) => reply.attr(&VALID_FOR, &self.attr(&attr)),
            Err(error) => reply.error(error.into()),
        }
    }
}

fn empty(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

fn written(done: Result<u64, Errno>, reply: ReplyWrite) {
    match done {
        // A request is smaller than 4 GiB.
        Ok(n) => reply.written(must_fit(n)),
        Err(error) => reply.error(error.into()),
    }
}

fn xattr(found: Result<Vec<u8>, Errno>, room: u32, reply: ReplyXattr) {
    match found {
        Ok(value) if room == 0 => reply.size(must_fit(value.len())),
        Ok(value) if value.len() > to_usize(room) => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(error.into()),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = vec![
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_ASYNC_DIO,
            // The server removes set-id bits and capabilities at writes and truncations, so the
            // kernel need not check for them before each write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_HAS_IOCTL_DIR,
        ];
        if self.wants.acl {
            wanted.push(InitFlags::FUSE_POSIX_ACL);
        }
        wanted.push(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        for flag in wanted {
            // An older kernel does not have it.
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_background(256);
        let _ = config.set_max_write(1 << 20);
        if self.server.volume.geometry().inode_size == 128 {
            let _ = config.set_time_granularity(Duration::from_secs(1));
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _scope = self.begin_request(request);
        match self.server.lookup(who(request), parent.0, name.as_bytes()) {
            Ok(None) => reply.entry(&VALID_FOR, &self.nothing(), Generation(0)),
            Ok(Some(attr)) => self.entry(Ok(attr), reply),
            Err(error) => reply.error(error.into()),
        }
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel asks only without `default_permissions`, and not again after this.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn forget(&self, _: &Request, ino: INodeNo, times: u64) {
        self.server.forget(ino.0, times);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _scope = self.begin_request(request);
        self.attributes(self.server.getattr(ino.0), reply);
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
        let _scope = self.begin_request(request);
        let (atime, mtime) = (atime.map(set_time), mtime.map(set_time));
        let ctime = ctime.map(disk_time);
        let kill_set_id = request.uid() != 0;
        let change = Change { mode, uid, gid, size, atime, mtime, ctime, kill_set_id };
        self.attributes(self.server.setattr(who(request), ino.0, &change), reply);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let _scope = self.begin_request(request);
        match self.server.readlink(ino.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let _scope = self.begin_request(request);
        let at = (parent.0, name.as_bytes());
        self.entry(self.server.mknod(who(request), at, (mode, umask), device), reply);
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
        let _scope = self.begin_request(request);
        let at = (parent.0, name.as_bytes());
        self.entry(self.server.mkdir(who(request), at, (mode, umask)), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _scope = self.begin_request(request);
        empty(self.server.unlink(who(request), parent.0, name.as_bytes()), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _scope = self.begin_request(request);
        empty(self.server.rmdir(who(request), parent.0, name.as_bytes()), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _scope = self.begin_request(request);
        let (at, target) = ((parent.0, name.as_bytes()), target.as_os_str().as_bytes());
        self.entry(self.server.symlink(who(request), at, target), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _scope = self.begin_request(request);
        let from = (parent.0, name.as_bytes());
        let to = (new_parent.0, new_name.as_bytes());
        empty(self.server.rename(who(request), from, to, flags.bits()), reply);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let _scope = self.begin_request(request);
        let at = (new_parent.0, new_name.as_bytes());
        self.entry(self.server.link(who(request), ino.0, at), reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _scope = self.begin_request(request);
        match self.server.open(who(request), ino.0, flags.0) {
            Ok(()) => reply.opened(FileHandle(0), self.open_flags(flags.0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut scope = self.begin_request(request);
        BUFFER.with_borrow_mut(|buf| {
            let size = to_usize(size);
            if buf.len() < size {
                buf.resize(size, 0);
            }
            match self.server.read(ino.0, offset, &mut buf[..size], is_direct(flags.0)) {
                Ok(n) => {
                    scope.iter_mut().for_each(|scope| scope.set_bytes(n));
                    reply.data(&buf[..n]);
                }
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut scope = self.begin_request(request);
        let strip = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let cached = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let how = Writing { strip, direct: is_direct(open.0), cached };
        scope.iter_mut().for_each(|scope| scope.set_bytes(data.len()));
        let done = self.server.write(who(request), ino.0, (offset, data), how);
        written(done.map(to_u64), reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel has sent its cache before, and does not ask again.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        flags: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _scope = self.begin_request(request);
        empty(self.server.release(ino.0, flags.0), reply);
    }

    fn fsync(&self, request: &Request, ino: INodeNo, _: FileHandle, data: bool, reply: ReplyEmpty) {
        let _scope = self.begin_request(request);
        empty(self.server.fsync(ino.0, data), reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel then opens directories by itself, and keeps their entries.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _scope = self.begin_request(request);
        let done = self.server.list(ino.0, offset, &mut |entry| {
            let (number, kind) = (u64::from(entry.ino.0), kind(self.server.kind(entry)));
            let full = reply.add(INodeNo(number), entry.next, kind, OsStr::from_bytes(&entry.name));
            Handed::added(!full)
        });
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _scope = self.begin_request(request);
        let who = who(request);
        let done = self.server.list_entered(who, ino.0, offset, &mut |entry, named| {
            let name = OsStr::from_bytes(&entry.name);
            let (ino, kind) = match named {
                Named::Entered(attr) => {
                    let generation = Generation(u64::from(attr.generation));
                    let (ino, attr) = (INodeNo(u64::from(attr.ino.0)), self.attr(attr));
                    return !reply.add(ino, entry.next, name, &VALID_FOR, &attr, generation);
                }
                Named::Dots => (u64::from(entry.ino.0), fuser::FileType::Directory),
                Named::Damaged(file_type) => (damaged_node(entry.ino), kind(file_type)),
            };
            let ino = INodeNo(ino);
            let attr = FileAttr { ino, kind, ..self.nothing() };
            !reply.add(ino, entry.next, name, &Duration::ZERO, &attr, Generation(0))
        });
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsyncdir(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        data: bool,
        reply: ReplyEmpty,
    ) {
        let _scope = self.begin_request(request);
        empty(self.server.fsync(ino.0, data), reply);
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        let _scope = self.begin_request(request);
        match self.server.statfs() {
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
            Err(error) => reply.error(error.into()),
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
        let _scope = self.begin_request(request);
        let name = name.as_bytes();
        empty(self.server.setxattr(who(request), ino.0, name, value, flags), reply);
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let _scope = self.begin_request(request);
        xattr(self.server.getxattr(who(request), ino.0, name.as_bytes()), size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _scope = self.begin_request(request);
        xattr(self.server.listxattr(who(request), ino.0), size, reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _scope = self.begin_request(request);
        empty(self.server.removexattr(who(request), ino.0, name.as_bytes()), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _scope = self.begin_request(request);
        match self.server.create(who(request), (parent.0, name.as_bytes()), (mode, umask, flags)) {
            Ok(attr) => {
                let generation = Generation(u64::from(attr.generation));
                let (attr, how) = (self.attr(&attr), self.open_flags(flags));
                reply.created(&VALID_FOR, &attr, generation, FileHandle(0), how);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        cmd: u32,
        input: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let _scope = self.begin_request(request);
        let done = self.server.ioctl(who(request), ino.0, cmd, input);
        match done {
            Ok(data) => reply.ioctl(0, &data),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _scope = self.begin_request(request);
        empty(self.server.fallocate(who(request), ino.0, (offset, len), mode), reply);
    }

    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _scope = self.begin_request(request);
        match self.server.seek(ino.0, offset, whence) {
            Ok(at) => reply.offset(at),
            Err(error) => reply.error(error.into()),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        at: u64,
        to: INodeNo,
        _: FileHandle,
        out: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _scope = self.begin_request(request);
        written(self.server.copy(who(request), (from.0, at), (to.0, out), len), reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_replies_and_requests() {
        let before = time(DiskTime::new(-2, 999_999_999));
        assert!(UNIX_EPOCH.duration_since(before).is_ok_and(|since| since == Duration::new(1, 1)));
        assert_eq!(disk_time(time(DiskTime::new(1 << 33, 3))), DiskTime::new(1 << 33, 3));
        // fuser's reading of -2 s and 7 ns.
        let read = UNIX_EPOCH - Duration::new(2, 7);
        assert_eq!(disk_time(read), DiskTime::new(-2, 7));
    }
}
