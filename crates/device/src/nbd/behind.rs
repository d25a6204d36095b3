//! Write-behind: writes return before the server has performed them.
//!
//! A write goes to `pending`, where it may be joined with others, and is sent later; or it is sent
//! at once if it is long. Replies are awaited when the window is full, and by a flush.
//!
//! Invariants:
//!
//! - Of requests in flight no two overlap: servers may perform them in any order. A request waits
//!   for earlier ones that it overlaps.
//! - A read that overlaps requests in flight or pending bytes gets the pending bytes, or waits for
//!   the requests.
//! - A flush sends all bytes that were written before it, and waits for all requests that were
//!   registered before it. Pending bytes are removed only when a request that has them, or that
//!   replaces them, is registered, or when other pending bytes of the same age replace them. So a
//!   flush misses none.
//! - After the failure of a request all later writes and flushes fail, and reads of its range.
//!
//! | phase of a request | meaning |
//! |---|---|
//! | `Sending` | its thread writes it to the socket |
//! | `Sent` | its reply is awaited by no thread |
//! | `Awaited` | a thread waits for its reply; others wait for that thread, at `changed` |
//!
//! Lock rank: `[behind]` 879, not held while requests are sent or awaited.

use super::pending::Pending;
use super::wire::{Command, Request};
use super::writes::concat;
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Condvar, LockClass, Mutex, MutexGuard};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;

static BEHIND: LockClass = LockClass::new("device.nbd-behind", 879);

/// Sends requests that change the export.
pub(super) trait Transport {
    /// A request that was sent.
    type Sent;

    fn send(&self, request: &Request, data: Cow<'_, [u8]>) -> io::Result<Self::Sent>;

    /// Whether its outcome is there, so that [`wait`](Self::wait) does not wait.
    fn has_ended(&self, sent: &Self::Sent) -> bool;

    /// Waits until the server has performed it.
    fn wait(&self, sent: Self::Sent) -> io::Result<()>;

    /// The server has performed a request for the range, or failed.
    fn changed(&self, range: &Range<u64>);
}

/// Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// An extent is sent when it has so many. A longer write is sent at once.
    pub(super) extent: usize,
    /// Pending ones, after which the next extents are sent.
    pub(super) pending: usize,
    /// Those of requests in flight.
    pub(super) in_flight: u64,
    /// Requests in flight.
    pub(super) requests: usize,
    /// The largest request of the server.
    pub(super) largest: u64,
}

enum Phase<S> {
    Sending,
    Sent(S),
    Awaited,
}

/// A registered request.
struct Operation<S> {
    number: u64,
    range: Range<u64>,
    /// Bytes of data.
    bytes: u64,
    phase: Phase<S>,
}

/// Why a request failed.
struct Failure {
    raw: Option<i32>,
    kind: io::ErrorKind,
    text: String,
    ranges: Vec<Range<u64>>,
}

struct State<S> {
    pending: Pending,
    /// In the order of their numbers.
    operations: VecDeque<Operation<S>>,
    next: u64,
    /// Bytes of data of the operations.
    in_flight: u64,
    /// Where the last pending bytes were sent from.
    sent_to: u64,
    /// Flushes that began.
    period: u64,
    failure: Option<Failure>,
}

/// The writes that have returned and were not performed yet.
pub(super) struct Behind<S> {
    state: Mutex<State<S>>,
    changed: Condvar,
    limits: Limits,
    /// Nothing is pending, in flight or failed. A reader that is ordered after a write sees its
    /// store (Relaxed: the order comes from outside).
    idle: AtomicBool,
}

type Guard<'b, S> = MutexGuard<'b, State<S>>;

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Failure {
    fn new(error: &io::Error) -> Self {
        let raw = error.raw_os_error();
        Self { raw, kind: error.kind(), text: error.to_string(), ranges: Vec::new() }
    }

    fn error(&self) -> io::Error {
        match self.raw {
            Some(raw) => io::Error::from_raw_os_error(raw),
            None => io::Error::new(self.kind, self.text.clone()),
        }
    }
}

impl<S> State<S> {
    fn check(&self) -> io::Result<()> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.error()))
    }

    /// The number of a request in flight that overlaps a range.
    fn overlapping(&self, range: &Range<u64>) -> Option<u64> {
        let found = self.operations.iter().find(|operation| overlap(&operation.range, range));
        found.map(|operation| operation.number)
    }

    fn register(&mut self, range: Range<u64>, bytes: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        self.in_flight += bytes;
        self.operations.push_back(Operation { number, range, bytes, phase: Phase::Sending });
        number
    }

    fn find(&mut self, number: u64) -> Option<&mut Operation<S>> {
        self.operations.iter_mut().find(|operation| operation.number == number)
    }
}

impl<S> Behind<S> {
    pub(super) fn new(limits: Limits) -> Self {
        let state = State {
            pending: Pending::default(),
            operations: VecDeque::new(),
            next: 0,
            in_flight: 0,
            sent_to: 0,
            period: 0,
            failure: None,
        };
        Self {
            state: Mutex::new(&BEHIND, state),
            changed: Condvar::new(),
            limits,
            idle: AtomicBool::new(true),
        }
    }

    /// Pending bytes.
    pub(super) fn pending_bytes(&self) -> usize {
        if self.is_idle() { 0 } else { self.state.lock().pending.bytes() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed)
    }

    fn note_idle(&self, state: &State<S>) {
        let idle =
            state.pending.is_empty() && state.operations.is_empty() && state.failure.is_none();
        self.idle.store(idle, Ordering::Relaxed);
    }

    /// Writes `parts`, one after another.
    ///
    /// # Errors
    /// An earlier write has failed.
    pub(super) fn write<T: Transport<Sent = S>>(
        &self,
        transport: &T,
        range: Range<u64>,
        parts: &[IoSlice<'_>],
    ) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        if self.is_long(&range) {
            return self.write_at_once(transport, range, &concat(parts));
        }
        let mut state = self.state.lock();
        state.check()?;
        let period = state.period;
        let at = state.pending.write(&range, parts, period, self.limits.extent);
        self.note_idle(&state);
        while self.is_long(&state.pending.run(at, self.limits.extent)) {
            state = self.send_pending(transport, state, at);
        }
        while state.pending.bytes() > self.limits.pending {
            let Some(at) = state.pending.next(state.sent_to, u64::MAX) else { break };
            state = self.send_pending(transport, state, at);
        }
        state.check()
    }

    fn is_long(&self, range: &Range<u64>) -> bool {
        range.end - range.start >= to_u64(self.limits.extent)
    }

    /// Sends a long write.
    fn write_at_once<T: Transport<Sent = S>>(
        &self,
        transport: &T,
        range: Range<u64>,
        data: &[u8],
    ) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let len = (data.len() - done).min(to_usize(self.limits.largest));
            let part = range.start + to_u64(done)..range.start + to_u64(done + len);
            let bytes = Cow::Borrowed(&data[done..done + len]);
            self.replace(transport, Command::Write, part, bytes)?;
            done += len;
        }
        Ok(())
    }

    /// Sends a request that replaces all earlier bytes of a range.
    pub(super) fn replace<T: Transport<Sent = S>>(
        &self,
        transport: &T,
        command: Command,
        range: Range<u64>,
        data: Cow<'_, [u8]>,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if let Some(number) = state.overlapping(&range) {
                state = self.wait_for(transport, state, number);
            } else if self.is_full(&state) {
                state = self.wait_for_any(transport, state);
            } else {
                break;
            }
        }
        state.pending.cut(&range);
        let number = state.register(range.clone(), to_u64(data.len()));
        self.note_idle(&state);
        drop(state);
        self.send(transport, number, command, &range, data).check()
    }

    /// Sends the pending bytes at `at` and right after it, if they are still there.
    fn send_pending<'b, T: Transport<Sent = S>>(
        &'b self,
        transport: &T,
        mut state: Guard<'b, S>,
        at: u64,
    ) -> Guard<'b, S> {
        let run = state.pending.run(at, self.limits.extent);
        if run.is_empty() {
            return state;
        }
        if let Some(number) = state.overlapping(&run) {
            return self.wait_for(transport, state, number);
        }
        if self.is_full(&state) {
            return self.wait_for_any(transport, state);
        }
        let data = state.pending.take(&run);
        let number = state.register(run.clone(), to_u64(data.len()));
        state.sent_to = run.end;
        drop(state);
        self.send(transport, number, Command::Write, &run, Cow::Owned(data))
    }

    /// Sends a registered request.
    fn send<T: Transport<Sent = S>>(
        &self,
        transport: &T,
        number: u64,
        command: Command,
        range: &Range<u64>,
        data: Cow<'_, [u8]>,
    ) -> Guard<'_, S> {
        let request = Request::new(command, range.start, must_fit(range.end - range.start));
        let sent = transport.send(&request, data);
        let mut state = self.state.lock();
        match (sent, state.find(number)) {
            (Ok(sent), Some(operation)) => operation.phase = Phase::Sent(sent),
            (Err(error), _) => self.end(&mut state, number, Err(error)),
            (Ok(_), None) => {}
        }
        self.changed.notify_all();
        state
    }

    fn is_full(&self, state: &State<S>) -> bool {
        state.operations.len() >= self.limits.requests || state.in_flight >= self.limits.in_flight
    }

    /// Removes a request that has ended.
    fn end(&self, state: &mut State<S>, number: u64, result: io::Result<()>) {
        let Some(at) = state.operations.iter().position(|other| other.number == number) else {
            return;
        };
        let Some(operation) = state.operations.remove(at) else { return };
        state.in_flight -= operation.bytes;
        if let Err(error) = result {
            let failure = state.failure.get_or_insert_with(|| Failure::new(&error));
            failure.ranges.push(operation.range);
        }
        self.note_idle(state);
    }

    /// Waits until a request is no longer in flight, or another thread sends it or waits for it and
    /// something has changed.
    fn wait_for<'b, T: Transport<Sent = S>>(
        &'b self,
        transport: &T,
        mut state: Guard<'b, S>,
        number: u64,
    ) -> Guard<'b, S> {
        let Some(operation) = state.find(number) else { return state };
        match std::mem::replace(&mut operation.phase, Phase::Awaited) {
            Phase::Sent(sent) => {
                let range = operation.range.clone();
                drop(state);
                let result = transport.wait(sent);
                transport.changed(&range);
                state = self.state.lock();
                self.end(&mut state, number, result);
                self.changed.notify_all();
            }
            other => {
                operation.phase = other;
                self.changed.wait(&mut state);
            }
        }
        state
    }

    /// Waits until the window has room, and removes all requests that have ended.
    fn wait_for_any<'b, T: Transport<Sent = S>>(
        &'b self,
        transport: &T,
        mut state: Guard<'b, S>,
    ) -> Guard<'b, S> {
        let is_sent = |operation: &&Operation<S>| matches!(operation.phase, Phase::Sent(_));
        let first = state.operations.iter().find(is_sent).or_else(|| state.operations.front());
        let Some(first) = first.map(|operation| operation.number) else { return state };
        state = self.wait_for(transport, state, first);
        loop {
            let ended = state.operations.iter().find(|operation| {
                matches!(&operation.phase, Phase::Sent(sent) if transport.has_ended(sent))
            });
            let Some(number) = ended.map(|operation| operation.number) else { return state };
            state = self.wait_for(transport, state, number);
        }
    }

    /// Fills `buf` from pending bytes, if they have all of it. Else waits until the server has
    /// performed all earlier writes of the range.
    ///
    /// # Errors
    /// A write of the range has failed.
    pub(super) fn read<T: Transport<Sent = S>>(
        &self,
        transport: &T,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<bool> {
        if self.is_idle() {
            return Ok(false);
        }
        let state = self.state.lock();
        if state.pending.read(offset, buf) {
            return Ok(true);
        }
        let range = offset..offset + to_u64(buf.len());
        self.settle_locked(transport, state, &range).map(|()| false)
    }

    /// Waits until the server has performed all earlier writes of the range.
    ///
    /// # Errors
    /// A write of the range has failed.
    pub(super) fn settle<T: Transport<Sent = S>>(
        &self,
        transport: &T,
        range: &Range<u64>,
    ) -> io::Result<()> {
        match self.is_idle() {
            true => Ok(()),
            false => self.settle_locked(transport, self.state.lock(), range),
        }
    }

    fn settle_locked<'b, T: Transport<Sent = S>>(
        &'b self,
        transport: &T,
        mut state: Guard<'b, S>,
        range: &Range<u64>,
    ) -> io::Result<()> {
        loop {
            if let Some(failure) = &state.failure
                && failure.ranges.iter().any(|failed| overlap(failed, range))
            {
                return Err(failure.error());
            }
            if let Some(at) = state.pending.first_in(range) {
                state = self.send_pending(transport, state, at);
            } else if let Some(number) = state.overlapping(range) {
                state = self.wait_for(transport, state, number);
            } else {
                return Ok(());
            }
        }
    }

    /// Drops pending bytes of a range, and waits for requests of it.
    pub(super) fn forget<T: Transport<Sent = S>>(
        &self,
        transport: &T,
        range: &Range<u64>,
    ) -> io::Result<()> {
        if self.is_idle() {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.check()?;
        while let Some(number) = state.overlapping(range) {
            state = self.wait_for(transport, state, number);
        }
        state.pending.cut(range);
        self.note_idle(&state);
        Ok(())
    }

    /// Waits until the server has performed all writes that returned before.
    ///
    /// # Errors
    /// A write has failed.
    pub(super) fn drain<T: Transport<Sent = S>>(&self, transport: &T) -> io::Result<()> {
        if self.is_idle() {
            return Ok(());
        }
        let mut state = self.state.lock();
        let period = state.period;
        state.period += 1;
        while let Some(at) = state.pending.next(state.sent_to, period)
            && state.failure.is_none()
        {
            state = self.send_pending(transport, state, at);
        }
        let mark = state.next;
        while let Some(first) = state.operations.front()
            && first.number < mark
        {
            let number = first.number;
            state = self.wait_for(transport, state, number);
        }
        state.check()
    }
}
