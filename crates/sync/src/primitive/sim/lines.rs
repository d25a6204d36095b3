//! Who has which cache line, and what it costs to get it.
//!
//! A line is had by one core alone, or by some that have read it since the last store. What a core
//! has it uses for nothing; what it has not comes from whoever has it, at a cost by distance, and
//! one after another: who wants a line that is on its way elsewhere waits for it. It leaves half
//! way: what is asked for goes on being used until the question is there, and the rest of the
//! time nobody has it.
//!
//! Where lines migrate, as between cores that share an L3, two things are otherwise. Who loads a
//! line that its owner has changed takes it whole, so that a change of its own then costs nothing;
//! only if it leaves that out does the next to load it share it. And who has asked for a line while
//! it was on its way to another has it soon after that one has made the use it came for: what
//! follows that use at once in the code, as the end of a short section under a lock, is done by
//! then. A line that rests is asked for ahead, also while a change before it is on its way; one
//! that is in use elsewhere comes a while after the one before it, so that between cores that are
//! far from each other lines that are used together travel together. One that rests may take longer
//! than a way, which is told for lines that go to and fro. What two cores change all the
//! time goes to and fro between them by itself: see `windows`.
//!
//! So it is with two cores, and with a crowd some things are otherwise there. Who loads a line
//! while it is on its way to another who loads it has it along with that one, and who looks at a
//! lock soon after that one. A line stays where it came to for longer, by chance; unless it
//! rests nobody asks for it ahead, for it would be taken back before it is used. And to have alone
//! what many have takes longer than to get it.

use super::moves::{Moves, Queue};
use super::table::Table;
use super::windows::{Wanted, Windows, chance};

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
    /// Whether a line within a cluster goes whole to who loads it, and at once to who has asked.
    pub migrates: bool,
    /// Where lines migrate: hundredths of its way that a line takes which nobody has used for a
    /// while, instead of the way; as long, if they are less.
    pub rested: u64,
    /// Where lines migrate: by how many hundredths of its way a line may be there sooner or later,
    /// by chance.
    pub uneven: u64,
    /// The sum of 64 bytes.
    pub sum: u64,
    /// From a wake-up to the sleeper's first instruction.
    pub wake: u64,
    /// Hundredths of that which whoever lets a lock go is busy with it.
    pub waker: u64,
    /// An instruction that says that one waits: one between two looks at a lock that spins, and
    /// some between the first looks at one that sleeps. 0 if who waits for a sleeping lock looks
    /// all the time, for as long as a wake-up takes.
    pub pause: u64,
    /// What offering the core takes, to nobody, between the looks that follow.
    pub offer: u64,
    /// How much code a core begins while it waits for a line.
    pub window: u64,
    /// Where lines migrate: of a thousand windows in which a core has changed a line that another
    /// wants as well, in how many it changes it again, and another such line; see `windows`.
    pub windows: Option<[u64; 2]>,
}

/// Whoever a line came to keeps it for up to so many hundredths of its way, by chance, whoever has
/// asked meanwhile; but not who only looks whether a lock is free, and may be too late to take it
/// then. How long decides how much more is done before it has to come again, and how long others
/// wait: by one kept run handles of 4 to 16 cores are 9 to 14 % too fast with up to a way in a
/// crowd, and 2 to 8 with this.
const KEPT: u64 = 90;
const KEPT_OF_CROWD: u64 = 130;

/// And where lines migrate whoever is about to change one keeps it from who looks for so many
/// hundredths of what the way is longer than [`APART`]. On Zen 5 a word of a lock that another core
/// waits for was changed every 23, 29, 37 and 54 ns while that core was far (118 ns), by code that
/// takes 7, 8, 10 and 17 ns alone, and every 20, 22, 29 and 42 while it was near (22 ns). Simulated
/// cores that give it away at once take 104 to 174 and 19 to 31 ns for it. In a crowd, of which
/// that was not measured, they do.
const KEPT_FROM_A_LOOK: u64 = 80;

/// Where lines migrate: hundredths of a way until a core has a line alone that one, two or more
/// others have. On Zen 5 a change right behind a look at a line that the other has looked at takes
/// 36 ns, where one of a line that the other has changed takes 22 or 23, and 165 to 195 between
/// cores where that takes 133. On Emerald Rapids 118 to 120 ns with two others and 138 to 149 with
/// more, where one that another core had alone took 96 to 108.
const OF_ONE: u64 = 145;
const OF_TWO: u64 = 120;
const OF_MANY: u64 = 140;

/// A line that nobody has used for so many ways rests: where lines migrate only such a one is asked
/// for ahead of its use, which would else be taken back. One of a crowd's may be taken by more.
const RESTING: u64 = 1;
const RESTING_OF_CROWD: u64 = 3;

/// Where lines migrate, one that is in use elsewhere is there at least so many picoseconds after
/// what its core had to wait for before it: from two cores that change two words each, near each
/// other (26 ns) and far (98 to 104 ns). 24 to 34 ns fit about as well.
const APART: u64 = 28_000;

/// Of a crowd that looks at a line each has it so many picoseconds after the one before, though all
/// have asked at once. On Emerald Rapids 3 at once have a line after 104 ns, and 15 after 117, the
/// last of them after 143.
const BEHIND: u64 = 2_000;

/// For how long, in picoseconds, a line counts as one that cores meet in after it has moved.
const MEETING: u64 = 2_000_000;

/// Which use is made of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Load,
    /// A load that takes the line whole: see the module.
    Take,
    Store,
    /// Read-modify-write.
    Change,
}

/// A use of a line: needed at `now`, and asked for as soon as it was `begun`.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) core: usize,
    pub(crate) which: Use,
    pub(crate) begun: u64,
    pub(crate) now: u64,
    /// Whether it is a look at a lock that somebody holds.
    pub(crate) looks: bool,
}

impl Wish {
    /// That of a word, and not of plain data, which is loaded before it is changed: a store asks
    /// for its line when all before it is done.
    pub(super) fn of_word(&self) -> Self {
        let begun = if self.which == Use::Store { self.now } else { self.begun };
        Self { begun, ..*self }
    }
}

/// How a core has a line that it wishes for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It can use it, and nobody was met in it shortly before, so that it does not matter who is
    /// first.
    Alone,
    /// It can use it without waiting.
    Met,
    /// The line goes to and fro, and is there then.
    InWindow(u64),
    /// It has to be asked for.
    Elsewhere,
}

impl Standing {
    /// Whether it has it now.
    pub(crate) fn is_mine(self, wish: &Wish) -> bool {
        match self {
            Self::Alone | Self::Met => true,
            Self::InWindow(there) => there == wish.now,
            Self::Elsewhere => false,
        }
    }
}

/// Beginning with what most uses look at, on one line of the machine that simulates.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line {
    /// The core that stored last, plus one; it has the line.
    owner: u16,
    /// Whether it has done so since it got the line.
    changed: bool,
    /// Whether whoever has asked last will.
    changing: bool,
    /// Whether a core besides the owner has it.
    shared: bool,
    /// Whether it has gone or goes to who looks whether a lock is free.
    looked_at: bool,
    /// When it is where it goes last.
    busy: u64,
    /// When whoever has it alone used it last.
    used: u64,
    /// Where it goes, one after another.
    asked: Queue,
    /// Who wants it.
    wanted: Wanted,
    /// Who has it: of no meaning while its owner has it alone.
    sharers: [u64; CORES / 64],
}

impl Line {
    /// Whether it is where it was at `now`, and not on its way.
    fn stays(&self, moves: &Moves, now: u64) -> bool {
        moves.leaves(self.asked).is_none_or(|leaves| now < leaves)
    }

    /// Whether nobody has used it for a while when a use is begun.
    fn rests(&self, machine: &Machine, begun: u64, crowd: bool) -> bool {
        let ways = if crowd { RESTING_OF_CROWD } else { RESTING };
        self.used.max(self.busy) + ways * machine.near <= begun
    }

    /// Whether more than two cores want it, where that is not as with two.
    fn is_in_crowd(&self, machine: &Machine, now: u64) -> bool {
        machine.migrates && self.wanted.by_crowd(machine, now)
    }

    /// How it comes to who wishes for it.
    fn come(&self, machine: &Machine, moves: &Moves, wish: &Wish) -> Coming {
        let crowd = self.is_in_crowd(machine, wish.now);
        let rests = self.rests(machine, wish.begun, crowd);
        let usual = self.cost(machine, moves, wish);
        let at_once = machine.migrates && usual <= machine.near;
        let way = machine.uneven(usual, wish);
        let longer = rests && machine.migrates;
        let cost = if longer { way * machine.rested.max(100) / 100 } else { way };
        let ahead = !machine.migrates || rests;
        let sooner = if crowd { 0 } else { machine.near.saturating_sub(APART) };
        let begun =
            if ahead { wish.begun } else { wish.begun.max(wish.now.saturating_sub(sooner)) };
        let from = begun.max(self.busy);
        let kept = self.busy + self.keeps(machine, wish);
        let asked = if at_once { kept.max(begun + cost / 2) } else { from + cost / 2 };
        // It does not leave before it was used for the last time.
        let leaves = asked.max(self.used.min(wish.now));
        // Right behind whoever has it before, who would else take it from this again.
        let along = |behind| wish.now.max(begun + cost).max(self.busy + behind);
        let there = match machine.migrates && self.goes_to_a_load(wish) {
            _ if crowd && wish.looks && wish.which == Use::Load => along(BEHIND),
            true => along(1),
            false => wish.now.max(from + cost).max(leaves + cost.div_ceil(2)),
        };
        Coming { leaves, there, at_once }
    }

    /// For how long whoever had it last keeps it from who wishes for it.
    fn keeps(&self, machine: &Machine, wish: &Wish) -> u64 {
        let crowd = self.is_in_crowd(machine, wish.now);
        if self.looked_at {
            let kept = wish.looks && self.changing && !crowd;
            let longer = machine.near.saturating_sub(APART);
            return if kept { longer * KEPT_FROM_A_LOOK / 100 } else { 0 };
        }
        let most = if crowd { KEPT_OF_CROWD } else { KEPT };
        machine.near * most / 100 * chance(wish.core, self.busy) / 1000
    }

    /// Whether it is on its way to a core that loads it, from another one than that wishes to load
    /// it as well.
    fn goes_to_a_load(&self, wish: &Wish) -> bool {
        let loaded = !self.asked.is_empty() && !self.changing;
        loaded && wish.which == Use::Load && self.owner != wish.core as u16 + 1
    }

    /// What a use comes to.
    fn meant(&self, machine: &Machine, moves: &Moves, &Wish { core, which, .. }: &Wish) -> Use {
        let (from, changed) = match (moves.last(self.asked), usize::from(self.owner)) {
            (Some(last), _) => (last, self.changing),
            (None, 0) => return which,
            (None, owner) => (owner - 1, self.changed && !self.shared),
        };
        let whole = machine.migrates && changed && from != core;
        match which {
            Use::Load if whole && machine.distance(from, core) <= machine.near => Use::Take,
            which => which,
        }
    }

    /// What it costs to get it, after all who have asked.
    fn cost(&self, machine: &Machine, moves: &Moves, &Wish { core, which, .. }: &Wish) -> u64 {
        let asked = moves.last(self.asked);
        let Some(from) = asked.or(usize::from(self.owner).checked_sub(1)) else { return 0 };
        let way = if from == core { 0 } else { machine.distance(from, core) };
        let alone = !matches!(which, Use::Load | Use::Take);
        if !(self.shared && alone && self.asked.is_empty()) {
            return way;
        }
        let (others, most) = others(self, machine, core);
        let part = match others {
            1 if machine.migrates => OF_ONE,
            2 if machine.migrates => OF_TWO,
            3.. if machine.migrates => OF_MANY,
            _ => 100,
        };
        way.max(most) * part / 100
    }

    /// When it is there if it goes to and fro.
    fn in_window(
        &self,
        windows: &Windows,
        machine: &Machine,
        line: usize,
        wish: &Wish,
    ) -> Option<u64> {
        if machine.windows.is_none() || self.owner == 0 || self.looked_at {
            return None;
        }
        windows.there(machine, &self.wanted, line, wish)
    }

    /// Stores that were not waited for, and are done by now.
    fn settle(&mut self, moves: &mut Moves, now: u64) {
        while let Some((core, done)) = moves.first_stored(self.asked) {
            if done > now {
                return;
            }
            moves.remove(&mut self.asked, core);
            self.used = self.used.max(done);
            self.alone(core, Use::Store);
        }
    }

    /// Whether a core can use it without meeting another.
    fn is_mine(&self, moves: &Moves, wish: &Wish) -> bool {
        let had = match wish.which {
            Use::Load if self.owner == 0 => return true,
            Use::Load => self.has(wish.core),
            _ => !self.shared && self.owner == wish.core as u16 + 1,
        };
        had && self.stays(moves, wish.now)
    }

    fn has(&self, core: usize) -> bool {
        let owner = usize::from(self.owner);
        let bit = || self.sharers[core / 64] >> (core % 64) & 1 != 0;
        owner == core + 1 || (owner == 0 || self.shared) && bit()
    }

    fn alone(&mut self, core: usize, which: Use) {
        self.changed = which != Use::Take;
        self.looked_at &= which == Use::Take;
        self.owner = core as u16 + 1;
        self.shared = false;
    }

    /// A core has it besides those who have it.
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

/// When a line leaves whoever has it, when it is with who wishes for it, and whether it goes on
/// from there soon after it was used.
struct Coming {
    leaves: u64,
    there: u64,
    at_once: bool,
}

/// All lines that were ever used.
#[derive(Default)]
pub(crate) struct Lines {
    lines: Table<Line>,
    moves: Moves,
    windows: Windows,
}

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

    /// How long a line is on its way this time that usually takes so long.
    fn uneven(&self, way: u64, wish: &Wish) -> u64 {
        if !self.migrates {
            return way;
        }
        let least = 1000 - 10 * self.uneven;
        way * (least + 20 * self.uneven * chance(wish.core, wish.now) / 1000) / 1000
    }

    /// What a use of a line takes that the core has.
    pub(crate) fn own(&self, which: Use) -> u64 {
        if which == Use::Change { self.rmw } else { 0 }
    }

    /// From when on a core asks for what follows a change that is done at `changed`: where lines
    /// migrate both are on their way at once.
    pub(crate) fn asks_after(&self, changed: u64) -> u64 {
        changed.saturating_sub(if self.migrates { self.near } else { 0 })
    }

    /// How much code a core has begun ahead of what it does, while it waits for nothing. Measured
    /// where lines migrate: on Zen 4 a line 27 ns away that is changed once in some 200 ns of code
    /// costs 1 to 14 ns, and one 104 ns away 75 to 101.
    pub(crate) fn ahead(&self) -> u64 {
        if self.migrates { self.window } else { 0 }
    }

    /// When a use is done that is to be at `now`, of a line that is there at `there`. What a
    /// read-modify-write takes is that it waits for what is before it: for the line it waits
    /// meanwhile.
    pub(crate) fn done(&self, which: Use, now: u64, there: u64) -> u64 {
        there.max(now + self.own(which))
    }

    pub(crate) fn line(&self, address: usize) -> usize {
        address >> self.line_shift
    }
}

impl Lines {
    /// Notes that it is used in a window.
    fn use_in_window(&mut self, line: usize, wish: &Wish, there: u64) -> Use {
        self.windows.used(line, wish, there);
        let line = self.lines.entry(line);
        line.wanted.note(wish.core, wish.which, there);
        if wish.which == Use::Load { Use::Take } else { wish.which }
    }

    /// How a core has the line that wishes for it.
    pub(crate) fn standing(&mut self, machine: &Machine, line: usize, wish: &Wish) -> Standing {
        let Some(one) = self.lines.get_mut(line) else { return Standing::Alone };
        one.settle(&mut self.moves, wish.now);
        if let Some(there) = one.in_window(&self.windows, machine, line, wish) {
            return Standing::InWindow(there);
        }
        if !one.is_mine(&self.moves, wish) {
            Standing::Elsewhere
        } else if one.busy != 0 && wish.now < one.busy + MEETING {
            Standing::Met
        } else {
            Standing::Alone
        }
    }

    /// Whether a line is on its way to a core, or from one, so that its turn decides who has it.
    pub(crate) fn is_asked_for(&self, line: usize) -> bool {
        self.lines.get(line).is_some_and(|line| !line.asked.is_empty())
    }

    /// Whether a load finds what the core itself has stored, though the line is not there yet.
    pub(crate) fn is_stored_by(&self, line: usize, core: usize) -> bool {
        self.lines.get(line).is_some_and(|line| self.moves.stored(line.asked, core).is_some())
    }

    /// Asks for a line to store to once it is there, while the core goes on; when that will be.
    pub(crate) fn ask_to_store(
        &mut self,
        machine: &Machine,
        line: usize,
        wish: &Wish,
        standing: Standing,
    ) -> u64 {
        if let Standing::InWindow(there) = standing {
            self.use_in_window(line, wish, there);
            let line = self.lines.entry(line);
            line.alone(wish.core, Use::Store);
            (line.busy, line.used) = (there, there);
            return there;
        }
        let line = self.lines.entry(line);
        line.wanted.note(wish.core, wish.which, wish.now);
        if let Some(done) = self.moves.stored(line.asked, wish.core) {
            return done;
        }
        let Coming { leaves, there, .. } = line.come(machine, &self.moves, wish);
        self.moves.push(&mut line.asked, wish.core, leaves, Some(there));
        (line.busy, line.changing) = (there, true);
        there
    }

    /// Asks for a line that the core has not; when it will be there, and for which use. Until it
    /// leaves whoever has it goes on using it; [`Self::arrive`] comes after.
    pub(crate) fn ask(
        &mut self,
        machine: &Machine,
        line: usize,
        wish: &Wish,
        standing: Standing,
    ) -> (u64, Use) {
        if let Standing::InWindow(there) = standing {
            return (there, self.use_in_window(line, wish, there));
        }
        let line = self.lines.entry(line);
        line.wanted.note(wish.core, wish.which, wish.now);
        line.looked_at |= wish.looks;
        let wish = &Wish { which: line.meant(machine, &self.moves, wish), ..*wish };
        let Coming { leaves, there, at_once } = line.come(machine, &self.moves, wish);
        if wish.which == Use::Load && wish.looks && line.is_in_crowd(machine, wish.now) {
            line.busy = line.busy.max(there);
        }
        if wish.which != Use::Load {
            self.moves.push(&mut line.asked, wish.core, leaves, None);
            let done = machine.done(wish.which, wish.now, there);
            let using = if at_once { done - there } else { 0 };
            line.busy = there + using;
            line.changing = wish.which != Use::Take;
        }
        (there, wish.which)
    }

    /// A line that was asked for is there, at `now`.
    pub(crate) fn arrive(&mut self, line: usize, core: usize, which: Use, now: u64) {
        let line = self.lines.entry(line);
        line.settle(&mut self.moves, now);
        if which == Use::Load {
            line.share(core);
            return;
        }
        self.moves.remove(&mut line.asked, core);
        line.used = line.used.max(line.busy);
        line.alone(core, which);
    }

    /// Uses a line at once; when that is done.
    pub(crate) fn touch(
        &mut self,
        machine: &Machine,
        line: usize,
        wish: &Wish,
        standing: Standing,
    ) -> u64 {
        if let Standing::InWindow(there) = standing {
            let meant = self.use_in_window(line, wish, there);
            let line = self.lines.entry(line);
            let changed = line.changed;
            line.alone(wish.core, meant);
            line.changed |= changed;
            let done = machine.done(wish.which, wish.now, there);
            (line.busy, line.used) = (done, done);
            return done;
        }
        let mine = standing != Standing::Elsewhere;
        let line = self.lines.entry(line);
        line.wanted.note(wish.core, wish.which, wish.now);
        let wish = &Wish { which: line.meant(machine, &self.moves, wish), ..*wish };
        let Wish { core, which, now, .. } = *wish;
        let me = core as u16 + 1;
        if which == Use::Load {
            let had = mine || line.owner == 0 || line.owner == me;
            let there = if had { now } else { line.come(machine, &self.moves, wish).there };
            line.share(core);
            return there;
        }
        let own = machine.own(which);
        if which == Use::Change && (mine || line.owner == 0) {
            self.windows.changed_own(machine, core);
        }
        if mine && line.owner == me {
            line.used = now + own;
            line.changed = true;
            return now + own;
        }
        let there = line.come(machine, &self.moves, wish).there;
        let done = machine.done(which, now, there);
        line.alone(core, which);
        (line.busy, line.used) = (done, done);
        done
    }

    /// Puts a line where it was paid for to go.
    pub(crate) fn give(&mut self, line: usize, core: usize) {
        self.lines.entry(line).alone(core, Use::Store);
    }
}

/// How many others read the line, and the cost to tell the farthest.
fn others(line: &Line, machine: &Machine, core: usize) -> (usize, u64) {
    let (mut others, mut most) = (0, 0);
    for (word, bits) in line.sharers.iter().enumerate() {
        let mut bits = *bits;
        while bits != 0 {
            let other = word * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if other != core {
                (others, most) = (others + 1, most.max(machine.distance(other, core)));
            }
        }
    }
    (others, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of three cores has a line that all look at from one moment on, where three others
    /// have changed it before, or one.
    fn looks(migrates: bool, changed_by: usize) -> [u64; 3] {
        const NEAR: u64 = 80_000;
        let machine = Machine {
            cores: 6,
            cluster: 6,
            socket: 6,
            near: NEAR,
            socket_far: NEAR,
            across: NEAR,
            migrates,
            ..Machine::default()
        };
        let mut lines = Lines::default();
        let wish = |core, which, now, looks| Wish { core, which, begun: now, now, looks };
        for turn in 0..6 {
            let change = wish(turn % changed_by, Use::Change, (1 + turn as u64) * NEAR, false);
            let standing = lines.standing(&machine, 7, &change);
            lines.touch(&machine, 7, &change, standing);
        }
        let now = 10 * NEAR;
        // Somebody shares it, and then all who follow do.
        for which in [Use::Take, Use::Load] {
            let load = wish(3, which, now, false);
            let standing = lines.standing(&machine, 7, &load);
            lines.touch(&machine, 7, &load, standing);
        }
        [3, 4, 5].map(|core| {
            let look = wish(core, Use::Load, now + 2 * NEAR, true);
            let standing = lines.standing(&machine, 7, &look);
            let (there, which) = lines.ask(&machine, 7, &look, standing);
            lines.arrive(7, core, which, there);
            there - look.now
        })
    }

    #[test]
    fn a_crowd_keeps_a_line_for_longer_than_two_do() {
        const NEAR: u64 = 80_000;
        let distances =
            Machine { near: NEAR, socket_far: NEAR, across: NEAR, ..Machine::default() };
        let machine = Machine { cores: 4, cluster: 4, socket: 4, migrates: true, ..distances };
        // Hundredths of a way until a line is with who asks for it when it comes to another.
        let took = |cores: usize, at: u64| {
            let mut lines = Lines::default();
            let wish = |core, now| Wish { core, which: Use::Change, begun: now, now, looks: false };
            for turn in 0..6 {
                let change = wish(turn % cores, at + turn as u64 * 3 * NEAR);
                let standing = lines.standing(&machine, 7, &change);
                lines.touch(&machine, 7, &change, standing);
            }
            let now = lines.lines.entry(7).busy;
            let asks = wish(0, now);
            let standing = lines.standing(&machine, 7, &asks);
            (lines.ask(&machine, 7, &asks, standing).0 - now) * 100 / NEAR
        };
        let longest = |cores| (0..200).map(|n| took(cores, n * 777)).max();
        assert!(matches!(longest(2), Some(130..=140)), "{:?}", longest(2));
        assert!(matches!(longest(3), Some(165..=180)), "{:?}", longest(3));
    }

    #[test]
    fn a_crowd_looks_at_a_line_one_after_another() {
        // The first has it already.
        assert_eq!(looks(true, 3), [0, 80_000, 82_000]);
        // Who look while one core changes it are no crowd, nor is there one where lines stay.
        assert_eq!(looks(true, 1), [0, 80_000, 80_000]);
        assert_eq!(looks(false, 3), [0, 80_000, 80_000]);
    }

    /// How long a line takes to a core that wishes for it so many halves of its way after another
    /// changed it.
    fn after(machine: &Machine, halves: u64) -> u64 {
        let mut lines = Lines::default();
        let mut done = |core, which, now| {
            let wish = Wish { core, which, begun: now, now, looks: false };
            let standing = lines.standing(machine, 7, &wish);
            lines.touch(machine, 7, &wish, standing)
        };
        let changed = done(1, Use::Change, 10 * machine.near);
        let wanted = changed + halves * machine.near / 2;
        done(0, Use::Load, wanted) - wanted
    }

    #[test]
    fn a_line_that_rests_takes_longer_where_that_is_told() {
        const NEAR: u64 = 80_000;
        let all = Machine { cores: 2, cluster: 2, socket: 2, near: NEAR, ..Machine::default() };
        let of = |migrates, rested| {
            let machine = Machine { migrates, rested, ..all };
            [1, 2].map(|halves| after(&machine, halves))
        };
        assert_eq!(of(true, 125), [80_000, 100_000]);
        assert_eq!(of(true, 0), [80_000, 80_000]);
        assert_eq!(of(false, 125), [80_000, 80_000]);
    }

    #[test]
    fn to_have_alone_what_another_has_as_well_takes_longer_where_lines_migrate() {
        const NEAR: u64 = 80_000;
        let of = |migrates| {
            let machine =
                Machine { cores: 2, cluster: 2, socket: 2, near: NEAR, ..Machine::default() };
            let machine = Machine { migrates, ..machine };
            let mut lines = Lines::default();
            let mut use_of = |core, which, ways| {
                let now = ways * NEAR;
                let wish = Wish { core, which, begun: now, now, looks: false };
                let standing = lines.standing(&machine, 7, &wish);
                lines.touch(&machine, 7, &wish, standing) - now
            };
            use_of(1, Use::Change, 10);
            // Whole, where lines migrate; then both have it.
            [(0, Use::Load, 20), (1, Use::Load, 30), (1, Use::Change, 40)]
                .map(|(core, which, ways)| use_of(core, which, ways))
        };
        assert_eq!(of(true), [NEAR, NEAR, NEAR * OF_ONE / 100]);
        assert_eq!(of(false), [NEAR, 0, NEAR]);
    }

    #[test]
    fn a_line_of_a_crowd_rests_later() {
        const NEAR: u64 = 80_000;
        let machine = Machine { cores: 3, near: NEAR, migrates: true, ..Machine::default() };
        for (cores, rests) in [(2, [true, true]), (3, [false, true])] {
            let mut line = Line { used: 10 * NEAR, busy: 10 * NEAR, ..Line::default() };
            (0..cores).for_each(|core| line.wanted.note(core, Use::Change, line.used));
            let after = [1, 3].map(|ways| {
                let now = line.used + ways * NEAR;
                line.rests(&machine, now, line.is_in_crowd(&machine, now))
            });
            assert_eq!(after, rests, "{cores} cores");
        }
    }

    #[test]
    fn a_line_is_on_its_way_for_uneven_times_where_lines_migrate() {
        const NEAR: u64 = 80_000;
        let times = |migrates, uneven| {
            let machine = Machine { migrates, uneven, ..Machine::default() };
            let wish = |now| Wish { core: 1, which: Use::Load, begun: now, now, looks: false };
            (0..1000).map(|n| machine.uneven(NEAR, &wish(n * 7_000))).collect::<Vec<u64>>()
        };
        let mut uneven = times(true, 20);
        let mean = uneven.iter().sum::<u64>() / 1000;
        assert!((79_000..81_000).contains(&mean), "{mean}");
        uneven.sort_unstable();
        assert!((64_000..66_000).contains(&uneven[10]) && uneven[0] >= 64_000, "{uneven:?}");
        assert!((94_000..=96_000).contains(&uneven[990]) && uneven[999] <= 96_000, "{uneven:?}");
        for same in [times(true, 0), times(false, 20)] {
            assert!(same.iter().all(|time| *time == NEAR), "{same:?}");
        }
    }
}
