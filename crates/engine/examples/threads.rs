//! Writes from many threads: each into its own files, and all into one table.

mod support;

use std::thread;

use nextent::FileOptions;

const THREADS: u64 = 8;
const FILES: u64 = 50;
const ROW: u64 = 4096;
const ROWS: u64 = 200;

fn main() -> support::Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    let volume = support::new_image(&image, 128 << 20)?;
    let table = FileOptions::new().read(true).write(true).create(true).open(&volume, "/table")?;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let (volume, table) = (&volume, &table);
                scope.spawn(move || -> nextent::Result<()> {
                    volume.create_dir(format!("/{number}"))?;
                    for file in 0..FILES {
                        volume.write(format!("/{number}/{file}"), format!("file {file}"))?;
                    }
                    for row in 0..ROWS {
                        let at = (row * THREADS + number) * ROW;
                        table.write_at(format!("{at:4096}").as_bytes(), at)?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no thread panics"))
    })?;
    table.sync_all()?;
    let mut row = vec![0; 4096];
    for at in (0..ROWS * THREADS).map(|row| row * ROW) {
        table.read_at(&mut row, at)?;
        assert_eq!(row, format!("{at:4096}").as_bytes());
    }
    println!("{THREADS} threads wrote {} files and {} rows", THREADS * FILES, THREADS * ROWS);
    drop(table);
    volume.close()?;
    drop(volume);
    support::check(&image)
}
