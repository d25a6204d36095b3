//! Who has which cache line, and what it costs to get it.
//!
//! A line is had by one core alone, or by some that have read it since the last store. What a core
//! has it uses for nothing; what it has not comes from whoever has it, at a cost by distance, and
//! one after another: who wants a line that is on its way elsewhere waits for it. Until it has
//! left, whoever has it uses it for nothing, so uses that follow each other closely cost one move.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Cores at most, the helpers of the store included.
pub(crate) const CORES: usize = 384;

/// What a machine costs, in picoseconds, and how its cores lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Cores.
    pub cores: usize,
    /// Cores that are nearest to each other.
    pub cluster: usize,
    /// Cores of a socket.
    pub socket: usize,
    /// log2 of the bytes that move together.
    pub line_shift: u32,
    /// A read-modify-write of a line that the core has.
    pub rmw: u64,
    /// A line from a core of the same cluster.
    pub near: u64,
    /// A line from another cluster of the same socket.
    pub socket_far: u64,
    /// A line from another socket.
    pub across: u64,
    /// Lines that move one after another when a queued spin lock is handed over, in hundredths.
    pub handoff: u64,
    /// Whether a spin lock is had by whoever is nearest, as before there were tickets.
    pub unfair: bool,
    /// From a wake-up to the sleeper's first instruction.
    pub wake: u64,
}

/// Which use is made of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Load,
    Store,
    /// Read-modify-write.
    Change,
}

#[derive(Clone, Copy, Default)]
struct Line {
    /// The core that stored last, plus one.
    owner: u16,
    /// Whether a core besides the owner has it.
    shared: bool,
    /// Who has it.
    sharers: [u64; CORES / 64],
    /// When it is where it goes.
    busy: u64,
}

impl Line {
    fn has(&self, core: usize) -> bool {
        self.sharers[core / 64] >> (core % 64) & 1 != 0
    }

    fn alone(&mut self, core: usize) {
        self.sharers = [0; CORES / 64];
        self.sharers[core / 64] = 1 << (core % 64);
        self.owner = core as u16 + 1;
        self.shared = false;
    }
}

/// A line number is as good as any hash once its bits are spread.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_usize(&mut self, value: usize) {
        let spread = (value as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ spread >> 32;
    }
}

pub(crate) type Spreading = BuildHasherDefault<Spread>;

/// All lines that were ever used.
#[derive(Default)]
pub(crate) struct Lines(HashMap<usize, Line, Spreading>);

impl Machine {
    /// What a line costs from one core to another.
    pub(crate) fn distance(&self, from: usize, to: usize) -> u64 {
        if from / self.socket != to / self.socket {
            self.across
        } else if from / self.cluster != to / self.cluster {
            self.socket_far
        } else {
            self.near
        }
    }

    pub(crate) fn line(&self, address: usize) -> usize {
        address >> self.line_shift
    }
}

impl Lines {
    /// Whether `core` can use the line without meeting another.
    pub(crate) fn is_mine(&mut self, line: usize, core: usize, which: Use) -> bool {
        match self.0.get(&line) {
            None => true,
            Some(line) if which == Use::Load => line.has(core) || line.owner == 0,
            Some(line) => line.has(core) && !line.shared && line.owner == core as u16 + 1,
        }
    }

    /// Asks for a line at `now` that the core has not; when it will be there. Until then whoever
    /// has it goes on using it; [`Self::arrive`] comes after.
    pub(crate) fn ask(
        &mut self,
        machine: &Machine,
        line: usize,
        core: usize,
        which: Use,
        now: u64,
    ) -> u64 {
        let line = self.0.entry(line).or_default();
        let cost = match usize::from(line.owner).checked_sub(1) {
            None => 0,
            Some(owner) if owner == core => farthest(line, machine, core),
            Some(owner) if line.shared && which != Use::Load => {
                machine.distance(owner, core).max(farthest(line, machine, core))
            }
            Some(owner) => machine.distance(owner, core),
        };
        let there = now.max(line.busy) + cost;
        if which != Use::Load {
            line.busy = there;
        }
        there
    }

    /// A line that was asked for is there.
    pub(crate) fn arrive(&mut self, line: usize, core: usize, which: Use) {
        let line = self.0.entry(line).or_default();
        if which == Use::Load {
            line.sharers[core / 64] |= 1 << (core % 64);
            line.shared |= line.owner != 0 && line.owner != core as u16 + 1;
        } else {
            line.alone(core);
        }
    }

    /// Uses a line at `now`, at once; when that is done.
    pub(crate) fn touch(
        &mut self,
        machine: &Machine,
        line: usize,
        core: usize,
        which: Use,
        now: u64,
    ) -> u64 {
        let line = self.0.entry(line).or_default();
        let me = core as u16 + 1;
        let own = if which == Use::Change { machine.rmw } else { 0 };
        if which == Use::Load {
            if line.has(core) {
                return now;
            }
            line.sharers[core / 64] |= 1 << (core % 64);
            if line.owner == 0 || line.owner == me {
                return now;
            }
            line.shared = true;
            return now.max(line.busy) + machine.distance(usize::from(line.owner) - 1, core);
        }
        if line.owner == me && !line.shared {
            return now + own;
        }
        let move_from = |from: usize| machine.distance(from, core);
        let cost = match usize::from(line.owner).checked_sub(1) {
            None => 0,
            Some(owner) if owner == core => farthest(line, machine, core),
            Some(owner) if line.shared => move_from(owner).max(farthest(line, machine, core)),
            Some(owner) => move_from(owner),
        };
        let done = now.max(line.busy) + cost + own;
        line.alone(core);
        line.busy = done;
        done
    }

    /// Puts a line where it was paid for to go.
    pub(crate) fn give(&mut self, line: usize, core: usize) {
        self.0.entry(line).or_default().alone(core);
    }
}

/// The cost to tell the farthest of those who read the line.
fn farthest(line: &Line, machine: &Machine, core: usize) -> u64 {
    let mut most = 0;
    for (word, bits) in line.sharers.iter().enumerate() {
        let mut bits = *bits;
        while bits != 0 {
            let other = word * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if other != core {
                most = most.max(machine.distance(other, core));
            }
        }
    }
    most
}
