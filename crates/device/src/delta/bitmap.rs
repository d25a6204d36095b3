//! Which units are in the delta: the bitmap in memory, loaded by pages when they are first needed.
//!
//! Invariants:
//!
//! - A bit is set in memory only after the data of its unit is written, and never cleared.
//! - A bit is on the device only if the data of its unit is stable: [`Bitmap::take_changed`]
//!   precedes the flush of the data, and its sectors are written after that flush.
//! - A page whose bits are all clear takes no memory until a bit is set.

use super::format::{
    BITMAP_AT, Layout, PAGE, PAGE_SECTORS, PAGE_WORDS, SECTOR_WORDS, WORD_UNITS, decode_sector,
    encode_sector,
};
use super::{CHANGED, damaged_bitmap};
use crate::{BlockDevice, SECTOR};
use nextent_num::{to_u64, to_usize};
use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use nextent_sync::{Mutex, OnceLock};
use std::io;

/// The bits of all units.
pub(super) struct Bitmap {
    pages: Box<[Slot]>,
    /// Numbers of the sectors that differ from the device. The sector's own mark prevents that a
    /// number is in the list twice.
    changed: Mutex<Vec<u64>>,
}

/// The place of a page.
#[derive(Default)]
struct Slot {
    /// The page was read, and no bit was set. If there is a page, this says nothing.
    is_empty: AtomicBool,
    page: OnceLock<Page>,
}

struct Page {
    words: Box<[AtomicU64]>,
    /// Sectors that differ from the device.
    changed: [AtomicBool; PAGE_SECTORS],
}

impl Page {
    fn new(words: impl Iterator<Item = u64>) -> Self {
        Self { words: words.map(AtomicU64::new).collect(), changed: Default::default() }
    }
}

/// A word and its place.
#[derive(Clone, Copy)]
struct Place {
    page: usize,
    within: usize,
}

impl Place {
    fn of(word: u64) -> Self {
        let words = to_u64(PAGE_WORDS);
        Self { page: to_usize(word / words), within: to_usize(word % words) }
    }
}

impl Bitmap {
    pub(super) fn new(layout: &Layout) -> Self {
        let pages = (0..layout.pages).map(|_| Slot::default()).collect();
        Self { pages, changed: Mutex::new(&CHANGED, Vec::new()) }
    }

    /// The bits of 64 units.
    pub(super) fn word(&self, store: &impl BlockDevice, word: u64) -> io::Result<u64> {
        let place = Place::of(word);
        let slot = &self.pages[place.page];
        if slot.page.get().is_none() && !slot.is_empty.load(Ordering::Acquire) {
            self.load(store, place.page)?;
        }
        // A page is looked for last: its first bit may have been set meanwhile.
        Ok(slot.page.get().map_or(0, |page| page.words[place.within].load(Ordering::Acquire)))
    }

    /// Sets bits of a word that [`word`](Self::word) has returned. The data of their units is
    /// written.
    pub(super) fn set(&self, word: u64, bits: u64) {
        let place = Place::of(word);
        let none = || Page::new(std::iter::repeat_n(0, PAGE_WORDS));
        let page = self.pages[place.page].page.get_or_init(none);
        page.words[place.within].fetch_or(bits, Ordering::AcqRel);
        let sector = place.within / SECTOR_WORDS;
        if !page.changed[sector].swap(true, Ordering::AcqRel) {
            self.changed.lock().push(to_u64(place.page * PAGE_SECTORS + sector));
        }
    }

    /// Whether `unit` is in the delta, and the end of the run of units, up to `end`, of which the
    /// same is true.
    pub(super) fn run(
        &self,
        store: &impl BlockDevice,
        unit: u64,
        end: u64,
    ) -> io::Result<(bool, u64)> {
        let mut at = unit;
        let mut present = None;
        while at < end {
            let bits = self.word(store, at / WORD_UNITS)?;
            let shift = at % WORD_UNITS;
            let first = bits >> shift & 1 == 1;
            if *present.get_or_insert(first) != first {
                break;
            }
            let others = if first { !bits } else { bits };
            let same = u64::from((others >> shift).trailing_zeros()).min(WORD_UNITS - shift);
            at += same;
            if shift + same < WORD_UNITS {
                break;
            }
        }
        Ok((present.unwrap_or(false), at.min(end)))
    }

    /// Reads all pages, so that damage is found.
    pub(super) fn load_all(&self, store: &impl BlockDevice) -> io::Result<()> {
        (0..to_u64(self.pages.len()))
            .try_for_each(|page| self.word(store, page * to_u64(PAGE_WORDS)).map(|_| ()))
    }

    /// Whether the pages in memory agree with the device. There are no unflushed bits.
    pub(super) fn is_unchanged(&self, store: &impl BlockDevice) -> io::Result<bool> {
        for (number, slot) in self.pages.iter().enumerate() {
            let page = slot.page.get();
            if page.is_none() && !slot.is_empty.load(Ordering::Acquire) {
                continue;
            }
            let now = read_page(store, number)?;
            let same = match page {
                Some(page) => page
                    .words
                    .iter()
                    .map(|word| word.load(Ordering::Acquire))
                    .eq(now.iter().copied().flatten()),
                None => now.iter().flatten().all(|word| *word == 0),
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn load(&self, store: &impl BlockDevice, number: usize) -> io::Result<()> {
        let words = read_page(store, number)?;
        let slot = &self.pages[number];
        match words.iter().flatten().all(|word| *word == 0) {
            true => slot.is_empty.store(true, Ordering::Release),
            // Two threads may read a page at the same time. The device has no newer bits until a
            // page is in memory, so both read the same.
            false => {
                let _ = slot.page.get_or_init(|| Page::new(words.into_iter().flatten()));
            }
        }
        Ok(())
    }

    /// The numbers of the changed sectors, in rising order, and their bytes. They count as
    /// unchanged from now on.
    pub(super) fn take_changed(&self) -> Vec<(u64, [u8; SECTOR])> {
        let mut numbers = std::mem::take(&mut *self.changed.lock());
        numbers.sort_unstable();
        numbers.into_iter().filter_map(|number| Some((number, self.take_sector(number)?))).collect()
    }

    fn take_sector(&self, number: u64) -> Option<[u8; SECTOR]> {
        let sectors = to_u64(PAGE_SECTORS);
        let page = self.pages[to_usize(number / sectors)].page.get()?;
        let sector = to_usize(number % sectors);
        // Before the bits are read: a later bit sets the mark again.
        page.changed[sector].swap(false, Ordering::AcqRel);
        let words =
            std::array::from_fn(|n| page.words[sector * SECTOR_WORDS + n].load(Ordering::Acquire));
        Some(encode_sector(number, &words))
    }

    /// Marks sectors as changed again, after they could not be written.
    pub(super) fn put_back(&self, sectors: &[(u64, [u8; SECTOR])]) {
        for (number, _) in sectors {
            self.set(*number * to_u64(SECTOR_WORDS), 0);
        }
    }
}

/// The words of a page on the device, by sectors.
fn read_page(
    store: &impl BlockDevice,
    number: usize,
) -> io::Result<[[u64; SECTOR_WORDS]; PAGE_SECTORS]> {
    let mut bytes = [0; PAGE];
    store.read_at(BITMAP_AT + to_u64(number * PAGE), &mut bytes)?;
    let mut words = [[0; SECTOR_WORDS]; PAGE_SECTORS];
    for (n, (words, sector)) in words.iter_mut().zip(bytes.chunks_exact(SECTOR)).enumerate() {
        let number = to_u64(number * PAGE_SECTORS + n);
        *words = decode_sector(number, sector).ok_or_else(damaged_bitmap)?;
    }
    Ok(words)
}
