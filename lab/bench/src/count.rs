//! Counting rounds: what locks and shared stores there are, found out apart from all timing.
//!
//! This crate is compiled twice (see `lab/copies/counted/README.md`). The copy whose locks are
//! counted runs [`count`]. The one that times calls it there, and takes its result as plain values.

use crate::failure::Failure;
use crate::plan::{Plan, Request};
use crate::run::{Cell, Finding};
use nextent_sync::stats::{CallSite, ClassStats};
use nextent_sync::{Duration, stats};

/// What a class of locks did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// The class's name.
    pub class: String,
    /// Times that a lock was taken; stores, for the class of all atomics.
    pub acquired: u64,
    /// Times that a lock was held by someone else.
    pub contended: u64,
    /// Stores to what another thread stored to last.
    pub shared_stores: u64,
    /// Time waited, in all and at most.
    pub wait_ns: [u64; 2],
    /// Time held, in all and at most.
    pub hold_ns: [u64; 2],
    /// Who held a lock while others waited, the worst first.
    pub holders: Vec<Site>,
    /// Where stores were shared, the worst first.
    pub sharers: Vec<Site>,
}

/// A place in the sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// File, line and column.
    pub at: String,
    /// How often.
    pub count: u64,
    /// How long others waited.
    pub wait_ns: u64,
}

/// What a counting round found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Operations that were counted.
    pub ops: u64,
    /// By class, the most contended first.
    pub classes: Vec<ClassCounts>,
    /// What was not good, a line each.
    pub problems: Vec<String>,
}

/// Runs the one cell of `request` with its locks counted, until `enough` operations are done or the
/// request's time is over.
///
/// # Errors
/// As [`measure`](crate::measure), and [`Failure::Usage`] in the copy whose locks are not counted.
pub fn count(
    request: &Request,
    enough: u64,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Counted, Failure> {
    if !stats::AVAILABLE {
        return Err(Failure::usage("this program was built without lock statistics"));
    }
    let plan = Plan::new(request)?;
    let cell = Cell {
        plan: &plan,
        column: &plan.columns[0],
        threads: plan.threads[0],
        counted: Some(enough),
        seconds: plan.seconds,
        interrupted,
    };
    let Finding { outcome, problems, .. } = cell.run()?;
    let mut problems: Vec<String> =
        problems.into_iter().flatten().map(|problem| format!("fsck: {problem}")).collect();
    problems.extend(outcome.failure.map(|error| error.to_string()));
    let ops = outcome.per_thread.iter().sum();
    Ok(Counted { ops, classes: outcome.locks.iter().map(class).collect(), problems })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A place without the way there from the package that the sources were compiled for.
pub(crate) fn shortened(at: &str) -> &str {
    at.rfind("crates/").map_or(at, |start| &at[start..])
}

fn class(stats: &ClassStats) -> ClassCounts {
    let sites = |sites: &[CallSite]| {
        let site = |site: &CallSite| Site {
            at: shortened(&site.at.to_string()).to_owned(),
            count: site.count,
            wait_ns: nanos(site.wait),
        };
        sites.iter().map(site).collect()
    };
    ClassCounts {
        class: stats.name.to_owned(),
        acquired: stats.acquisitions,
        contended: stats.contentions,
        shared_stores: stats.shared_stores,
        wait_ns: [nanos(stats.wait_total), nanos(stats.wait_max)],
        hold_ns: [nanos(stats.hold_total), nanos(stats.hold_max)],
        holders: sites(&stats.holders),
        sharers: sites(&stats.sharers),
    }
}

/// [`count`] of the copy whose locks are counted.
#[cfg(feature = "counting")]
pub(crate) fn counted(
    request: &Request,
    enough: u64,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Counted, Failure> {
    use nextent_bench_counted as copy;
    let Request { workload, targets, designs, threads, seconds, repeat, .. } = request.clone();
    let Request {
        image_size, image, pin, lockstat, shared, loadfile, file_size, lock_kind, ..
    } = request.clone();
    let Request { bs, depth, latency, .. } = request.clone();
    let theirs = copy::Request {
        workload,
        targets,
        designs,
        threads,
        seconds,
        repeat,
        image_size,
        image,
        pin,
        lockstat,
        shared,
        loadfile,
        file_size,
        lock_kind,
        bs,
        depth,
        latency,
    };
    let found = copy::count(&theirs, enough, interrupted).map_err(|failure| match failure {
        copy::Failure::Usage(text) => Failure::Usage(text),
        copy::Failure::Broken(text) => Failure::Broken(text),
    })?;
    let sites = |sites: Vec<copy::Site>| {
        let site = |copy::Site { at, count, wait_ns }| Site { at, count, wait_ns };
        sites.into_iter().map(site).collect()
    };
    let class = |theirs: copy::ClassCounts| ClassCounts {
        class: theirs.class,
        acquired: theirs.acquired,
        contended: theirs.contended,
        shared_stores: theirs.shared_stores,
        wait_ns: theirs.wait_ns,
        hold_ns: theirs.hold_ns,
        holders: sites(theirs.holders),
        sharers: sites(theirs.sharers),
    };
    let classes = found.classes.into_iter().map(class).collect();
    Ok(Counted { ops: found.ops, classes, problems: found.problems })
}

#[cfg(not(feature = "counting"))]
pub(crate) use count as counted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_begin_at_the_crate() {
        assert_eq!(
            shortened("lab/copies/counted/a/../../../../crates/a/src/b.rs:1:2"),
            "crates/a/src/b.rs:1:2"
        );
        assert_eq!(shortened("src/b.rs:1:2"), "src/b.rs:1:2");
    }
}
