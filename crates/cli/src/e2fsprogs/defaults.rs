//! The defaults of mke2fs: those of mke2fs.conf(5) for the type and the usages of a file system.
//!
//! | file | when |
//! |---|---|
//! | `$MKE2FS_CONFIG` | the variable is set |
//! | `/etc/mke2fs.conf` | it exists |
//! | [`BUILT_IN`] | neither exists |
//!
//! A relation of `[defaults]` has the lowest priority. Those of the type and of the usages follow,
//! in this order. `features` of all of them add up.

use super::conf::Conf;
use crate::failure::{Context, Failure, Result};
use std::path::Path;

/// The defaults of `nextent mkfs`, as a file.
const BUILT_IN: &str = "
[defaults]
base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
default_mntopts = acl,user_xattr
blocksize = 4096
inode_size = 256
inode_ratio = 16384
[fs_types]
ext3 = {
features = has_journal
}
ext4 = {
features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
}
small = {
blocksize = 1024
inode_ratio = 4096
}
floppy = {
blocksize = 1024
inode_ratio = 8192
}
big = {
inode_ratio = 32768
}
huge = {
inode_ratio = 65536
}
news = {
inode_ratio = 4096
}
largefile = {
inode_ratio = 1048576
blocksize = -1
}
largefile4 = {
inode_ratio = 4194304
blocksize = -1
}
hurd = {
blocksize = 4096
inode_size = 128
}
";

const SYSTEM_FILE: &str = "/etc/mke2fs.conf";

/// Reads the file that applies.
pub(super) fn read() -> Result<Conf> {
    let chosen = std::env::var_os("MKE2FS_CONFIG").filter(|path| !path.is_empty());
    let path = chosen.as_deref().map_or(Path::new(SYSTEM_FILE), Path::new);
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BUILT_IN.to_owned(),
        Err(error) => return Err(error).context(|| crate::show::path(path)),
    };
    Conf::parse(&text).map_err(|error| {
        let path = crate::show::path(path);
        Failure::new(format!("Syntax error in mke2fs config file ({path}, {error})"))
    })
}

/// The relations for one file system.
#[derive(Debug)]
pub(super) struct Defaults<'a> {
    conf: &'a Conf,
    /// The type, then the usages.
    types: Vec<String>,
}

/// The usage of a file system of `bytes`, if none is given.
fn usage_by_size(bytes: u64) -> &'static str {
    match bytes >> 20 {
        0..3 => "floppy",
        3..512 => "small",
        512..0x40_0000 => "default",
        0x40_0000..0x100_0000 => "big",
        _ => "huge",
    }
}

impl<'a> Defaults<'a> {
    /// Those of a type and of a list of usages; without one, of the usage for the size.
    pub(super) fn new(conf: &'a Conf, fs_type: &str, usages: Option<&str>, bytes: u64) -> Self {
        let usages = usages.unwrap_or_else(|| usage_by_size(bytes)).split(',');
        let types = std::iter::once(fs_type).chain(usages.map(str::trim));
        let types = types.filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Self { conf, types }
    }

    /// The usages that no group of the file defines.
    pub(super) fn undefined(&self) -> impl Iterator<Item = &str> {
        let usages = self.types.iter().skip(1).map(String::as_str);
        usages.filter(|usage| *usage != "default" && !self.conf.has(&["fs_types", usage]))
    }

    /// The type, then the usages.
    pub(super) fn types(&self) -> &[String] {
        &self.types
    }

    /// Adds a usage.
    pub(super) fn push(&mut self, usage: &str) {
        self.types.push(usage.to_owned());
    }

    /// A relation by the last type that has it.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        let of = |name: &String| self.conf.value(&["fs_types", name, key]);
        let found = self.types.iter().rev().find_map(of);
        found.or_else(|| self.conf.value(&["defaults", key]))
    }

    /// A number.
    pub(super) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let bad = |_| Failure::new(format!("mke2fs.conf: {key} = {text}: not a number in range"));
        text.parse().map(Some).map_err(bad)
    }

    /// A switch.
    pub(super) fn switch(&self, key: &str) -> Result<Option<bool>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        match text.to_ascii_lowercase().as_str() {
            "y" | "yes" | "t" | "true" | "1" | "on" => Ok(Some(true)),
            "n" | "no" | "f" | "false" | "nil" | "0" | "off" => Ok(Some(false)),
            _ => Err(Failure::new(format!("mke2fs.conf: {key} = {text}: not a boolean"))),
        }
    }

    /// The list of features: those at the base, those of each type, and `given` or the default
    /// ones.
    pub(super) fn features(&self, given: &str) -> String {
        const BASE: &str = "sparse_super,large_file,filetype,resize_inode,dir_index";
        let base = self.text("base_features").unwrap_or(BASE);
        let of = |name: &'_ String| self.conf.value(&["fs_types", name, "features"]);
        let mut lists = vec!["none", base];
        lists.extend(self.types.iter().filter_map(of));
        if self.types.iter().any(|name| name == "hurd") {
            lists.push("^filetype,^huge_file,^metadata_csum");
        }
        lists.push(match given {
            "" => self.text("default_features").unwrap_or_default(),
            given => given,
        });
        lists.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_types_win_and_features_add_up() {
        let conf = Conf::parse(BUILT_IN).unwrap();
        let small = Defaults::new(&conf, "ext4", None, 64 << 20);
        assert_eq!(small.types(), ["ext4", "small"]);
        assert_eq!(small.number("inode_ratio").unwrap(), Some(4096));
        assert_eq!(small.number("inode_size").unwrap(), Some(256));
        assert!(small.features("^64bit").ends_with("extra_isize,^64bit"));
        let news = Defaults::new(&conf, "ext2", Some("largefile,news"), 1 << 30);
        assert_eq!(news.number("inode_ratio").unwrap(), Some(4096));
        assert_eq!(news.number("blocksize").unwrap(), Some(-1));
        let odd = Defaults::new(&conf, "ext2", Some("default,odd"), 1 << 30);
        assert_eq!(odd.undefined().collect::<Vec<_>>(), ["odd"]);
    }

    #[test]
    fn the_size_decides_about_the_usage() {
        let of = |bytes| usage_by_size(bytes);
        assert_eq!([of(0), of((3 << 20) - 1), of(3 << 20)], ["floppy", "floppy", "small"]);
        assert_eq!([of((512 << 20) - 1), of(512 << 20)], ["small", "default"]);
        assert_eq!([of((4 << 40) - 1), of(4 << 40), of(16 << 40)], ["default", "big", "huge"]);
    }

    #[test]
    fn values_that_are_no_values_are_refused() {
        let conf = Conf::parse("[defaults]\nblocksize = x\ndiscard = maybe\n").unwrap();
        let defaults = Defaults::new(&conf, "ext2", None, 0);
        assert!(
            defaults.number::<i64>("blocksize").is_err() && defaults.switch("discard").is_err()
        );
    }
}
