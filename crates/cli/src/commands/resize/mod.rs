//! `resize`: grows and shrinks volumes, also those that the kernel has mounted.

mod online;
mod passes;
mod volume;

pub(crate) use online::plain;
pub(crate) use passes::Passes;
use volume::whole_pages;
pub(crate) use volume::{Resizable, Trouble};

use crate::failure::{Failure, Result, say};
use crate::size::Size;
use crate::target::ImageSpec;
use nextent::Error;
use nextent::resize::{ResizeOptions, Resized};
use nextent_device::FileOptions;
use nextent_ondisk::Incompat;
use serde_json::json;

/// Arguments of `resize`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what"))]
pub(crate) struct Args {
    /// Shrink as far as the contents allow
    #[arg(short = 'M', group = "what")]
    minimum: bool,
    /// Print the size of -M, and change nothing
    #[arg(short = 'P', group = "what")]
    estimate: bool,
    /// Set the feature 64bit, and keep the size
    #[arg(short = 'b', group = "what")]
    wide: bool,
    /// Clear the feature 64bit, and keep the size
    #[arg(short = 's', group = "what")]
    narrow: bool,
    /// Do not check the volume before blocks or inodes move
    #[arg(short = 'f')]
    force: bool,
    /// Print the progress
    #[arg(short = 'p', conflicts_with = "json")]
    progress: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image, or the mount point of a volume that the kernel has mounted
    #[arg(value_hint = clap::ValueHint::AnyPath, value_name = "IMAGE|MOUNTPOINT")]
    image: ImageSpec,
    /// New size with k, m, g or t; a plain number counts blocks of the volume; default: that of the
    /// file or device
    #[arg(group = "what")]
    size: Option<Size>,
}

/// A size to make.
struct Wanted {
    blocks: u64,
    /// The size was given, so that a file gets that length.
    exact: bool,
    options: ResizeOptions,
}

/// The result, for printing.
struct Outcome {
    before: u64,
    blocks: u64,
    block_size: u64,
    moved_blocks: u64,
    moved_inodes: u64,
}

/// `nextent resize`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let image = &args.image;
    if !image.is_part() && image.path().is_dir() {
        return grow_mounted(args);
    }
    let failed = |text: String| Failure::new(format!("resize {image}: {text}"));
    let place = image.resolve()?;
    let disk = image.open(FileOptions::new().read_only(args.estimate))?;
    let explained = |error: Error| failed(image.explain(&error));
    let mut volume = Resizable::read(&place, disk).map_err(explained)?;
    if args.estimate {
        let blocks = volume.minimum().map_err(explained)?;
        return estimated(args, blocks, volume.block_size());
    }
    let Wanted { blocks, exact, options } = wanted(args, &volume)?;
    let has = volume.superblock().features().has(Incompat::BIT64);
    if volume.has(blocks) && options.wide.is_none_or(|wide| wide == has) {
        return Outcome::unchanged(blocks, volume.block_size()).print(args);
    }
    let passes = Passes::new(args.progress);
    let done = volume.resize(blocks, exact, &options, &|step| passes.show(step));
    passes.end(done.is_ok());
    let done = done.map_err(|trouble| match trouble {
        Trouble::Volume(Error::NoSpace) => failed(too_small(&volume, blocks)),
        Trouble::Volume(error) => explained(error),
        Trouble::File(error) => failed(format!("the length of the file: {error}")),
    })?;
    Outcome::of(&done).print(args)
}

/// The size that the arguments ask for.
fn wanted(args: &Args, volume: &Resizable) -> Result<Wanted> {
    let image = &args.image;
    let failed = |text: String| Failure::new(format!("resize {image}: {text}"));
    let explained = |error: Error| failed(image.explain(&error));
    let mut options = ResizeOptions::default();
    options.unchecked = args.force;
    if args.wide || args.narrow {
        options.wide = Some(args.wide);
        return Ok(Wanted { blocks: volume.blocks(), exact: false, options });
    }
    if args.minimum {
        let blocks = volume.minimum().map_err(explained)?.min(volume.blocks());
        return Ok(Wanted { blocks, exact: true, options });
    }
    let exact = args.size.is_some();
    let blocks = asked(args, volume.block_size())?.unwrap_or_else(|| volume.filled(volume.room()));
    if blocks > volume.room()
        && let Some(why) = volume.limit()
    {
        return Err(failed(format!("{} asked for, but {why}", bytes(blocks, volume.block_size()))));
    }
    if volume.has(blocks) {
        return Ok(Wanted { blocks, exact, options });
    }
    let blocks = volume.resulting(blocks).map_err(|error| match error {
        Error::NoSpace => failed(too_small(volume, blocks)),
        error => explained(error),
    })?;
    Ok(Wanted { blocks, exact, options })
}

/// The blocks of the argument SIZE.
fn asked(args: &Args, block_size: u64) -> Result<Option<u64>> {
    let Some(size) = args.size else { return Ok(None) };
    let wrong = |text| Failure::usage(format!("resize {}: {text}", args.image));
    let bytes = size.bytes(block_size).ok_or_else(|| wrong("the size is too large"))?;
    match bytes / block_size {
        0 => Err(wrong("the size is less than a block")),
        blocks => Ok(Some(blocks)),
    }
}

/// The message about a size that is too small for the contents.
fn too_small(volume: &Resizable, blocks: u64) -> String {
    let asked = bytes(blocks, volume.block_size());
    match volume.minimum() {
        Ok(least) => {
            format!(
                "the contents need more than {asked}: about {}",
                bytes(least, volume.block_size())
            )
        }
        Err(_) => format!("the contents need more than {asked}"),
    }
}

fn bytes(blocks: u64, block_size: u64) -> String {
    format!("{} bytes ({blocks} blocks)", blocks.saturating_mul(block_size))
}

/// Prints the size of `-P`.
fn estimated(args: &Args, blocks: u64, block_size: u64) -> Result<()> {
    let image = args.image.to_string();
    if args.json {
        let bytes = blocks * block_size;
        let sizes = json!({"image": image, "minimum_bytes": bytes, "minimum_blocks": blocks,
            "block_size": block_size});
        say!("{sizes:#}");
    } else {
        say!("{image}: at least {}", bytes(blocks, block_size));
    }
    Ok(())
}

/// Grows the volume that the kernel has mounted at a directory.
fn grow_mounted(args: &Args) -> Result<()> {
    let failed = |text: String| Failure::new(format!("resize {}: {text}", args.image));
    let mount = online::at(args.image.path()).map_err(failed)?;
    if args.minimum || args.estimate || args.wide || args.narrow {
        return Err(failed(
            "a mounted volume can only grow; unmount it and name its device".into(),
        ));
    }
    let (before, block_size) = online::size(&mount)?;
    let room = mount.device_size().map_err(|error| failed(plain(&error)))? / block_size;
    let blocks =
        asked(args, block_size)?.unwrap_or_else(|| whole_pages(room, block_size).max(before));
    if blocks > room {
        let text = format!("but the device has only {}; enlarge it first", bytes(room, block_size));
        return Err(failed(format!("{} asked for, {text}", bytes(blocks, block_size))));
    }
    if blocks < before {
        let text = format!("a mounted volume can only grow, and has {}", bytes(before, block_size));
        return Err(failed(text));
    }
    if blocks > before {
        mount.grow(blocks).map_err(|error| failed(online::reason(&error)))?;
    }
    // The kernel drops a last group that is too small.
    let (blocks, _) = online::size(&mount)?;
    Outcome { before, ..Outcome::unchanged(blocks, block_size) }.print(args)
}

impl Outcome {
    fn unchanged(blocks: u64, block_size: u64) -> Self {
        Self { before: blocks, blocks, block_size, moved_blocks: 0, moved_inodes: 0 }
    }

    fn of(done: &Resized) -> Self {
        Self {
            before: done.before,
            moved_blocks: done.moved_blocks,
            moved_inodes: done.moved_inodes,
            ..Self::unchanged(done.blocks, done.block_size.into())
        }
    }

    fn print(&self, args: &Args) -> Result<()> {
        let image = args.image.to_string();
        let Self { before, blocks, block_size, moved_blocks, moved_inodes } = *self;
        let size = bytes(blocks, block_size);
        if args.json {
            let result = json!({
                "image": image,
                "blocks_before": before,
                "blocks": blocks,
                "block_size": block_size,
                "bytes": blocks * block_size,
                "moved_blocks": moved_blocks,
                "moved_inodes": moved_inodes,
            });
            say!("{result:#}");
        } else if args.wide || args.narrow {
            say!("{image}: {} block numbers", if args.wide { "64-bit" } else { "32-bit" });
        } else if before == blocks {
            say!("{image}: has {size} already");
        } else {
            say!(
                "{image}: resized from {before} to {blocks} blocks ({} bytes); \
                 {moved_blocks} blocks and {moved_inodes} inodes moved",
                blocks * block_size
            );
        }
        Ok(())
    }
}
