//! `trim`.

use crate::failure::{Failure, Result, say};
use crate::image::{Image, Purpose};
use crate::target::ImageSpec;
use crate::{show, size};
use nextent::Error;
use serde_json::json;

/// Arguments of `trim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Begin at this byte of the volume
    #[arg(short, long, default_value = "0", value_parser = size::bytes, value_name = "SIZE")]
    offset: u64,
    /// Bytes of the volume to search [default: all]
    #[arg(short, long, value_parser = size::bytes, value_name = "SIZE")]
    length: Option<u64>,
    /// Leave free runs that are shorter
    #[arg(short, long, default_value = "0", value_parser = size::bytes, value_name = "SIZE")]
    minimum: u64,
    /// Print nothing
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image
    #[arg(value_hint = clap::ValueHint::FilePath)]
    image: ImageSpec,
}

/// `nextent trim`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let image = Image::open(&args.image, Purpose::Change)?;
    let end = args.offset.saturating_add(args.length.unwrap_or(u64::MAX));
    // Opening may have freed the blocks of deleted files.
    let synced = image.volume.sync();
    let done = synced.and_then(|()| image.volume.trim(args.offset..end, args.minimum));
    image.close()?;
    let name = show::path(&args.image);
    let bytes = done.map_err(|error| match error {
        Error::NotSupported => Failure::new(format!(
            "trim {name}: the host cannot free parts of it (no holes in files, or no discard)"
        )),
        error => Failure::new(format!("trim {name}: {error}")),
    })?;
    if args.json {
        say!("{:#}", json!({"image": name, "trimmed": bytes}));
    } else if !args.quiet {
        say!("{name}: {bytes} bytes trimmed");
    }
    Ok(())
}
