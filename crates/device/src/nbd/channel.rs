//! One connection in transmission: requests of many threads in flight, without a thread of its own.
//!
//! A thread sends its request itself, and then waits for the reply. One of the waiting threads has
//! the role of the receiver: it reads replies and passes them to the threads that sent the
//! requests, until its own is there. Then another waiting thread takes the role.
//!
//! | lock | rank | protects |
//! |---|---|---|
//! | `[sender]` | 881 | the order of bytes on the socket; held while a request is written |
//! | `[receiver]` | 882 | the bytes read from the socket; its holder is the receiver. Only tried, never waited for |
//! | `[requests]` | 883 | the requests in flight, and why the connection is lost |
//! | `[waiters]` | 884 | the clients of threads that wait |
//! | `[inbox]` | 885 | the replies of one client |
//!
//! Invariants:
//!
//! - Each submitted request ends with exactly one [`Outcome`] in its client's inbox, at the latest
//!   when the connection is lost.
//! - While a thread waits, a thread is the receiver, or the waiting thread has been woken to take
//!   the role. A thread that gives the role up wakes a waiter after it; a waiter registers before
//!   it tries to take the role.
//! - A thread that cannot send, because the server waits until its replies are read, reads them.
//!   If another thread is the receiver then, that one goes on until the socket takes more bytes.
//!   The sender counts in `send_waits` before it tries to take the role, and a receiver reads that
//!   after it has given the role up (both SeqCst), so one of them sees the other.

use super::negotiate::violation;
use super::stream::Ready;
use super::wire::{self, Command, Fields, Request, chunk};
use nextent_num::to_usize;
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, Condvar, Duration, HashMap, LockClass, Mutex, MutexGuard};
use std::io::{self, IoSlice};

static SENDER: LockClass = LockClass::new("device.nbd-sender", 881);
static RECEIVER: LockClass = LockClass::new("device.nbd-receiver", 882);
static REQUESTS: LockClass = LockClass::new("device.nbd-requests", 883);
static WAITERS: LockClass = LockClass::new("device.nbd-waiters", 884);
static INBOX: LockClass = LockClass::new("device.nbd-inbox", 885);

/// Bytes that are read ahead of what is needed, at most.
const READ_AHEAD: usize = 16 << 10;

/// A socket that never blocks.
pub(super) trait Socket: Send + Sync {
    /// Reads what there is; `None` if there is nothing yet. An end is an error.
    fn try_read(&self, buf: &mut [u8]) -> io::Result<Option<usize>>;

    /// Writes what fits; `None` if nothing does.
    fn try_write(&self, bufs: &[IoSlice<'_>]) -> io::Result<Option<usize>>;

    /// Waits until the socket is ready for something that is wanted, or `limit` has passed, which
    /// is an error.
    fn wait(&self, wanted: Ready, limit: Duration) -> io::Result<Ready>;

    /// Makes all calls fail from now on.
    fn shutdown(&self);
}

/// What a server answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    /// The bytes of a read.
    pub(super) bytes: Vec<u8>,
    /// The lengths and flags of ranges, of a block status.
    pub(super) ranges: Vec<(u32, u32)>,
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done(Reply),
    /// The server reports this error number of the protocol.
    Failed(u32),
    /// The connection is lost. The server may have performed the request.
    Lost,
}

/// A thread, or a queue, that sends requests and waits for their replies.
#[derive(Debug)]
pub(super) struct Client {
    inbox: Mutex<Inbox>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    ended: Vec<(u64, Outcome)>,
    /// The thread is to try to become the receiver.
    called: bool,
}

impl Client {
    pub(super) fn new() -> Arc<Self> {
        let inbox = Mutex::new(&INBOX, Inbox::default());
        Arc::new(Self { inbox, changed: Condvar::new() })
    }

    /// Whether a request of it has ended, and its outcome was not taken.
    pub(super) fn has_outcome(&self) -> bool {
        !self.inbox.lock().ended.is_empty()
    }

    fn deliver(&self, cookie: u64, outcome: Outcome) {
        self.inbox.lock().ended.push((cookie, outcome));
        self.changed.notify_one();
    }
}

/// A request in flight.
struct InFlight {
    client: Arc<Client>,
    command: Command,
    offset: u64,
    /// The bytes of a read.
    len: usize,
    /// How much of them has arrived.
    filled: usize,
    reply: Reply,
    error: Option<u32>,
}

struct Requests {
    next_cookie: u64,
    in_flight: HashMap<u64, InFlight>,
    /// Why the connection is lost.
    lost: Option<(io::ErrorKind, String)>,
}

/// Bytes from the socket.
struct Incoming {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// A connection.
pub(super) struct Channel<S: Socket> {
    socket: S,
    /// The longest time without any progress of the server, while requests are in flight.
    limit: Duration,
    structured: bool,
    sender: Mutex<()>,
    receiver: Mutex<Incoming>,
    requests: Mutex<Requests>,
    waiters: Mutex<Vec<Arc<Client>>>,
    /// How often the holder of `[sender]` has begun or ended to wait until the socket takes more
    /// bytes; odd while it waits.
    send_waits: AtomicU64,
}

/// A connection is lost.
#[derive(Debug)]
pub(super) struct ConnectionLost;

impl<S: Socket> Channel<S> {
    pub(super) fn new(socket: S, limit: Duration, structured: bool) -> Self {
        let incoming = Incoming { bytes: vec![0; READ_AHEAD].into(), start: 0, end: 0 };
        let requests = Requests { next_cookie: 0, in_flight: HashMap::default(), lost: None };
        Self {
            socket,
            limit,
            structured,
            sender: Mutex::new(&SENDER, ()),
            receiver: Mutex::new(&RECEIVER, incoming),
            requests: Mutex::new(&REQUESTS, requests),
            waiters: Mutex::new(&WAITERS, Vec::new()),
            send_waits: AtomicU64::new(0),
        }
    }

    /// Sends a request with the data of a write; the cookie that its outcome will have.
    ///
    /// # Errors
    /// The connection is lost already, and the request has no outcome.
    pub(super) fn submit(
        &self,
        client: &Arc<Client>,
        request: &Request,
        data: &[u8],
    ) -> Result<u64, ConnectionLost> {
        self.submit_into(client, request, data, Vec::new())
    }

    /// Like [`submit`](Self::submit). The bytes of a read take the memory of `buffer`.
    pub(super) fn submit_into(
        &self,
        client: &Arc<Client>,
        request: &Request,
        data: &[u8],
        buffer: Vec<u8>,
    ) -> Result<u64, ConnectionLost> {
        let len = if request.command == Command::Read { to_usize(request.len) } else { 0 };
        let in_flight = InFlight {
            client: Arc::clone(client),
            command: request.command,
            offset: request.offset,
            len,
            filled: 0,
            reply: Reply { bytes: buffer, ranges: Vec::new() },
            error: None,
        };
        let cookie = {
            let mut requests = self.requests.lock();
            if requests.lost.is_some() {
                return Err(ConnectionLost);
            }
            requests.next_cookie += 1;
            let cookie = requests.next_cookie;
            requests.in_flight.insert(cookie, in_flight);
            cookie
        };
        let sending = self.sender.lock();
        let sent = self.send(&request.header(cookie), data);
        drop(sending);
        if let Err(error) = sent {
            self.lose(&error);
        }
        Ok(cookie)
    }

    /// Writes all bytes. The caller holds `[sender]`.
    fn send(&self, header: &[u8], data: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < header.len() + data.len() {
            let head = &header[sent.min(header.len())..];
            let rest = &data[sent.saturating_sub(header.len())..];
            match self.socket.try_write(&[IoSlice::new(head), IoSlice::new(rest)])? {
                Some(count) => sent += count,
                None => self.wait_to_send()?,
            }
        }
        Ok(())
    }

    /// Waits until the socket takes more, and reads replies if no other thread does.
    fn wait_to_send(&self) -> io::Result<()> {
        self.send_waits.fetch_add(1, Ordering::SeqCst);
        let waited = match self.receiver.try_lock() {
            Some(mut incoming) => self.receive_until_writable(&mut incoming),
            None => self.socket.wait(Ready { read: false, write: true }, self.limit).map(drop),
        };
        self.send_waits.fetch_add(1, Ordering::SeqCst);
        self.call_waiter();
        waited
    }

    /// Reads replies until the socket takes more bytes.
    fn receive_until_writable(&self, incoming: &mut Incoming) -> io::Result<()> {
        loop {
            let buffered = incoming.start < incoming.end;
            if !buffered {
                let ready = self.socket.wait(Ready { read: true, write: true }, self.limit)?;
                if ready.write {
                    return Ok(());
                }
            }
            self.receive(incoming)?;
        }
    }

    /// Gives the role of the receiver up. Takes it again while a sender needs that.
    fn give_up(&self, incoming: MutexGuard<'_, Incoming>) {
        drop(incoming);
        let mut helped = None;
        while !self.is_lost() {
            let waits = self.send_waits.load(Ordering::SeqCst);
            // The socket took more after the same wait had begun, which has woken the sender.
            if waits.is_multiple_of(2) || helped == Some(waits) {
                return;
            }
            let Some(mut incoming) = self.receiver.try_lock() else { return };
            if let Err(error) = self.receive_until_writable(&mut incoming) {
                self.lose(&error);
            }
            helped = Some(waits);
        }
    }

    fn is_lost(&self) -> bool {
        self.requests.lock().lost.is_some()
    }

    /// Waits until requests of `client` have ended, and appends at least one of their outcomes. The
    /// client has a request in flight or an outcome.
    pub(super) fn wait(&self, client: &Arc<Client>, ended: &mut Vec<(u64, Outcome)>) {
        if take(client, ended) {
            return;
        }
        self.waiters.lock().push(Arc::clone(client));
        while !take(client, ended) {
            // Once the connection is lost, the thread that noticed it delivers all outcomes.
            let role = if self.is_lost() { None } else { self.receiver.try_lock() };
            if let Some(mut incoming) = role {
                while client.inbox.lock().ended.is_empty() {
                    if let Err(error) = self.receive(&mut incoming) {
                        self.lose(&error);
                        break;
                    }
                }
                self.give_up(incoming);
                continue;
            }
            let mut inbox = client.inbox.lock();
            while inbox.ended.is_empty() && !inbox.called {
                client.changed.wait(&mut inbox);
            }
            inbox.called = false;
        }
        let mut waiters = self.waiters.lock();
        if let Some(at) = waiters.iter().position(|waiter| Arc::ptr_eq(waiter, client)) {
            waiters.swap_remove(at);
        }
        drop(waiters);
        self.call_waiter();
    }

    /// Appends the outcomes that are there, without waiting for more.
    pub(super) fn poll(&self, client: &Arc<Client>, ended: &mut Vec<(u64, Outcome)>) {
        if take(client, ended) {
            return;
        }
        let Some(mut incoming) = self.receiver.try_lock() else { return };
        let no_wait = Duration::ZERO;
        while incoming.start < incoming.end
            || self.socket.wait(Ready { read: true, write: false }, no_wait).is_ok()
        {
            if let Err(error) = self.receive(&mut incoming) {
                self.lose(&error);
                break;
            }
            if take(client, ended) {
                break;
            }
        }
        self.give_up(incoming);
        self.call_waiter();
    }

    /// Wakes a waiting thread, which takes the role of the receiver unless another has it.
    fn call_waiter(&self) {
        let waiters = self.waiters.lock();
        if let Some(client) = waiters.first() {
            client.inbox.lock().called = true;
            client.changed.notify_one();
        }
    }

    /// Ends the connection: requests in flight are lost.
    pub(super) fn lose(&self, error: &io::Error) {
        let mut requests = self.requests.lock();
        if requests.lost.is_none() {
            requests.lost = Some((error.kind(), error.to_string()));
        }
        let lost: Vec<_> = requests.in_flight.drain().collect();
        drop(requests);
        self.socket.shutdown();
        for (cookie, request) in lost {
            request.client.deliver(cookie, Outcome::Lost);
        }
    }

    /// Why the connection is lost, if it is.
    pub(super) fn lost(&self) -> Option<io::Error> {
        let requests = self.requests.lock();
        requests.lost.as_ref().map(|(kind, text)| io::Error::new(*kind, text.clone()))
    }

    /// Reads the replies to all requests in flight; no thread waits for them any more. Gives up
    /// when there is no progress for a few seconds.
    fn receive_rest(&self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        let Some(mut incoming) = self.receiver.try_lock() else { return };
        while !self.requests.lock().in_flight.is_empty() {
            let buffered = incoming.start < incoming.end;
            let ready = Ready { read: true, write: false };
            if !buffered && self.socket.wait(ready, PATIENCE.min(self.limit)).is_err()
                || self.receive(&mut incoming).is_err()
            {
                return;
            }
        }
    }

    /// Tells the server that no more requests follow. The protocol asks for all replies before.
    /// nbdkit 1.32 ends if a client disconnects earlier.
    pub(super) fn disconnect(&self) {
        self.receive_rest();
        let request = Request::new(Command::Disconnect, 0, 0);
        if let Some(_sending) = self.sender.try_lock() {
            // Without it the server sees the end of the connection.
            let _ = self.socket.try_write(&[IoSlice::new(&request.header(0))]);
        }
        self.socket.shutdown();
    }

    /// Reads one reply, or one chunk of a reply, and delivers the outcome of a request that it
    /// ends.
    fn receive(&self, incoming: &mut Incoming) -> io::Result<()> {
        let mut magic = [0; 4];
        self.read(incoming, &mut magic)?;
        match u32::from_be_bytes(magic) {
            wire::SIMPLE_REPLY => self.receive_simple(incoming),
            wire::STRUCTURED_REPLY if self.structured => self.receive_chunk(incoming),
            other => Err(violation(format!("a reply with the magic number {other:#x}"))),
        }
    }

    fn receive_simple(&self, incoming: &mut Incoming) -> io::Result<()> {
        let mut header = [0; 12];
        self.read(incoming, &mut header)?;
        let mut fields = Fields(&header);
        let (error, cookie) = (fields.u32().unwrap_or(0), fields.u64().unwrap_or(0));
        let mut request = self.take_request(cookie)?;
        let received = match (error, request.command) {
            (0, Command::Read) if self.structured => Err(violation("a simple reply to a read")),
            (0, Command::Read) => {
                request.reply.bytes.resize(request.len, 0);
                self.read(incoming, &mut request.reply.bytes)
            }
            (0, _) => Ok(()),
            (error, _) => {
                request.error = Some(error);
                Ok(())
            }
        };
        match received {
            Ok(()) => end(cookie, request),
            Err(_) => self.put_back(cookie, request),
        }
        received
    }

    fn receive_chunk(&self, incoming: &mut Incoming) -> io::Result<()> {
        let mut header = [0; 16];
        self.read(incoming, &mut header)?;
        let mut fields = Fields(&header);
        let (flags, kind) = (fields.u16().unwrap_or(0), fields.u16().unwrap_or(0));
        let (cookie, len) = (fields.u64().unwrap_or(0), fields.u32().unwrap_or(0));
        let mut request = self.take_request(cookie)?;
        let received = self.receive_payload(incoming, kind, to_usize(len), &mut request);
        if received.is_err() || flags & chunk::DONE == 0 {
            self.put_back(cookie, request);
            return received;
        }
        if request.error.is_none() && request.filled < request.len {
            self.put_back(cookie, request);
            return Err(violation("a reply to a read lacks bytes"));
        }
        end(cookie, request);
        Ok(())
    }

    fn receive_payload(
        &self,
        incoming: &mut Incoming,
        kind: u16,
        len: usize,
        request: &mut InFlight,
    ) -> io::Result<()> {
        if kind == chunk::OFFSET_DATA {
            return self.receive_data(incoming, len, request);
        }
        if len > READ_AHEAD {
            return Err(violation(format!("a chunk of {len} bytes")));
        }
        let mut payload = vec![0; len];
        self.read(incoming, &mut payload)?;
        let mut fields = Fields(&payload);
        match kind {
            chunk::NONE => {}
            chunk::OFFSET_HOLE => {
                let hole = fields.u64().zip(fields.u32());
                let (offset, len) = hole.ok_or_else(|| violation("a hole without a length"))?;
                request.part(offset, to_usize(len))?.fill(0);
            }
            chunk::BLOCK_STATUS => {
                let _context = fields.u32();
                while let Some(range) = fields.u32().zip(fields.u32()) {
                    request.reply.ranges.push(range);
                }
            }
            kind if kind & chunk::ERROR != 0 => {
                let code = fields.u32().filter(|code| *code != 0);
                request.error = Some(code.ok_or_else(|| violation("an error without a number"))?);
            }
            kind => return Err(violation(format!("a chunk of the type {kind}"))),
        }
        Ok(())
    }

    fn receive_data(
        &self,
        incoming: &mut Incoming,
        len: usize,
        request: &mut InFlight,
    ) -> io::Result<()> {
        let mut offset = [0; 8];
        self.read(incoming, &mut offset)?;
        let len = len.checked_sub(offset.len()).ok_or_else(|| violation("data without a place"))?;
        let part = request.part(u64::from_be_bytes(offset), len)?;
        self.read(incoming, part)
    }

    /// Takes a request out of the map while a reply to it is read.
    fn take_request(&self, cookie: u64) -> io::Result<InFlight> {
        let found = self.requests.lock().in_flight.remove(&cookie);
        found.ok_or_else(|| violation("a reply to no request"))
    }

    /// Undoes [`take_request`](Self::take_request). If the connection was lost meanwhile, the
    /// request is lost too.
    fn put_back(&self, cookie: u64, request: InFlight) {
        let mut requests = self.requests.lock();
        if requests.lost.is_none() {
            requests.in_flight.insert(cookie, request);
            return;
        }
        drop(requests);
        request.client.deliver(cookie, Outcome::Lost);
    }

    /// Fills `buf` from the socket.
    fn read(&self, incoming: &mut Incoming, mut buf: &mut [u8]) -> io::Result<()> {
        loop {
            let count = buf.len().min(incoming.end - incoming.start);
            let (front, rest) = buf.split_at_mut(count);
            front.copy_from_slice(&incoming.bytes[incoming.start..incoming.start + count]);
            incoming.start += count;
            buf = rest;
            if buf.is_empty() {
                return Ok(());
            }
            let direct = buf.len() >= READ_AHEAD;
            let target = if direct { &mut *buf } else { &mut *incoming.bytes };
            match self.socket.try_read(target)? {
                Some(count) if direct => buf = &mut buf[count..],
                Some(count) => (incoming.start, incoming.end) = (0, count),
                None => {
                    self.socket.wait(Ready { read: true, write: false }, self.limit)?;
                }
            }
        }
    }
}

impl InFlight {
    /// The part of a read's bytes at `offset` of the export. Counts it as filled.
    fn part(&mut self, offset: u64, len: usize) -> io::Result<&mut [u8]> {
        let wrong = || violation("data outside of the range of a read");
        if self.command != Command::Read {
            return Err(wrong());
        }
        let start = offset.checked_sub(self.offset).ok_or_else(wrong)?;
        let start = usize::try_from(start).map_err(|_| wrong())?;
        let end = start.checked_add(len).filter(|end| *end <= self.len).ok_or_else(wrong)?;
        self.filled =
            self.filled.checked_add(len).filter(|all| *all <= self.len).ok_or_else(wrong)?;
        self.reply.bytes.resize(self.len, 0);
        Ok(&mut self.reply.bytes[start..end])
    }
}

/// Delivers the outcome of a request whose reply is complete.
fn end(cookie: u64, request: InFlight) {
    let outcome = match request.error {
        Some(code) => Outcome::Failed(code),
        None => Outcome::Done(request.reply),
    };
    request.client.deliver(cookie, outcome);
}

/// Moves the outcomes of a client; whether there are any.
fn take(client: &Client, ended: &mut Vec<(u64, Outcome)>) -> bool {
    let mut inbox = client.inbox.lock();
    let any = !inbox.ended.is_empty();
    ended.append(&mut inbox.ended);
    any
}
