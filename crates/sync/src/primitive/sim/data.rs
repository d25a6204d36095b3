//! Plain data: lines that come with a lock, or that code declares.
//!
//! Those in a row are asked for together, as many as a core has on their way at once. What nobody
//! has asked for is had at once, which is most of it; where others have asked, as for a line with a
//! lock's word in it, they have it first, and the caller stops until it is there.

use super::lines::Use;
use super::world::{self, World};

/// Lines that a core has on their way at once: ten or so, less what else is waited for.
const IN_FLIGHT: usize = 8;

/// Lines on their way to the caller, and for which use.
type Coming = Vec<(usize, Use)>;

/// Uses the lines of so many bytes.
pub(crate) fn data(address: usize, bytes: usize, which: Use) {
    let row = world::with(|world| {
        let end = address + bytes.checked_sub(1)?;
        world.is_charging().then(|| (world.machine.line(address), world.machine.line(end)))
    });
    let Some((first, last)) = row.flatten() else { return };
    for begin in (first..=last).step_by(IN_FLIGHT) {
        let end = last.min(begin + IN_FLIGHT - 1);
        let waits = |world: &mut World| (begin..=end).any(|line| world.waits_for_others(line));
        if world::with(waits) == Some(true) {
            world::let_others();
        }
        let coming = world::with(|world| world.row(begin, end, which));
        let Some(coming) = coming.filter(|coming| !coming.is_empty()) else { continue };
        world::let_others();
        world::with(|world| {
            let (core, now) = (world.me().core, world.now());
            coming.into_iter().for_each(|(line, meant)| world.lines.arrive(line, core, meant, now));
        });
    }
}

impl World {
    /// Uses some lines in a row together, but for those that are returned.
    fn row(&mut self, first: usize, last: usize, which: Use) -> Coming {
        let began = self.now();
        let (mut latest, mut lost, mut coming) = (began, 0, Coming::new());
        for line in first..=last {
            self.me().clock = began;
            let (wish, standing) = self.standing(line, which);
            if standing.is_mine(&wish) || !self.lines.is_asked_for(line) {
                lost = lost.max(self.touch(line, &wish, standing));
                latest = latest.max(self.now());
            } else if !self.lines.is_stored_by(line, wish.core) {
                let (there, meant) = self.lines.ask(&self.machine, line, &wish, standing);
                (latest, lost) = (latest.max(there), lost.max(there - began));
                coming.push((line, meant));
            }
        }
        self.me().clock = latest;
        self.me().has_waited(began);
        self.me().there = latest;
        self.lose(lost);
        coming
    }
}
