//! Reads and writes messages of an open `/dev/fuse`.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd;

use nextent_fuse_sys::{OP, clone_device};
use nextent_num::must_fit;
use nextent_sync::{Arc, Instant, now};
use rustix::io::Errno as Os;
use zerocopy::{FromBytes, IntoBytes};

use crate::Server;
use crate::errno::Errno;
use crate::space_wait::{Waiters, is_full, retry_long};
use crate::wire::{self, ForgetCachedOut, InHeader, Opcode, OutHeader, PAYLOAD};

/// Bytes of the largest message, with its headers.
pub(crate) const MESSAGE: usize = PAYLOAD + 4096;

/// The number of a notice to forget what is cached of a node.
const FORGET_CACHED: i32 = 2;

/// A descriptor of a connection. A request is answered through the one that it was read from.
pub(crate) struct Device {
    file: File,
}

impl Device {
    pub(crate) fn new(file: File) -> Self {
        Self { file }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// A descriptor for another thread, so that the threads share no lock of the kernel; the same
    /// one if the kernel refuses.
    pub(crate) fn for_thread(self: &Arc<Self>) -> Arc<Self> {
        match clone_device(self.file.as_fd()) {
            Ok(file) => Arc::new(Self { file }),
            Err(_) => Arc::clone(self),
        }
    }

    /// Reads the first request: the kernel's offer, and the number of the request.
    pub(crate) fn offer(&self) -> io::Result<(wire::Offer, u64)> {
        let mut buf = vec![0; MESSAGE];
        let n = loop {
            match self.next(&mut buf)? {
                Some(0) => {}
                n => break n.ok_or(ErrorKind::UnexpectedEof)?,
            }
        };
        let odd = || io::Error::new(ErrorKind::InvalidData, "not the first request of FUSE");
        let (header, init) = InHeader::read_from_prefix(&buf[..n]).map_err(|_| odd())?;
        if Opcode::of(header.opcode) != Some(Opcode::Init) {
            return Err(odd());
        }
        Ok((wire::Offer::read(init).map_err(|_| odd())?, header.unique))
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

    /// Makes the kernel forget the attributes of a node, whose file must be open. Any thread may
    /// call this while requests wait for it: the kernel waits for no page and no inode.
    pub(crate) fn forget_attributes(&self, node: u64) {
        self.forget_cached(ForgetCachedOut { node, offset: -1, len: 0 });
    }

    /// Makes the kernel drop what it has cached of a node: attributes and contents. The kernel
    /// writes changed pages of mappings first, and waits for reads of pages, so no thread may call
    /// this that has to answer requests.
    pub(crate) fn forget_contents(&self, node: u64) {
        self.forget_cached(ForgetCachedOut { node, offset: 0, len: 0 });
    }

    fn forget_cached(&self, notice: ForgetCachedOut) {
        let len = must_fit(size_of::<OutHeader>() + notice.as_bytes().len());
        let header = OutHeader { len, error: FORGET_CACHED, unique: 0 };
        // An error says that the kernel does not have the node, or that the mount is gone.
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(notice.as_bytes())];
        let _ = (&self.file).write_vectored(&parts);
    }

    /// Makes reads return at once without a message.
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

    /// Handles the request in the first `n` bytes of `buf` and answers it. Whether it has an
    /// answer.
    pub(crate) fn answer(&self, server: &Server, buf: &mut [u8], n: usize) -> io::Result<bool> {
        // The kernel sends no shorter message.
        let Ok((header, _)) = InHeader::read_from_prefix(&buf[..n]) else { return Ok(false) };
        let begin = now();
        let done = handle(server, &header, buf, n);
        self.finish(server, (&header, begin), (buf, n), done)
    }

    /// [`answer`](Self::answer); if the request finds no space, another thread runs it again.
    pub(crate) fn answer_or_wait(
        self: &Arc<Self>,
        server: &Arc<Server>,
        (buf, n): (&mut [u8], usize),
        waiters: &Arc<Waiters>,
    ) -> io::Result<()> {
        let Ok((header, _)) = InHeader::read_from_prefix(&buf[..n]) else { return Ok(()) };
        let begin = now();
        let done = handle(server, &header, buf, n);
        if is_full(&done) {
            let (device, server, mut message) =
                (Arc::clone(self), Arc::clone(server), buf.to_vec());
            let waits = waiters.spawn(move || {
                let done = retry_long(&server, || handle(&server, &header, &mut message, n));
                // The threads that read see the error, too.
                let _ = device.finish(&server, (&header, begin), (&message, n), done);
            });
            if waits {
                return Ok(());
            }
        }
        self.finish(server, (&header, begin), (buf, n), done).map(drop)
    }

    /// Counts a request of `n` bytes that was read at `begin`, and sends its answer, which lies in
    /// `buf`. Whether it has an answer.
    fn finish(
        &self,
        server: &Server,
        (header, begin): (&InHeader, Instant),
        (buf, n): (&[u8], usize),
        done: Result<(usize, usize), Errno>,
    ) -> io::Result<bool> {
        let len = done.map_or(0, |(from, _)| n - from);
        wire::count(server, header.opcode, begin, (len, &done.map(|(_, len)| len)));
        if !wire::is_answered(header.opcode) {
            return Ok(false);
        }
        self.reply(header.unique, done.map(|(from, len)| &buf[from..from + len]))?;
        Ok(true)
    }
}

/// Handles the request in the first `n` bytes of `buf`; offset and length of the answer in it.
fn handle(
    server: &Server,
    header: &InHeader,
    buf: &mut [u8],
    n: usize,
) -> Result<(usize, usize), Errno> {
    let (_, op, from): (InHeader, [u8; OP], usize) =
        wire::split(&buf[..n], server.has_short_setxattr())?;
    let len = wire::answer(server, header, &op, (&mut buf[from..], n - from))?;
    Ok((from, len))
}
