//! `mknod`.

use super::each::each;
use super::symbolic::Change;
use crate::failure::{Failure, Result};
use crate::image::{at, creator, cred, umask};
use crate::location::Inside;
use crate::scope::Scope;
use crate::show;
use nextent::inodes::{Inodes, NewNode, SetAttr};
use nextent::{DeviceNo, Error};
use std::ffi::OsString;

/// The mode before the umask applies.
const MODE: u16 = 0o666;
/// The largest numbers that Linux and the format have.
const MAJOR_MAX: u32 = 0xfff;
const MINOR_MAX: u32 = 0xf_ffff;

/// Arguments of `mknod`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Permission bits, octal or symbolic
    #[arg(short, long, allow_hyphen_values = true)]
    mode: Option<String>,
    /// The new name
    #[arg(value_name = "IMAGE:/PATH")]
    path: OsString,
    /// b: block device; c or u: character device; p: named pipe
    #[arg(value_name = "TYPE")]
    kind: char,
    /// Major number, for devices
    #[arg(value_parser = number::<MAJOR_MAX>)]
    major: Option<u32>,
    /// Minor number, for devices
    #[arg(value_parser = number::<MINOR_MAX>)]
    minor: Option<u32>,
}

fn number<const MAX: u32>(text: &str) -> std::result::Result<u32, String> {
    let (digits, base) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    let plain = !digits.starts_with(['+', '-']);
    match u32::from_str_radix(digits, base).ok().filter(|_| plain) {
        Some(n) if n <= MAX => Ok(n),
        Some(_) => Err(format!("the largest is {MAX}")),
        None => Err("not a number: decimal, octal after 0, or hexadecimal after 0x".to_owned()),
    }
}

/// `nextent mknod`.
pub(crate) fn run(args: &Args, scope: Scope<'_>) -> Result<()> {
    let node = node(args)?;
    let mode = match &args.mode {
        None => None,
        Some(text) => {
            let change = Change::parse(text).ok_or_else(|| {
                Failure::usage(format!("mknod: `{}` is not a mode", show::line(text)))
            })?;
            let mode = change.apply(MODE, false, umask());
            if mode & !0o777 != 0 {
                return Err(Failure::usage("mknod: the mode may have permission bits only"));
            }
            Some(mode)
        }
    };
    each(scope, std::slice::from_ref(&args.path), |volume, inside| {
        at("mknod", inside, make(volume, inside, node, mode))
    })
}

/// The node to make.
fn node(args: &Args) -> Result<NewNode> {
    match (args.kind, args.major, args.minor) {
        ('p', None, None) => Ok(NewNode::Fifo),
        ('p', ..) => Err(Failure::usage("mknod: a named pipe has no numbers")),
        ('b', Some(major), Some(minor)) => Ok(NewNode::BlockDevice(DeviceNo { major, minor })),
        ('c' | 'u', Some(major), Some(minor)) => Ok(NewNode::CharDevice(DeviceNo { major, minor })),
        ('b' | 'c' | 'u', ..) => Err(Failure::usage("mknod: a device has two numbers")),
        (kind, ..) => {
            let kind = show::line(&kind.to_string());
            Err(Failure::usage(format!("mknod: `{kind}` is no type: b, c, u or p")))
        }
    }
}

/// Makes `node` with exactly `mode`, or by the umask.
fn make(volume: &Inodes, inside: &Inside, node: NewNode, mode: Option<u16>) -> nextent::Result<()> {
    if inside.path.ends_with(b"/") {
        // A path with a slash at its end names a directory.
        return Err(match volume.resolve(&cred(), &inside.path, true) {
            Ok(_) => Error::Exists,
            Err(error) => error,
        });
    }
    let (parent, name) = volume.resolve_parent(&cred(), &inside.path)?;
    let attr = volume.mknod(&creator(), parent, name, node, mode.unwrap_or(MODE))?;
    let Some(mode) = mode else { return Ok(()) };
    // An explicit mode overrides the umask and a default access list.
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    volume.setattr(&cred(), attr.ino, &set).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_bases() {
        for (text, n) in [("0", 0), ("12", 12), ("012", 10), ("0x1f", 31), ("0XfFf", 4095)] {
            assert_eq!(number::<MAJOR_MAX>(text), Ok(n), "{text}");
        }
        for bad in ["", "-1", "+1", "08", "0x", "1k", "4096", "99999999999"] {
            assert!(number::<MAJOR_MAX>(bad).is_err(), "{bad}");
        }
    }
}
