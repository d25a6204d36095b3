//! What a volume has in place of parts of the engine.

use crate::alloc::seam::AllocatorChoice;
#[cfg(feature = "lab")]
use crate::inode::seam::DirectChoice;
use nextent_store::AdmissionFactory;

/// The replacements at the seams of a volume that is opened: of none in the product.
#[derive(Clone, Debug, Default)]
pub struct Replacements {
    /// The block allocator.
    pub blocks: AllocatorChoice,
    /// How direct writes begin.
    #[cfg(feature = "lab")]
    pub direct: DirectChoice,
    /// The journal's admission.
    pub admission: AdmissionFactory,
}
