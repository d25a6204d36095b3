//! Checks that the product's crates can be published.
//!
//! Two steps, so that the first one works without a network:
//!
//! 1. `cargo package --offline` packages each crate and builds it from its package.
//! 2. `cargo publish --dry-run` checks the packages against the registry. Without a network it is
//!    skipped.

use crate::shell::{cargo, root};
use std::path::{Path, PathBuf};

/// The outcome of a check that found no fault.
pub(crate) enum Outcome {
    /// Both steps passed.
    Publishable,
    /// Only the first step ran, because the registry cannot be reached.
    Packaged,
}

/// Parts of cargo's messages about a registry that it cannot reach.
const NO_NETWORK: [&str; 5] = [
    "--offline was specified",
    "Could not resolve host",
    "Could not connect",
    "failed to connect",
    "Timeout was reached",
];

/// Runs both steps.
///
/// # Errors
///
/// Cargo's messages.
pub(crate) fn check() -> Result<Outcome, String> {
    let names = published(&root().join("crates"));
    // Cargo takes packages of the same version for unchanged, so nothing of an earlier check may be
    // left.
    forget_unpacked(&names);
    let target = root().join("target/publish");
    let _ = std::fs::remove_dir_all(&target);
    let to = target.display().to_string();
    let packages = names.iter().flat_map(|name| ["-p", name]);
    // Sources that are not committed yet are checked too.
    let local = ["package", "--offline", "--allow-dirty", "--quiet", "--target-dir", &to];
    run(local.into_iter().chain(packages))?;
    let _ = std::fs::remove_dir_all(&target);
    let registry = ["publish", "--dry-run", "--workspace", "--no-verify", "--allow-dirty"];
    match run(registry) {
        Ok(()) => Ok(Outcome::Publishable),
        Err(text) if NO_NETWORK.iter().any(|part| text.contains(part)) => Ok(Outcome::Packaged),
        Err(text) => Err(text),
    }
}

/// Removes the unpacked packages of an earlier check.
///
/// `cargo package` unpacks packages that others depend on below its home, in a directory for each
/// local registry (`-HASH`). It does not unpack a package of the same version again, and so would
/// build with old sources.
fn forget_unpacked(names: &[String]) {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    let Some(sources) = home.map(|home| home.join("registry/src")) else { return };
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let is_local = |dir: &std::fs::DirEntry| dir.file_name().as_encoded_bytes().starts_with(b"-");
    for registry in entries(&sources).filter(is_local) {
        for package in entries(&registry.path()) {
            let found = package.file_name();
            let of_ours = names.iter().any(|name| is_version_of(&found.to_string_lossy(), name));
            if of_ours {
                // What cannot be removed shows as an error of the check.
                let _ = std::fs::remove_dir_all(package.path());
            }
        }
    }
}

/// Whether `package` is `name`, a dash and a version.
fn is_version_of(package: &str, name: &str) -> bool {
    let version = package.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

fn run<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let output = cargo(args).output().map_err(|error| format!("cargo: {error}"))?;
    let text = || String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(text()) }
}

/// The names of the packages in `dir` that are published.
fn published(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let manifests = entries
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("Cargo.toml")).ok());
    let mut names: Vec<_> = manifests.filter_map(|text| name_if_published(&text)).collect();
    names.sort();
    names
}

fn name_if_published(manifest: &str) -> Option<String> {
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = "))?;
    let is_private = manifest.lines().any(|line| line == "publish = false");
    (!is_private).then(|| name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_packages_are_left_out() {
        let text = "[package]\nname = \"a\"\n";
        assert_eq!(name_if_published(text).as_deref(), Some("a"));
        assert_eq!(name_if_published(&format!("{text}publish = false\n")), None);
    }

    #[test]
    fn a_version_follows_the_whole_name() {
        assert!(is_version_of("nextent-0.1.0", "nextent"));
        assert!(!is_version_of("nextent-store-0.1.0", "nextent"));
        assert!(!is_version_of("serde-1.0.0", "nextent"));
    }

    #[test]
    fn the_products_crates_are_published() {
        let names = published(&root().join("crates"));
        assert!(names.contains(&"nextent".to_owned()) && names.contains(&"nextent-cli".to_owned()));
        assert!(!names.contains(&"nextent-testkit".to_owned()));
    }
}
