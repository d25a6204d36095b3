//! Paths in tar streams.

use super::{EntryError, Result};

/// The path of the parent, and the last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    slash.map_or((&path[..0], path), |at| (&path[..at], &path[at + 1..]))
}

/// The part of a hard link's target after the last `..`, which GNU tar takes as the target.
pub(super) fn after_dots(target: &[u8]) -> &[u8] {
    let mut len = 0;
    for part in target.rsplit(|byte| *byte == b'/') {
        if part == b".." {
            let rest = &target[target.len() - len..];
            return rest.strip_prefix(b"/").unwrap_or(rest);
        }
        len = (len + part.len() + 1).min(target.len());
    }
    target
}

/// Whether a link to `target` may lead out of the tree that has it.
pub(super) fn leads_out(target: &[u8]) -> bool {
    target.starts_with(b"/") || target.split(|byte| *byte == b'/').any(|part| part == b"..")
}

/// The path without `.`, empty components and slashes around it.
pub(super) fn clean(path: &[u8]) -> Result<Vec<u8>> {
    if path.contains(&0) {
        return Err(EntryError::new("its path has a zero byte; left out"));
    }
    let mut clean = Vec::with_capacity(path.len());
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(EntryError::new("its path leads out by `..`; left out")),
            _ => {
                if !clean.is_empty() {
                    clean.push(b'/');
                }
                clean.extend_from_slice(part);
            }
        }
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_hard_links_lose_leading_dots() {
        for (target, member) in [
            (&b"a/b"[..], &b"a/b"[..]),
            (b"/abs", b"/abs"),
            (b"../a", b"a"),
            (b"d/../a", b"a"),
            (b"../../x/y", b"x/y"),
            (b"..", b""),
            (b"a/..", b""),
            (b"..a", b"..a"),
        ] {
            assert_eq!(after_dots(target), member, "{}", target.escape_ascii());
        }
    }
}
