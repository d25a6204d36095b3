//! Access lists of pax records, in the text form of POSIX 1003.1e: `user:1000:rwx,mask::r-x`.
//!
//! GNU tar, star and bsdtar write one entry per line or separate them by commas. star adds the
//! number of a named user or group as a fourth part. GNU tar writes names only. A name without a
//! number is looked up in `/etc/passwd` and `/etc/group`, as by GNU tar and bsdtar. An empty text
//! is no list: GNU tar writes it for a directory with an access list and no default list.

use nextent_ondisk::acl::{Acl, AclEntry, Tag};

use super::{EntryError, Result};
use crate::accounts;

/// The value of the attribute for `text`; none if it is empty.
///
/// # Errors
/// The text has an entry that cannot be read, or breaks the rules of acl(5).
pub(super) fn attribute_of(text: &[u8]) -> Result<Option<Vec<u8>>> {
    let text = std::str::from_utf8(text).map_err(|_| bad("is not text"))?;
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']).map(|line| line.split('#').next().unwrap_or_default()) {
        let entry = entry.trim();
        if !entry.is_empty() {
            entries.push(entry_of(entry)?);
        }
    }
    if entries.is_empty() {
        return Ok(None);
    }
    // The order that acl(5) asks for: by kind, named ones by number.
    entries.sort_by_key(|entry: &AclEntry| entry.tag);
    let list = Acl { entries };
    if !list.is_valid() {
        return Err(bad("breaks the rules of access lists"));
    }
    Ok(Some(list.to_xattr()))
}

/// The text of the list in the attribute `value`, with numbers for names; none if it has none.
pub(super) fn text_of(value: &[u8]) -> Option<String> {
    let list = Acl::from_xattr(value).ok()?;
    let mut text = String::new();
    for AclEntry { tag, perm } in &list.entries {
        let (kind, id) = match tag {
            Tag::UserObj => ("user", None),
            Tag::User(id) => ("user", Some(id)),
            Tag::GroupObj => ("group", None),
            Tag::Group(id) => ("group", Some(id)),
            Tag::Mask => ("mask", None),
            Tag::Other => ("other", None),
        };
        let comma = if text.is_empty() { "" } else { "," };
        let id = id.map_or(String::new(), ToString::to_string);
        let bit = |value, letter| if perm & value != 0 { letter } else { '-' };
        let bits: String = [bit(4, 'r'), bit(2, 'w'), bit(1, 'x')].into_iter().collect();
        text += &format!("{comma}{kind}:{id}:{bits}");
    }
    Some(text)
}

fn bad(why: &str) -> EntryError {
    EntryError::new(format!("its access list {why}; left out"))
}

fn entry_of(text: &str) -> Result<AclEntry> {
    let unreadable = || bad(&format!("has the entry '{}'", text.escape_debug()));
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let (kind, name, bits, number) = match parts[..] {
        // Some writers leave out the empty name: `other:r--`, `mask:r--`.
        [kind, bits] => (kind, "", bits, None),
        [kind, name, bits] => (kind, name, bits, None),
        [kind, name, bits, number] => (kind, name, bits, Some(number)),
        _ => return Err(unreadable()),
    };
    let id = |table: fn(&str) -> Option<u32>| {
        let unknown =
            || bad(&format!("names '{}', which has no number there or here", name.escape_debug()));
        number.and_then(|n| n.parse().ok()).or_else(|| table(name)).ok_or_else(unknown)
    };
    let tag = match (kind, name.is_empty()) {
        ("user" | "u", true) => Tag::UserObj,
        ("user" | "u", false) => Tag::User(id(accounts::user)?),
        ("group" | "g", true) => Tag::GroupObj,
        ("group" | "g", false) => Tag::Group(id(accounts::group)?),
        ("mask" | "m", true) => Tag::Mask,
        ("other" | "o", true) => Tag::Other,
        _ => return Err(unreadable()),
    };
    let mut perm = 0;
    for bit in bits.chars() {
        perm |= match bit {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return Err(unreadable()),
        };
    }
    Ok(AclEntry { tag, perm })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(Tag, u16)>> {
        let value = attribute_of(text.as_bytes()).ok()??;
        let list = Acl::from_xattr(&value).expect("it was just made");
        Some(list.entries.iter().map(|entry| (entry.tag, entry.perm)).collect())
    }

    #[test]
    fn texts_of_all_writers_are_read() {
        let want = vec![
            (Tag::UserObj, 6),
            (Tag::User(1000), 7),
            (Tag::GroupObj, 4),
            (Tag::Mask, 7),
            (Tag::Other, 4),
        ];
        for text in [
            "user::rw-\nuser:1000:rwx\ngroup::r--\nmask::rwx\nother::r--\n",
            "user::rw-,user:1000:rwx,group::r--,mask::rwx,other::r--",
            "user::rw-,user:joe:rwx:1000,group::r--,mask::rwx,other::r--",
            "u::rw-,group::r--,u:1000:rwx,m:rwx,o:r--",
            "user::rw- # owner\nuser:1000:rwx\ngroup::r--\nmask::rwx\nother::r--",
        ] {
            assert_eq!(read(text), Some(want.clone()), "{text}");
        }
    }

    #[test]
    fn names_are_looked_up_on_this_machine() {
        let by_name = read("user::rw-,user:root:rwx,group::r--,mask::rwx,other::r--");
        assert!(by_name.expect("every machine has root").contains(&(Tag::User(0), 7)));
        assert_eq!(attribute_of(b" \n").expect("GNU tar writes it"), None);
    }

    #[test]
    fn written_text_is_read_again() {
        let text = "user::rw-,user:1000:rwx,group::r--,group:7:---,mask::rwx,other::--x";
        let value = attribute_of(text.as_bytes()).expect("it is right").expect("a list");
        assert_eq!(text_of(&value).as_deref(), Some(text));
        assert_eq!(text_of(b"no list"), None);
    }

    #[test]
    fn an_unreadable_entry_is_named() {
        for (text, words) in [
            ("user::rw-,user:joe:rwx,group::r--,mask::rwx,other::r--", "joe"),
            ("user::rw-,owner::rwx,group::r--,other::r--", "owner::rwx"),
            ("user::rq-,group::r--,other::r--", "user::rq-"),
            ("user::rw-,group::r--", "rules"),
            ("user::rw-,user:1:r--,group::r--,other::r--", "rules"),
        ] {
            let error = attribute_of(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
