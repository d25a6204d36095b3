//! Threads that share open files and volumes.

use std::io::{Read, Seek, SeekFrom, Write};

use nextent::{Error, File, FileOptions, ReadDir, Volume};
use nextent_sync::thread;
use nextent_testkit::need;

use super::{Image, finish};

const THREADS: u64 = 4;
const LINES: u64 = 100;

#[test]
fn handles_are_send_and_sync() {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<(Volume, File, ReadDir, nextent::DirEntry, Error)>();
}

#[test]
fn threads_share_one_file() {
    let image = need!(Image::make(32 << 20, &["-t", "ext4"]));
    let volume = Volume::from(image.open());
    let log = FileOptions::new().append(true).create(true).open(&volume, "/log").unwrap();
    let taken = FileOptions::new().write(true).create(true).open(&volume, "/turns").unwrap();
    let table = FileOptions::new().read(true).write(true).create(true).open(&volume, "/table");
    let table = table.unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (log, taken, table) = (&log, &taken, &table);
            scope.spawn(move || {
                let (mut log, mut taken) = (log, taken);
                for line in 0..LINES {
                    log.write_all(format!("{number} {line:05}\n").as_bytes()).unwrap();
                    taken.write_all(format!("{number} {line:05}\n").as_bytes()).unwrap();
                    let at = (line * THREADS + number) * 8;
                    table.write_at(&at.to_string().into_bytes(), at).unwrap();
                }
            });
        }
    });
    let len = THREADS * LINES * 8;
    for (path, file) in [("/log", &log), ("/turns", &taken)] {
        assert_eq!(file.metadata().len(), len, "{path}");
        let text = volume.read_to_string(path).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len() as u64, THREADS * LINES, "{path}: no write overwrote another");
    }
    let mut one = &table;
    one.seek(SeekFrom::Start(len - 8)).unwrap();
    let mut tail = String::new();
    one.read_to_string(&mut tail).unwrap();
    assert_eq!(tail, (len - 8).to_string());
    drop((log, taken, table));
    finish(volume, &image.path());
}

/// Several threads remove one tree at the same time; nothing remains.
#[test]
fn threads_remove_one_tree() {
    let image = need!(Image::make(32 << 20, &["-t", "ext4"]));
    let volume = Volume::from(image.open());
    for dir in 0..20 {
        volume.create_dir_all(format!("/tree/{dir}/below")).unwrap();
        for file in 0..20 {
            volume.write(format!("/tree/{dir}/below/{file}"), "x").unwrap();
        }
    }
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let volume = volume.clone();
            scope.spawn(move || match volume.remove_dir_all("/tree") {
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => panic!("{error}"),
            });
        }
    });
    assert!(!volume.exists("/tree").unwrap());
    finish(volume, &image.path());
}
