//! Files for figures and plots.

use crate::failure::{Failure, Result};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Checks before a long measurement that every file can be written and that no two are the same.
/// Existing contents stay until there are new ones.
pub(crate) fn check(paths: &[&Option<PathBuf>]) -> Result<()> {
    let mut written = Vec::new();
    for path in paths.iter().filter_map(|path| path.as_deref()) {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|error| failed(path, &error))?;
        let canonical = path.canonicalize().map_err(|error| failed(path, &error))?;
        if written.contains(&canonical) {
            let text = format!("{}: named twice; the second would overwrite it", path.display());
            return Err(Failure::usage(text));
        }
        written.push(canonical);
    }
    Ok(())
}

/// Replaces the contents of a file.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}
