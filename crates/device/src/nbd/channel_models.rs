//! Shuttle models of the channel. Several threads share a connection whose socket holds only a few
//! bytes, so that threads must read replies to be able to send.
//!
//! In every schedule each request ends once, with its own bytes or as lost, and no thread waits
//! forever (shuttle reports a deadlock).

use super::channel::{Channel, Client, Outcome, Socket};
use super::stream::Ready;
use super::wire::{Command, REQUEST_LEN, Request, SIMPLE_REPLY};
use nextent_sync::{Arc, Condvar, Duration, LockClass, Mutex, shuttle, thread};
use std::collections::VecDeque;
use std::io::{self, IoSlice};

static PIPE: LockClass = LockClass::new("device.nbd-model", 890);

/// Bytes that each direction holds.
const HOLDS: usize = 32;
/// Bytes of a request for data.
const LEN: u32 = 24;

#[derive(Default)]
struct Bytes {
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    ended: bool,
}

/// A connection in memory.
struct Pipe {
    bytes: Mutex<Bytes>,
    changed: Condvar,
}

impl Socket for Arc<Pipe> {
    fn try_read(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let mut bytes = self.bytes.lock();
        if bytes.ended {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = bytes.to_client.len().min(buf.len());
        for (byte, slot) in bytes.to_client.drain(..count).zip(buf) {
            *slot = byte;
        }
        self.changed.notify_all();
        Ok((count > 0).then_some(count))
    }

    fn try_write(&self, bufs: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let mut bytes = self.bytes.lock();
        if bytes.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = HOLDS - bytes.to_server.len();
        let all = bufs.iter().flat_map(|buf| buf.iter().copied());
        let taken: Vec<u8> = all.take(room).collect();
        bytes.to_server.extend(&taken);
        self.changed.notify_all();
        Ok((!taken.is_empty()).then_some(taken.len()))
    }

    fn wait(&self, wanted: Ready, limit: Duration) -> io::Result<Ready> {
        let mut bytes = self.bytes.lock();
        loop {
            let read = bytes.ended || !bytes.to_client.is_empty();
            let write = bytes.ended || bytes.to_server.len() < HOLDS;
            if (read && wanted.read) || (write && wanted.write) {
                return Ok(Ready { read, write });
            }
            if limit.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.changed.wait(&mut bytes);
        }
    }

    fn shutdown(&self) {
        self.bytes.lock().ended = true;
        self.changed.notify_all();
    }
}

impl Pipe {
    fn new() -> Arc<Self> {
        Arc::new(Self { bytes: Mutex::new(&PIPE, Bytes::default()), changed: Condvar::new() })
    }

    /// The next request; none at the end. A server reads nothing while it writes a reply.
    fn request(&self) -> Option<[u8; REQUEST_LEN]> {
        let mut bytes = self.bytes.lock();
        let mut request = [0; REQUEST_LEN];
        let mut filled = 0;
        while filled < request.len() {
            match bytes.to_server.pop_front() {
                Some(byte) => {
                    request[filled] = byte;
                    filled += 1;
                }
                None if bytes.ended => return None,
                None => self.changed.wait(&mut bytes),
            }
            self.changed.notify_all();
        }
        Some(request)
    }

    fn reply(&self, reply: &[u8]) {
        let mut bytes = self.bytes.lock();
        let mut sent = 0;
        while sent < reply.len() && !bytes.ended {
            if bytes.to_client.len() < HOLDS {
                bytes.to_client.push_back(reply[sent]);
                sent += 1;
                self.changed.notify_all();
            } else {
                self.changed.wait(&mut bytes);
            }
        }
    }

    /// Answers each read with bytes that are its offset.
    fn serve(&self) {
        while let Some(request) = self.request() {
            let fill = request[23];
            let reply =
                [&SIMPLE_REPLY.to_be_bytes()[..], &[0; 4], &request[8..16], &[fill; LEN as usize]];
            self.reply(&reply.concat());
        }
    }
}

/// Reads at two offsets with both requests in flight; whether the connection was lost.
fn work(channel: &Channel<Arc<Pipe>>, offset: u8) -> bool {
    let client = Client::new();
    let mut sent = Vec::new();
    for offset in [offset, offset + 1] {
        let request = Request::new(Command::Read, offset.into(), LEN);
        match channel.submit(&client, &request, &[]) {
            Ok(cookie) => sent.push((cookie, offset)),
            Err(_) => break,
        }
    }
    let mut lost = sent.len() < 2;
    while !sent.is_empty() {
        let mut ended = Vec::new();
        channel.wait(&client, &mut ended);
        for (cookie, outcome) in ended {
            let at = sent.iter().position(|(sent, _)| *sent == cookie).expect("it ends once");
            let (_, offset) = sent.swap_remove(at);
            match outcome {
                Outcome::Done(reply) => assert_eq!(reply.bytes, [offset; LEN as usize]),
                Outcome::Lost => lost = true,
                Outcome::Failed(code) => panic!("error {code}"),
            }
        }
    }
    lost
}

fn schedule(threads: u8, loses: bool) {
    let pipe = Pipe::new();
    let server = thread::spawn({
        let pipe = Arc::clone(&pipe);
        move || pipe.serve()
    });
    let channel = Arc::new(Channel::new(Arc::clone(&pipe), Duration::MAX, false));
    let clients: Vec<_> = (0..threads)
        .map(|n| {
            let channel = Arc::clone(&channel);
            thread::spawn(move || work(&channel, 2 * n))
        })
        .collect();
    if loses {
        channel.lose(&io::ErrorKind::ConnectionReset.into());
    }
    for client in clients {
        let lost = client.join().unwrap();
        assert!(loses || !lost);
    }
    channel.disconnect();
    server.join().unwrap();
}

#[test]
fn replies_reach_their_threads() {
    shuttle::check_pct(|| schedule(3, false), 1000, 3);
    shuttle::check_random(|| schedule(2, false), 1000);
}

#[test]
fn a_lost_connection_ends_all_requests() {
    shuttle::check_pct(|| schedule(3, true), 1000, 3);
    shuttle::check_random(|| schedule(2, true), 1000);
}
