//! One run of a target, a design and a number of threads: from a new image to its check.

use super::workers::{self, Outcome, RunOptions};
use crate::failure::Failure;
use crate::plan::{Column, Location, Plan};
use crate::target::{Directory, Done, Engine, Image, ImageSpec, OpError, Session, Sizes, Target};
use crate::workload::{self, Job, Params, PerWorkload};
use nextent_sync::Duration;
use std::path::Path;

/// The commit interval.
pub(super) const COMMIT: Duration = Duration::from_secs(5);

/// A run.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) column: &'a Column,
    pub(crate) threads: usize,
    /// Count locks and shared stores, for so many operations.
    pub(crate) counted: Option<u64>,
    pub(crate) seconds: Duration,
    pub(crate) interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// The result of a run.
pub(crate) struct CellResult {
    pub(crate) outcome: Outcome,
    /// Sizes of the image after the run, if it could be read.
    pub(crate) sizes: Option<Sizes>,
    /// A line for each problem that the check found. `None` without a check.
    pub(crate) problems: Option<Vec<String>>,
}

impl Cell<'_> {
    /// Runs it.
    pub(crate) fn run(&self) -> Result<CellResult, Failure> {
        match &self.column.location {
            Location::Engine => self.on_engine(),
            Location::Directory(path) => self.on_directory(path),
        }
    }

    fn on_directory(&self, path: &Path) -> Result<CellResult, Failure> {
        let dir = Directory::at(path)?;
        let outcome = self.by_workload(&dir)?;
        dir.flush();
        Ok(CellResult { outcome, sizes: None, problems: None })
    }

    fn on_engine(&self) -> Result<CellResult, Failure> {
        let image = Image::get(&self.image_spec())?;
        let volume = image.open(self.column.design.unwrap_or_default(), COMMIT)?;
        let outcome = self.by_workload(&Engine::in_own_directory(&volume)?);
        // The check sees the image as the run left it. From an image file that is kept, the run
        // removes its directory first.
        let removed = match self.plan.keeps_image() {
            true => Engine::remove_own_directory(&volume),
            false => Ok(()),
        };
        let closed = volume.close();
        drop(volume);
        let outcome = outcome?;
        removed.map_err(|error| Failure::broken(format!("removing nextent-bench: {error}")))?;
        closed.map_err(|error| Failure::broken(format!("close: {error}")))?;
        let report = image.check()?;
        let mut problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        if report.is_clean() {
            problems.clear();
        }
        Ok(CellResult { outcome, sizes: image.sizes(), problems: Some(problems) })
    }

    fn image_spec(&self) -> ImageSpec {
        self.plan.image_spec()
    }

    /// Runs the workload's code for this target.
    fn by_workload<T: Target>(&self, target: &T) -> Result<Outcome, Failure> {
        self.check_room(target)?;
        let bs = self.column.bs.unwrap_or(self.plan.params.bs);
        let depth = self.plan.depth;
        let params = Params { bs, depth, ..self.plan.params.clone() };
        let options = RunOptions {
            threads: self.threads,
            seconds: self.seconds,
            warm_up: self.plan.warm_up(self.seconds),
            pin: self.plan.pin,
            counted: self.counted,
            params: &params,
            interrupted: self.interrupted,
        };
        let outcome = workload::choose(self.plan.workload, Timed { target, options });
        outcome.map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &OpError) -> Failure {
        let (workload, column) = (self.plan.workload.name(), &self.column.label);
        Failure::broken(format!("{workload} on {column} with {} threads: {error}", self.threads))
    }

    /// Refuses a run that cannot fit on the file system.
    fn check_room<T: Target>(&self, target: &T) -> Result<(), Failure> {
        let space = target.session().and_then(|session| session.space());
        let free = space.map_err(|error| self.broken(&error))?.free_bytes;
        let need = self.plan.workload.required_bytes(self.threads, self.plan.params.file_bytes);
        if free >= need {
            return Ok(());
        }
        let (free, need) = (free >> 20, (need >> 20) + 1);
        let hint = match self.column.location {
            Location::Engine => "a larger --image-size",
            Location::Directory(_) => "a larger file system",
        };
        Err(Failure::usage(format!(
            "{}: {free} MiB are free, {} with {} threads needs {need} MiB: {hint} or fewer threads",
            self.column.label,
            self.plan.workload.name(),
            self.threads
        )))
    }
}

/// A timed run of any workload.
struct Timed<'a, T> {
    target: &'a T,
    options: RunOptions<'a>,
}

impl<T: Target> PerWorkload for Timed<'_, T> {
    type Out = Done<Outcome>;

    fn with<J: Job>(self) -> Self::Out {
        workers::run::<J, T>(self.target, &self.options)
    }
}
