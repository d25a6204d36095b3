//! Owners, modes and labels that entries get in place of those of the source.
//!
//! The builder applies the steps in this order. Each replaces what the earlier steps left.
//!
//! | step | module |
//! |---|---|
//! | owner, mode and device in a state file of fakeroot, by device and inode of the host | `fakeroot_state` |
//! | one owner for all, or maps of numbers | `id_map` |
//! | owner, mode and capabilities in an Android `fs_config`, by path | `fs_config` |
//! | owner and mode in a device table, by path; new devices, pipes and directories | `device_table` |
//! | SELinux labels, by path and type | `file_contexts` |
//!
//! Files with several names get what belongs to the name that is made first; a directory's names
//! are made in order. A line of a device table applies to the file whatever its name, so the last
//! line wins.

mod adjust;
mod device_table;
mod fakeroot_state;
mod file_contexts;
mod finish;
mod fs_config;
mod id_map;
mod list_file;
mod owner_list;
mod substitutes;

pub use adjust::Adjust;
pub use device_table::DeviceTable;
pub use fakeroot_state::FakerootState;
pub use file_contexts::FileContexts;
pub use fs_config::FsConfig;
pub use id_map::{IdMap, IdMapError, IdRange};
pub use list_file::AttributesError;

use super::entry::Meta;
use super::{EntryError, Result};
use nextent_ondisk::acl::{Acl, Tag};

pub(crate) use adjust::Adjuster;

/// Whose the entries are.
#[derive(Debug, Default)]
enum Owners {
    #[default]
    Source,
    One {
        uid: u32,
        gid: u32,
    },
    Mapped {
        users: IdMap,
        groups: IdMap,
    },
}

/// What entries get in place of the attributes that the source gives them.
///
/// ```
/// use nextent::mkfs::MkfsOptions;
/// use nextent_image::{Attributes, Contents, ImageBuilder};
///
/// # let dir = tempfile::tempdir()?;
/// # let (source, image) = (dir.path().join("tree"), dir.path().join("disk.img"));
/// # std::fs::create_dir(&source)?;
/// std::fs::write(source.join("hello"), "world")?;
/// let mut options = MkfsOptions::default();
/// options.size = Some(16 << 20);
/// ImageBuilder::new(options)
///     .contents(Contents::open(&source)?)
///     .attributes(Attributes::new().owner(0, 0))
///     .build(&image, &())?;
///
/// let volume = nextent::Volume::open(&image)?;
/// assert_eq!(volume.metadata("/hello")?.uid(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Attributes {
    state: Option<FakerootState>,
    owners: Owners,
    config: Option<FsConfig>,
    table: Option<DeviceTable>,
    contexts: Option<FileContexts>,
}

impl Attributes {
    /// Those of the source.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives every entry this owner and this group. Replaces [`mapped`](Self::mapped).
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owners = Owners::One { uid, gid };
        self
    }

    /// Maps the numbers of users and groups, also those in access lists. A map without ranges keeps
    /// all numbers; with ranges, an entry whose number is in none of them fails. Replaces
    /// [`owner`](Self::owner).
    pub fn mapped(mut self, users: IdMap, groups: IdMap) -> Self {
        self.owners = Owners::Mapped { users, groups };
        self
    }

    /// Gives entries what fakeroot pretends of them. The contents must be a directory.
    pub fn fakeroot_state(mut self, state: FakerootState) -> Self {
        self.state = Some(state);
        self
    }

    /// Changes and makes the entries of a device table, after all others were made.
    pub fn device_table(mut self, table: DeviceTable) -> Self {
        self.table = Some(table);
        self
    }

    /// Gives entries the owner, mode and capabilities that an Android `fs_config` file has for
    /// their paths.
    pub fn fs_config(mut self, config: FsConfig) -> Self {
        self.config = Some(config);
        self
    }

    /// Gives entries the SELinux labels of a `file_contexts` file; entries without one there get
    /// none. Labels of the source are dropped.
    pub fn file_contexts(mut self, contexts: FileContexts) -> Self {
        self.contexts = Some(contexts);
        self
    }

    /// Whether the contents must be files of the host.
    pub(crate) fn needs_host(&self) -> bool {
        self.state.is_some()
    }

    /// Whether the attributes depend on paths.
    fn needs_path(&self) -> bool {
        self.config.is_some() || self.contexts.is_some()
    }

    /// Changes `meta`, of the entry at `path`.
    pub(crate) fn apply(&self, path: &[u8], meta: &mut Meta) -> Result<()> {
        if let Some(state) = &self.state {
            state.apply(meta)?;
        }
        self.owners.apply(meta)?;
        self.apply_by_path(path, meta);
        Ok(())
    }

    /// Changes what depends on the path alone.
    fn apply_by_path(&self, path: &[u8], meta: &mut Meta) {
        if let Some(config) = &self.config {
            config.apply(path, meta);
        }
        self.label(path, meta);
    }

    /// Sets the label.
    fn label(&self, path: &[u8], meta: &mut Meta) {
        if let Some(contexts) = &self.contexts {
            contexts.apply(path, meta);
        }
    }
}

impl Owners {
    fn apply(&self, meta: &mut Meta) -> Result<()> {
        match self {
            Self::Source => {}
            Self::One { uid, gid } => (meta.uid, meta.gid) = (*uid, *gid),
            Self::Mapped { users, groups } => {
                let unmapped = |what: &str, id: u32| {
                    EntryError::new(format!("its {what} {id} is in no range of the map"))
                };
                let user = |id| users.get(id).ok_or_else(|| unmapped("owner", id));
                let group = |id| groups.get(id).ok_or_else(|| unmapped("group", id));
                (meta.uid, meta.gid) = (user(meta.uid)?, group(meta.gid)?);
                for (name, value) in &mut meta.xattrs {
                    if name.starts_with(b"system.posix_acl_") {
                        *value = map_list(value, &user, &group)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The access list `value` with mapped numbers of users and groups.
fn map_list(
    value: &[u8],
    user: &impl Fn(u32) -> Result<u32>,
    group: &impl Fn(u32) -> Result<u32>,
) -> Result<Vec<u8>> {
    let mut list =
        Acl::from_xattr(value).map_err(|_| EntryError::new("its access list is damaged"))?;
    for entry in &mut list.entries {
        match &mut entry.tag {
            Tag::User(id) => *id = user(*id)?,
            Tag::Group(id) => *id = group(*id)?,
            _ => {}
        }
    }
    // acl(5) asks for this order, by kind and then by number.
    list.entries.sort_by_key(|entry| entry.tag);
    Ok(list.to_xattr())
}

/// Sets an extended attribute in place of an old value.
fn set_xattr(meta: &mut Meta, name: &[u8], value: Vec<u8>) {
    meta.xattrs.retain(|(other, _)| other != name);
    meta.xattrs.push((name.to_vec(), value));
    meta.xattrs.sort();
}

/// Sets the SELinux label in place of an old one, or removes that.
fn set_label(meta: &mut Meta, label: Option<&[u8]>) {
    const LABEL: &[u8] = b"security.selinux";
    match label {
        // Linux stores the terminating zero.
        Some(label) => set_xattr(meta, LABEL, [label, b"\0"].concat()),
        None => meta.xattrs.retain(|(name, _)| name != LABEL),
    }
}
