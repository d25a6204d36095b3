//! Contents of files as other programs see them while the files are open: blocks, holes, space.

use crate::support::*;
use nextent_testkit::need;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// A file that is written and still open has blocks at once, so `tar -S` archives its contents.
#[test]
fn an_open_file_has_blocks() {
    need!(with_each(&["", "direct_io"], "64m", |mount, options| {
        for (n, step) in [1, 700, 4096, 100_000].into_iter().enumerate() {
            let path = mount.join(&format!("file{n}"));
            let mut file = File::create(&path).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().blocks(), 0);
            let mut written = 0;
            for byte in 1..4 {
                file.write_all(&vec![byte; step]).unwrap();
                written += step as u64;
                let found = std::fs::metadata(&path).unwrap();
                assert_eq!(found.len(), written, "{options}");
                assert!(found.blocks() * 512 >= written.min(512), "{options}: {step}: no blocks");
            }
            let archive = Command::new("sh")
                .arg("-c")
                .arg("tar -S -cf - \"$1\" | tar -xf - -O")
                .args(["sh", text(&path)])
                .output()
                .unwrap();
            assert!(archive.stdout == std::fs::read(&path).unwrap(), "{options}: {step}: contents");
            drop(file);
        }
    }));
}

/// The holes of a file, by SEEK_HOLE and SEEK_DATA: offset and end.
fn data(file: &File) -> Vec<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let (mut at, mut ranges) = (0, Vec::new());
    loop {
        match seek(file, SeekFrom::Data(at)) {
            Ok(from) => {
                at = seek(file, SeekFrom::Hole(from)).unwrap();
                ranges.push((from, at));
            }
            Err(rustix::io::Errno::NXIO) => return ranges,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn holes_of_an_open_file_are_found() {
    need!(with_each(&["", "direct_io"], "64m", |mount, options| {
        let path = mount.join("sparse");
        let file = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(data(&reader), []);
        file.set_len(10 * MIB).unwrap();
        assert_eq!(data(&reader), [], "{options}");
        file.write_all_at(&[1; 4096], 2 * MIB).unwrap();
        assert_eq!(data(&reader), [(2 * MIB, 2 * MIB + 4096)], "{options}");
        file.write_all_at(&[1; 8192], 9 * MIB).unwrap();
        let found = [(2 * MIB, 2 * MIB + 4096), (9 * MIB, 9 * MIB + 8192)];
        assert_eq!(data(&reader), found, "{options}");
        drop(file);
        copies_keep_holes(&path, &mount.join("copy"));
        // Also of a file that may be mapped writable. The kernel has limited time to write it.
        let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        wait_until("holes", || data(&reader) == found);
        wait_until("holes", || data(&both) == found);
        both.write_all_at(&[1; 4096], 4 * MIB).unwrap();
        let found = [found[0], (4 * MIB, 4 * MIB + 4096), found[1]];
        wait_until("holes", || data(&both) == found);
    }));
}

#[track_caller]
fn copies_keep_holes(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--sparse=auto").args([from, to]).status().unwrap();
    assert!(copied.success());
    assert!(std::fs::read(from).unwrap() == std::fs::read(to).unwrap());
    let (from, to) = (std::fs::metadata(from).unwrap(), std::fs::metadata(to).unwrap());
    assert_eq!(from.blocks(), to.blocks());
}

/// `SEEK_DATA` finds what a process changed through a mapping that it still has.
#[test]
fn data_behind_a_mapping_is_no_hole() {
    let script = "import mmap, os, sys\n\
        f = os.open(sys.argv[1], os.O_RDWR)\n\
        m = mmap.mmap(f, 1 << 20)\n\
        os.close(f)\n\
        m[500000:500005] = b'bytes'\n\
        r = os.open(sys.argv[1], os.O_RDONLY)\n\
        for at in range(0, 1 << 20, 4096 * 17):\n\
        \x20   m[at] = 7\n\
        \x20   found = os.lseek(r, at, os.SEEK_DATA)\n\
        \x20   assert found == at, (found, at)\n\
        at = os.lseek(r, 499700, os.SEEK_DATA)\n\
        assert at <= 500000 < os.lseek(r, at, os.SEEK_HOLE), at\n\
        assert m[500000:500005] == b'bytes' and m[4096 * 17] == 7\n";
    if !Command::new("python3").arg("--version").output().is_ok_and(|out| out.status.success()) {
        need!(Err(nextent_testkit::Skip::missing("python3")));
    }
    need!(with_each(&["", "direct_io"], "64m", |mount, options| {
        let path = mount.join("mapped");
        File::create(&path).unwrap().set_len(MIB).unwrap();
        let ran = Command::new("python3").args(["-c", script, text(&path)]).output().unwrap();
        assert!(ran.status.success(), "{options}: {}", String::from_utf8_lossy(&ran.stderr));
    }));
}
