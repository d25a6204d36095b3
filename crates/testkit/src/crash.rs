//! The crash explorer makes the images that a power cut could leave, up to a bound, and checks them
//! in parallel.
//!
//! | kind | cut | writes before the cut |
//! |---|---|---|
//! | prefix | after each write | all |
//! | bare | at each flush | only those that were stable |
//! | subset | at each flush | the stable ones and a seeded choice of others, some torn between sectors |

use crate::Rng;
use nextent_device::{Event, Loss, MemoryDevice, Recording, SECTOR};
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{LockClass, Mutex, thread};

static FOUND: LockClass = LockClass::new("testkit.crash", 2);

/// The most failures that are kept.
const SHOWN: usize = 5;

/// The writes that an image lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// None: all writes before the cut survived.
    Prefix,
    /// All writes that were not stable.
    Bare,
    /// A choice of the unstable writes, some torn; the number is the seed of the choice.
    Subset(u64),
}

/// A power cut.
#[derive(Clone, Debug)]
pub struct CutInfo {
    /// Events before the cut.
    pub cut: usize,
    /// The lost writes.
    pub variant: Variant,
    /// The test's marks before the cut.
    pub marks: Vec<u64>,
}

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct CrashReport {
    /// Images checked.
    pub checked: usize,
    /// Images without the bound.
    pub possible: usize,
    /// The first failures, each with its cut.
    pub failures: Vec<String>,
}

impl CrashReport {
    /// Panics with the first failures if there are any.
    ///
    /// # Panics
    /// If a check failed.
    #[track_caller]
    pub fn assert_none_failed(&self) {
        let shown = self.failures.join("\n");
        assert!(self.failures.is_empty(), "of {} crashes some failed:\n{shown}", self.checked);
    }
}

/// Parameters of an exploration.
#[derive(Clone, Debug)]
pub struct Explorer {
    /// The seed of all random choices.
    pub seed: u64,
    /// Random subsets at each flush.
    pub subsets: usize,
    /// The most images to check; of more, an even choice is checked.
    pub most: usize,
    /// Threads to check with.
    pub threads: usize,
}

impl Default for Explorer {
    fn default() -> Self {
        let threads = nextent_sync::available_cores();
        Self { seed: 1, subsets: 3, most: 400, threads }
    }
}

impl Explorer {
    /// Checks the images of `recording`; the error of `check` is a failure.
    pub fn explore<F>(&self, recording: &Recording, check: F) -> CrashReport
    where
        F: Fn(MemoryDevice, &CutInfo) -> Result<(), String> + Sync,
    {
        let all = self.plan(recording);
        let chosen = thin(&all, self.most);
        let (next, checked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let failures = Mutex::new(&FOUND, Vec::new());
        thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    while let Some(&(cut, variant)) =
                        chosen.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let marks = recording.marks_before(cut).collect();
                        let info = CutInfo { cut, variant, marks };
                        let image = self.image(recording, cut, variant);
                        if let Err(text) = check(image, &info) {
                            failures.lock().push((cut, format!("{info:?}: {text}")));
                            // Enough failures: the other threads may stop, too.
                            if failures.lock().len() >= SHOWN {
                                next.store(chosen.len(), Ordering::Relaxed);
                            }
                        }
                        checked.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let mut failures = failures.into_inner();
        failures.sort();
        CrashReport {
            checked: checked.into_inner(),
            possible: all.len(),
            failures: failures.into_iter().map(|(_, text)| text).collect(),
        }
    }

    /// All images to check, in the order of their cuts.
    fn plan(&self, recording: &Recording) -> Vec<(usize, Variant)> {
        let flush_cuts = recording.flush_cuts();
        let mut all = Vec::new();
        for cut in 0..=recording.events().len() {
            let changes = cut == 0 || !matches!(recording.events()[cut - 1], Event::Mark(_));
            if changes {
                all.push((cut, Variant::Prefix));
            }
            if flush_cuts.binary_search(&cut).is_err() || recording.unstable_at(cut).is_empty() {
                continue;
            }
            all.push((cut, Variant::Bare));
            for n in 0..self.subsets {
                let seed = self.seed ^ ((cut as u64) << 20) ^ n as u64;
                all.push((cut, Variant::Subset(seed)));
            }
        }
        all
    }

    /// The image of one crash; the same for the same arguments.
    pub fn image(&self, recording: &Recording, cut: usize, variant: Variant) -> MemoryDevice {
        match variant {
            Variant::Prefix => recording.image_at(cut),
            Variant::Bare => recording.image_at(recording.stable_at(cut)),
            Variant::Subset(seed) => recording.image_with(cut, &loss(recording, cut, seed)),
        }
    }
}

/// A random loss. All unstable writes of an image are lost with the same probability, and a few of
/// the kept ones are torn.
fn loss(recording: &Recording, cut: usize, seed: u64) -> Loss {
    let mut rng = Rng::new(seed);
    let chance = 10 + rng.below(81);
    let mut loss = Loss::default();
    for event in recording.unstable_at(cut) {
        if rng.percent(chance) {
            loss.lost.push(event);
        } else if rng.percent(15) {
            let sectors = match &recording.events()[event] {
                Event::Write { data, .. } => data.len().div_ceil(SECTOR) + 1,
                Event::Zero { len, .. } => (len.div_ceil(SECTOR as u64) + 1).min(4096) as usize,
                _ => 0,
            };
            let kept = (0..sectors).map(|_| rng.percent(50)).collect();
            loss.torn.push((event, kept));
        }
    }
    loss
}

/// At most `most` of the items, evenly spread, including the last.
fn thin<T: Copy>(items: &[T], most: usize) -> Vec<T> {
    if items.len() <= most {
        return items.to_vec();
    }
    let most = most.max(1);
    (1..=most).map(|n| items[n * items.len() / most - 1]).collect()
}
