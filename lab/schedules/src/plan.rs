//! The contents of a schedule, all derived from its number.

use nextent_sim::{Choice, Turns};
use nextent_testkit::Rng;

use crate::base_volumes::FAST_KINDS;

/// Threads that run operations.
pub(crate) const THREADS: usize = 3;
/// Names used in the shared directory.
pub(crate) const NAMES: u64 = 4;
/// Blocks of the file that each thread preallocates.
pub(crate) const PREALLOCATED: u64 = 12;
/// Steps of a schedule at most. Most schedules have a tenth.
const MAX_STEPS: u64 = 400_000;

/// Yields, at most, of the thread that closes the volume during the operations.
const CLOSE_DELAY: u64 = 1500;

/// Blocks left in schedules about allocation windows: more than counts as low, but too few for a
/// window of each file.
pub(crate) const WINDOW_BLOCKS: u64 = 1700;

/// One call. File numbers choose among the files that the thread has at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Create,
    Append(u64, usize),
    Write(u64, u64, usize),
    /// A direct write of a block of any file.
    Direct(u64, u64),
    /// A direct write of a block of the preallocated file.
    Complete(u64),
    Truncate(u64, u64),
    Fallocate(u64, u64),
    /// Allocates so many blocks, which hardly fit.
    Hog(u64),
    Rename(u64),
    Unlink(u64),
    /// Removes an open file, which is released at the end.
    UnlinkOpen(u64),
    /// Makes a file without a name, which is released at the end.
    Tmpfile,
    Chmod(u64),
    /// Sets the attribute, which needs a block of its own, to a repeated byte.
    Attribute(u64, u8),
    /// Links a second name, then removes the first.
    Relink(u64),
    /// Punches a hole of one block.
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
    /// Sets an access list of a watched file of the thread; the second number chooses the list.
    ListSet(usize, u64),
    ListRemove(usize),
    ListMode(usize, u64),
    /// Removes the list of one watched file, then sets one on the other, perhaps in the same block.
    ListMove(usize, u64),
    /// Checks whether a user without rights may read a watched file of a thread.
    Check(usize, usize),
    /// A call by an inode number, whatever inode has it: near one of the directories, or any.
    ByNumber(u64, u64, u64),
    /// Looks up a name of the shared directory, pins its inode and unpins it, several times.
    Enter(u64),
    /// Removes an open directory that had an index, and lists it.
    RemoveOpenDir,
}

/// The free space of the volume when the threads begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeSpace {
    Plenty,
    /// So many blocks are free.
    Blocks(u64),
    /// No block is free.
    None,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) turns: Turns,
    pub(crate) kind: usize,
    pub(crate) free_space: FreeSpace,
    pub(crate) ops: Vec<Vec<Op>>,
    pub(crate) crash: u64,
    /// The yields of a further thread before it closes the volume during the operations. `None` if
    /// the volume is closed after them.
    pub(crate) close: Option<u64>,
}

impl Op {
    /// Whether it concerns one of the thread's own files, which it may change in several steps.
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
        let turns = Turns { seed: rng.bits(), choice, most: MAX_STEPS };
        let free_space = match rng.below(8) {
            0..4 => FreeSpace::Plenty,
            4 => FreeSpace::Blocks(WINDOW_BLOCKS),
            5 => FreeSpace::Blocks(60),
            6 => FreeSpace::Blocks(12),
            _ => FreeSpace::None,
        };
        let focus = rng.below(5);
        let mut ops: Vec<_> = (0..THREADS).map(|_| program(&mut rng, focus, free_space)).collect();
        // These use a generator of their own, so that other schedules do not change.
        let mut more = Rng::new(seed ^ 0x6f75_7473);
        let mut turns = turns;
        if more.percent(20) {
            let focus = more.below(4);
            if more.percent(50) {
                // One thread stops for a long time, while others free and reuse what it reads.
                turns.choice = Choice::Priorities(2 + more.below(4), 1200);
            }
            ops =
                (0..THREADS).map(|thread| unlocked(&mut more, focus, free_space, thread)).collect();
        }
        let (mut kind, crash) = (rng.below(3) as usize, rng.bits());
        // Again a generator of its own.
        let mut more = Rng::new(seed ^ 0x7379_6e63);
        if more.percent(25) {
            kind = *more.pick(&FAST_KINDS);
            ops = (0..THREADS).map(|_| synced(&mut more)).collect();
        }
        let close = rng.percent(12).then(|| rng.below(CLOSE_DELAY));
        Self { turns, kind, free_space, ops, crash, close }
    }
}

/// A few calls. `focus` chooses the kind that most of them have.
fn program(rng: &mut Rng, focus: u64, free_space: FreeSpace) -> Vec<Op> {
    let count = 3 + rng.below(7);
    let mut ops = Vec::new();
    if focus != 3 {
        ops.push(Op::Create);
    }
    for _ in 0..count {
        let op = match focus {
            0 => of_contents(rng, free_space),
            1 => of_names(rng),
            3 if rng.percent(85) => of_shared(rng),
            4 => of_blocks(rng),
            _ => match rng.below(3) {
                0 => of_contents(rng, free_space),
                1 => of_names(rng),
                _ => of_shared(rng),
            },
        };
        ops.push(op);
    }
    ops
}

/// Calls without locks, and the changes that they race with.
fn unlocked(rng: &mut Rng, focus: u64, free_space: FreeSpace, thread: usize) -> Vec<Op> {
    let count = 3 + rng.below(8);
    let op = |rng: &mut Rng| match focus {
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
            _ => of_contents(rng, free_space),
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

/// Permission checks, mostly of files that the first thread changes.
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

/// Names of the shared directory that come and go, and calls by inode numbers that they had.
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

fn of_contents(rng: &mut Rng, free_space: FreeSpace) -> Op {
    let file = rng.below(4);
    match rng.below(14) {
        0..4 => Op::Append(file, 1 + rng.below(3000) as usize),
        4 => Op::Write(file, rng.below(4000), 1 + rng.below(2000) as usize),
        5 => Op::Direct(file, rng.below(6)),
        6 | 7 => Op::Complete(rng.below(PREALLOCATED)),
        8 => Op::Truncate(file, rng.below(3000)),
        5..10 if free_space == FreeSpace::Blocks(WINDOW_BLOCKS) => Op::Hog(300 + rng.below(900)),
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

/// Calls that move blocks between directories and files.
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

/// Calls with many syncs, for a volume with fast commits.
fn synced(rng: &mut Rng) -> Vec<Op> {
    let mut ops = vec![Op::Create];
    (0..2 + rng.below(5)).for_each(|_| of_synced(rng, &mut ops));
    ops
}

/// A few calls on one file with a sync among them: changes that a fast commit can hold and others.
fn of_synced(rng: &mut Rng, ops: &mut Vec<Op>) {
    // The first two files have unwritten blocks and an attribute block, which prevent fast commits.
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
        // Frees blocks that a fast commit names, then allocates others.
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
