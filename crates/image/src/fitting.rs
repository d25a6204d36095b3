//! Finds the size of an image from its contents.
//!
//! The contents are measured by the code that copies them, in a large volume, without reading the
//! contents of files. Contents that grow between measuring and copying fill the volume; then the
//! builder measures again, and adds some room.

use super::contents::{Contents, Filler};
use super::report::Report;
use super::watch::Watch;
use super::{BuildError, Observer};
use nextent::mkfs::{Fit, MEASURED_BLOCKS, MkfsOptions, Needs, Plan};
use std::path::Path;

/// How often a builder measures again because the volume was full.
pub(super) const ROUNDS: u32 = 3;
/// Contents of fewer blocks are copied again rather than to have spare blocks, which would be more
/// than a hundredth of them.
const FEW_BLOCKS: u64 = 4096;

/// The parameters of a search.
pub(super) struct Fitting<'a> {
    /// With all random values chosen.
    pub(super) options: &'a MkfsOptions,
    pub(super) fit: &'a Fit,
    /// The image, which may exist.
    pub(super) image: &'a Path,
    pub(super) observer: &'a dyn Observer,
    /// How often the volume was full.
    pub(super) round: u32,
}

impl Fitting<'_> {
    /// The smallest volume that holds `contents`, as `filler` copies them.
    ///
    /// # Errors
    ///
    /// [`BuildError::Incomplete`] for entries that cannot be copied.
    pub(super) fn plan(
        &self,
        contents: Option<&mut Contents<'_>>,
        filler: &Filler<'_>,
    ) -> Result<Plan, BuildError> {
        let mut needs = match contents {
            Some(contents) => self.measure(contents, filler)?,
            None => Needs::default(),
        };
        match self.round {
            0 => needs.split &= needs.blocks >= FEW_BLOCKS,
            1 => {}
            round => needs = needs.with_spare(round),
        }
        Ok(Plan::fit(self.options, self.fit, &needs)?)
    }

    fn measure(
        &self,
        contents: &mut Contents<'_>,
        filler: &Filler<'_>,
    ) -> Result<Needs, BuildError> {
        for (at, blocks) in MEASURED_BLOCKS.into_iter().enumerate() {
            let watch = Watch::measuring(self.observer);
            let report = Report::new(&watch);
            let how = (self.options, blocks, self.fit.leaves_nothing());
            let needs = filler.measure(how, self.image, contents, &report);
            let full = watch.is_full()
                || matches!(&needs, Err(BuildError::Volume(error)) if error.is_full_volume());
            if full && at + 1 < MEASURED_BLOCKS.len() {
                continue;
            }
            watch.pass_on();
            return match report.failures() {
                0 => needs,
                failures => Err(BuildError::Incomplete { failures }),
            };
        }
        Ok(Needs::default())
    }
}
