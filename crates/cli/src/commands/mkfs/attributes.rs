//! Options that replace the attributes of what `-d` copies.

use clap::Args;
use nextent_image::{Attributes, FileContexts, FsConfig, IdMap, IdRange, ImageBuilder, accounts};
use std::path::PathBuf;

/// Owners of copied entries.
#[derive(Debug, Args)]
#[command(next_help_heading = "Owners of what -d copies")]
pub(super) struct AttributeArgs {
    /// Owner and group of every entry and of the root directory, as numbers or names
    #[arg(long, value_name = "UID:GID", requires = "filled")]
    #[arg(conflicts_with_all = ["map_uid", "map_gid"])]
    owner: Option<String>,
    /// Change COUNT user numbers from FROM on to those from TO on; may be repeated; other users
    /// are errors
    #[arg(long, value_name = "FROM:TO:COUNT", requires = "filled")]
    map_uid: Vec<IdRange>,
    /// The same for group numbers
    #[arg(long, value_name = "FROM:TO:COUNT", requires = "filled")]
    map_gid: Vec<IdRange>,
    /// Owners, modes and devices: a device table of genext2fs, or a state file of `fakeroot -s`;
    /// one of each may be given
    #[arg(long, value_name = "FILE", requires = "filled")]
    owners: Vec<PathBuf>,
    /// Owners, modes and capabilities by path, from an Android fs_config file
    #[arg(long, value_name = "FILE", requires = "filled")]
    fs_config: Option<PathBuf>,
    /// SELinux labels of all entries, of the root directory and of lost+found, from a file_contexts
    /// file; labels of the source are dropped
    #[arg(long, value_name = "FILE", requires = "filled")]
    file_contexts: Option<PathBuf>,
    /// Leave out what this user may not read, with a note; otherwise it is an error
    #[arg(long, requires = "filled")]
    skip_unreadable: bool,
    /// Fail unless SOURCE_DATE_EPOCH is set, which is then the latest time of copied files
    #[arg(long, requires = "filled")]
    clamp_mtime: bool,
}

impl AttributeArgs {
    /// Reads the files that the options name, and passes on what they ask for. `clock` is the time
    /// of `SOURCE_DATE_EPOCH`.
    pub(super) fn apply<'a>(
        &self,
        builder: ImageBuilder<'a>,
        clock: Option<u64>,
    ) -> Result<ImageBuilder<'a>, String> {
        if self.clamp_mtime && clock.is_none() {
            return Err("--clamp-mtime needs SOURCE_DATE_EPOCH in the environment".into());
        }
        let builder = builder.skip_unreadable(self.skip_unreadable);
        Ok(match self.attributes()? {
            Some(attributes) => builder.attributes(attributes),
            None => builder,
        })
    }

    /// What the options ask for, if they ask for any attributes.
    fn attributes(&self) -> Result<Option<Attributes>, String> {
        let mut all = Attributes::new();
        let mut asked = !self.owners.is_empty();
        for path in &self.owners {
            all = all.owners(path).map_err(|error| error.to_string())?;
        }
        if let Some(path) = &self.fs_config {
            all = all.fs_config(FsConfig::read(path).map_err(|error| error.to_string())?);
            asked = true;
        }
        if let Some(path) = &self.file_contexts {
            all = all.file_contexts(FileContexts::read(path).map_err(|error| error.to_string())?);
            asked = true;
        }
        if let Some(owner) = &self.owner {
            let (uid, gid) = parse_owner(owner)?;
            all = all.owner(uid, gid);
            asked = true;
        } else if !self.map_uid.is_empty() || !self.map_gid.is_empty() {
            let (users, groups) = id_maps(&self.map_uid, &self.map_gid)?;
            all = all.mapped(users, groups);
            asked = true;
        }
        Ok(asked.then_some(all))
    }
}

/// The maps of `--map-uid` and `--map-gid`.
pub(crate) fn id_maps(users: &[IdRange], groups: &[IdRange]) -> Result<(IdMap, IdMap), String> {
    let map = |option: &str, ranges: &[IdRange]| {
        IdMap::new(ranges.iter().copied()).map_err(|error| format!("{option}: {error}"))
    };
    Ok((map("--map-uid", users)?, map("--map-gid", groups)?))
}

/// Parses `UID:GID`, numbers or names of this machine.
pub(crate) fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let (user, group) =
        text.split_once(':').ok_or_else(|| format!("--owner: '{text}' is not UID:GID"))?;
    let unknown = |name: &str, table: &str| format!("--owner: '{name}' is not in {table}");
    let uid = accounts::user(user).ok_or_else(|| unknown(user, "/etc/passwd"))?;
    let gid = accounts::group(group).ok_or_else(|| unknown(group, "/etc/group"))?;
    Ok((uid, gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers_or_names() {
        assert_eq!(parse_owner("7:8"), Ok((7, 8)));
        assert_eq!(parse_owner("root:root"), Ok((0, 0)));
        for bad in ["7", "", ":", "7:", ":8", "4294967295:0", "0:4294967295", "-1:0", "7:8:9"] {
            assert!(parse_owner(bad).is_err(), "{bad}");
        }
    }
}
