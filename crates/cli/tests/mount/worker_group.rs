//! Over `/dev/fuse` all threads have one queue: one of them, the leader, answers a single client,
//! and all answer several clients.

use crate::idle::{become_idle, beside_work, idle_threads};
use crate::support::*;
use nextent_testkit::{e2fs, need};
use std::time::{Duration, Instant};

/// The cores that each answering thread of `process` may run on, from `/proc`.
fn cores_of_threads(process: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let cores = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            Some(line?.trim().to_owned())
        };
        field("Name:")?.starts_with("fuser-").then(|| field("Cpus_allowed_list:")).flatten()
    };
    tasks.filter_map(cores).collect()
}

/// Whether, over the last minute, twice as many threads wanted to run as there are cores.
fn overloaded() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    let wanted: f64 = load.split(' ').next().unwrap().parse().unwrap();
    let busy = wanted > 2.0 * std::thread::available_parallelism().unwrap().get() as f64;
    if busy {
        eprintln!("skipped in part: {wanted} threads want the cores");
    }
    busy
}

#[test]
fn the_leader_answers_a_single_client_on_its_core() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let server = mount.server();
    wait_until("threads", || cores_of_threads(server).len() == 4);
    let anywhere = cores_of_threads(server);
    beside_work(mount.path(), || {
        become_idle(server);
        // Other programs may be busy, so that all threads answer for a while.
        let alone = || {
            let away = cores_of_threads(server).into_iter().filter(|cores| *cores != anywhere[0]);
            idle_threads(server) == 1 && away.count() == 1
        };
        if std::thread::available_parallelism().unwrap().get() > 1 {
            // While other programs want all cores there may be no leader.
            let begun = Instant::now();
            let hopeless = || begun.elapsed() > Duration::from_secs(60) && overloaded();
            wait_until("one is where its client is", || alone() || hopeless());
        }
    });
    wait_until("all are as usual", || {
        idle_threads(server) == 0 && cores_of_threads(server) == anywhere
    });
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn all_threads_answer_several_clients() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let server = mount.server();
    let (one, other) = (mount.join("one"), mount.join("other"));
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&other).unwrap();
    beside_work(&one, || {
        become_idle(server);
        beside_work(&other, || {
            let mut looks = 0;
            wait_until("there is no leader for a while", || {
                looks = if idle_threads(server) == 0 { looks + 1 } else { 0 };
                looks > 10
            });
        });
    });
    mount.unmount();
    e2fs::assert_clean(&image);
}
