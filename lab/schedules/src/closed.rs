//! What must be true of a volume that was closed while the threads ran.
//!
//! The closed image holds what every call reported as done. A call that was refused may have done a
//! part: its file is left out. Files that were open without a name are left to the next open.

use nextent::OpenOptions;
use nextent::Volume;
use nextent_sync::{Arc, sim};

use crate::crash::recover;
use crate::judge::{self, Verdict, clean};
use crate::promise::kept;
use crate::schedule::Outcome;

/// Judges the closed image, and what the next open makes of it.
pub(crate) fn judge(outcome: &Outcome, thorough: bool) -> Verdict {
    if let Some(text) = outcome.records.iter().flat_map(|record| &record.wrong).next() {
        return Err(("model", text.clone()));
    }
    let device = Arc::new(outcome.device.inner().snapshot());
    let theirs = device.clone();
    let transactions = sim::explore(None, move || {
        let opened = Volume::open(theirs, &OpenOptions::default());
        opened.map(|volume| volume.recovery().transactions).map_err(|error| error.to_string())
    });
    match transactions.and_then(|opened| opened) {
        Ok(0) => {}
        Ok(n) => return Err(("close", format!("{n} transactions are left in the log"))),
        Err(text) => return Err(("close", format!("the closed image does not open: {text}"))),
    }
    let theirs = device.clone();
    let found = sim::explore(None, move || recover(&theirs)).and_then(|found| found);
    let found = found.map_err(|text| ("close", text))?;
    let promises = outcome.records.iter().flat_map(|record| &record.promises);
    kept(&found, promises, usize::MAX).map_err(|text| ("close", text))?;
    for record in &outcome.records {
        for file in &record.files {
            let unsure = record.unsure == Some(file.number);
            let seen = found.get(&file.number);
            if !unsure && seen.map(|seen| &seen.bytes) != Some(&file.bytes) {
                let len = seen.map(|seen| seen.bytes.len());
                let text =
                    format!("file {} has {len:?} of {} bytes", file.number, file.bytes.len());
                return Err(("close", text));
            }
        }
    }
    if outcome.records.iter().all(|record| !record.refused) {
        judge::shared(outcome)?;
    }
    clean(&device, thorough).map(drop)
}
