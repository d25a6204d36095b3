//! Android's `fs_config` files, as `fs_config`, `e2fsdroid -C` and `mkfs.erofs --fs-config-file`
//! write and read them:
//!
//! ```text
//! system/bin/run-as 0 2000 0750 capabilities=0xc0 selabel=u:object_r:runas_exec:s0
//! / 0 0 0755
//! ```
//!
//! A line has a path, owner, group and the mode in octal; words with an `=` may follow. The root's
//! path is `/`, or empty, with a space at the line's start. Numbers of capabilities are decimal, or
//! hexadecimal with `0x`; zero means none.

use super::list_file::{AttributesError, ListFile};
use super::list_file::{mode, owner, path, shown};
use super::{set_label, set_xattr};
use crate::entry::{Kind, Meta};
use nextent_ondisk::capability::capability;
use std::collections::HashMap;
use std::path::Path;

const CAPABILITY: &[u8] = b"security.capability";
/// Removed where a file sets the mode: the bits of the group would be the mask of this list.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

#[derive(Debug)]
struct Config {
    uid: u32,
    gid: u32,
    mode: u16,
    capabilities: Option<u64>,
    label: Option<Vec<u8>>,
}

/// An Android `fs_config` file: owner, mode and capabilities by path. Entries without a line keep
/// what they have.
#[derive(Debug)]
pub struct FsConfig(HashMap<Vec<u8>, Config>);

impl FsConfig {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// [`AttributesError`]
    pub fn read(path: impl AsRef<Path>) -> Result<Self, AttributesError> {
        let file = ListFile::read(path.as_ref())?;
        let mut all = HashMap::new();
        file.each_line(|_, line| {
            if !line.trim_ascii().is_empty() && !line.starts_with(b"#") {
                let (path, config) = parse(line)?;
                all.insert(path, config);
            }
            Ok(())
        })?;
        match all.is_empty() {
            true => Err(file.whole("the fs_config file has no lines")),
            false => Ok(Self(all)),
        }
    }

    /// Gives `meta`, of the entry at `path`, what its line says.
    pub(super) fn apply(&self, path: &[u8], meta: &mut Meta) {
        let Some(config) = self.0.get(path) else { return };
        (meta.uid, meta.gid) = (config.uid, config.gid);
        if !matches!(meta.kind, Kind::Symlink(_)) && meta.mode != config.mode {
            meta.mode = config.mode;
            meta.xattrs.retain(|(name, _)| name != ACCESS_LIST);
        }
        if let Some(capabilities) = config.capabilities {
            meta.xattrs.retain(|(name, _)| name != CAPABILITY);
            if capabilities != 0 && meta.kind == Kind::File {
                set_xattr(meta, CAPABILITY, capability(capabilities).to_vec());
            }
        }
        if let Some(label) = &config.label {
            set_label(meta, Some(label));
        }
    }
}

fn parse(line: &[u8]) -> Result<(Vec<u8>, Config), String> {
    // A space at the start stands for an empty path.
    let (name, rest) = match line.first() {
        Some(b' ' | b'\t') => (&b""[..], line),
        _ => {
            let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
            line.split_at(end)
        }
    };
    let words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let words: Vec<&[u8]> = words.collect();
    let [uid, gid, bits, more @ ..] = &words[..] else {
        return Err("fewer than the fields PATH UID GID MODE".into());
    };
    let mut config = Config {
        uid: owner("owner", uid)?,
        gid: owner("group", gid)?,
        mode: mode(bits)?,
        capabilities: None,
        label: None,
    };
    for word in more {
        if let Some(value) = word.strip_prefix(b"capabilities=") {
            config.capabilities = Some(capabilities(value)?);
        } else if let Some(value) = word.strip_prefix(b"selabel=") {
            if value.is_empty() {
                return Err("the label is empty".into());
            }
            config.label = Some(value.to_vec());
        } else {
            return Err(format!("'{}' is neither capabilities= nor selabel=", shown(word)));
        }
    }
    Ok((path(name)?, config))
}

fn capabilities(value: &[u8]) -> Result<u64, String> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16),
        _ if text.starts_with('+') => "".parse(),
        _ => text.parse(),
    };
    number.map_err(|_| format!("capabilities='{}' is not a number", shown(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let line = b"system/bin/run-as 0 2000 0750 selabel=u:object_r:x:s0 capabilities=0xc0";
        let (path, config) = parse(line).unwrap();
        assert_eq!(path, b"/system/bin/run-as");
        assert_eq!((config.uid, config.gid, config.mode), (0, 2000, 0o750));
        assert_eq!(config.capabilities, Some(0xc0));
        assert_eq!(config.label.as_deref(), Some(&b"u:object_r:x:s0"[..]));
        assert_eq!(parse(b" 0 0 755").unwrap().0, b"/");
        assert_eq!(parse(b"/ 0 0 755").unwrap().0, b"/");
        assert_eq!(parse(b"a 0 0 755 capabilities=192").unwrap().1.capabilities, Some(192));
        for (bad, words) in [
            (&b"a 0 0"[..], "fewer than the fields"),
            (b"a 0 x 755", "the group 'x'"),
            (b"a 0 0 999", "the mode '999'"),
            (b"../a 0 0 755", "'..'"),
            (b"a 0 0 755 caps=1", "'caps=1' is neither"),
            (b"a 0 0 755 capabilities=0xg", "is not a number"),
            (b"a 0 0 755 capabilities=+1", "is not a number"),
            (b"a 0 0 755 capabilities=", "is not a number"),
            (b"a 0 0 755 selabel=", "is empty"),
        ] {
            let text = parse(bad).unwrap_err();
            assert!(text.contains(words), "{text}");
        }
    }
}
