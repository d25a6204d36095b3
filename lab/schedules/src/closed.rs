//! The oracle for a volume that was closed while the threads ran.
//!
//! The closed image holds the result of each call that succeeded. A call that failed because the
//! volume was closed may have done a part, so its file is not compared. The next open removes open
//! files without a name.

use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_sim as sim;
use nextent_sync::Arc;

use crate::crash::recover;
use crate::durability::check_guarantees;
use crate::judge::{self, Verdict, clean};
use crate::schedule::Outcome;

/// Checks the closed image, and its contents after the next open.
pub(crate) fn judge(outcome: &Outcome, thorough: bool) -> Verdict {
    if let Some(text) = outcome.records.iter().flat_map(|record| &record.wrong).next() {
        return Err(("model", text.clone()));
    }
    let device = Arc::new(outcome.device.inner().snapshot());
    let clone = device.clone();
    let transactions = sim::explore(None, move || {
        let opened = Inodes::open(clone, &OpenOptions::default());
        opened.map(|volume| volume.recovery().transactions).map_err(|error| error.to_string())
    });
    match transactions.and_then(|opened| opened) {
        Ok(0) => {}
        Ok(n) => return Err(("close", format!("{n} transactions are left in the log"))),
        Err(text) => return Err(("close", format!("the closed image does not open: {text}"))),
    }
    let clone = device.clone();
    let found = sim::explore(None, move || recover(&clone)).and_then(|found| found);
    let found = found.map_err(|text| ("close", text))?;
    let guarantees = outcome.records.iter().flat_map(|record| &record.guarantees);
    check_guarantees(&found, guarantees, usize::MAX).map_err(|text| ("close", text))?;
    for record in &outcome.records {
        for file in &record.files {
            let partly_changed = record.partly_changed == Some(file.number);
            let seen = found.get(&file.number);
            if !partly_changed && seen.map(|seen| &seen.bytes) != Some(&file.bytes) {
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
