//! `info --plot`: a picture of a volume as SVG: what its blocks are used for, where, and how
//! fragmented files and free space are.
//!
//! Invariants:
//! - The same volume gives the same bytes: no time, no path, nothing of the machine.
//! - The picture of a volume of any size has at most [`CELLS`] cells.
//! - Nothing of the volume becomes markup; see `svg`.

mod histogram;
mod map;
mod output;
mod summary;
mod svg;
mod units;
mod uses;

use super::info_disk::family;
use crate::failure::{Failure, Result};
use crate::show;
use crate::target::ImageSpec;
use nextent::check::{BlockUsage, block_usage};
use nextent_device::BlockDevice;
use nextent_ondisk::superblock::state;
use nextent_sync::Arc;
pub(super) use output::Output;
use std::path::Path;
use svg::{Anchor, Svg, escape};
use units::{grouped, size};

/// The most cells of the map.
const CELLS: u64 = 4096;
/// The width of the picture, and its margin.
const WIDTH: f64 = 1296.0;
const MARGIN: f64 = 24.0;
/// Letters of the features in one line.
const LINE: usize = 180;

/// Where the plot goes.
#[derive(Debug)]
pub(super) struct Plot<'a> {
    target: output::Target<'a>,
}

impl<'a> Plot<'a> {
    /// A plot to be written to `path`.
    ///
    /// # Errors
    /// `path` is the image.
    pub(super) fn new(path: &'a Path, image: &ImageSpec) -> Result<Self> {
        Ok(Self { target: output::Target::new(path, image)? })
    }

    /// Draws the volume on `device`, which `image` names, and writes the picture. Returns where.
    ///
    /// # Errors
    /// The volume cannot be read, or the picture cannot be written.
    pub(super) fn write(self, device: Arc<dyn BlockDevice>, image: &ImageSpec) -> Result<Output> {
        let usage = block_usage(device, 0, CELLS);
        let usage =
            usage.map_err(|error| Failure::new(format!("{image}: {}", image.explain(&error))))?;
        self.target.write(&draw(&usage))
    }
}

/// The picture.
fn draw(usage: &BlockUsage) -> String {
    let mut svg = Svg::default();
    let mut y = heading(&mut svg, usage);
    y = summary::tiles(&mut svg, usage, y);
    y = summary::bar(&mut svg, usage, y);
    y = map::draw(&mut svg, usage, y);
    y = histogram::draw(&mut svg, usage, y);
    let (width, height) = (svg::number(WIDTH), svg::number(y));
    let geo = &usage.survey.geo;
    let files = &usage.files;
    let data = [
        ("blocks", geo.blocks_count),
        ("block-size", geo.block_size.into()),
        ("groups", geo.group_count.into()),
        ("free-blocks", usage.survey.free.blocks),
        ("largest-free", usage.survey.free.longest),
        ("free-extents", usage.survey.free.runs),
        ("inodes", geo.inodes_count.into()),
        ("inodes-used", usage.inodes_used),
        ("files", files.files),
        ("directories", files.directories),
        ("extents", files.extents),
        ("fragmented", files.fragmented),
    ];
    let data: String = data.iter().map(|(name, n)| format!(" data-{name}=\"{n}\"")).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\"{data}>\n\
         <title>{}</title>\n{}\n\
         <rect width=\"{width}\" height=\"{height}\" class=\"paper\"/>\n{}</svg>\n",
        escape(&name(usage)),
        uses::definitions(),
        svg.finish()
    )
}

/// Label and UUID.
fn name(usage: &BlockUsage) -> String {
    let sb = &usage.survey.sb;
    let label = show::name(sb.label_bytes());
    let label =
        if label.is_empty() { "no label".to_owned() } else { format!("\u{201c}{label}\u{201d}") };
    format!("{label}, UUID {}", sb.volume_uuid())
}

/// Writes the title, what the volume is and what is wrong; returns where to go on.
fn heading(svg: &mut Svg, usage: &BlockUsage) -> f64 {
    let (sb, geo) = (&usage.survey.sb, &usage.survey.geo);
    svg.text((MARGIN, 38.0), "title", Anchor::Start, &name(usage));
    let block = u64::from(geo.block_size);
    let mut what = format!(
        "{}, {}: {} blocks of {}, {} {}",
        family(sb),
        size(geo.blocks_count.saturating_mul(block)),
        grouped(geo.blocks_count),
        size(block),
        grouped(geo.group_count.into()),
        if geo.group_count == 1 { "group" } else { "groups" },
    );
    if geo.group_count > 1 {
        what.push_str(&format!(" of {}", size(u64::from(geo.blocks_per_group) * block)));
    }
    if geo.flex_groups > 1 && geo.group_count > 1 {
        what.push_str(&format!(" in flex groups of {}", grouped(geo.flex_groups.into())));
    }
    if geo.cluster_bits > 0 {
        what.push_str(&format!(", clusters of {}", size(block << geo.cluster_bits)));
    }
    let clean = sb.state.get() & (state::VALID | state::ERROR) == state::VALID && !usage.replayed;
    what.push_str(if clean { "; clean" } else { "; not clean" });
    let mut y = 60.0;
    svg.text((MARGIN, y), "note", Anchor::Start, &what);
    let names = geo.features.names();
    for line in wrap(names.iter().map(AsRef::as_ref)) {
        y += 16.0;
        svg.text((MARGIN, y), "small", Anchor::Start, &line);
    }
    for warning in warnings(usage) {
        y += 17.0;
        svg.text((MARGIN, y), "warn", Anchor::Start, &warning);
    }
    y + 14.0
}

fn wrap<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines = vec!["Features:".to_owned()];
    for word in words {
        if let Some(line) = lines.last_mut().filter(|line| line.len() + word.len() < LINE) {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// What the reader must know before the picture is trusted.
fn warnings(usage: &BlockUsage) -> Vec<String> {
    let mut all = Vec::new();
    if usage.replayed {
        all.push("The journal has changes to replay: shown as after the replay.".to_owned());
    }
    for (count, what) in [
        (usage.damaged_inodes, "Inodes that cannot be read, or not all of their blocks"),
        (usage.shared, "Blocks with more than one owner, of which the first is shown"),
        (usage.marked_free, "Blocks with an owner that are free in the bitmap"),
    ] {
        if count > 0 {
            all.push(format!("{what}: {}.", grouped(count)));
        }
    }
    all
}
