//! Accesses to cache lines: what each operation on a lock or an atomic, and on declared data, does.
//!
//! An access to a word takes these steps:
//!
//! 1. The code before it passes.
//! 2. A read-modify-write drains the store buffer.
//! 3. Threads with lower clocks run, unless the order does not matter: the line is private and they
//!    are less than [`AHEAD`] behind.
//! 4. The line is used, or requested; while it is in transfer, other threads run.

use crate::coherence::{Access, Request, State};
use crate::report::Why;
use crate::simulation::{Simulation, at, inside, let_others, with};
use std::panic::Location;

/// How far a core may run ahead in private lines, in picoseconds. It only decides how often the
/// scheduler switches.
const AHEAD: u64 = 100_000;
/// Transfers that a core has in flight for lines in a row: its line fill buffers.
const IN_FLIGHT: usize = 8;

impl Simulation {
    fn new_request(&self, kind: Access) -> Request {
        let me = &self.tasks[self.caller()];
        Request { core: me.core, kind, begun: me.begins(self.machine.window), now: me.clock }
    }

    /// Steps 1 and 2; the access.
    fn arrive_at(&mut self, kind: Access) -> Request {
        if !std::mem::take(&mut self.me().at_once) {
            self.charges.accesses += 1;
            let step = self.charges.step;
            self.pass(step);
        }
        if kind == Access::Rmw {
            self.drain_stores();
        }
        self.new_request(kind)
    }

    fn drain_stores(&mut self) {
        let (now, done) = (self.now(), self.me().stores_done);
        if done > now {
            self.me().clock = done;
            self.me().has_waited(now);
            self.lose(done - now);
        }
    }

    /// Whether other threads have to run before the caller uses a line that is in transfer: one
    /// with a lower clock may request it before.
    fn others_come_first(&mut self, line: usize) -> bool {
        self.lines.is_requested(line) && self.next_clock() < self.now()
    }

    /// When the caller's store buffer is empty.
    pub(crate) fn stores_done(&self) -> u64 {
        let me = &self.tasks[self.caller()];
        me.stores_done.max(me.clock)
    }

    fn lose(&mut self, time: u64) {
        if time > 0 {
            self.me().lost += time;
            self.charge(Why::Line, time);
        }
    }

    fn state(&mut self, line: usize, kind: Access) -> (Request, State) {
        let request = self.new_request(kind);
        let state = self.lines.state(line, &request);
        (request, state)
    }

    /// Uses a line at once; the time lost to its transfer.
    fn touch(&mut self, line: usize, request: &Request, state: State) -> u64 {
        let done = self.lines.touch(&self.machine, line, request, state);
        let lost = done.saturating_sub(request.now + self.machine.own_cost(request.kind));
        self.me().clock = done;
        if request.kind == Access::Rmw {
            self.me().rmw_done = done;
        }
        lost
    }

    /// Stores through the store buffer.
    fn store(&mut self, line: usize, request: &Request, state: State) {
        let request = &of_word(request);
        let done = match state.is_here() {
            true => self.lines.touch(&self.machine, line, request, state),
            false => self.lines.request_to_store(&self.machine, line, request),
        };
        let me = self.me();
        if !state.is_here() || me.stores_done > request.now {
            me.stores_done = me.stores_done.max(done);
        }
    }

    /// Uses a line, or requests it; whether it is in transfer. The caller's clock is when the
    /// access is done.
    fn begin_access(&mut self, line: usize, request: &Request, state: State) -> bool {
        let request = &of_word(request);
        self.charges.rmws += u64::from(request.kind == Access::Rmw);
        if state.is_here() {
            let lost = self.touch(line, request, state);
            self.me().has_waited(request.now);
            self.lose(lost);
            return false;
        }
        if request.kind == Access::Load && self.lines.is_in_store_buffer(line, request.core) {
            return false;
        }
        let arrives = self.lines.request(&self.machine, line, request);
        let own = self.machine.own_cost(request.kind);
        // A read-modify-write that waits for its line has waited for all before it by then.
        let done = arrives.max(request.now + own);
        let me = self.me();
        me.clock = done;
        me.has_waited(request.now);
        if request.kind == Access::Rmw {
            me.rmw_done = done;
        }
        self.lose(done - request.now - own);
        true
    }

    /// Uses lines in a row together, but for those in transfer, which are returned.
    fn touch_row(&mut self, first: usize, last: usize, kind: Access) -> Vec<usize> {
        let began = self.now();
        let (mut latest, mut lost, mut in_transfer) = (began, 0, Vec::new());
        for line in first..=last {
            self.me().clock = began;
            let (request, state) = self.state(line, kind);
            if state.is_here() || !self.lines.is_requested(line) {
                lost = lost.max(self.touch(line, &request, state));
                latest = latest.max(self.now());
            } else if !self.lines.is_in_store_buffer(line, request.core) {
                let arrives = self.lines.request(&self.machine, line, &request);
                (latest, lost) = (latest.max(arrives), lost.max(arrives - began));
                in_transfer.push(line);
            }
        }
        self.me().clock = latest;
        self.me().has_waited(began);
        self.lose(lost);
        in_transfer
    }
}

/// A store to a word requests its line when all before it is done. One to plain data is preceded by
/// loads of it.
fn of_word(request: &Request) -> Request {
    let begun = if request.kind == Access::Store { request.now } else { request.begun };
    Request { begun, ..*request }
}

/// Steps 1 to 3, then `using`; `None` where nothing is charged.
#[inline]
fn come_to<R>(
    address: usize,
    kind: Access,
    using: impl Fn(&mut Simulation, usize, &Request, State) -> R,
) -> Option<R> {
    // `Err`: whether other threads run first.
    let used = with(|sim| {
        if !sim.is_charging() {
            return Err(sim.random_step());
        }
        let line = sim.machine.line(address);
        let request = sim.arrive_at(kind);
        if sim.others_come_first(line) {
            return Err(true);
        }
        let state = sim.lines.state(line, &request);
        let ahead = if state == State::Private { AHEAD } else { 0 };
        if sim.next_clock().saturating_add(ahead) < request.now {
            return Err(true);
        }
        Ok(using(sim, line, &request, state))
    });
    match used? {
        Ok(used) => return Some(used),
        Err(true) => let_others(),
        Err(false) => return None,
    }
    with(|sim| {
        sim.is_charging().then(|| {
            let line = sim.machine.line(address);
            let (request, state) = sim.state(line, kind);
            using(sim, line, &request, state)
        })
    })
    .flatten()
}

/// Accesses the word at `address`.
pub(crate) fn access(address: usize, kind: Access) {
    if come_to(address, kind, Simulation::begin_access) == Some(true) {
        let_others();
        with(|sim| {
            let (core, now) = (sim.me().core, sim.now());
            sim.lines.arrive(sim.machine.line(address), core, kind, now);
        });
    }
}

/// Stores to the word at `address` through the store buffer.
pub(crate) fn store(address: usize) {
    come_to(address, Access::Store, Simulation::store);
}

/// As [`access`], at the call site.
#[inline]
#[track_caller]
pub(crate) fn access_from(address: usize, kind: Access) {
    if inside() {
        at(None, Location::caller());
        access(address, kind);
    }
}

/// As [`store`], at the call site.
#[inline]
#[track_caller]
pub(crate) fn store_from(address: usize) {
    if inside() {
        at(None, Location::caller());
        store(address);
    }
}

/// Accesses the lines of plain data, [`IN_FLIGHT`] at a time. The caller stops only for lines that
/// are in transfer to other cores, as one that a lock's word shares.
pub(crate) fn access_data(address: usize, bytes: usize, kind: Access) {
    let row = with(|sim| {
        let end = address + bytes.checked_sub(1)?;
        sim.is_charging().then(|| (sim.machine.line(address), sim.machine.line(end)))
    });
    let Some((first, last)) = row.flatten() else { return };
    for begin in (first..=last).step_by(IN_FLIGHT) {
        let end = last.min(begin + IN_FLIGHT - 1);
        let waits = |sim: &mut Simulation| (begin..=end).any(|line| sim.others_come_first(line));
        if with(waits) == Some(true) {
            let_others();
        }
        let in_transfer = with(|sim| sim.touch_row(begin, end, kind)).unwrap_or_default();
        if in_transfer.is_empty() {
            continue;
        }
        let_others();
        with(|sim| {
            let (core, now) = (sim.me().core, sim.now());
            in_transfer.into_iter().for_each(|line| sim.lines.arrive(line, core, kind, now));
        });
    }
}
