//! From a device to a volume: gate, recovery, orphans; and back to a clean image.

mod options;

pub use options::{ErrorPolicy, OpenOptions};
