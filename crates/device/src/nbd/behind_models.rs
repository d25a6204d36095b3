//! Shuttle models of the write-behind, over a server that performs requests in any order.
//!
//! Threads write, zero, read and flush ranges of their own in small limits, so that extents of
//! several threads are joined. In every schedule a read gets the thread's own bytes, a flush that
//! succeeds covers all that its thread wrote, no two requests in flight overlap, and no thread
//! waits forever. With a failing server no flush of a thread succeeds without its bytes, and a
//! failure is reported by every flush after it.

use super::behind::{Behind, Limits, Transport};
use super::wire::{Command, Request};
use nextent_num::to_usize;
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::shuttle::rand::{Rng, thread_rng};
use nextent_sync::{Arc, Condvar, HashMap, LockClass, Mutex, shuttle, thread};
use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::ops::Range;

static SERVER: LockClass = LockClass::new("device.nbd-behind-model", 890);
static RETURNED: LockClass = LockClass::new("device.nbd-behind-returned", 891);

/// Bytes of a thread.
const OWN: usize = 4;
/// Threads that write.
const THREADS: usize = 2;
const LIMITS: Limits = Limits { extent: 4, pending: 4, in_flight: 5, requests: 2, largest: 3 };

type Bytes = [u8; OWN * THREADS];

#[derive(Default)]
struct Performed {
    bytes: Bytes,
    /// Requests that were not performed: number, range, bytes.
    waiting: Vec<(u64, Range<usize>, Vec<u8>)>,
    ended: HashMap<u64, bool>,
    next: u64,
    /// The number of the request that fails.
    fails: Option<u64>,
    closed: bool,
}

struct Server {
    state: Mutex<Performed>,
    changed: Condvar,
    /// Ranges whose end was reported.
    reported: AtomicUsize,
}

impl Transport for Arc<Server> {
    type Sent = u64;

    fn send(&self, request: &Request, data: Cow<'_, [u8]>) -> io::Result<u64> {
        let start = to_usize(request.offset);
        let range = start..start + to_usize(request.len);
        let bytes = match request.command {
            Command::WriteZeroes => vec![0; range.len()],
            _ => data.into_owned(),
        };
        assert_eq!(bytes.len(), range.len());
        let mut state = self.state.lock();
        let apart = |other: &Range<usize>| other.end <= range.start || range.end <= other.start;
        assert!(state.waiting.iter().all(|(_, other, _)| apart(other)), "requests overlap");
        let number = state.next;
        state.next += 1;
        state.waiting.push((number, range, bytes));
        self.changed.notify_all();
        Ok(number)
    }

    fn has_ended(&self, sent: &u64) -> bool {
        self.state.lock().ended.contains_key(sent)
    }

    fn wait(&self, sent: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        loop {
            match state.ended.remove(&sent) {
                Some(true) => return Ok(()),
                Some(false) => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                None => self.changed.wait(&mut state),
            }
        }
    }

    fn changed(&self, range: &Range<u64>) {
        self.reported.fetch_add(to_usize(range.end - range.start), Ordering::Relaxed);
    }
}

impl Server {
    fn new(fails: Option<u64>) -> Arc<Self> {
        let state = Performed { fails, ..Performed::default() };
        let state = Mutex::new(&SERVER, state);
        Arc::new(Self { state, changed: Condvar::new(), reported: AtomicUsize::new(0) })
    }

    /// Performs requests in any order until the end.
    fn serve(&self) {
        let mut state = self.state.lock();
        while !(state.closed && state.waiting.is_empty()) {
            if state.waiting.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            let at = thread_rng().gen_range(0..state.waiting.len());
            let (number, range, bytes) = state.waiting.swap_remove(at);
            let succeeds = state.fails != Some(number);
            if succeeds {
                state.bytes[range].copy_from_slice(&bytes);
            }
            state.ended.insert(number, succeeds);
            self.changed.notify_all();
            drop(state);
            thread::yield_now();
            state = self.state.lock();
        }
    }
}

/// One thread; whether all its flushes succeeded.
fn work(behind: &Behind<u64>, server: &Arc<Server>, own: usize, fails: bool) -> bool {
    let mut model = [0; OWN];
    let start = own * OWN;
    let place = |range: &Range<usize>| (start + range.start) as u64..(start + range.end) as u64;
    for n in 1..5u8 {
        let (from, kind) = (thread_rng().gen_range(0..OWN), thread_rng().gen_range(0..8u8));
        let range = from..thread_rng().gen_range(from + 1..=OWN);
        let bytes = vec![n; range.len()];
        let done = match kind {
            0..4 => behind.write(server, place(&range), &[IoSlice::new(&bytes)]).map(|()| n),
            4 => {
                let nothing = Cow::Borrowed(&[][..]);
                let range = place(&range);
                behind.replace(server, Command::WriteZeroes, range, nothing).map(|()| 0)
            }
            5 | 6 => {
                let mut read = bytes.clone();
                let at = place(&range).start;
                match behind.read(server, at, &mut read) {
                    Ok(true) => {}
                    Ok(false) => {
                        let all = server.state.lock().bytes;
                        read.copy_from_slice(&all[start..][range.clone()]);
                    }
                    Err(_) => return false,
                }
                assert_eq!(read, model[range]);
                continue;
            }
            _ => match flush(behind, server, &model, start) {
                true => continue,
                false => return false,
            },
        };
        match done {
            Ok(byte) => model[range].fill(byte),
            Err(_) => {
                assert!(fails && behind.drain(server).is_err());
                return false;
            }
        }
    }
    flush(behind, server, &model, start)
}

fn flush(behind: &Behind<u64>, server: &Arc<Server>, model: &[u8], start: usize) -> bool {
    if behind.drain(server).is_err() {
        assert!(behind.drain(server).is_err(), "a failure is reported only once");
        return false;
    }
    assert_eq!(server.state.lock().bytes[start..start + OWN], *model, "a flush missed bytes");
    true
}

fn schedule(fails: bool) {
    let failing = fails.then(|| thread_rng().gen_range(0..3));
    let server = Server::new(failing);
    let behind = Arc::new(Behind::new(LIMITS));
    let serving = thread::spawn({
        let server = Arc::clone(&server);
        move || server.serve()
    });
    let writers: Vec<_> = (0..THREADS)
        .map(|own| {
            let (behind, server) = (Arc::clone(&behind), Arc::clone(&server));
            thread::spawn(move || work(&behind, &server, own, fails))
        })
        .collect();
    let succeeded: Vec<bool> = writers.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(fails || succeeded.iter().all(|one| *one));
    let last = behind.drain(&server);
    let failed = failing.is_some_and(|number| number < server.state.lock().next);
    assert_eq!(last.is_err(), failed);
    assert!(failed || behind.is_idle());
    server.state.lock().closed = true;
    server.changed.notify_all();
    serving.join().unwrap();
}

#[test]
fn reads_and_flushes_see_all_writes_that_returned() {
    shuttle::check_pct(|| schedule(false), 1000, 3);
    shuttle::check_random(|| schedule(false), 2000);
}

#[test]
fn a_failed_write_fails_every_later_flush() {
    shuttle::check_pct(|| schedule(true), 1000, 3);
    shuttle::check_random(|| schedule(true), 1000);
}

/// A writer replaces bytes again and again by larger ones. A flush covers at least those that were
/// there when it began.
fn replace_while_flushing() {
    let server = Server::new(None);
    let behind = Arc::new(Behind::new(Limits { pending: 16, ..LIMITS }));
    let returned = Arc::new(Mutex::new(&RETURNED, Bytes::default()));
    let serving = thread::spawn({
        let server = Arc::clone(&server);
        move || server.serve()
    });
    let writer = thread::spawn({
        let (behind, server, returned) =
            (Arc::clone(&behind), Arc::clone(&server), Arc::clone(&returned));
        move || {
            for n in 1..5u8 {
                let start = thread_rng().gen_range(0..OWN * THREADS);
                let range = start..thread_rng().gen_range(start..OWN * THREADS) + 1;
                let place = range.start as u64..range.end as u64;
                let bytes = vec![n; range.len()];
                behind.write(&server, place, &[IoSlice::new(&bytes)]).unwrap();
                returned.lock()[range].copy_from_slice(&bytes);
            }
        }
    });
    for _ in 0..2 {
        let before = *returned.lock();
        behind.drain(&server).unwrap();
        let bytes = server.state.lock().bytes;
        assert!(before.iter().zip(bytes).all(|(old, new)| *old <= new), "a flush missed bytes");
    }
    writer.join().unwrap();
    behind.drain(&server).unwrap();
    server.state.lock().closed = true;
    server.changed.notify_all();
    serving.join().unwrap();
}

#[test]
fn a_flush_covers_bytes_that_are_replaced_meanwhile() {
    shuttle::check_pct(replace_while_flushing, 1000, 3);
    shuttle::check_random(replace_while_flushing, 1000);
}
