//! Reads and writes messages of `/dev/fuse`, after mounting by `mount(2)` or, for users, by
//! fusermount3.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nextent_fuse_sys::OP;
use nextent_num::must_fit;
use nextent_sync::{Duration, LockClass, Mutex, sleep};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno as Os;
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::Server;
use crate::errno::Errno;
use crate::transport::{MountFlag, Setup};
use crate::wire::{self, InHeader, Opcode, OutHeader, PAYLOAD};

/// Bytes of the largest message.
const ROOM: usize = PAYLOAD + 4096;

/// How long messages without an answer may wait.
const REST: Duration = Duration::from_millis(1);

/// Held from reading a message until it is handled, so that a later holder finds it complete.
static MESSAGE: LockClass = LockClass::new("fuse.device", 1);

/// The server's end of a mount.
pub(crate) struct Device {
    file: File,
    /// The message that is handled. \[fuse.device\]
    message: Mutex<Vec<u8>>,
}

/// The result of reading all messages.
enum Drained {
    /// None is left; whether one of them had no answer.
    Dry(bool),
    /// The mount has ended.
    Over,
}

impl Device {
    /// Mounts at `point`.
    pub(crate) fn mount(point: &Path, setup: &Setup) -> io::Result<Self> {
        let point = std::fs::canonicalize(point)?;
        match mount_as_root(&point, setup) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                mount_as_user(&point, setup)
            }
            done => done,
        }
        .map(|file| Self { file, message: Mutex::new(&MESSAGE, vec![0; ROOM]) })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Reads the first request: the kernel's offer, and the number of the request.
    pub(crate) fn offer(&self) -> io::Result<(wire::Offer, u64)> {
        let mut buf = self.message.lock();
        let n = loop {
            match self.next(&mut buf)? {
                Some(0) => {}
                n => break n.ok_or(ErrorKind::UnexpectedEof)?,
            }
        };
        let odd = || io::Error::new(ErrorKind::InvalidData, "not the first request of FUSE");
        let (header, op, _) = wire::split(&buf[..n]).map_err(|_| odd())?;
        if Opcode::of(header.opcode) != Some(Opcode::Init) {
            return Err(odd());
        }
        Ok((wire::Offer::read(&op).map_err(|_| odd())?, header.unique))
    }

    pub(crate) fn reply(&self, unique: u64, answer: Result<&[u8], Errno>) -> io::Result<()> {
        let (error, body) = answer.map_or_else(|error| (-error.0, &[][..]), |body| (0, body));
        let len = must_fit(size_of::<OutHeader>() + body.len());
        let header = OutHeader { len, error, unique };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
        match (&self.file).write_vectored(&parts) {
            Ok(_) => Ok(()),
            // The request was interrupted, or the mount is gone.
            Err(error) if matches!(Os::from_io_error(&error), Some(Os::NOENT | Os::NODEV)) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Makes reads return at once without a message. Called after kernel and server have agreed,
    /// and before any thread calls [`Self::catch_up`], which must not wait for a message.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.file, true)?)
    }

    /// Reads a message: zero bytes if none is there, none when the mount has ended.
    pub(crate) fn next(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buf) {
            Ok(0) => Ok(None),
            Ok(n) => Ok(Some(n)),
            Err(error) => match Os::from_io_error(&error) {
                Some(Os::NODEV) => Ok(None),
                // No message, or the request was interrupted.
                Some(Os::INTR | Os::AGAIN | Os::NOENT) => Ok(Some(0)),
                _ => Err(error),
            },
        }
    }

    /// Handles messages until the mount ends. With `others`, other threads answer requests and
    /// mostly messages without an answer come here. These may wait: no client waits for them, and
    /// forgets come in groups.
    pub(crate) fn serve(&self, server: &Server, others: bool) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], None) {
                Ok(_) | Err(Os::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            match self.drain(server)? {
                Drained::Over => return Ok(()),
                // While no thread reads, the kernel wakes no core for the next messages.
                Drained::Dry(true) if others => sleep(REST),
                Drained::Dry(_) => {}
            }
        }
    }

    /// Handles all forgets that the kernel has sent before this call.
    pub(crate) fn catch_up(&self, server: &Server) {
        // The thread in `serve` sees the error, too.
        let _ = self.drain(server);
    }

    /// Handles all messages that are there.
    fn drain(&self, server: &Server) -> io::Result<Drained> {
        let mut buf = self.message.lock();
        let mut unanswered = false;
        loop {
            let n = match self.next(&mut buf)? {
                None => return Ok(Drained::Over),
                Some(0) => return Ok(Drained::Dry(unanswered)),
                Some(n) => n,
            };
            let Ok((header, _)) = InHeader::read_from_prefix(&buf[..n]) else { continue };
            unanswered |= !wire::is_answered(header.opcode);
            self.answer(server, &header, (&mut buf, n))?;
        }
    }

    /// Handles the request in the first `n` bytes of `buf` and answers it, unless it has no answer.
    /// Returns the bytes of the request or the answer, whichever is longer.
    pub(crate) fn answer(
        &self,
        server: &Server,
        header: &InHeader,
        (buf, n): (&mut [u8], usize),
    ) -> io::Result<usize> {
        let done = self.handle(server, buf, n);
        if !wire::is_answered(header.opcode) {
            return Ok(0);
        }
        let answer = done.map(|(from, len)| &buf[from..from + len]);
        let longest = answer.map_or(n, |answer| n.max(answer.len()));
        self.reply(header.unique, answer)?;
        Ok(longest)
    }

    /// Handles the request in the first `n` bytes of `buf`; offset and length of the answer in it.
    fn handle(&self, server: &Server, buf: &mut [u8], n: usize) -> Result<(usize, usize), Errno> {
        let (header, op, from): (InHeader, [u8; OP], usize) = wire::split(&buf[..n])?;
        let len = wire::answer(server, &header, &op, (&mut buf[from..], n - from))?;
        Ok((from, len))
    }
}

/// FUSE's mount options, except the descriptor.
fn mount_options(setup: &Setup) -> String {
    let mut words = Vec::new();
    if !setup.admission.everyone_may {
        words.push("default_permissions");
    }
    if setup.admission.opens_to_all() {
        words.push("allow_other");
    }
    words.join(",")
}

fn flag(flag: MountFlag) -> (MountFlags, MountFlags, &'static str) {
    let none = MountFlags::empty();
    match flag {
        MountFlag::Suid => (none, MountFlags::NOSUID, "suid"),
        MountFlag::NoSuid => (MountFlags::NOSUID, none, "nosuid"),
        MountFlag::Dev => (none, MountFlags::NODEV, "dev"),
        MountFlag::NoDev => (MountFlags::NODEV, none, "nodev"),
        MountFlag::Exec => (none, MountFlags::NOEXEC, "exec"),
        MountFlag::NoExec => (MountFlags::NOEXEC, none, "noexec"),
        MountFlag::NoAtime => (MountFlags::NOATIME, none, "noatime"),
        MountFlag::Sync => (MountFlags::SYNCHRONOUS, none, "sync"),
        MountFlag::DirSync => (MountFlags::DIRSYNC, none, "dirsync"),
    }
}

/// Mounts as root. The kernel opens a block device exclusively, forwards `sync(2)` (Linux 6.18) and
/// waits in `umount(2)` until the server has closed the volume.
fn mount_as_root(point: &Path, setup: &Setup) -> io::Result<File> {
    let file = File::options().read(true).write(true).open("/dev/fuse")?;
    let mode = std::fs::metadata(point)?.permissions().mode();
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let data = format!(
        "fd={},rootmode={mode:o},user_id={},group_id={},{}{}",
        file.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw(),
        setup.block_device.as_ref().map_or(String::new(), |device| {
            // The current size: another would empty the device's cache.
            format!("blksize={},", device.block_size)
        }),
        mount_options(setup)
    );
    let data = std::ffi::CString::new(data.trim_end_matches(','))?;
    // The defaults of fusermount3.
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if setup.read_only {
        flags |= MountFlags::RDONLY;
    }
    for (on, off, _) in setup.flags.iter().map(|word| flag(*word)) {
        flags = (flags - off) | on;
    }
    let (kind, source) = match &setup.block_device {
        Some(device) => ("fuseblk.nextent", device.path.as_path()),
        None => ("fuse.nextent", Path::new(&setup.source)),
    };
    rustix::mount::mount(source, point, kind, flags, Some(data.as_c_str()))?;
    Ok(file)
}

fn mount_as_user(point: &Path, setup: &Setup) -> io::Result<File> {
    // Inherited by the helper, which sends the descriptor back.
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )?;
    let mut options = format!("fsname={},subtype=nextent", escaped(&setup.source));
    options.push_str(if setup.read_only { ",ro" } else { ",rw" });
    for (_, _, word) in setup.flags.iter().map(|word| flag(*word)) {
        options.push(',');
        options.push_str(word);
    }
    if !mount_options(setup).is_empty() {
        options.push(',');
        options.push_str(&mount_options(setup));
    }
    let mut helper = Command::new("fusermount3");
    helper.arg("-o").arg(options).arg("--").arg(point);
    helper.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    let child = helper.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    drop(theirs);
    let received = receive(&ours);
    let output = child.wait_with_output()?;
    match received? {
        Some(fd) if output.status.success() => Ok(File::from(fd)),
        _ => {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let kind = match text.contains("user_allow_other") {
                true => ErrorKind::PermissionDenied,
                false => ErrorKind::Other,
            };
            Err(io::Error::new(kind, text))
        }
    }
}

/// A name within a list of options.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace(',', "\\,")
}

/// Receives a descriptor over `socket`; none if its other end is closed first.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut sent = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, parts, &mut sent, RecvFlags::CMSG_CLOEXEC)?;
    Ok(sent.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}
