//! `docs/LOCKS.md` must have the rank of each lock class in the source, and no other class.
//!
//! A row of its table begins with a rank, followed by the names of its classes in backquotes.

use super::Finding;
use super::source::{Source, line_of};
use std::path::Path;

pub(super) fn check(sources: &[Source], page: &Path, findings: &mut Vec<Finding>) {
    let Ok(text) = std::fs::read_to_string(page) else { return };
    for source in sources.iter().filter(|source| is_shipped(source)) {
        for (at, name, rank) in classes(source) {
            if !listed(&text, name, rank) {
                findings.push(Finding {
                    path: source.path.clone(),
                    line: line_of(&source.text, at),
                    rule: "ranks",
                    text: format!("docs/LOCKS.md has no row with `{name}` and rank {rank}"),
                });
            }
        }
    }
    let known: Vec<&str> = sources.iter().flat_map(classes).map(|(_, name, _)| name).collect();
    for (n, name) in rows(&text).filter(|(_, name)| !known.contains(name)) {
        let text = format!("no file defines the class `{name}`");
        findings.push(Finding { path: "docs/LOCKS.md".into(), line: n + 1, rule: "ranks", text });
    }
}

/// The classes of the table: the index of the line, and the name.
fn rows(page: &str) -> impl Iterator<Item = (usize, &str)> {
    page.lines().enumerate().flat_map(|(n, line)| {
        let mut cells = line.split('|').skip(1);
        let rank = cells.next().unwrap_or_default().trim();
        let is_row = !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit());
        let names = cells.next().filter(|_| is_row).unwrap_or_default();
        names.split('`').skip(1).step_by(2).map(move |name| (n, name))
    })
}

fn is_shipped(source: &Source) -> bool {
    let apart = ["crates/sync/", "crates/testkit/", "xtask/"]
        .iter()
        .any(|dir| source.path.starts_with(dir));
    !source.is_test && !apart
}

/// The classes that a file defines: offset, name, rank.
fn classes(source: &Source) -> Vec<(usize, &str, &str)> {
    let mut found = Vec::new();
    for head in ["LockClass::new(", "LockClass::nesting("] {
        for (at, _) in source.shipped.match_indices(head) {
            // The name is a string, which is blanked in the code, so read it from the text.
            let args = source.text[at + head.len()..].trim_start();
            let Some((name, rest)) = args.strip_prefix('"').and_then(|a| a.split_once('"')) else {
                continue;
            };
            let rank = rest.trim_start_matches([',', ' ', '\n']);
            let end = rank.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
            if end > 0 {
                found.push((at, name, &rank[..end]));
            }
        }
    }
    found
}

fn listed(page: &str, name: &str, rank: &str) -> bool {
    let name = format!("`{name}`");
    page.lines().any(|line| {
        let numbers = || line.split(|c: char| !c.is_ascii_digit());
        line.starts_with('|') && line.contains(&name) && numbers().any(|number| number == rank)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_and_looked_up() {
        let text = "static A: LockClass = LockClass::new(\"a.b\", 300);\n\
            static C: LockClass = LockClass::nesting(\n    \"c\",\n    7,\n);";
        let source = Source::new("crates/x/src/y.rs", text);
        let found: Vec<_> = classes(&source).iter().map(|(_, name, rank)| (*name, *rank)).collect();
        assert_eq!(found, [("a.b", "300"), ("c", "7")]);
        let page = "| rank | class |\n| 300 | `a.b`, `other` | why |\n";
        assert!(listed(page, "a.b", "300"));
        assert!(!listed(page, "a.b", "30") && !listed(page, "c", "7"));
        assert_eq!(rows(page).collect::<Vec<_>>(), [(1, "a.b"), (1, "other")]);
        assert_eq!(rows("| `a` | 3 |\n| 3 |\n`b`").count(), 0);
    }
}
