//! `chown`.

use super::each::each;
use super::mode::walk;
use crate::args::Chown;
use crate::failure::{Failure, Result};
use crate::image::{at, cred};
use nextent::{SetAttr, Volume};

/// `nextent chown`.
pub(crate) fn chown(args: &Chown) -> Result<()> {
    let (uid, gid) = parse(&args.owner)?;
    let set = SetAttr { uid, gid, ..SetAttr::default() };
    let follow = !args.no_dereference && !args.recursive;
    each(&args.paths.paths, |volume: &Volume, inside| {
        let attr = at("chown", inside, volume.resolve(&cred(), &inside.path, follow))?;
        walk(volume, inside, attr, args.recursive, &mut |inside, attr| {
            at("chown", inside, volume.setattr(&cred(), attr.ino, &set)).map(drop)
        })
    })
}

/// `UID`, `UID:GID`, `UID:`, `:GID`; the parts that are given.
fn parse(text: &str) -> Result<(Option<u32>, Option<u32>)> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    if user.is_empty() && group.is_empty() {
        return Err(Failure::usage("chown: no owner given"));
    }
    Ok((id(user, "/etc/passwd")?, id(group, "/etc/group")?))
}

/// A number, or a name that this machine's own table knows.
fn id(text: &str, table: &str) -> Result<Option<u32>> {
    if text.is_empty() {
        return Ok(None);
    }
    if let Ok(number) = text.parse() {
        return Ok(Some(number));
    }
    let lines = std::fs::read_to_string(table).unwrap_or_default();
    let known = lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok())?
    });
    known.map(Some).ok_or_else(|| Failure::usage(format!("chown: `{text}` is not in {table}")))
}
