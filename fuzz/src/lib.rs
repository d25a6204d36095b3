//! What the fuzz targets share: a sound image, changed where the target says
//! by what the fuzzer chose, and everything done to it. See the engine's
//! `tests/hostile.rs`, which does the same with random damage.

#[path = "../../crates/engine/tests/common/mod.rs"]
mod common;
#[path = "../../crates/engine/tests/damage/mod.rs"]
mod damage;

use damage::{Base, KINDS, exercise};
use nextent_sync::OnceLock;

pub use damage::Part;

/// Changes the part of the image as `data` says and exercises it.
///
/// # Panics
/// If mke2fs is missing, which makes the sound image.
pub fn run(part: Part, data: &[u8]) {
    static BASE: OnceLock<Base> = OnceLock::new();
    // Small blocks without checksums: damage gets past the door.
    let base =
        BASE.get_or_init(|| damage::base(KINDS[0].1, part).unwrap_or_else(|skip| panic!("{skip}")));
    exercise(&base.patched(data));
}
