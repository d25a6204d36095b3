//! The oracle for a power cut: an image that a cut could leave is recovered and checked.

use nextent::inodes::{InodeNo, Inodes};
use nextent::{FileType, OpenOptions};
use nextent_device::{Event, Loss, MemoryDevice, Recording, SECTOR};
use nextent_sim as sim;
use nextent_sync::Arc;
use nextent_testkit::Rng;

use crate::base_volumes::{dir, own_name};
use crate::durability::{RecoveredFiles, check_guarantees, read_file};
use crate::judge::{Verdict, clean};
use crate::plan::THREADS;
use crate::schedule::Outcome;

/// Byte offset of the superblock.
const SUPERBLOCK_OFFSET: u64 = 1024;

/// Cuts the power at a point derived from `seed`, recovers the image and checks it.
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
    let clone = device.clone();
    let recovered = sim::explore(None, move || recover(&clone))
        .and_then(|found| found)
        .map_err(|text| ("recovery", format!("cut at {cut} of {events}: {text}")))?;
    let describe = |(by, text)| (by, format!("cut at {cut} of {events}: {text}"));
    clean(&device, thorough).map(drop).map_err(|(by, text)| {
        let by = if by == "fsck" { "fsck after a crash" } else { "e2fsck after a crash" };
        describe((by, text))
    })?;
    let marks: Vec<u64> = recording.marks_before(cut).collect();
    let guarantees = outcome.records.iter().flat_map(|record| &record.guarantees);
    let made = guarantees.filter(|guarantee| marks.contains(&guarantee.mark));
    check_guarantees(&recovered, made, cut)
        .map_err(|text| describe(("contents after a crash", text)))
}

/// Chooses which writes since the last flush are lost or torn.
fn loss(recording: &Recording, cut: usize, rng: &mut Rng) -> Loss {
    let chance = 10 + rng.below(81);
    let mut loss = Loss::default();
    for event in recording.unstable_at(cut) {
        if rng.percent(chance) {
            loss.lost.push(event);
        } else if let Event::Write { offset, data } = &recording.events()[event]
            // As in Linux, recovery repairs a torn superblock only if the log has a copy of it.
            && *offset != SUPERBLOCK_OFFSET
            && rng.percent(15)
        {
            let sectors = data.len().div_ceil(SECTOR) + 1;
            loss.torn.push((event, (0..sectors).map(|_| rng.percent(50)).collect()));
        }
    }
    loss
}

/// Opens the volume, reads the threads' files and closes it.
pub(crate) fn recover(device: &Arc<MemoryDevice>) -> Result<RecoveredFiles, String> {
    let describe = |error: nextent::Error| error.to_string();
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).map_err(describe)?;
    let mut found = RecoveredFiles::new();
    for thread in 0..THREADS {
        let own = dir(&volume, &own_name(thread))?;
        for (name, ino) in files(&volume, own).map_err(describe)? {
            let number: u8 = name[1..].parse().map_err(|_| format!("a file called {name}"))?;
            read_file(&volume, &mut found, number, (&name, ino))?;
        }
    }
    volume.close().map_err(describe)?;
    Ok(found)
}

fn files(volume: &Inodes, dir: InodeNo) -> nextent::Result<Vec<(String, InodeNo)>> {
    let mut files = Vec::new();
    volume.readdir(dir, 0, &mut |entry| {
        if entry.kind == Some(FileType::Regular) {
            files.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
        }
        true
    })?;
    Ok(files)
}
