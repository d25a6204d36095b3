//! Which users may send requests to a mount. This decides it for every transport.
//!
//! | option | mounted by root | mounted by a user |
//! |---|---|---|
//! | none | the kernel lets root in | the kernel lets that user in |
//! | `allow_root` | the same: root is the owner | the kernel lets everyone in, the server lets root and the user in |
//! | `allow_other` | the kernel lets everyone in | the same |
//!
//! Admitted users have the rights that the kernel finds in modes and access control lists
//! (`default_permissions`), or with `fakeroot` those of root.
//!
//! Where the server decides, the kernel must ask it: from its caches the kernel would answer any
//! user. So the kernel may then cache no entry and no attribute ([`Admission::validity`]), and asks
//! before it opens a directory ([`Admission::asks`]).
//!
//! Where the mount may be idmapped ([`Admission::idmapped`]), a request has the user and group of a
//! file that it makes, as the volume stores them, and otherwise no user. Neither is the caller.
//! So the kernel must decide everything: this excludes [`Allow::Root`] and root's rights for all,
//! and no caller has privileges in the server.

use nextent::Cred;

/// Seconds for which the kernel may cache entries and attributes: only this server changes the
/// volume.
const VALID_FOR: u64 = 24 * 60 * 60;

/// Which users may enter a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allow {
    /// The user that mounted it.
    #[default]
    Owner,
    /// That user and root.
    Root,
    /// Everyone.
    All,
}

/// The rules of one mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Which users may enter.
    pub allow: Allow,
    /// The user that mounts.
    pub owner: u32,
    /// Every admitted user has root's rights.
    pub everyone_may: bool,
    /// The kernel may map the users of files on a bind mount. It then sends no caller's user.
    pub idmapped: bool,
}

impl Admission {
    /// Whether the kernel admits every user.
    pub(crate) fn opens_to_all(self) -> bool {
        match self.allow {
            Allow::Owner => false,
            Allow::Root => self.asks(),
            Allow::All => true,
        }
    }

    /// Whether the kernel admits more users than may enter, so that the server decides.
    pub(crate) fn asks(self) -> bool {
        self.allow == Allow::Root && self.owner != 0
    }

    /// Seconds for which the kernel may cache entries and attributes.
    pub(crate) fn validity(self) -> u64 {
        if self.asks() { 0 } else { VALID_FOR }
    }

    /// Whether the server answers a request of user `uid`. A request that follows an open was
    /// admitted at the open.
    pub(crate) fn admits(self, uid: u32, follows_an_open: bool) -> bool {
        !self.asks() || uid == 0 || uid == self.owner || follows_an_open
    }

    /// The caller's own rights, where the kernel has not checked permissions. Those of no user, if
    /// the caller is unknown.
    pub(crate) fn rights(self, uid: u32, gid: u32) -> Cred {
        // A file's owner is not the caller.
        let (uid, gid) = if self.idmapped { (u32::MAX, u32::MAX) } else { (uid, gid) };
        let plain = Cred::user(uid, gid, Vec::new(), 0);
        Cred { privileged: plain.privileged || self.everyone_may, ..plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: [u32; 3] = [0, 1000, 1001];

    fn admitted(allow: Allow, owner: u32) -> Vec<u32> {
        let rules = Admission { allow, owner, ..Admission::default() };
        USERS.into_iter().filter(|uid| rules.admits(*uid, false)).collect()
    }

    #[test]
    fn users_are_admitted_as_the_table_says() {
        // Whether the kernel admits every user.
        for (allow, owner, all) in [
            (Allow::Owner, 0, false),
            (Allow::Owner, 1000, false),
            (Allow::Root, 0, false),
            (Allow::Root, 1000, true),
            (Allow::All, 0, true),
            (Allow::All, 1000, true),
        ] {
            let rules = Admission { allow, owner, ..Admission::default() };
            assert_eq!(rules.opens_to_all(), all, "{rules:?}");
            assert_eq!(rules.validity() == 0, rules.asks(), "{rules:?}");
        }
        assert_eq!(admitted(Allow::Root, 1000), [0, 1000]);
        assert_eq!(admitted(Allow::All, 1000), USERS);
        let of_user = Admission { allow: Allow::Root, owner: 1000, ..Admission::default() };
        let rules = Admission { everyone_may: true, ..of_user };
        assert!(rules.admits(1001, true) && !rules.admits(1001, false));
        assert!(rules.rights(1000, 1).privileged);
        assert!(!Admission::default().rights(1000, 1).privileged);
        assert!(Admission::default().rights(0, 1).privileged);
        let rules = Admission { idmapped: true, ..Admission::default() };
        for uid in [0, 1000, u32::MAX] {
            assert!(rules.admits(uid, false) && !rules.rights(uid, 0).privileged);
        }
    }
}
