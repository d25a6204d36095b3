//! Shuttle models of the read-ahead, over a server that performs reads in any order.
//!
//! A writer changes bytes at the server, reports the end of each write, and then publishes what it
//! has written. In every schedule a reader gets bytes at least as new as those that were published
//! before its read began, also if requests fail, and no thread waits forever.

use super::ahead::{Ahead, Sizes, Source};
use nextent_num::to_usize;
use nextent_sync::shuttle::rand::{Rng, thread_rng};
use nextent_sync::{Arc, Condvar, Duration, HashMap, LockClass, Mutex, shuttle, thread};
use std::io;
use std::ops::Range;

static SERVER: LockClass = LockClass::new("device.nbd-ahead-model", 890);
static PUBLISHED: LockClass = LockClass::new("device.nbd-ahead-published", 891);

/// Bytes of a unit of the model.
const UNIT: usize = 2;
/// Units of the export.
const UNITS: usize = 8;
const SIZES: Sizes = Sizes {
    slow: Duration::ZERO,
    export: (UNITS * UNIT) as u64,
    piece: 2 * UNIT as u64,
    cluster: 2 * UNIT as u64,
    windows: (2 * UNIT as u64, 4 * UNIT as u64),
    most: 6 * UNIT as u64,
};

/// The byte of each unit.
type Units = [u8; UNITS];

#[derive(Default)]
struct Performed {
    units: Units,
    waiting: Vec<(u64, Range<usize>)>,
    ended: HashMap<u64, Option<Vec<u8>>>,
    next: u64,
    closed: bool,
}

struct Server {
    state: Mutex<Performed>,
    changed: Condvar,
    fails: bool,
}

fn units(range: &Range<u64>) -> Range<usize> {
    to_usize(range.start) / UNIT..to_usize(range.end) / UNIT
}

fn bytes(units: &[u8]) -> Vec<u8> {
    units.iter().flat_map(|byte| [*byte; UNIT]).collect()
}

impl Source for Arc<Server> {
    type Sent = u64;

    fn send(&self, range: &Range<u64>, _: Vec<u8>) -> io::Result<u64> {
        if self.fails && thread_rng().gen_range(0..4) == 0 {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.push((number, units(range)));
        self.changed.notify_all();
        Ok(number)
    }

    fn wait(&self, sent: u64) -> io::Result<Vec<u8>> {
        let mut state = self.state.lock();
        loop {
            if let Some(bytes) = state.ended.remove(&sent) {
                return bytes.ok_or_else(|| io::ErrorKind::ConnectionAborted.into());
            }
            self.changed.wait(&mut state);
        }
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + buf.len() as u64;
        buf.copy_from_slice(&bytes(&self.state.lock().units[units(&range)]));
        Ok(())
    }
}

impl Server {
    /// Performs reads in any order until the end.
    fn serve(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            if state.waiting.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            let at = thread_rng().gen_range(0..state.waiting.len());
            let (number, range) = state.waiting.swap_remove(at);
            let fails = self.fails && thread_rng().gen_range(0..4) == 0;
            let found = (!fails).then(|| bytes(&state.units[range]));
            drop(state);
            // The reply is on its way.
            thread::yield_now();
            state = self.state.lock();
            state.ended.insert(number, found);
            self.changed.notify_all();
        }
    }
}

fn schedule(fails: bool) {
    let state = Mutex::new(&SERVER, Performed::default());
    let server = Arc::new(Server { state, changed: Condvar::new(), fails });
    let ahead = Arc::new(Ahead::new(SIZES));
    let published = Arc::new(Mutex::new(&PUBLISHED, Units::default()));
    let serving = thread::spawn({
        let server = Arc::clone(&server);
        move || server.serve()
    });
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (ahead, server, published) =
                (Arc::clone(&ahead), Arc::clone(&server), Arc::clone(&published));
            thread::spawn(move || {
                let mut at = thread_rng().gen_range(0..UNITS);
                for _ in 0..4 {
                    let end = thread_rng().gen_range(at..UNITS.min(at + 3)) + 1;
                    let before = *published.lock();
                    let mut buf = vec![0xff; (end - at) * UNIT];
                    ahead.read(&server, (at * UNIT) as u64, &mut buf, false).unwrap();
                    for (unit, found) in (at..end).zip(buf.chunks(UNIT)) {
                        assert!(found.iter().all(|byte| *byte == found[0]));
                        assert!(found[0] >= before[unit] && found[0] < 4, "old bytes");
                    }
                    let next = thread_rng().gen_range(0..UNITS);
                    at = if end < UNITS && next % 4 > 0 { end } else { next };
                }
            })
        })
        .collect();
    for n in 1..4 {
        let start = thread_rng().gen_range(0..UNITS);
        let range = start..thread_rng().gen_range(start..UNITS) + 1;
        server.state.lock().units[range.clone()].fill(n);
        thread::yield_now();
        ahead.cut(&((range.start * UNIT) as u64..(range.end * UNIT) as u64));
        published.lock()[range].fill(n);
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    server.state.lock().closed = true;
    server.changed.notify_all();
    serving.join().unwrap();
}

#[test]
fn reads_see_all_writes_that_ended() {
    shuttle::check_pct(|| schedule(false), 500, 3);
    shuttle::check_random(|| schedule(false), 1000);
}

#[test]
fn failed_requests_are_read_again() {
    shuttle::check_pct(|| schedule(true), 500, 3);
    shuttle::check_random(|| schedule(true), 500);
}
