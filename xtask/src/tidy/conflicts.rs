//! Conflict markers that a merge left in a text file.

use super::Finding;
use std::path::Path;

/// No text file is larger. Reading images and traces would only cost time.
const LARGEST: u64 = 4 << 20;

/// Checks all text files under `root`.
pub(super) fn check(root: &Path, files: &[String], findings: &mut Vec<Finding>) {
    for path in files {
        let full = root.join(path);
        if std::fs::metadata(&full).is_ok_and(|meta| meta.len() <= LARGEST) {
            // A file that is not UTF-8 is not text.
            let text = std::fs::read_to_string(&full).unwrap_or_default();
            check_text(path, &text, findings);
        }
    }
}

fn check_text(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (n, line) in text.lines().enumerate().filter(|(_, line)| is_marker(line)) {
        let text = format!("\"{line}\" marks an unresolved conflict");
        findings.push(Finding { path: path.into(), line: n + 1, rule: "conflict", text });
    }
}

/// Whether a line begins with seven equal signs or angle brackets, and not with more: longer rows
/// underline headings.
fn is_marker(line: &str) -> bool {
    let leading = |sign| line.chars().take_while(|&one| one == sign).count();
    ['<', '=', '>'].into_iter().any(|sign| leading(sign) == 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_at_the_beginning_of_a_line() {
        let [ours, both, theirs] = ["<", "=", ">"].map(|sign| sign.repeat(7));
        let text = format!("a\n{ours} main\nb\n{both}\nc\n{theirs} branch\n");
        let mut findings = Vec::new();
        check_text("a.txt", &text, &mut findings);
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 4, 6]);
    }

    #[test]
    fn underlines_and_indented_rows_are_no_markers() {
        for line in ["=".repeat(8), "=".repeat(6), format!(" {}", "<".repeat(7)), "a".into()] {
            assert!(!is_marker(&line), "{line}");
        }
    }
}
