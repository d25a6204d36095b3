//! One schedule from its number to its judgement.

use std::fmt;

use nextent::{Cred, FallocateMode, InodeNo, NewNode, OpenOptions, Volume};
use nextent_device::{MemoryDevice, Recording, RecordingDevice};
use nextent_ondisk::Compat;
use nextent_sync::{Arc, sim, thread};

use crate::bugs::InjectedBug;
use crate::image::{Base, Bases, dir, own_name};
use crate::linear::Names;
use crate::plan::{Plan, Room, THREADS};
use crate::worker::{Record, Stage, Worker, read};
use crate::{closed, crash, judge, unlocked};

/// What was wrong in a schedule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which oracle says so, in a word or two.
    pub by: &'static str,
    /// What it says.
    pub text: String,
    /// The calls of all threads, as far as they are known.
    pub story: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.by, self.text)
    }
}

/// What is left when all threads have ended.
pub(crate) struct Outcome {
    pub(crate) records: Vec<Record>,
    /// Names in the shared directory.
    pub(crate) names: Names,
    /// What was appended to the shared file.
    pub(crate) log: Vec<u8>,
    /// Blocks and inodes that the open volume said were free.
    pub(crate) free: (u64, u64),
    pub(crate) overruns: u64,
    pub(crate) recording: Recording,
    pub(crate) device: Arc<RecordingDevice<MemoryDevice>>,
    /// Steps taken and a number for all turns.
    pub(crate) steps: u64,
    pub(crate) trace: u64,
}

/// Runs schedule `seed` with `bug` injected. Returns its steps and a hash of the scheduler's
/// decisions. With `thorough` e2fsck judges the image, too.
///
/// # Errors
/// What was wrong.
pub fn run(
    bases: &Bases,
    seed: u64,
    bug: Option<&'static InjectedBug>,
    thorough: bool,
) -> Result<(u64, u64), Failure> {
    run_plan(bases, &Plan::new(seed), bug, thorough)
}

fn run_plan(
    bases: &Bases,
    plan: &Plan,
    bug: Option<&'static InjectedBug>,
    thorough: bool,
) -> Result<(u64, u64), Failure> {
    let fail = |by, text| Failure { by, text, story: Vec::new() };
    let base = bases.get(plan.kind).map_err(|text| fail("setup", text))?.clone();
    let (theirs, start) = (plan.clone(), base.clone());
    let ran = sim::explore(bug.map(|bug| bug.name), move || perform(&start, &theirs));
    let outcome = ran.map_err(|text| fail(kind_of(&text), text))?;
    let outcome = outcome.map_err(|text| fail("an error", text))?;
    let judged = match plan.close {
        None => judge::judge(&base, &outcome, thorough),
        Some(_) => closed::judge(&outcome, thorough),
    };
    let judged = judged.and_then(|()| crash::judge(&outcome, plan.crash, thorough));
    let told = (outcome.steps, outcome.trace);
    judged.map(|()| told).map_err(|(by, text)| {
        let mut story: Vec<String> =
            outcome.records.into_iter().flat_map(|record| record.story).collect();
        story.sort();
        Failure { by, text, story }
    })
}

/// What kind of end a run came to that did not end by itself.
fn kind_of(text: &str) -> &'static str {
    match text {
        _ if text.starts_with("lock order") => "lock order",
        _ if text.starts_with("all simulated threads wait") => "deadlock",
        _ if text.starts_with("nothing moves") || text.starts_with("no end") => "deadlock",
        _ => "assertion",
    }
}

/// Makes all durable. With fast commits also puts all in place, since there is none before.
fn put_in_place(volume: &Volume) -> nextent::Result<()> {
    if !volume.superblock().features().has(Compat::FAST_COMMIT) {
        return volume.sync();
    }
    volume.freeze()?;
    volume.thaw()
}

fn perform(base: &Base, plan: &Plan) -> Result<Outcome, String> {
    let device = Arc::new(RecordingDevice::new(base.device.snapshot()));
    // In half of the schedules an inode leaves memory as soon as nobody has it.
    let cache_bytes = plan.turns.seed.is_multiple_of(2).then_some(0);
    let options = OpenOptions { cache_bytes, ..OpenOptions::default() };
    let opened = Volume::open(device.clone(), &options);
    let volume = Arc::new(opened.map_err(|error| format!("open: {error}"))?);
    let shared = dir(&volume, b"shared")?;
    let log = volume
        .mknod(&Cred::root(), shared, b"log", NewNode::Regular, 0o644)
        .map_err(|error| format!("the shared file: {error}"))?;
    let (log, room, closes) = (log.ino, plan.room, plan.close.is_some());
    let watched = unlocked::watched(&volume, shared)?;
    let owns = owns(&volume)?;
    let (opened, recorded) = (&*volume, &*device);
    let stage =
        Stage { volume: opened, device: recorded, shared, owns, log, watched, room, closes };
    let mut workers = Vec::new();
    for (thread, own) in owns.into_iter().enumerate() {
        let mut worker = Worker::new(&stage, thread, own);
        worker.prepare().map_err(|error| format!("preparing: {error}"))?;
        workers.push(worker);
    }
    fill(&volume, shared, plan.room)?;
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
    let told = |error: nextent::Error| format!("at the end: {error}");
    if volume.superblock().error_count.get() != 0 {
        return Err("damage was noted of a sound volume".into());
    }
    volume.sync().map_err(told)?;
    let free = volume.statfs().map_err(told)?;
    let log = read(&volume, log).map_err(told)?;
    let names = names(&volume, shared).map_err(told)?;
    let overruns = volume.credit_overruns();
    let (steps, trace) = (sim::steps(), sim::trace());
    volume.close().map_err(told)?;
    drop(volume);
    let recording = device.recording();
    let free = (free.blocks_free, free.files_free);
    Ok(Outcome { records, names, log, free, overruns, recording, device, steps, trace })
}

/// The directories of the threads.
fn owns(volume: &Volume) -> Result<[InodeNo; THREADS], String> {
    let mut owns = [InodeNo(0); THREADS];
    for (thread, own) in owns.iter_mut().enumerate() {
        *own = dir(volume, &own_name(thread))?;
    }
    Ok(owns)
}

/// Leaves as much room as the plan says.
fn fill(volume: &Volume, shared: InodeNo, room: Room) -> Result<(), String> {
    let left = match room {
        Room::Plenty => return Ok(()),
        Room::Blocks(left) => left,
        Room::None => 0,
    };
    let told = |error: nextent::Error| format!("filling: {error}");
    let root = Cred::root();
    let made = volume.mknod(&root, shared, b"ballast", NewNode::Regular, 0o600).map_err(told)?;
    let (mut at, mut piece) = (0, 1 << 20);
    while piece >= 1024 {
        let have = volume.statfs().map_err(told)?.blocks_free * 1024;
        let fits = have.saturating_sub(left * 1024) >= piece;
        let mode = FallocateMode::KeepSize;
        match fits.then(|| volume.fallocate(&root, made.ino, mode, at, piece)) {
            Some(Ok(())) => at += piece,
            None | Some(Err(nextent::Error::NoSpace)) => piece /= 2,
            Some(Err(error)) => return Err(told(error)),
        }
    }
    Ok(())
}

/// The shared names and what they mean.
fn names(volume: &Volume, shared: InodeNo) -> nextent::Result<Names> {
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
    use nextent_sync::sim::{Choice, Turns};

    /// Runs the same calls in many schedules.
    fn many(kind: usize, room: Room, ops: [Vec<Op>; THREADS]) {
        let bases = Bases::default();
        for seed in 0..300 {
            let choice = match seed % 2 {
                0 => Choice::Walk(1 + seed % 7),
                _ => Choice::Priorities(1 + seed % 5, 2500),
            };
            let turns = Turns { seed, choice, most: 400_000 };
            let plan = Plan { turns, kind, room, ops: ops.to_vec(), crash: seed, close: None };
            if let Err(failure) = run_plan(&bases, &plan, None, false) {
                panic!("{seed}: {failure}\n{}", failure.story.join("\n"));
            }
        }
    }

    /// Who has removed a file still has its inode while another makes one of the same number, for
    /// which there is no room: one of the two frees it, once it is known as an orphan.
    #[test]
    fn a_number_changes_hands_without_room() {
        let unlinks = vec![Op::Create, Op::Unlink(1), Op::Create, Op::Unlink(1)];
        let makes = vec![Op::Mkdir, Op::Mkdir, Op::Mkdir];
        many(2, Room::None, [unlinks, makes.clone(), makes]);
    }

    /// The same with a file that never has a name.
    #[test]
    fn a_number_changes_hands_to_a_file_without_a_name() {
        let unlinks = vec![Op::Create, Op::Unlink(1), Op::Create, Op::Unlink(1)];
        let makes = vec![Op::Tmpfile, Op::Tmpfile, Op::Tmpfile];
        many(2, Room::Plenty, [unlinks, makes.clone(), makes]);
    }
}
