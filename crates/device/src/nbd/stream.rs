//! A connected socket, also with TLS, without blocking calls: a thread waits with poll(2), with a
//! limit.

use super::channel::Socket;
use super::tls::Tls;
use super::url::ServerAddress;
use nextent_sync::{Duration, Instant, now};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A connection, with TLS or without.
pub(super) struct Stream {
    wire: Wire,
    tls: Option<Box<Tls>>,
}

/// A connected socket.
enum Wire {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// The socket of a client of [`NbdServer`](super::NbdServer).
pub struct NbdSocket(Wire);

impl From<UnixStream> for NbdSocket {
    fn from(socket: UnixStream) -> Self {
        Self(Wire::Unix(socket))
    }
}

impl From<TcpStream> for NbdSocket {
    fn from(socket: TcpStream) -> Self {
        Self(Wire::Tcp(socket))
    }
}

/// No limit.
pub(super) const FOREVER: Duration = Duration::MAX;

/// What a socket is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) read: bool,
    pub(super) write: bool,
}

impl Stream {
    /// Connects, within `limit`.
    pub(super) fn connect(server: &ServerAddress, limit: Duration) -> io::Result<Self> {
        let wire = match server {
            ServerAddress::Unix(path) => Wire::Unix(UnixStream::connect(path)?),
            ServerAddress::Tcp { host, port } => Wire::Tcp(connect_tcp(host, *port, limit)?),
        };
        Self::new(wire)
    }

    /// The connection of a client.
    pub(super) fn accepted(socket: NbdSocket) -> io::Result<Self> {
        Self::new(socket.0)
    }

    fn new(wire: Wire) -> io::Result<Self> {
        match &wire {
            Wire::Unix(socket) => socket.set_nonblocking(true)?,
            Wire::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
            }
        }
        Ok(Self { wire, tls: None })
    }

    /// Encrypts from here on. Completes the handshake, in which each step takes at most `limit`.
    pub(super) fn start_tls(&mut self, tls: Tls, limit: Duration) -> io::Result<()> {
        tls.handshake(&self.wire, limit)?;
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// Waits until the socket can be read or written as `wanted`, at most `limit`.
    ///
    /// # Errors
    /// `TimedOut`.
    pub(super) fn wait(&self, wanted: Ready, limit: Duration) -> io::Result<Ready> {
        match &self.tls {
            Some(tls) => tls.wait(&self.wire, wanted, limit),
            None => self.wire.wait(wanted, limit),
        }
    }

    /// Reads what there is, or nothing if the call would block.
    pub(super) fn try_read(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match &self.tls {
            Some(tls) => tls.try_read(&self.wire, buf),
            None => self.wire.try_read(buf),
        }
    }

    /// Writes what fits, or nothing if the call would block. Then the next call has the same bytes.
    pub(super) fn try_write(&self, bufs: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match &self.tls {
            Some(tls) => tls
                .try_write(&self.wire, bufs)
                .map_err(|error| tls.reason(&self.wire).unwrap_or(error)),
            None => self.wire.try_write(bufs),
        }
    }

    /// As [`Tls::refresh_keys`].
    #[cfg(test)]
    pub(super) fn refresh_keys(&self) {
        self.tls.as_ref().expect("the stream has TLS").refresh_keys();
    }

    /// Ends the connection: all reads and writes fail from now on.
    pub(super) fn shutdown(&self) {
        if let Some(tls) = &self.tls {
            tls.close(&self.wire);
        }
        self.wire.shutdown();
    }
}

impl Wire {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Socket for Wire {
    fn try_read(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let done = match self {
            Self::Unix(socket) => (&mut &*socket).read(buf),
            Self::Tcp(socket) => (&mut &*socket).read(buf),
        };
        match done {
            Ok(0) if !buf.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            done => unless_blocked(done),
        }
    }

    fn try_write(&self, bufs: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        unless_blocked(match self {
            Self::Unix(socket) => (&mut &*socket).write_vectored(bufs),
            Self::Tcp(socket) => (&mut &*socket).write_vectored(bufs),
        })
    }

    fn wait(&self, wanted: Ready, limit: Duration) -> io::Result<Ready> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, wanted.read);
        flags.set(PollFlags::OUT, wanted.write);
        let end = now().checked_add(limit);
        loop {
            let mut polled = [PollFd::from_borrowed_fd(self.fd(), flags)];
            match poll(&mut polled, end.map(until).as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(0) => return Err(timed_out(limit)),
                Ok(_) => {
                    let found = polled[0].revents();
                    // An error or a hang-up is reported by the next read or write.
                    let ended = found.intersects(PollFlags::ERR | PollFlags::HUP);
                    return Ok(Ready {
                        read: ended || found.contains(PollFlags::IN),
                        write: ended || found.contains(PollFlags::OUT),
                    });
                }
            }
        }
    }

    fn shutdown(&self) {
        let _ = match self {
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

/// Tries each address of the host.
fn connect_tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn until(end: Instant) -> Timespec {
    let left = end.saturating_duration_since(now());
    // Rounded up, so that a wait does not end early and poll again and again.
    let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: i64::from(left.subsec_nanos()) }
}

pub(super) fn timed_out(limit: Duration) -> io::Error {
    let text = format!("the server did not answer for {limit:?}");
    io::Error::new(io::ErrorKind::TimedOut, text)
}

fn unless_blocked<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads and writes whole messages.
pub(super) struct Messages<'s> {
    pub(super) stream: &'s Stream,
    pub(super) limit: Duration,
}

impl Messages<'_> {
    pub(super) fn read_exact(&self, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match self.stream.try_read(buf)? {
                Some(count) => buf = &mut buf[count..],
                None => {
                    self.stream.wait(Ready { read: true, write: false }, self.limit)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_parts(bytes, &[])
    }

    pub(super) fn write_parts(&self, mut head: &[u8], mut rest: &[u8]) -> io::Result<()> {
        while !head.is_empty() || !rest.is_empty() {
            match self.stream.try_write(&[IoSlice::new(head), IoSlice::new(rest)])? {
                Some(count) => {
                    let of_head = count.min(head.len());
                    (head, rest) = (&head[of_head..], &rest[count - of_head..]);
                }
                None => {
                    self.stream.wait(Ready { read: false, write: true }, self.limit)?;
                }
            }
        }
        Ok(())
    }
}
