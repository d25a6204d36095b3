//! The oracles for a volume after all threads have ended.

use nextent::check::{CheckOptions, check};
use nextent_device::MemoryDevice;
use nextent_sync::Arc;
use nextent_testkit::e2fs;

use crate::base_volumes::BaseVolume;
use crate::linearizability;
use crate::schedule::Outcome;

/// The oracle that found an error, and its text.
pub(crate) type Verdict = Result<(), (&'static str, String)>;

/// Checks the models, the volume and its counts of free space; with `thorough` also by e2fsck.
pub(crate) fn judge(base: &BaseVolume, outcome: &Outcome, thorough: bool) -> Verdict {
    if let Some(text) = outcome.records.iter().flat_map(|record| &record.wrong).next() {
        return Err(("model", text.clone()));
    }
    shared(outcome)?;
    let device = outcome.device.inner().snapshot();
    let (blocks, inodes) = clean(&device, thorough)?;
    let counted = (base.blocks - blocks, base.inodes - inodes);
    if counted != outcome.free {
        let text = format!("free blocks and inodes {:?}, counted {counted:?}", outcome.free);
        return Err(("counts", text));
    }
    if outcome.overruns > 0 {
        return Err(("counts", format!("{} credits beyond the estimate", outcome.overruns)));
    }
    Ok(())
}

/// Checks the file and the directory that all threads share.
pub(crate) fn shared(outcome: &Outcome) -> Verdict {
    appended(outcome)?;
    let calls: Vec<_> = outcome.records.iter().map(|record| record.calls.clone()).collect();
    if !linearizability::is_linearizable(&calls, &outcome.names) {
        let text = format!("no order explains {calls:?} and {:?}", outcome.names);
        return Err(("order of calls", text));
    }
    Ok(())
}

/// Checks that each appended record is there once, complete, in the order of its thread.
fn appended(outcome: &Outcome) -> Verdict {
    let wrong = |text: String| Err(("model", text));
    let mut next = vec![0; outcome.records.len()];
    if !outcome.log.len().is_multiple_of(64) {
        return wrong(format!("the shared file has {} bytes", outcome.log.len()));
    }
    for (at, record) in outcome.log.chunks(64).enumerate() {
        let what = [record[0], record[1]];
        let thread = usize::from(what[0].wrapping_sub(b'A'));
        let whole = record.chunks(2).all(|pair| pair == what);
        let expected = outcome.records.get(thread).and_then(|one| one.appended.get(next[thread]));
        if !whole || expected != Some(&what) {
            return wrong(format!("record {at} of the shared file is {record:?}"));
        }
        next[thread] += 1;
    }
    match outcome.records.iter().zip(next).all(|(one, next)| one.appended.len() == next) {
        true => Ok(()),
        false => wrong("records of the shared file are missing".into()),
    }
}

/// Checks the volume. Returns its blocks and inodes in use.
pub(crate) fn clean(
    device: &MemoryDevice,
    thorough: bool,
) -> Result<(u64, u64), (&'static str, String)> {
    let device = Arc::new(device.snapshot());
    let checked = check(device.clone(), &CheckOptions::default(), &|_| ());
    let report = checked.map_err(|error| ("fsck", error.to_string()))?;
    if !report.is_clean() || thorough {
        let clone = e2fsck(&device);
        if !report.is_clean() {
            let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
            let agrees = if clone.is_ok() { " (e2fsck finds nothing)" } else { "" };
            return Err(("fsck", problems.join("; ") + agrees));
        }
        clone?;
    }
    Ok((report.totals.blocks_used, report.totals.inodes_used))
}

/// Runs `e2fsck -fn` if it is installed.
fn e2fsck(device: &MemoryDevice) -> Verdict {
    let describe = |error: std::io::Error| ("setup", error.to_string());
    let dir = tempfile::tempdir().map_err(describe)?;
    let path = dir.path().join("image");
    device.save(&path).map_err(describe)?;
    match e2fs::e2fsck(&path) {
        Ok(report) if !report.is_clean() => Err(("e2fsck", report.text)),
        _ => Ok(()),
    }
}
