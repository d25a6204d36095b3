//! Prints the failures of a copy, and shows its files and bytes so far on a terminal.

use crate::failure::complain;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use nextent_image::{Observer, Problem};
use nextent_num::must_fit;
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, Condvar, Duration, LockClass, Mutex, thread};
use std::io::IsTerminal;

/// The time between two updates of the line.
const TICK: Duration = Duration::from_millis(120);

/// Whether the thread that draws the progress is to end.
static PROGRESS: LockClass = LockClass::new("copy.progress", 50);

#[derive(Debug)]
struct Counts {
    files: AtomicU64,
    bytes: AtomicU64,
    ended: Mutex<bool>,
    end: Condvar,
}

/// The messages of a copy on standard error, and a line with its progress; no such line if standard
/// error is not a terminal.
pub(crate) struct Progress {
    /// The command, for messages.
    what: &'static str,
    /// The target, named when it is full.
    target: String,
    counts: Arc<Counts>,
    drawn: Option<(ProgressBar, thread::JoinHandle<()>)>,
}

impl Progress {
    /// Starts the line of the command `what`, which writes to `target`; unless `quiet` or without a
    /// terminal.
    pub(crate) fn new(what: &'static str, target: impl Into<String>, quiet: bool) -> Self {
        let counts = Arc::new(Counts {
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            ended: Mutex::new(&PROGRESS, false),
            end: Condvar::new(),
        });
        let shown = !quiet && std::io::stderr().is_terminal();
        let drawn = shown.then(|| start(Arc::clone(&counts)));
        Self { what, target: target.into(), counts, drawn }
    }
}

impl Observer for Progress {
    fn entry(&self) {
        if self.drawn.is_some() {
            self.counts.files.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn bytes(&self, bytes: u64) {
        if self.drawn.is_some() {
            self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Prints a line above the progress.
    fn problem(&self, problem: &Problem<'_>) {
        let Problem { path, error, .. } = problem;
        let line = match error.is_fatal() {
            true => format!("{} {path}: {}: {error}", self.what, self.target),
            false => format!("{} {path}: {error}", self.what),
        };
        match &self.drawn {
            Some((bar, _)) => bar.suspend(|| complain(&line)),
            None => complain(&line),
        }
    }
}

fn start(counts: Arc<Counts>) -> (ProgressBar, thread::JoinHandle<()>) {
    let bar = ProgressBar::new_spinner();
    let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let template =
        if color { "{spinner:.cyan} {elapsed} {msg}" } else { "{spinner} {elapsed} {msg}" };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    let line = bar.clone();
    let thread = thread::spawn(move || draw(&counts, &line));
    (bar, thread)
}

fn draw(counts: &Counts, bar: &ProgressBar) {
    let mut last = 0;
    let mut ended = counts.ended.lock();
    while !*ended {
        let files = HumanCount(counts.files.load(Ordering::Relaxed));
        let bytes = counts.bytes.load(Ordering::Relaxed);
        let speed = (bytes - last) * 1000 / must_fit::<u64, _>(TICK.as_millis());
        last = bytes;
        bar.set_message(format!("{files} files, {}, {}/s", HumanBytes(bytes), HumanBytes(speed)));
        bar.tick();
        counts.end.wait_for(&mut ended, TICK);
    }
    bar.finish_and_clear();
}

impl Drop for Progress {
    fn drop(&mut self) {
        *self.counts.ended.lock() = true;
        self.counts.end.notify_all();
        if let Some((_, thread)) = self.drawn.take() {
            // A failure to draw the line is ignored.
            let _ = thread.join();
        }
    }
}
