//! `commit-overlay` and `rebase`: the delta of a copy-on-write image.

use crate::disk::Disk;
use crate::failure::{Context, Failure, Result, say};
use crate::overlay::{self, OverlaySpec, samples};
use crate::show;
use crate::target::{ImageSpec, Place};
use nextent_device::{DeltaFile, FileDevice, FileOptions, replace_base};
use serde_json::json;

/// Arguments of `commit-overlay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Commit {
    /// Print nothing
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The overlay
    #[arg(value_name = "overlay:BASE+DELTA")]
    image: ImageSpec,
}

/// Arguments of `rebase`.
#[derive(Debug, clap::Args)]
pub(crate) struct Rebase {
    /// NEWBASE is known to hold the same bytes: BASE is not read, and may be gone
    #[arg(short, long)]
    unchecked: bool,
    /// Print nothing
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The overlay
    #[arg(value_name = "overlay:BASE+DELTA")]
    image: ImageSpec,
    /// The other base: a file, a block device, an export of an NBD server or another overlay
    #[arg(value_name = "NEWBASE", value_hint = clap::ValueHint::FilePath)]
    base: ImageSpec,
}

/// The overlay of an argument, which must be a whole one with a delta.
fn of(image: &ImageSpec) -> Result<OverlaySpec> {
    let refused = |why: &str| Failure::usage(format!("{}: {why}", show::path(image)));
    if image.is_part() {
        return Err(refused("give all of the overlay, without a part"));
    }
    if !overlay::is_overlay(image.path().as_os_str()) {
        return Err(refused("is no overlay: give overlay:BASE+DELTA"));
    }
    let spec = OverlaySpec::parse(image.path().as_os_str()).map_err(|why| refused(&why))?;
    // An open would make it.
    std::fs::metadata(&spec.delta).context(|| show::path(&spec.delta))?;
    Ok(spec)
}

fn open(spec: &OverlaySpec, base: &FileOptions) -> Result<DeltaFile<Disk>> {
    let fail = |error: nextent_device::OpenError| Failure::new(error.to_string());
    let base = spec.open_base(base, &Place::default()).map_err(fail)?;
    DeltaFile::open_file(base, &spec.delta, &FileOptions::new(), samples).map_err(fail)
}

/// `nextent commit-overlay`.
pub(crate) fn commit(args: &Commit) -> Result<()> {
    let spec = of(&args.image)?;
    let mut delta = open(&spec, &FileOptions::new())?;
    let bytes = delta.commit().context(|| format!("{}: its delta", show::path(&args.image)))?;
    let name = show::path(&args.image);
    if args.json {
        say!("{:#}", json!({"image": name, "committed": bytes}));
    } else if !args.quiet {
        say!("{name}: {bytes} bytes committed");
    }
    Ok(())
}

/// `nextent rebase`.
pub(crate) fn rebase(args: &Rebase) -> Result<()> {
    let spec = of(&args.image)?;
    let reading = FileOptions::new().read_only(true);
    let new = args.base.open(reading.clone())?;
    let name = show::path(&args.image);
    let context = || format!("{name}: its delta");
    let bytes = match args.unchecked {
        true => {
            let delta = FileDevice::open(&spec.delta, &FileOptions::new());
            let delta = delta.map_err(|error| Failure::new(error.to_string()))?;
            replace_base(&delta, &new, samples(&new)).context(context)?;
            0
        }
        false => open(&spec, &reading)?.rebase(&new, samples(&new)).context(context)?,
    };
    if args.json {
        say!("{:#}", json!({"image": name, "copied": bytes}));
    } else if !args.quiet {
        say!("{name}: {bytes} bytes copied into the delta");
    }
    Ok(())
}
