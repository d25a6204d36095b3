//! Servers that are killed.

use crate::support::*;
use nextent_testkit::{e2fs, need};
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;

/// Writes files until the mount is gone; records the files whose fsync returned.
fn write_until_gone(mount: &std::path::Path, worker: usize, done: &Mutex<Vec<String>>) {
    for n in 0.. {
        let name = format!("w{worker}-{n}");
        let path = mount.join(&name);
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(name.repeat(300).as_bytes())?;
            file.sync_all()
        });
        if written.is_err() {
            return;
        }
        done.lock().unwrap().push(name);
        if n % 5 == 4 && std::fs::create_dir(mount.join(format!("d{worker}-{n}"))).is_err() {
            return;
        }
    }
}

#[test]
fn killed_under_load_keeps_what_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "200m");
    let done = Mutex::new(Vec::new());
    // A few rounds, or `NEXTENT_KILLS` rounds for a long run.
    let rounds = std::env::var("NEXTENT_KILLS").map_or(4, |n| n.parse().unwrap());
    for round in 0..rounds {
        // Every second round bypasses the kernel's cache.
        let mount = need!(Mount::new(&image, ["", "direct_io"][round % 2]));
        let top = mount.join(&format!("r{round}"));
        std::fs::create_dir(&top).unwrap();
        done.lock().unwrap().clear();
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let (top, done) = (&top, &done);
                scope.spawn(move || write_until_gone(top, worker, done));
            }
            let enough = 10 + 20 * (round % 5);
            wait_until("files synced", || done.lock().unwrap().len() >= enough);
            mount.kill();
        });
        let replayed = run(&["replay", text(&image)]);
        assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
        e2fs::assert_clean(&image);
        let mount = need!(Mount::new(&image, "ro"));
        for name in done.lock().unwrap().iter() {
            let held = std::fs::read(mount.join(&format!("r{round}/{name}")));
            assert!(held.is_ok_and(|held| held == name.repeat(300).as_bytes()), "{name}");
        }
        mount.unmount();
    }
}
