//! Shared by the fuzz targets: a sound image, which the fuzzer's input damages in the part that the
//! target names, and operations on it. The engine's `tests/hostile.rs` does the same with random
//! damage.

#[path = "../../crates/engine/tests/common/mod.rs"]
mod common;
#[path = "../../crates/engine/tests/damage/mod.rs"]
mod damage;

use damage::{BaseImage, KINDS, exercise};
use nextent_sync::OnceLock;

pub use damage::Part;

/// Changes the part of the image by `data` and uses the image.
///
/// # Panics
/// If mke2fs, which makes the sound image, is missing.
pub fn run(part: Part, data: &[u8]) {
    static BASE: OnceLock<BaseImage> = OnceLock::new();
    // Small blocks without checksums, which would detect the damage first.
    let base =
        BASE.get_or_init(|| damage::base(KINDS[0].1, part).unwrap_or_else(|skip| panic!("{skip}")));
    exercise(&base.patched(data));
}
