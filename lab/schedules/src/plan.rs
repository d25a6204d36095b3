//! What is done in a schedule: all of it follows from the number.

use nextent_sync::sim::{Choice, Turns};
use nextent_testkit::Rng;

use crate::image::FAST_KINDS;

/// Threads with operations of their own.
pub(crate) const THREADS: usize = 3;
/// Names in the directory that all share.
pub(crate) const NAMES: u64 = 4;
/// Blocks of each thread's file that is allocated and not written.
pub(crate) const SET_ASIDE: u64 = 12;
/// Steps of a schedule at most; most have a tenth.
const STEPS: u64 = 400_000;

/// A thread that closes the volume early gives way at most so often before.
const CLOSES: u64 = 1500;

/// Blocks that are left where files have windows: more than is called low, but not once for each.
pub(crate) const WINDOWS: u64 = 1700;

/// One call. Numbers choose among the files that a thread has then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Create,
    Append(u64, usize),
    Write(u64, u64, usize),
    /// A block, directly, of any file.
    Direct(u64, u64),
    /// A block of the file that is set aside, directly.
    Complete(u64),
    Truncate(u64, u64),
    Fallocate(u64, u64),
    /// As much as will hardly fit.
    Hog(u64),
    Rename(u64),
    Unlink(u64),
    /// Opened before, released at the end.
    UnlinkOpen(u64),
    /// A file without a name, released at the end.
    Tmpfile,
    Chmod(u64),
    /// Sets the attribute, which lies in a block, to this byte over and over.
    Attribute(u64, u8),
    /// Another name by a link, then the old one removed.
    Relink(u64),
    /// A block becomes a hole.
    Punch(u64, u64),
    Read(u64),
    Fsync(u64),
    Sync,
    Mkdir,
    Rmdir,
    SharedCreate(u64),
    SharedUnlink(u64),
    SharedRename(u64, u64),
    SharedLookup(u64),
    SharedAppend,
    /// An access list of one of the thread's watched files; the second number says which list.
    ListSet(usize, u64),
    ListRemove(usize),
    ListMode(usize, u64),
    /// The other watched file gets a list when this one has lost its own, perhaps in its block.
    ListMove(usize, u64),
    /// Whether a user without rights may read a watched file of a thread.
    Check(usize, usize),
    /// A call by a number, whatever has it: near one of the directories, or any.
    ByNumber(u64, u64, u64),
    /// A name of the shared directory is looked up, its inode pinned and let go, some times.
    Enter(u64),
    /// A directory that had an index is removed while it is open, and listed.
    RemoveOpenDir,
}

/// How full the volume is when the threads begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Plenty,
    /// So many blocks are left.
    Blocks(u64),
    /// None for anyone.
    None,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) turns: Turns,
    pub(crate) kind: usize,
    pub(crate) room: Room,
    pub(crate) ops: Vec<Vec<Op>>,
    pub(crate) crash: u64,
    /// How often a further thread gives way before it closes the volume beside the others; none if
    /// the volume is closed when they have ended.
    pub(crate) close: Option<u64>,
}

impl Op {
    /// Whether it is about one of the thread's own files, which it may change in several steps.
    pub(crate) fn has_file(self) -> bool {
        !matches!(
            self,
            Self::Create
                | Self::Tmpfile
                | Self::Sync
                | Self::Mkdir
                | Self::Rmdir
                | Self::SharedCreate(_)
                | Self::SharedUnlink(_)
                | Self::SharedRename(..)
                | Self::SharedLookup(_)
                | Self::SharedAppend
                | Self::ListSet(..)
                | Self::ListRemove(_)
                | Self::ListMode(..)
                | Self::ListMove(..)
                | Self::Check(..)
                | Self::ByNumber(..)
                | Self::Enter(_)
                | Self::RemoveOpenDir
        )
    }
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6e65_7874);
        let choice = if rng.percent(50) {
            Choice::Walk([1, 3, 10, 40][rng.below(4) as usize])
        } else {
            Choice::Priorities(1 + rng.below(4), 1500)
        };
        let turns = Turns { seed: rng.bits(), choice, most: STEPS };
        let room = match rng.below(8) {
            0..4 => Room::Plenty,
            4 => Room::Blocks(WINDOWS),
            5 => Room::Blocks(60),
            6 => Room::Blocks(12),
            _ => Room::None,
        };
        let taste = rng.below(5);
        let mut ops: Vec<_> = (0..THREADS).map(|_| program(&mut rng, taste, room)).collect();
        // By numbers of their own: other schedules stay as they are.
        let mut more = Rng::new(seed ^ 0x6f75_7473);
        let mut turns = turns;
        if more.percent(20) {
            let taste = more.below(4);
            if more.percent(50) {
                // A thread stops at one step for long: others free and use again what it reads.
                turns.choice = Choice::Priorities(2 + more.below(4), 1200);
            }
            ops = (0..THREADS).map(|thread| unlocked(&mut more, taste, room, thread)).collect();
        }
        let (mut kind, crash) = (rng.below(3) as usize, rng.bits());
        // The same.
        let mut more = Rng::new(seed ^ 0x7379_6e63);
        if more.percent(25) {
            kind = *more.pick(&FAST_KINDS);
            ops = (0..THREADS).map(|_| synced(&mut more)).collect();
        }
        let close = rng.percent(12).then(|| rng.below(CLOSES));
        Self { turns, kind, room, ops, crash, close }
    }
}

/// A few calls; `taste` says what kind there are most of.
fn program(rng: &mut Rng, taste: u64, room: Room) -> Vec<Op> {
    let count = 3 + rng.below(7);
    let mut ops = Vec::new();
    if taste != 3 {
        ops.push(Op::Create);
    }
    for _ in 0..count {
        let op = match taste {
            0 => of_contents(rng, room),
            1 => of_names(rng),
            3 if rng.percent(85) => of_shared(rng),
            4 => of_blocks(rng),
            _ => match rng.below(3) {
                0 => of_contents(rng, room),
                1 => of_names(rng),
                _ => of_shared(rng),
            },
        };
        ops.push(op);
    }
    ops
}

/// Calls of unlocked beside those that they watch.
fn unlocked(rng: &mut Rng, taste: u64, room: Room, thread: usize) -> Vec<Op> {
    let count = 3 + rng.below(8);
    let op = |rng: &mut Rng| match taste {
        0 if thread == 0 => of_lists(rng),
        0 | 1 if thread > 0 => of_checks(rng),
        0 | 1 => Op::ListMove(rng.below(2) as usize, 1 | rng.below(4)),
        2 => of_numbers(rng, thread),
        _ => match rng.below(5) {
            0 if rng.percent(50) => of_checks(rng),
            0 => of_lists(rng),
            1 => of_numbers(rng, thread),
            2 => of_names(rng),
            3 => of_blocks(rng),
            _ => of_contents(rng, room),
        },
    };
    (0..count).map(|_| op(rng)).collect()
}

fn of_lists(rng: &mut Rng) -> Op {
    let (file, which) = (rng.below(2) as usize, rng.below(4) | rng.below(2));
    match rng.below(16) {
        0 | 1 => Op::ListSet(file, which),
        2 => Op::ListRemove(file),
        3 => Op::ListMode(file, which),
        4..12 => Op::ListMove(file, which),
        12 | 13 => Op::Mkdir,
        14 => Op::Rmdir,
        _ => Op::Sync,
    }
}

/// Checks, mostly of what the first thread changes.
fn of_checks(rng: &mut Rng) -> Op {
    let thread = if rng.percent(80) { 0 } else { rng.below(THREADS as u64) as usize };
    match rng.below(10) {
        0 => by_number(rng),
        _ => Op::Check(thread, rng.below(2) as usize),
    }
}

fn by_number(rng: &mut Rng) -> Op {
    Op::ByNumber(rng.below(THREADS as u64 + 2), rng.below(128), rng.below(6))
}

/// Names of the shared directory that come and go, and callers who go by the numbers they had.
fn of_numbers(rng: &mut Rng, thread: usize) -> Op {
    let name = rng.below(2);
    match rng.below(14) {
        0..4 if thread > 0 => Op::Enter(name),
        0 | 1 => Op::SharedCreate(name),
        2 | 3 => Op::SharedUnlink(name),
        4..7 => by_number(rng),
        7 if rng.percent(40) => Op::RemoveOpenDir,
        7 | 8 => Op::Mkdir,
        9 => Op::Rmdir,
        10 => Op::SharedCreate(name),
        11 => Op::SharedUnlink(name),
        _ if rng.percent(50) => Op::Tmpfile,
        _ => Op::Sync,
    }
}

fn of_contents(rng: &mut Rng, room: Room) -> Op {
    let file = rng.below(4);
    match rng.below(14) {
        0..4 => Op::Append(file, 1 + rng.below(3000) as usize),
        4 => Op::Write(file, rng.below(4000), 1 + rng.below(2000) as usize),
        5 => Op::Direct(file, rng.below(6)),
        6 | 7 => Op::Complete(rng.below(SET_ASIDE)),
        8 => Op::Truncate(file, rng.below(3000)),
        5..10 if room == Room::Blocks(WINDOWS) => Op::Hog(300 + rng.below(900)),
        9 => Op::Fallocate(file, 1 + rng.below(20_000)),
        10 => Op::Read(file),
        11 => Op::Chmod(file),
        12 => Op::Fsync(file),
        _ if rng.percent(50) => Op::Sync,
        _ => Op::Create,
    }
}

fn of_names(rng: &mut Rng) -> Op {
    let file = rng.below(4);
    match rng.below(14) {
        0..3 => Op::Create,
        3 if rng.percent(50) => Op::Tmpfile,
        3 => Op::Append(file, 1 + rng.below(3000) as usize),
        4 | 5 => Op::Rename(file),
        6 => Op::Unlink(file),
        7 => Op::UnlinkOpen(file),
        8 | 9 => Op::Mkdir,
        10 | 11 => Op::Rmdir,
        12 => Op::Fsync(file),
        _ => Op::Sync,
    }
}

/// Blocks that change hands, between directories and files.
fn of_blocks(rng: &mut Rng) -> Op {
    match rng.below(10) {
        0..3 => Op::Mkdir,
        3..6 => Op::Rmdir,
        6 | 7 => Op::Sync,
        8 => Op::Append(rng.below(4), 1 + rng.below(3000) as usize),
        _ if rng.percent(30) => Op::Tmpfile,
        _ => Op::Unlink(rng.below(4)),
    }
}

/// Files with many syncs, on a volume with fast commits.
fn synced(rng: &mut Rng) -> Vec<Op> {
    let mut ops = vec![Op::Create];
    (0..2 + rng.below(5)).for_each(|_| of_synced(rng, &mut ops));
    ops
}

/// A few calls on one file, with a sync among them: what a fast commit can carry, and what not.
fn of_synced(rng: &mut Rng, ops: &mut Vec<Op>) {
    // The first two have unwritten blocks and a block of attributes, which rule fast commits out.
    let file = match rng.below(10) {
        0..5 => 2,
        5 | 6 => 1,
        _ => rng.below(4),
    };
    let append = |rng: &mut Rng| Op::Append(file, 1 + rng.below(3000) as usize);
    let change = |rng: &mut Rng| match rng.below(9) {
        _ if file == 1 => Op::Attribute(file, rng.below(200) as u8 + 1),
        0 | 1 => Op::Attribute(file, rng.below(200) as u8 + 1),
        2 | 3 => Op::Relink(file),
        4 => Op::Rename(file),
        5 => Op::Chmod(file),
        6 => Op::Truncate(file, rng.below(3000)),
        _ => Op::Punch(file, rng.below(3)),
    };
    match rng.below(6) {
        0 => ops.extend([append(rng), Op::Sync, Op::Punch(file, rng.below(3)), Op::Fsync(file)]),
        1 | 2 => ops.extend([change(rng), append(rng), Op::Fsync(file)]),
        3 => ops.extend([change(rng), Op::Fsync(file)]),
        // Blocks that a fast commit named are lost, and others are wanted.
        4 => {
            let lose =
                if rng.percent(60) { Op::Truncate(file, rng.below(600)) } else { Op::Unlink(file) };
            let other = Op::Append(file + 1, 1 + rng.below(3000) as usize);
            ops.extend([append(rng), Op::Fsync(file), lose, other]);
        }
        _ => ops.push(Op::Create),
    }
}

fn of_shared(rng: &mut Rng) -> Op {
    let name = rng.below(NAMES);
    match rng.below(12) {
        0..3 => Op::SharedCreate(name),
        3 | 4 => Op::SharedUnlink(name),
        5 | 6 => Op::SharedRename(name, (name + 1 + rng.below(NAMES - 1)) % NAMES),
        7..10 => Op::SharedLookup(name),
        _ => Op::SharedAppend,
    }
}
