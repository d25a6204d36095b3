//! TLS on a socket, for one sender and one receiver at a time.
//!
//! The state machine of rustls encrypts and decrypts in memory. Its lock is held only for that:
//! reads and writes of the socket happen without it, and none of them blocks.
//!
//! | lock | rank | protects |
//! |---|---|---|
//! | `[incoming]` | 887 | ciphertext from the socket; held while it is read and decrypted |
//! | `[outgoing]` | 888 | ciphertext for the socket, in the order of encryption; held while it is written |
//! | `[state]` | 889 | the state machine; a leaf |
//!
//! Invariants:
//!
//! - A write reports bytes as written once all of their ciphertext is in the socket. Until then it
//!   reports nothing, keeps the ciphertext, and the sender calls again with the same bytes. So no
//!   ciphertext of a request waits for a later call.
//! - Bytes that are decrypted count as readable: a wait for the socket returns at once while there
//!   are some. A wait does not return for a record that has no bytes for the caller.
//! - Messages of the receiver (a key update, an alert) follow the ciphertext of the sender. If the
//!   socket is full, the next write sends them. No peer waits for them.

use super::channel::Socket;
use super::stream::{Ready, timed_out};
use nextent_sync::{Duration, LockClass, Mutex, now};
use rustls::{AlertDescription, CertificateError, Connection, Error};
use std::io::{self, IoSlice, Read, Write};

static INCOMING: LockClass = LockClass::new("device.nbd-tls-incoming", 887);
static OUTGOING: LockClass = LockClass::new("device.nbd-tls-outgoing", 888);
static STATE: LockClass = LockClass::new("device.nbd-tls-state", 889);

/// Bytes of ciphertext that are read at once.
const READ: usize = 64 << 10;
/// Bytes that are encrypted before they are written.
const ENCRYPTED: usize = 256 << 10;

/// A TLS connection without its socket.
pub(super) struct Tls {
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    state: Mutex<Connection>,
}

struct Incoming {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

struct Outgoing {
    bytes: Vec<u8>,
    start: usize,
    /// Bytes of the sender whose ciphertext is in `bytes`.
    accepted: usize,
}

impl Tls {
    pub(super) fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(ENCRYPTED));
        let incoming = Incoming { bytes: vec![0; READ].into(), start: 0, end: 0 };
        let outgoing = Outgoing { bytes: Vec::new(), start: 0, accepted: 0 };
        Self {
            incoming: Mutex::new(&INCOMING, incoming),
            outgoing: Mutex::new(&OUTGOING, outgoing),
            state: Mutex::new(&STATE, connection),
        }
    }

    /// Completes the handshake.
    pub(super) fn handshake<S: Socket>(&self, socket: &S, limit: Duration) -> io::Result<()> {
        loop {
            while !self.flush(socket)? {
                socket.wait(Ready { read: false, write: true }, limit)?;
            }
            if !self.state.lock().is_handshaking() {
                return Ok(());
            }
            let mut incoming = self.incoming.lock();
            if incoming.is_empty() && !incoming.fill(socket)? {
                drop(incoming);
                socket.wait(Ready { read: true, write: false }, limit)?;
                continue;
            }
            let decrypted = decrypt(&mut self.state.lock(), &mut incoming);
            drop(incoming);
            self.unless_failed(socket, decrypted)?;
        }
    }

    /// As [`Socket::try_read`].
    pub(super) fn try_read<S: Socket>(
        &self,
        socket: &S,
        buf: &mut [u8],
    ) -> io::Result<Option<usize>> {
        if !self.decrypt_some(socket)? {
            return Ok(None);
        }
        let mut incoming = self.incoming.lock();
        let mut state = self.state.lock();
        let mut filled = 0;
        while filled < buf.len() {
            match state.reader().read(&mut buf[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(_) if incoming.is_empty() => break,
                // The next read reports an error that follows bytes.
                Err(_) => match decrypt(&mut state, &mut incoming) {
                    Ok(_) => {}
                    Err(_) if filled > 0 => break,
                    Err(error) => return Err(error),
                },
            }
        }
        drop(state);
        drop(incoming);
        self.send_messages(socket)?;
        Ok(Some(filled))
    }

    /// As [`Socket::try_write`]. After `None` the next call must have the same bytes.
    pub(super) fn try_write<S: Socket>(
        &self,
        socket: &S,
        bufs: &[IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        let mut outgoing = self.outgoing.lock();
        loop {
            if !outgoing.send(socket)? {
                return Ok(None);
            }
            if outgoing.accepted > 0 {
                return Ok(Some(std::mem::take(&mut outgoing.accepted)));
            }
            let mut state = self.state.lock();
            outgoing.accepted = state.writer().write_vectored(bufs)?;
            if outgoing.accepted == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            outgoing.take_from(&mut state)?;
        }
    }

    /// As [`Socket::wait`], for bytes instead of ciphertext.
    pub(super) fn wait<S: Socket>(
        &self,
        socket: &S,
        wanted: Ready,
        limit: Duration,
    ) -> io::Result<Ready> {
        if !wanted.read {
            return socket.wait(wanted, limit);
        }
        let begun = now();
        loop {
            if self.decrypt_some(socket)? {
                return Ok(Ready { read: true, write: false });
            }
            let left = limit.saturating_sub(begun.elapsed());
            match socket.wait(wanted, left) {
                Ok(Ready { write: true, .. }) => return Ok(Ready { read: false, write: true }),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(timed_out(limit));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Uses new keys from here on, and asks the peer for them.
    #[cfg(test)]
    pub(super) fn refresh_keys(&self) {
        self.state.lock().refresh_traffic_keys().expect("TLS 1.3 after its handshake");
    }

    /// Tells the peer that no more follows, if the socket takes that.
    pub(super) fn close<S: Socket>(&self, socket: &S) {
        self.state.lock().send_close_notify();
        // Without it the peer sees the end of the socket.
        let _ = self.send_messages(socket);
    }

    /// Why the peer ended the connection, if it said so before.
    pub(super) fn reason<S: Socket>(&self, socket: &S) -> Option<io::Error> {
        let decrypted = self.decrypt_some(socket);
        decrypted.err().filter(|error| error.kind() == io::ErrorKind::InvalidData)
    }

    /// Decrypts until there are bytes for the caller; false if the socket has no more.
    fn decrypt_some<S: Socket>(&self, socket: &S) -> io::Result<bool> {
        let mut incoming = self.incoming.lock();
        let decrypted = loop {
            let decrypted = decrypt(&mut self.state.lock(), &mut incoming);
            if !matches!(decrypted, Ok(false)) {
                break decrypted;
            }
            if incoming.is_empty() {
                match incoming.fill(socket) {
                    Ok(true) => {}
                    other => break other,
                }
            }
        };
        drop(incoming);
        self.unless_failed(socket, decrypted)
    }

    /// Sends the alert of an error, or other messages.
    fn unless_failed<S: Socket>(&self, socket: &S, done: io::Result<bool>) -> io::Result<bool> {
        let sent = self.send_messages(socket);
        let done = done?;
        sent?;
        Ok(done)
    }

    /// Sends messages of the receiver, if the state machine has some.
    fn send_messages<S: Socket>(&self, socket: &S) -> io::Result<()> {
        let any = self.state.lock().wants_write();
        if any { self.flush(socket).map(drop) } else { Ok(()) }
    }

    /// Sends what the state machine has for the peer; false if the socket is full.
    fn flush<S: Socket>(&self, socket: &S) -> io::Result<bool> {
        let mut outgoing = self.outgoing.lock();
        outgoing.take_from(&mut self.state.lock())?;
        // The sender writes its ciphertext itself, and learns when all of it is written.
        if outgoing.accepted > 0 {
            return Ok(false);
        }
        outgoing.send(socket)
    }
}

impl Incoming {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads ciphertext; false if there is none.
    fn fill<S: Socket>(&mut self, socket: &S) -> io::Result<bool> {
        match socket.try_read(&mut self.bytes)? {
            Some(count) => {
                (self.start, self.end) = (0, count);
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

impl Outgoing {
    /// Takes the ciphertext that the state machine has.
    fn take_from(&mut self, state: &mut Connection) -> io::Result<()> {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
        while state.wants_write() {
            state.write_tls(&mut self.bytes)?;
        }
        Ok(())
    }

    /// Writes ciphertext; false if the socket is full.
    fn send<S: Socket>(&mut self, socket: &S) -> io::Result<bool> {
        while self.start < self.bytes.len() {
            match socket.try_write(&[IoSlice::new(&self.bytes[self.start..])])? {
                Some(count) => self.start += count,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Decrypts some of the ciphertext, unless there are bytes for the caller; whether there are then.
fn decrypt(state: &mut Connection, incoming: &mut Incoming) -> io::Result<bool> {
    let before = state.process_new_packets().map_err(|error| failed(state, &error))?;
    if before.plaintext_bytes_to_read() > 0 {
        return Ok(true);
    }
    if before.peer_has_closed() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut ciphertext = &incoming.bytes[incoming.start..incoming.end];
    if ciphertext.is_empty() {
        return Ok(false);
    }
    state.read_tls(&mut ciphertext)?;
    incoming.start = incoming.end - ciphertext.len();
    let after = state.process_new_packets().map_err(|error| failed(state, &error))?;
    Ok(after.plaintext_bytes_to_read() > 0)
}

/// The error of a connection whose TLS failed. To connect again would not help.
fn failed(state: &Connection, error: &Error) -> io::Error {
    use AlertDescription as Alert;
    let peer = match state {
        Connection::Client(_) => "server",
        Connection::Server(_) => "client",
    };
    let text = match error {
        Error::AlertReceived(
            alert @ (Alert::CertificateRequired | Alert::HandshakeFailure | Alert::AccessDenied),
        ) if peer == "server" => {
            format!(
                "the server refuses the connection; it may require another certificate of the \
                     client ({alert:?})"
            )
        }
        Error::InvalidCertificate(
            cause @ (CertificateError::UnknownIssuer | CertificateError::BadSignature),
        ) => format!("no trusted CA has signed the certificate of the {peer} ({cause:?})"),
        Error::AlertReceived(alert) => format!("the {peer} refuses the connection ({alert:?})"),
        error => error.to_string(),
    };
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {text}"))
}

#[cfg(test)]
mod tests {
    use crate::nbd::certificates;
    use crate::nbd::stream::{Messages, NbdSocket, Stream};
    use crate::nbd::url::{ServerAddress, TlsAddress};
    use nextent_sync::{Arc, Duration, thread};
    use nextent_testkit::{Authority, Certificate, need};
    use std::os::unix::net::UnixStream;

    const LIMIT: Duration = Duration::from_secs(60);
    /// Bytes of each direction: many times what the sockets hold.
    const LEN: usize = 1 << 20;

    /// The two ends of a connection whose sockets hold a few KiB.
    fn pair(authority: &Authority) -> (Stream, Stream) {
        let dir = authority.directory(&[Certificate::new("server", "DNS:localhost")]);
        let (client, server) = UnixStream::pair().unwrap();
        for end in [&client, &server] {
            rustix::net::sockopt::set_socket_send_buffer_size(end, 1).unwrap();
        }
        let config = Arc::new(certificates::server(&dir, false).unwrap());
        let tls = TlsAddress { certificates: Some(dir), hostname: None };
        let tls = certificates::client(&tls, &ServerAddress::Unix("socket".into())).unwrap();
        let stream = |socket| Stream::accepted(NbdSocket::from(socket)).unwrap();
        let (mut client, mut server) = (stream(client), stream(server));
        thread::scope(|scope| {
            scope.spawn(|| server.start_tls(certificates::accepted(&config).unwrap(), LIMIT));
            client.start_tls(tls, LIMIT).unwrap();
        });
        (client, server)
    }

    fn byte(n: usize) -> u8 {
        (n % 251) as u8
    }

    /// Writes in pieces of many sizes, and asks the peer for new keys now and then.
    fn write(stream: &Stream) {
        let bytes: Vec<u8> = (0..LEN).map(byte).collect();
        let messages = Messages { stream, limit: LIMIT };
        let (mut at, mut piece) = (0, 1);
        while at < LEN {
            let end = (at + piece).min(LEN);
            let (head, rest) = bytes[at..end].split_at(28.min(end - at));
            messages.write_parts(head, rest).unwrap();
            (at, piece) = (end, (piece * 7 + 13) % 150_000);
            stream.refresh_keys();
        }
    }

    fn read(stream: &Stream) {
        let messages = Messages { stream, limit: LIMIT };
        let (mut at, mut piece) = (0, 5);
        while at < LEN {
            let mut bytes = vec![0; piece.min(LEN - at)];
            messages.read_exact(&mut bytes).unwrap();
            assert!(bytes.iter().enumerate().all(|(n, found)| *found == byte(at + n)), "at {at}");
            (at, piece) = (at + bytes.len(), (piece * 5 + 3) % 100_000);
        }
    }

    /// Both directions are full all the time, and both sides change keys.
    #[test]
    fn a_sender_and_a_receiver_share_each_end() {
        let authority = need!(Authority::new());
        let (client, server) = pair(&authority);
        thread::scope(|scope| {
            for stream in [&client, &server] {
                scope.spawn(move || write(stream));
                scope.spawn(move || read(stream));
            }
        });
        client.shutdown();
        let end = Messages { stream: &server, limit: LIMIT }.read_exact(&mut [0]).unwrap_err();
        assert_eq!(end.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
