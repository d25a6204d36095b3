//! The list of excused findings.
//!
//! A line is `RULE PATH`, or `RULE PATH WORD` for findings whose text contains
//! the word. Empty lines and lines that begin with `#` are comments.

use super::Finding;
use super::table::{ALLOW_LIST, ALLOWED};

/// The findings that no entry excuses, and findings about the list itself.
pub(super) fn apply(findings: Vec<Finding>, list: &str) -> Vec<Finding> {
    apply_with(findings, list, ALLOWED)
}

fn apply_with(findings: Vec<Finding>, list: &str, most: usize) -> Vec<Finding> {
    let lines = list.lines().enumerate();
    let entries: Vec<(usize, &str)> = lines
        .map(|(n, line)| (n + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let mut used = vec![false; entries.len()];
    let mut left: Vec<Finding> = Vec::new();
    for finding in findings {
        let entry = entries.iter().position(|(_, entry)| excuses(entry, &finding));
        match entry {
            Some(n) => used[n] = true,
            None => left.push(finding),
        }
    }
    let mut about_list = |line: usize, text: String| {
        left.push(Finding { path: ALLOW_LIST.into(), line, rule: "allow-list", text });
    };
    for ((line, entry), used) in entries.iter().zip(used) {
        if !used {
            about_list(*line, format!("\"{entry}\" excuses nothing; take it out"));
        }
    }
    if entries.len() != most {
        let have = entries.len();
        about_list(1, format!("{have} entries, table.rs says {most}; the list may only shrink"));
    }
    left
}

fn excuses(entry: &str, finding: &Finding) -> bool {
    let mut words = entry.splitn(3, ' ');
    words.next() == Some(finding.rule)
        && words.next() == Some(&finding.path)
        && words.next().is_none_or(|word| finding.text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        let (path, text) = ("a/b.rs".into(), "long has 90 lines".into());
        Finding { path, line: 3, rule: "function-length", text }
    }

    #[test]
    fn an_entry_excuses() {
        for entry in ["function-length a/b.rs", "# why\n\nfunction-length a/b.rs long has"] {
            assert_eq!(apply_with(vec![finding()], entry, 1), []);
        }
        assert_eq!(apply_with(vec![finding()], "", 0), [finding()]);
    }

    #[test]
    fn an_idle_entry_and_a_longer_list_are_findings() {
        assert_eq!(apply_with(vec![], "function-length a/b.rs", 1).len(), 1);
        assert_eq!(apply_with(vec![finding()], "function-length a/b.rs", 0).len(), 1);
        assert_eq!(apply_with(vec![finding()], "sync a/b.rs", 1).len(), 2);
    }
}
