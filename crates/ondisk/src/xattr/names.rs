//! Prefixes of attribute names, stored as numbers.
//!
//! Source: ext4 disk layout documentation, "Attribute Name Indices".

/// The numbers of prefixes.
#[allow(missing_docs)]
pub mod index {
    pub const NONE: u8 = 0;
    pub const USER: u8 = 1;
    pub const POSIX_ACL_ACCESS: u8 = 2;
    pub const POSIX_ACL_DEFAULT: u8 = 3;
    pub const TRUSTED: u8 = 4;
    pub const LUSTRE: u8 = 5;
    pub const SECURITY: u8 = 6;
    pub const SYSTEM: u8 = 7;
    pub const RICHACL: u8 = 8;
    pub const ENCRYPTION: u8 = 9;
    pub const HURD: u8 = 10;
}

/// Prefixes that programs see, and whole names where no name follows the number. An encryption
/// context is never shown.
const PREFIXES: &[(u8, &str)] = &[
    (index::USER, "user."),
    (index::POSIX_ACL_ACCESS, "system.posix_acl_access"),
    (index::POSIX_ACL_DEFAULT, "system.posix_acl_default"),
    (index::TRUSTED, "trusted."),
    (index::SECURITY, "security."),
    (index::RICHACL, "system.richacl"),
    (index::SYSTEM, "system."),
    (index::HURD, "gnu."),
];

/// The number of a full name's prefix, and the rest of the name. `None` for a prefix without a
/// number, and for a prefix alone that needs a name after it.
#[must_use]
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(number, prefix)| {
        let rest = full.strip_prefix(prefix.as_bytes())?;
        // A prefix with a dot needs a name after it; a whole name must not have one.
        (prefix.ends_with('.') != rest.is_empty()).then_some((*number, rest))
    })
}

/// The full name; `None` for a name that programs do not see.
#[must_use]
pub fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    let (_, prefix) = PREFIXES.iter().find(|(number, _)| *number == index)?;
    Some([prefix.as_bytes(), name].concat())
}
