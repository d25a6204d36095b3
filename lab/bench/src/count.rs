//! Counting rounds: lock statistics and shared stores, counted in runs that are not timed.
//!
//! This crate is compiled twice (see `lab/copies/counted/README.md`). The copy with counted locks
//! runs [`count`]. The copy that times calls it there and converts its result.

use crate::failure::Failure;
use crate::plan::{Plan, Request};
use crate::run::{Cell, CellResult};
use nextent_sync::stats::{CallSite, ClassStats};
use nextent_sync::{Duration, stats};

/// Statistics of a lock class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// The class's name.
    pub class: String,
    /// Acquisitions; for the class of all atomics, stores.
    pub acquired: u64,
    /// Acquisitions that had to wait for another holder.
    pub contended: u64,
    /// Stores to a word to which another thread stored last.
    pub shared_stores: u64,
    /// Wait time: total and maximum.
    pub wait_ns: [u64; 2],
    /// Hold time: total and maximum.
    pub hold_ns: [u64; 2],
    /// Call sites that held a lock while other threads waited, longest waits first.
    pub holders: Vec<Site>,
    /// Call sites of shared stores, most frequent first.
    pub sharers: Vec<Site>,
}

/// A place in the sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// File, line and column.
    pub at: String,
    /// Events at this place.
    pub count: u64,
    /// Time that other threads waited.
    pub wait_ns: u64,
}

/// The result of a counting round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Operations in the counted time.
    pub ops: u64,
    /// Classes, most contended first.
    pub classes: Vec<ClassCounts>,
    /// A line for each failure or problem.
    pub problems: Vec<String>,
}

/// Runs the one cell of `request` with counted locks, for `enough` operations or the request's
/// time, whichever ends first.
///
/// # Errors
/// As [`measure`](crate::measure), and [`Failure::Usage`] in a copy without counted locks.
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
    let CellResult { outcome, problems, .. } = cell.run()?;
    let mut problems: Vec<String> =
        problems.into_iter().flatten().map(|problem| format!("fsck: {problem}")).collect();
    problems.extend(outcome.failure.map(|error| error.to_string()));
    let ops = outcome.per_thread.iter().sum();
    Ok(Counted { ops, classes: outcome.locks.iter().map(class).collect(), problems })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A call site's path from the workspace's root: the copies compile it by a longer path.
#[must_use]
pub fn shortened(at: &str) -> &str {
    let start = at.rfind("crates/").or_else(|| at.rfind("historical/"));
    start.map_or(at, |start| &at[start..])
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

/// [`count`] in the copy with counted locks.
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
    fn call_sites_begin_at_the_workspace() {
        assert_eq!(
            shortened("lab/copies/counted/a/../../../../crates/a/src/b.rs:1:2"),
            "crates/a/src/b.rs:1:2"
        );
        assert_eq!(shortened("src/b.rs:1:2"), "src/b.rs:1:2");
    }
}
