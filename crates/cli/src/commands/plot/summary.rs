//! The numbers of a volume, and what all of its blocks are used for.

use super::svg::{Anchor, Svg};
use super::units::{grouped, percent, share, size};
use super::uses::{self, Look};
use super::{MARGIN, WIDTH};
use nextent::check::{BlockUsage, BlockUse};

const INNER: f64 = WIDTH - 2.0 * MARGIN;

/// Draws the numbers from `y` on; returns where to go on.
pub(super) fn tiles(svg: &mut Svg, usage: &BlockUsage, y: f64) -> f64 {
    const COLUMNS: usize = 5;
    const GAP: f64 = 10.0;
    const HEIGHT: f64 = 52.0;
    let width = (INNER + GAP) / COLUMNS as f64 - GAP;
    let all = numbers(usage);
    for (row, tiles) in all.chunks(COLUMNS).enumerate() {
        for (column, (name, value, note)) in tiles.iter().enumerate() {
            let x = MARGIN + column as f64 * (width + GAP);
            let y = y + row as f64 * (HEIGHT + GAP);
            svg.rect((x, y), (width, HEIGHT), "tile", "");
            svg.text((x + 9.0, y + 16.0), "small", Anchor::Start, name);
            svg.text((x + 9.0, y + 40.0), "value", Anchor::Start, value);
            svg.text((x + width - 9.0, y + 40.0), "small", Anchor::End, note);
        }
    }
    y + all.len().div_ceil(COLUMNS) as f64 * (HEIGHT + GAP) + 20.0
}

/// Name, value and a remark of each number.
fn numbers(usage: &BlockUsage) -> Vec<(&'static str, String, String)> {
    let (sb, geo, free) = (&usage.survey.sb, &usage.survey.geo, &usage.survey.free);
    let bytes = |blocks: u64| size(blocks.saturating_mul(geo.block_size.into()));
    let all = geo.blocks_count;
    let used = all.saturating_sub(free.blocks);
    let reserved = sb.reserved_blocks_count();
    let files = &usage.files;
    let per_file = files.extents as f64 / files.with_blocks.max(1) as f64;
    let journal = usage.total().of(BlockUse::Journal);
    let inodes = u64::from(geo.inodes_count);
    vec![
        ("Size", bytes(all), format!("{} blocks", grouped(all))),
        ("Used", bytes(used), percent(used, all)),
        ("Free", bytes(free.blocks), percent(free.blocks, all)),
        ("Reserved for root", bytes(reserved), percent(reserved, all)),
        ("Journal", bytes(journal), percent(journal, all)),
        ("Inodes in use", grouped(usage.inodes_used), percent(usage.inodes_used, inodes)),
        (
            "Regular files",
            grouped(files.files),
            format!("{} directories", grouped(files.directories)),
        ),
        (
            "Extents per file, average",
            format!("{per_file:.2}"),
            format!("at most {}", grouped(files.most_extents)),
        ),
        (
            "Files in several extents",
            grouped(files.fragmented),
            percent(files.fragmented, files.with_blocks),
        ),
        (
            "Largest free extent",
            bytes(free.longest),
            format!("{} free extents", grouped(free.runs)),
        ),
    ]
}

/// Draws the shares of all blocks as a bar with its legend; returns where to go on.
pub(super) fn bar(svg: &mut Svg, usage: &BlockUsage, y: f64) -> f64 {
    const HEIGHT: f64 = 30.0;
    let total = usage.total();
    let all = total.total();
    svg.text((MARGIN, y), "head", Anchor::Start, "What the blocks are used for");
    let top = y + 10.0;
    let mut x = MARGIN;
    for of in BlockUse::ALL {
        let Look { id, letter, name, dark, .. } = uses::look(of);
        let width = INNER * share(total.of(of), all);
        if width <= 0.0 {
            continue;
        }
        let title = format!("{name}: {}", percent(total.of(of), all));
        svg.rect((x, top), (width, HEIGHT), id, &title);
        if width > 14.0 && letter != ' ' {
            let class = if dark { "letter light" } else { "letter" };
            let at = (x + width / 2.0, top + HEIGHT / 2.0 + 4.0);
            svg.text(at, class, Anchor::Middle, letter.encode_utf8(&mut [0; 4]));
        }
        x += width;
    }
    svg.rect((MARGIN, top), (INNER, HEIGHT), "frame", "");
    let reserved = usage.survey.sb.reserved_blocks_count().min(total.of(BlockUse::Free));
    let width = INNER * share(reserved, all);
    if width >= 1.0 {
        let at = (MARGIN + INNER - width, top + 3.0);
        svg.rect(
            at,
            (width - 3.0_f64.min(width / 2.0), HEIGHT - 6.0),
            "reserved",
            "Reserved for root",
        );
    }
    legend(svg, usage, top + HEIGHT + 12.0)
}

/// Draws one line for each use that the volume has; returns where to go on.
fn legend(svg: &mut Svg, usage: &BlockUsage, y: f64) -> f64 {
    const COLUMNS: usize = 3;
    const LINE: f64 = 20.0;
    let total = usage.total();
    let bytes = |blocks: u64| size(blocks.saturating_mul(usage.survey.geo.block_size.into()));
    let shown: Vec<BlockUse> = BlockUse::ALL.into_iter().filter(|of| total.of(*of) > 0).collect();
    let lines = shown.len().div_ceil(COLUMNS);
    let width = INNER / COLUMNS as f64;
    for (number, of) in shown.into_iter().enumerate() {
        let Look { id, letter, name, dark, .. } = uses::look(of);
        let x = MARGIN + (number / lines) as f64 * width;
        let y = y + (number % lines) as f64 * LINE;
        let blocks = total.of(of);
        svg.raw(format_args!("<g data-use=\"{id}\" data-blocks=\"{blocks}\">"));
        svg.rect((x, y), (16.0, 15.0), id, "");
        svg.rect((x, y), (16.0, 15.0), "frame", "");
        let class = if dark { "letter light" } else { "letter" };
        if letter != ' ' {
            svg.text((x + 8.0, y + 11.5), class, Anchor::Middle, letter.encode_utf8(&mut [0; 4]));
        }
        svg.text((x + 23.0, y + 12.0), "label", Anchor::Start, name);
        svg.text((x + 300.0, y + 12.0), "label", Anchor::End, &bytes(blocks));
        svg.text((x + 356.0, y + 12.0), "label", Anchor::End, &percent(blocks, total.total()));
        svg.raw("</g>");
    }
    let mut end = y + lines as f64 * LINE;
    let reserved = usage.survey.sb.reserved_blocks_count();
    if reserved > 0 {
        let text = format!(
            "{} of the free space is reserved for root: the outlined end of the bar.",
            bytes(reserved.min(total.of(BlockUse::Free)))
        );
        svg.text((MARGIN, end + 12.0), "note", Anchor::Start, &text);
        end += LINE;
    }
    end + 28.0
}
