//! The packages under `lab/copies/` must have the dependencies and features of the crates whose
//! sources they compile.

use super::Finding;
use std::collections::BTreeSet;
use std::path::Path;

/// Checks the packages under `dir`.
pub(super) fn check(root: &Path, dir: &str, findings: &mut Vec<Finding>) {
    let Ok(entries) = std::fs::read_dir(root.join(dir)) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{dir}/{name}/Cargo.toml");
        let Ok(copy) = std::fs::read_to_string(root.join(&path)) else { continue };
        let original = original(&name);
        let manifest = std::fs::read_to_string(root.join(&original).join("Cargo.toml"));
        let manifest = manifest.unwrap_or_default();
        let mut report = |what: &str, differ: Vec<&str>| {
            if !differ.is_empty() {
                let text = format!("not the {what} of {original}: {}", differ.join(", "));
                findings.push(Finding { path: path.clone(), line: 1, rule: "copies", text });
            }
        };
        let here = needed_here(dir, &name);
        let mut wanted = dependencies(&manifest);
        wanted.retain(|one| !here.1.contains(one));
        wanted.extend(here.0);
        report(
            "dependencies",
            wanted.symmetric_difference(&dependencies(&copy)).copied().collect(),
        );
        let (wanted, have) = (features(&manifest), features(&copy));
        report("features", wanted.difference(&have).copied().collect());
    }
}

/// The crate whose sources a copy compiles.
fn original(name: &str) -> String {
    match name {
        "bench" => "lab/bench".to_owned(),
        "historical" => "lab/historical".to_owned(),
        _ => format!("crates/{name}"),
    }
}

/// Dependencies that a copy has besides those of the original, and those that it lacks: the
/// simulated back end has its own threads and locks.
fn needed_here(dir: &str, name: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match (dir, name) {
        ("lab/copies/simulated", "sync") => {
            (&["backend"], &["lock_api", "parking_lot", "parking_lot_core"])
        }
        ("lab/copies/simulated", "bench") => (&["nextent-sim"], &[]),
        _ => (&[], &[]),
    }
}

fn section<'m>(manifest: &'m str, name: &str) -> impl Iterator<Item = &'m str> {
    let section = manifest.split(name).nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines.filter(|line| !line.starts_with('#'))
}

/// The name at the start of a line.
fn head(line: &str) -> Option<&str> {
    line.split(['.', ' ', '=']).next().filter(|name| !name.is_empty())
}

/// The names of dependencies that are not optional.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let lines = section(manifest, "\n[dependencies]\n");
    lines.filter(|line| !line.contains("optional = true")).filter_map(head).collect()
}

/// The names of features that sources may use.
fn features(manifest: &str) -> BTreeSet<&str> {
    section(manifest, "\n[features]\n").filter_map(head).filter(|name| *name != "default").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_ones_do_not_count() {
        let text = "[package]\n\n[dependencies]\na.workspace = true\nb = { path = \"x\" }\n\
            c = { workspace = true, optional = true }\n\n[dev-dependencies]\nd = \"1\"\n";
        assert_eq!(dependencies(text), BTreeSet::from(["a", "b"]));
    }

    #[test]
    fn features_are_names() {
        let text = "[features]\ndefault = [\"x\"]\n# Known.\nlockstat = []\nx = [\"dep:y\"]\n";
        assert_eq!(features(&format!("\n{text}")), BTreeSet::from(["lockstat", "x"]));
    }
}
