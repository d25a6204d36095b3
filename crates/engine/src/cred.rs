//! On whose behalf a call is made.

/// A user with groups, and what they may ignore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Permission bits that new files do not get.
    pub umask: u16,
    /// Whether permissions are ignored and the reserved blocks may be used: root's capabilities.
    pub privileged: bool,
}

impl Cred {
    /// The superuser, who may do anything; umask 0.
    #[must_use]
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new(), umask: 0, privileged: true }
    }

    /// A user without capabilities unless `uid` is 0.
    #[must_use]
    pub fn user(uid: u32, gid: u32, groups: Vec<u32>, umask: u16) -> Self {
        Self { uid, gid, groups, umask, privileged: uid == 0 }
    }

    /// Whether the user belongs to `gid`.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
