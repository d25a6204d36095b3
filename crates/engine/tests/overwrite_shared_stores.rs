//! Threads that read and overwrite one file, buffered or directly, make no shared stores once the
//! file has in-flight counts.
//!
//! The lock statistics count the whole process, so this test has a process of its own:
//! `cargo test -p nextent --features lockstat --test overwrite_shared_stores`.
#![cfg(feature = "lockstat")]

mod common;

use common::direct::{BLOCK, file, finish, opened};
use common::{Image, KINDS};
use nextent::inodes::{OpenFile, Wait};
use nextent_device::MemoryDevice;
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, stats, thread};
use nextent_testkit::need;

const THREADS: u64 = 4;
/// Blocks of the file per thread.
const OWN: u64 = 64;
const ROUNDS: u64 = 4000;

/// A barrier that threads use several times.
struct Rendezvous(AtomicU64);

impl Rendezvous {
    /// Waits until all threads have arrived for the `turn`th time. Returns true in the last one.
    fn wait(&self, turn: u64) -> bool {
        let last = self.0.fetch_add(1, Ordering::SeqCst) + 1 == turn * THREADS;
        while self.0.load(Ordering::SeqCst) < turn * THREADS {
            thread::yield_now();
        }
        last
    }
}

fn step(f: &OpenFile<'_>, thread: u64, n: u64) {
    let at = (n % OWN * THREADS + thread) * BLOCK;
    let mut buf = [thread as u8; BLOCK as usize];
    match n % 3 {
        0 => assert_eq!(f.write(at + 100, &buf[..2000]).unwrap(), 2000),
        1 => assert_eq!(f.read(at, &mut buf).unwrap(), buf.len()),
        _ => assert_eq!(f.write_direct(at, &buf, Wait::Allowed).unwrap(), buf.len()),
    }
}

#[test]
fn threads_make_no_shared_stores() {
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = opened(&device);
    let f = file(&volume, b"file");
    f.write(0, &vec![7; (THREADS * OWN * BLOCK) as usize]).unwrap();
    let rendezvous = Rendezvous(AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (rendezvous, f) = (&rendezvous, &f);
            scope.spawn(move || {
                // Buffered calls make the file admit transfers to its counts.
                for n in 0..90 {
                    rendezvous.wait(n + 1);
                    step(f, thread, 3 * n + n % 2);
                }
                (0..OWN).for_each(|n| step(f, thread, 3 * n));
                if rendezvous.wait(91) {
                    stats::enable();
                    stats::reset();
                }
                rendezvous.wait(92);
                (0..ROUNDS).for_each(|n| step(f, thread, n));
                rendezvous.wait(93);
                stats::disable();
            });
        }
    });
    for class in stats::snapshot() {
        let shared = class.shared_stores as f64 / (THREADS * ROUNDS) as f64;
        println!("{:20} {:9} {shared:.5}", class.name, class.acquisitions);
        assert!(shared < 0.02, "{}: {:?}", class.name, class.sharers);
    }
    drop(f);
    finish(&image, &device, volume);
}
