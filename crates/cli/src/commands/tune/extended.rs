//! `-E`: extended options.

use super::Wrong;
use super::changes::Changes;
use crate::show;

/// The keys, for completions; keys with `=` need a value.
#[cfg(any(test, feature = "generate"))]
pub(crate) const KEYS: &[&str] = &[
    "clear_mmp",
    "force_fsck",
    "hash_alg=",
    "mmp_update_interval=",
    "mount_opts=",
    "stride=",
    "stripe_width=",
    "test_fs",
    "^test_fs",
];

/// The bytes of the field for mount options, which ends with a zero byte.
const MOUNT_TEXT: usize = 63;
/// The longest interval between heartbeats, in seconds.
const MMP_INTERVAL: u16 = 300;

/// Notes one option, `key` or `key=value`, in `changes`; what is said before everything else, and
/// whether it is `clear_mmp`.
pub(super) fn edit(word: &str, changes: &mut Changes) -> Result<(Option<String>, bool), Wrong> {
    let (key, value) = match word.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (word, None),
    };
    let wrong = || Wrong::Extended { word: show::line(word), line: None };
    let needed = || value.ok_or_else(wrong);
    let bad = |text: String| Wrong::Extended { word: show::line(word), line: Some(text) };
    let mut said = None;
    match (key, value) {
        ("clear_mmp", None) => return Ok((None, true)),
        ("force_fsck", None) => {
            changes.force_check = true;
            said = Some("Setting filesystem error flag to force fsck.".to_owned());
        }
        ("test_fs", None) => {
            changes.test_fs = Some(true);
            said = Some("Setting test filesystem flag".to_owned());
        }
        ("^test_fs", None) => {
            changes.test_fs = Some(false);
            said = Some("Clearing test filesystem flag".to_owned());
        }
        ("hash_alg", _) => {
            let name = needed()?;
            let algorithms = ["legacy", "half_md4", "tea"];
            let number = algorithms.iter().position(|known| *known == name);
            let number = number.and_then(|number| u8::try_from(number).ok());
            let text = || bad(format!("Invalid hash algorithm: {}", show::line(name)));
            let number = number.ok_or_else(text)?;
            changes.hash = Some(number);
            said = Some(format!("Setting default hash algorithm to {name} ({number})"));
        }
        ("stride", _) => {
            let text = needed()?;
            let number = text.parse().ok();
            let why = || bad(format!("Invalid RAID stride: {}", show::line(text)));
            changes.stride = Some(number.ok_or_else(why)?);
        }
        ("stripe_width" | "stripe-width", _) => {
            let text = needed()?;
            let number = text.parse().ok();
            let why = || bad(format!("Invalid RAID stripe-width: {}", show::line(text)));
            changes.stripe_width = Some(number.ok_or_else(why)?);
        }
        ("mount_opts", _) => {
            let text = needed()?;
            if text.len() > MOUNT_TEXT {
                return Err(bad("Extended mount options too long".into()));
            }
            changes.mount_text = Some(text.as_bytes().to_vec());
        }
        ("mmp_update_interval", _) => said = Some(mmp_interval(needed()?, changes).map_err(bad)?),
        ("encoding" | "encoding_flags", _) => {
            let text = format!("-E {key} is not supported: make the file system with mke2fs");
            return Err(Wrong::Plain(text));
        }
        ("orphan_file_size", _) => {
            let text = "-E orphan_file_size is not supported: make the file system with mkfs";
            return Err(Wrong::Plain(text.into()));
        }
        _ => return Err(wrong()),
    }
    Ok((said, false))
}

/// Notes the seconds between two heartbeats; the line about it, or about what is wrong.
fn mmp_interval(text: &str, changes: &mut Changes) -> Result<String, String> {
    let shown = show::line(text);
    let bad = |_| format!("Invalid mmp_update_interval: {shown}");
    let seconds: u32 = text.parse().map_err(bad)?;
    let fits = u16::try_from(seconds).ok().filter(|number| *number <= MMP_INTERVAL);
    let number = fits.ok_or_else(|| format!("mmp_update_interval too big: {shown}"))?;
    changes.mmp_interval = Some(number);
    let unit = if number == 1 { "second" } else { "seconds" };
    Ok(format!("Setting multiple mount protection update interval to {number} {unit}"))
}
