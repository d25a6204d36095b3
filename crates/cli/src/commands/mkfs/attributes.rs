//! Options that replace the attributes of what `-d` copies.

use clap::Args;
use nextent_image::{Attributes, IdMap, IdRange, accounts};

/// Owners of copied entries.
#[derive(Debug, Args)]
#[command(next_help_heading = "Owners of what -d copies")]
pub(super) struct AttributeArgs {
    /// Owner and group of every entry and of the root directory, as numbers or names
    #[arg(long, value_name = "UID:GID", requires = "contents")]
    #[arg(conflicts_with_all = ["map_uid", "map_gid"])]
    owner: Option<String>,
    /// Change COUNT user numbers from FROM on to those from TO on; may be repeated; other users
    /// are errors
    #[arg(long, value_name = "FROM:TO:COUNT", requires = "contents")]
    map_uid: Vec<IdRange>,
    /// The same for group numbers
    #[arg(long, value_name = "FROM:TO:COUNT", requires = "contents")]
    map_gid: Vec<IdRange>,
}

impl AttributeArgs {
    /// What the options ask for, if they ask for anything.
    pub(super) fn attributes(&self) -> Result<Option<Attributes>, String> {
        let mut all = Attributes::new();
        if let Some(owner) = &self.owner {
            let (uid, gid) = parse_owner(owner)?;
            all = all.owner(uid, gid);
        } else if !self.map_uid.is_empty() || !self.map_gid.is_empty() {
            let map = |option: &str, ranges: &[IdRange]| {
                IdMap::new(ranges.iter().copied()).map_err(|error| format!("{option}: {error}"))
            };
            all = all.mapped(map("--map-uid", &self.map_uid)?, map("--map-gid", &self.map_gid)?);
        } else {
            return Ok(None);
        }
        Ok(Some(all))
    }
}

/// Parses `UID:GID`, numbers or names of this machine.
fn parse_owner(text: &str) -> Result<(u32, u32), String> {
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
