//! Short runs of the real engine on cores of this machine, set up as those that are simulated:
//! files that one thread has made in one directory, an image of the same size, locks that spin.

use crate::designs;
use crate::failure::Failure;
use crate::plan::{Plan, Request};
use crate::report::Report;
use crate::run::{Crowd, Pair, crowd, pair};
use nextent_bench_simulated::Course;
use nextent_device::MemoryStock;
use nextent_sync::Duration;

/// How long threads work on an image of the usual course before the clock counts: until the engine
/// has its groups in memory.
pub(super) const WARM_UP: Duration = Duration::from_millis(200);

/// A workload with a design.
pub(super) struct Real<'a> {
    pub(super) workload: &'a str,
    pub(super) design: &'a str,
    /// What the image and a file of direct writes are to be as in.
    pub(super) course: Course,
    pub(super) warm_up: Duration,
    /// Whether threads rest after each operation.
    pub(super) rests: bool,
    /// Seconds of a run.
    pub(super) seconds: f64,
    /// Where images have their memory from.
    pub(super) stock: &'a MemoryStock,
}

impl Real<'_> {
    /// Operations a second of so many threads, each on a core of its own, from core `first` on.
    ///
    /// # Errors
    /// [`Failure::Usage`] for an unknown name, [`Failure::Broken`] for what broke.
    pub(super) fn rate(&self, first: usize, threads: usize) -> Result<f64, Failure> {
        Ok(report(&self.plan(first, threads)?)?.median_rate(0, threads))
    }

    /// What so many threads do on cores from `first` on, on one volume and each on its own, in
    /// turns.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub(super) fn crowd(&self, first: usize, threads: usize) -> Result<Crowd, Failure> {
        crowd(&self.plan(first, threads)?, &self.plan(first, 1)?, first, threads)
    }

    /// What two threads do on the first two cores, and each of them alone, in turns.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub(super) fn pair(&self) -> Result<Pair, Failure> {
        pair(&self.plan(0, 2)?, &self.plan(0, 1)?)
    }

    /// The same of one core, in the mean of the first `cores`: those of a virtual machine are not
    /// equally fast at a time.
    pub(super) fn rate_of_one(&self, cores: usize) -> Result<f64, Failure> {
        let rates: Result<Vec<f64>, _> = (0..cores).map(|first| self.rate(first, 1)).collect();
        Ok(rates?.iter().sum::<f64>() / cores as f64)
    }

    fn plan(&self, first: usize, threads: usize) -> Result<Plan, Failure> {
        let plan = Plan::new(&self.request(first, threads)?)?;
        Ok(plan
            .with_warm_up(self.warm_up)
            .with_stock(self.stock)
            .with_rests(self.rests)
            .uncounted())
    }

    fn request(&self, first: usize, threads: usize) -> Result<Request, Failure> {
        let direct = self.workload.starts_with("dio");
        Ok(Request {
            workload: self.workload.to_owned(),
            targets: vec!["engine".to_owned()],
            designs: vec![self.design.to_owned()],
            threads: vec![threads],
            seconds: self.seconds,
            repeat: 1,
            image_size: Some(self.course.image),
            image: None,
            lock_kind: designs::named(self.design)?.has_old_locks().then(|| "spin".to_owned()),
            pin: Some(first),
            lockstat: false,
            shared: self.workload == "fallocate2",
            loadfile: None,
            file_size: direct.then(|| self.course.file_bytes(threads)),
            bs: Vec::new(),
            depth: None,
            latency: None,
        })
    }
}

fn report(plan: &Plan) -> Result<Report, Failure> {
    let report = crate::measure(plan, &|| false, &mut |_, _| ())?;
    match report.failures().first() {
        Some(failure) => Err(Failure::broken(failure.clone())),
        None => Ok(report),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Cycle;

    #[test]
    fn two_threads_and_one_take_turns() {
        let course = Course { image: 1 << 30, ..Course::usual(1000) };
        let (stock, warm_up) = (&MemoryStock::default(), Duration::from_millis(1));
        let real = |workload, seconds| {
            let design = "nextent";
            let rests = true;
            let found = Real { workload, design, course, warm_up, rests, seconds, stock }.pair();
            found.expect("it runs")
        };
        let Pair { cycles, together, alone } = real("handles", 0.06);
        assert_eq!(cycles.len(), 20);
        // Some were made before, to warm up.
        for reach in [together, alone] {
            assert!((16..reach.after / 2).contains(&reach.before), "{reach:?}");
        }
        // Where other programs run, a thread may not come to its part before that is over.
        let worked = |cycle: &&Cycle| {
            let alone = cycle.alone.map(|part| part.expect("it goes on"));
            let parts = [cycle.both, alone[0], alone[1]];
            assert!(parts.iter().all(|part| part.seconds > 0.0), "{cycle:?}");
            assert!(cycle.turns.iter().all(|turn| *turn > 1.0), "{cycle:?}");
            parts.iter().all(|part| part.rate > 0.0)
        };
        assert!(cycles.iter().filter(worked).count() >= cycles.len() / 2, "{cycles:?}");
        // A file that is full ends it.
        let Pair { cycles, together, .. } = real("dio-overwrite", 100.0);
        assert!(!cycles.is_empty() && together.after > 100, "{together:?}");
    }

    #[test]
    fn many_threads_are_measured_together_and_apart() {
        let course = Course { image: 1 << 30, ..Course::usual(4000) };
        let (stock, warm_up) = (&MemoryStock::default(), Duration::from_millis(1));
        for workload in ["handles", "dio-overwrite"] {
            let (design, rests, seconds) = ("nextent", true, 0.01);
            let real = Real { workload, design, course, warm_up, rests, seconds, stock };
            // On more cores than there may be.
            let Crowd { bouts, together, apart } = real.crowd(1, 5).expect("it runs");
            assert!(bouts.iter().all(|bout| bout.together.rate > 0.0), "{bouts:?}");
            for reach in [together, apart] {
                assert!(reach.before <= reach.after && reach.after > 0, "{workload}: {reach:?}");
            }
        }
    }
}
