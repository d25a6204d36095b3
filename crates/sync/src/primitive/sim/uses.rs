//! Uses of cache lines by the core that runs: the code before each, the turns of those who are
//! behind, and what the use costs.
//!
//! All uses of words go through [`come_to`]; plain data comes by itself (`data`). A core that meets
//! nobody in a line may run ahead of others for [`AHEAD`]; else whoever is behind runs first, and
//! how the line is had is looked up again. Nothing here switches but where it says so
//! ([`let_others`]): between looking a line up and using it nobody else runs.

use super::lines::{Standing, Use, Wish};
use super::stepping::quiet;
use super::world::{Why, World, at, inside, let_others, with};
use std::panic::Location;

/// How far a core may run ahead that meets nobody, in picoseconds.
const AHEAD: u64 = 100_000;

impl World {
    /// A use of a line by the caller, now.
    pub(super) fn wish(&self, which: Use) -> Wish {
        let me = &self.tasks[self.current];
        let changed = self.machine.asks_after(me.changed);
        let begun = me.begins(changed, self.machine.ahead(), self.machine.window);
        Wish { core: me.core, which, begun, now: me.clock, looks: me.looks }
    }

    /// Stores once the line is there, while the core goes on: its stores wait in a buffer, in turn.
    fn store(&mut self, line: usize, wish: &Wish, standing: Standing) {
        let wish = &wish.of_word();
        let mine = standing.is_mine(wish);
        let done = match mine {
            true => self.lines.touch(&self.machine, line, wish, standing),
            false => self.lines.ask_to_store(&self.machine, line, wish, standing),
        };
        let me = self.me();
        if !mine || me.stores > wish.now {
            me.stores = me.stores.max(done);
        }
    }

    /// Whether others come first to a line that is on its way: who is behind may ask for it before,
    /// and a store that is done for the caller is not done for them.
    pub(super) fn waits_for_others(&mut self, line: usize) -> bool {
        self.lines.is_asked_for(line) && self.next_clock() < self.now()
    }

    /// When all that the caller has stored is done.
    pub(crate) fn stored(&self) -> u64 {
        let me = &self.tasks[self.current];
        me.stores.max(me.clock)
    }

    /// Waits for the caller's stores, as who changes a word does; whether there were any.
    fn drain(&mut self) -> bool {
        let (now, stores) = (self.now(), self.me().stores);
        if stores > now {
            self.me().clock = stores;
            self.me().has_waited(now);
            self.lose(stores - now);
        }
        stores > now
    }

    /// Begins a use; if the line is on its way, for which use, and it will be there at the caller's
    /// new clock.
    fn ask(&mut self, line: usize, wish: &Wish, standing: Standing) -> Option<Use> {
        let (which, wish) = (wish.which, &wish.of_word());
        self.changes += u64::from(which == Use::Change);
        if standing.is_mine(wish) {
            let lost = self.touch(line, wish, standing);
            self.me().there = wish.begun;
            self.me().has_waited(wish.now);
            self.lose(lost);
            return None;
        }
        if wish.which == Use::Load && self.lines.is_stored_by(line, wish.core) {
            return None;
        }
        let (there, meant) = self.lines.ask(&self.machine, line, wish, standing);
        let done = self.machine.done(wish.which, wish.now, there);
        let me = self.me();
        (me.there, me.clock) = (there, done);
        me.has_waited(wish.now);
        if wish.which == Use::Change {
            self.me().changed = done;
        }
        self.lose(done - wish.now - self.machine.own(wish.which));
        Some(meant)
    }

    pub(super) fn lose(&mut self, time: u64) {
        if time > 0 {
            self.me().lost += time;
            self.charge(Why::Line, time);
        }
    }

    /// The code before the caller's use of what is at `address`, and the use.
    fn code_of(&mut self, address: usize, which: Use) -> Wish {
        // Uses of one word or its neighbours that follow each other are next to each other in the
        // code, too. Distance decides, and not the line: that would depend on where memory lies.
        let beside = self.me().is_beside(address, which);
        let code = self.code_before(which, beside);
        self.me().beside = beside;
        self.operations += u64::from(!beside);
        if code > 0 {
            let uneven = self.me().uneven(code);
            self.pass(uneven);
        }
        self.me().note_use(address, which);
        self.wish(which)
    }

    /// A use of a line by the caller, now, and how it has that.
    pub(super) fn standing(&mut self, line: usize, which: Use) -> (Wish, Standing) {
        let wish = self.wish(which);
        let standing = self.lines.standing(&self.machine, line, &wish);
        (wish, standing)
    }

    /// Uses a line at once; what was lost to its coming.
    pub(super) fn touch(&mut self, line: usize, wish: &Wish, standing: Standing) -> u64 {
        let done = self.lines.touch(&self.machine, line, wish, standing);
        let lost = done.saturating_sub(wish.now + self.machine.own(wish.which));
        self.me().clock = done;
        if wish.which == Use::Change {
            self.me().changed = done;
        }
        lost
    }
}

/// Uses the line at `address`, after all who are behind have had their turn if it is shared.
pub(crate) fn access(address: usize, which: Use) {
    let on_its_way = come_to(address, which, World::ask);
    if let Some(Some(meant)) = on_its_way {
        let_others();
        with(|world| {
            let (core, now) = (world.me().core, world.now());
            world.lines.arrive(world.machine.line(address), core, meant, now);
        });
    }
}

/// The code before a use of the line at `address`, the turns of all who are behind, and the use;
/// none where nothing is charged.
#[inline]
fn come_to<R>(
    address: usize,
    which: Use,
    using: impl Fn(&mut World, usize, &Wish, Standing) -> R,
) -> Option<R> {
    // Else whether others run first.
    let used = with(|world| {
        if !world.charging {
            return Err(world.by_chance());
        }
        let line = world.machine.line(address);
        let mut wish = world.code_of(address, which);
        // Whoever waits for stores is later, and others may come before.
        if which == Use::Change && world.drain() {
            wish = world.wish(which);
        }
        if world.waits_for_others(line) {
            return Err(true);
        }
        let standing = world.lines.standing(&world.machine, line, &wish);
        let ahead = if standing == Standing::Alone { AHEAD } else { 0 };
        if world.next_clock().saturating_add(ahead) < wish.now {
            return Err(true);
        }
        Ok(using(world, line, &wish, standing))
    });
    match used? {
        Ok(used) => return Some(used),
        Err(true) => let_others(),
        Err(false) => return None,
    }
    with(|world| {
        world.charging.then(|| {
            let line = world.machine.line(address);
            let (wish, standing) = world.standing(line, which);
            using(world, line, &wish, standing)
        })
    })
    .flatten()
}

/// As [`access`], for a place in the code.
#[inline]
#[track_caller]
pub(crate) fn access_from(address: usize, which: Use) {
    let _quiet = quiet();
    if inside() {
        at(None, Location::caller());
        access(address, which);
    }
}

/// Stores to the line at `address` and goes on before that is done.
pub(crate) fn store(address: usize) {
    come_to(address, Use::Store, World::store);
}

/// As [`store`], for a place in the code.
#[inline]
#[track_caller]
pub(crate) fn store_from(address: usize) {
    let _quiet = quiet();
    if inside() {
        at(None, Location::caller());
        store(address);
    }
}

#[cfg(test)]
mod tests {
    use crate::primitive::atomic::{AtomicU64, Ordering};
    use crate::primitive::sim::lines::Machine;
    use crate::primitive::sim::lock::kind_mutex;
    use crate::primitive::sim::world::{clock, gather, run, settle, work};
    use crate::primitive::thread;
    use crate::{Arc, Common, LockKind, leads_on, leads_to, reads};
    use crossbeam_utils::CachePadded;

    /// A line's way.
    const WAY: u64 = 80_000;

    type Words = [CachePadded<AtomicU64>; 3];

    fn change(word: &AtomicU64) {
        word.fetch_add(1, Ordering::Relaxed);
    }

    fn load(word: &AtomicU64) -> u64 {
        word.load(Ordering::Relaxed)
    }

    /// Ways that a core takes which finds all words, and the count of references to a number, where
    /// another has changed them long ago.
    fn ways(pattern: fn(&Words, &Common<u64>)) -> f64 {
        let distances = Machine { near: WAY, socket_far: WAY, across: WAY, ..Machine::default() };
        let machine = Machine { cores: 2, cluster: 2, socket: 2, line_shift: 6, ..distances };
        let machine = Machine { window: 16_000, migrates: true, unfair: true, ..machine };
        let took = run(machine, move || {
            let words: Arc<Words> = Arc::default();
            let number = Common::new(7);
            let (others, others_number) = (words.clone(), number.clone());
            let other = thread::spawn(move || {
                gather(1, 2, 0, 0);
                others.iter().for_each(|word| change(word));
                drop(others_number);
            });
            gather(0, 2, 0, 0);
            work(20 * WAY);
            other.join().expect("it does not panic");
            let began = clock();
            pattern(&words, &number);
            let took = clock() - began;
            settle();
            took
        });
        took as f64 / WAY as f64
    }

    #[test]
    fn a_store_asks_for_its_line_when_all_before_it_is_done() {
        // On an Intel Xeon 56, 76 and 158 ns, where a turn takes 60.
        let changes = ways(|words, _| words.iter().take(2).for_each(|word| change(word)));
        assert!((0.8..1.3).contains(&changes), "{changes}");
        let first = ways(|words, _| {
            words[0].store(7, Ordering::Relaxed);
            words[1..].iter().for_each(|word| change(word));
        });
        assert!((0.9..1.5).contains(&first), "{first}");
        let between = ways(|words, _| {
            change(&words[0]);
            words[1].store(7, Ordering::Relaxed);
            change(&words[2]);
        });
        assert!((1.7..2.3).contains(&between), "{between}");
    }

    #[test]
    fn what_a_line_says_where_it_is_comes_after_that() {
        let both = ways(|words, _| assert_eq!([load(&words[0]), load(&words[1])], [1, 1]));
        let led = ways(|words, _| {
            load(&words[0]);
            leads_on();
            load(&words[1]);
        });
        assert!((0.7..1.2).contains(&both) && (1.7..2.2).contains(&led), "{both} {led}");
    }

    #[test]
    fn what_a_lock_guards_lies_where_its_line_says() {
        let beside = ways(|words, _| {
            change(&words[0]);
            reads(&words[1]);
        });
        let guarded = ways(|words, _| {
            change(&words[0]);
            leads_to(|| Some(&words[1]));
        });
        assert!((0.8..1.3).contains(&beside), "{beside}");
        assert!((1.7..2.3).contains(&guarded), "{guarded}");
    }

    /// Nanoseconds in which the holder of a lock that another core waits for changes a word on the
    /// lock's line, with so much code between.
    fn watched(near: u64, code: u64) -> f64 {
        const TIMES: u64 = 2000;
        let distances = Machine { near, socket_far: near, across: near, ..Machine::default() };
        let machine = Machine { cores: 2, cluster: 2, socket: 2, line_shift: 6, ..distances };
        let costs = Machine { rmw: 5_200, window: 12_000, pause: 22_500, uneven: 20, ..machine };
        run(Machine { migrates: true, unfair: true, ..costs }, move || {
            let lock = Arc::new(CachePadded::new(kind_mutex(LockKind::Spin, AtomicU64::new(0))));
            let others = lock.clone();
            let word = lock.lock();
            let other = thread::spawn(move || {
                gather(1, 2, 0, 0);
                drop(others.lock());
            });
            gather(0, 2, 0, 0);
            work(20 * WAY);
            let began = clock();
            for _ in 0..TIMES {
                change(&word);
                work(code);
            }
            let took = (clock() - began) as f64 / 1000.0;
            drop(word);
            other.join().expect("it does not panic");
            settle();
            took / TIMES as f64
        })
    }

    #[test]
    fn who_holds_a_lock_that_another_looks_at_keeps_its_line_for_a_while() {
        // Measured on Zen 5 with cores near each other and far.
        let near: &[_] = &[(1_500, 20.0), (2_700, 22.0), (5_000, 29.0), (12_100, 42.0)];
        let far: &[_] = &[(1_500, 23.5), (2_700, 29.0), (5_000, 37.0), (12_100, 55.0)];
        for (way, measured) in [(21_000, near), (109_000, far)] {
            for &(code, real) in measured {
                let found = watched(way, code);
                let off = found / real;
                assert!((0.7..1.2).contains(&off), "{way}, {code}: {found}, not {real}");
            }
        }
    }

    #[test]
    fn a_line_is_used_until_it_leaves_also_if_who_stores_waits_for_that() {
        const EACH: u64 = WAY / 16;
        let distances = Machine { near: WAY, socket_far: WAY, across: WAY, ..Machine::default() };
        let machine = Machine { cores: 2, cluster: 2, socket: 2, line_shift: 6, ..distances };
        let (stored, lost) = run(Machine { migrates: true, unfair: true, ..machine }, || {
            let word: Arc<CachePadded<AtomicU64>> = Arc::default();
            let others = word.clone();
            let other = thread::spawn(move || {
                gather(1, 2, 0, 0);
                // Nobody runs ahead with a line that has moved shortly before.
                work(2 * WAY);
                change(&others);
                loop {
                    let looked = clock();
                    load(&others);
                    if clock() > looked {
                        return looked;
                    }
                    work(EACH);
                }
            });
            gather(0, 2, 0, 0);
            change(&word);
            work(6 * WAY);
            let stored = clock();
            word.store(7, Ordering::Relaxed);
            // This comes when the store is done, a way later.
            change(&word);
            let lost = other.join().expect("it does not panic");
            settle();
            (stored, lost)
        });
        // Half way.
        let after = (lost - stored) as f64 / WAY as f64;
        assert!((0.4..0.7).contains(&after), "{after}");
    }

    #[test]
    fn a_count_of_references_is_a_line_of_those_who_have_them() {
        let looked = ways(|_, number| assert_eq!(**number, 7));
        let counted = ways(|_, number| assert_eq!(*number.clone(), 7));
        assert!(looked < 0.1 && (0.9..1.5).contains(&counted), "{looked} {counted}");
    }
}
