//! The user on whose behalf a call acts.

/// A user: ids, groups, umask and privilege.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Permission bits (`0777`) that new files do not get.
    pub umask: u16,
    /// Whether the user has root's capabilities: ignores permissions, may use reserved blocks.
    pub privileged: bool,
}

impl Cred {
    /// The superuser, with umask 0.
    #[must_use]
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new(), umask: 0, privileged: true }
    }

    /// A user, privileged if `uid` is 0.
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
