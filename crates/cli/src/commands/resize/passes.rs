//! The progress of a resize, as resize2fs prints it.

use nextent::resize::{ResizePhase, ResizeProgress};
use nextent_num::to_usize;
use std::cell::Cell;
use std::io::Write;

/// The characters of a bar.
const WIDTH: u64 = 40;

/// Prints a line and a bar for each phase.
pub(crate) struct Passes {
    shown: bool,
    /// The phase, and the characters of its bar that are drawn.
    drawn: Cell<Option<(ResizePhase, u64)>>,
}

impl Passes {
    /// Prints nothing unless `shown`.
    pub(crate) fn new(shown: bool) -> Self {
        Self { shown, drawn: Cell::new(None) }
    }

    /// Draws the progress. The resize goes on if standard output is closed.
    pub(crate) fn show(&self, progress: ResizeProgress) {
        if !self.shown {
            return;
        }
        let ResizeProgress { phase, done, steps } = progress;
        let drawn = match self.drawn.get() {
            Some((of, drawn)) if of == phase => drawn,
            _ => {
                self.end(true);
                let (number, what) = name(phase);
                let most = if steps > 0 { format!(" (max = {steps})") } else { String::new() };
                let [dashes, back] = ["-", "\u{8}"].map(|text| text.repeat(to_usize(WIDTH)));
                print(&format!("Begin pass {number}{most}\n{what:<30}{dashes}{back}"));
                0
            }
        };
        let now = done.min(steps).saturating_mul(WIDTH).checked_div(steps).unwrap_or(0);
        self.draw(phase, drawn, now);
    }

    fn draw(&self, phase: ResizePhase, drawn: u64, now: u64) {
        self.drawn.set(Some((phase, drawn.max(now))));
        print(&"X".repeat(to_usize(now.saturating_sub(drawn))));
    }

    /// Ends the line of the last bar, which is complete if its phase is.
    pub(crate) fn end(&self, complete: bool) {
        if let Some((phase, drawn)) = self.drawn.take() {
            if complete {
                self.draw(phase, drawn, WIDTH);
            }
            self.drawn.set(None);
            print("\n");
        }
    }
}

fn print(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The number and the name of a phase.
fn name(phase: ResizePhase) -> (u8, &'static str) {
    match phase {
        ResizePhase::Check => (1, "Checking the file system"),
        ResizePhase::Blocks => (2, "Relocating blocks"),
        ResizePhase::Inodes => (3, "Relocating inodes"),
        ResizePhase::Groups => (4, "Making block groups"),
        _ => (5, "Working"),
    }
}
