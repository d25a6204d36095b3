//! The volume from its first to its last block: rows of cells, each filled from below by the shares
//! of what its blocks are used for.

use super::MARGIN;
use super::svg::{Anchor, Rectangles, Svg};
use super::units::{grouped, percent, share, size};
use super::uses::{self, Look};
use nextent::check::{BlockUsage, BlockUse, UseCounts};
use nextent_num::to_u64;
use nextent_ondisk::BlockNo;

/// The left end of the rows and their width.
const LEFT: f64 = 212.0;
const MAP: f64 = 1024.0;
/// The height of a row, and the distance of rows.
const HEIGHT: f64 = 15.0;
const STEP: f64 = 21.0;
/// The least width of groups and flex groups that have marks, and of a run that has a letter.
const MARKED: f64 = 12.0;
const LETTERED: f64 = 15.0;

/// Cells in a row.
fn columns(cells: usize) -> usize {
    match cells {
        0..=256 => 32,
        257..=1024 => 64,
        _ => 128,
    }
}

/// Draws the map from `y` on; returns where to go on.
pub(super) fn draw(svg: &mut Svg, usage: &BlockUsage, y: f64) -> f64 {
    svg.text((MARGIN, y), "head", Anchor::Start, "Where they are");
    svg.text((MARGIN, y + 18.0), "note", Anchor::Start, &explanation(usage));
    let columns = columns(usage.cells.len());
    let map = Map { usage, columns, width: MAP / columns as f64, top: y + 30.0 };
    map.ground(svg);
    map.shares(svg);
    map.letters(svg);
    map.marks(svg);
    map.rows(svg);
    map.top + usage.cells.len().div_ceil(columns) as f64 * STEP + 26.0
}

fn explanation(usage: &BlockUsage) -> String {
    let geo = &usage.survey.geo;
    let bytes = size(usage.cell_blocks.saturating_mul(geo.block_size.into()));
    let cells = grouped(to_u64(usage.cells.len()));
    let blocks = match usage.cell_blocks {
        1 => "one block".to_owned(),
        blocks => format!("{} blocks", grouped(blocks)),
    };
    let mut text = format!(
        "{cells} cells of {bytes} ({blocks}), each filled from below by the shares of its uses; \
         white is free."
    );
    let width = MAP / columns(usage.cells.len()) as f64 / usage.cell_blocks as f64;
    let group = width * f64::from(geo.blocks_per_group);
    if geo.group_count > 1 && group >= MARKED {
        text.push_str(" Marks below a row begin groups.");
    }
    let flex = group * f64::from(geo.flex_groups);
    if geo.flex_groups > 1 && geo.group_count > geo.flex_groups && flex >= MARKED {
        text.push_str(" Bold marks begin flex groups.");
    }
    text.push_str(" At the right: the share in use.");
    text
}

struct Map<'a> {
    usage: &'a BlockUsage,
    columns: usize,
    /// The width of a cell.
    width: f64,
    top: f64,
}

/// Cells beside each other with the same shares.
struct Run<'a> {
    x: f64,
    y: f64,
    width: f64,
    counts: &'a UseCounts,
}

impl Map<'_> {
    fn row_blocks(&self) -> u64 {
        to_u64(self.columns) * self.usage.cell_blocks
    }

    /// The place of a block.
    fn place(&self, block: u64) -> (f64, f64) {
        let (row, rest) = (block / self.row_blocks(), block % self.row_blocks());
        let x = LEFT + rest as f64 / self.usage.cell_blocks as f64 * self.width;
        (x, self.top + row as f64 * STEP)
    }

    fn ground(&self, svg: &mut Svg) {
        for (row, cells) in self.usage.cells.chunks(self.columns).enumerate() {
            let y = self.top + row as f64 * STEP;
            svg.rect((LEFT, y), (cells.len() as f64 * self.width, HEIGHT), "ground", "");
        }
    }

    /// Runs of cells that are equal by `key`.
    fn runs<K: PartialEq>(&self, key: impl Fn(&UseCounts) -> K) -> Vec<Run<'_>> {
        let mut runs: Vec<Run<'_>> = Vec::new();
        for (row, cells) in self.usage.cells.chunks(self.columns).enumerate() {
            let y = self.top + row as f64 * STEP;
            let mut last = None;
            for (column, counts) in cells.iter().enumerate() {
                let this = key(counts);
                match runs.last_mut() {
                    Some(run) if last.as_ref() == Some(&this) => run.width += self.width,
                    _ => {
                        let x = LEFT + column as f64 * self.width;
                        runs.push(Run { x, y, width: self.width, counts });
                    }
                }
                last = Some(this);
            }
        }
        runs
    }

    /// One path for each use.
    fn shares(&self, svg: &mut Svg) {
        let runs = self.runs(|counts| *counts);
        for of in BlockUse::ALL.into_iter().filter(|of| *of != BlockUse::Free) {
            let mut paths = Rectangles::default();
            for Run { x, y, width, counts } in &runs {
                let blocks = counts.of(of);
                if blocks == 0 {
                    continue;
                }
                let below = BlockUse::ALL.into_iter().take_while(|other| *other != of);
                let below: u64 = below.map(|other| counts.of(other)).sum();
                let height = |blocks| HEIGHT * share(blocks, counts.total());
                let bottom = y + HEIGHT - height(below);
                paths.add((*x, bottom - height(blocks)), (*width, height(blocks)));
            }
            if !paths.is_empty() {
                let Look { id, .. } = uses::look(of);
                svg.raw(format_args!("<path class=\"{id}\" d=\"{}\"/>", paths.path()));
            }
        }
    }

    /// The letter of the largest use, where it has the space.
    fn letters(&self, svg: &mut Svg) {
        let most = |counts: &UseCounts| {
            let half = counts.total() / 2;
            BlockUse::ALL.into_iter().find(|of| counts.of(*of) > half)
        };
        for Run { x, y, width, counts } in self.runs(most) {
            let Some(of) = most(counts).filter(|of| *of != BlockUse::Free) else { continue };
            if width >= LETTERED {
                let Look { letter, dark, .. } = uses::look(of);
                let class = if dark { "letter light" } else { "letter" };
                let letter = letter.to_string();
                svg.text((x + width / 2.0, y + 11.5), class, Anchor::Middle, &letter);
            }
        }
    }

    /// Marks below the rows, where groups and flex groups begin.
    fn marks(&self, svg: &mut Svg) {
        let geo = &self.usage.survey.geo;
        let group = f64::from(geo.blocks_per_group) * self.width / self.usage.cell_blocks as f64;
        for (every, class, length) in [(1, "group", 3.5), (geo.flex_groups, "flex", 5.0)] {
            if group * f64::from(every) < MARKED || geo.group_count <= every {
                continue;
            }
            if class == "flex" && every == 1 {
                continue;
            }
            let mut path = String::new();
            for number in geo.groups().filter(|group| group.0.is_multiple_of(every)) {
                let (x, y) = self.place(geo.group_first_block(number).0);
                let [x, y] = [x, y + HEIGHT].map(super::svg::number);
                path.push_str(&format!("M{x} {y}v{length}"));
            }
            svg.raw(format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
        }
    }

    /// What stands beside each row, and what a viewer shows for it.
    fn rows(&self, svg: &mut Svg) {
        let geo = &self.usage.survey.geo;
        for (row, cells) in self.usage.cells.chunks(self.columns).enumerate() {
            let y = self.top + row as f64 * STEP;
            let first = to_u64(row) * self.row_blocks();
            let end = (first + self.row_blocks()).min(geo.blocks_count);
            let bytes = size(first.saturating_mul(geo.block_size.into()));
            svg.text((MARGIN + 60.0, y + 11.5), "small", Anchor::End, &bytes);
            let group = |block: u64| geo.group_of(BlockNo(block)).map_or(0, |group| group.0);
            // With blocks of 1 KiB, groups begin one block later than rows.
            let groups =
                match (group((first + geo.first_data_block.0).min(end - 1)), group(end - 1)) {
                    (one, other) if one == other => format!("group {one}"),
                    (one, other) => format!("groups {one}\u{2013}{other}"),
                };
            svg.text((MARGIN + 68.0, y + 11.5), "small", Anchor::Start, &groups);
            let free: u64 = cells.iter().map(|cell| cell.of(BlockUse::Free)).sum();
            let total: u64 = cells.iter().map(UseCounts::total).sum();
            let used = percent(total - free, total);
            svg.text((LEFT + MAP + 36.0, y + 11.5), "small", Anchor::End, &used);
            let title =
                format!("Blocks {first}\u{2013}{}, {groups}: {}", end - 1, uses_of(cells, total));
            let width = cells.len() as f64 * self.width;
            svg.rect((LEFT, y), (width, HEIGHT), "row", &title);
        }
    }
}

/// The shares of the uses of some cells.
fn uses_of(cells: &[UseCounts], total: u64) -> String {
    let of = |of: BlockUse| -> u64 { cells.iter().map(|cell| cell.of(of)).sum() };
    let all = BlockUse::ALL.into_iter().map(|kind| (kind, of(kind)));
    let words = all.filter(|(_, blocks)| *blocks > 0).map(|(kind, blocks)| {
        let Look { name, .. } = uses::look(kind);
        format!("{name} {}", percent(blocks, total))
    });
    words.collect::<Vec<_>>().join(", ")
}
