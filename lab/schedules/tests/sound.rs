//! A few schedules of the engine without a bug; `cargo xtask mutants` runs many, also with bugs.

use nextent_schedules::{BaseVolumes, run};

fn none_fails(seeds: std::ops::Range<u64>) {
    let bases = BaseVolumes::default();
    for seed in seeds {
        if let Err(failure) = run(&bases, seed, None, seed % 100 == 0) {
            let history = failure.history.join("\n");
            panic!("{history}\n{failure}\nto replay it: cargo xtask mutants replay {seed}");
        }
    }
}

#[test]
fn no_schedule_fails() {
    none_fails(0..200);
}

#[test]
fn no_other_schedule_fails() {
    none_fails(100_000..100_200);
}

#[test]
fn the_same_number_is_the_same_schedule() {
    let first =
        run(&BaseVolumes::default(), 77, None, false).map_err(|failure| failure.to_string());
    let again =
        run(&BaseVolumes::default(), 77, None, false).map_err(|failure| failure.to_string());
    assert_eq!(first, again);
    assert!(first.is_ok_and(|(steps, _)| steps > 500));
}
