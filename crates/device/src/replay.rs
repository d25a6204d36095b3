//! Builds the images that a crash can leave.
//!
//! A crash at `cut` keeps every write that a flush which returned before `cut` made stable, and any
//! subset of the other writes before `cut`, each possibly torn at sectors. It has no later write.

use crate::record::Event;
use crate::{BlockDevice, MemoryDevice, SECTOR};
use nextent_num::{to_u64, to_usize};

/// A snapshot is stored at each multiple of this many events.
const STRIDE: usize = 128;

/// The writes that a crash loses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Events whose writes are lost completely.
    pub lost: Vec<usize>,
    /// Events whose writes are torn: the event and, for each sector of the write, whether it
    /// survives. Missing sectors are lost.
    pub torn: Vec<(usize, Vec<bool>)>,
}

/// All events of a device since a known image.
pub struct Recording {
    events: Vec<Event>,
    /// The images before events 0, STRIDE, 2 STRIDE and so on.
    stations: Vec<MemoryDevice>,
}

impl Recording {
    /// A recording of `events` since the image `base`.
    pub fn new(base: MemoryDevice, events: Vec<Event>) -> Self {
        let mut stations = vec![base.snapshot()];
        let running = base;
        for (n, event) in events.iter().enumerate() {
            apply(&running, event);
            if (n + 1).is_multiple_of(STRIDE) {
                stations.push(running.snapshot());
            }
        }
        Self { events, stations }
    }

    /// The events, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The image if all writes before event `cut` survived, and no later one.
    ///
    /// # Panics
    ///
    /// If `cut` exceeds the number of events.
    pub fn image_at(&self, cut: usize) -> MemoryDevice {
        let station = cut / STRIDE;
        let image = self.stations[station].snapshot();
        for event in &self.events[station * STRIDE..cut] {
            apply(&image, event);
        }
        image
    }

    /// The event before which all writes are stable, for a crash at `cut`.
    pub fn stable_at(&self, cut: usize) -> usize {
        let flushes = self.events[..cut].iter().filter_map(|event| match event {
            Event::Flush { began } => Some(*began),
            _ => None,
        });
        flushes.max().unwrap_or(0)
    }

    /// The writes that a crash at `cut` may lose.
    pub fn unstable_at(&self, cut: usize) -> Vec<usize> {
        (self.stable_at(cut)..cut).filter(|&n| is_write(&self.events[n])).collect()
    }

    /// Interesting cuts: the start, the end, and before and after each flush.
    pub fn flush_cuts(&self) -> Vec<usize> {
        let mut cuts = vec![0, self.events.len()];
        for (n, event) in self.events.iter().enumerate() {
            if matches!(event, Event::Flush { .. }) {
                cuts.extend([n, n + 1]);
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// The test's marks before `cut`.
    pub fn marks_before(&self, cut: usize) -> impl Iterator<Item = u64> {
        self.events[..cut].iter().filter_map(|event| match event {
            Event::Mark(mark) => Some(*mark),
            _ => None,
        })
    }

    /// The image after a crash at `cut` that lost `loss`.
    ///
    /// # Panics
    ///
    /// If `loss` has an event that is not in [`unstable_at`](Self::unstable_at), because no crash
    /// can lose it.
    pub fn image_with(&self, cut: usize, loss: &Loss) -> MemoryDevice {
        let stable = self.stable_at(cut);
        let named = loss.lost.iter().chain(loss.torn.iter().map(|(n, _)| n));
        for &n in named {
            let fair = n >= stable && n < cut && is_write(&self.events[n]);
            assert!(fair, "event {n} cannot be lost by a crash at {cut}");
        }
        let image = self.image_at(stable);
        for (n, event) in self.events.iter().enumerate().take(cut).skip(stable) {
            if loss.lost.contains(&n) {
                continue;
            }
            match loss.torn.iter().find(|(torn, _)| *torn == n) {
                Some((_, kept)) => apply_torn(&image, event, kept),
                None => apply(&image, event),
            }
        }
        image
    }
}

fn is_write(event: &Event) -> bool {
    matches!(event, Event::Write { .. } | Event::Zero { .. })
}

fn apply(image: &MemoryDevice, event: &Event) {
    let done = match event {
        Event::Write { offset, data } => image.write_at(*offset, data),
        Event::Zero { offset, len } => image.write_zeroes(*offset, *len),
        Event::Discard { .. } | Event::Flush { .. } | Event::Mark(_) => Ok(()),
    };
    done.expect("an event was within a device of the same size when it was recorded");
}

/// Applies the surviving sectors of a write.
fn apply_torn(image: &MemoryDevice, event: &Event, kept: &[bool]) {
    let (start, len) = match event {
        Event::Write { offset, data } => (*offset, to_u64(data.len())),
        Event::Zero { offset, len } => (*offset, *len),
        _ => return,
    };
    for piece in crate::range::pieces(SECTOR, start, len) {
        let sector = to_usize(piece.unit - start / to_u64(SECTOR));
        if !kept.get(sector).copied().unwrap_or(false) {
            continue;
        }
        let at = start + piece.done;
        let done = match event {
            Event::Write { data, .. } => image.write_at(at, &data[piece.of_buffer()]),
            _ => image.write_zeroes(at, to_u64(piece.len)),
        };
        done.expect("part of an event that was within the device when it was recorded");
    }
}
