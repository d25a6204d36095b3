//! The run itself, where threads are simulated cores.

use super::recent::{Met, Recent, TOGETHER};
use super::{Course, Lost, Orders, Span, Told, WriteCosts};
use crate::failure::Failure;
use crate::target::{Done, Engine, Image, Medium, OpError, Session, Target, Wanted};
use crate::turns::Turns;
use crate::workload::{Chosen, Job, Params, Seat, Step, Work, choose_counted};
use nextent::ROOT_INO;
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::sim::{self, Found, Machine, Why};
use nextent_sync::{Duration, PerCore, thread};
use std::io;

/// What a write is told to cost.
const BLOCK: u64 = 4 << 10;
/// What a device in memory makes at once.
const CHUNK: u64 = BLOCK * TOGETHER;
/// Commits come at least so often.
const COMMIT: Duration = Duration::from_secs(5);

pub(super) fn run(orders: &Orders) -> Result<Told, Failure> {
    let machine = machine(orders);
    let orders = orders.clone();
    sim::run(machine, move || inside(&orders))
}

pub(super) fn turn(orders: &Orders) -> Result<u64, Failure> {
    let machine = machine(orders);
    let orders = orders.clone();
    sim::run(machine, move || turns(&orders))
}

fn turns(orders: &Orders) -> Result<u64, Failure> {
    let (turns, each) = (Turns::default(), orders.course.operations.max(1));
    let times: Result<Vec<u64>, _> = thread::scope(|scope| {
        let side = |odd: bool| {
            let turns = &turns;
            scope.spawn(move || {
                sim::gather(orders.core(odd.into()), 2, orders.step, orders.instruction);
                let began = sim::clock();
                Turns::of(odd, each).for_each(|n| turns.take(n));
                sim::clock() - began
            })
        };
        let sides = [side(false), side(true)];
        let times = sides.into_iter().map(|side| side.join()).collect();
        sim::settle();
        times
    });
    let times = times.map_err(|_| Failure::broken("a thread panicked"))?;
    Ok(times.iter().sum::<u64>() / (4 * each))
}

fn machine(orders: &Orders) -> Machine {
    let [cores, cluster, socket, line_shift] = orders.shape;
    let [rmw, near, socket_far, across, wake, pause, offer] = orders.costs;
    let Orders { handoff, unfair, migrates, rested, uneven, sum, waker, .. } = *orders;
    let Orders { windows, window, .. } = *orders;
    let line_shift = line_shift as u32;
    Machine {
        // More of them than the machine has are simulated where that is asked.
        cores: cores.max(orders.cores),
        cluster,
        socket,
        line_shift,
        rmw,
        near,
        socket_far,
        across,
        handoff,
        unfair,
        migrates,
        rested,
        uneven,
        sum,
        wake,
        waker,
        pause,
        offer,
        window,
        windows,
    }
}

fn inside(orders: &Orders) -> Result<Told, Failure> {
    let design = crate::designs::as_in_kernels(&orders.design)?;
    let image = Image::get(&Wanted {
        medium: Medium::Memory,
        bytes: orders.course.image,
        bytes_per_inode: None,
        latency: Duration::ZERO,
        writes: orders.writes,
        stock: None,
    })?;
    let volume = image.open(design, COMMIT)?;
    let engine = match orders.course.under_root {
        true => Engine::new(&volume, ROOT_INO),
        false => Engine::in_own_directory(&volume)?,
    };
    let direct = orders.workload.starts_with("dio");
    let file_bytes = if direct { orders.course.file_bytes(orders.cores) } else { 16 << 20 };
    // The files of the published containers are taken to lie side by side: see docs/adr/0009.
    let shared = orders.workload == "fallocate2";
    let params = Params { file_bytes, bs: 4096, shared, ..Params::default() };
    let done = choose_counted(&orders.workload, Crew { target: &engine, params: &params, orders })?;
    let told = done.map_err(|error| Failure::broken(format!("{}: {error}", orders.workload)))?;
    volume.close().map_err(|error| Failure::broken(format!("close: {error}")))?;
    drop(volume);
    image.checked(&format!("{} on {}", orders.workload, orders.design))?;
    Ok(told)
}

struct Crew<'a, T> {
    target: &'a T,
    params: &'a Params,
    orders: &'a Orders,
}

/// One core's counts: operations, and picoseconds for them.
type Count = (u64, u64);

impl<T: Target> Chosen for Crew<'_, T> {
    type Out = Done<Told>;

    fn with<J: Job>(self) -> Done<Told> {
        let space = self.target.session()?.space()?;
        let threads = self.orders.cores;
        let (counts, found) = thread::scope(|scope| {
            let crew = &self;
            let members: Vec<_> = (0..threads)
                .map(|thread| {
                    let seat = Seat { thread, threads, space, params: crew.params };
                    scope.spawn(move || crew.member::<J>(&seat))
                })
                .collect();
            let counts: Vec<_> = members.into_iter().map(|member| member.join()).collect();
            (counts, sim::settle())
        });
        let mut all = Vec::new();
        for count in counts {
            all.push(count.map_err(|_| OpError::Other("a thread panicked".into()))??);
        }
        Ok(told(&all, &found))
    }
}

impl<T: Target> Crew<'_, T> {
    fn member<J: Job>(&self, seat: &Seat<'_>) -> Done<Count> {
        let session = self.target.session()?;
        let work = J::Work::prepare(&session, seat);
        let orders = self.orders;
        if seat.thread == 0 {
            sim::learn(&orders.code);
        }
        sim::gather(orders.core(seat.thread), seat.threads, orders.step, orders.instruction);
        let mut work = work?;
        let all = seat.threads as u64;
        let Course { warm, operations, .. } = orders.course;
        let (warm, enough) = (warm * all, (warm + operations) * all);
        let [first, many] = orders.stepped;
        let (mut ops, mut began) = (0_u64, None);
        loop {
            let before = sim::tally(1);
            if before >= enough {
                sim::over();
                break;
            }
            if before >= warm && began.is_none() {
                began = Some(sim::clock());
                sim::forget();
                if many > 0 && seat.thread == 0 {
                    sim::note_places();
                }
            }
            if many > 0 && seat.thread == 0 && began.is_some() {
                match ops.checked_sub(first) {
                    Some(0) => sim::step_through(),
                    Some(n) if n == many => sim::run_on(),
                    _ => {}
                }
            }
            sim::rest(self.orders.rest);
            sim::work(self.orders.entry);
            if work.step(&session)? == Step::Over {
                if began.is_none() {
                    let text = "fewer operations than that are to be had";
                    return Err(OpError::Other(text.into()));
                }
                sim::over();
                break;
            }
            ops += u64::from(began.is_some());
        }
        let took = began.map_or(0, |began| sim::clock() - began);
        Ok((ops, took))
    }
}

fn told(counts: &[Count], found: &Found) -> Told {
    let rate =
        |&(ops, took): &Count| if took == 0 { 0.0 } else { ops as f64 / (took as f64 * 1e-12) };
    let ops: u64 = counts.iter().map(|count| count.0).sum();
    let why = found.why.iter().map(|(why, class, site, charge)| Lost {
        waiting: *why == Why::Lock,
        class: class.map(|class| class.name.to_owned()).unwrap_or_default(),
        at: site
            .map(|site| crate::count::shortened(&site.to_string()).to_owned())
            .unwrap_or_default(),
        count: charge.count,
        time: charge.time,
    });
    Told {
        ops_per_s: counts.iter().map(rate).sum(),
        primitives: found.operations as f64 / ops.max(1) as f64,
        changes: found.changes as f64 / ops.max(1) as f64,
        stretches: found.told as f64 / ops.max(1) as f64,
        spans: found.spans.iter().map(|found| span(found, ops)).collect(),
        time: counts.iter().map(|count| count.1).sum(),
        why: why.collect(),
    }
}

fn span(found: &sim::Span, ops: u64) -> Span {
    let sim::Span { from, to, times, stepped, instructions, changes } = *found;
    let each = stepped.max(1) as f64;
    let instructions = (stepped > 0).then_some(instructions / each);
    let times = times as f64 / ops.max(1) as f64;
    Span { from, to, times, instructions, changes: changes as f64 / each }
}

/// A device that costs the simulated cores what they are told, and no more: it stands for one that
/// has locks and memory of its own.
pub(crate) struct Aside {
    memory: MemoryDevice,
    /// While one core writes, and while more do.
    writes: [WriteCosts; 2],
    /// Until when each core writes. Relaxed: others look at it, each after its own clock.
    busy: PerCore<AtomicU64>,
    /// The blocks that each core has in its caches.
    recent: PerCore<Recent>,
}

impl Aside {
    pub(crate) fn new(memory: MemoryDevice, writes: [WriteCosts; 2]) -> Self {
        let recent = PerCore::new(|_| Recent::default());
        Self { memory, writes, busy: PerCore::new(|_| AtomicU64::new(0)), recent }
    }

    /// Picoseconds of a write that begins now.
    fn cost(&self, offset: u64, len: u64) -> io::Result<u64> {
        let now = sim::clock();
        let beside = self.busy.used().any(|until| until.load(Ordering::Relaxed) > now);
        let WriteCosts { first, more, again, late, near, next } = self.writes[usize::from(beside)];
        let (mut at, end, mut cost) = (offset, offset + len, 0);
        while at < end {
            let chunk = at / CHUNK * CHUNK;
            let part = end.min(chunk + CHUNK);
            let there = self.memory.next_data(at)?.is_some_and(|data| data.start < part);
            // A chunk that is made is zeroed in whole.
            let met = if there { at..part } else { chunk..chunk + CHUNK };
            let blocks = met.start / BLOCK..met.end.div_ceil(BLOCK);
            let old: u64 = blocks
                .map(|block| match self.recent.here().meet(block) {
                    Met::Again => again,
                    Met::Next => next,
                    Met::Near => near,
                    Met::Late => late,
                })
                .sum();
            cost += match there {
                false => first + more * ((part - at).div_ceil(BLOCK) - 1),
                true => old,
            };
            at = part;
        }
        // From three quarters to five quarters of that: of writes of 4 KiB of one kind on Zen 4 a
        // tenth takes less, and a tenth more than 1.2 to 1.3 times what the middle one takes.
        let cost = sim::about(cost);
        self.busy.here().store(now + cost, Ordering::Relaxed);
        Ok(cost)
    }
}

impl BlockDevice for Aside {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        sim::unpaid(|| self.memory.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        if self.writes != [WriteCosts::default(); 2] {
            sim::work(sim::unpaid(|| self.cost(offset, buf.len() as u64))?);
        }
        sim::unpaid(|| self.memory.write_at(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        sim::unpaid(|| self.memory.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        sim::unpaid(|| self.memory.discard(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        sim::unpaid(|| self.memory.write_zeroes(offset, len))
    }

    fn is_read_only(&self) -> bool {
        false
    }
}
