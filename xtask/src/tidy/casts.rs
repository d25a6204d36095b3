//! No `as` between integers: it silently truncates and changes signs.
//!
//! `from` and `try_from` show whether a conversion can fail; `nextent_num` has the missing ones.
//! The rule matches text: `as` before the name of an integer type, also after a path (`libc::`), or
//! before `_`. Casts to floats and pointers are allowed.

use super::Finding;
use super::source::{Source, line_of};
use super::table::CASTS;

/// Types that must not be the target of a cast.
const INTEGERS: [&str; 12] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize"];

pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    let covered = |dirs: &[&str]| dirs.iter().any(|dir| source.path.starts_with(dir));
    if source.is_test || !covered(&CASTS) {
        return;
    }
    for (at, name) in casts(&source.shipped) {
        let (path, line) = (source.path.clone(), line_of(&source.shipped, at));
        let text = format!("as {name}: use from, try_from, cast_signed or nextent_num");
        findings.push(Finding { path, line, rule: "cast", text });
    }
}

/// The offset and the target type of each cast.
fn casts(code: &str) -> Vec<(usize, &str)> {
    let word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("as") {
        let after = &code[at + 2..];
        let alone = !code[..at].ends_with(word) && after.starts_with(char::is_whitespace);
        if !alone {
            continue;
        }
        let target = after.trim_start();
        let path = target.split(|c| !word(c) && c != ':').next().unwrap_or_default();
        let name = path.rsplit("::").next().unwrap_or_default();
        if name == "_" && is_import(&code[..at]) {
            continue;
        }
        let foreign = path.starts_with("libc::") || name.starts_with("c_");
        if INTEGERS.contains(&name) || name == "_" || foreign {
            found.push((at, name));
        }
    }
    found
}

/// Whether the last statement of `head` is an import: `use a::B as _`.
fn is_import(head: &str) -> bool {
    let statement = head.rsplit(';').next().unwrap_or_default();
    statement.rfind("use ").is_some_and(|at| !statement[at..].contains(['=', '(', '}']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check(&Source::new(path, text), &mut findings);
        findings.iter().map(|finding| finding.line).collect()
    }

    const HERE: &str = "crates/device/src/a.rs";

    #[test]
    fn casts_between_integers_are_found() {
        let text =
            "fn f(n: u64) {\n let a = n as u32;\n let b = (n / 2)\n as\n usize; g(n as _);\n}";
        assert_eq!(found(HERE, text), [2, 4, 5]);
        for name in INTEGERS {
            assert_eq!(found(HERE, &format!("a(n as {name})")), [1], "{name}");
        }
        assert_eq!(found(HERE, "a(n as libc::off_t, n as libc::c_int, n as c_uint)"), [1, 1, 1]);
        assert_eq!(
            found(HERE, "use a::B as _; f(n as _); fn use_it() { let a = n as _; }"),
            [1, 1]
        );
        assert_eq!(found(HERE, "x.len()as u32 + y as u16"), [1, 1]);
        assert_eq!(found(HERE, "<u32 as From<u8>>::from(1) as core::primitive::u8"), [1]);
    }

    #[test]
    fn other_words_are_not_casts() {
        let imports = "use a::b as c; use x as _y; fn f() { use a::{B as _, C as _}; }";
        assert_eq!(found(HERE, imports), [0; 0]);
        let text = "n as f64; p as *const u32; p as &u32; <T as Into<u32>>::into(n); alias u32;\n\
            has_u32(); as_u32(); \"n as u32\"; // n as u32";
        assert_eq!(found(HERE, text), [0; 0]);
    }

    #[test]
    fn tests_and_other_crates_are_not_checked() {
        let text = "#[cfg(test)]\nmod tests { fn f() { n as u32 } }";
        assert_eq!(found(HERE, text), [0; 0]);
        assert_eq!(found("crates/device/src/a_tests.rs", "n as u32"), [0; 0]);
        assert_eq!(found("crates/device/tests/a.rs", "n as u32"), [0; 0]);
        assert_eq!(found("crates/ondisk/src/a.rs", "n as u32"), [0; 0]);
        assert_eq!(found("lab/sim/src/a.rs", "n as u32"), [0; 0]);
    }
}
