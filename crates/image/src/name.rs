//! Checks names from images, for all sinks.
//!
//! A damaged or hostile image may have any bytes as a name. A tar archive with the member `../x`,
//! or a file made at `a/../../x`, would leave the tree. So each entry is checked before any sink
//! uses it.

use super::{EntryError, Result};
use crate::escape;

/// Accepts `name` if it is one component of a path and neither `.` nor `..`.
pub(crate) fn check(name: &[u8]) -> Result<()> {
    let why = match name {
        b"" => "an empty name",
        b"." | b".." => "a name that stands for another directory",
        _ if name.contains(&b'/') => "a name with a slash",
        _ if name.contains(&0) => "a name with a zero byte",
        _ => return Ok(()),
    };
    Err(EntryError::new(format!("'{}' is {why}; left out", escape::component(name))))
}

/// Accepts `target` if a symbolic link can have it.
pub(crate) fn check_target(target: &[u8]) -> Result<()> {
    let why = match target {
        b"" => "an empty target",
        _ if target.contains(&0) => "a target with a zero byte",
        _ => return Ok(()),
    };
    Err(EntryError::new(format!("'{}' is {why}; left out", escape::name(target))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/etc", b"../x", b"/", b"a\0b", b"\0"] {
            let refused = check(bad).expect_err("no file has this name");
            assert!(!refused.fatal && !refused.to_string().contains('/'), "{refused}");
        }
        for good in [&b"..."[..], b"..a", b"a..", b"\n", b"\xff", b"\\", b" "] {
            assert!(check(good).is_ok(), "{}", good.escape_ascii());
        }
    }

    #[test]
    fn a_target_has_no_zero_byte() {
        assert!(check_target(b"").is_err() && check_target(b"a\0b").is_err());
        assert!(check_target(b"../../x").is_ok() && check_target(b"/").is_ok());
    }
}
