//! Commands with several arguments handle each of them, also after failures, as coreutils do.

use crate::failure::{Failure, Result};
use crate::location::Inside;
use crate::scope::Scope;
use nextent::inodes::Inodes;
use std::ffi::OsString;

/// Runs `act` on each of `items`. Prints each failure when it happens.
///
/// # Errors
/// A failure without a message, if any of them failed.
pub(super) fn go_on<I>(
    items: impl IntoIterator<Item = I>,
    mut act: impl FnMut(I) -> Result<()>,
) -> Result<()> {
    let mut code = None;
    for item in items {
        if let Err(failure) = act(item) {
            if failure.ends_all() {
                return Err(failure);
            }
            let own = failure.code();
            failure.print();
            code = Some(code.unwrap_or(own));
        }
    }
    code.map_or(Ok(()), |code| Err(Failure::reported(code)))
}

/// Applies `change` to each path of `scope`. Opens each image once for its paths.
///
/// # Errors
/// A path that is in no image, before any change; later as [`go_on`], and errors of opening and
/// closing an image.
pub(super) fn each(
    scope: Scope<'_>,
    paths: &[OsString],
    mut change: impl FnMut(&Inodes, &Inside) -> Result<()>,
) -> Result<()> {
    let mut rest: Vec<Inside> = paths.iter().map(|p| scope.inside(p)).collect::<Result<_>>()?;
    let mut images = Vec::new();
    while !rest.is_empty() {
        let image = rest[0].image.clone();
        let (now, later): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|inside| inside.same_image(&image));
        rest = later;
        images.push(now);
    }
    go_on(images, |paths| {
        scope.change(&paths[0], |volume| go_on(&paths, |path| change(volume, path)))
    })
}
