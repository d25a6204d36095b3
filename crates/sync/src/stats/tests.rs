use super::*;

#[test]
fn a_table_shows_every_class() {
    let stats = [ClassStats {
        name: "journal state",
        rank: 610,
        acquisitions: 1000,
        contentions: 17,
        shared_stores: 33,
        wait_total: Duration::from_nanos(1_234_560),
        wait_max: Duration::from_micros(90),
        hold_total: Duration::from_micros(5),
        hold_max: Duration::from_nanos(10),
        holders: vec![CallSite {
            at: Location::caller(),
            count: 17,
            wait: Duration::from_millis(1),
        }],
        sharers: Vec::new(),
    }];
    let shown = Table(&stats).to_string();
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0].len(), lines[1].len(), "columns line up:\n{shown}");
    assert!(lines[1].contains("1234.56") && lines[1].ends_with("5.00"), "{shown}");
    assert!(lines[2].contains("tests.rs:") && lines[2].contains("17 times, 1000.00 us"));
}

#[cfg(not(feature = "lockstat"))]
#[test]
fn without_the_feature_there_is_nothing() {
    assert_eq!((size_of::<Meter>(), size_of::<Hold<'_>>()), (0, 0));
    let (counter, plain) = (size_of::<crate::atomic::AtomicU64>(), size_of::<u64>());
    assert_eq!(counter, plain);
    enable();
    assert!(snapshot().is_empty() && !AVAILABLE);
    disable();
}

#[cfg(feature = "lockstat")]
mod counted {
    use super::*;
    use crate::atomic::{AtomicU64, Ordering};
    use crate::slot::alone;
    use crate::{
        CachePadded, Condvar, LockClass, Mutex, PerCore, RwLock, current_slot, now, sleep, thread,
    };
    use std::sync::{Barrier, MutexGuard};

    /// The counts belong to the process: tests that read them take turns, with each other and with
    /// tests that use up the slots.
    fn counting() -> MutexGuard<'static, ()> {
        let alone = alone();
        reset();
        enable();
        alone
    }

    fn of(name: &str) -> Option<ClassStats> {
        snapshot().into_iter().find(|class| class.name == name)
    }

    #[test]
    fn use_by_one_thread_shares_nothing() {
        static CLASS: LockClass = LockClass::new("one thread", 5);
        let _counting = counting();
        let lock = Mutex::new(&CLASS, 0);
        for _ in 0..100 {
            *lock.lock() += 1;
        }
        assert!(lock.try_lock().is_some());
        let stats = of("one thread").expect("counted");
        assert_eq!((stats.acquisitions, stats.contentions, stats.shared_stores), (101, 0, 0));
        assert_eq!((stats.rank, stats.wait_max), (5, Duration::ZERO));
        assert!(stats.hold_total >= stats.hold_max && stats.hold_max > Duration::ZERO);
        disable();
        drop(lock.lock());
        assert_eq!(of("one thread").expect("counted").acquisitions, 101);
        reset();
        assert_eq!(of("one thread"), None);
    }

    #[test]
    fn a_wait_is_blamed_on_the_holder() {
        static CLASS: LockClass = LockClass::new("contended", 5);
        let _counting = counting();
        let (lock, held) = (RwLock::new(&CLASS, ()), Barrier::new(2));
        let mut line = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                held.wait();
                assert!(lock.try_read().is_none());
                drop(lock.read());
            });
            line = line!() + 1;
            let guard = lock.write();
            held.wait();
            sleep(Duration::from_millis(200));
            drop(guard);
        });
        let stats = of("contended").expect("counted");
        assert_eq!((stats.acquisitions, stats.contentions), (2, 2));
        assert!(stats.wait_total >= stats.wait_max && !stats.wait_max.is_zero(), "{stats}");
        assert!(stats.hold_max >= Duration::from_millis(200), "{stats}");
        assert_eq!(stats.holders.len(), 1);
        assert_eq!((stats.holders[0].at.line(), stats.holders[0].count), (line, 1));
        // The attempt, the holder's unlock, then the waiter's lock; the order of
        // the attempt's two halves and the unlock is the scheduler's.
        assert!((2..=4).contains(&stats.shared_stores), "{stats}");
    }

    #[test]
    fn many_threads_lose_no_count() {
        static CLASS: LockClass = LockClass::new("many", 5);
        let _counting = counting();
        let (lock, all) = (Mutex::new(&CLASS, 0_u64), Barrier::new(4));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    // All have slots before one can end and return its own.
                    current_slot();
                    all.wait();
                    (0..1000).for_each(|_| *lock.lock() += 1);
                });
            }
        });
        let stats = of("many").expect("counted");
        assert_eq!((stats.acquisitions, *lock.lock()), (4000, 4000));
        assert!(stats.shared_stores >= 3, "{stats}");
        assert_eq!(stats.contentions == 0, stats.wait_total.is_zero());
    }

    #[test]
    fn a_wait_on_a_condition_is_no_hold() {
        static CLASS: LockClass = LockClass::new("condition", 5);
        let _counting = counting();
        let (lock, changed) = (Mutex::new(&CLASS, ()), Condvar::new());
        let start = now();
        let mut guard = lock.lock();
        assert!(changed.wait_for(&mut guard, Duration::from_millis(50)));
        drop(guard);
        let all = start.elapsed();
        let stats = of("condition").expect("counted");
        assert_eq!(stats.acquisitions, 2);
        assert!(stats.hold_total + Duration::from_millis(50) <= all, "{stats}");
    }

    #[test]
    fn only_stores_of_shared_atomics_are_counted_as_shared() {
        let _counting = counting();
        let own = PerCore::new(|_| AtomicU64::new(0));
        let shared = CachePadded::new(AtomicU64::new(0));
        let (turns, mut line) = (Barrier::new(2), 0);
        let mut other = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..10 {
                    turns.wait();
                    own.here().fetch_add(1, Ordering::Relaxed);
                    line = line!() + 1;
                    other = shared.fetch_add(1, Ordering::Relaxed);
                    turns.wait();
                }
            });
            for _ in 0..10 {
                own.here().fetch_add(1, Ordering::Relaxed);
                shared.store(7, Ordering::Relaxed);
                turns.wait();
                turns.wait();
                assert_eq!(shared.load(Ordering::Relaxed), 8);
            }
        });
        assert_eq!(other, 7);
        let stats = of("(atomics)").expect("counted");
        // Each of the ten rounds has two; the very first store has none before it.
        assert_eq!((stats.acquisitions, stats.shared_stores), (40, 19));
        let theirs = stats.sharers.iter().find(|site| site.at.line() == line);
        assert_eq!(theirs.map(|site| site.count), Some(10));
    }
}
