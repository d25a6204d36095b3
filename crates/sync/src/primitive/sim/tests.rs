//! What simulated cores are charged.

use super::lines::Machine;
use super::world::{clock, gather, run, settle, work};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::thread;
use crossbeam_utils::CachePadded;

const LINE: u64 = 30_000;
const RMW: u64 = 5_000;

#[test]
fn a_core_goes_on_while_its_stores_wait_but_not_past_a_change() {
    let far = LINE;
    let machine = Machine {
        cores: 2,
        cluster: 2,
        socket: 2,
        line_shift: 6,
        rmw: RMW,
        near: LINE,
        socket_far: far,
        across: far,
        handoff: 100,
        wake: 100 * LINE,
        ..Machine::default()
    };
    run(machine, || {
        let words: [CachePadded<AtomicU64>; 3] = Default::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                gather(1, 2, 0, 0);
                words[0].fetch_add(1, Ordering::Relaxed);
                words[1].fetch_add(1, Ordering::Relaxed);
            });
            gather(0, 2, 0, 0);
            // The other's words are the other's by now.
            work(10 * LINE);
            let began = clock();
            words[0].store(7, Ordering::Release);
            words[1].store(7, Ordering::Relaxed);
            assert_eq!((clock() - began, words[0].load(Ordering::Relaxed)), (0, 7));
            words[2].fetch_add(1, Ordering::Relaxed);
            assert_eq!(clock() - began, LINE + RMW);
            // What is its own costs nothing, and a store that all must follow is waited for.
            words[0].store(8, Ordering::Release);
            words[2].fetch_add(1, Ordering::Relaxed);
            assert_eq!(clock() - began, LINE + 2 * RMW);
            settle();
        });
    });
}
