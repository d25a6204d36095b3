//! A short show on a fresh image.

/// Runs the show.
pub(crate) fn run() -> Result<(), String> {
    Err("the demo needs the command line, which is not built yet".into())
}
