//! `chown`.

use super::each::each;
use super::walk::all;
use crate::args::Chown;
use crate::failure::{Failure, Result};
use crate::image::{at, cred};
use crate::scope::Scope;
use nextent::inodes::{Inodes, SetAttr};
use nextent_image::accounts;

/// `nextent chown`.
pub(crate) fn chown(args: &Chown, scope: Scope<'_>) -> Result<()> {
    let (uid, gid) = parse(&args.owner)?;
    let set = SetAttr { uid, gid, ..SetAttr::default() };
    let follow = !args.no_dereference && !args.recursive;
    each(scope, &args.paths.paths, |volume: &Inodes, inside| {
        let attr = at("chown", inside, volume.resolve(&cred(), &inside.path, follow))?;
        all(volume, "chown", (inside, attr), args.recursive, &mut |inside, attr| {
            at("chown", inside, volume.setattr(&cred(), attr.ino, &set)).map(drop)
        })
    })
}

/// Parses `USER`, `USER:GROUP`, `USER:` (the login group of a user that is given by name) or
/// `:GROUP`.
fn parse(text: &str) -> Result<(Option<u32>, Option<u32>)> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let unknown =
        |name: &str, table: &str| Failure::usage(format!("chown: `{name}` is not in {table}"));
    let uid = (!user.is_empty())
        .then(|| accounts::user(user).ok_or_else(|| unknown(user, "/etc/passwd")));
    let gid = match group {
        None => None,
        Some("") if user.is_empty() => None,
        Some("") if user.parse::<u32>().is_ok() => {
            let text = format!("chown: `{text}`: no group; `{user}` leaves the group unchanged");
            return Err(Failure::usage(text));
        }
        Some("") => Some(accounts::login_group(user).ok_or_else(|| unknown(user, "/etc/passwd"))),
        Some(group) => Some(accounts::group(group).ok_or_else(|| unknown(group, "/etc/group"))),
    };
    Ok((uid.transpose()?, gid.transpose()?))
}
