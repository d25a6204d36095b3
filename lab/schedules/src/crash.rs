//! The power is cut somewhere in a schedule; what is left is recovered and judged.

use nextent::{FileType, InodeNo, OpenOptions, Volume};
use nextent_device::{Event, Loss, MemoryDevice, Recording, SECTOR};
use nextent_sync::{Arc, sim};
use nextent_testkit::Rng;

use crate::image::{dir, own_name};
use crate::judge::{Verdict, clean};
use crate::plan::THREADS;
use crate::promise::{Found, kept, see};
use crate::schedule::Outcome;

/// Where the superblock is.
const SUPER_OFFSET: u64 = 1024;

/// Cuts the power at a place that `seed` says, and judges.
pub(crate) fn judge(outcome: &Outcome, seed: u64, thorough: bool) -> Verdict {
    let mut rng = Rng::new(seed);
    let recording = &outcome.recording;
    let events = recording.events().len();
    let cuts = recording.flush_cuts();
    let cut = match rng.percent(60) {
        true => *rng.pick(&cuts),
        false => rng.below(events as u64 + 1) as usize,
    };
    let image = match rng.below(3) {
        0 => recording.image_at(cut),
        1 => recording.image_at(recording.stable_at(cut)),
        _ => recording.image_with(cut, &loss(recording, cut, &mut rng)),
    };
    let device = Arc::new(image);
    let theirs = device.clone();
    let recovered = sim::explore(None, move || recover(&theirs))
        .and_then(|found| found)
        .map_err(|text| ("recovery", format!("cut at {cut} of {events}: {text}")))?;
    let told = |(by, text)| (by, format!("cut at {cut} of {events}: {text}"));
    clean(&device, thorough).map(drop).map_err(|(by, text)| {
        let by = if by == "fsck" { "fsck after a crash" } else { "e2fsck after a crash" };
        told((by, text))
    })?;
    let marks: Vec<u64> = recording.marks_before(cut).collect();
    let promises = outcome.records.iter().flat_map(|record| &record.promises);
    let made = promises.filter(|promise| marks.contains(&promise.mark));
    kept(&recovered, made, cut).map_err(|text| told(("contents after a crash", text)))
}

/// What an unstable write may lose.
fn loss(recording: &Recording, cut: usize, rng: &mut Rng) -> Loss {
    let chance = 10 + rng.below(81);
    let mut loss = Loss::default();
    for event in recording.unstable_at(cut) {
        if rng.percent(chance) {
            loss.lost.push(event);
        } else if let Event::Write { offset, data } = &recording.events()[event]
            // Half a superblock is mended by the log only if that holds it, as with Linux.
            && *offset != SUPER_OFFSET
            && rng.percent(15)
        {
            let sectors = data.len().div_ceil(SECTOR) + 1;
            loss.torn.push((event, (0..sectors).map(|_| rng.percent(50)).collect()));
        }
    }
    loss
}

/// Opens the volume, reads the threads' files and closes it.
pub(crate) fn recover(device: &Arc<MemoryDevice>) -> Result<Found, String> {
    let told = |error: nextent::Error| error.to_string();
    let volume = Volume::open(device.clone(), &OpenOptions::default()).map_err(told)?;
    let mut found = Found::new();
    for thread in 0..THREADS {
        let own = dir(&volume, &own_name(thread))?;
        for (name, ino) in files(&volume, own).map_err(told)? {
            let number: u8 = name[1..].parse().map_err(|_| format!("a file called {name}"))?;
            see(&volume, &mut found, number, (&name, ino))?;
        }
    }
    volume.close().map_err(told)?;
    Ok(found)
}

fn files(volume: &Volume, dir: InodeNo) -> nextent::Result<Vec<(String, InodeNo)>> {
    let mut files = Vec::new();
    volume.readdir(dir, 0, &mut |entry| {
        if entry.kind == Some(FileType::Regular) {
            files.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
        }
        true
    })?;
    Ok(files)
}
