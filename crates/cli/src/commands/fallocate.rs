//! `fallocate`.

use super::change::create;
use super::each::each;
use crate::args::Fallocate;
use crate::failure::Result;
use crate::image::{at, cred};
use crate::scope::Scope;
use nextent::Error;
use nextent::inodes::FallocateMode;

/// `nextent fallocate`.
pub(crate) fn run(args: &Fallocate, scope: Scope<'_>) -> Result<()> {
    let (mode, makes) = mode(args);
    each(scope, &args.paths.paths, |volume, inside| {
        let found = match volume.resolve(&cred(), &inside.path, true) {
            Err(Error::NotFound) if makes => create(volume, inside),
            found => found,
        };
        let attr = at("fallocate", inside, found)?;
        let done = volume.fallocate(&cred(), attr.ino, mode, args.offset, args.length);
        at("fallocate", inside, done)
    })
}

/// The library's mode, and whether a missing file is created.
fn mode(args: &Fallocate) -> (FallocateMode, bool) {
    match (args.punch_hole, args.zero_range, args.collapse_range, args.insert_range) {
        (true, ..) => (FallocateMode::PunchHole, false),
        (_, true, ..) => (FallocateMode::ZeroRange { keep_size: args.keep_size }, false),
        (_, _, true, _) => (FallocateMode::CollapseRange, false),
        (.., true) => (FallocateMode::InsertRange, false),
        _ if args.keep_size => (FallocateMode::KeepSize, true),
        _ => (FallocateMode::Allocate, true),
    }
}
