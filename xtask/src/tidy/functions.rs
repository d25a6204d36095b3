//! Functions must not be too long.

use super::Finding;
use super::source::{Source, block_end, line_of};
use super::table::FUNCTION_LINES;

/// Reports functions that are too long, tests among them.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    for (name, line, lines) in functions(&source.code) {
        if lines > FUNCTION_LINES {
            let text = format!("{name} has {lines} lines, at most {FUNCTION_LINES}");
            let path = source.path.clone();
            findings.push(Finding { path, line, rule: "function-length", text });
        }
    }
}

/// Name, first line and number of lines of each function with a body.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let bytes = code.as_bytes();
    let word = |at: usize| bytes.get(at).is_some_and(|b| *b == b'_' || b.is_ascii_alphanumeric());
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at > 0 && word(at - 1) {
            continue;
        }
        let name_at = at + 3 + code[at + 3..].len() - code[at + 3..].trim_start().len();
        let name_len = (name_at..).take_while(|&n| word(n)).count();
        let Some(open) = body(code, name_at + name_len).filter(|_| name_len > 0) else { continue };
        let (first, last) = (line_of(code, at), line_of(code, block_end(code, open) - 1));
        found.push((&code[name_at..name_at + name_len], first, last - first + 1));
    }
    found
}

/// The offset of the body's brace; none for a declaration.
fn body(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_signature_and_braces() {
        let code = "fn a() {}\npub fn b(x: [u8; 4],\n y: fn(u8) -> u8,\n) -> u8 {\n {\n }\n}\n\
            trait T { fn c(); fn d() {\n } }";
        let found = functions(code);
        assert_eq!(found, [("a", 1, 1), ("b", 2, 6), ("d", 8, 2)]);
    }

    #[test]
    fn long_functions_are_found_in_tests_too() {
        let text = format!("#[cfg(test)] mod tests {{ fn long() {{{}}} }}", "\n".repeat(70));
        let mut findings = Vec::new();
        check(&Source::new("crates/x/src/y.rs", &text), &mut findings);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].text.contains("long has 71 lines"), "{}", findings[0].text);
    }
}
