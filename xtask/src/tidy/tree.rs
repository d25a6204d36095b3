//! The files of the working tree.
//!
//! The list comes from the directories, not from git: git refuses a checkout of another user, and a
//! source archive has none.

use std::path::Path;

/// Directories that are not entered.
const SKIPPED: [&str; 2] = [".git", "corpus"];

/// The paths of all files under `root`, with forward slashes, sorted.
pub(super) fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    collect(root, root, &mut found);
    found.sort();
    found
}

fn collect(root: &Path, dir: &Path, found: &mut Vec<String>) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) || path.is_symlink() || is_build_output(&path) {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, found);
        } else {
            let from_root = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
            found.push(from_root.replace('\\', "/"));
        }
    }
}

/// Whether cargo writes its output to this directory. A module may be named `target`, too.
pub(super) fn is_build_output(dir: &Path) -> bool {
    dir.ends_with("target") && dir.join("CACHEDIR.TAG").exists()
}
