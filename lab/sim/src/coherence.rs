//! Cache coherence: which cores have a line, and what it takes to get it.
//!
//! A line is owned by the core that stored to it last, or shared by that core and those that have
//! loaded it since. Rules:
//!
//! 1. An access to a line that the core has costs nothing, or `rmw` for a read-modify-write.
//! 2. Else the line is transferred from its owner. That takes the latency between the two cores.
//! 3. Requests for a line are served one after another: a transfer begins when the one before is
//!    done.
//! 4. The owner keeps the line until the request reaches it, half of the latency. For the other
//!    half the line is in transit.
//!
//! Invariant: between [`Lines::state`] and the use that follows no other simulated thread runs.

use crate::machine::{CORES, Machine};
use crate::requests::{Queue, Requests};
use crate::table::Table;

/// For so long after a transfer, in picoseconds, cores are taken to meet in a line, so that their
/// order matters. It only decides how often the scheduler switches.
const CONTENDED: u64 = 2_000_000;

/// A kind of access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Store,
    /// Read-modify-write.
    Rmw,
}

/// An access at `now`, whose line can be requested since `begun`.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) core: usize,
    pub(crate) kind: Access,
    pub(crate) begun: u64,
    pub(crate) now: u64,
}

/// Where a line is for the core that needs it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The core has it, and no other core needed it lately: the order of accesses does not matter.
    Private,
    /// The core has it.
    Here,
    /// It must be transferred.
    Elsewhere,
}

impl State {
    pub(crate) fn is_here(self) -> bool {
        self != Self::Elsewhere
    }
}

/// One line. The fields of most accesses come first and lie on one line of the host.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line {
    /// The core that stored last, plus one.
    owner: u16,
    /// Whether other cores have it as well.
    shared: bool,
    /// When the last requested transfer is done.
    busy: u64,
    /// When the owner used it last.
    used: u64,
    /// Requests that are not done.
    requests: Queue,
    /// The cores that have it; meaningless while the owner has it exclusively.
    sharers: [u64; CORES / 64],
}

impl Line {
    /// Whether the line has not left its owner at `now`.
    fn stays(&self, requests: &Requests, now: u64) -> bool {
        requests.leaves(self.requests).is_none_or(|leaves| now < leaves)
    }

    /// Rules 2 to 4: when the line leaves the core that has it, and when it arrives.
    fn transfer(&self, machine: &Machine, requests: &Requests, request: &Request) -> (u64, u64) {
        let latency = self.latency(machine, requests, request);
        let from = request.begun.max(self.busy);
        // It does not leave before its last use.
        let leaves = (from + latency / 2).max(self.used.min(request.now));
        let arrives = request.now.max(from + latency).max(leaves + latency.div_ceil(2));
        (leaves, arrives)
    }

    /// The latency from the core that will have it once all requests so far are done.
    fn latency(&self, machine: &Machine, requests: &Requests, request: &Request) -> u64 {
        let last = requests.last(self.requests);
        let Some(from) = last.or(usize::from(self.owner).checked_sub(1)) else { return 0 };
        if from == request.core { 0 } else { machine.distance(from, request.core) }
    }

    /// Completes buffered stores that are done at `now`.
    fn complete_stores(&mut self, requests: &mut Requests, now: u64) {
        while let Some((core, done)) = requests.first_store(self.requests) {
            if done > now {
                return;
            }
            requests.remove(&mut self.requests, core);
            self.used = self.used.max(done);
            self.own(core);
        }
    }

    /// Whether the core of the request has the line as it needs it.
    fn is_here(&self, requests: &Requests, request: &Request) -> bool {
        let has = match request.kind {
            Access::Load if self.owner == 0 => return true,
            Access::Load => self.has(request.core),
            _ => !self.shared && self.owner == request.core as u16 + 1,
        };
        has && self.stays(requests, request.now)
    }

    fn has(&self, core: usize) -> bool {
        let owner = usize::from(self.owner);
        let bit = || self.sharers[core / 64] >> (core % 64) & 1 != 0;
        owner == core + 1 || (owner == 0 || self.shared) && bit()
    }

    /// Makes a core the exclusive owner.
    fn own(&mut self, core: usize) {
        self.owner = core as u16 + 1;
        self.shared = false;
    }

    /// Adds a core to those that have the line.
    fn share(&mut self, core: usize) {
        let owner = usize::from(self.owner);
        if owner == core + 1 {
            return;
        }
        if owner != 0 && !self.shared {
            self.sharers = [0; CORES / 64];
            self.sharers[(owner - 1) / 64] = 1 << ((owner - 1) % 64);
            self.shared = true;
        }
        self.sharers[core / 64] |= 1 << (core % 64);
    }
}

/// All lines that were ever used.
#[derive(Default)]
pub(crate) struct Lines {
    lines: Table<Line>,
    requests: Requests,
}

impl Machine {
    /// What an access takes itself, apart from a transfer.
    pub(crate) fn own_cost(&self, kind: Access) -> u64 {
        if kind == Access::Rmw { self.rmw } else { 0 }
    }
}

impl Lines {
    /// Where a line is for a request.
    pub(crate) fn state(&mut self, line: usize, request: &Request) -> State {
        let Some(line) = self.lines.get_mut(line) else { return State::Private };
        line.complete_stores(&mut self.requests, request.now);
        if !line.is_here(&self.requests, request) {
            State::Elsewhere
        } else if line.busy != 0 && request.now < line.busy + CONTENDED {
            State::Here
        } else {
            State::Private
        }
    }

    /// Whether transfers of the line are requested, so that the order of accesses matters.
    pub(crate) fn is_requested(&self, line: usize) -> bool {
        self.lines.get(line).is_some_and(|line| !line.requests.is_empty())
    }

    /// Whether a core has a buffered store to the line: its loads find the value there.
    pub(crate) fn is_in_store_buffer(&self, line: usize, core: usize) -> bool {
        self.lines
            .get(line)
            .is_some_and(|line| self.requests.store_of(line.requests, core).is_some())
    }

    /// Requests a line for a store that its core does not wait for; when the store is done.
    pub(crate) fn request_to_store(
        &mut self,
        machine: &Machine,
        line: usize,
        request: &Request,
    ) -> u64 {
        let line = self.lines.entry(line);
        if let Some(done) = self.requests.store_of(line.requests, request.core) {
            return done;
        }
        let (leaves, arrives) = line.transfer(machine, &self.requests, request);
        self.requests.push(&mut line.requests, request.core, leaves, Some(arrives));
        line.busy = arrives;
        arrives
    }

    /// Requests a line; when it arrives. Its owner goes on using it until it leaves, and the caller
    /// calls [`Self::arrive`] then.
    pub(crate) fn request(&mut self, machine: &Machine, line: usize, request: &Request) -> u64 {
        let line = self.lines.entry(line);
        let (leaves, arrives) = line.transfer(machine, &self.requests, request);
        if request.kind != Access::Load {
            self.requests.push(&mut line.requests, request.core, leaves, None);
            line.busy = arrives;
        }
        arrives
    }

    /// A requested line arrives at `now`.
    pub(crate) fn arrive(&mut self, line: usize, core: usize, kind: Access, now: u64) {
        let line = self.lines.entry(line);
        line.complete_stores(&mut self.requests, now);
        if kind == Access::Load {
            line.share(core);
            return;
        }
        self.requests.remove(&mut line.requests, core);
        line.used = line.used.max(line.busy);
        line.own(core);
    }

    /// Uses a line at once; when that is done.
    pub(crate) fn touch(
        &mut self,
        machine: &Machine,
        line: usize,
        request: &Request,
        state: State,
    ) -> u64 {
        let line = self.lines.entry(line);
        let &Request { core, kind, now, .. } = request;
        let me = core as u16 + 1;
        if kind == Access::Load {
            let has = state.is_here() || line.owner == 0 || line.owner == me;
            let arrives = if has { now } else { line.transfer(machine, &self.requests, request).1 };
            line.share(core);
            return arrives;
        }
        let done = now + machine.own_cost(kind);
        if state.is_here() && line.owner == me {
            line.used = done;
            return done;
        }
        // A read-modify-write that waits for its line has waited for all before it by then.
        let done = done.max(line.transfer(machine, &self.requests, request).1);
        line.own(core);
        (line.busy, line.used) = (done, done);
        done
    }

    /// Makes a core the owner of a line whose transfer is charged elsewhere.
    pub(crate) fn hand_over(&mut self, line: usize, core: usize) {
        self.lines.entry(line).own(core);
    }
}
