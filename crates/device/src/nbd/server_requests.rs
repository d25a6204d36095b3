//! The requests of one client, several at once.
//!
//! Up to [`MOST_THREADS`] threads serve a connection. Each takes the input, reads a request, gives
//! the input up, performs the request and sends the reply. A thread that takes a request starts
//! another one if none waits for the input.
//!
//! | lock | rank | protects |
//! |---|---|---|
//! | `[input]` | 879 | the bytes from the client; held while a request is read |
//! | `[output]` | 879 | the order of replies; held while one is sent |
//! | `[failure]` | 879 | why the connection ends |
//!
//! No thread holds two of them, and none is held while the device works.
//!
//! Invariants:
//!
//! - Replies are whole: bytes of two replies do not mix.
//! - A flush covers each write whose reply was sent before the flush was read: a reply is sent once
//!   the device has the write.
//! - A client that disconnects gets the replies to all its requests first.

use super::server::{NbdServer, wrong};
use super::stream::{FOREVER, Messages, Ready, Stream};
use super::wire::{self, Command, Parsed, Request, chunk};
use crate::BlockDevice;
use nextent_num::{must_fit, to_usize};
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{Arc, LockClass, Mutex, thread};
use std::io;
use std::ops::Range;

static INPUT: LockClass = LockClass::new("device.nbd-server-input", 879);
static OUTPUT: LockClass = LockClass::new("device.nbd-server-output", 879);
static FAILURE: LockClass = LockClass::new("device.nbd-server-failure", 879);

/// Requests of one client that are performed at once.
const MOST_THREADS: usize = 8;
/// Bytes that are read ahead of what is needed, at most.
const READ_AHEAD: usize = 64 << 10;
/// The largest request with data, in bytes.
pub(super) const LARGEST: u32 = 32 << 20;
/// The most ranges that one block status describes.
const MOST_RANGES: usize = 1024;
/// The number of the context `base:allocation`.
pub(super) const CONTEXT: u32 = 1;

/// What a client has negotiated.
#[derive(Clone, Copy, Default)]
pub(super) struct Negotiated {
    pub(super) structured: bool,
    pub(super) allocation: bool,
}

/// A client that sends requests.
struct Client {
    device: Arc<dyn BlockDevice>,
    stream: Stream,
    negotiated: Negotiated,
    input: Mutex<Input>,
    output: Mutex<()>,
    failure: Mutex<Option<io::Error>>,
    /// Threads that wait for the input. Relaxed: it only decides whether one more is started.
    waiting: AtomicUsize,
}

struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// No more requests follow.
    ended: bool,
    /// All threads but the one that called [`run`].
    threads: Vec<thread::JoinHandle<()>>,
}

/// A request with the data of a write.
struct Received {
    command: Option<Command>,
    parsed: Parsed,
    cookie: u64,
    data: Vec<u8>,
}

/// Performs requests until the client disconnects.
pub(super) fn run(server: &NbdServer, stream: Stream, negotiated: Negotiated) -> io::Result<()> {
    let bytes = vec![0; READ_AHEAD].into();
    let input = Input { bytes, start: 0, end: 0, ended: false, threads: Vec::new() };
    let client = Arc::new(Client {
        device: Arc::clone(&server.device),
        stream,
        negotiated,
        input: Mutex::new(&INPUT, input),
        output: Mutex::new(&OUTPUT, ()),
        failure: Mutex::new(&FAILURE, None),
        waiting: AtomicUsize::new(0),
    });
    client.work();
    loop {
        let thread = client.input.lock().threads.pop();
        // A panic was reported where it happened.
        match thread {
            Some(thread) => drop(thread.join()),
            None => break,
        }
    }
    let failure = client.failure.lock().take();
    client.stream.shutdown();
    failure.map_or(Ok(()), Err)
}

impl Client {
    /// Serves requests until there are no more.
    fn work(self: &Arc<Self>) {
        loop {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let mut input = self.input.lock();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            if input.ended {
                return;
            }
            let received = self.receive(&mut input);
            if !matches!(received, Ok(Some(_))) {
                input.ended = true;
            } else if self.waiting.load(Ordering::Relaxed) == 0
                && input.threads.len() + 1 < MOST_THREADS
            {
                let client = Arc::clone(self);
                let thread = thread::Builder::new().name("nextent-nbd".to_owned());
                // Without it, fewer requests are performed at once.
                input.threads.extend(thread.spawn(move || client.work()));
            }
            drop(input);
            let done = match received {
                Ok(Some(request)) => self.perform(&request),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                self.failure.lock().get_or_insert(error);
                // Wakes the thread that has the input.
                self.stream.shutdown();
                return;
            }
        }
    }

    /// Reads a request; none if the client has disconnected.
    fn receive(&self, input: &mut Input) -> io::Result<Option<Received>> {
        let mut header = [0; wire::REQUEST_LEN];
        match self.read(input, &mut header[..1]) {
            Ok(()) => {}
            // Clients may leave without a word between requests.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        self.read(input, &mut header[1..])?;
        let (parsed, cookie) =
            Request::parse(&header).ok_or_else(|| wrong("an invalid request"))?;
        let mut data = Vec::new();
        match parsed.command {
            Some(Command::Disconnect) => return Ok(None),
            Some(Command::Write) if parsed.len > LARGEST => {
                return Err(wrong("a write that is too large"));
            }
            Some(Command::Write) => {
                data.resize(to_usize(parsed.len), 0);
                self.read(input, &mut data)?;
            }
            _ => {}
        }
        Ok(Some(Received { command: parsed.command, parsed, cookie, data }))
    }

    /// Fills `buf` from the socket.
    fn read(&self, input: &mut Input, mut buf: &mut [u8]) -> io::Result<()> {
        loop {
            let count = buf.len().min(input.end - input.start);
            let (front, rest) = buf.split_at_mut(count);
            front.copy_from_slice(&input.bytes[input.start..input.start + count]);
            input.start += count;
            buf = rest;
            if buf.is_empty() {
                return Ok(());
            }
            let direct = buf.len() >= READ_AHEAD;
            let target = if direct { &mut *buf } else { &mut *input.bytes };
            match self.stream.try_read(target)? {
                Some(count) if direct => buf = &mut buf[count..],
                Some(count) => (input.start, input.end) = (0, count),
                None => {
                    self.stream.wait(Ready { read: true, write: false }, FOREVER)?;
                }
            }
        }
    }

    /// Performs a request and sends the reply.
    fn perform(&self, request: &Received) -> io::Result<()> {
        let (device, cookie) = (&self.device, request.cookie);
        let (offset, len) = (request.parsed.offset, u64::from(request.parsed.len));
        let Some(command) = request.command else { return self.fail(cookie, libc::EINVAL) };
        let has_range = command != Command::Flush;
        if has_range && offset.checked_add(len).is_none_or(|end| end > device.size()) {
            let changes = matches!(command, Command::Write | Command::WriteZeroes);
            return self.fail(cookie, if changes { libc::ENOSPC } else { libc::EINVAL });
        }
        let done = match command {
            Command::Read if request.parsed.len > LARGEST => {
                return self.fail(cookie, libc::EOVERFLOW);
            }
            Command::Read => return self.read_device(&request.parsed, cookie),
            Command::BlockStatus => return self.block_status(&request.parsed, cookie),
            Command::Write => device.write_at(offset, &request.data),
            Command::Flush => device.flush(),
            Command::WriteZeroes => device.write_zeroes(offset, len),
            Command::Trim => match device.discard(offset, len) {
                // A hint, which the device cannot use.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
                done => done,
            },
            // `receive` ends the connection.
            Command::Disconnect => return Ok(()),
        };
        let stable = request.parsed.stable;
        let done = done.and_then(|()| if stable { device.flush() } else { Ok(()) });
        match done {
            Ok(()) => self.succeed(cookie),
            Err(error) => self.fail(cookie, error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    fn read_device(&self, request: &Parsed, cookie: u64) -> io::Result<()> {
        let mut data = vec![0; to_usize(request.len)];
        if let Err(error) = self.device.read_at(request.offset, &mut data) {
            return self.fail(cookie, error.raw_os_error().unwrap_or(libc::EIO));
        }
        if !self.negotiated.structured {
            return self.send(&simple_reply(0, cookie), &data);
        }
        let len = must_fit::<u32, _>(data.len() + 8);
        let mut head = chunk_header(chunk::DONE, chunk::OFFSET_DATA, cookie, len);
        head.extend(request.offset.to_be_bytes());
        self.send(&head, &data)
    }

    fn block_status(&self, request: &Parsed, cookie: u64) -> io::Result<()> {
        if !self.negotiated.allocation || request.len == 0 {
            return self.fail(cookie, libc::EINVAL);
        }
        let range = request.offset..request.offset + u64::from(request.len);
        let ranges = match self.ranges(range) {
            Ok(ranges) => ranges,
            Err(error) => return self.fail(cookie, error.raw_os_error().unwrap_or(libc::EIO)),
        };
        let mut payload = CONTEXT.to_be_bytes().to_vec();
        let count = if request.one_range { 1 } else { ranges.len() };
        for (len, zeros) in &ranges[..count.min(ranges.len())] {
            payload.extend(must_fit::<u32, _>(*len).to_be_bytes());
            let flags = if *zeros { wire::HOLE | wire::READS_ZEROS } else { 0 };
            payload.extend(flags.to_be_bytes());
        }
        let len = must_fit::<u32, _>(payload.len());
        self.send(&chunk_header(chunk::DONE, chunk::BLOCK_STATUS, cookie, len), &payload)
    }

    /// The lengths of ranges from `range.start` on, and whether each reads as zeros.
    fn ranges(&self, range: Range<u64>) -> io::Result<Vec<(u64, bool)>> {
        let mut ranges = Vec::new();
        let mut at = range.start;
        while at < range.end && ranges.len() < MOST_RANGES {
            let data = self.device.next_data(at)?.unwrap_or(range.end..range.end);
            let start = data.start.clamp(at, range.end);
            if start > at {
                ranges.push((start - at, true));
            }
            at = data.end.clamp(start, range.end);
            if at > start {
                ranges.push((at - start, false));
            }
        }
        Ok(ranges)
    }

    fn succeed(&self, cookie: u64) -> io::Result<()> {
        match self.negotiated.structured {
            true => self.send(&chunk_header(chunk::DONE, chunk::NONE, cookie, 0), &[]),
            false => self.send(&simple_reply(0, cookie), &[]),
        }
    }

    fn fail(&self, cookie: u64, errno: i32) -> io::Result<()> {
        let code = wire::code(errno);
        if !self.negotiated.structured {
            return self.send(&simple_reply(code, cookie), &[]);
        }
        let mut reply = chunk_header(chunk::DONE, chunk::ERROR | 1, cookie, 6);
        reply.extend(code.to_be_bytes());
        reply.extend(0u16.to_be_bytes());
        self.send(&reply, &[])
    }

    /// Sends a reply in one piece.
    fn send(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let _sending = self.output.lock();
        Messages { stream: &self.stream, limit: FOREVER }.write_parts(head, data)
    }
}

fn simple_reply(error: u32, cookie: u64) -> Vec<u8> {
    let parts =
        [&wire::SIMPLE_REPLY.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()];
    parts.concat()
}

fn chunk_header(flags: u16, kind: u16, cookie: u64, len: u32) -> Vec<u8> {
    let mut header = wire::STRUCTURED_REPLY.to_be_bytes().to_vec();
    header.extend(flags.to_be_bytes());
    header.extend(kind.to_be_bytes());
    header.extend(cookie.to_be_bytes());
    header.extend(len.to_be_bytes());
    header
}
