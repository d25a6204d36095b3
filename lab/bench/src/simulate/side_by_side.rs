//! Simulations side by side: each runs on one thread, and its time is the same however long that
//! takes. What is measured never runs beside anything.

use crate::failure::Failure;
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{available_cores, thread};

/// Does `work` for each item, on all cores; the results in order.
///
/// # Errors
/// The first in that order.
pub(super) fn side_by_side<T: Sync, R: Send>(
    items: &[&T],
    work: &(impl Fn(&T) -> Result<R, Failure> + Sync),
) -> Result<Vec<R>, Failure> {
    let next = &AtomicUsize::new(0);
    let mut found: Vec<(usize, Result<R, Failure>)> = thread::scope(|scope| {
        let some = move || {
            let mut found = Vec::new();
            // Relaxed: a number is all that is passed on.
            let mut at = next.fetch_add(1, Ordering::Relaxed);
            while let Some(item) = items.get(at) {
                found.push((at, work(item)));
                at = next.fetch_add(1, Ordering::Relaxed);
            }
            found
        };
        let cores = available_cores().min(items.len());
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
        let lost = || (0, Err(Failure::broken("a thread panicked".to_owned())));
        let all = threads.into_iter().map(|one| one.join().unwrap_or_else(|_| vec![lost()]));
        all.flatten().collect()
    });
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, found)| found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_the_first_failure_counts() {
        let numbers: Vec<u32> = (0..20).collect();
        let items: Vec<&u32> = numbers.iter().collect();
        let found = side_by_side(&items, &|n| Ok(n * 2)).expect("nothing failed");
        assert_eq!(found, (0..20).map(|n| n * 2).collect::<Vec<_>>());
        let odd = |n: &u32| match n % 7 {
            6 => Err(Failure::broken(format!("{n}"))),
            _ => Ok(*n),
        };
        let failure = side_by_side(&items, &odd).expect_err("two fail");
        assert_eq!(failure.to_string(), "6");
        assert!(side_by_side(&items[..0], &odd).expect("nothing to do").is_empty());
    }
}
