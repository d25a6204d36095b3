//! Extends own files by 8 KiB with fallocate from so many threads; at 1 MiB a
//! file is truncated to nothing. Prints operations a second.
//!
//! `fallocate TARGET THREADS SECONDS`, where the target is an image, changed
//! through the library, or a directory, changed through system calls; so a
//! kernel's mount is measured by the same code. `cargo xtask bench` pairs them.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use nextent::{Access, Cred, FallocateMode, NewNode, OpenOptions, ROOT_INO, Volume};
use nextent_device::{FileDevice, FileOptions};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, Duration, Instant, thread};

const STEP: u64 = 8192;
const LIMIT: u64 = 1 << 20;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A file of one thread: extends it, cuts it off.
trait Extend {
    fn extend(&mut self, offset: u64) -> Outcome<()>;
    fn truncate(&mut self) -> Outcome<()>;
}

struct OfKernel(File);

impl Extend for OfKernel {
    fn extend(&mut self, offset: u64) -> Outcome<()> {
        let plain = rustix::fs::FallocateFlags::empty();
        Ok(rustix::fs::fallocate(&self.0, plain, offset, STEP)?)
    }

    fn truncate(&mut self) -> Outcome<()> {
        Ok(self.0.set_len(0)?)
    }
}

struct OfVolume<'v>(nextent::File<'v>);

impl Extend for OfVolume<'_> {
    fn extend(&mut self, offset: u64) -> Outcome<()> {
        Ok(self.0.fallocate(FallocateMode::Allocate, offset, STEP)?)
    }

    fn truncate(&mut self) -> Outcome<()> {
        Ok(self.0.set_len(0)?)
    }
}

/// Extends until told to stop; how often.
fn work(mut file: impl Extend, stop: &AtomicBool) -> Outcome<u64> {
    let (mut count, mut offset) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        file.extend(offset)?;
        offset += STEP;
        count += 1;
        if offset == LIMIT {
            file.truncate()?;
            offset = 0;
        }
    }
    file.truncate()?;
    Ok(count)
}

/// Runs the files' threads for a while; operations a second.
fn measure<F: Extend + Send>(files: Vec<F>, time: Duration) -> Outcome<f64> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let began = Instant::now();
        let stop = &stop;
        let run = |file| scope.spawn(move || work(file, stop));
        let threads: Vec<_> = files.into_iter().map(run).collect();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let mut total = 0;
        for thread in threads {
            total += thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(total as f64 / began.elapsed().as_secs_f64())
    })
}

fn on_directory(dir: &Path, threads: usize, time: Duration) -> Outcome<f64> {
    let mut files = Vec::new();
    for n in 0..threads {
        let path = dir.join(format!("extended{n}"));
        let file = File::create(&path)?;
        std::fs::remove_file(&path)?;
        files.push(OfKernel(file));
    }
    measure(files, time)
}

fn on_image(image: &Path, threads: usize, time: Duration) -> Outcome<f64> {
    let device = FileDevice::open(image, &FileOptions::new())?;
    let volume = Volume::open(Arc::new(device), &OpenOptions::default())?;
    let root = Cred::root();
    let mut files = Vec::new();
    for n in 0..threads {
        let name = format!("extended{n}").into_bytes();
        let _ = volume.unlink(&root, ROOT_INO, &name);
        let attr = volume.mknod(&root, ROOT_INO, &name, NewNode::Regular, 0o644)?;
        files.push(OfVolume(volume.file(&root, attr.ino, Access::READ_WRITE)?));
        volume.unlink(&root, ROOT_INO, &name)?;
    }
    let rate = measure(files, time)?;
    volume.close()?;
    Ok(rate)
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, target, threads, seconds] = &args[..] else {
        return Err("usage: fallocate TARGET THREADS SECONDS".into());
    };
    let (target, threads) = (Path::new(target), threads.parse()?);
    let time = Duration::from_secs_f64(seconds.parse()?);
    let run = if target.is_dir() { on_directory } else { on_image };
    println!("{:.0}", run(target, threads, time)?);
    Ok(())
}
