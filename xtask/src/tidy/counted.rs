//! The packages under `counted/` have the dependencies of the crates whose sources they compile.

use super::Finding;
use std::collections::BTreeSet;
use std::path::Path;

pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) {
    let Ok(entries) = std::fs::read_dir(root.join("counted")) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("counted/{name}/Cargo.toml");
        let Ok(copy) = std::fs::read_to_string(root.join(&path)) else { continue };
        let original = root.join("crates").join(&name).join("Cargo.toml");
        let original = std::fs::read_to_string(original).unwrap_or_default();
        let (wanted, have) = (dependencies(&original), dependencies(&copy));
        if wanted != have {
            let differ: Vec<&str> = wanted.symmetric_difference(&have).copied().collect();
            let text = format!("not the dependencies of crates/{name}: {}", differ.join(", "));
            findings.push(Finding { path, line: 1, rule: "counted", text });
        }
    }
}

/// Names of the dependencies that are always there.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let lines = lines.filter(|line| !line.starts_with('#') && !line.contains("optional = true"));
    lines.filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|n| !n.is_empty()).collect()
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
}
