//! Serving threads are in the idle class while requests come, and not where other processes
//! compute.

use crate::support::*;
use nextent_testkit::{e2fs, need};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// `SCHED_IDLE`.
const IDLE: &str = "5";

/// The number of threads of a process in the idle class.
pub(crate) fn idle_threads(process: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let is_idle = |task: &std::fs::DirEntry| {
        let line = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The 41st field; the second one ends with the last parenthesis.
        let rest = line.rsplit(')').next().unwrap_or_default();
        rest.split_whitespace().nth(38) == Some(IDLE)
    };
    tasks.map(Result::unwrap).filter(is_idle).count()
}

/// Makes, writes and removes files.
fn work(dir: &Path, files: usize) {
    for n in 0..files {
        let file = dir.join(format!("file{n}"));
        std::fs::write(&file, "text").unwrap();
        std::fs::remove_file(&file).unwrap();
    }
}

/// Calls `look` while another thread works in `dir`.
pub(crate) fn beside_work(dir: &Path, look: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                work(dir, 10);
            }
        });
        // Also after a failure of `look`, since the scope waits for the thread.
        let _over = Over(&over);
        look();
    });
}

/// Stops the working thread when dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until threads of `server` are in the idle class; not on an overloaded machine, where they
/// stay in the usual class.
pub(crate) fn become_idle(server: u32) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if idle_threads(server) > 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    let load: f64 = load.split(' ').next().unwrap().parse().unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!(load > cores as f64 / 2.0, "no thread counts as idle, with a load of {load}");
    println!("others were busy: a load of {load}");
}

/// Processes that compute until this is dropped, two for each core.
struct Hogs(Vec<Child>);

impl Hogs {
    fn new() -> Self {
        let cores = std::thread::available_parallelism().unwrap().get();
        let hog = |_| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap()
        };
        Self((0..2 * cores).map(hog).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

#[test]
fn threads_are_idle_while_requests_come() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let server = mount.server();
    // The first requests may have put one into the idle class for a moment.
    wait_until("all are as usual", || idle_threads(server) == 0);
    beside_work(mount.path(), || {
        become_idle(server);
    });
    wait_until("all are as usual again", || idle_threads(server) == 0);
    mount.unmount();
    let mount = Mount::new(&image, "no_sched_idle").unwrap();
    let server = mount.server();
    beside_work(mount.path(), || {
        for _ in 0..100 {
            assert_eq!(idle_threads(server), 0);
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn no_client_starves_while_other_processes_compute() {
    const ROUNDS: usize = 5;
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let images = dirs.each_ref().map(|dir| mkfs(dir.path(), "64m"));
    let adaptive = need!(Mount::new(&images[0], "sched_idle"));
    let usual = Mount::new(&images[1], "no_sched_idle").unwrap();
    // In the idle class when the others begin.
    beside_work(adaptive.path(), || {
        become_idle(adaptive.server());
    });
    let hogs = Hogs::new();
    let mut times = [Duration::ZERO; 2];
    for _ in 0..ROUNDS {
        for (mount, time) in [&adaptive, &usual].into_iter().zip(&mut times) {
            let begun = Instant::now();
            work(mount.path(), 100);
            *time += begun.elapsed();
        }
    }
    drop(hogs);
    // A starved thread runs for a few milliseconds in a second, so thousands of requests would take
    // minutes.
    assert!(times[0] < times[1] * 4 + Duration::from_secs(2), "{times:?}");
    println!("while others compute: {times:?}");
    for (mount, image) in [adaptive, usual].into_iter().zip(&images) {
        mount.unmount();
        e2fs::assert_clean(image);
    }
}

#[test]
fn a_failed_check_stops_the_working_thread() {
    let dir = tempfile::tempdir().unwrap();
    let looked = std::panic::catch_unwind(|| {
        beside_work(dir.path(), || std::panic::resume_unwind(Box::new("seen")));
    });
    assert_eq!(looked.unwrap_err().downcast_ref(), Some(&"seen"));
}
