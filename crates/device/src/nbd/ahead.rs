//! Read-ahead, for servers whose replies take long.
//!
//! A read that continues an earlier one requests a window of what follows. Another short read
//! requests the bytes around it too. Both are kept in pieces until a reader takes them.
//!
//! Invariants:
//!
//! - A piece is registered before its request is sent, and removed where a write has ended. So a
//!   read gets the bytes of each write that ended before the read began.
//! - Bytes of a piece are used for ten seconds at most, since another client may change the export.
//!   Reads of 1 KiB always ask the server: superblocks and the block of multiple mount protection
//!   are read so.
//! - A failed request is not reported: the reader asks for its own bytes again.
//!
//! | phase of a piece | meaning |
//! |---|---|
//! | `Sending` | its thread writes the request to the socket |
//! | `Sent` | its reply is awaited by no thread |
//! | `Awaited` | a thread waits for its reply; others wait for that thread, at `changed` |
//! | `Ready` | its bytes are there |
//!
//! A server counts as slow if the fastest of the last reads took half a millisecond.
//!
//! Lock rank: `[ahead]` 887, not held while requests are sent or awaited.

use nextent_num::{to_u64, to_usize};
use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use nextent_sync::{Arc, Condvar, Duration, Instant, LockClass, Mutex, now};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

static AHEAD: LockClass = LockClass::new("device.nbd-ahead", 887);

/// How old the bytes of a piece may be.
const MOST_AGE: Duration = Duration::from_secs(10);
/// Reads after which the server is judged again.
const SAMPLES: u64 = 8;
/// Reads that found their bytes, less those that did not, after which clusters are whole pieces.
const MANY_HITS: u32 = 16;
/// The most buffers that are kept.
const MOST_SPARE: usize = 32;
/// Streams of sequential reads that are followed.
const STREAMS: usize = 8;

/// Reads from the server.
pub(super) trait Source {
    /// A request that was sent.
    type Sent;

    /// Sends a request for whole blocks. The bytes may take the memory of `buffer`.
    fn send(&self, range: &Range<u64>, buffer: Vec<u8>) -> io::Result<Self::Sent>;

    /// Waits for the bytes of a request.
    fn wait(&self, sent: Self::Sent) -> io::Result<Vec<u8>>;

    /// Reads whole blocks.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

/// Sizes in bytes, and the time of a read from which on a server is slow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) slow: Duration,
    /// Bytes of the export.
    pub(super) export: u64,
    /// A piece begins at a multiple of it, unless a read begins between.
    pub(super) piece: u64,
    /// What is read around a short read.
    pub(super) cluster: u64,
    /// The first and the largest window of a sequential reader.
    pub(super) windows: (u64, u64),
    /// All pieces, about.
    pub(super) most: u64,
}

enum Phase<S> {
    Sending,
    Sent(S),
    Awaited,
    /// The bytes from an index on, and when they arrived.
    Ready(Arc<Vec<u8>>, usize, Instant),
}

struct Piece<S> {
    number: u64,
    end: u64,
    phase: Phase<S>,
}

/// A sequential reader.
#[derive(Clone, Copy)]
struct Stream {
    next: u64,
    window: u64,
    /// When it read, in the count of reads.
    used: u64,
}

struct State<S> {
    /// By offset. They do not overlap.
    pieces: BTreeMap<u64, Piece<S>>,
    bytes: u64,
    next: u64,
    reads: u64,
    /// Grows with reads that found all their bytes, and shrinks with others.
    hits: u32,
    /// Memory for the next pieces.
    spare: Vec<Vec<u8>>,
    streams: [Stream; STREAMS],
}

/// The pieces of an export.
pub(super) struct Ahead<S> {
    state: Mutex<State<S>>,
    changed: Condvar,
    sizes: Sizes,
    /// Whether the server is slow, the reads that were measured, and the nanoseconds of the fastest
    /// of the last ones. All Relaxed: they decide about speed only.
    slow: AtomicBool,
    samples: AtomicU64,
    fastest: AtomicU64,
}

impl<S> Piece<S> {
    fn is_expired(&self) -> bool {
        matches!(&self.phase, Phase::Ready(.., since) if since.elapsed() > MOST_AGE)
    }
}

impl<S> State<S> {
    /// The offset of the first piece that ends after `at`.
    fn first_after(&self, at: u64) -> Option<u64> {
        let before = self.pieces.range(..=at).next_back().filter(|(_, piece)| piece.end > at);
        before.or_else(|| self.pieces.range(at..).next()).map(|(start, _)| *start)
    }

    fn remove(&mut self, start: u64) -> Option<Piece<S>> {
        let piece = self.pieces.remove(&start)?;
        self.bytes -= piece.end - start;
        Some(piece)
    }

    fn insert(&mut self, start: u64, piece: Piece<S>) {
        self.bytes += piece.end - start;
        self.pieces.insert(start, piece);
    }

    /// Removes the pieces of a range; of complete ones, only the bytes in the range.
    fn cut(&mut self, range: &Range<u64>) {
        while let Some(start) = self.first_after(range.start).filter(|start| *start < range.end) {
            let Some(piece) = self.remove(start) else { break };
            let Phase::Ready(bytes, from, since) = piece.phase else { continue };
            if start < range.start {
                let phase = Phase::Ready(Arc::clone(&bytes), from, since);
                self.insert(start, Piece { number: piece.number, end: range.start, phase });
            }
            if piece.end > range.end {
                let from = from + to_usize(range.end - start);
                let phase = Phase::Ready(bytes, from, since);
                self.insert(range.end, Piece { number: piece.number, end: piece.end, phase });
            }
        }
    }

    /// Removes complete pieces, the oldest first, until `more` bytes have room; whether they have.
    fn make_room(&mut self, more: u64, most: u64) -> bool {
        while self.bytes + more > most {
            let ready = |(_, piece): &(&u64, &Piece<S>)| matches!(piece.phase, Phase::Ready(..));
            let oldest = self.pieces.iter().filter(ready).min_by_key(|(_, piece)| piece.number);
            let Some(oldest) = oldest.map(|(start, _)| *start) else { return false };
            self.remove(oldest);
        }
        true
    }

    /// The index of the stream that a read continues. It begins a stream otherwise.
    fn follow(&mut self, range: &Range<u64>, apart: u64) -> Option<usize> {
        self.reads += 1;
        let used = self.reads;
        let near =
            |stream: &Stream| stream.window > 0 && stream.next.abs_diff(range.start) <= apart;
        if let Some(at) = self.streams.iter().position(near) {
            let stream = &mut self.streams[at];
            (stream.next, stream.used) = (stream.next.max(range.end), used);
            return Some(at);
        }
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used)?;
        *oldest = Stream { next: range.end, window: 1, used };
        None
    }

    /// Registers pieces for the bytes of `wanted` that no piece has, cut at multiples of `piece`.
    fn register(&mut self, wanted: &Range<u64>, sizes: &Sizes) -> Vec<(u64, Range<u64>)> {
        let mut new = Vec::new();
        let mut at = wanted.start;
        while at < wanted.end {
            let next = self.first_after(at);
            if let Some(start) = next.filter(|start| *start <= at) {
                let Some(piece) = self.pieces.get(&start) else { break };
                if piece.is_expired() {
                    self.remove(start);
                } else {
                    at = piece.end;
                }
                continue;
            }
            let until = next.unwrap_or(u64::MAX).min(wanted.end);
            let end = (at + 1).next_multiple_of(sizes.piece).min(until);
            if !self.make_room(end - at, sizes.most) {
                break;
            }
            self.next += 1;
            self.insert(at, Piece { number: self.next, end, phase: Phase::Sending });
            new.push((self.next, at..end));
            at = end;
        }
        new
    }

    /// The piece with this number, if it is still there.
    fn find(&mut self, start: u64, number: u64) -> Option<&mut Piece<S>> {
        self.pieces.get_mut(&start).filter(|piece| piece.number == number)
    }
}

impl<S> Ahead<S> {
    pub(super) fn new(sizes: Sizes) -> Self {
        let streams = [Stream { next: 0, window: 0, used: 0 }; STREAMS];
        let state = State {
            pieces: BTreeMap::new(),
            bytes: 0,
            next: 0,
            reads: 0,
            hits: 0,
            spare: Vec::new(),
            streams,
        };
        Self {
            state: Mutex::new(&AHEAD, state),
            changed: Condvar::new(),
            sizes,
            slow: AtomicBool::new(false),
            samples: AtomicU64::new(0),
            fastest: AtomicU64::new(u64::MAX),
        }
    }

    /// Notes how long a short read took.
    fn measure(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let fastest = self.fastest.fetch_min(nanos, Ordering::Relaxed).min(nanos);
        let count = self.samples.fetch_add(1, Ordering::Relaxed) + 1;
        let complete = count.is_multiple_of(SAMPLES);
        if complete || count < SAMPLES {
            let slow = u128::from(fastest) >= self.sizes.slow.as_nanos();
            self.slow.store(slow, Ordering::Relaxed);
        }
        if complete {
            self.fastest.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Removes what was read ahead of a range, in which a write has ended.
    pub(super) fn cut(&self, range: &Range<u64>) {
        self.state.lock().cut(range);
    }

    /// Removes everything that was read ahead.
    pub(super) fn clear(&self) {
        self.cut(&(0..u64::MAX));
    }

    /// Reads whole blocks; from the server if they must be `fresh`.
    pub(super) fn read<T: Source<Sent = S>>(
        &self,
        source: &T,
        offset: u64,
        buf: &mut [u8],
        fresh: bool,
    ) -> io::Result<()> {
        let short = to_u64(buf.len()) <= self.sizes.cluster;
        if !fresh && self.slow.load(Ordering::Relaxed) {
            return self.read_pieces(source, offset, buf);
        }
        let begun = now();
        let done = source.read(offset, buf);
        if short {
            self.measure(begun.elapsed());
        }
        done
    }

    /// What to request for a read, and the index of its stream.
    fn wanted(&self, state: &mut State<S>, range: &Range<u64>) -> (Range<u64>, Option<usize>) {
        let Sizes { export, piece, cluster, windows, .. } = self.sizes;
        // Requests of one reader may arrive in another order. Scattered short reads are no stream.
        let apart = (range.end - range.start).max(16 << 10);
        let stream = state.follow(range, apart);
        let wanted = if let Some(at) = stream {
            let stream = &mut state.streams[at];
            stream.window = stream.window.max(windows.0);
            let target = stream.next + stream.window;
            range.start..(target - target % piece).max(range.end)
        } else if range.end - range.start < cluster {
            let cluster = if state.hits > MANY_HITS { piece } else { cluster };
            range.start - range.start % cluster..range.end.next_multiple_of(cluster)
        } else {
            range.clone()
        };
        (wanted.start..wanted.end.min(export).max(range.end), stream)
    }

    fn read_pieces<T: Source<Sent = S>>(
        &self,
        source: &T,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let range = offset..offset + to_u64(buf.len());
        let mut state = self.state.lock();
        let (wanted, stream) = self.wanted(&mut state, &range);
        let new = state.register(&wanted, &self.sizes);
        let hits = if new.is_empty() { state.hits + 1 } else { state.hits.saturating_sub(1) };
        state.hits = hits.min(4 * MANY_HITS);
        let kept = state.spare.len().saturating_sub(new.len());
        let mut spare = state.spare.split_off(kept);
        drop(state);
        for (number, piece) in &new {
            let sent = source.send(piece, spare.pop().unwrap_or_default());
            let mut state = self.state.lock();
            match (sent, state.find(piece.start, *number)) {
                (Ok(sent), Some(found)) => found.phase = Phase::Sent(sent),
                (Err(_), Some(_)) => drop(state.remove(piece.start)),
                _ => {}
            }
            drop(state);
            self.changed.notify_all();
        }
        let begun = now();
        let mut waited = false;
        let mut at = offset;
        while at < range.end {
            let rest = &mut buf[to_usize(at - offset)..];
            at += to_u64(self.take(source, at, rest, stream.is_some(), &mut waited)?);
        }
        if waited && let Some(at) = stream {
            let mut state = self.state.lock();
            let window = &mut state.streams[at].window;
            *window = (*window * 2).min(self.sizes.windows.1);
        }
        if !new.is_empty() && stream.is_none() {
            self.measure(begun.elapsed());
        }
        Ok(())
    }

    /// Fills the front of `buf` from the piece at `at`, or from the server up to the next piece;
    /// with how many bytes. A reader of a stream takes the piece away when it has read its end.
    fn take<T: Source<Sent = S>>(
        &self,
        source: &T,
        at: u64,
        buf: &mut [u8],
        takes: bool,
        waited: &mut bool,
    ) -> io::Result<usize> {
        let mut state = self.state.lock();
        loop {
            let next = state.first_after(at);
            let Some(start) = next.filter(|start| *start <= at) else {
                let until = next
                    .map_or(usize::MAX, |next| usize::try_from(next - at).unwrap_or(usize::MAX));
                drop(state);
                let len = until.min(buf.len());
                let part = &mut buf[..len];
                return source.read(at, part).map(|()| part.len());
            };
            let Some(piece) = state.pieces.get_mut(&start) else { continue };
            let number = piece.number;
            match std::mem::replace(&mut piece.phase, Phase::Awaited) {
                Phase::Ready(bytes, from, since) => {
                    let left = to_usize(piece.end - at);
                    piece.phase = Phase::Ready(Arc::clone(&bytes), from, since);
                    if takes && left <= buf.len() {
                        state.remove(start);
                    }
                    drop(state);
                    let from = from + to_usize(at - start);
                    let count = left.min(buf.len());
                    buf[..count].copy_from_slice(&bytes[from..from + count]);
                    self.reuse(bytes);
                    return Ok(count);
                }
                Phase::Sent(sent) => {
                    *waited = true;
                    drop(state);
                    let done = source.wait(sent);
                    state = self.state.lock();
                    match (done, state.find(start, number)) {
                        (Ok(bytes), Some(piece)) => {
                            piece.phase = Phase::Ready(Arc::new(bytes), 0, now());
                        }
                        // A write has removed it, but its bytes are as new as the reader's call.
                        (Ok(bytes), None) => {
                            drop(state);
                            self.changed.notify_all();
                            return Ok(copy_from(&bytes, to_usize(at - start), buf));
                        }
                        (Err(_), Some(_)) => drop(state.remove(start)),
                        (Err(_), None) => {}
                    }
                    self.changed.notify_all();
                }
                other => {
                    piece.phase = other;
                    *waited = true;
                    self.changed.wait(&mut state);
                }
            }
        }
    }
}

impl<S> Ahead<S> {
    /// Keeps the memory of a piece that no reader uses.
    fn reuse(&self, bytes: Arc<Vec<u8>>) {
        if let Ok(bytes) = Arc::try_unwrap(bytes) {
            let mut state = self.state.lock();
            if state.spare.len() < MOST_SPARE {
                state.spare.push(bytes);
            }
        }
    }
}

/// Copies bytes from an index on; how many.
fn copy_from(bytes: &[u8], from: usize, buf: &mut [u8]) -> usize {
    let count = (bytes.len() - from).min(buf.len());
    buf[..count].copy_from_slice(&bytes[from..from + count]);
    count
}

/// The sizes for an export whose requests are multiples of `unit` and at most `largest`.
pub(super) fn sizes(export: u64, unit: u32, largest: u32) -> Sizes {
    let unit = u64::from(unit);
    let piece = u64::from(largest).min(256 << 10);
    let cluster = piece.min(64 << 10).max(unit);
    let windows = (piece * 2, piece.saturating_mul(32));
    let (export, slow) = (export - export % unit, Duration::from_micros(500));
    Sizes { slow, export, piece, cluster, windows, most: 32 << 20 }
}
