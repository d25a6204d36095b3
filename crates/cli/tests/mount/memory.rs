//! A server's memory does not grow with the files that the kernel knows.

use super::support::{Mount, nextent, text};
use nextent_testkit::{e2fs, need};
use std::path::Path;
use std::process::Stdio;

const DIRS: usize = 20;
const FILES: usize = 1000;

/// Anonymous memory of a process in KiB.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// An image with many files.
fn image(dir: &Path) -> std::path::PathBuf {
    let source = dir.join("source");
    for d in 0..DIRS {
        let dir = source.join(format!("d{d}"));
        std::fs::create_dir_all(&dir).unwrap();
        for f in 0..FILES {
            std::fs::write(dir.join(format!("file{f}")), "").unwrap();
        }
    }
    let image = dir.join("image");
    let args = ["mkfs", "-q", "-b", "4096", "-N", "24000", "-d", text(&source), text(&image)];
    let made = nextent().args(args).arg("64m").stdin(Stdio::null()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    image
}

#[test]
fn a_walk_leaves_little_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let mount = need!(Mount::new(&image, "cache_size=1m"));
    let before = resident(mount.server());
    let mut seen = 0;
    for d in 0..DIRS {
        for entry in std::fs::read_dir(mount.join(&format!("d{d}"))).unwrap() {
            let entry = entry.unwrap();
            seen += usize::from(entry.metadata().unwrap().is_file());
        }
    }
    assert_eq!(seen, DIRS * FILES);
    // 1 KiB for each file would be 20 MB; besides the caches each file needs 13 to 27 bytes.
    let after = resident(mount.server());
    assert!(after < before + (12 << 10), "{before} kB before, {after} kB after");
    mount.unmount();
    e2fs::assert_clean(&image);
}
