//! References in Markdown to files of the repository that do not exist.
//!
//! Two forms are checked: the target of a link, and a path in backquotes that has a directory and
//! the extension of a source or text file. A path may leave out its beginning (`map/runs.rs`), or
//! begin with the name of a crate (`store/journal/handle.rs`). A path with a wildcard is not
//! checked.

use super::Finding;
use std::collections::HashSet;
use std::path::Path;

const EXTENSIONS: [&str; 6] = ["rs", "md", "toml", "txt", "sh", "yml"];

/// Checks all Markdown files under `root`; `files` are all its files.
pub(super) fn check(root: &Path, files: &[String], findings: &mut Vec<Finding>) {
    let known = Known::new(files);
    for path in files.iter().filter(|path| path.ends_with(".md")) {
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        check_text(path, &text, &known, findings);
    }
}

/// Every path that a reference may name: the files, their directories, and the tails of both.
struct Known {
    paths: HashSet<String>,
    tails: HashSet<String>,
}

impl Known {
    fn new(files: &[String]) -> Self {
        let mut known = Known { paths: HashSet::new(), tails: HashSet::new() };
        for file in files {
            let ancestors = Path::new(file).ancestors().filter_map(Path::to_str);
            known.paths.extend(ancestors.map(str::to_owned));
            let slashes = file.match_indices('/').map(|(at, _)| at + 1);
            known.tails.extend([0].into_iter().chain(slashes).map(|at| file[at..].to_owned()));
        }
        known
    }

    /// Whether a link from the file `from` leads to a file or directory.
    fn has_target(&self, from: &str, target: &str) -> bool {
        let mut parts: Vec<&str> = from.split('/').collect();
        parts.pop();
        for part in target.split('/') {
            match part {
                "." | "" => {}
                ".." if parts.pop().is_none() => return false,
                ".." => {}
                _ => parts.push(part),
            }
        }
        self.paths.contains(&parts.join("/"))
    }

    /// Whether a path in backquotes names a file.
    fn has_file(&self, path: &str) -> bool {
        let in_crate = path.split_once('/').map(|(name, rest)| format!("{name}/src/{rest}"));
        self.tails.contains(path) || in_crate.is_some_and(|path| self.tails.contains(&path))
    }
}

fn check_text(from: &str, text: &str, known: &Known, findings: &mut Vec<Finding>) {
    let mut fenced = false;
    for (n, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        let links = links(line).filter(|target| !known.has_target(from, target));
        let paths = quoted_paths(line).filter(|path| !known.has_file(path));
        for missing in links.chain(paths) {
            let text = format!("\"{missing}\" does not exist");
            findings.push(Finding { path: from.into(), line: n + 1, rule: "reference", text });
        }
    }
}

/// The targets of the links in a line that lead to files, without their anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .filter_map(|target| target.split(['#', ' ']).next())
        .filter(|target| !target.is_empty())
}

/// The text in backquotes in a line that looks like the path of a file.
fn quoted_paths(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|text| is_path(text))
}

fn is_path(text: &str) -> bool {
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
    let extension = text.rsplit('.').next().unwrap_or_default();
    text.contains('/')
        && text.chars().all(named)
        && !text.starts_with(['/', '.'])
        && EXTENSIONS.contains(&extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<String> {
        let files = ["README.md", "docs/a.md", "docs/adr/b.md", "crates/store/src/journal/c.rs"];
        let known = Known::new(&files.map(str::to_owned));
        let mut findings = Vec::new();
        check_text("docs/a.md", text, &known, &mut findings);
        findings.into_iter().map(|finding| finding.text.split('"').nth(1).unwrap().into()).collect()
    }

    #[test]
    fn links_lead_to_files_and_directories() {
        assert_eq!(missing("[a](adr/b.md), [b](../README.md#x), [c](adr), [d](#part)"), [""; 0]);
        assert_eq!(missing("[a](https://example.org/b.md), [b](mailto:a@example.org)"), [""; 0]);
        assert_eq!(missing("[a](b.md) [b](../../README.md)"), ["b.md", "../../README.md"]);
    }

    #[test]
    fn paths_in_backquotes_name_files() {
        assert_eq!(missing("`journal/c.rs`, `store/journal/c.rs`, `docs/adr/b.md`"), [""; 0]);
        assert_eq!(missing("`c/c.rs` and `journal/d.rs`"), ["c/c.rs", "journal/d.rs"]);
        assert_eq!(missing("`/etc/a.txt`, `lab/*/d.rs`, `d.rs`, `u32/u64`, `a b/c.rs`"), [""; 0]);
    }

    #[test]
    fn code_blocks_are_not_checked() {
        assert_eq!(missing("```\n`a/d.rs`\n```\n`a/e.rs`"), ["a/e.rs"]);
    }
}
