//! One schedule: from its number to the verdict of the oracles.

use std::fmt;

use nextent::inodes::{FallocateMode, InodeNo, Inodes, NewNode};
use nextent::{Cred, OpenOptions};
use nextent_device::{MemoryDevice, Recording, RecordingDevice};
use nextent_ondisk::Compat;
use nextent_sim as sim;
use nextent_sync::{Arc, thread};

use crate::base_volumes::{BaseVolume, BaseVolumes, dir, own_name};
use crate::bugs::InjectedBug;
use crate::linearizability::Names;
use crate::plan::{FreeSpace, Plan, THREADS};
use crate::worker::{SharedState, Worker, WorkerRecord, read};
use crate::{closed, crash, judge, unlocked};

/// An error found in a schedule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The oracle that found it, in a word or two.
    pub by: &'static str,
    /// Its description.
    pub text: String,
    /// The calls of all threads, with their steps and results.
    pub history: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.by, self.text)
    }
}

/// The state after all threads have ended.
pub(crate) struct Outcome {
    pub(crate) records: Vec<WorkerRecord>,
    /// The names in the shared directory.
    pub(crate) names: Names,
    /// The contents of the shared file.
    pub(crate) log: Vec<u8>,
    /// Free blocks and inodes by the counts of the open volume.
    pub(crate) free: (u64, u64),
    pub(crate) overruns: u64,
    pub(crate) recording: Recording,
    pub(crate) device: Arc<RecordingDevice<MemoryDevice>>,
    /// Steps, and a hash of the scheduler's decisions.
    pub(crate) steps: u64,
    pub(crate) trace: u64,
}

/// Runs schedule `seed` with `bug` injected. Returns its steps and a hash of the scheduler's
/// decisions. With `thorough` e2fsck judges the image, too.
///
/// # Errors
/// The error that an oracle found.
pub fn run(
    bases: &BaseVolumes,
    seed: u64,
    bug: Option<&'static InjectedBug>,
    thorough: bool,
) -> Result<(u64, u64), Failure> {
    run_plan(bases, &Plan::new(seed), bug, thorough)
}

fn run_plan(
    bases: &BaseVolumes,
    plan: &Plan,
    bug: Option<&'static InjectedBug>,
    thorough: bool,
) -> Result<(u64, u64), Failure> {
    let fail = |by, text| Failure { by, text, history: Vec::new() };
    let base = bases.get(plan.kind).map_err(|text| fail("setup", text))?.clone();
    let (clone, start) = (plan.clone(), base.clone());
    let ran = sim::explore(bug.map(|bug| bug.name), move || perform(&start, &clone));
    let outcome = ran.map_err(|text| fail(kind_of(&text), text))?;
    let outcome = outcome.map_err(|text| fail("an error", text))?;
    let judged = match plan.close {
        None => judge::judge(&base, &outcome, thorough),
        Some(_) => closed::judge(&outcome, thorough),
    };
    let judged = judged.and_then(|()| crash::judge(&outcome, plan.crash, thorough));
    let describe = (outcome.steps, outcome.trace);
    judged.map(|()| describe).map_err(|(by, text)| {
        let mut history: Vec<String> =
            outcome.records.into_iter().flat_map(|record| record.history).collect();
        history.sort();
        Failure { by, text, history }
    })
}

/// The oracle that stopped a run, by the text of its panic.
fn kind_of(text: &str) -> &'static str {
    match text {
        _ if text.starts_with("lock order") => "lock order",
        _ if text.starts_with("all simulated threads wait") => "deadlock",
        _ if text.starts_with("nothing moves") || text.starts_with("no end") => "deadlock",
        _ => "assertion",
    }
}

/// Makes everything durable. On a volume with fast commits it also empties the log, which the
/// first fast commit needs.
fn put_in_place(volume: &Inodes) -> nextent::Result<()> {
    if !volume.superblock().features().has(Compat::FAST_COMMIT) {
        return volume.sync();
    }
    volume.freeze()?;
    volume.thaw()
}

fn perform(base: &BaseVolume, plan: &Plan) -> Result<Outcome, String> {
    let device = Arc::new(RecordingDevice::new(base.device.snapshot()));
    // In half of the schedules an inode leaves the cache with its last reference.
    let cache_bytes = plan.turns.seed.is_multiple_of(2).then_some(0);
    let options = OpenOptions::new().cache_bytes(cache_bytes);
    let opened = Inodes::open(device.clone(), &options);
    let volume = Arc::new(opened.map_err(|error| format!("open: {error}"))?);
    let shared = dir(&volume, b"shared")?;
    let log = volume
        .mknod(&Cred::root(), shared, b"log", NewNode::Regular, 0o644)
        .map_err(|error| format!("the shared file: {error}"))?;
    let (log, free_space, closes) = (log.ino, plan.free_space, plan.close.is_some());
    let watched = unlocked::watched(&volume, shared)?;
    let own_dirs = own_dirs(&volume)?;
    let (opened, recorded) = (&*volume, &*device);
    let shared_state = SharedState {
        volume: opened,
        device: recorded,
        shared,
        own_dirs,
        log,
        watched,
        free_space,
        closes,
    };
    let mut workers = Vec::new();
    for (thread, own) in own_dirs.into_iter().enumerate() {
        let mut worker = Worker::new(&shared_state, thread, own);
        worker.prepare().map_err(|error| format!("preparing: {error}"))?;
        workers.push(worker);
    }
    fill(&volume, shared, plan.free_space)?;
    put_in_place(&volume).map_err(|error| format!("first sync: {error}"))?;
    sim::shuffle(plan.turns);
    thread::scope(|scope| {
        for (worker, ops) in workers.iter_mut().zip(&plan.ops) {
            scope.spawn(move || worker.run(ops));
        }
        if let Some(pauses) = plan.close {
            let volume = &volume;
            let closed = scope.spawn(move || {
                (0..pauses).for_each(|_| thread::yield_now());
                volume.close()
            });
            let closed = closed.join().map_err(|_| "the closing thread panicked".to_owned())?;
            closed.map_err(|error| format!("close beside operations: {error}"))?;
        }
        Ok::<_, String>(())
    })?;
    for worker in &mut workers {
        (0..worker.record.files.len()).for_each(|at| worker.compare(at));
    }
    let records = workers.into_iter().map(|worker| worker.record).collect();
    let describe = |error: nextent::Error| format!("at the end: {error}");
    if volume.superblock().error_count.get() != 0 {
        return Err("damage was noted of a sound volume".into());
    }
    volume.sync().map_err(describe)?;
    let free = volume.statfs().map_err(describe)?;
    let log = read(&volume, log).map_err(describe)?;
    let names = names(&volume, shared).map_err(describe)?;
    let overruns = volume.credit_overruns();
    let (steps, trace) = (sim::steps(), sim::trace());
    volume.close().map_err(describe)?;
    drop(volume);
    let recording = device.recording();
    let free = (free.blocks_free, free.files_free);
    Ok(Outcome { records, names, log, free, overruns, recording, device, steps, trace })
}

/// Looks up the directories of the threads.
fn own_dirs(volume: &Inodes) -> Result<[InodeNo; THREADS], String> {
    let mut own_dirs = [InodeNo(0); THREADS];
    for (thread, own) in own_dirs.iter_mut().enumerate() {
        *own = dir(volume, &own_name(thread))?;
    }
    Ok(own_dirs)
}

/// Fills the volume until it has as much free space as the plan says.
fn fill(volume: &Inodes, shared: InodeNo, free_space: FreeSpace) -> Result<(), String> {
    let left = match free_space {
        FreeSpace::Plenty => return Ok(()),
        FreeSpace::Blocks(left) => left,
        FreeSpace::None => 0,
    };
    let describe = |error: nextent::Error| format!("filling: {error}");
    let root = Cred::root();
    let made =
        volume.mknod(&root, shared, b"ballast", NewNode::Regular, 0o600).map_err(describe)?;
    let (mut at, mut piece) = (0, 1 << 20);
    while piece >= 1024 {
        let have = volume.statfs().map_err(describe)?.blocks_free * 1024;
        let fits = have.saturating_sub(left * 1024) >= piece;
        let mode = FallocateMode::KeepSize;
        match fits.then(|| volume.fallocate(&root, made.ino, mode, at, piece)) {
            Some(Ok(())) => at += piece,
            None | Some(Err(nextent::Error::NoSpace)) => piece /= 2,
            Some(Err(error)) => return Err(describe(error)),
        }
    }
    Ok(())
}

/// Reads the names of the shared directory with their inodes.
fn names(volume: &Inodes, shared: InodeNo) -> nextent::Result<Names> {
    let mut names = Names::new();
    volume.readdir(shared, 0, &mut |entry| {
        let text = std::str::from_utf8(entry.name).unwrap_or_default();
        if let Some(n) = text.strip_prefix('n').and_then(|n| n.parse().ok()) {
            names.insert(n, entry.ino.0);
        }
        true
    })?;
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Op;
    use nextent_sim::{Choice, Turns};

    /// Runs the same calls under many schedules.
    fn many(kind: usize, free_space: FreeSpace, ops: [Vec<Op>; THREADS]) {
        let bases = BaseVolumes::default();
        for seed in 0..300 {
            let choice = match seed % 2 {
                0 => Choice::Walk(1 + seed % 7),
                _ => Choice::Priorities(1 + seed % 5, 2500),
            };
            let turns = Turns { seed, choice, most: 400_000 };
            let plan =
                Plan { turns, kind, free_space, ops: ops.to_vec(), crash: seed, close: None };
            if let Err(failure) = run_plan(&bases, &plan, None, false) {
                panic!("{seed}: {failure}\n{}", failure.history.join("\n"));
            }
        }
    }

    /// One thread removes a file while another one allocates an inode of the same number on a full
    /// volume. One of the two must free the inode, once it is an orphan.
    #[test]
    fn an_inode_number_is_reused_on_a_full_volume() {
        let unlinks = vec![Op::Create, Op::Unlink(1), Op::Create, Op::Unlink(1)];
        let makes = vec![Op::Mkdir, Op::Mkdir, Op::Mkdir];
        many(2, FreeSpace::None, [unlinks, makes.clone(), makes]);
    }

    /// The same with a file that never has a name.
    #[test]
    fn an_inode_number_is_reused_by_a_file_without_a_name() {
        let unlinks = vec![Op::Create, Op::Unlink(1), Op::Create, Op::Unlink(1)];
        let makes = vec![Op::Tmpfile, Op::Tmpfile, Op::Tmpfile];
        many(2, FreeSpace::Plenty, [unlinks, makes.clone(), makes]);
    }
}
